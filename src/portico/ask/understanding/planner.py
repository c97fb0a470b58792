"""From a question in its context to what is to be looked for in each collection. Reads words; asks no store.

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
from portico.ask.ranking import sorting_path
from portico.ask.understanding.constraints import (
    Clue,
    Made,
    being,
    dated,
    diet_clues,
    grams,
    is_factual,
    placed,
    said_clues,
    spans_of,
    tokens_of,
)
from portico.ask.understanding.fields import DATED, Fields, Key, called, key_of, spoken
from portico.ask.understanding.followups import stand_alone
from portico.ask.understanding.kinds import (
    CALLED,
    CHEAP,
    COOKING,
    COUNTED,
    DESCRIBING,
    DOERS,
    HOURS,
    OPEN,
    OPENING,
    PICKING,
    SOON,
    VAGUE,
    WIDE,
    is_kind,
    local_name,
)
from portico.ask.understanding.parsers import Finding, In, Near, Quantity, Sort, When, read
from portico.ask.understanding.request_attributes import (
    KINDS,
    MAX_SEVERAL,
    attribute_clues,
    locations_of,
    remembered_clues,
    says_nothing,
    texts_in,
)
from portico.items import TITLES
from portico.query import EVERYTHING, And, Filter
from portico.requests import Ask
from portico.search.index.text import STOPWORDS, fold, words

READ_IN = ("en", "de", "es", "fr")  # languages whose words are known here


@dataclass(frozen=True, slots=True)
class Telling:
    """A clue, and what it means to a collection."""

    clue: Clue
    made: Made


@dataclass(frozen=True, slots=True)
class Target:
    """What to look for in one collection."""

    fields: Fields
    where: Filter
    relaxed: Filter  # the same without what may be given up
    without: tuple[str, ...] = ()
    told: tuple[Telling, ...] = ()  # what the filters were made of

    @property
    def name(self) -> str:
        return self.fields.collection.name


@dataclass(frozen=True, slots=True)
class Place:
    """A place that no field names: where it is has to be found out."""

    said: str
    words: str
    metres: float | None = None
    is_sure: bool = True  # that it is a place: what is in something need not be
    is_around: bool = True  # what is near it is meant, and not only what is there
    position: tuple[float, float] | None = None  # latitude and longitude, where the caller knows them
    is_required: bool = False  # named by an attribute: items that are elsewhere do not fit


@dataclass(frozen=True, slots=True)
class Meaning:
    """A question as it was understood."""

    question: str  # stands alone
    text: str  # what is left for the search by words
    targets: tuple[Target, ...]
    speech: Phrases  # in which it says what was understood
    found_out: tuple[Constraint, ...] = ()  # what the words alone did not say
    ignored: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()  # answers that mean nothing for what was asked
    sort: Sort | None = None
    content: tuple[str, ...] = ()  # the words that say what is wanted, beyond constraints and kinds
    kind: str = ""  # the collection that the question names
    hints: frozenset[str] = frozenset()  # collections of a wide kind that it names: "places"
    is_open: bool = False  # "something", "ideas": it leaves the choice to us
    is_counting: bool = False  # "how many": of everything that the filters let through
    is_strict: bool = False  # what is put in order has to be what the words name
    place: Place | None = None  # to be found before anything else
    favours: Mapping[str, tuple[Filter, ...]] = field(default_factory=dict[str, tuple[Filter, ...]])

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What was understood, as it was put to each collection."""
        told = [each for target in self.targets for each in target.told]
        made = [Constraint(each.made.path, each.made.says(self.speech), each.clue.words) for each in told]
        return tuple(dict.fromkeys((*made, *self._order(), *self.found_out)))

    def _order(self) -> tuple[Constraint, ...]:
        if self.sort is None or self.sort.start == self.sort.end:
            return ()  # an order that goes without saying
        paths = [path for target in self.targets if (path := self.sorted_by(target))]
        limits, said = self.speech.limits, self.question[self.sort.start : self.sort.end]
        ends = (limits.oldest, limits.newest) if self.sort.role == "date" else (limits.lowest, limits.highest)
        end = ends[self.sort.descending]
        return tuple(Constraint(path, being(called(path), end)(self.speech), said) for path in paths)

    @property
    def is_limited(self) -> bool:
        """Whether it says what is wanted in more than words. An order alone does not, unless it is of one kind."""
        return bool(self.found_out or any(target.told for target in self.targets) or (self.sort and self.kind))

    def sorted_by(self, target: Target) -> str | None:
        """The path that the order goes by in a collection."""
        return sorting_path(target.fields, self.sort, [each.fields for each in self.targets]) if self.sort else None

    @property
    def categories(self) -> tuple[str, ...]:
        """What is given up when nothing is left."""
        told = [each for target in self.targets for each in target.told]
        return tuple(dict.fromkeys(each.made.says(self.speech) for each in told if not each.clue.strict))

    def without_words(self, said: str) -> "Meaning":
        """The same question without words that were understood since."""
        text = " ".join(self.text.replace(said, " ").split())
        left = frozenset(words(text))
        content = tuple(word for word in self.content if word in left)
        return replace(self, text=text if content else "", content=content)

    def by_name(self, names: Sequence[str], site: Sequence[Fields], where: Filter) -> "Meaning":
        """The same question where its words are names of things: none of them is a limit, nor says where to look."""
        told = [each.clue for target in self.targets for each in target.told]
        clues = [clue for clue in _latest(told) if clue.strict and clue.span is None]
        targets = [
            _target(fields, [Telling(clue, made) for clue in clues if (made := clue.make(fields))], where)
            for fields in site
        ]
        text = " ".join(names)
        kept = replace(self, text=text, content=tuple(words(text)), targets=tuple(targets))
        lost = [each.words for each in self.found_out if self.place and self.place.is_required]
        ignored = tuple(dict.fromkeys([*self.ignored, *lost]))
        return replace(kept, sort=None, is_strict=False, place=None, found_out=(), favours={}, ignored=ignored)

    def naming(self, place: Place) -> tuple[Target, ...]:
        """The targets whose items name a place themselves, kept to those that do."""
        clue = Clue("place", place.words, placed(place.said))
        told = [(target, made) for target in self.targets if (made := clue.make(target.fields))]
        return tuple(
            replace(
                target,
                where=And((target.where, made.where)),
                relaxed=And((target.relaxed, made.where)),
                told=(*target.told, Telling(clue, made)),
            )
            for target, made in told
        )

    def without_place(self, place: Place) -> "Meaning":
        """The same question where nobody knows the place. If it is required, items that have places are elsewhere."""
        if not place.is_sure:
            return self
        unknown = replace(self.without_words(place.words), ignored=(*self.ignored, place.words))
        if not place.is_required:
            return unknown
        targets = tuple(target for target in self.targets if not target.fields.has_places)
        within = Constraint("place", self.speech.limits.within.format(place.said), place.words)
        return replace(unknown, targets=targets, found_out=() if targets else (within,))

    @property
    def specifics(self) -> int:
        """How much the question says: a limit says more than a word."""
        clues = {each.clue.slot: each.clue for target in self.targets for each in target.told}
        describes = any(word.lower() in DESCRIBING for word in words(self.question))
        said = len(self.content) + sum(2 if clue.strict else 1 for clue in clues.values()) + int(describes)
        return said + 2 * self.is_counting


