"""From a question in its context to a query for each collection. Reads words; asks no store.

Every collection says for itself what a clue means to it (`Fields`), and those that can tell most are asked.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from typing import Any

from portico.ask.events import Constraint
from portico.ask.languages.localization import english_for
from portico.ask.languages.phrasebook import Phrases
from portico.ask.ranking import sort_path
from portico.ask.understanding.constraints import (
    FieldCondition,
    ParsedConstraint,
    date_condition,
    grams,
    is_factual,
    parse_constraints,
    parse_diets,
    place_condition,
    spans_of,
    tokens_of,
    value_phrase,
)
from portico.ask.understanding.fields import EVENT_DATES, Fields, Key, key_of, label_of, words_of
from portico.ask.understanding.followups import resolve_followup
from portico.ask.understanding.kinds import (
    CHEAP_WORDS,
    COOKING_WORDS,
    COUNT_FILLERS,
    DESCRIBING_WORDS,
    HOURS_WORDS,
    OPEN_WORDS,
    OPENING_WORDS,
    PICK_WORDS,
    PRONOUNS,
    SOON_WORDS,
    VAGUE_WORDS,
    is_kind,
    kind_tables,
    local_name,
)
from portico.ask.understanding.parsers import (
    DateRange,
    Finding,
    NearPlace,
    PlaceMention,
    Quantity,
    SortOrder,
    parse_question,
)
from portico.ask.understanding.request_attributes import (
    KINDS,
    MAX_SEVERAL,
    attribute_constraints,
    is_empty,
    locations_of,
    memory_constraints,
    texts_in,
)
from portico.query import MATCH_ALL, And, Filter
from portico.requests import Ask
from portico.search.index.text import STOPWORDS, fold, words

LANGUAGES = ("en", "de", "es", "fr")  # languages whose words are known here


@dataclass(frozen=True, slots=True)
class AppliedConstraint:
    """A constraint, and the condition that it is in one collection."""

    constraint: ParsedConstraint
    condition: FieldCondition


@dataclass(frozen=True, slots=True)
class CollectionQuery:
    """What to look for in one collection."""

    fields: Fields
    where: Filter
    relaxed: Filter  # the same without what may be given up
    without: tuple[str, ...] = ()
    constraints: tuple[AppliedConstraint, ...] = ()  # what the filters were made of

    @property
    def name(self) -> str:
        return self.fields.collection.name


@dataclass(frozen=True, slots=True)
class PlaceReference:
    """A place that no field names: where it is has to be found out."""

    name: str
    words: str
    metres: float | None = None
    is_sure: bool = True  # that it is a place: what is in something need not be
    is_around: bool = True  # what is near it is meant, and not only what is there
    position: tuple[float, float] | None = None  # latitude and longitude, where the caller knows them
    is_required: bool = False  # named by an attribute: items that are elsewhere do not fit


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A question as it was understood."""

    question: str  # stands alone
    text: str  # what is left for the search by words
    targets: tuple[CollectionQuery, ...]
    phrases: Phrases  # in which it says what was understood
    extra_constraints: tuple[Constraint, ...] = ()  # what the words alone did not say
    ignored: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()  # answers that mean nothing for what was asked
    sort: SortOrder | None = None
    content: tuple[str, ...] = ()  # the words that say what is wanted, beyond constraints and kinds
    kind: str = ""  # the collection that the question names
    hints: frozenset[str] = frozenset()  # collections of a wide kind that it names: "places"
    is_open: bool = False  # "something", "ideas": it leaves the choice to us
    is_counting: bool = False  # "how many": of everything that the filters let through
    is_strict: bool = False  # what is put in order has to be what the words name
    place: PlaceReference | None = None  # to be found before anything else
    preferences: Mapping[str, tuple[Filter, ...]] = field(default_factory=dict[str, tuple[Filter, ...]])

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What was understood, as it was put to each collection."""
        applied_constraints = [applied for target in self.targets for applied in target.constraints]
        rendered = [
            Constraint(applied.condition.path, applied.condition.says(self.phrases), applied.constraint.words)
            for applied in applied_constraints
        ]
        return tuple(dict.fromkeys((*rendered, *self._order(), *self.extra_constraints)))

    def _order(self) -> tuple[Constraint, ...]:
        if self.sort is None or self.sort.start == self.sort.end:
            return ()  # an order that goes without saying
        paths = [path for target in self.targets if (path := self.sort_path(target))]
        limits, text = self.phrases.limits, self.question[self.sort.start : self.sort.end]
        ends = (limits.oldest, limits.newest) if self.sort.role == "date" else (limits.lowest, limits.highest)
        end = ends[self.sort.descending]
        return tuple(Constraint(path, value_phrase(label_of(path), end)(self.phrases), text) for path in paths)

    @property
    def is_limited(self) -> bool:
        """Whether it says what is wanted in more than words. An order alone does not, unless it is of one kind."""
        return bool(
            self.extra_constraints or any(target.constraints for target in self.targets) or (self.sort and self.kind)
        )

    def sort_path(self, target: CollectionQuery) -> str | None:
        """Return the path that the order goes by in a collection."""
        return sort_path(target.fields, self.sort, [other.fields for other in self.targets]) if self.sort else None

    @property
    def categories(self) -> tuple[str, ...]:
        """What is given up when nothing is left."""
        applied_constraints = [applied for target in self.targets for applied in target.constraints]
        return tuple(
            dict.fromkeys(
                applied.condition.says(self.phrases) for applied in applied_constraints if not applied.constraint.strict
            )
        )

    def without_words(self, gone: str) -> "QueryPlan":
        """Return the same question without words that were understood since."""
        text = " ".join(self.text.replace(gone, " ").split())
        left = frozenset(words(text))
        content = tuple(word for word in self.content if word in left)
        return replace(self, text=text if content else "", content=content)

    def with_link(self, gone: str, target: CollectionQuery) -> "QueryPlan":
        """Return the same question, put to one collection, without the name of an item that its items link to.

        Words that no item there has say nothing more, such as the verb of "which artist made Let There Be Rock".
        """
        named = {word.lower() for word in words(gone)}
        rest = set(words(_without_names(" ".join(self.content), [target.fields])))
        content = tuple(
            word
            for word in self.content
            if word in rest and word.lower() not in named and target.fields.stems.issuperset(key_of(word))
        )
        is_count = bool(_HOW_MANY.match(self.question)) and COUNT_FILLERS.issuperset(map(str.lower, content))
        content = () if is_count else content
        left = frozenset(content)
        return replace(
            self,
            targets=(target,),
            kind=target.name,
            text=" ".join(word for word in words(self.text) if word in left),
            content=content,
            ignored=tuple(part for part in self.ignored if gone not in part),
            is_counting=self.is_counting or is_count,
            place=None if self.place and _overlap(self.place.words, gone) else self.place,
        )

    def by_name(self, names: Sequence[str], site: Sequence[Fields], where: Filter) -> "QueryPlan":
        """Return the same question with its words read as names: none of them limits, or says where to look."""
        constraints = [applied.constraint for target in self.targets for applied in target.constraints]
        clues = [clue for clue in _latest_per_slot(constraints) if clue.strict and clue.span is None]
        targets = [
            _target(
                fields,
                [AppliedConstraint(clue, condition) for clue in clues if (condition := clue.build(fields))],
                where,
            )
            for fields in site
        ]
        text = " ".join(names)
        plan = replace(self, text=text, content=tuple(words(text)), targets=tuple(targets))
        lost = [constraint.words for constraint in self.extra_constraints if self.place and self.place.is_required]
        ignored = tuple(dict.fromkeys([*self.ignored, *lost]))
        return replace(
            plan, sort=None, is_strict=False, place=None, extra_constraints=(), preferences={}, ignored=ignored
        )

    def targets_naming(self, place: PlaceReference) -> tuple[CollectionQuery, ...]:
        """Return the targets whose items name a place themselves, kept to those that do."""
        constraint = ParsedConstraint("place", place.words, place_condition(place.name))
        matches = [(target, condition) for target in self.targets if (condition := constraint.build(target.fields))]
        return tuple(
            replace(
                target,
                where=And((target.where, condition.where)),
                relaxed=And((target.relaxed, condition.where)),
                constraints=(*target.constraints, AppliedConstraint(constraint, condition)),
            )
            for target, condition in matches
        )

    def without_place(self, place: PlaceReference) -> "QueryPlan":
        """Return the same question where nobody knows the place.

        If it is required, items that have places are elsewhere.
        """
        if not place.is_sure:
            return self
        unknown = replace(self.without_words(place.words), ignored=(*self.ignored, place.words))
        if not place.is_required:
            return unknown
        targets = tuple(target for target in self.targets if not target.fields.has_places)
        within = Constraint("place", self.phrases.limits.within.format(place.name), place.words)
        return replace(unknown, targets=targets, extra_constraints=() if targets else (within,))

    @property
    def specifics(self) -> int:
        """How much the question says: a limit says more than a word."""
        constraints = {
            applied.constraint.slot: applied.constraint for target in self.targets for applied in target.constraints
        }
        describes = any(word.lower() in DESCRIBING_WORDS for word in words(self.question))
        count = (
            len(self.content)
            + sum(2 if constraint.strict else 1 for constraint in constraints.values())
            + int(describes)
        )
        return count + 2 * self.is_counting


def plan_query(ask: Ask, site: Sequence[Fields], language: str, today: date, phrases: Phrases) -> QueryPlan:
    """Return what a question in a language means to these collections, to be said in words of perhaps another one."""
    how_many = _HOW_MANY.match(ask.text)
    sure = _find_collections(" ".join(words(ask.text[how_many.end() :])[:2]), site) if how_many else frozenset[str]()
    turn = resolve_followup(ask.text, () if sure else ask.previous, language)
    if turn.is_followup:
        ask = replace(ask, answers={**ask.settled, **ask.answers})
    findings = parse_question(turn.text, today, language)
    attributes, ignored = attribute_constraints(ask, today, language)
    calls = _find_collections(turn.text, site)
    sure = sure or _find_heads(turn.text, findings, site, language)
    chosen, kind, wrong = _choose_collections(ask, site, calls, sure)
    parsed = parse_constraints(findings, turn.text, chosen)
    in_words = [constraint for constraint in parsed if constraint.slot != "date" or _takes_place(turn.text, chosen)]
    constraints = _latest_per_slot([*memory_constraints(ask, today, language), *in_words, *attributes])
    constraints += parse_diets(turn.text, language)
    targets, lost = _targets(constraints, chosen, ask.where)
    place, unread = _find_place(ask, findings, turn.text, targets)
    rest = _strip_parsed(turn.text, targets, findings)
    is_open = _is_open(turn.text)
    sort = _latest_order(findings, parse_question(ask.text, today, language)) or _cheapness_order(turn.text)
    rest = _without_words(rest, PICK_WORDS) if sort else rest
    facets = _categories(rest, targets, turn.text)
    says_more = any(target.constraints for target in targets) or kind or is_open or sort
    if not says_more and not any(facet.path == "@type" for facet in facets):
        facets = []  # one word says too little to look nowhere else
    rest = _without_names(rest, [fields for fields in chosen if fields.collection.name == kind])
    text_words = _content(rest, language, facets)
    counted_words = _content(_HOW_MANY.sub("", rest), language, facets)
    is_counting = bool(kind and _HOW_MANY.match(turn.text)) and COUNT_FILLERS.issuperset(map(str.lower, counted_words))
    text_words = () if is_counting else text_words
    heads = _heads(rest, language, facets) if sort else []
    if facets:
        targets = _narrow_to_facets(targets, facets, alone=not text_words)
    if heads and sort:
        among = tuple(target for target in targets if target.name in heads) or targets
        targets = tuple(target for target in among if target.fields.path(sort.role)) or among
    sort, targets = _apply_time_order(sort, targets, turn.text, findings, today)
    searched = [target.fields for target in targets]
    is_strict = sort is not None and any(sort_path(fields, sort, searched) for fields in searched)
    return QueryPlan(
        question=turn.text,
        text=_without_words(rest, OPEN_WORDS) if text_words else "",
        targets=targets,
        phrases=phrases,
        extra_constraints=() if chosen else _absent_kinds(ask, phrases),
        ignored=tuple(dict.fromkeys([*ignored, *wrong, *unread, *(_find_ignored(lost, place) if chosen else ())])),
        unclear=tuple(constraint.words for constraint in lost if constraint.words in ask.answers),
        sort=sort,
        content=text_words,
        kind=kind,
        hints=calls,
        is_open=is_open,
        is_counting=is_counting,
        is_strict=is_strict and not (turn.has_reference and heads),
        place=place,
        preferences=_preferences(rest, targets),
    )


# Which collections


def _choose_collections(
    ask: Ask, site: Sequence[Fields], calls: frozenset[str], sure: frozenset[str]
) -> tuple[list[Fields], str, list[str]]:
    """Return the collections a question is put to, the one it names, and what it asks for that is not there.

    A wide kind that is named says little of where to look, unless it is surely that one.
    """
    chosen, wrong = list(site), list[str]()
    values = {**ask.filters, **ask.answers}
    for name in ("site", "collection"):
        if name in values:
            chosen, is_known = _of_site(values[name], chosen)
            wrong += [] if is_known else [f"query.{name}"]
    kinds = _kinds(ask)
    for names in kinds.values():
        chosen = [
            fields
            for fields in chosen
            if any(
                is_kind(kind, name)
                for kind in (*fields.held_values("@type"), fields.collection.type)
                for name in names
                if kind and isinstance(kind, str)
            )
        ]
    match = next((fields for fields in chosen if fields.collection.name in (sure or calls)), None)
    if match and not kinds and len(chosen) > 1 and (sure or match.collection.type not in kind_tables().wide):
        return [match], match.collection.name, wrong
    return chosen, chosen[0].collection.name if len(chosen) == 1 else "", wrong


def _kinds(ask: Ask) -> dict[str, list[str]]:
    """Return the schema.org types that attributes ask for, by the names of the attributes."""
    values = {name: ask.filters.get(name) for name in KINDS}
    kinds = {name: texts_in(value)[:MAX_SEVERAL] for name, value in values.items() if not is_empty(value)}
    return {name: names for name, names in kinds.items() if names}


def _absent_kinds(ask: Ask, phrases: Phrases) -> tuple[Constraint, ...]:
    """Return the types that were asked for where no collection has them, so that the answer says why it is empty."""
    return tuple(
        Constraint("@type", phrases.limits.kind.format(", ".join(map(local_name, names))[:200]), f"query.{attribute}")
        for attribute, names in _kinds(ask).items()
    )


def _of_site(value: Any, available: list[Fields]) -> tuple[list[Fields], bool]:
    """Return the collections a sub-corpus names. A host is compared with those of the items, never fetched."""
    names = [fold(part.strip()) for text in texts_in(value) for part in text.split(",")]
    if not names or any(name in {"all", "*", ""} for name in names):
        return available, True
    names += [english for name in names for english in english_for(name)]
    matches = [
        fields for fields in available if {fold(fields.collection.name), fold(fields.collection.title)} & set(names)
    ]
    return (matches, True) if matches else (available, False)


def _find_collections(text: str, site: Sequence[Fields]) -> frozenset[str]:
    """Return the collections that a question calls by name. A verb at its beginning is none: "book a table"."""
    start = 1 if _is_command(text) else 0
    stems = {language: key_of(text, language)[start:] for language in LANGUAGES}
    return frozenset(
        fields.collection.name
        for fields in site
        if any(_within(name, stems[language]) for language in LANGUAGES for name in names_of(fields, language))
    )


def _find_heads(text: str, findings: Sequence[Finding], site: Sequence[Fields], language: str) -> frozenset[str]:
    """Return the collections without a type that are compared by name: "cheapest dishes", "dishes under 9"."""
    compared = [finding for finding in findings if isinstance(finding, SortOrder | Quantity)]
    if not compared and not CHEAP_WORDS.intersection(words(text.lower())):
        return frozenset()
    rest = _without_spans(text, [(finding.start, finding.end) for finding in compared])
    phrase = _first_phrase(_without_words(rest, OPEN_WORDS | PICK_WORDS | CHEAP_WORDS), language)
    keys = {language: key_of(" ".join(phrase), language) for language in LANGUAGES}
    return frozenset(
        fields.collection.name
        for fields in site
        if not fields.collection.type
        and any(keys[language][-len(name) :] == name for language in LANGUAGES for name in names_of(fields, language))
    )


def names_of(fields: Fields, language: str) -> frozenset[Key]:
    """Return what people call the items of a collection, as stems of a language."""
    collection = fields.collection
    own = (words_of(name) for name in (collection.name, collection.one, collection.title, collection.type))
    return frozenset(key_of(name, language) for name in (*own, *kind_tables().names.get(collection.type, ()))) - {()}


def _is_command(text: str) -> bool:
    lowered = words(text.lower())
    return len(lowered) > 1 and lowered[1] in {"a", "an", "the", "me", "my", "us"}


def _within(name: Key, text: Key) -> bool:
    if len(name) == 1:
        return name[0] in text
    return any(text[at : at + len(name)] == name for at in range(len(text) - len(name) + 1))


def _find_place(
    ask: Ask, findings: Sequence[Finding], text: str, targets: Sequence[CollectionQuery]
) -> tuple[PlaceReference | None, list[str]]:
    """Return the place to be found, and the labels of attributes that name none, or a second one."""
    places, unread = locations_of(ask)
    if not places:
        return _place_in_text(findings, text, targets), unread
    (label, location), *others = places.items()
    place = PlaceReference(
        location.name,
        label,
        location.metres,
        is_around=location.is_around,
        position=location.position,
        is_required=True,
    )
    return place, [*unread, *(second for second, _ in others)]


def _overlap(place: str, name: str) -> bool:
    """Whether the words of a place are those of a name: "on Jagged Little Pill" is no place."""
    return not {word.lower() for word in words(place)}.isdisjoint(word.lower() for word in words(name))


def _place_in_text(findings: Sequence[Finding], text: str, targets: Sequence[CollectionQuery]) -> PlaceReference | None:
    """Return the place that the words name, unless the items name it themselves."""
    if any(applied.constraint.slot == "place" for target in targets for applied in target.constraints):
        return None
    for finding in findings:
        if isinstance(finding, NearPlace | PlaceMention) and not frozenset(key_of(finding.words)) <= _ANYWHERE:
            metres = finding.metres if isinstance(finding, NearPlace) else None
            return PlaceReference(
                finding.words, text[finding.start : finding.end], metres, isinstance(finding, NearPlace)
            )
    return None


_ANYWHERE = frozenset(
    part
    for word in ("town", "city", "village", "area", "centre", "center", "here", "there", "the", "it", "house", "home")
    for part in key_of(word)
)


def _find_ignored(lost: Sequence[ParsedConstraint], place: PlaceReference | None) -> list[str]:
    """Return what means nothing here. A place may still be found, and not every "by" and "in" names something."""
    return [
        constraint.words
        for constraint in lost
        if not (place and constraint.words == place.words)
        and not (constraint.span and constraint.slot in {"place", "maker"})
    ]


# Putting them together


def _latest_per_slot(constraints: Sequence[ParsedConstraint]) -> list[ParsedConstraint]:
    """Return the last constraint of each slot: a later question overrides an earlier one."""
    return list({constraint.slot: constraint for constraint in constraints}.values())


def _targets(
    constraints: Sequence[ParsedConstraint], chosen: Sequence[Fields], where: Filter
) -> tuple[tuple[CollectionQuery, ...], list[ParsedConstraint]]:
    """Return the collections that can tell most, with what holds in each; and the constraints that hold nowhere."""
    applicable = [
        [
            AppliedConstraint(constraint, condition)
            for constraint in constraints
            if (condition := constraint.build(fields))
        ]
        for fields in chosen
    ]
    tells = [
        sum(applied.constraint.weight for applied in applied_constraints if applied.constraint.selects)
        for applied_constraints in applicable
    ]
    queries = [
        _target(fields, applied_constraints, where)
        for fields, applied_constraints, weight in zip(chosen, applicable, tells, strict=True)
        if weight == max(tells)
    ]
    applied_ids = {id(applied.constraint) for target in queries for applied in target.constraints}
    return tuple(queries), [constraint for constraint in constraints if id(constraint) not in applied_ids]


def _target(fields: Fields, constraints: Sequence[AppliedConstraint], where: Filter) -> CollectionQuery:
    parts = tuple(applied.condition.where for applied in constraints if applied.condition.where != MATCH_ALL)
    whole = And((*(() if where == MATCH_ALL else (where,)), *parts))
    without = tuple(dict.fromkeys(word for applied in constraints for word in applied.condition.without))
    return CollectionQuery(fields, whole, whole, without, tuple(constraints))


def _strip_parsed(text: str, targets: Sequence[CollectionQuery], findings: Sequence[Finding]) -> str:
    """Return the question without the understood words, and without measures, which no item words that way."""
    spans = [applied.constraint.span for target in targets for applied in target.constraints if applied.constraint.span]
    done = [
        (finding.start, finding.end) for finding in findings if isinstance(finding, SortOrder) or _is_measure(finding)
    ]
    return _without_spans(text, [*spans, *done])


def _is_measure(finding: Finding) -> bool:
    """Return whether this compares with so many centimetres or miles of nothing that has a name."""
    return (
        isinstance(finding, Quantity)
        and finding.kind in {"count", "distance"}
        and finding.op != "eq"
        and bool(finding.unit and not finding.noun)
    )


def _without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text without some of its parts, which may overlap."""
    left, at = list[str](), 0
    for start, end in sorted(spans):
        left.append(text[at : max(start, at)])
        at = max(at, end)
    return " ".join(" ".join([*left, text[at:]]).split())


