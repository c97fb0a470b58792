"""From hits to an order with scores of 0 to 100: relevance first, then what is favoured, fresh, and in the language."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from portico.ask.understanding.fields import DATED, Fields, key_of, number_in, spoken
from portico.ask.understanding.parsers import Sort
from portico.catalog import Field, instant, scalar_at, seconds, segments
from portico.items import Item, title_of
from portico.query import Filter, matcher, reached
from portico.search.finder import Hit
from portico.search.index.text import words

# Measured on collections of several kinds: what fits has a cosine above, what does not one below.
NEAR_ENOUGH = 0.63  # a cosine that is evidence by itself
FAR = 0.45  # one that says nothing
SAID_ENOUGH = 0.28  # of a question's words, by their rarity
SAID_SOMETHING = 0.20
KEPT_SHARE = 0.20  # of the best score; what lies below is no answer
FAVOUR = 0.08  # for each thing that the question favours, at most three
COLOUR = 0.12  # for what shares all the words of the conversation
FRESH = 0.06  # for what came out today, falling by half in a year
TONGUE = 0.15  # for what is in the language of the answer
ASKED_TONGUE = 0.60  # if the caller said which language that is
PAST = 0.30  # less for what is over
HALF_LIFE = timedelta(days=365)
TITLED = 0.20  # for what has everything the question is about in its name
FILED = 0.20  # for what is filed under all of it: a soup comes before a soup bowl
ASKED_ALREADY = 0.5  # for a question that is answered there, word for word
HINTED = 0.20  # for what is of a wide kind that the question names: "places"
FITTING = 0.5
NAMED_SHARE = 0.5  # of the best score, for what is put in another order than relevance
MEANT_SHARE = 0.8  # the same where nothing says the words, and what they mean is all there is
NAMED_WORDS = 0.8  # of the words that the best of a collection has
ALIKE = 0.9  # of the words that two texts have in common, for them to be the same


@dataclass(frozen=True, slots=True)
class Scored:
    item: Item
    score: float  # 0 to 100
    same: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Wishes:
    """What moves an item up or down beyond its relevance."""

    fields: Mapping[str, Fields]
    favours: Mapping[str, Sequence[Filter]]
    language: str
    says_language: bool  # the caller chose it; else it is that of the question or of the site
    now: datetime
    question: tuple[str, ...]  # all of its stems
    hints: frozenset[str]  # collections that the question may mean
    content: frozenset[str]  # stems of what the question is about, beyond what filters test
    is_bounded: bool  # filters say what is wanted: the best of what they let through is an answer
    is_strict: bool = False  # what is named has to be what is found: another order will hide which fits best


def ranked(hits: Sequence[Hit], wishes: Wishes) -> list[Scored]:
    """Best first; what does not answer the question is left out, and what is there twice is merged."""
    fitting = (_relevant(hits) if wishes.content else list(hits)) or (
        list(hits) if wishes.is_bounded and not wishes.is_strict else []
    )
    if not fitting:
        return []
    fitting = _named(fitting, wishes) if wishes.is_strict and wishes.content else fitting
    sure = max(map(_certainty, fitting)) if wishes.content else 1.0
    tests = {name: _tests(filters, wishes.fields[name]) for name, filters in wishes.favours.items() if filters}
    moved = [
        (hit.score + COLOUR * hit.in_context + _bonus(hit.item, wishes, tests.get(hit.item.collection, ())), hit)
        for hit in fitting
    ]
    best = max(score for score, _ in moved)
    order = sorted(moved, key=lambda pair: (-pair[0], pair[1].item.collection, pair[1].item.id))
    # Where filters alone decide, everything that is left fits.
    floor = 0.0 if wishes.content else FITTING
    shown = [(floor + (1 - floor) * max(score, 0.0) / best if best > 0 else 1.0, hit) for score, hit in order]
    return _merged([Scored(hit.item, round(max(100 * sure * share, 1.0), 1)) for share, hit in shown])


def _certainty(hit: Hit) -> float:
    """How sure it is that a hit answers the question at all, 0 to 1, whatever else was found."""
    near = (hit.by_meaning - FAR) / (0.85 - FAR) if hit.by_meaning > -1 else 0.0
    return min(max(near, hit.covered, 0.05), 1.0)


def _relevant(hits: Sequence[Hit]) -> list[Hit]:
    """Nothing without evidence that the question is about anything here: words it shares, or a meaning that is near."""
    if not any(map(_is_evidence, hits)):
        return []
    best = max(hit.score for hit in hits)
    return [hit for hit in hits if hit.score >= KEPT_SHARE * best]


def _named(hits: Sequence[Hit], wishes: Wishes) -> list[Hit]:
    """What the words call so, if anything is; else what matches them well."""
    titled = {hit.item.collection for hit in hits if wishes.content <= frozenset(_name(hit.item))}
    near = [hit for hit in hits if not titled or hit.item.collection in titled]
    called = [hit for hit in near if is_called(hit.item, wishes.content, wishes.fields[hit.item.collection])]
    if called:
        return called
    most: dict[str, float] = {}
    for hit in near:
        most[hit.item.collection] = max(hit.covered, most.get(hit.item.collection, 0.0))
    is_said = any(most.values())
    least = (NAMED_SHARE if is_said else MEANT_SHARE) * max(hit.score for hit in near)
    return [
        hit
        for hit in near
        if hit.score >= least
        and hit.covered >= NAMED_WORDS * most[hit.item.collection]
        and (hit.covered > 0 or not is_said)
    ]


def is_called(item: Item, stems: frozenset[str], fields: Fields) -> bool:
    """Whether these stems are in what an item is called and filed under, and not only in what it says."""
    return bool(stems) and stems <= {*_name(item), *_stems_at(item, ("keywords",)), *_filed(item, fields)}


def _filed(item: Item, fields: Fields) -> Iterator[str]:
    """The stems of what an item is, by its type and category."""
    return _stems_at(item, ("@type", *fields.paths("category")))


def _stems_at(item: Item, paths: Iterable[str]) -> Iterator[str]:
    found = (each for path in paths for value in reached(item.data, segments(path)) for each in _several(value))
    return (stem for each in found if isinstance(each, str) for stem in key_of(spoken(each)))


def _several(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _is_evidence(hit: Hit) -> bool:
    # Where meaning is not known, fewer words have to do.
    enough = SAID_ENOUGH if hit.by_meaning > -1 else SAID_SOMETHING
    return hit.covered >= enough or hit.by_meaning >= NEAR_ENOUGH


def _tests(filters: Iterable[Filter], fields: Fields) -> tuple[Any, ...]:
    return tuple(matcher(each, fields.collection) for each in filters)


def _bonus(item: Item, wishes: Wishes, tests: Sequence[Any]) -> float:
    favoured = min(sum(1 for test in tests if test(item)), 3) * FAVOUR
    titled = TITLED if wishes.content and wishes.content <= frozenset(_name(item)) else 0.0
    if wishes.content:
        filed = wishes.content.intersection(_filed(item, wishes.fields[item.collection]))
        titled += FILED * len(filed) / len(wishes.content)
    titled += ASKED_ALREADY * _likeness(wishes.question, _name(item)) if item.data.get("@type") == "Question" else 0.0
    titled += HINTED if item.collection in wishes.hints else 0.0
    return favoured + titled + _tongue(item, wishes) + _freshness(item, wishes.fields[item.collection], wishes.now)


def _likeness(a: Collection[str], b: Collection[str]) -> float:
    mine, other = frozenset(a), frozenset(b)
    return len(mine & other) / max(len(mine | other), 1)


def _tongue(item: Item, wishes: Wishes) -> float:
    said = item.data.get("inLanguage")
    if not isinstance(said, str) or said[:2].lower() != wishes.language[:2].lower():
        return 0.0
    return ASKED_TONGUE if wishes.says_language else TONGUE


def _freshness(item: Item, fields: Fields, now: datetime) -> float:
    path = fields.path("date")
    moment = instant(str(scalar_at(item.data, path))) if path else None
    if path is None or moment is None:
        return 0.0
    age = now - (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment))
    if path.rpartition(".")[2] in DATED:
        end = instant(str(scalar_at(item.data, fields.path("end") or path))) or moment
        return -PAST if end < now.timestamp() * 1e6 else 0.0
    return FRESH * 0.5 ** (max(age, timedelta()) / HALF_LIFE)


def _merged(scored: Sequence[Scored]) -> list[Scored]:
    """Near-duplicates stand with the best of them."""
    kept: list[Scored] = []
    by_name: dict[tuple[str, ...], list[int]] = {}
    for each in scored:
        name = _name(each.item)
        twin = next((at for at in by_name.get(name, ()) if name and is_same(kept[at].item, each.item)), None)
        if twin is None:
            by_name.setdefault(name, []).append(len(kept))
            kept.append(each)
        else:
            kept[twin] = replace(kept[twin], same=(*kept[twin].same, each.item))
    return kept


def _name(item: Item) -> tuple[str, ...]:
    return key_of(title_of(item.data))


def is_same(a: Item, b: Item) -> bool:
    """Two items of one name and kind that say the same, nearly word for word."""
    if a.data.get("@type") != b.data.get("@type") or a.data.get("inLanguage") != b.data.get("inLanguage"):
        return False
    if any(a.data.get(name) != b.data.get(name) for name in ("startDate", "isbn", "sku", "address") if name in a.data):
        return False
    mine, other = (
        frozenset(words(str(each.data.get("description") or each.data.get("text") or ""))) for each in (a, b)
    )
    return len(mine & other) >= ALIKE * max(len(mine | other), 1)


# Other orders than relevance


def sorted_by(scored: Sequence[Scored], sort: Sort, fields: Mapping[str, Fields]) -> list[Scored] | None:
    """The same items by a field, those without it last; None if none of them has it. Scores follow the order."""
    paths = {name: sorting_path(each, sort, fields.values()) for name, each in fields.items()}
    found = [(each, fields[each.item.collection], paths[each.item.collection]) for each in scored]
    values = [(each, _value(each.item, sort, known, path) if path else None) for each, known, path in found]
    having = [(value, each) for each, value in values if value is not None]
    if not having:
        return None
    having.sort(key=lambda pair: pair[0], reverse=sort.descending)
    order = [*(each for _, each in having), *(each for each, value in values if value is None)]
    falling = sorted((each.score for each in order), reverse=True)
    return [replace(each, score=score) for each, score in zip(order, falling, strict=True)]


def sorting_path(fields: Fields, sort: Sort, asked: Iterable[Fields]) -> str | None:
    """The path to sort by: the length of a text stands for time only where none of those asked takes any."""
    path = fields.path(sort.role)
    return path if path or any(each.path(sort.role) for each in asked) else fields.sortable(sort.role)


def _value(item: Item, sort: Sort, fields: Fields, path: str) -> float | None:
    known: Field = fields.collection.field(path)
    found = [known.typed_value(item.data)] if known.is_typed else reached(item.data, segments(path))
    flat = [each for value in found for each in _several(value)]
    numbers = [number for value in flat if (number := _as_number(value)) is not None]
    return (max if sort.descending else min)(numbers, default=None)


def _as_number(raw: Any) -> float | None:
    match raw:
        case bool() | None:
            return None
        case int() | float():
            return float(raw)
        case str():
            length = seconds(raw)
            return length if length is not None else number_in(raw)
        case _:
            return None