def understand(ask: Ask, site: Sequence[Fields], language: str, today: date, speech: Phrases) -> Meaning:
    """What a question in a language means to these collections, to be said in words of perhaps another one."""
    sure = _counted(ask.text, site)
    turn = stand_alone(ask.text, () if sure else ask.previous, language)
    if turn.depends:
        ask = replace(ask, answers={**ask.settled, **ask.answers})
    findings = read(turn.text, today, language)
    attributes, ignored = attribute_clues(ask, today, language)
    calls = _called(turn.text, site)
    chosen, named, wrong = _chosen(ask, site, calls, sure)
    heard = said_clues(findings, turn.text, chosen)
    said = [clue for clue in heard if clue.slot != "date" or _takes_place(turn.text, chosen)]
    clues = _latest([*remembered_clues(ask, today, language), *said, *attributes])
    clues += diet_clues(turn.text, language)
    targets, lost = _targets(clues, chosen, ask.where)
    place, unread = _place(ask, findings, turn.text, targets)
    rest = _cut(turn.text, targets, findings)
    is_open = _is_open(turn.text)
    sort = _asked_order(findings, read(ask.text, today, language)) or _modest(turn.text)
    rest = _without_words(rest, PICKING) if sort else rest
    facets = _categories(rest, targets, turn.text)
    says_more = any(target.told for target in targets) or named or is_open or sort
    if not says_more and not any(each.path == "@type" for each in facets):
        facets = []  # one word says too little to look nowhere else
    rest = _without_names(rest, [each for each in chosen if each.collection.name == named])
    text_words = _content(rest, language, facets)
    is_counting = bool(named and _HOW_MANY.match(turn.text)) and not _beyond(
        COUNTED, _content(_HOW_MANY.sub("", rest), language, facets)
    )
    text_words = () if is_counting else text_words
    heads = _heads(rest, language, facets) if sort else []
    if facets:
        targets = _narrowed(targets, facets, alone=not text_words)
    if heads and sort:
        targets = _in_order([each for each in targets if each.name in heads] or targets, sort)
    sort, targets = _in_time(sort, targets, turn.text, findings, today)
    return Meaning(
        question=turn.text,
        text=_without_words(rest, OPEN) if text_words else "",
        targets=targets,
        speech=speech,
        found_out=() if chosen else _absent_kinds(ask, speech),
        ignored=tuple(dict.fromkeys([*ignored, *wrong, *unread, *(_unheard(lost, place) if chosen else ())])),
        unclear=tuple(clue.words for clue in lost if clue.words in ask.answers),
        sort=sort,
        content=text_words,
        kind=named,
        hints=calls,
        is_open=is_open,
        is_counting=is_counting,
        is_strict=_is_strict(sort, targets) and not (turn.refers and heads),
        place=place,
        favours=_favours(rest, targets),
    )


