"""From an Ask to its events: understand, clarify or act, find, rank, compose. Knows no protocol."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from portico.ask.actions import ItemActions
from portico.ask.answers import (
    AcceptedAnswer,
    Sentence,
    answer,
    compare,
    describe,
    find_accepted_answer,
    kind_of,
    mentions_files,
    quote_files,
    summarize,
)
from portico.ask.clarification import build_clarification
from portico.ask.command_runner import NAME_SEARCH_DEPTH, AskContext, CommandRunner
from portico.ask.events import (
    ClarificationEvent,
    Constraint,
    EndEvent,
    Event,
    InterpretationEvent,
    ItemEvent,
    TaskEvent,
    TextEvent,
)
from portico.ask.fields_cache import FieldsCache
from portico.ask.item_finder import ItemFinder
from portico.ask.languages.localization import LANGUAGES, Phrases, best_language, detect_script, phrases
from portico.ask.llm import AnswerModel, LlmRequest, LlmUsage
from portico.ask.ranking import RankedItem, RankingContext, is_named, rank, sort_items
from portico.ask.small_talk import SmallTalk, parse_small_talk, reply_to
from portico.ask.suggestions import TEMPLATES
from portico.ask.understanding.comparisons import ComparedNames, find_comparisons, match_name, put_first, strip_name
from portico.ask.understanding.contact_intent import contact_details, find_contact_item, is_contact_request
from portico.ask.understanding.detail_intent import subject_of
from portico.ask.understanding.fields import Fields, key_of
from portico.ask.understanding.links import follow_links
from portico.ask.understanding.parsers import Finding, MakerMention, PlaceMention, SortOrder, parse_question
from portico.ask.understanding.places import GeoCircle, find_place, limit_to_circle
from portico.ask.understanding.planner import CollectionQuery, QueryPlan, plan_query
from portico.ask.understanding.references import MAX_QUESTIONS, find_pointers, replace_pointers
from portico.ask.understanding.spelling import find_nearest
from portico.catalog import Catalog
from portico.errors import Unavailable
from portico.items import Item, title_of
from portico.models.language import LanguageModel
from portico.query import And, Filter, Order, Query, json_size
from portico.requests import Ask, Mode
from portico.search.finder import Finder, SearchTarget
from portico.search.index.text import STOPWORDS, fold, words

DEPTH = 60  # hits to rank
MAX_EXCLUDED_NAMES = 3  # items that limits exclude
SORTED_DEPTH = 1000  # hits to rank if the order is not relevance
MAX_QUESTION = 2000  # characters of a question that are read
MAX_INLINE_PARSE = 300  # characters; a longer question is parsed in a thread
CONTEXT_CHARACTERS = 2000  # of earlier questions and the caller's memory
SUMMARY_ITEMS = 10  # items that a summary uses

TEXT_MODES: tuple[Mode, ...] = ("generate", "summarize")


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Settings of how a site answers questions."""

    language: str = "en"
    clarify: bool = True
    model_patience: float = 20.0
    near_metres: float = 500.0
    prompt_tokens: int = 6000
    candidates: int = 30


@dataclass(slots=True)
class _AskState:
    """The state of one question: its plan, and the notes on how it was answered."""

    ask: Ask
    context: AskContext
    phrases: Phrases
    plan: QueryPlan
    fields: Mapping[str, Fields]
    seq: int  # the newest change when the question arrived
    notes: list[str] = field(default_factory=list[str])
    usage: LlmUsage = field(default_factory=LlmUsage)
    is_model_silent: bool = False  # the model wrote nothing that can be used
    compared: tuple[Item, ...] = ()  # items that the question names and compares
    subject: Item | None = None  # the one item that it is about
    is_detail_request: bool = False  # it asks about one thing
    is_linked: bool = False  # it asks for what leads to items that it names
    excluded: tuple[Item, ...] = ()  # items that its words name, but its limits exclude
    correction_note: str = ""  # says which word was replaced by which

    @property
    def mode(self) -> Mode | None:
        """The requested mode that writes text, if any."""
        return next((mode for mode in TEXT_MODES if mode in self.ask.modes), None)

    @property
    def is_exact(self) -> bool:
        """Whether the results match, and are not merely near in meaning."""
        return not self.plan.content or bool(self.plan.sort)

    def give_up_model(self, why: str = "") -> None:
        if not self.is_model_silent:
            self.is_model_silent = True
            self.notes.append(why or self.phrases.model_silent)

    @property
    def llm_request(self) -> LlmRequest:
        return LlmRequest(self.plan.question, self.ask.previous, self.ask.language or self.phrases.language)

    @property
    def depth(self) -> int:
        """The number of hits to rank."""
        return (
            SORTED_DEPTH
            if self.plan.sort or self.plan.is_counting
            else max(DEPTH, self.ask.start + self.ask.limit + 10)
        )

    @property
    def key(self) -> str:
        """Everything that the model's order of the items depends on."""
        ask = replace(self.ask, start=0, limit=1, modes=frozenset({"list"}))
        return repr((ask, self.plan.question, self.context.collections, self.seq))


