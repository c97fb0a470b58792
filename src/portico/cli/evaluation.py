"""How well a site answers, by questions whose right items are known. Asks as anybody would, and changes nothing."""

import asyncio
import math
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from portico.ask.events import Event, Found
from portico.errors import BadRequest, RateLimited, SourceError, UnknownItem
from portico.items import Item
from portico.requests import Ask, Caller, Retrieval
from portico.site import Site

QUERIES = "queries.jsonl"  # of a folder as retrieval benchmarks have it
JUDGEMENTS = ("qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv", "qrels/train.tsv")  # the first that is there
MAX_QUESTIONS: Final = 100_000
WORDS: Final = ("question", "query", "text")  # how a line may call what is asked

T = TypeVar("T")
Told: TypeAlias = Callable[[int], None]  # how many questions were asked


@dataclass(frozen=True, slots=True)
class Judged:
    """A question, and the items that answer it: refs or ids, each with how good it is."""

    text: str
    grades: Mapping[str, float]
    previous: tuple[str, ...] = ()

    @property
    def right(self) -> list[str]:
        return [ref for ref, grade in self.grades.items() if grade > 0]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a question."""

    judged: Judged
    found: tuple[str, ...]  # refs, best first
    gain: float  # nDCG: 1 if all right items come first, the best of them before the others
    recall: float  # the share of the right items that was found
    first: float  # 1 / the place of the first right item; 0 if there is none
    seconds: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over all questions."""

    by: Retrieval
    depth: int
    results: Sequence[Result] = field(repr=False)

    @property
    def gain(self) -> float:
        return statistics.fmean(each.gain for each in self.results)

    @property
    def recall(self) -> float:
        return statistics.fmean(each.recall for each in self.results)

    @property
    def first(self) -> float:
        return statistics.fmean(each.first for each in self.results)

    @property
    def seconds(self) -> float:
        """Of the question in the middle."""
        return statistics.median(each.seconds for each in self.results)

    def worst(self, most: int) -> list[Result]:
        """What went wrong, worst first."""
        return sorted((each for each in self.results if each.gain < 1), key=lambda each: each.gain)[:most]


# Questions


