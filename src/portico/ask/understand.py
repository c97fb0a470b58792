"""From a question in its context to what is to be looked for in each collection. Reads words; asks no store.

Every collection says for itself what a clue means to it (`Fields`), and those that can tell most are asked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from portico.ask.attributes import LOCATIONS, attribute_clues, name_of, remembered_clues, texts_in
from portico.ask.clues import Clue, Made, Maker, diet_clues, is_factual, said_clues, spans_of, tokens_of
from portico.ask.events import Constraint
from portico.ask.fields import Fields, Key, key_of, spoken
from portico.ask.followup import stand_alone
from portico.ask.kinds import ALSO, CALLED, CHEAP, COOKING, DOERS, OPEN, VAGUE, WIDE, is_kind
from portico.ask.reading import Finding, In, Near, Sort, read
from portico.calls import Ask
from portico.index.text import STOPWORDS, TITLES, fold, words
from portico.query import EVERYTHING, And, Filter

MAX_CLUES = 48
READ_IN = ("en", "de", "es", "fr")  # languages whose words are known here


@dataclass(frozen=True, slots=True)
class Target:
    """What to look for in one collection."""

    fields: Fields
    where: Filter
    relaxed: Filter  # the same without what may be given up
    without: tuple[str, ...] = ()

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


@dataclass(frozen=True, slots=True)
class Meaning:
    """A question as it was understood."""

    question: str  # stands alone
    text: str  # what is left for the search by words
    targets: tuple[Target, ...]
    constraints: tuple[Constraint, ...] = ()
    ignored: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()  # answers that mean nothing for what was asked
    sort: Sort | None = None
    refers: bool = False  # to what was shown before
    content: tuple[str, ...] = ()  # the words that say what is wanted, beyond constraints and kinds
    kind: str = ""  # the collection that the question names
    hints: frozenset[str] = frozenset()  # collections of a wide kind that it names: "places"
    is_open: bool = False  # "something", "ideas": it leaves the choice to us
    clues: tuple[Clue, ...] = ()  # what the constraints were made of
    place: Place | None = None  # to be found before anything else
    favours: Mapping[str, tuple[Filter, ...]] = field(default_factory=dict[str, tuple[Filter, ...]])

    def narrowed_to(self, targets: tuple[Target, ...]) -> "Meaning":
        """The same question to some of its collections, or more narrowly to all of them."""
        return replace(self, targets=targets, constraints=_constraints(self.clues, targets))

    def without_words(self, said: str) -> "Meaning":
        """The same question without words that were understood since."""
        text = " ".join(self.text.replace(said, " ").split())
        content = tuple(word for word in self.content if word in text)
        return replace(self, text=text if content else "", content=content)

    def without_place(self) -> "Meaning":
        """The same question, where nobody knows the place that it names."""
        if self.place is None or not self.place.is_sure:
            return self
        return replace(self.without_words(self.place.words), ignored=(*self.ignored, self.place.words))

    @property
    def specifics(self) -> int:
        """How much the question says: a limit says more than a word."""
        return len(self.content) + sum(2 if clue.strict else 1 for clue in self.clues)


def understand(ask: Ask, site: Sequence[Fields], language: str, today: date) -> Meaning:
    """What a question means to these collections."""
    turn = stand_alone(ask.text, ask.previous, language)
    if turn.depends:
        ask = replace(ask, answers={**ask.settled, **ask.answers})
    findings = read(turn.text, today, language)
    attributes, ignored = attribute_clues(ask, today, language)
    chosen, named, wrong = _chosen(ask, site, turn.text)
    said = [clue for clue in said_clues(findings, turn.text) if clue.slot != "date" or not _is_about_cooking(turn.text)]
    clues = _latest([*remembered_clues(ask, today, language), *said, *attributes])
    clues += diet_clues(turn.text, language)
    targets, kept, lost = _targets(clues, chosen, ask.where)
    place = _place(ask, findings, turn.text, kept)
    rest = _cut(turn.text, kept, findings)
    is_open = _is_open(turn.text)
    sort = next((each for each in reversed(findings) if isinstance(each, Sort)), None) or _modest(turn.text)
    facets = _categories(rest, targets, turn.text)
    if not (kept or named or is_open or sort or any(each.path == "@type" for each in facets)):
        facets = []  # one word says too little to look nowhere else
    rest = _without_names(rest, [each for each in chosen if each.collection.name == named])
    text_words = _content(rest, language, facets)
    if facets:
        targets, more = _narrowed(targets, facets, alone=not text_words)
        kept = [*kept, *more]
    return Meaning(
        question=turn.text,
        text=rest if text_words else "",
        targets=targets,
        constraints=_constraints(kept, targets),
        ignored=tuple(dict.fromkeys([*ignored, *wrong, *(_unheard(lost, place) if chosen else ())])),
        unclear=tuple(clue.words for clue in lost if clue.words in ask.answers),
        sort=sort,
        refers=turn.refers,
        content=text_words,
        kind=named,
        hints=frozenset(each.collection.name for each in chosen if _is_named(each, turn.text)),
        is_open=is_open,
        clues=tuple(kept),
        place=place,
        favours=_favours(rest, targets),
    )


# Which collections


def _chosen(ask: Ask, site: Sequence[Fields], text: str) -> tuple[list[Fields], str, list[str]]:
    """The collections a question is put to, the one it names, and what it asks for that is not there."""
    chosen, wrong = list(site), list[str]()
    given = {**ask.filters, **ask.answers}
    for name in ("site", "collection"):
        if name in given:
            chosen, known = _of_site(given[name], chosen)
            wrong += [] if known else [f"query.{name}"]
    kinds = [ask.filters[name] for name in ("itemType", "item_type", "@type") if name in ask.filters]
    for kind in kinds:
        chosen = [each for each in chosen if any(_has_kind(each, one) for one in texts_in(kind))]
    named = next((each for each in chosen if _is_named(each, text)), None)
    if named and not kinds and len(chosen) > 1 and named.collection.type not in WIDE:
        return [named], named.collection.name, wrong
    return chosen, chosen[0].collection.name if len(chosen) == 1 else "", wrong


def _of_site(said: Any, known: list[Fields]) -> tuple[list[Fields], bool]:
    """The collections a sub-corpus names. A host is compared with those of the items, never fetched."""
    names = [fold(part.strip()) for text in texts_in(said) for part in text.split(",")]
    if not names or any(name in {"all", "*", ""} for name in names):
        return known, True
    named = [each for each in known if {fold(each.collection.name), fold(each.collection.title)} & set(names)]
    return (named, True) if named else (known, False)


def _has_kind(fields: Fields, wanted: str) -> bool:
    wanted = wanted.removeprefix("https://schema.org/").removeprefix("http://schema.org/")
    kinds = [kind for kind in fields.values.get("@type", {}) if isinstance(kind, str)]
    return any(is_kind(kind, wanted) for kind in (*kinds, fields.collection.type) if kind)


def _is_named(fields: Fields, text: str) -> bool:
    """Whether a question says what this collection is of. A verb at its beginning is none: "book a table"."""
    start = 1 if _is_command(text) else 0
    return any(
        _within(name, key_of(text, language), start) for language in READ_IN for name in _names(fields, language)
    )


def _names(fields: Fields, language: str) -> frozenset[Key]:
    """What people call the items of a collection, as stems of a language."""
    collection = fields.collection
    own = (spoken(name) for name in (collection.name, collection.one, collection.title, collection.type))
    return frozenset(key_of(name, language) for name in (*own, *CALLED.get(collection.type, ()))) - {()}


def _is_command(text: str) -> bool:
    found = words(text.lower())
    return len(found) > 1 and found[1] in {"a", "an", "the", "me", "my", "us"}


def _within(name: Key, said: Key, start: int = 0) -> bool:
    return any(said[at : at + len(name)] == name for at in range(start, len(said) - len(name) + 1))


def _place(ask: Ask, findings: Sequence[Finding], text: str, kept: Sequence[Clue]) -> Place | None:
    """The place to be found, unless the items name it themselves."""
    if any(clue.slot == "place" for clue in kept):
        return None
    for name in LOCATIONS:
        said = name_of(ask.filters.get(name))
        if said:
            return Place(said, f"query.{name}")
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
    return list({clue.slot: clue for clue in clues}.values())[-MAX_CLUES:]


def _targets(
    clues: Sequence[Clue], chosen: Sequence[Fields], where: Filter
) -> tuple[tuple[Target, ...], list[Clue], list[Clue]]:
    """The collections that can tell most, what holds in each, and which clues hold nowhere."""
    told = {id(fields): [clue.make(fields) for clue in clues] for fields in chosen}

    def tells(fields: Fields) -> int:
        return sum(clue.weight for clue, made in zip(clues, told[id(fields)], strict=True) if made and clue.selects)

    most = max((tells(fields) for fields in chosen), default=0)
    asked = [fields for fields in chosen if tells(fields) == most]
    targets = tuple(_target(fields, told[id(fields)], where) for fields in asked)
    held = [any(told[id(fields)][i] for fields in asked) for i in range(len(clues))]
    kept = [clue for clue, holds in zip(clues, held, strict=True) if holds]
    return targets, kept, [clue for clue, holds in zip(clues, held, strict=True) if not holds]


def _target(fields: Fields, made: Sequence[Made | None], where: Filter) -> Target:
    known = [each for each in made if each]
    parts = tuple(each.where for each in known if each.where != EVERYTHING)
    whole = And((*(() if where == EVERYTHING else (where,)), *parts))
    without = tuple(dict.fromkeys(word for each in known for word in each.without))
    return Target(fields, whole, whole, without)


def _cut(text: str, kept: Sequence[Clue], findings: Sequence[Finding]) -> str:
    """The question without the words that were understood."""
    spans = [clue.span for clue in kept if clue.span]
    return _without_spans(text, [*spans, *((each.start, each.end) for each in findings if isinstance(each, Sort))])


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
    found: list[Facet] = []
    asks_a_fact = is_factual(question)
    for target in targets:
        said = tokens_of(text, target.fields.collection.language)
        for path, held in _category_values(target.fields):
            # Who asks whether dogs may go to the beach does not want a beach.
            for key, values in held.items() if path != "@type" or not asks_a_fact else ():
                span = next((span for span in spans_of(key, said) if not _is_verb(text, span)), None)
                if span and not any(each.path == path and each.collection == target.name for each in found):
                    found.append(Facet(target.name, path, values, text[slice(*span)]))
    return found


def _is_verb(text: str, span: tuple[int, int]) -> bool:
    """Whether a word is something one does here: "where can I park"."""
    before = words(text[: span[0]].lower())[-1:]
    return bool(before) and before[0] in DOERS


def _category_values(fields: Fields) -> Iterator[tuple[str, Mapping[Key, tuple[str, ...]]]]:
    """What the items are filed under: their kinds, by every name that people have for them, and their categories."""
    kinds: dict[Key, tuple[str, ...]] = {}
    for kind in fields.values.get("@type", {}):
        if isinstance(kind, str) and kind != fields.collection.type and kind not in WIDE:
            for name in (spoken(kind), *CALLED.get(kind, ())):
                kinds[key_of(name)] = (kind,)
    yield "@type", kinds
    for path in fields.paths("category"):
        held = fields.worded.get(path, {})
        also = {
            key_of(other): held[key_of(name)]
            for name, others in ALSO.items()
            if key_of(name) in held
            for other in others
        }
        yield path, {**also, **held}


def _narrowed(
    targets: Sequence[Target], facets: Sequence[Facet], *, alone: bool
) -> tuple[tuple[Target, ...], list[Clue]]:
    """Keep to the categories that are named. They are given up when nothing is left; see `Target.relaxed`."""
    kinds = {each.collection for each in facets if each.path == "@type"}
    having = kinds or {each.collection for each in facets}
    kept = [target for target in targets if target.name in having] if alone or kinds else list(targets)
    narrowed = [_keeping(target, [each for each in facets if each.collection == target.name]) for target in kept]
    clues = [
        Clue(f"category {each.path}", each.words, _facet_maker(each), strict=False)
        for each in facets
        if each.collection in {target.name for target in kept}
    ]
    return tuple(narrowed), clues


def _keeping(target: Target, facets: Sequence[Facet]) -> Target:
    parts = tuple(target.fields.among(each.path, each.values) for each in facets)
    return replace(target, where=And((target.where, *parts))) if parts else target


def _facet_maker(facet: Facet) -> Maker:
    def make(fields: Fields) -> Made | None:
        if fields.collection.name != facet.collection:
            return None
        return Made(
            facet.path, f"{spoken(facet.path)}: {spoken(facet.values[0])}", fields.among(facet.path, facet.values)
        )

    return make


def _favours(text: str, targets: Sequence[Target]) -> dict[str, tuple[Filter, ...]]:
    """Other values that stand in the question: items that have them come first, the rest is not left out."""
    favours: dict[str, tuple[Filter, ...]] = {}
    for target in targets:
        said = tokens_of(text, target.fields.collection.language)
        keys = {
            tuple(stem for stem, _, _ in said[a:b])
            for a in range(len(said))
            for b in range(a + 1, min(a + 5, len(said) + 1))
        }
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


def _constraints(kept: Sequence[Clue], targets: Sequence[Target]) -> tuple[Constraint, ...]:
    found: list[Constraint] = []
    for clue in kept:
        for target in targets:
            made = clue.make(target.fields)
            if made:
                found.append(Constraint(made.path, made.says, clue.words))
    return tuple(dict.fromkeys(found))


def _modest(text: str) -> Sort | None:
    """ "Cheap" asks for an order, not for a price."""
    found = next((word for word in words(text) if word.lower() in CHEAP), None)
    return Sort("price", False, text.find(found), text.find(found) + len(found)) if found else None


def _is_about_cooking(text: str) -> bool:
    """ "What should I cook tonight" is not about what is on tonight."""
    return any(word.lower() in COOKING for word in words(text))


def _is_open(text: str) -> bool:
    return any(word.lower() in OPEN for word in words(text))