# Which collections


def _chosen(
    ask: Ask, site: Sequence[Fields], calls: frozenset[str], sure: frozenset[str]
) -> tuple[list[Fields], str, list[str]]:
    """The collections a question is put to, the one it names, and what it asks for that is not there.

    A wide kind that is named says little of where to look, unless it is surely that one.
    """
    chosen, wrong = list(site), list[str]()
    given = {**ask.filters, **ask.answers}
    for name in ("site", "collection"):
        if name in given:
            chosen, known = _of_site(given[name], chosen)
            wrong += [] if known else [f"query.{name}"]
    kinds = _kinds(ask)
    for names in kinds.values():
        chosen = [each for each in chosen if any(_has_kind(each, name) for name in names)]
    named = next((each for each in chosen if each.collection.name in (sure or calls)), None)
    if named and not kinds and len(chosen) > 1 and (sure or named.collection.type not in WIDE):
        return [named], named.collection.name, wrong
    return chosen, chosen[0].collection.name if len(chosen) == 1 else "", wrong


def _kinds(ask: Ask) -> dict[str, list[str]]:
    """Return the schema.org types that attributes ask for, by the names of the attributes."""
    values = {name: ask.filters.get(name) for name in KINDS}
    kinds = {name: texts_in(value)[:MAX_SEVERAL] for name, value in values.items() if not says_nothing(value)}
    return {name: names for name, names in kinds.items() if names}


def _absent_kinds(ask: Ask, speech: Phrases) -> tuple[Constraint, ...]:
    """Return the types that were asked for where no collection has them, so that the answer says why it is empty."""
    return tuple(
        Constraint("@type", speech.limits.kind.format(", ".join(map(local_name, names))[:200]), f"query.{attribute}")
        for attribute, names in _kinds(ask).items()
    )


def _of_site(said: Any, known: list[Fields]) -> tuple[list[Fields], bool]:
    """The collections a sub-corpus names. A host is compared with those of the items, never fetched."""
    names = [fold(part.strip()) for text in texts_in(said) for part in text.split(",")]
    if not names or any(name in {"all", "*", ""} for name in names):
        return known, True
    names += [english for name in names for english in english_for(name)]
    named = [each for each in known if {fold(each.collection.name), fold(each.collection.title)} & set(names)]
    return (named, True) if named else (known, False)


def _has_kind(fields: Fields, wanted: str) -> bool:
    kinds = [kind for kind in fields.held("@type") if isinstance(kind, str)]
    return any(is_kind(kind, wanted) for kind in (*kinds, fields.collection.type) if kind)


