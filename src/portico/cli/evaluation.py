"""Measures how well a site answers questions whose relevant items are known. Changes nothing."""

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

from portico.ask.events import Event, ItemEvent
from portico.errors import BadRequest, RateLimited, SourceError, UnknownItem
from portico.items import Item
from portico.requests import Ask, Caller, Retrieval
from portico.site import Site

QUERIES = "queries.jsonl"  # in a folder, as in retrieval benchmarks
JUDGEMENTS = ("qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv", "qrels/train.tsv")  # the first that exists
MAX_QUESTIONS: Final = 100_000
QUESTION_NAMES: Final = ("question", "query", "text")  # members of a line that may hold the question

T = TypeVar("T")
ProgressReporter: TypeAlias = Callable[[int], None]  # takes the number of questions asked so far


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question and the grades of its relevant items, by ref or ID."""

    text: str
    grades: Mapping[str, float]
    previous: tuple[str, ...] = ()

    @property
    def relevant(self) -> list[str]:
        return [ref for ref, grade in self.grades.items() if grade > 0]


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """How well a question was answered."""

    question: JudgedQuestion
    refs: tuple[str, ...]  # refs, best first
    ndcg: float  # 1 if all relevant items come first, the best of them before the others
    recall: float  # the share of the relevant items that was found
    first: float  # 1 / the rank of the first relevant item; 0 if none was found
    seconds: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over all questions."""

    by: Retrieval
    depth: int
    results: Sequence[QuestionResult] = field(repr=False)

    @property
    def ndcg(self) -> float:
        return statistics.fmean(result.ndcg for result in self.results)

    @property
    def recall(self) -> float:
        return statistics.fmean(result.recall for result in self.results)

    @property
    def first(self) -> float:
        return statistics.fmean(result.first for result in self.results)

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(result.seconds for result in self.results)

    def worst(self, most: int) -> list[QuestionResult]:
        """Return the questions without a perfect result, worst first."""
        return sorted((result for result in self.results if result.ndcg < 1), key=lambda result: result.ndcg)[:most]


# Questions


