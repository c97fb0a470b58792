"""Items of other collections that a question names: "albums by Queen" are those that link to the artist Queen.

A collection that the question names is limited to the items that lead to what it names, over one link or two.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from portico.ask.item_finder import ItemFinder
from portico.ask.understanding.constraints import (
    FieldCondition,
    ParsedConstraint,
    StemToken,
    spans_of,
    tokens_of,
    value_phrase,
)
from portico.ask.understanding.fields import Fields, key_of, words_of
from portico.ask.understanding.planner import AppliedConstraint, CollectionQuery, QueryPlan, names_of
from portico.catalog import Collection
from portico.items import TITLES, Item
from portico.links import MAX_LINKED, FieldLink, ids_filter, linked_ids, linking_filter, links_among
from portico.query import MAX_LIST, And, Filter, Query
from portico.search.finder import SearchTarget
from portico.search.index.text import STOPWORDS, words

MAX_STEPS = 2  # links between what is asked for and what is named
MAX_TARGETS = 16  # collections in which names are looked up
MAX_CANDIDATES = 20  # items of each of them
MAX_NAMED = 3  # names in one question

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """A link, walked from its field to its target or back."""

    link: FieldLink
    is_forward: bool

    @property
    def start(self) -> str:
        return self.link.collection if self.is_forward else self.link.target

    @property
    def end(self) -> str:
        return self.link.target if self.is_forward else self.link.collection


Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class NamedItems:
    """Items whose title stands in the question. Several may have the same one."""

    span: Span
    title: str
    path: Path  # from what is asked for to these items
    items: tuple[Item, ...]


async def follow_links(plan: QueryPlan, site: Sequence[Fields], finder: ItemFinder, language: str) -> QueryPlan:
    """Return the plan, limited to the items that lead to those that its question names elsewhere."""
    target = _asked_for(plan, language)
    if target is None:
        return plan
    paths = _paths(target.name, links_among(fields.collection for fields in site))
    if not paths:
        return plan
    by_name = {fields.collection.name: fields for fields in site}
    names = [name for name in paths if _title_fields(by_name[name].collection)][:MAX_TARGETS]
    tokens = tokens_of(plan.question, language)
    matches = await asyncio.gather(
        *(_find_titles(by_name[name].collection, plan.question, finder) for name in (target.name, *names))
    )
    spans = [list(_title_spans(items, by_name[name], tokens, language)) for name, items in matches]
    own, *others = spans
    mentions = [
        NamedItems(span, title, paths[name], items)
        for name, named in zip(names, others, strict=True)
        for span, title, items in named
    ]
    readable = [
        mention
        for mention in mentions
        if not _is_understood(mention.span, target)
        and not any(_hides(span, mention.span, plan.question, target.fields, language) for span, _, _ in own)
        and (len(mention.path) == 1 or _is_introduced(mention, plan.question, by_name, language))
    ]
    for mention in _apart(readable):
        where = await _leading_filter(mention, by_name, finder)
        if where is not None:
            target = _limited(target, mention, where, by_name)
            plan = plan.with_link(plan.question[slice(*mention.span)], target)
    return plan


def _asked_for(plan: QueryPlan, language: str) -> CollectionQuery | None:
    """Return the collection that the question names first."""
    tokens = tokens_of(plan.question, language)
    named = [target for target in plan.targets if target.name == plan.kind or target.name in plan.hints]
    places = [
        (min((span[0] for name in names_of(target.fields, language) for span in spans_of(name, tokens)), default=0), at)
        for at, target in enumerate(named)
    ]
    return named[min(places)[1]] if places else None


def _paths(kind: str, links: Iterable[FieldLink]) -> Mapping[str, Path]:
    """Return the shortest way from a collection to each that its items are linked with."""
    every = [step for link in links for step in (Step(link, True), Step(link, False))]
    paths: dict[str, Path] = {kind: ()}
    reached: list[Path] = [()]
    for _ in range(MAX_STEPS):
        longer = [(*path, step) for path in reached for step in every if step.start == (path[-1].end if path else kind)]
        reached = []
        for path in longer:
            if path[-1].end not in paths:
                paths[path[-1].end] = path
                reached.append(path)
    return {name: path for name, path in paths.items() if path}


# Titles in the question


async def _find_titles(collection: Collection, question: str, finder: ItemFinder) -> tuple[str, list[Item]]:
    """Return the items of a collection whose titles may stand in a question."""
    hits, _ = await finder.find_across([SearchTarget(collection.name)], question, MAX_CANDIDATES, retrieval="text")
    return collection.name, [hit.item for hit in hits]


def _title_spans(
    items: Sequence[Item], fields: Fields, tokens: Sequence[StemToken], language: str
) -> Iterator[tuple[Span, str, tuple[Item, ...]]]:
    """Yield the titles that stand in the question as a whole, each with the items that have it."""
    by_span: dict[Span, list[tuple[str, Item]]] = {}
    for item in items:
        titles = {text for name in _title_fields(fields.collection) if isinstance(text := item.data.get(name), str)}
        for title in titles:
            for span in spans_of(key_of(title, language), tokens):
                by_span.setdefault(span, []).append((title, item))
    for span, named in by_span.items():
        yield span, named[0][0], tuple(item for _, item in named)


def _title_fields(collection: Collection) -> list[str]:
    """Return the fields that call the items; not any short text, such as a country."""
    return [name for name in collection.fields if name == collection.field_for("title") or name.casefold() in TITLES]


def _is_understood(span: Span, target: CollectionQuery) -> bool:
    """Whether these words are a constraint already."""
    spans = [applied.constraint.span for applied in target.constraints if applied.constraint.span]
    return any(start < span[1] and span[0] < end for start, end in spans)


def _hides(own: Span, other: Span, question: str, kind: Fields, language: str) -> bool:
    """Whether words that name an item elsewhere name one of the asked kind: all of "the track Let There Be Rock"."""
    if not (own[0] <= other[0] and other[1] <= own[1]):
        return False
    return own != other or _is_behind(own, names_of(kind, language), question, language)


def _is_introduced(mention: NamedItems, question: str, site: Mapping[str, Fields], language: str) -> bool:
    """Whether a word such as "by", or the name of its collection, leads to a name that is far from what is asked."""
    before = words(question[: mention.span[0]])[-1:]
    small = STOPWORDS.get(language, frozenset[str]()) | STOPWORDS["en"]
    if before and before[0].lower() in small:
        return True
    return _is_behind(mention.span, names_of(site[mention.path[-1].end], language), question, language)


def _is_behind(span: Span, names: frozenset[tuple[str, ...]], question: str, language: str) -> bool:
    before = key_of(question[: span[0]], language)
    return any(before[-len(name) :] == name for name in names)


def _apart(mentions: Sequence[NamedItems]) -> list[NamedItems]:
    """Return mentions that do not overlap: long titles before short ones, and near collections before far ones."""
    chosen: list[NamedItems] = []
    for mention in sorted(mentions, key=lambda mention: (mention.span[0] - mention.span[1], len(mention.path))):
        if all(mention.span[1] <= other.span[0] or other.span[1] <= mention.span[0] for other in chosen):
            chosen.append(mention)
    return chosen[:MAX_NAMED]


# Conditions


async def _leading_filter(mention: NamedItems, site: Mapping[str, Fields], finder: ItemFinder) -> Filter | None:
    """Return the filter for items from which the path leads to the named ones; None if there are too many between."""
    items = mention.items
    where: Filter | None = None
    for number, step in enumerate(reversed(mention.path)):
        if number:
            if where is None:
                return None
            items = await _all_items(step.end, where, finder)
        field = site[step.link.collection].collection.fields[step.link.field]
        if step.is_forward:
            where = linking_filter(field, [item.id for item in items])
        else:
            where = ids_filter([id for item in items for id in linked_ids(item.data, field)])
    return where


async def _all_items(collection: str, where: Filter, finder: ItemFinder) -> tuple[Item, ...]:
    """Return all items that a filter lets through; none if they are more than a filter can name."""
    items: list[Item] = []
    cursor = ""
    while True:
        page = await finder.find(Query(collection, where=where, limit=MAX_LIST, cursor=cursor))
        items += page.items
        cursor = page.cursor
        if len(items) > MAX_LINKED:
            return ()
        if not cursor:
            return tuple(items)


def _limited(
    target: CollectionQuery, mention: NamedItems, where: Filter, site: Mapping[str, Fields]
) -> CollectionQuery:
    label = words_of(site[mention.path[-1].end].collection.one)
    path = mention.path[0].link.field if mention.path[0].is_forward else mention.path[-1].end
    condition = FieldCondition(path, value_phrase(label, mention.title), where)
    constraint = ParsedConstraint(f"link {path}", mention.title, lambda _: condition, span=mention.span)
    return replace(
        target,
        where=And((target.where, where)),
        relaxed=And((target.relaxed, where)),
        constraints=(*target.constraints, AppliedConstraint(constraint, condition)),
    )