def _called(text: str, site: Sequence[Fields]) -> frozenset[str]:
    """The collections that a question calls by name. A verb at its beginning is none: "book a table"."""
    start = 1 if _is_command(text) else 0
    said = {language: key_of(text, language)[start:] for language in READ_IN}
    return frozenset(
        each.collection.name
        for each in site
        if any(_within(name, said[language]) for language in READ_IN for name in _names(each, language))
    )


def _counted(text: str, site: Sequence[Fields]) -> frozenset[str]:
    """The collections whose things a question asks the number of, right behind "how many"."""
    found = _HOW_MANY.match(text)
    return _called(" ".join(words(text[found.end() :])[:2]), site) if found else frozenset()


def _names(fields: Fields, language: str) -> frozenset[Key]:
    """What people call the items of a collection, as stems of a language."""
    collection = fields.collection
    own = (spoken(name) for name in (collection.name, collection.one, collection.title, collection.type))
    return frozenset(key_of(name, language) for name in (*own, *CALLED.get(collection.type, ()))) - {()}


def _is_command(text: str) -> bool:
    found = words(text.lower())
    return len(found) > 1 and found[1] in {"a", "an", "the", "me", "my", "us"}


def _within(name: Key, said: Key) -> bool:
    if len(name) == 1:
        return name[0] in said
    return any(said[at : at + len(name)] == name for at in range(len(said) - len(name) + 1))


def _place(
    ask: Ask, findings: Sequence[Finding], text: str, targets: Sequence[Target]
) -> tuple[Place | None, list[str]]:
    """The place to be found, and the labels of attributes that name none, or a second one."""
    places, unread = locations_of(ask)
    if not places:
        return _said_place(findings, text, targets), unread
    (label, found), *others = places.items()
    place = Place(found.name, label, found.metres, is_around=found.is_around, position=found.position, is_required=True)
    return place, [*unread, *(second for second, _ in others)]


def _said_place(findings: Sequence[Finding], text: str, targets: Sequence[Target]) -> Place | None:
    """The place that the words name, unless the items name it themselves."""
    if any(each.clue.slot == "place" for target in targets for each in target.told):
        return None
    for each in findings:
        if isinstance(each, Near | In) and not frozenset(key_of(each.words)) <= _ANYWHERE:
            metres = each.metres if isinstance(each, Near) else None
            return Place(each.words, text[each.start : each.end], metres, isinstance(each, Near))
    return None


_ANYWHERE = frozenset(
    part
    for word in ("town", "city", "village", "area", "centre", "center", "here", "there", "the", "it", "house", "home")
    for part in key_of(word)
)


def _unheard(lost: Sequence[Clue], place: Place | None) -> list[str]:
    """What means nothing here. A place may still be found, and not every "by" and "in" names something."""
    return [
        clue.words
        for clue in lost
        if not (place and clue.words == place.words) and not (clue.span and clue.slot in {"place", "maker"})
    ]


# Putting them together


def _latest(clues: Sequence[Clue]) -> list[Clue]:
    """Of several clues for one slot, the last: what is said now holds before what was said earlier."""
    return list({clue.slot: clue for clue in clues}.values())


def _targets(clues: Sequence[Clue], chosen: Sequence[Fields], where: Filter) -> tuple[tuple[Target, ...], list[Clue]]:
    """The collections that can tell most, with what holds in each; and the clues that hold nowhere."""
    told = [[Telling(clue, made) for clue in clues if (made := clue.make(fields))] for fields in chosen]
    tells = [sum(each.clue.weight for each in tellings if each.clue.selects) for tellings in told]
    asked = [
        _target(fields, tellings, where)
        for fields, tellings, weight in zip(chosen, told, tells, strict=True)
        if weight == max(tells)
    ]
    heard = {id(each.clue) for target in asked for each in target.told}
    return tuple(asked), [clue for clue in clues if id(clue) not in heard]


def _target(fields: Fields, told: Sequence[Telling], where: Filter) -> Target:
    parts = tuple(each.made.where for each in told if each.made.where != EVERYTHING)
    whole = And((*(() if where == EVERYTHING else (where,)), *parts))
    without = tuple(dict.fromkeys(word for each in told for word in each.made.without))
    return Target(fields, whole, whole, without, tuple(told))


def _cut(text: str, targets: Sequence[Target], findings: Sequence[Finding]) -> str:
    """The question without the words that were understood, and without measures, which no item says in these words."""
    spans = [each.clue.span for target in targets for each in target.told if each.clue.span]
    done = [(each.start, each.end) for each in findings if isinstance(each, Sort) or _is_measure(each)]
    return _without_spans(text, [*spans, *done])