def read_questions(path: Path) -> list[JudgedQuestion]:
    """Read a file with one JSON object per line, or a folder with separate queries and judgements."""
    try:
        questions = list(_of_folder(path) if path.is_dir() else _of_lines(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    if not questions:
        raise BadRequest(f"{path} contains no questions", hint=_HINT)
    return questions


_HINT: Final = 'A line is {"question": "a warm soup", "items": ["recipes/lemon-barley-soup"]}.'


def _of_lines(path: Path) -> Iterator[JudgedQuestion]:
    for where, record in _objects(path):
        text = next((record[name] for name in QUESTION_NAMES if isinstance(record.get(name), str)), "")
        previous: Any = record.get("previous") or []
        if not text.strip():
            raise _line_error(where, "the question is missing")
        if not isinstance(previous, list):
            raise _line_error(where, "`previous` must be a list of questions")
        yield JudgedQuestion(text, _grades(where, record.get("items")), tuple(map(str, cast("list[Any]", previous))))


def _grades(where: str, items: Any) -> dict[str, float]:
    match items:
        case str():
            graded = {items: 1.0}
        case [*_]:
            graded = dict.fromkeys(map(str, cast("list[Any]", items)), 1.0)
        case {}:
            graded = cast("dict[str, Any]", items)
        case _:
            raise _line_error(where, "`items` must be a list of refs, or an object with their grades")
    if not all(_is_grade(item) for item in graded.values()):
        raise _line_error(where, "a grade must be a number of at least 0")
    if not any(graded.values()):
        raise _line_error(where, "no item has a grade above 0")
    # Items are named by their ref or their URL.
    return {name.rpartition("/items/")[2]: float(grade) for name, grade in graded.items()}


def _is_grade(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6


def _of_folder(folder: Path) -> Iterator[JudgedQuestion]:
    """Yield the questions that have judgements."""
    path = next((folder / name for name in JUDGEMENTS if (folder / name).exists()), folder / JUDGEMENTS[0])
    graded: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            row = line.split()
            if not row or (number == 1 and row[-1] == "score"):
                continue
            if len(row) not in {3, 4} or not _is_number(row[-1]):
                raise BadRequest(f"{path}:{number}: a line must have a question, an item and a score")
            graded.setdefault(row[0], {})[row[-2]] = float(row[-1])
    for _, record in _objects(folder / QUERIES):
        grades = graded.get(str(record.get("_id")), {})
        if any(grade > 0 for grade in grades.values()):
            yield JudgedQuestion(str(record.get("text", "")), grades)


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
                raise _line_error(where, f"more than {MAX_QUESTIONS:,} questions")
            if line.strip():
                try:
                    yield where, msgspec.json.decode(line, type=dict[str, Any])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise _line_error(where, f"not a JSON object: {error}") from error


def _line_error(where: str, why: str) -> BadRequest:
    return BadRequest(f"{where}: {why}", hint=_HINT)


# Asking


async def evaluate(
    site: Site,
    caller: Caller,
    questions: Sequence[JudgedQuestion],
    *,
    by: Retrieval = "hybrid",
    depth: int = 10,
    collections: Iterable[str] = (),
    on_progress: ProgressReporter = lambda _: None,
) -> Scores:
    """Ask every question, and compare the best results with the relevant items."""
    results: list[QuestionResult] = []
    within = tuple(collections)
    for judged in questions:
        # No clarification and no commands: a question that sounds like a command is only a question here.
        ask = Ask(
            judged.text, within, previous=judged.previous, limit=depth, retrieval=by, may_clarify=False, may_act=False
        )
        started = time.perf_counter()
        items = await _retry_when_limited(lambda ask=ask: _find_items(site, ask, caller))
        results.append(_result(judged, items, depth, time.perf_counter() - started))
        on_progress(len(results))
    return Scores(by, depth, results)


async def _retry_when_limited(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work, and repeat it after the wait that a rate limit asks for."""
    while True:
        try:
            return await work()
        except RateLimited as error:
            await asyncio.sleep(float(error.details.get("retry_after", 1)))


async def _find_items(site: Site, ask: Ask, caller: Caller) -> list[Item]:
    places: dict[int, Item] = {}
    async with aclosing(cast("AsyncGenerator[Event]", site.ask(ask, caller))) as events:
        async for event in events:
            if isinstance(event, ItemEvent):
                places[event.place] = event.item
    return [places[place] for place in sorted(places)]


def _result(judged: JudgedQuestion, items: Sequence[Item], depth: int, seconds: float) -> QuestionResult:
    graded = list(_item_grades(judged.grades, items[:depth]))
    ideal = _discounted_gain(sorted(judged.grades.values(), reverse=True)[:depth])
    first = next((place for place, grade in enumerate(graded, 1) if grade > 0), None)
    return QuestionResult(
        judged,
        tuple(item.ref for item in items[:depth]),
        _discounted_gain(graded) / ideal,
        sum(grade > 0 for grade in graded) / len(judged.relevant),
        1 / first if first else 0.0,
        seconds,
    )


def _item_grades(grades: Mapping[str, float], items: Iterable[Item]) -> Iterator[float]:
    """Yield the grade of each item. Of several items with the same ID, only the first counts."""
    used_names: set[str] = set()
    for item in items:
        name = item.ref if item.ref in grades else item.id
        yield 0.0 if name in used_names else grades.get(name, 0.0)
        used_names.add(name)


def _discounted_gain(grades: Iterable[float]) -> float:
    """Return the sum of the grades, discounted by rank."""
    return sum(max(grade, 0.0) / math.log2(place + 1) for place, grade in enumerate(grades, 1))


async def unknown_items(site: Site, caller: Caller, questions: Iterable[JudgedQuestion]) -> list[str]:
    """Return the relevant items that do not exist; their questions cannot be answered well."""
    missing: list[str] = []
    for ref in dict.fromkeys(ref for judged in questions for ref in judged.relevant):
        try:
            await _retry_when_limited(lambda ref=ref: site.find_item(ref, caller))
        except UnknownItem:
            missing.append(ref)
    return missing
