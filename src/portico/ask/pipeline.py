"""From an Ask to its events: understand, clarify or act, find, rank, compose. Knows no protocol."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from portico.ask.actions import Actions
from portico.ask.answers import (
    Reply,
    Sentence,
    answer,
    answered,
    compare,
    describe,
    kind_of,
    recount,
    speaks_of_files,
    summarize,
)
from portico.ask.clarification import MAX_OPTIONS, clarify, hinted_at, labels, named_by, named_in
from portico.ask.commands import (
    CONFIRM,
    Choice,
    Deed,
    hint_of,
    needs_confirmation,
    parameter_for,
    questions_for,
    read_deed,
    shape_of,
    shown_param,
    suits,
    wanted_operation,
)
from portico.ask.events import (
    Clarify,
    Constraint,
    Did,
    Event,
    Finished,
    Found,
    Promised,
    Said,
    Understood,
)
from portico.ask.languages.localization import LANGUAGES, Phrases, best_language, phrases, written_in
from portico.ask.llm import Bill, Judge, Matter
from portico.ask.outcomes import ids_in
from portico.ask.ranking import Scored, Wishes, is_called, ranked, sorted_by
from portico.ask.suggestions import WAYS
from portico.ask.understanding.comparisons import Contest, bare, contests_in, led_by, meant_by
from portico.ask.understanding.contact_intent import speaker, wants_a_person, ways_to
from portico.ask.understanding.detail_intent import subject_of
from portico.ask.understanding.fields import Fields, key_of, spoken
from portico.ask.understanding.parsers import By, Finding, In, Sort, read
from portico.ask.understanding.places import Spot, around, find_spot
from portico.ask.understanding.planner import Meaning, Target, understand
from portico.ask.understanding.references import MAX_POINTED, pointers_in, with_names
from portico.ask.understanding.request_attributes import is_no, is_yes
from portico.ask.understanding.spelling import nearest
from portico.catalog import Catalog, Collection, Operation
from portico.errors import TaskCancelled, Unavailable
from portico.items import Item, title_of
from portico.models.language import LanguageModel
from portico.query import And, Filter, Order, Query, json_size
from portico.requests import Ask, Call, Mode, Outcome, Task
from portico.search.finder import Finder, Wish
from portico.search.index import Index
from portico.search.index.text import STOPWORDS, fold, words

DEPTH = 60  # hits that are ranked
NAMED_DEPTH = 20  # hits that might be what a command calls by its name
MAX_NAMED = 3  # things that limits leave out
FEW_ITEMS = 24  # that a command may be about are all offered
LOOKED_AT = 100  # items among which there may be few that a command can be about
SORTED_DEPTH = 1000  # hits that another order than relevance is given to
READ_CHARACTERS = 2000  # of a question; who writes more has said what it is about
READ_AT_ONCE = 300  # of one that holds up nobody; a longer one is read in a thread
CONTEXT_CHARACTERS = 2000  # of earlier questions and what is known of the person
SUMMED_UP = 10  # items that a summary looks at
KNOWN_SECONDS = 2.0  # for which what is known of the collections is kept, though they change

SPEAKING: tuple[Mode, ...] = ("generate", "summarize")

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
    may_use_model: Callable[[], Awaitable[bool]]  # whether one more call of a model is in the allowance
    seen: int


@dataclass(slots=True)
class _Turn:
    """One question on its way: what it means, and what there is to say of how it was answered."""

    ask: Ask
    asker: Asker
    phrases: Phrases
    meaning: Meaning
    fields: Mapping[str, Fields]
    seq: int  # the newest change when it was asked
    notes: list[str] = field(default_factory=list[str])
    bill: Bill = field(default_factory=Bill)
    is_silent: bool = False  # the model said nothing that can be used
    compared: tuple[Item, ...] = ()  # what the question names and compares
    about: Item | None = None  # the one thing that it names and wants to be told of
    is_telling: bool = False  # it wants to be told of something
    beyond: tuple[Item, ...] = ()  # what its words name, but its limits leave out
    respelled: str = ""  # what is to be said of a word that was taken for another

    @property
    def mode(self) -> Mode | None:
        """How something is to be said of what is found, if that is wanted."""
        return next((mode for mode in SPEAKING if mode in self.ask.modes), None)

    @property
    def is_exact(self) -> bool:
        """Whether what is found fits, and is not merely near in meaning."""
        return not self.meaning.content or bool(self.meaning.sort)

    def give_up_model(self, why: str = "") -> None:
        if not self.is_silent:
            self.is_silent = True
            self.notes.append(why or self.phrases.model_silent)

    @property
    def matter(self) -> Matter:
        return Matter(self.meaning.question, self.ask.previous, self.ask.language or self.phrases.language)

    @property
    def depth(self) -> int:
        """How many hits are ranked."""
        return (
            SORTED_DEPTH
            if self.meaning.sort or self.meaning.is_counting
            else max(DEPTH, self.ask.start + self.ask.limit + 10)
        )

    @property
    def key(self) -> str:
        """What an order of the items depends on."""
        ask = replace(self.ask, start=0, limit=1, modes=frozenset({"list"}))
        return repr((ask, self.meaning.question, self.asker.collections, self.seq))


@dataclass(frozen=True, slots=True)
class Known:
    """What was learned of a collection, from which of its changes, and when."""

    fields: Fields
    revision: int
    at: float


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
        self._judge = Judge(model, manners.prompt, manners.candidates) if model else None
        self._known: dict[str, Known] = {}
        self._learning: dict[str, asyncio.Task[Fields]] = {}
        self._actions: tuple[Catalog, Actions] | None = None

    async def answer(self, ask: Ask, asker: Asker) -> AsyncGenerator[Event]:
        """Understood first, Finished last."""
        ask = replace(ask, text=ask.text[:READ_CHARACTERS])
        language = best_language(ask.language or _language_of(ask.text, self._manners.language), LANGUAGES)
        speech, acted = phrases(language), False
        async with aclosing(self._deed(ask, asker, speech)) as events:
            async for event in events:
                acted = True
                yield event
        if acted:
            return
        if self._finder.index:
            await self._finder.index.sync(asker.seen)
        site = await self._fields(asker.collections)
        asked_in = _language_of(ask.text, language)
        ask = await self._with_names(ask, asker, speech, site, asked_in)
        turn = await self._turn(ask, asker, speech, site, asked_in)
        if _wants_a_person(turn):
            async with aclosing(self._contact(turn)) as events:
                async for event in events:
                    yield event
            return
        turn = await self._respelled(turn, site, asked_in)
        await self._locate(turn, site)
        await self._compare(turn, asked_in)
        await self._single_out(turn, asked_in)
        yield self._understood(turn)
        asked = None if turn.compared or turn.about else await self._clarification(turn)
        if asked:
            yield asked
            return
        async with aclosing(self._found(turn)) as events:
            async for event in events:
                yield event

    async def _turn(self, ask: Ask, asker: Asker, speech: Phrases, site: Sequence[Fields], language: str) -> _Turn:
        given = ask, site, language, datetime.now(UTC).date(), speech
        is_long = len(ask.text) + sum(map(len, ask.previous)) > READ_AT_ONCE
        meaning = await asyncio.to_thread(understand, *given) if is_long else understand(*given)
        fields = {each.collection.name: each for each in site}
        return _Turn(ask, asker, speech, meaning, fields, self._finder.index.seq if self._finder.index else 0)

    def _understood(self, turn: _Turn) -> Understood:
        meaning = turn.meaning
        names = tuple(target.name for target in meaning.targets)
        return Understood(meaning.question, names, meaning.constraints, meaning.ignored, turn.phrases.language)

    # What it points at

    async def _with_names(self, ask: Ask, asker: Asker, speech: Phrases, site: Sequence[Fields], language: str) -> Ask:
        """The conversation with names for what is pointed at by its place: that place is one in the results before."""
        asked = list(ask.previous[:-MAX_POINTED])
        for text in (*ask.previous[-MAX_POINTED:], ask.text):
            said, pointers = "", pointers_in(text) if asked else []
            if pointers:
                before = replace(ask, text=asked[-1], previous=tuple(asked[:-1]), answers=ask.settled)
                names = await self._shown(before, asker, speech, site, language)
                said = with_names(text, pointers, names, speech.join, WAYS[speech.language].more)
            asked = [said] if said else [*asked, text]
        return replace(ask, text=asked[-1], previous=tuple(asked[:-1]))

    async def _shown(self, ask: Ask, asker: Asker, speech: Phrases, site: Sequence[Fields], language: str) -> list[str]:
        """The names of what a question before has found, in their order."""
        turn = await self._turn(ask, asker, speech, site, language)
        await self._locate(turn, site)
        await self._compare(turn, language)
        await self._single_out(turn, language)
        found = (self._judge.remembered(turn.key) if self._judge else None) or await self._ranked(turn)
        return [title_of(each.item.data) or each.item.id for each in found[: ask.limit]]

    # What is known of the collections

    async def _fields(self, names: Sequence[str]) -> list[Fields]:
        return [await self._fields_of(name) for name in names]

    async def _fields_of(self, name: str) -> Fields:
        """What a collection holds, as of now or a moment ago. It is learned once for all who ask meanwhile."""
        index, collection = self._finder.index, self._catalog().collections[name]
        if index is None:
            return Fields(collection, {})
        known = self._known.get(name)
        is_fresh = known and (known.revision == index.revision(name) or _clock() - known.at < KNOWN_SECONDS)
        if known and is_fresh and known.fields.collection is collection:
            return known.fields
        learning = self._learning.get(name)
        if learning is None or learning.done():
            learning = self._learning[name] = asyncio.create_task(self._learn(index, name, collection))
        if known and known.fields.collection is collection:
            return known.fields
        return await asyncio.shield(learning)

    async def _learn(self, index: Index, name: str, collection: Collection) -> Fields:
        revision = index.revision(name)
        fields = await asyncio.to_thread(lambda: Fields.learned(collection, index.values(name)))
        self._known[name] = Known(fields, revision, _clock())
        return fields

    # Where

    async def _locate(self, turn: _Turn, site: Sequence[Fields]) -> None:
        """Keep to what is near a place that was named, if the site knows where it is."""
        meaning, place = turn.meaning, turn.meaning.place
        if place is None:
            return
        metres = place.metres or self._manners.near
        spot = (
            Spot(place.said, *place.position, metres)
            if place.position
            else await find_spot(place.said, site, self._finder, metres)
        )
        named = meaning.naming(place) if not spot or not place.is_around else ()
        rest = [target for target in meaning.targets if target.name not in {each.name for each in named}]
        near = await around(spot, rest, site, self._finder) if spot else ()
        if not named and not near:
            turn.meaning = meaning.without_place(place)
            return
        turn.meaning = replace(meaning.without_words(place.words), targets=(*named, *near))
        if spot and near:
            says = turn.phrases.limits.near.format(turn.phrases.number(spot.metres), spot.name)
            turn.meaning = replace(turn.meaning, found_out=(Constraint("geo", says, place.words),))

    # What the question asks to be done

    async def _deed(self, ask: Ask, asker: Asker, speech: Phrases) -> AsyncGenerator[Event]:
        """Run the operation that a command names, or ask for what it needs. No event: it names none."""
        operations = self._catalog().operations.values() if ask.may_act else ()
        operation = wanted_operation(ask.text, operations, asker.may)
        if operation is None:
            return
        given = {**ask.filters, **ask.answers}
        deed = read_deed(operation, ask.text, given, datetime.now(UTC).date(), speech.language)
        deed = await self._with_items(deed, ask.text, asker, speech)
        confirmed = ask.answers.get(CONFIRM)
        unsure = needs_confirmation(operation) and not is_yes(confirmed)
        is_open = (bool(deed.missing) or unsure) and not is_no(confirmed)
        if is_open and not ask.may_clarify:
            return
        said = tuple(
            Constraint(name, f"{spoken(name)}: {shown_param(value, speech)}", "") for name, value in deed.shown.items()
        )
        ignored = tuple(f"query.{name[:100]}" for name in ask.filters if name not in deed.params)
        yield Understood(ask.text, (), said, ignored, speech.language)
        if is_open:
            # What is missing comes first: nobody confirms half a thing.
            why = speech.needs if deed.missing else speech.before_doing
            yield Clarify(why, questions_for(deed, speech, confirm=not deed.missing))
            return
        if is_no(confirmed):
            raise TaskCancelled(speech.cancelled)
        outcome = await asker.act(Call(operation.name, deed.params, key=ask.key))
        if isinstance(outcome, Task):
            yield Promised(outcome)
        else:
            yield Did(outcome.operation, outcome.result, await self.named(outcome.result, asker.collections))
            yield Finished(1)

    async def named(self, result: Any, readable: Sequence[str]) -> tuple[Item, ...]:
        """The items that a result names by their ids, as far as whoever asks may see them."""
        collections = self._catalog().collections
        found = ids_in(result, [collections[name] for name in readable])
        held = [await self._finder.store.items.get_many(name, ids) for name, ids in found.items()]
        return tuple(item for items in held for item in items.values())

    async def _with_items(self, deed: Deed, text: str, asker: Asker, speech: Phrases) -> Deed:
        """With the ids of items that the command or an answer names: a parameter is named after their kind."""
        properties, _ = shape_of(deed.operation)
        for collection in (self._catalog().collections[name] for name in asker.collections):
            name = parameter_for(properties, collection.one)
            if name and isinstance(said := deed.params.get(name), str) and said:
                deed = await self._with_answer(deed, name, collection.name, asker.seen, speech)
            elif name in deed.missing:
                deed = await self._with_item(deed, name, collection.name, text, asker.seen, speech)
        return deed

    async def _with_answer(self, deed: Deed, name: str, collection: str, seen: int, speech: Phrases) -> Deed:
        """With the item that an answer names, by its id or by its name."""
        said = str(deed.params[name])[:READ_CHARACTERS]
        known = await self._finder.store.items.get(collection, said) if said.isprintable() else None
        near = [] if known else await self._near(collection, said, seen)
        meant = [known] if known else named_by(said, near)
        why = "" if meant else speech.nothing_for(said[:200])
        return await self._settled(deed, name, collection, meant, near, why, speech)

    async def _with_item(self, deed: Deed, name: str, collection: str, text: str, seen: int, speech: Phrases) -> Deed:
        """With the item whose whole name a command has; those that it hints at are offered."""
        meant = named_in(text, await self._near(collection, text, seen))
        hint = "" if meant else hint_of(text, deed.operation, datetime.now(UTC).date(), speech.language)
        near = hinted_at(hint, await self._near(collection, hint, seen)) if hint else []
        return await self._settled(deed, name, collection, meant, near, "", speech)

    async def _settled(
        self,
        deed: Deed,
        name: str,
        collection: str,
        meant: Sequence[Item],
        near: Sequence[Item],
        why: str,
        speech: Phrases,
    ) -> Deed:
        """With the one item that is meant and can be taken; otherwise asking, with the best to choose from."""
        operation = deed.operation
        fitting = [item for item in meant if suits(operation, item)]
        if len(fitting) == 1:
            return deed.with_item(name, fitting[0])
        if meant and not fitting:
            why = speech.unbookable(title_of(meant[0].data) or meant[0].id)
        offered = fitting or [item for item in near if suits(operation, item)]
        if not offered:
            page = await self._finder.find(Query(collection, limit=LOOKED_AT))
            offered = [item for item in page.items if suits(operation, item)]
            is_few = not page.cursor and len(offered) <= FEW_ITEMS
            return deed.asking(name, Choice(labels(offered) if is_few else (), why))
        return deed.asking(name, Choice(labels(offered)[:MAX_OPTIONS], why))

    async def _near(self, collection: str, text: str, seen: int) -> list[Item]:
        hits, _ = await self._finder.find_across([Wish(collection)], text, NAMED_DEPTH, seen)
        return [hit.item for hit in hits]

    # What the question compares

    async def _compare(self, turn: _Turn, language: str) -> None:
        """Find the things that a question compares, if every one of them is an item."""
        ask, asked = turn.ask, turn.meaning
        # What stands beside a question says where to look.
        said = [target.fields for target in asked.targets] if ask.filters or ask.answers else [*turn.fields.values()]
        for contest in contests_in(asked.question, language):
            meaning = asked.by_name(contest.names, said, ask.where)
            found = await self._meant(turn, meaning.targets, contest, language)
            if found:
                places = {item.collection for item in found}
                targets = tuple(target for target in meaning.targets if target.name in places)
                turn.compared, turn.meaning = found, replace(meaning, targets=targets)
                return

    async def _meant(
        self, turn: _Turn, targets: Sequence[Target], contest: Contest, language: str
    ) -> tuple[Item, ...] | None:
        """An item for each of the names, or nothing at all."""
        wishes = [Wish(target.name, target.where, target.without) for target in targets]
        found: dict[tuple[str, str], Item] = {}
        for name in contest.names:
            hits, _ = await self._finder.find_across(wishes, name, NAMED_DEPTH, turn.asker.seen, by="text")
            items = [hit.item for hit in hits]
            item = meant_by(name, items, turn.meaning.question, language, is_said=contest.is_said)
            if item is None:
                return None
            found[item.collection, item.id] = item
        return tuple(found.values()) if len(found) == len(contest.names) else None

    # What it wants to be told of

    async def _single_out(self, turn: _Turn, language: str) -> None:
        """Find the one thing that a question wants to be told of, if its words name one."""
        said = subject_of(turn.meaning.question)
        turn.is_telling = bool(said) and not turn.compared
        name = bare(said, language)
        if not turn.is_telling or not name:
            return
        meaning = turn.meaning.by_name((name,), [*turn.fields.values()], turn.ask.where)
        found = await self._meant(turn, meaning.targets, Contest((name,), is_said=True), language)
        if found:
            targets = tuple(target for target in meaning.targets if target.name == found[0].collection)
            turn.about, turn.meaning = found[0], replace(meaning, targets=targets)

    # A word that is misspelt

    async def _respelled(self, turn: _Turn, site: Sequence[Fields], language: str) -> _Turn:
        """The question with the word that was meant, if one of those that say what is wanted is unknown here."""
        meaning = turn.meaning
        unknown = [word for word in meaning.content if not any(_is_known(word, each) for each in site)]
        if len(unknown) != 1 or meaning.place:
            return turn
        word = unknown[0]
        meant = await asyncio.to_thread(_nearest, word, site)
        text = re.sub(rf"\b{re.escape(word)}\b", meant, turn.ask.text) if meant else turn.ask.text
        if text == turn.ask.text or await self._is_said(turn, word):
            return turn
        again = await self._turn(replace(turn.ask, text=text), turn.asker, turn.phrases, site, language)
        again.respelled = turn.phrases.instead(word, meant)
        return again

    async def _is_said(self, turn: _Turn, word: str) -> bool:
        """Whether anything says a word. Where it stands alone, what is near its meaning may be just what was meant."""
        targets = turn.meaning.targets
        if len(turn.meaning.content) == 1:
            return bool(await self._search(turn, [(each, each.where) for each in targets]))
        wishes = [Wish(name, turn.ask.where) for name in turn.fields]
        hits, _ = await self._finder.find_across(wishes, word, 1, turn.asker.seen, by="text")
        return bool(hits)

    # Whom to reach

    async def _contact(self, turn: _Turn) -> AsyncGenerator[Event]:
        """How people are reached, as the one who speaks for the site says, or an answer that was given before."""
        reached = await self._reached(turn)
        collections = (reached.item.collection,) if reached else ()
        yield Understood(turn.meaning.question, collections, (), turn.meaning.ignored, turn.phrases.language)
        if reached is None:
            yield Finished(0, (turn.phrases.unreachable,))
            return
        yield self._item(turn, Scored(reached.item, 100.0), 0)
        if turn.mode is None:
            yield Finished(1, tuple(each.text for each in reached.sentences))
            return
        for sentence in reached.sentences:
            yield _piece(sentence)
        yield Finished(1)

    async def _reached(self, turn: _Turn) -> Reply | None:
        item = await self._speaker(turn)
        if item and (ways := ways_to(item.data)):
            said = turn.phrases.reached(title_of(item.data) or item.id, ways)
            return Reply(item, (Sentence(said, (item.ref,)),))
        wishes = [Wish(name, turn.ask.where) for name in turn.fields]
        hits, _ = await self._finder.find_across(wishes, turn.ask.text, NAMED_DEPTH, turn.asker.seen, by="text")
        return answered(turn.ask.text, [hit.item for hit in hits], turn.phrases)

    async def _speaker(self, turn: _Turn) -> Item | None:
        """The one item that speaks for the site, if the question may find it."""
        place = speaker(turn.fields.values())
        if place is None:
            return None
        name, where = place
        page = await self._finder.find(Query(name, where=And((where, turn.ask.where)), limit=2))
        return page.items[0] if len(page.items) == 1 and not page.cursor else None

    # Asking back

    async def _clarification(self, turn: _Turn) -> Clarify | None:
        if not turn.ask.may_clarify or not self._manners.clarify:
            return None
        asked = clarify(turn.meaning, turn.ask.rounds, turn.phrases, is_answered=bool(turn.ask.answers))
        for target in turn.meaning.targets if asked and len(turn.meaning.targets) == 1 else ():
            # Nobody wants to choose between one thing.
            if await self._finder.store.items.count(target.name, target.where) <= 1:
                return None
        return asked

    # Finding

    async def _found(self, turn: _Turn) -> AsyncGenerator[Event]:
        scored = await self._ranked(turn)
        ask = turn.ask
        shown: list[Scored] = []
        size, end = 0, ask.start + ask.limit
        async with aclosing(self._ordered(turn, scored)) as placed:
            async for each in placed:
                if isinstance(each, Promised):
                    yield each
                    return
                if ask.start <= len(shown) < end:
                    size += sum(json_size(item.data) for item in (each.item, *each.same))
                    if size > self._finder.page_bytes and len(shown) > ask.start:
                        end = len(shown)
                        turn.notes.append(turn.phrases.cut_short(end - ask.start))
                    else:
                        yield self._item(turn, each, len(shown) - ask.start)
                shown.append(each)
        # More than were looked at may fit, and of what is near in meaning not all does: then nobody knows how many.
        total = len(shown) if len(scored) < turn.depth and (len(shown) <= 1 or turn.is_exact) else None
        if turn.meaning.is_counting:
            total = await self._counted(turn) or total
        kind = kind_of([each.item for each in shown], turn.phrases)
        shown = shown[ask.start : end]
        async with aclosing(self._said(turn, shown, total, kind)) as pieces:
            async for piece in pieces:
                yield piece
        if not shown and not ask.attached:
            turn.notes.append(_nothing(turn))
        if turn.respelled and turn.mode is None and shown:
            turn.notes.append(turn.respelled)
        yield Finished(len(shown), tuple(turn.notes), turn.bill.cost)

    async def _counted(self, turn: _Turn) -> int | None:
        """How many there are, where filters alone decide: the store knows them all, and counts what is there twice."""
        targets = turn.meaning.targets
        if any(target.without for target in targets):
            return None
        return sum([await self._finder.store.items.count(target.name, target.where) for target in targets])

    async def _ordered(self, turn: _Turn, scored: list[Scored]) -> AsyncGenerator[Scored | Promised]:
        if self._judge is None or not scored or turn.meaning.sort or turn.compared or turn.about:
            for each in scored:
                yield each
            return
        async with aclosing(self._by_model(turn, self._judge, scored)) as placed:
            async for each in placed:
                yield each

    def _item(self, turn: _Turn, each: Scored, place: int) -> Found:
        catalog = self._catalog()
        if self._actions is None or self._actions[0] is not catalog:
            self._actions = (catalog, Actions(catalog.public, catalog.operations.values()))
        return Found(each.item, each.score, place, self._actions[1].of(each.item, turn.asker.may), each.same)

    async def _ranked(self, turn: _Turn) -> list[Scored]:
        """The local ranking. Categories that leave nothing are given up, and so are words that nothing here says."""
        meaning = turn.meaning
        if turn.about:
            return [Scored(turn.about, 100.0)]
        scored = await self._search(turn, [(target, target.where) for target in meaning.targets])
        if not scored and meaning.categories:
            scored = await self._search(turn, [(target, target.relaxed) for target in meaning.targets])
            turn.notes += [turn.phrases.left_out(each) for each in meaning.categories if scored]
        turn.beyond = await self._left_out(turn, scored)
        if turn.beyond:
            return []
        if not scored and meaning.is_limited and meaning.text:
            turn.meaning = replace(meaning, text="", content=())
            scored = await self._search(turn, [(target, target.where) for target in meaning.targets])
            turn.notes += [turn.phrases.left_out(meaning.text)] if scored else []
        if turn.compared:
            return led_by(turn.compared, scored)
        return await self._sorted(turn, scored, meaning.sort) if meaning.sort else scored

    async def _left_out(self, turn: _Turn, scored: Sequence[Scored]) -> tuple[Item, ...]:
        """What the words of a question name, where an order is asked for and its limits leave nothing of it."""
        meaning = turn.meaning
        stems = frozenset(stem for word in meaning.content for stem in key_of(word))
        limits = [each for target in meaning.targets for each in target.told if each.clue.strict]
        if not meaning.is_strict or not stems or not limits:
            return ()
        if any(is_called(each.item, stems, turn.fields[each.item.collection]) for each in scored):
            return ()
        wishes = [Wish(target.name, turn.ask.where) for target in meaning.targets]
        hits, _ = await self._finder.find_across(wishes, meaning.text, NAMED_DEPTH, turn.asker.seen, by="text")
        items = (hit.item for hit in hits)
        return tuple(item for item in items if is_called(item, stems, turn.fields[item.collection]))[:MAX_NAMED]

    async def _sorted(self, turn: _Turn, scored: list[Scored], sort: Sort) -> list[Scored]:
        """In the order that was asked for; among the best matches if there are very many."""
        if len(scored) >= SORTED_DEPTH:
            first = [] if turn.meaning.text else await self._first(turn, sort)
            turn.notes += [] if first else [turn.phrases.among(SORTED_DEPTH)]
            scored = first or scored
        return sorted_by(scored, sort, {each.name: each.fields for each in turn.meaning.targets}) or scored

    async def _first(self, turn: _Turn, sort: Sort) -> list[Scored]:
        """The first of very many by a field, where nothing else decides: the store knows them all."""
        found: list[Scored] = []
        for target in turn.meaning.targets:
            path = turn.meaning.sorted_by(target)
            if path is None or target.without or not target.fields.collection.field(path).is_typed:
                return []
            order = (Order(path, sort.descending),)
            page = await self._finder.find(Query(target.name, where=target.where, order=order, limit=DEPTH))
            found += [Scored(item, 100.0) for item in page.items]
        return found

    async def _search(self, turn: _Turn, asked: Sequence[tuple[Target, Filter]]) -> list[Scored]:
        meaning = turn.meaning
        wishes = [Wish(target.name, where, target.without) for target, where in asked]
        hits, notes = await self._finder.find_across(
            wishes,
            meaning.text,
            turn.depth,
            turn.asker.seen,
            meaning=meaning.text or meaning.question,
            context=_context(turn.ask),
            by=turn.ask.retrieval,
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
            meaning.is_strict,
        )
        return ranked(hits, wished)

    # With a model

    async def _by_model(self, turn: _Turn, judge: Judge, scored: list[Scored]) -> AsyncGenerator[Scored | Promised]:
        """The items in the order that a model gives them, as it says so; as the search has them if it says nothing."""
        known = judge.remembered(turn.key)
        if known is not None:
            for each in known:
                yield each
            return
        if turn.asker.later and judge.slowness > self._manners.patience:
            yield Promised(await turn.asker.later())
            return
        if not await turn.asker.may_use_model():
            turn.give_up_model()
            for each in scored:
                yield each
            return
        order: list[Scored] = []
        try:
            async with aclosing(judge.ranked(turn.matter, scored, turn.bill)) as judged:
                async with asyncio.timeout(self._manners.patience if turn.asker.later else None):
                    order += [each async for each in _first_of(judged)]
                for each in order:
                    yield each
                async for each in judged:
                    order.append(each)
                    yield each
        except TimeoutError:
            judge.slowness = max(judge.slowness, self._manners.patience)
            if turn.asker.later:
                yield Promised(await turn.asker.later())
            return
        except Unavailable:
            turn.give_up_model()
            placed = {(each.item.collection, each.item.id) for each in order}
            last = order[-1].score if order else 100.0
            for each in scored:
                if (each.item.collection, each.item.id) not in placed:
                    yield replace(each, score=min(each.score, last))
            return
        judge.remember(turn.key, order)

    # Composing

    async def _said(self, turn: _Turn, shown: Sequence[Scored], total: int | None, kind: str) -> AsyncGenerator[Said]:
        mode, attached = turn.mode, turn.ask.attached
        if mode is None or not (shown or attached):
            return
        if turn.respelled:
            yield Said(f"{turn.respelled} ")
        compared = turn.compared if turn.ask.start == 0 and len(turn.compared) <= len(shown) else ()
        items = [*attached, *(compared or (each.item for each in shown))][:SUMMED_UP]
        if self._judge and not turn.is_silent and await turn.asker.may_use_model():
            spoken = False
            try:
                async with aclosing(self._judge.said(turn.matter, items, mode, turn.bill)) as sentences:
                    async for sentence in sentences:
                        spoken = True
                        yield sentence
            except Unavailable:
                turn.give_up_model()
            if spoken:
                return
            turn.give_up_model(turn.phrases.model_unsupported if turn.bill.dropped else "")
        question, speech = turn.meaning.question, turn.phrases
        compose = answer if mode == "generate" and not turn.meaning.is_counting else summarize
        is_counted = total is not None and not attached and not compared
        apart = compare(question, compared, speech) if compared and not attached else ()
        if turn.is_telling and total == 1 and not attached:
            apart = describe(items[0], speech)
        if attached and (not shown or speaks_of_files(turn.ask.text)):
            apart = recount(turn.ask.text, attached, speech)
        for sentence in apart or compose(question, items, speech, total, is_counted=is_counted, kind=kind):
            yield _piece(sentence)


async def _first_of(items: AsyncGenerator[Scored]) -> AsyncGenerator[Scored]:
    """The first of them, if there is one."""
    first = await anext(items, None)
    if first is not None:
        yield first


def _piece(sentence: Sentence) -> Said:
    return Said(f"{sentence.text} ", sentence.cites)


def _clock() -> float:
    return time.monotonic()


def _context(ask: Ask) -> str:
    """What the conversation is about: it colours the order of what is found."""
    return " ".join((*ask.previous[-3:], ask.background, *ask.memory))[:CONTEXT_CHARACTERS]


def _language_of(text: str, otherwise: str) -> str:
    """The language whose letters a question is written in, or whose small words it uses most.

    It stays with the other one if it uses no fewer of that.
    """
    if written := written_in(text, otherwise):
        return written
    said = {word.lower() for word in words(text)}
    counts = {language: len(STOPWORDS[language] & said) for language in LANGUAGES if language in STOPWORDS}
    most = max(counts.values())
    if most <= counts.get(otherwise, 0):
        return otherwise
    # Of languages that look alike, the one in which more is understood.
    today = datetime.now(UTC).date()
    alike = [language for language in counts if counts[language] == most]
    return max(alike, key=lambda language: _covers(read(text[:500], today, language))) if len(alike) > 1 else alike[0]


def _covers(findings: Sequence[Finding]) -> int:
    """How many characters of a question were understood; what may be a place is only a guess."""
    return sum(each.end - each.start for each in findings if not isinstance(each, In | By))


def _wants_a_person(turn: _Turn) -> bool:
    """What is added to an earlier question may ask for the number of what that was about."""
    text = turn.ask.text
    return wants_a_person(text, is_alone=turn.meaning.question.strip() == text.strip())


def _is_known(word: str, fields: Fields) -> bool:
    return fields.stems.issuperset(key_of(word, fields.collection.language))


def _nearest(word: str, site: Sequence[Fields]) -> str:
    """The word that is known here and nearest to one that is not; empty if none is near."""
    known: Counter[str] = Counter()
    for fields in site:
        known.update(fields.vocabulary.get(fold(word)[:1], {}))
    return nearest(fold(word), known) or ""


def _nothing(turn: _Turn) -> str:
    if turn.beyond:
        places = {item.collection for item in turn.beyond}
        here = [target for target in turn.meaning.targets if target.name in places]
        says = [each.made.says(turn.phrases) for target in here for each in target.told if each.clue.strict]
        names = turn.phrases.names([title_of(item.data) or item.id for item in turn.beyond])
        return turn.phrases.beyond(names, list(dict.fromkeys(says)))
    limits = [each.says for each in turn.meaning.constraints]
    if limits and turn.meaning.is_limited:
        return turn.phrases.nothing_within(limits)
    return turn.phrases.nothing_for(turn.meaning.question[:200])