@dataclass(frozen=True, slots=True)
class Facet:
    """A value of a category that stands in the question."""

    collection: str
    path: str
    values: tuple[str, ...]
    words: str


def _categories(text: str, targets: Sequence[CollectionQuery], question: str) -> list[Facet]:
    """Return the categories that are named, at most one for each path."""
    facets: dict[tuple[str, str], Facet] = {}
    # Who asks whether dogs may go to the beach does not want a beach; who asks when the museum opens wants it.
    asks_for_hours = not {fold(word) for word in words(question)}.isdisjoint(OPENING_WORDS)
    skipped = "@type" if is_factual(question) and not asks_for_hours else ""
    for target in targets:
        for key, span in grams(tokens_of(text, target.fields.collection.language)):
            for path, values in target.fields.categories.get(key, ()):
                if path != skipped and not _is_verb(text, span):
                    facets.setdefault((target.name, path), Facet(target.name, path, values, text[slice(*span)]))
    return list(facets.values())


def _is_verb(text: str, span: tuple[int, int]) -> bool:
    """Return whether a word is something one does here: "where can I park"."""
    before = words(text[max(span[0] - 40, 0) : span[0]].lower())[-1:]
    return bool(before) and before[0] in PRONOUNS


def _narrow_to_facets(
    targets: Sequence[CollectionQuery], facets: Sequence[Facet], *, alone: bool
) -> tuple[CollectionQuery, ...]:
    """Keep to the categories that are named. They are given up when nothing is left; see `CollectionQuery.relaxed`."""
    kinds = {facet.collection for facet in facets if facet.path == "@type"}
    having = kinds or {facet.collection for facet in facets}
    remaining = [target for target in targets if target.name in having] if alone or kinds else targets
    return tuple(
        _with_facets(target, [facet for facet in facets if facet.collection == target.name]) for target in remaining
    )