class Pipeline:
    """Answers questions as streams of events."""

    def __init__(
        self,
        finder: Finder,
        catalog: Callable[[], Catalog],
        options: AskOptions,
        model: LanguageModel | None = None,
    ) -> None:
        self._finder = finder
        self._items = ItemFinder(finder, catalog)
        self._catalog = catalog
        self._options = options
        self._model = AnswerModel(model, options.prompt_tokens, options.candidates) if model else None
        self._fields = FieldsCache(finder, catalog)
        self._commands = CommandRunner(self._items, catalog)
        self._actions: tuple[Catalog, ItemActions] | None = None

    async def answer(self, ask: Ask, context: AskContext) -> AsyncGenerator[Event]:
        """Yield an `InterpretationEvent` first; an `EndEvent` last, unless a question or a task is returned."""
        ask = replace(ask, text=ask.text[:MAX_QUESTION])
        if not ask.answers and not ask.attached:
            small_talk = parse_small_talk(ask.text)
            if not small_talk.question and any(map(str.isalnum, ask.text)):
                for event in self._answer_small_talk(ask, context, small_talk):
                    yield event
                return
            ask = replace(ask, text=small_talk.question or ask.text)
        earlier = (parse_small_talk(text).question for text in ask.previous)
        ask = replace(ask, previous=tuple(text for text in earlier if text.strip()))
        language = best_language(ask.language or _language_of(ask.text, self._options.language), LANGUAGES)
        speech, acted = phrases(language), False
        async with aclosing(self._commands.run(ask, context, speech)) as events:
            async for event in events:
                acted = True
                yield event
        if acted:
            return
        if self._finder.index:
            await self._finder.index.sync(context.revision)
        site = await self._fields.of(context.collections)
        asked_in = _language_of(ask.text, language)
        ask = await self._with_names(ask, context, speech, site, asked_in)
        state = await self._start_state(ask, context, speech, site, asked_in)
        # A follow-up may ask for the phone number of what the question before was about.
        if is_contact_request(ask.text, is_alone=state.plan.question.strip() == ask.text.strip()):
            async with aclosing(self._answer_contact(state)) as events:
                async for event in events:
                    yield event
            return
        await self._follow_links(state, site, asked_in)
        state = await self._correct_question(state, site, asked_in)
        await self._locate(state, site)
        await self._compare(state, asked_in)
        await self._single_out(state, asked_in)
        yield self._interpret(state)
        clarification = None if state.compared or state.subject else await self._build_clarification(state)
        if clarification:
            yield clarification
            return
        async with aclosing(self._answer(state)) as events:
            async for event in events:
                yield event

    async def find_items(self, result: Any, readable: Sequence[str]) -> tuple[Item, ...]:
        """Return the items that the result of an operation names, out of the collections that the caller may read."""
        return await self._commands.find_items(result, readable)

    def _answer_small_talk(self, ask: Ask, context: AskContext, small_talk: SmallTalk) -> Iterator[Event]:
        collections = [collection for collection in self._catalog().public if collection.name in context.collections]
        topics = [collection.title or collection.name for collection in collections]
        text = reply_to(small_talk, topics, ask.language)
        yield InterpretationEvent(ask.text, (), language=best_language(ask.language or small_talk.language, LANGUAGES))
        yield TextEvent(text)  # in every mode: a list without items would look like a search that found nothing
        yield EndEvent(0)

    async def _start_state(
        self, ask: Ask, context: AskContext, phrases: Phrases, site: Sequence[Fields], language: str
    ) -> _AskState:
        arguments = ask, site, language, datetime.now(UTC).date(), phrases
        is_long = len(ask.text) + sum(map(len, ask.previous)) > MAX_INLINE_PARSE
        plan = await asyncio.to_thread(plan_query, *arguments) if is_long else plan_query(*arguments)
        fields = {known_fields.collection.name: known_fields for known_fields in site}
        return _AskState(ask, context, phrases, plan, fields, self._finder.index.seq if self._finder.index else 0)

    def _interpret(self, state: _AskState) -> InterpretationEvent:
        plan = state.plan
        names = tuple(target.name for target in plan.targets)
        return InterpretationEvent(plan.question, names, plan.constraints, plan.ignored, state.phrases.language)

    # References to earlier results

    async def _with_names(
        self, ask: Ask, context: AskContext, phrases: Phrases, site: Sequence[Fields], language: str
    ) -> Ask:
        """Return the conversation with names in place of "the second one" and the like."""
        questions = list(ask.previous[:-MAX_QUESTIONS])
        for text in (*ask.previous[-MAX_QUESTIONS:], ask.text):
            rewritten, pointers = "", find_pointers(text) if questions else []
            if pointers:
                before = replace(ask, text=questions[-1], previous=tuple(questions[:-1]), answers=ask.settled)
                names = await self._find_shown_names(before, context, phrases, site, language)
                rewritten = replace_pointers(text, pointers, names, phrases.join, TEMPLATES[phrases.language].more)
            questions = [rewritten] if rewritten else [*questions, text]
        return replace(ask, text=questions[-1], previous=tuple(questions[:-1]))

    async def _find_shown_names(
        self, ask: Ask, context: AskContext, phrases: Phrases, site: Sequence[Fields], language: str
    ) -> list[str]:
        """Return the names of what an earlier question found, in their order."""
        state = await self._start_state(ask, context, phrases, site, language)
        await self._follow_links(state, site, language)
        await self._locate(state, site)
        await self._compare(state, language)
        await self._single_out(state, language)
        results = (self._model.get_order(state.key) if self._model else None) or await self._rank_results(state)
        return [title_of(result.item.data) or result.item.id for result in results[: ask.limit]]

    # Links

    async def _follow_links(self, state: _AskState, site: Sequence[Fields], language: str) -> None:
        """Keep to what leads to items of other collections that the question names."""
        if self._finder.index:
            plan = await follow_links(state.plan, site, self._items, language)
            state.is_linked, state.plan = plan is not state.plan, plan

    # Places

    async def _locate(self, state: _AskState, site: Sequence[Fields]) -> None:
        """Keep to what is near a place that was named, if the site knows where it is."""
        plan, place = state.plan, state.plan.place
        if place is None:
            return
        metres = place.metres or self._options.near_metres
        circle = (
            GeoCircle(place.name, *place.position, metres)
            if place.position
            else await find_place(place.name, site, self._items, metres)
        )
        naming = plan.targets_naming(place) if not circle or not place.is_around else ()
        rest = [target for target in plan.targets if target.name not in {other.name for other in naming}]
        near = await limit_to_circle(circle, rest, site, self._items) if circle else ()
        if not naming and not near:
            state.plan = plan.without_place(place)
            return
        state.plan = replace(plan.without_words(place.words), targets=(*naming, *near))
        if circle and near:
            says = state.phrases.limits.near.format(state.phrases.number(circle.metres), circle.name)
            state.plan = replace(state.plan, extra_constraints=(Constraint("geo", says, place.words),))

    # Comparisons

    async def _compare(self, state: _AskState, language: str) -> None:
        """Find the things that a question compares, if every one of them is an item."""
        ask, original = state.ask, state.plan
        if state.is_linked:
            return
        # Filters and answers decide where to look.
        site = (
            [target.fields for target in original.targets] if ask.filters or ask.answers else [*state.fields.values()]
        )
        for comparison in find_comparisons(original.question, language):
            plan = original.by_name(comparison.names, site, ask.where)
            items = await self._find_named_items(state, plan.targets, comparison, language)
            if items:
                places = {item.collection for item in items}
                targets = tuple(target for target in plan.targets if target.name in places)
                state.compared, state.plan = items, replace(plan, targets=targets)
                return

    async def _find_named_items(
        self, state: _AskState, targets: Sequence[CollectionQuery], comparison: ComparedNames, language: str
    ) -> tuple[Item, ...] | None:
        """Return an item for each of the names, or None if one of them has none."""
        search_targets = [SearchTarget(target.name, target.where, target.without) for target in targets]
        matches: dict[tuple[str, str], Item] = {}
        for name in comparison.names:
            hits, _ = await self._items.find_across(
                search_targets, name, NAME_SEARCH_DEPTH, state.context.revision, retrieval="text"
            )
            items = [hit.item for hit in hits]
            item = match_name(name, items, state.plan.question, language, is_said=comparison.is_said)
            if item is None:
                return None
            matches[item.collection, item.id] = item
        return tuple(matches.values()) if len(matches) == len(comparison.names) else None

    # Details of one item

    async def _single_out(self, state: _AskState, language: str) -> None:
        """Find the one thing that a question wants to be told of, if its words name one."""
        subject = subject_of(state.plan.question)
        state.is_detail_request = bool(subject) and not state.compared and not state.is_linked
        name = strip_name(subject, language)
        if not state.is_detail_request or not name:
            return
        plan = state.plan.by_name((name,), [*state.fields.values()], state.ask.where)
        items = await self._find_named_items(state, plan.targets, ComparedNames((name,), is_said=True), language)
        if items:
            targets = tuple(target for target in plan.targets if target.name == items[0].collection)
            state.subject, state.plan = items[0], replace(plan, targets=targets)

    # Spelling

    async def _correct_question(self, state: _AskState, site: Sequence[Fields], language: str) -> _AskState:
        """Return the question with its one unknown word replaced by the likely one, if there is one."""
        plan = state.plan
        unknown = [
            word
            for word in plan.content
            if not any(fields.stems.issuperset(key_of(word, fields.collection.language)) for fields in site)
        ]
        if len(unknown) != 1 or plan.place:
            return state
        word = unknown[0]
        correction = await asyncio.to_thread(_correct_spelling, word, site)
        text = re.sub(rf"\b{re.escape(word)}\b", correction, state.ask.text) if correction else state.ask.text
        if text == state.ask.text or await self._is_mentioned(state, word):
            return state
        again = await self._start_state(replace(state.ask, text=text), state.context, state.phrases, site, language)
        await self._follow_links(again, site, language)
        again.correction_note = state.phrases.instead(word, correction)
        return again

    async def _is_mentioned(self, state: _AskState, word: str) -> bool:
        """Return whether any item contains a word.

        If it is the whole question, items near its meaning count too: they may be just what was meant.
        """
        targets = state.plan.targets
        if len(state.plan.content) == 1:
            return bool(await self._search(state, [(target, target.where) for target in targets]))
        search_targets = [SearchTarget(name, state.ask.where) for name in state.fields]
        hits, _ = await self._items.find_across(search_targets, word, 1, state.context.revision, retrieval="text")
        return bool(hits)

    # Contact

    async def _answer_contact(self, state: _AskState) -> AsyncGenerator[Event]:
        """Answer how to reach a person, from the site's contact point or an answered question."""
        reached = await self._find_contact(state)
        collections = (reached.item.collection,) if reached else ()
        yield InterpretationEvent(state.plan.question, collections, (), state.plan.ignored, state.phrases.language)
        if reached is None:
            yield EndEvent(0, (state.phrases.unreachable,))
            return
        yield self._item_event(state, RankedItem(reached.item, 100.0), 0)
        if state.mode is None:
            yield EndEvent(1, tuple(sentence.text for sentence in reached.sentences))
            return
        for sentence in reached.sentences:
            yield _text_event(sentence)
        yield EndEvent(1)

    async def _find_contact(self, state: _AskState) -> AcceptedAnswer | None:
        item = await self._find_contact_point(state)
        if item and (ways := contact_details(item.data)):
            text = state.phrases.reached(title_of(item.data) or item.id, ways)
            return AcceptedAnswer(item, (Sentence(text, (item.ref,)),))
        search_targets = [SearchTarget(name, state.ask.where) for name in state.fields]
        hits, _ = await self._items.find_across(
            search_targets, state.ask.text, NAME_SEARCH_DEPTH, state.context.revision, retrieval="text"
        )
        return find_accepted_answer(state.ask.text, [hit.item for hit in hits], state.phrases)

    async def _find_contact_point(self, state: _AskState) -> Item | None:
        """Return the one item that has the site's contact details, if the question may find it."""
        place = find_contact_item(state.fields.values())
        if place is None:
            return None
        name, where = place
        page = await self._items.find(Query(name, where=And((where, state.ask.where)), limit=2))
        return page.items[0] if len(page.items) == 1 and not page.cursor else None

    # Clarification

    async def _build_clarification(self, state: _AskState) -> ClarificationEvent | None:
        if not state.ask.may_clarify or not self._options.clarify:
            return None
        clarification = build_clarification(
            state.plan, state.ask.rounds, state.phrases, is_answered=bool(state.ask.answers)
        )
        for target in state.plan.targets if clarification and len(state.plan.targets) == 1 else ():
            # With one item there is nothing to choose.
            if await self._finder.store.items.count(target.name, target.where) <= 1:
                return None
        return clarification

    # Search

    async def _answer(self, state: _AskState) -> AsyncGenerator[Event]:
        scored = await self._rank_results(state)
        ask = state.ask
        results: list[RankedItem] = []
        size, end = 0, ask.start + ask.limit
        async with aclosing(self._order_results(state, scored)) as ordered:
            async for result in ordered:
                if isinstance(result, TaskEvent):
                    yield result
                    return
                if ask.start <= len(results) < end:
                    size += sum(json_size(item.data) for item in (result.item, *result.same))
                    if size > self._finder.page_bytes and len(results) > ask.start:
                        end = len(results)
                        state.notes.append(state.phrases.cut_short(end - ask.start))
                    else:
                        yield self._item_event(state, result, len(results) - ask.start)
                results.append(result)
        # Beyond the depth more may match, and near in meaning is no match: then the number is not known.
        total = len(results) if len(scored) < state.depth and (len(results) <= 1 or state.is_exact) else None
        if state.plan.is_counting:
            total = await self._count_all(state) or total
        kind = kind_of([result.item for result in results], state.phrases)
        results = results[ask.start : end]
        async with aclosing(self._compose_text(state, results, total, kind)) as pieces:
            async for piece in pieces:
                yield piece
        if not results and not ask.attached:
            state.notes.append(_empty_note(state))
        if state.correction_note and state.mode is None and results:
            state.notes.append(state.correction_note)
        yield EndEvent(len(results), tuple(state.notes), state.usage.cost)

    async def _count_all(self, state: _AskState) -> int | None:
        """Return how many items match where filters alone decide. Duplicates count."""
        targets = state.plan.targets
        if any(target.without for target in targets):
            return None
        return sum([await self._finder.store.items.count(target.name, target.where) for target in targets])

    async def _order_results(
        self, state: _AskState, scored: list[RankedItem]
    ) -> AsyncGenerator[RankedItem | TaskEvent]:
        if self._model is None or not scored or state.plan.sort or state.compared or state.subject:
            for result in scored:
                yield result
            return
        async with aclosing(self._rank_by_model(state, self._model, scored)) as ordered:
            async for result in ordered:
                yield result

    def _item_event(self, state: _AskState, result: RankedItem, place: int) -> ItemEvent:
        catalog = self._catalog()
        if self._actions is None or self._actions[0] is not catalog:
            self._actions = (catalog, ItemActions(catalog.public, catalog.operations.values()))
        return ItemEvent(
            result.item, result.score, place, self._actions[1].of(result.item, state.context.may), result.same
        )

    async def _rank_results(self, state: _AskState) -> list[RankedItem]:
        """Return the local ranking.

        Categories that leave nothing are given up, and so are words that nothing here says.
        """
        plan = state.plan
        if state.subject:
            return [RankedItem(state.subject, 100.0)]
        scored = await self._search(state, [(target, target.where) for target in plan.targets])
        if not scored and plan.categories:
            scored = await self._search(state, [(target, target.relaxed) for target in plan.targets])
            state.notes += [state.phrases.left_out(words) for words in plan.categories if scored]
        state.excluded = await self._find_excluded(state, scored)
        if state.excluded:
            return []
        if not scored and plan.is_limited and plan.text:
            state.plan = replace(plan, text="", content=())
            scored = await self._search(state, [(target, target.where) for target in plan.targets])
            state.notes += [state.phrases.left_out(plan.text)] if scored else []
        if state.compared:
            return put_first(state.compared, scored)
        return await self._sort_results(state, scored, plan.sort) if plan.sort else scored

    async def _find_excluded(self, state: _AskState, scored: Sequence[RankedItem]) -> tuple[Item, ...]:
        """Return what the words of a question name, where an order is asked for and its limits leave nothing of it."""
        plan = state.plan
        stems = frozenset(stem for word in plan.content for stem in key_of(word))
        limits = [applied for target in plan.targets for applied in target.constraints if applied.constraint.strict]
        if not plan.is_strict or not stems or not limits:
            return ()
        if any(is_named(result.item, stems, state.fields[result.item.collection]) for result in scored):
            return ()
        search_targets = [SearchTarget(target.name, state.ask.where) for target in plan.targets]
        hits, _ = await self._items.find_across(
            search_targets, plan.text, NAME_SEARCH_DEPTH, state.context.revision, retrieval="text"
        )
        items = (hit.item for hit in hits)
        return tuple(item for item in items if is_named(item, stems, state.fields[item.collection]))[
            :MAX_EXCLUDED_NAMES
        ]

    async def _sort_results(self, state: _AskState, scored: list[RankedItem], sort: SortOrder) -> list[RankedItem]:
        """Return the results in the requested order; among the best matches if there are very many."""
        if len(scored) >= SORTED_DEPTH:
            first = [] if state.plan.text else await self._find_first(state, sort)
            state.notes += [] if first else [state.phrases.among(SORTED_DEPTH)]
            scored = first or scored
        return sort_items(scored, sort, {target.name: target.fields for target in state.plan.targets}) or scored

    async def _find_first(self, state: _AskState, sort: SortOrder) -> list[RankedItem]:
        """Return the first of very many by a field, where nothing else decides: the store knows them all."""
        results: list[RankedItem] = []
        for target in state.plan.targets:
            path = state.plan.sort_path(target)
            if path is None or target.without or not target.fields.collection.field(path).is_typed:
                return []
            order = (Order(path, sort.descending),)
            page = await self._items.find(Query(target.name, where=target.where, order=order, limit=DEPTH))
            results += [RankedItem(item, 100.0) for item in page.items]
        return results

    async def _search(self, state: _AskState, queries: Sequence[tuple[CollectionQuery, Filter]]) -> list[RankedItem]:
        plan = state.plan
        search_targets = [SearchTarget(target.name, where, target.without) for target, where in queries]
        hits, notes = await self._items.find_across(
            search_targets,
            plan.text,
            state.depth,
            state.context.revision,
            semantic_text=plan.text or plan.question,
            context=_context(state.ask),
            retrieval=state.ask.retrieval,
        )
        state.notes += [note for note in notes if note not in state.notes]
        context = RankingContext(
            state.fields,
            plan.preferences,
            state.phrases.language,
            bool(state.ask.language),
            datetime.now(UTC),
            key_of(plan.question),
            plan.hints,
            frozenset(stem for word in plan.content for stem in key_of(word)),
            bool(plan.constraints),
            plan.is_strict,
        )
        return rank(hits, context)

    # Ranking by a model

    async def _rank_by_model(
        self, state: _AskState, model: AnswerModel, scored: list[RankedItem]
    ) -> AsyncGenerator[RankedItem | TaskEvent]:
        """Yield the items in the model's order as it arrives, or in the search's order if the model is silent."""
        cached = model.get_order(state.key)
        if cached is not None:
            for result in cached:
                yield result
            return
        if state.context.later and model.latency > self._options.model_patience:
            yield TaskEvent(await state.context.later())
            return
        if not await state.context.may_use_model():
            state.give_up_model()
            for result in scored:
                yield result
            return
        order: list[RankedItem] = []
        try:
            async with aclosing(model.rank(state.llm_request, scored, state.usage)) as judged:
                async with asyncio.timeout(self._options.model_patience if state.context.later else None):
                    order += [result async for result in _first_of(judged)]
                for result in order:
                    yield result
                async for result in judged:
                    order.append(result)
                    yield result
        except TimeoutError:
            model.latency = max(model.latency, self._options.model_patience)
            if state.context.later:
                yield TaskEvent(await state.context.later())
            return
        except Unavailable:
            state.give_up_model()
            refs = {(result.item.collection, result.item.id) for result in order}
            last = order[-1].score if order else 100.0
            for result in scored:
                if (result.item.collection, result.item.id) not in refs:
                    yield replace(result, score=min(result.score, last))
            return
        model.set_order(state.key, order)

    # Text

    async def _compose_text(
        self, state: _AskState, results: Sequence[RankedItem], total: int | None, kind: str
    ) -> AsyncGenerator[TextEvent]:
        mode, attached = state.mode, state.ask.attached
        if mode is None or not (results or attached):
            return
        if state.correction_note:
            yield TextEvent(f"{state.correction_note} ")
        compared = state.compared if state.ask.start == 0 and len(state.compared) <= len(results) else ()
        items = [*attached, *(compared or (result.item for result in results))][:SUMMARY_ITEMS]
        if self._model and not state.is_model_silent and await state.context.may_use_model():
            has_text = False
            try:
                async with aclosing(self._model.write(state.llm_request, items, mode, state.usage)) as sentences:
                    async for sentence in sentences:
                        has_text = True
                        yield sentence
            except Unavailable:
                state.give_up_model()
            if has_text:
                return
            state.give_up_model(state.phrases.model_unsupported if state.usage.dropped else "")
        question, phrases = state.plan.question, state.phrases
        compose = answer if mode == "generate" and not state.plan.is_counting else summarize
        is_counted = total is not None and not attached and not compared
        apart = compare(question, compared, phrases) if compared and not attached else ()
        if state.is_detail_request and total == 1 and not attached:
            apart = describe(items[0], phrases)
        if attached and (not results or mentions_files(state.ask.text)):
            apart = quote_files(state.ask.text, attached, phrases)
        for sentence in apart or compose(question, items, phrases, total, is_counted=is_counted, kind=kind):
            yield _text_event(sentence)


