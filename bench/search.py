"""What find() costs beside the bare lookups it is made of, on the same arrays, in one run.

    python bench/search.py --items 100000

Loads made-up items, gives them vectors, starts from the existing store, then times, for the same questions:
the bare lookups (BM25 over the postings, one matrix product, the ten best of each) and `Finder.find()` with text,
filter and top 10, from words to items. Read the ratio: machines differ.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from generate import ADJECTIVES, NOUNS, PLACES

from portico.index.memory import MemoryIndex
from portico.index.snapshot import Snapshot
from portico.index.text import wanted
from portico.models import open_embedder
from portico.query import Filter, Query, parse_filter
from portico.search import Finder
from portico.store import Store, open_store

FILTERS: dict[str, Any] = {
    "no filter": {},
    "price below 20 (half)": {"price": {"$lt": 20}},
    "one category (6 %)": {"category": "kettle"},
    "nested price and tag": {"offers.price": {"$between": [10, 30]}, "tags": {"$contains": "red"}},
}


def median_ms(work: Callable[[int], Any], rounds: int) -> float:
    times: list[float] = []
    for number in range(rounds):
        started = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def bare(snapshot: Snapshot, text: str, vector: Any) -> None:
    """The ten best by word and the ten best by meaning, and nothing else."""
    words = snapshot._text(wanted(text, snapshot.languages))
    np.argpartition(words, -10)[-10:]
    vectors = snapshot.vectors[""]
    near = vectors.matrix[: vectors.count] @ vector
    np.argpartition(near, -10)[-10:]


async def fill_vectors(store: Store, model: str, size: int) -> None:
    chance = np.random.default_rng(7)
    while waiting := await store.unembedded("products", model, 5000):
        rows = chance.standard_normal((len(waiting), size)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        await store.put_vectors(
            "products", model, [(item.id, digest, rows[i].tobytes()) for i, (item, digest) in enumerate(waiting)]
        )


def load(folder: Path, count: int, url: str) -> float:
    """Seconds to load generated items with the command, and its peak memory on the way."""
    source = folder / f"{count}.jsonl"
    with source.open("w") as file:
        subprocess.run([sys.executable, Path(__file__).parent / "generate.py", str(count)], stdout=file, check=True)
    portico = Path(sys.executable).parent / "portico"
    started = time.perf_counter()
    command = [portico, "load", source, "--collection", "products", "--store", url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ}) as child:
        child.wait()
    return time.perf_counter() - started


def child_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


async def measure(store: Store, rounds: int) -> None:
    embedder = open_embedder("local:", secret=None)
    if embedder is None:
        sys.exit("The local model is not installed.")
    started = time.perf_counter()
    await fill_vectors(store, embedder.name, embedder.dimensions)
    print(f"made-up vectors          {time.perf_counter() - started:8.1f} s")
    for what in ("first start (builds)", "next start (loads)"):
        started = time.perf_counter()
        index = MemoryIndex(store, embedder)
        await index.start()
        print(f"{what:<24} {time.perf_counter() - started:8.2f} s")
    questions = [
        f"{a} {n} from the {p} {i}"
        for i, (a, n, p) in enumerate(zip(ADJECTIVES * 9, NOUNS * 9, PLACES * 12, strict=False))
    ]
    vectors = [embedder.embed_query(text) for text in questions]
    snapshot = index._snapshot("products")
    base = median_ms(lambda i: bare(snapshot, questions[i % len(questions)], vectors[i % len(vectors)]), rounds)
    print(f"\nbare lookups             {base:8.2f} ms at the median")
    finder = Finder(store, index, embedder)
    for name, raw in FILTERS.items():
        where = parse_filter(raw) if raw else parse_filter({})
        cost = await median_find(finder, questions, where, rounds)
        print(f"find(), {name:<22} {cost:8.2f} ms, {cost / base:.2f} times the bare lookups")


async def median_find(finder: Finder, questions: list[str], where: Filter, rounds: int) -> float:
    times: list[float] = []
    for number in range(rounds):
        query = Query("products", text=questions[number % len(questions)], where=where, limit=10)
        started = time.perf_counter()
        page = await finder.find(query)
        times.append(time.perf_counter() - started)
        if len(page.items) != 10:
            sys.exit(f"a short page: {len(page.items)} items")
    return statistics.median(times) * 1000


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = load(Path(folder), given.items // 10, f"sqlite:///{folder}/small.db")
        small_peak = child_peak_mb()
        url = f"sqlite:///{folder}/large.db"
        large = load(Path(folder), given.items, url)
        print(f"load {given.items // 10:>7,} items       {small:8.1f} s, peak {small_peak:.0f} MB")
        print(f"load {given.items:>7,} items       {large:8.1f} s, peak {child_peak_mb():.0f} MB")
        store = await open_store(url)
        try:
            await measure(store, given.rounds)
        finally:
            await store.close()


if __name__ == "__main__":
    asyncio.run(main())
