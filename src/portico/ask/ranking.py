"""Orders hits with scores of 0 to 100: by relevance, then by preferences, freshness, and language."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from portico.ask.understanding.fields import EVENT_DATES, Fields, key_of, number_in, words_of
from portico.ask.understanding.parsers import SortOrder
from portico.catalog import Field, instant, scalar_at, seconds
from portico.field_names import segments
from portico.items import Item, title_of
from portico.query import Filter, matcher, values_at
from portico.search.finder import ScoredItem
from portico.search.index.text import words

# Measured on collections of several kinds: what fits has a cosine above, what does not one below.
NEAR_ENOUGH = 0.63  # a cosine that is evidence by itself
FAR = 0.45  # one that says nothing
SAID_ENOUGH = 0.28  # of a question's words, by their rarity
SAID_SOMETHING = 0.20
KEPT_SHARE = 0.20  # of the best score; what lies below is no answer
PREFERENCE_BONUS = 0.08  # for each thing that the question favours, at most three
CONTEXT_BONUS = 0.12  # for what shares all the words of the conversation
FRESHNESS_BONUS = 0.06  # for what came out today, falling by half in a year
LANGUAGE_BONUS = 0.15  # for what is in the language of the answer
CHOSEN_LANGUAGE_BONUS = 0.60  # if the caller said which language that is
PAST_PENALTY = 0.30  # less for what is over
HALF_LIFE = timedelta(days=365)
TITLE_BONUS = 0.20  # for what has everything the question is about in its name
CATEGORY_BONUS = 0.20  # for what is filed under all of it: a soup comes before a soup bowl
SAME_QUESTION_BONUS = 0.5  # for a question that is answered there, word for word
KIND_BONUS = 0.20  # for what is of a wide kind that the question names: "places"
MIN_FILTERED_SHARE = 0.5
NAMED_SHARE = 0.5  # of the best score, for what is put in another order than relevance
MEANT_SHARE = 0.8  # the same where nothing says the words, and what they mean is all there is
NAMED_WORDS = 0.8  # of the words that the best of a collection has
DUPLICATE_SHARE = 0.9  # of the words that two texts have in common, for them to be the same


@dataclass(frozen=True, slots=True)
class RankedItem:
    item: Item
    score: float  # 0 to 100
    same: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class RankingContext:
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


def rank(hits: Sequence[ScoredItem], context: RankingContext) -> list[RankedItem]:
    """Return relevant items, best first, with duplicates merged."""
    relevant = (_relevant(hits) if context.content else list(hits)) or (
        list(hits) if context.is_bounded and not context.is_strict else []
    )
    if not relevant:
        return []
    relevant = _filter_by_name(relevant, context) if context.is_strict and context.content else relevant
    sure = max(map(_certainty, relevant)) if context.content else 1.0
    tests = {name: _tests(filters, context.fields[name]) for name, filters in context.favours.items() if filters}
    moved = [
        (
            hit.score
            + CONTEXT_BONUS * hit.context_coverage
            + _bonus(hit.item, context, tests.get(hit.item.collection, ())),
            hit,
        )
        for hit in relevant
    ]
    best = max(score for score, _ in moved)
    order = sorted(moved, key=lambda pair: (-pair[0], pair[1].item.collection, pair[1].item.id))
    # Where filters alone decide, everything that is left fits.
    floor = 0.0 if context.content else MIN_FILTERED_SHARE
    shares = [(floor + (1 - floor) * max(score, 0.0) / best if best > 0 else 1.0, hit) for score, hit in order]
    return _merge_duplicates([RankedItem(hit.item, round(max(100 * sure * share, 1.0), 1)) for share, hit in shares])


def _certainty(hit: ScoredItem) -> float:
    """Return how sure it is that a hit answers the question at all, 0 to 1, whatever else was found."""
    near = (hit.vector_score - FAR) / (0.85 - FAR) if hit.vector_score > -1 else 0.0
    return min(max(near, hit.term_coverage, 0.05), 1.0)


def _relevant(hits: Sequence[ScoredItem]) -> list[ScoredItem]:
    """Return the hits that share words or a near meaning with the question, or none."""
    # Where meaning is not known, fewer words have to do.
    if not any(
        hit.term_coverage >= (SAID_ENOUGH if hit.vector_score > -1 else SAID_SOMETHING)
        or hit.vector_score >= NEAR_ENOUGH
        for hit in hits
    ):
        return []
    best = max(hit.score for hit in hits)
    return [hit for hit in hits if hit.score >= KEPT_SHARE * best]


def _filter_by_name(hits: Sequence[ScoredItem], context: RankingContext) -> list[ScoredItem]:
    """Return what the words call so, if anything is; else what matches them well."""
    titled = {hit.item.collection for hit in hits if context.content <= frozenset(_name(hit.item))}
    near = [hit for hit in hits if not titled or hit.item.collection in titled]
    exact = [hit for hit in near if is_named(hit.item, context.content, context.fields[hit.item.collection])]
    if exact:
        return exact
    most: dict[str, float] = {}
    for hit in near:
        most[hit.item.collection] = max(hit.term_coverage, most.get(hit.item.collection, 0.0))
    is_said = any(most.values())
    least = (NAMED_SHARE if is_said else MEANT_SHARE) * max(hit.score for hit in near)
    return [
        hit
        for hit in near
        if hit.score >= least
        and hit.term_coverage >= NAMED_WORDS * most[hit.item.collection]
        and (hit.term_coverage > 0 or not is_said)
    ]


def is_named(item: Item, stems: frozenset[str], fields: Fields) -> bool:
    """Return whether these stems are in what an item is called and filed under, and not only in what it says."""
    return bool(stems) and stems <= {*_name(item), *_stems_at(item, ("keywords",)), *_category_stems(item, fields)}


def _category_stems(item: Item, fields: Fields) -> Iterator[str]:
    """Yield the stems of what an item is, by its type and category."""
    return _stems_at(item, ("@type", *fields.paths("category")))


def _stems_at(item: Item, paths: Iterable[str]) -> Iterator[str]:
    texts = (element for path in paths for value in values_at(item.data, segments(path)) for element in _several(value))
    return (stem for text in texts if isinstance(text, str) for stem in key_of(words_of(text)))


def _several(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _tests(filters: Iterable[Filter], fields: Fields) -> tuple[Any, ...]:
    return tuple(matcher(condition, fields.collection) for condition in filters)


def _bonus(item: Item, context: RankingContext, tests: Sequence[Any]) -> float:
    favoured = min(sum(1 for test in tests if test(item)), 3) * PREFERENCE_BONUS
    titled = TITLE_BONUS if context.content and context.content <= frozenset(_name(item)) else 0.0
    if context.content:
        filed = context.content.intersection(_category_stems(item, context.fields[item.collection]))
        titled += CATEGORY_BONUS * len(filed) / len(context.content)
    titled += (
        SAME_QUESTION_BONUS * _likeness(context.question, _name(item)) if item.data.get("@type") == "Question" else 0.0
    )
    titled += KIND_BONUS if item.collection in context.hints else 0.0
    return (
        favoured
        + titled
        + _language_bonus(item, context)
        + _freshness(item, context.fields[item.collection], context.now)
    )


def _likeness(a: Collection[str], b: Collection[str]) -> float:
    mine, other = frozenset(a), frozenset(b)
    return len(mine & other) / max(len(mine | other), 1)


def _language_bonus(item: Item, context: RankingContext) -> float:
    language = item.data.get("inLanguage")
    if not isinstance(language, str) or language[:2].lower() != context.language[:2].lower():
        return 0.0
    return CHOSEN_LANGUAGE_BONUS if context.says_language else LANGUAGE_BONUS


def _freshness(item: Item, fields: Fields, now: datetime) -> float:
    path = fields.path("date")
    moment = instant(str(scalar_at(item.data, path))) if path else None
    if path is None or moment is None:
        return 0.0
    age = now - (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment))
    if path.rpartition(".")[2] in EVENT_DATES:
        end = instant(str(scalar_at(item.data, fields.path("end") or path))) or moment
        return -PAST_PENALTY if end < now.timestamp() * 1e6 else 0.0
    return FRESHNESS_BONUS * 0.5 ** (max(age, timedelta()) / HALF_LIFE)


def _merge_duplicates(scored: Sequence[RankedItem]) -> list[RankedItem]:
    """Merge near-duplicates into the best of them."""
    merged: list[RankedItem] = []
    by_name: dict[tuple[str, ...], list[int]] = {}
    for result in scored:
        name = _name(result.item)
        twin = next((at for at in by_name.get(name, ()) if name and is_same(merged[at].item, result.item)), None)
        if twin is None:
            by_name.setdefault(name, []).append(len(merged))
            merged.append(result)
        else:
            merged[twin] = replace(merged[twin], same=(*merged[twin].same, result.item))
    return merged


def _name(item: Item) -> tuple[str, ...]:
    return key_of(title_of(item.data))


def is_same(a: Item, b: Item) -> bool:
    """Return whether two items of one name and kind say the same, nearly word for word."""
    if a.data.get("@type") != b.data.get("@type") or a.data.get("inLanguage") != b.data.get("inLanguage"):
        return False
    if any(a.data.get(name) != b.data.get(name) for name in ("startDate", "isbn", "sku", "address") if name in a.data):
        return False
    mine, other = (
        frozenset(words(str(item.data.get("description") or item.data.get("text") or ""))) for item in (a, b)
    )
    return len(mine & other) >= DUPLICATE_SHARE * max(len(mine | other), 1)


# Other orders than relevance


def sort_items(scored: Sequence[RankedItem], sort: SortOrder, fields: Mapping[str, Fields]) -> list[RankedItem] | None:
    """Return the same items by a field, those without it last; None if none of them has it. Scores follow the order."""
    paths = {name: sort_path(collection_fields, sort, fields.values()) for name, collection_fields in fields.items()}
    lookups = [(result, fields[result.item.collection], paths[result.item.collection]) for result in scored]
    values = [
        (result, _value(result.item, sort, own_fields, path) if path else None) for result, own_fields, path in lookups
    ]
    having = [(value, result) for result, value in values if value is not None]
    if not having:
        return None
    having.sort(key=lambda pair: pair[0], reverse=sort.descending)
    order = [*(result for _, result in having), *(result for result, value in values if value is None)]
    falling = sorted((result.score for result in order), reverse=True)
    return [replace(result, score=score) for result, score in zip(order, falling, strict=True)]


def sort_path(fields: Fields, sort: SortOrder, searched: Iterable[Fields]) -> str | None:
    """Return the path to sort by: the length of a text stands for time only where none of those asked takes any."""
    path = fields.path(sort.role)
    return path if path or any(other.path(sort.role) for other in searched) else fields.sortable(sort.role)


def _value(item: Item, sort: SortOrder, fields: Fields, path: str) -> float | None:
    field: Field = fields.collection.field(path)
    raw = [field.comparable_value(item.data)] if field.is_typed else values_at(item.data, field.steps)
    flat = [element for value in raw for element in _several(value)]
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