def _is_measure(found: Finding) -> bool:
    """Whether this compares with so many centimetres or miles of nothing that has a name."""
    return (
        isinstance(found, Quantity)
        and found.kind in {"count", "distance"}
        and found.op != "eq"
        and bool(found.unit and not found.noun)
    )


def _without_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """A text without some of its parts, which may overlap."""
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


def _categories(text: str, targets: Sequence[Target], question: str) -> list[Facet]:
    """Values of categories that are named, at most one for each path."""
    found: dict[tuple[str, str], Facet] = {}
    # Who asks whether dogs may go to the beach does not want a beach; who asks when the museum opens wants it.
    skipped = "@type" if is_factual(question) and not _asks_for_hours(question) else ""
    for target in targets:
        for key, span in grams(tokens_of(text, target.fields.collection.language)):
            for path, values in target.fields.filed.get(key, ()):
                if path != skipped and not _is_verb(text, span):
                    found.setdefault((target.name, path), Facet(target.name, path, values, text[slice(*span)]))
    return list(found.values())


def _asks_for_hours(question: str) -> bool:
    return not {fold(word) for word in words(question)}.isdisjoint(OPENING)


def _is_verb(text: str, span: tuple[int, int]) -> bool:
    """Whether a word is something one does here: "where can I park"."""
    before = words(text[max(span[0] - 40, 0) : span[0]].lower())[-1:]
    return bool(before) and before[0] in DOERS


def _narrowed(targets: Sequence[Target], facets: Sequence[Facet], *, alone: bool) -> tuple[Target, ...]:
    """Keep to the categories that are named. They are given up when nothing is left; see `Target.relaxed`."""
    kinds = {each.collection for each in facets if each.path == "@type"}
    having = kinds or {each.collection for each in facets}
    kept = [target for target in targets if target.name in having] if alone or kinds else targets
    return tuple(_keeping(target, [each for each in facets if each.collection == target.name]) for target in kept)


def _keeping(target: Target, facets: Sequence[Facet]) -> Target:
    told = [_told(facet, target.fields) for facet in facets]
    where = And((target.where, *(each.made.where for each in told))) if told else target.where
    return replace(target, where=where, told=(*target.told, *told))


def _told(facet: Facet, fields: Fields) -> Telling:
    where = fields.among(facet.path, facet.values)
    # A kind is called as it was asked for: names of types are English, and no words that people use.
    value = facet.words if facet.path == "@type" else spoken(facet.values[0])
    made = Made(facet.path, being(called(facet.path), value), where)
    return Telling(Clue(f"category {facet.path}", facet.words, lambda _: made, strict=False), made)


def _favours(text: str, targets: Sequence[Target]) -> dict[str, tuple[Filter, ...]]:
    """Other values that stand in the question: items that have them come first, the rest is not left out."""
    favours: dict[str, tuple[Filter, ...]] = {}
    for target in targets:
        keys = {key for key, _ in grams(tokens_of(text, target.fields.collection.language))}
        places = [place for key in keys for place in target.fields.by_key.get(key, ()) if place[0] not in TITLES]
        favours[target.name] = tuple(target.fields.among(path, values) for path, values in places)[:16]
    return favours


def _without_names(text: str, named: Sequence[Fields]) -> str:
    """The text without the name of the collection that it is put to: everything there is one of these."""
    for fields in named:
        for language in READ_IN:
            said = tokens_of(text, language)
            text = _without_spans(text, [span for name in _names(fields, language) for span in spans_of(name, said)])
    return text


def _content(text: str, language: str, facets: Sequence[Facet]) -> tuple[str, ...]:
    """The words that say what is wanted: no joining words, no wishing, no categories."""
    stop = STOPWORDS.get(language, frozenset[str]()) | STOPWORDS["en"] | VAGUE | CHEAP
    named = {word.lower() for facet in facets for word in words(facet.words)}
    return tuple(
        word
        for word in words(text)
        if word.lower() not in stop and word.lower() not in named and (len(word) > 1 or not word.isascii())
    )


def _without_words(text: str, empty: frozenset[str]) -> str:
    """The text without words that wish or pick and name nothing: they stand in many items, and mean none."""
    return " ".join(word for word in text.split() if word.strip(".,;:!?").lower() not in empty)