def _with_facets(target: CollectionQuery, facets: Sequence[Facet]) -> CollectionQuery:
    applied_constraints = [_facet_constraint(facet, target.fields) for facet in facets]
    where = (
        And((target.where, *(applied.condition.where for applied in applied_constraints)))
        if applied_constraints
        else target.where
    )
    return replace(target, where=where, constraints=(*target.constraints, *applied_constraints))


def _facet_constraint(facet: Facet, fields: Fields) -> AppliedConstraint:
    where = fields.is_one_of(facet.path, facet.values)
    # A kind is called as it was asked for: names of types are English, and no words that people use.
    value = facet.words if facet.path == "@type" else words_of(facet.values[0])
    condition = FieldCondition(facet.path, value_phrase(label_of(facet.path), value), where)
    return AppliedConstraint(
        ParsedConstraint(f"category {facet.path}", facet.words, lambda _: condition, strict=False), condition
    )


def _preferences(text: str, targets: Sequence[CollectionQuery]) -> dict[str, tuple[Filter, ...]]:
    """Return other values in the question: items that have them come first, and no item is left out."""
    favours: dict[str, tuple[Filter, ...]] = {}
    for target in targets:
        keys = {key for key, _ in grams(tokens_of(text, target.fields.collection.language))}
        titles = target.fields.collection.title_fields
        places = [place for key in keys for place in target.fields.by_key.get(key, ()) if place[0] not in titles]
        favours[target.name] = tuple(target.fields.is_one_of(path, values) for path, values in places)[:16]
    return favours


