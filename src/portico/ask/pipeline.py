"""From an Ask to its events: understand, clarify or act, find, rank, compose. Knows no protocol."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

from portico.ask.actions import Actions
from portico.ask.clarify import clarify
from portico.ask.compose import Sentence, answer, summarize
from portico.ask.deeds import Deed, questions_for, read_deed, wanted_operation
from portico.ask.events import (
    Clarify,
    Constraint,
    Cost,
    Did,
    Event,
    Finished,
    Found,
    Promised,
    Said,
    Understood,
)
from portico.ask.fields import Fields, key_of, spoken
from portico.ask.phrases import LANGUAGES, Phrases, best_language, phrases
from portico.ask.places import around, find_spot
from portico.ask.prompts import answer_prompt, cited, rank_prompt, scores_in, sentences_in
from portico.ask.rank import Scored, Wishes, ranked, sorted_by
from portico.ask.reading import Sort
from portico.ask.understand import Meaning, Target, understand
from portico.calls import Ask, Call, Outcome, Task
from portico.catalog import Catalog, Operation
from portico.errors import Unavailable
from portico.index.text import STOPWORDS, words
from portico.items import Item
from portico.models.language import LanguageModel, Prompt, Usage
from portico.query import Filter, Order, Query
from portico.search import Finder, Wish

DEPTH = 60  # hits that are ranked
NAMED_DEPTH = 20  # hits that might be what a command calls by its name
SORTED_DEPTH = 1000  # hits that another order than relevance is given to
CONTEXT_CHARACTERS = 2000  # of earlier questions and what is known of the person
SUMMED_UP = 10  # items that a summary looks at
SWAY = 35.0  # points by which a model may move an item from where the search put it
KNOWN_SECONDS = 2.0  # for which what is known of the collections is kept, though they change
REMEMBERED = 256  # rankings by a model
REMEMBERED_SECONDS = 120.0

Act: TypeAlias = Callable[[Call], Awaitable[Outcome | Task]]
May: TypeAlias = Callable[[Operation], bool]


@dataclass(frozen=True, slots=True)
class Manners:
    """How a site answers."""

    language: str = "en"
    clarify: bool = True
    patience: float = 20.0
    near: float = 500.0
    prompt: int = 6000
    candidates: int = 30


@dataclass(frozen=True, slots=True)
class Asker:
    """What the pipeline may do for whoever asks."""

    collections: tuple[str, ...]
    may: May
    act: Act
    later: Callable[[], Awaitable[Task]] | None  # answers the same question as a task
    seen: int


@dataclass(slots=True)
class _Turn:
    """One question on its way."""

    ask: Ask
    asker: Asker
    phrases: Phrases
    meaning: Meaning
    fields: Mapping[str, Fields]
    notes: list[str] = field(default_factory=list[str])
    cost: Cost = field(default_factory=Cost)

    def spent(self, usage: Usage) -> None:
        self.cost += Cost(0, usage.prompt_tokens, usage.completion_tokens, usage.price)


class Pipeline:
    """Answers questions. Remembers for a while what the collections hold, and how a model ranked."""

    def __init__(
        self,
        finder: Finder,
        catalog: Callable[[], Catalog],
        manners: Manners,
        model: LanguageModel | None = None,
    ) -> None:
        self._finder = finder
        self._catalog = catalog
        self._manners = manners
        self._model = model
        self._known: dict[str, tuple[int, float, Fields]] = {}
        self._learning: set[str] = set()
        self._actions: tuple[Catalog, Actions] | None = None
        self._rankings: OrderedDict[str, tuple[float, list[Scored]]] = OrderedDict()
        self._slowness = 0.0  # seconds until a model's first word, of late

    async def answer(self, ask: Ask, asker: Asker) -> AsyncGenerator[Event]:
        """Understood first, Finished last."""
        language = best_language(ask.language or _language_of(ask.text, self._manners.language), LANGUAGES)
        speech, acted = phrases(language), False
        async with aclosing(self._deed(ask, asker, speech)) as events:
            async for event in events:
                acted = True
                yield event
        if acted:
            return
        site = await self._fields(asker.collections)
        turn = _Turn(
            ask,
            asker,
            speech,
            understand(ask, site, _language_of(ask.text, language), datetime.now(UTC).date()),
            {each.collection.name: each for each in site},
        )
        await self._locate(turn, site)
        yield self._understood(turn)
        asked = await self._clarification(turn)
        if asked:
            yield asked
            return
        async with aclosing(self._found(turn)) as events:
            async for event in events:
                yield event

    def _understood(self, turn: _Turn) -> Understood:
        meaning = turn.meaning
        names = tuple(target.name for target in meaning.targets)
        return Understood(meaning.question, names, meaning.constraints, meaning.ignored, turn.phrases.language)

    # What is known of the collections

    async def _fields(self, names: Sequence[str]) -> list[Fields]:
        return [await self._fields_of(name) for name in names]

    async def _fields_of(self, name: str) -> Fields:
        """What a collection holds, as of now or a moment ago. One question finds out, others use what is known."""
        index, collection = self._finder.index, self._catalog().collections[name]
        if index is None:
            return Fields(collection, {})
        seq, since, known = self._known.get(name, (-1, 0.0, None))
        if known and known.collection is collection:
            fresh = seq == index.seq or time.monotonic() - since < KNOWN_SECONDS
            if fresh or name in self._learning:
                return known
        self._learning.add(name)
        try:
            seq = index.seq
            learned = await asyncio.to_thread(lambda: Fields.learned(collection, index.values(name)))
            self._known[name] = (seq, time.monotonic(), learned)
        finally:
            self._learning.discard(name)
        return learned

    # Where

    async def _locate(self, turn: _Turn, site: Sequence[Fields]) -> None:
        """Keep to what is near a place that was named, if the site knows where it is."""
        meaning, place = turn.meaning, turn.meaning.place
        if place is None:
            return
        spot = await find_spot(place.said, site, self._finder, place.metres or self._manners.near)
        targets = await around(spot, meaning.targets, site, self._finder) if spot else ()
        if spot is None or not targets:
            turn.meaning = meaning.without_place()
            return
        name = str(spot.item.data.get("name") or spot.item.id)
        constraint = Constraint("geo", f"within {spot.metres:g} metres of {name}", place.words)
        near = meaning.narrowed_to(targets).without_words(place.words)
        turn.meaning = replace(near, constraints=(*near.constraints, constraint))

    # What the question asks to be done

    async def _deed(self, ask: Ask, asker: Asker, speech: Phrases) -> AsyncGenerator[Event]:
        """Run the operation that a command names, or ask for what it needs. No event: it names none."""
        operations = self._catalog().operations.values() if ask.may_act else ()
        operation = wanted_operation(ask.text, operations, asker.may)
        if operation is None:
            return
        given = {**ask.filters, **ask.answers}
        deed = read_deed(operation, ask.text, given, datetime.now(UTC).date(), speech.language)
        deed = await self._with_items(deed, ask.text, asker)
        if deed.missing and not ask.may_clarify:
            return
        said = tuple(Constraint(name, f"{spoken(name)}: {value}", "") for name, value in deed.params.items())
        yield Understood(ask.text, (), said, language=speech.language)
        if deed.missing:
            yield Clarify(speech.tell_more, questions_for(deed, speech))
            return
        outcome = await asker.act(Call(operation.name, deed.params))
        if isinstance(outcome, Task):
            yield Promised(outcome)
        else:
            yield Did(outcome.operation, outcome.result)
            yield Finished(1)

    async def _with_items(self, deed: Deed, text: str, asker: Asker) -> Deed:
        """With the ids of items that the command calls by their names: a parameter is named after their kind."""
        found: dict[str, str] = {}
        for collection in (self._catalog().collections[name] for name in asker.collections):
            if collection.one in deed.missing:
                id = await self._called(collection.name, text, asker.seen)
                found.update({collection.one: id} if id else {})
        missing = tuple(name for name in deed.missing if name not in found)
        return replace(deed, params={**deed.params, **found}, missing=missing)

    async def _called(self, collection: str, text: str, seen: int) -> str | None:
        """The id of the item whose whole name stands in a text; the longest name counts."""
        hits, _ = await self._finder.find_across([Wish(collection)], text, NAMED_DEPTH, seen)
        said = frozenset(key_of(text))
        names = [(key_of(str(hit.item.data.get("name", ""))), hit.item.id) for hit in hits]
        return max((pair for pair in names if pair[0] and said.issuperset(pair[0])), default=((), None))[1]

    # Asking back

    async def _clarification(self, turn: _Turn) -> Clarify | None:
        if not turn.ask.may_clarify or not self._manners.clarify:
            return None
        asked = clarify(turn.meaning, turn.ask.rounds, turn.phrases, is_answered=bool(turn.ask.answers))
        for target in turn.meaning.targets if asked and len(turn.meaning.targets) == 1 else ():
            # Nobody wants to choose between one thing.
            if await self._finder.store.count(target.name, target.where) <= 1:
                return None
        return asked

    # Finding

    async def _found(self, turn: _Turn) -> AsyncGenerator[Event]:
        scored = await self._ranked(turn)
        ask = turn.ask
        shown: list[Scored] = []
        promised = False
        if self._model and scored and turn.meaning.sort is None:
            async with aclosing(self._by_model(turn, scored)) as placed:
                async for each in placed:
                    if isinstance(each, Promised):
                        yield each
                        promised = True
                        break
                    if ask.start <= len(shown) < ask.start + ask.limit:
                        yield self._item(turn, each, len(shown) - ask.start)
                    shown.append(each)
            if promised:
                return
            shown = shown[ask.start : ask.start + ask.limit]
        else:
            shown = scored[ask.start : ask.start + ask.limit]
            for place, each in enumerate(shown):
                yield self._item(turn, each, place)
        async with aclosing(self._said(turn, shown)) as pieces:
            async for piece in pieces:
                yield piece
        if not shown:
            turn.notes.append(_nothing(turn))
        yield Finished(len(shown), tuple(turn.notes), turn.cost)

    def _item(self, turn: _Turn, each: Scored, place: int) -> Found:
        catalog = self._catalog()
        if self._actions is None or self._actions[0] is not catalog:
            self._actions = (catalog, Actions(catalog.public, catalog.operations.values()))
        return Found(each.item, each.score, place, self._actions[1].of(each.item, turn.asker.may), each.same)

    async def _ranked(self, turn: _Turn) -> list[Scored]:
        """The local ranking. Categories that leave nothing are given up, and so are words that nothing here says."""
        meaning = turn.meaning
        scored = await self._search(turn, [(target, target.where) for target in meaning.targets])
        if not scored and any(target.where != target.relaxed for target in meaning.targets):
            scored = await self._search(turn, [(target, target.relaxed) for target in meaning.targets])
            given_up = [
                each.says for each in meaning.narrowed_to(meaning.targets).constraints if each.field in _facets(meaning)
            ]
            turn.notes += [turn.phrases.nothing_within(given_up)] if scored and given_up else []
        if not scored and meaning.constraints and meaning.text:
            turn.meaning = replace(meaning, text="", content=())
            scored = await self._search(turn, [(target, target.where) for target in meaning.targets])
        sort = meaning.sort
        if sort and not turn.meaning.text and len(scored) >= SORTED_DEPTH:
            scored = await self._first(turn, sort) or scored
        return (sorted_by(scored, sort, turn.fields) or scored) if sort else scored

    async def _first(self, turn: _Turn, sort: Sort) -> list[Scored]:
        """The first of very many by a field, where nothing else decides: the store knows them all."""
        found: list[Scored] = []
        for target in turn.meaning.targets:
            path = target.fields.path(sort.role)
            if path is None or target.without or not target.fields.collection.field(path).is_typed:
                return []
            order = (Order(path, sort.descending),)
            page = await self._finder.find(Query(target.name, where=target.where, order=order, limit=DEPTH))
            found += [Scored(item, 100.0) for item in page.items]
        return found

    async def _search(self, turn: _Turn, asked: Sequence[tuple[Target, Filter]]) -> list[Scored]:
        meaning = turn.meaning
        wishes = [Wish(target.name, where, target.without) for target, where in asked]
        depth = SORTED_DEPTH if meaning.sort else max(DEPTH, turn.ask.start + turn.ask.limit + 10)
        hits, notes = await self._finder.find_across(
            wishes,
            meaning.text,
            depth,
            turn.asker.seen,
            meaning=meaning.text or meaning.question,
            context=_context(turn.ask),
        )
        turn.notes += [note for note in notes if note not in turn.notes]
        wished = Wishes(
            turn.fields,
            meaning.favours,
            turn.phrases.language,
            bool(turn.ask.language),
            datetime.now(UTC),
            key_of(meaning.question),
            meaning.hints,
            frozenset(stem for word in meaning.content for stem in key_of(word)),
            bool(meaning.constraints),
        )
        return ranked(hits, wished)

    # With a model

    async def _by_model(self, turn: _Turn, scored: list[Scored]) -> AsyncGenerator[Scored | Promised]:
        """The candidates in the order that a model gives them, as it says so; the rest as the search has them."""
        key = self._ranking_key(turn)
        known = self._rankings.get(key)
        if known and time.monotonic() - known[0] < REMEMBERED_SECONDS:
            for each in known[1]:
                yield each
            return
        if turn.asker.later and self._slowness > self._manners.patience:
            yield Promised(await turn.asker.later())
            return
        order: list[Scored] = []
        try:
            async with aclosing(self._judged(turn, scored)) as judged:
                async for each in judged:
                    order.append(each)
                    yield each
        except TimeoutError:
            if turn.asker.later and not order:
                yield Promised(await turn.asker.later())
                return
            turn.notes.append(turn.phrases.model_silent)
        except Unavailable:
            turn.notes.append(turn.phrases.model_silent)
        placed = {(each.item.collection, each.item.id) for each in order}
        last = order[-1].score if order else 100.0
        judged_all = turn.phrases.model_silent not in turn.notes
        # What the model saw and left out is no answer; what it was not shown comes behind.
        unseen = scored[self._manners.candidates :] if judged_all and order else scored
        for each in unseen:
            if (each.item.collection, each.item.id) not in placed:
                left = replace(each, score=min(each.score, last))
                order.append(left)
                yield left
        if judged_all:
            self._remember(key, order)

    def _ranking_key(self, turn: _Turn) -> str:
        ask = replace(turn.ask, start=0, limit=1, modes=frozenset({"list"}))
        return repr((ask, turn.meaning.question, turn.asker.collections, self._finder.index and self._finder.index.seq))

    def _remember(self, key: str, order: list[Scored]) -> None:
        self._rankings[key] = (time.monotonic(), order)
        while len(self._rankings) > REMEMBERED:
            self._rankings.popitem(last=False)

    async def _judged(self, turn: _Turn, scored: Sequence[Scored]) -> AsyncGenerator[Scored]:
        """Items as a model ranks them. The search bounds how far one moves, and no score rises down the list."""
        candidates = scored[: self._manners.candidates]
        items = [each.item for each in candidates]
        prompt, count = rank_prompt(turn.meaning.question, turn.ask.previous, items, self._manners.prompt)
        reply, at, lowest = "", 0, 100.0
        seen: set[int] = set()
        async with aclosing(self._replies(turn, prompt)) as pieces:
            async for piece in pieces:
                reply += piece
                for number, score, end in scores_in(reply, count, at):
                    at = end
                    if number in seen:
                        continue
                    seen.add(number)
                    each = candidates[number]
                    bounded = min(max(float(score), each.score - SWAY), each.score + SWAY, lowest)
                    lowest = bounded
                    yield replace(each, score=round(bounded, 1))
        if not seen:
            raise Unavailable("The language model ranked nothing")

    async def _replies(self, turn: _Turn, prompt: Prompt) -> AsyncGenerator[str]:
        """The pieces of a model's reply. TimeoutError if the first one is not there within the site's patience."""
        model = self._model
        if model is None:
            return
        turn.cost += Cost(calls=1)
        started = time.monotonic()
        async with aclosing(model.stream(prompt)) as pieces:
            try:
                async with asyncio.timeout(self._manners.patience if turn.asker.later else None):
                    first = await anext(pieces, None)
            finally:
                self._slowness += ((time.monotonic() - started) - self._slowness) / 3
            if isinstance(first, str):
                yield first
            elif isinstance(first, Usage):
                turn.spent(first)
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece
                else:
                    turn.spent(piece)

    # Composing

    async def _said(self, turn: _Turn, shown: Sequence[Scored]) -> AsyncGenerator[Said]:
        mode = next((mode for mode in ("generate", "summarize") if mode in turn.ask.modes), None)
        if mode is None or not shown:
            return
        items = [each.item for each in shown[:SUMMED_UP]]
        if self._model and turn.phrases.model_silent not in turn.notes:
            spoken = False
            try:
                async with aclosing(self._generated(turn, items, mode)) as sentences:
                    async for sentence in sentences:
                        spoken = True
                        yield sentence
            except (Unavailable, TimeoutError):
                pass
            if spoken:
                return
            turn.notes.append(turn.phrases.model_silent)
        compose = answer if mode == "generate" else summarize
        for sentence in compose(turn.meaning.question, items, turn.phrases):
            yield _piece(sentence)

    async def _generated(self, turn: _Turn, items: Sequence[Item], mode: str) -> AsyncGenerator[Said]:
        """Sentences of a model that rely on items; one that relies on none is not said."""
        language = turn.phrases.language
        prompt, count = answer_prompt(
            turn.meaning.question, turn.ask.previous, items, self._manners.prompt, mode, language
        )
        rest = ""
        async with aclosing(self._replies(turn, prompt)) as pieces:
            async for piece in pieces:
                whole, rest = sentences_in(rest + piece)
                for sentence in whole:
                    said = _grounded(sentence, items[:count])
                    if said:
                        yield said
        said = _grounded(rest, items[:count])
        if said:
            yield said


def _grounded(sentence: str, items: Sequence[Item]) -> Said | None:
    text, ids = cited(sentence, items)
    return Said(text if text.endswith((" ", "\n")) else f"{text} ", ids) if ids and text.strip() else None


def _piece(sentence: Sentence) -> Said:
    return Said(f"{sentence.text} ", sentence.cites)


def _facets(meaning: Meaning) -> frozenset[str]:
    """The fields of categories, which are given up if nothing is left."""
    made = [clue.make(target.fields) for clue in meaning.clues if not clue.strict for target in meaning.targets]
    return frozenset(each.path for each in made if each)


def _context(ask: Ask) -> str:
    """What the conversation is about: it colours the order of what is found."""
    return " ".join((*ask.previous[-3:], ask.background, *ask.memory))[:CONTEXT_CHARACTERS]


def _language_of(text: str, otherwise: str) -> str:
    """The language whose small words a question uses most, if it uses fewer of the other one."""
    said = {word.lower() for word in words(text)}
    counts = {language: len(STOPWORDS[language] & said) for language in LANGUAGES if language in STOPWORDS}
    best = max(counts, key=lambda language: (counts[language], language == otherwise))
    return best if counts[best] > counts.get(otherwise, 0) else otherwise


def _nothing(turn: _Turn) -> str:
    limits = [each.says for each in turn.meaning.constraints]
    if limits:
        return turn.phrases.nothing_within(limits)
    return turn.phrases.nothing_for(turn.meaning.question[:200])
