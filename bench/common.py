"""What the measurements share: items loaded by the command, made-up vectors, questions, filters and medians."""

import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from generate import ADJECTIVES, NOUNS, PLACES
from numpy.typing import NDArray

from portico.models import Embedder, open_embedder
from portico.query import Filter, Query
from portico.search.finder import Finder
from portico.store import Store

COLLECTION = "products"
SURFACE = 24  # dimensions in which made-up vectors differ, apart from noise
FILTERS: dict[str, Any] = {
    "no filter": {},
    "price below 20 (half)": {"price": {"$lt": 20}},
    "one category (6 %)": {"category": "kettle"},
    "nested price and tag": {"offers.price": {"$between": [10, 30]}, "tags": {"$contains": "red"}},
}
QUESTIONS = [
    f"{a} {n} from the {p} {i}" for i, (a, n, p) in enumerate(zip(ADJECTIVES * 9, NOUNS * 9, PLACES * 12, strict=False))
]

T = TypeVar("T")


def local_embedder() -> Embedder:
    embedder = open_embedder("local:", secret=None)
    if embedder is None:
        sys.exit("The local model is not installed.")
    return embedder


def generate(folder: Path, count: int) -> Path:
    """A file of made-up items."""
    source = folder / f"{count}.jsonl"
    with source.open("w") as file:
        subprocess.run([sys.executable, Path(__file__).parent / "generate.py", str(count)], stdout=file, check=True)
    return source


def load(source: Path, url: str) -> float:
    """Seconds that the command takes to load a file."""
    portico = Path(sys.executable).parent / "portico"
    command = [portico, "load", source, "--collection", COLLECTION, "--store", url, "--json"]
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def made_up_vectors(count: int, size: int, seed: int = 7) -> NDArray[np.float32]:
    """Vectors of length one. Like those of texts they lie near a surface of few dimensions, with some noise."""
    surface = np.random.default_rng(7).standard_normal((SURFACE, size), dtype=np.float32)
    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((count, SURFACE), dtype=np.float32) @ surface
    rows += chance.standard_normal((count, size), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


async def fill_vectors(store: Store, model: str, vectors: NDArray[np.float32]) -> None:
    while waiting := await store.vectors.list_missing(COLLECTION, model, 5000):
        rows = [(item.id, digest, vectors[int(item.id[1:])].tobytes()) for item, digest in waiting]
        await store.vectors.put(COLLECTION, model, rows)


async def timed(work: Callable[[int], Awaitable[T]], rounds: int) -> tuple[float, list[T]]:
    """Milliseconds at the median, and every answer."""
    times: list[float] = []
    answers: list[T] = []
    for number in range(rounds):
        started = time.perf_counter()
        answers.append(await work(number))
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000, answers


async def find_ids(finder: Finder, where: Filter, number: int) -> list[str]:
    """The ten best for a question. Filters hold inside the search, so that a short page is a defect."""
    page = await finder.find(Query(COLLECTION, text=QUESTIONS[number % len(QUESTIONS)], where=where, limit=10))
    if len(page.items) != 10:
        sys.exit(f"a short page: {len(page.items)} items")
    return [item.id for item in page.items]