def _without_names(text: str, collections: Sequence[Fields]) -> str:
    """Return the text without the name of the collection that it is put to: everything there is one of these."""
    for fields in collections:
        for language in LANGUAGES:
            tokens = tokens_of(text, language)
            text = _without_spans(
                text, [span for name in names_of(fields, language) for span in spans_of(name, tokens)]
            )
    return text


def _content(text: str, language: str, facets: Sequence[Facet]) -> tuple[str, ...]:
    """Return the words that say what is wanted: no joining words, no wishing, no categories."""
    stop = STOPWORDS.get(language, frozenset[str]()) | STOPWORDS["en"] | VAGUE_WORDS | CHEAP_WORDS
    facet_words = {word.lower() for facet in facets for word in words(facet.words)}
    return tuple(
        word
        for word in words(text)
        if word.lower() not in stop and word.lower() not in facet_words and (len(word) > 1 or not word.isascii())
    )


def _without_words(text: str, empty: frozenset[str]) -> str:
    """Return the text without words that wish or pick and name nothing: they stand in many items, and mean none."""
    return " ".join(word for word in text.split() if word.strip(".,;:!?").lower() not in empty)


_HOW_MANY = re.compile(
    r"\W*(?:(?:and|und|y|et) )?(?:how many|wie ?viele|cu[aá]nt[ao]s|combien (?:de\b|d['’]))", re.IGNORECASE
)