def _beyond(empty: frozenset[str], content: Iterable[str]) -> list[str]:
    return [word for word in content if word.lower() not in empty]


_HOW_MANY = re.compile(
    r"\W*(?:(?:and|und|y|et) )?(?:how many|wie ?viele|cu[aá]nt[ao]s|combien (?:de\b|d['’]))", re.IGNORECASE
)


def _heads(text: str, language: str, facets: Sequence[Facet]) -> list[str]:
    """The collections of the category that says what is wanted: "soup" in "lentil soup", and not in "soup bowl"."""
    stop, phrase = STOPWORDS.get(language, frozenset[str]()) | STOPWORDS["en"], list[str]()
    for word in words(text.lower()):
        if word not in stop:
            phrase.append(word)
        elif phrase:
            break
    said = " ".join(phrase)
    return [each.collection for each in facets if said and f" {said}".endswith(f" {each.words.lower()}")]


def _is_strict(sort: Sort | None, targets: Sequence[Target]) -> bool:
    """Whether things will stand in another order than that of their relevance."""
    asked = [each.fields for each in targets]
    return sort is not None and any(sorting_path(each, sort, asked) for each in asked)


def _in_order(targets: Sequence[Target], sort: Sort) -> tuple[Target, ...]:
    """Those that can be put in an order; all, if none can."""
    return tuple(each for each in targets if each.fields.path(sort.role)) or tuple(targets)


def _modest(text: str) -> Sort | None:
    """ "Cheap" asks for an order, not for a price."""
    found = next((word for word in words(text) if word.lower() in CHEAP), None)
    return Sort("price", False, text.find(found), text.find(found) + len(found)) if found else None


def _asked_order(findings: Sequence[Finding], latest: Sequence[Finding]) -> Sort | None:
    """The order that was asked for last, wherever it stands in the question."""
    orders = [each for each in findings if isinstance(each, Sort)]
    now = {(each.role, each.descending) for each in latest if isinstance(each, Sort)}
    return next((each for each in reversed(orders) if (each.role, each.descending) in now), (orders or [None])[-1])


def _in_time(
    sort: Sort | None, targets: tuple[Target, ...], text: str, findings: Sequence[Finding], today: date
) -> tuple[Sort | None, tuple[Target, ...]]:
    """What is still to come in its order, though nobody says so; and the next of what takes place is none that is over.

    What does not take place has no next.
    """
    dated_ones, begins = tuple(each for each in targets if _is_dated(each.fields)), datetime.combine(today, time(), UTC)
    if sort and fold(text[sort.start : sort.end]) in SOON:
        only = dated_ones if len(dated_ones) == len(targets) else ()
        coming = When(begins, None, text[sort.start : sort.end], sort.start, sort.end)
        return (sort, tuple(_from_then(each, coming) for each in only)) if only else (None, targets)
    is_to_come = any(isinstance(each, When) and (each.start_at, each.end_at) == (begins, None) for each in findings)
    return (Sort("date", False, 0, 0), dated_ones) if is_to_come and dated_ones and not sort else (sort, targets)


def _from_then(target: Target, when: When) -> Target:
    clue = Clue("date", when.words, dated(when))
    made = clue.make(target.fields)
    if made is None or any(each.clue.slot == "date" for each in target.told):
        return target
    where, relaxed = (And((each, made.where)) for each in (target.where, target.relaxed))
    return replace(target, where=where, relaxed=relaxed, told=(*target.told, Telling(clue, made)))


def _is_dated(fields: Fields) -> bool:
    return (fields.path("date") or "").rpartition(".")[2] in DATED


def _takes_place(text: str, chosen: Sequence[Fields]) -> bool:
    """Whether a day in a question is that of an event: not when somebody cooks, and not when a place is open."""
    if _is_about_cooking(text):
        return False
    is_named = len(chosen) == 1 and _is_dated(chosen[0])
    said = {fold(word) for word in words(text)}
    return is_named or said.isdisjoint(OPENING if is_factual(text) else HOURS)


def _is_about_cooking(text: str) -> bool:
    """ "What should I cook tonight" is not about what is on tonight."""
    return any(word.lower() in COOKING for word in words(text))


def _is_open(text: str) -> bool:
    return any(word.lower() in OPEN for word in words(text))