async def _first_of(items: AsyncGenerator[RankedItem]) -> AsyncGenerator[RankedItem]:
    """Yield the first of them, if there is one."""
    first = await anext(items, None)
    if first is not None:
        yield first


def _text_event(sentence: Sentence) -> TextEvent:
    return TextEvent(f"{sentence.text} ", sentence.cites)


def _context(ask: Ask) -> str:
    """Return what the conversation is about: it colours the order of what is found."""
    return " ".join((*ask.previous[-3:], ask.background, *ask.memory))[:CONTEXT_CHARACTERS]


def _language_of(text: str, otherwise: str) -> str:
    """Return the language whose letters a question is written in, or whose small words it uses most.

    It stays with the other one if it uses no fewer of that.
    """
    if script_language := detect_script(text, otherwise):
        return script_language
    lowered = {word.lower() for word in words(text)}
    counts = {language: len(STOPWORDS[language] & lowered) for language in LANGUAGES if language in STOPWORDS}
    most = max(counts.values())
    if most <= counts.get(otherwise, 0):
        return otherwise
    # Between similar languages, the one in which more is understood.
    today = datetime.now(UTC).date()
    alike = [language for language in counts if counts[language] == most]
    return (
        max(alike, key=lambda language: _characters_read(parse_question(text[:500], today, language)))
        if len(alike) > 1
        else alike[0]
    )