def _heads(text: str, language: str, facets: Sequence[Facet]) -> list[str]:
    """Return the collections of the head noun's category: "soup" in "lentil soup", not in "soup bowl"."""
    head = " ".join(_first_phrase(text, language))
    return [facet.collection for facet in facets if head and f" {head}".endswith(f" {facet.words.lower()}")]


def _first_phrase(text: str, language: str) -> list[str]:
    """Return the first words in a row that say something."""
    stop, phrase = STOPWORDS.get(language, frozenset[str]()) | STOPWORDS["en"], list[str]()
    for word in words(text.lower()):
        if word not in stop:
            phrase.append(word)
        elif phrase:
            break
    return phrase


def _cheapness_order(text: str) -> SortOrder | None:
    """ "Cheap" asks for an order, not for a price."""
    cheap_word = next((word for word in words(text) if word.lower() in CHEAP_WORDS), None)
    return (
        SortOrder("price", False, text.find(cheap_word), text.find(cheap_word) + len(cheap_word))
        if cheap_word
        else None
    )


def _latest_order(findings: Sequence[Finding], latest: Sequence[Finding]) -> SortOrder | None:
    """Return the order that was asked for last, wherever it stands in the question."""
    orders = [finding for finding in findings if isinstance(finding, SortOrder)]
    now = {(finding.role, finding.descending) for finding in latest if isinstance(finding, SortOrder)}
    return next((order for order in reversed(orders) if (order.role, order.descending) in now), (orders or [None])[-1])