def read_questions(path: Path) -> list[Judged]:
    """Of a file with a JSON object on each line, or of a folder with queries and judgements apart."""
    try:
        found = list(_of_folder(path) if path.is_dir() else _of_lines(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    if not found:
        raise BadRequest(f"{path} has no question", hint=_HINT)
    return found


_HINT: Final = 'A line is {"question": "a warm soup", "items": ["recipes/lemon-barley-soup"]}.'


def _of_lines(path: Path) -> Iterator[Judged]:
    for where, said in _objects(path):
        text = next((said[name] for name in WORDS if isinstance(said.get(name), str)), "")
        previous: Any = said.get("previous") or []
        if not text.strip():
            raise _wrong(where, "there is no question")
        if not isinstance(previous, list):
            raise _wrong(where, "previous is a list of questions")
        yield Judged(text, _grades(where, said.get("items")), tuple(map(str, cast("list[Any]", previous))))


def _grades(where: str, items: Any) -> dict[str, float]:
    match items:
        case str():
            graded = {items: 1.0}
        case [*_]:
            graded = dict.fromkeys(map(str, cast("list[Any]", items)), 1.0)
        case {}:
            graded = cast("dict[str, Any]", items)
        case _:
            raise _wrong(where, "items is a list of refs, or an object with a grade for each")
    if not all(_is_grade(each) for each in graded.values()):
        raise _wrong(where, "a grade is a number from 0 on")
    if not any(graded.values()):
        raise _wrong(where, "no item is right")
    return {_ref(name): float(grade) for name, grade in graded.items()}


def _ref(name: str) -> str:
    """An item as the site calls it, also where its address was written down."""
    return name.rpartition("/items/")[2]


def _is_grade(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6


def _of_folder(folder: Path) -> Iterator[Judged]:
    """Questions without a judgement are left out, as they say nothing of how well they are answered."""
    path = next((folder / name for name in JUDGEMENTS if (folder / name).exists()), folder / JUDGEMENTS[0])
    graded: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            row = line.split()
            if not row or (number == 1 and row[-1] == "score"):
                continue
            if len(row) not in {3, 4} or not _is_number(row[-1]):
                raise BadRequest(f"{path}:{number}: it is not question, item and score")
            graded.setdefault(row[0], {})[row[-2]] = float(row[-1])
    for _, said in _objects(folder / QUERIES):
        grades = graded.get(str(said.get("_id")), {})
        if any(grade > 0 for grade in grades.values()):
            yield Judged(str(said.get("text", "")), grades)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            if number > MAX_QUESTIONS:
                raise _wrong(where, f"there are more than {MAX_QUESTIONS:,} questions")
            if line.strip():
                try:
                    yield where, msgspec.json.decode(line, type=dict[str, Any])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise _wrong(where, f"it is not a JSON object: {error}") from error


def _wrong(where: str, why: str) -> BadRequest:
    return BadRequest(f"{where}: {why}", hint=_HINT)


# Asking


async def evaluate(
    site: Site,
    caller: Caller,
    questions: Sequence[Judged],
    *,
    by: Retrieval = "hybrid",
    depth: int = 10,
    collections: Iterable[str] = (),
    told: Told = lambda _: None,
) -> Scores:
    """Ask every question, and compare what comes first with what is right."""
    results: list[Result] = []
    within = tuple(collections)
    for judged in questions:
        # Nobody is asked back and nothing is done: a question that sounds like a command is only a question here.
        ask = Ask(
            judged.text, within, previous=judged.previous, limit=depth, retrieval=by, may_clarify=False, may_act=False
        )
        started = time.perf_counter()
        found = await _patiently(lambda ask=ask: _found(site, ask, caller))
        results.append(_result(judged, found, depth, time.perf_counter() - started))
        told(len(results))
    return Scores(by, depth, results)


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do something, and again when a caller who has asked too much may."""
    while True:
        try:
            return await work()
        except RateLimited as error:
            await asyncio.sleep(float(error.details.get("retry_after", 1)))


async def _found(site: Site, ask: Ask, caller: Caller) -> list[Item]:
    places: dict[int, Item] = {}
    async with aclosing(cast("AsyncGenerator[Event]", site.ask(ask, caller))) as events:
        async for event in events:
            if isinstance(event, Found):
                places[event.place] = event.item
    return [places[place] for place in sorted(places)]


def _result(judged: Judged, found: Sequence[Item], depth: int, seconds: float) -> Result:
    graded = list(_graded(judged.grades, found[:depth]))
    ideal = _discounted(sorted(judged.grades.values(), reverse=True)[:depth])
    first = next((place for place, grade in enumerate(graded, 1) if grade > 0), None)
    return Result(
        judged,
        tuple(item.ref for item in found[:depth]),
        _discounted(graded) / ideal,
        sum(grade > 0 for grade in graded) / len(judged.right),
        1 / first if first else 0.0,
        seconds,
    )


def _graded(grades: Mapping[str, float], found: Iterable[Item]) -> Iterator[float]:
    """How good each item is. An id may be of several items, of which the first counts."""
    seen: set[str] = set()
    for item in found:
        name = item.ref if item.ref in grades else item.id
        yield 0.0 if name in seen else grades.get(name, 0.0)
        seen.add(name)


def _discounted(grades: Iterable[float]) -> float:
    """The further down, the less a right item is worth."""
    return sum(max(grade, 0.0) / math.log2(place + 1) for place, grade in enumerate(grades, 1))


async def unknown_items(site: Site, caller: Caller, questions: Iterable[Judged]) -> list[str]:
    """Items that are called right and are not there: such a question cannot be answered well."""
    missing: list[str] = []
    for ref in dict.fromkeys(ref for judged in questions for ref in judged.right):
        try:
            await _patiently(lambda ref=ref: site.item(ref, caller))
        except UnknownItem:
            missing.append(ref)
    return missing