def _characters_read(findings: Sequence[Finding]) -> int:
    """Return how many characters of a question were understood; what may be a place is only a guess."""
    return sum(
        finding.end - finding.start for finding in findings if not isinstance(finding, PlaceMention | MakerMention)
    )


def _correct_spelling(word: str, site: Sequence[Fields]) -> str:
    """Return the word that is known here and nearest to one that is not; empty if none is near."""
    vocabulary: Counter[str] = Counter()
    for fields in site:
        vocabulary.update(fields.vocabulary.get(fold(word)[:1], {}))
    return find_nearest(fold(word), vocabulary) or ""


def _empty_note(state: _AskState) -> str:
    if state.excluded:
        places = {item.collection for item in state.excluded}
        here = [target for target in state.plan.targets if target.name in places]
        says = [
            applied.condition.says(state.phrases)
            for target in here
            for applied in target.constraints
            if applied.constraint.strict
        ]
        names = state.phrases.names([title_of(item.data) or item.id for item in state.excluded])
        return state.phrases.beyond(names, list(dict.fromkeys(says)))
    limits = [constraint.says for constraint in state.plan.constraints]
    if limits and state.plan.is_limited:
        return state.phrases.nothing_within(limits)
    return state.phrases.nothing_for(state.plan.question[:200])