def _apply_time_order(
    sort: SortOrder | None, targets: tuple[CollectionQuery, ...], text: str, findings: Sequence[Finding], today: date
) -> tuple[SortOrder | None, tuple[CollectionQuery, ...]]:
    """Return the order and the targets for a time to come: events that are over are left out.

    What does not take place has no next.
    """
    dated_ones, begins = (
        tuple(target for target in targets if _is_dated(target.fields)),
        datetime.combine(today, time(), UTC),
    )
    if sort and fold(text[sort.start : sort.end]) in SOON_WORDS:
        only = dated_ones if len(dated_ones) == len(targets) else ()
        coming = DateRange(begins, None, text[sort.start : sort.end], sort.start, sort.end)
        return (sort, tuple(_start_at(target, coming) for target in only)) if only else (None, targets)
    is_to_come = any(
        isinstance(finding, DateRange) and (finding.start_at, finding.end_at) == (begins, None) for finding in findings
    )
    return (SortOrder("date", False, 0, 0), dated_ones) if is_to_come and dated_ones and not sort else (sort, targets)


def _start_at(target: CollectionQuery, when: DateRange) -> CollectionQuery:
    constraint = ParsedConstraint("date", when.words, date_condition(when))
    condition = constraint.build(target.fields)
    if condition is None or any(applied.constraint.slot == "date" for applied in target.constraints):
        return target
    where, relaxed = (And((part, condition.where)) for part in (target.where, target.relaxed))
    return replace(
        target,
        where=where,
        relaxed=relaxed,
        constraints=(*target.constraints, AppliedConstraint(constraint, condition)),
    )


def _is_dated(fields: Fields) -> bool:
    return (fields.path("date") or "").rpartition(".")[2] in EVENT_DATES


def _takes_place(text: str, chosen: Sequence[Fields]) -> bool:
    """Return whether a day in a question is that of an event: not when somebody cooks, and not when a place is open."""
    if any(word.lower() in COOKING_WORDS for word in words(text)):
        return False  # "what should I cook tonight" is not about what is on tonight
    is_named = len(chosen) == 1 and _is_dated(chosen[0])
    question_words = {fold(word) for word in words(text)}
    return is_named or question_words.isdisjoint(OPENING_WORDS if is_factual(text) else HOURS_WORDS)


def _is_open(text: str) -> bool:
    return any(word.lower() in OPEN_WORDS for word in words(text))
