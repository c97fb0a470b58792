"""What find() costs beside the bare lookups it is made of, on the same arrays, in one run.

    python bench/search.py --items 100000

Loads made-up items, gives them vectors, starts from the existing store, then times, for the same questions:
the bare lookups (BM25 over the postings, one matrix product, the ten best of each) and `Finder.find()` with text,
filter and top 10, from words to items. Read the ratio: machines differ.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    FILTERS,
    QUESTIONS,
    fill_vectors,
    find_ids,
    generate,
    load,
    local_embedder,
    made_up_vectors,
    timed,
)

from portico.query import parse_filter
from portico.search.finder import Finder
from portico.search.index.memory import MemoryIndex
from portico.search.index.snapshot import Snapshot
from portico.search.index.text import parse_text_query
from portico.store import Store, open_store


def median_ms(work: Callable[[int], Any], rounds: int) -> float:
    times: list[float] = []
    for number in range(rounds):
        started = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def bare(snapshot: Snapshot, text: str, vector: Any) -> None:
    """The ten best by word and the ten best by meaning, and nothing else."""
    words = snapshot._score_text(parse_text_query(text, snapshot.languages))
    np.argpartition(words, -10)[-10:]
    vectors = snapshot.vectors[""]
    near = vectors.matrix[: vectors.count] @ vector
    np.argpartition(near, -10)[-10:]


def child_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


async def measure(store: Store, items: int, rounds: int) -> None:
    embedder = local_embedder()
    started = time.perf_counter()
    await fill_vectors(store, embedder.name, made_up_vectors(items, embedder.dimensions))
    print(f"made-up vectors          {time.perf_counter() - started:8.1f} s")
    for what in ("first start (builds)", "next start (loads)"):
        started = time.perf_counter()
        index = MemoryIndex(store, embedder)
        await index.start()
        print(f"{what:<24} {time.perf_counter() - started:8.2f} s")
    vectors = [embedder.embed_query(text) for text in QUESTIONS]
    snapshot = index._snapshot("products")
    base = median_ms(lambda i: bare(snapshot, QUESTIONS[i % len(QUESTIONS)], vectors[i % len(vectors)]), rounds)
    print(f"\nbare lookups             {base:8.2f} ms at the median")
    finder = Finder(store, index, embedder)
    for name, raw in FILTERS.items():
        where = parse_filter(raw)
        cost, _ = await timed(lambda number, where=where: find_ids(finder, where, number), rounds)
        print(f"find(), {name:<22} {cost:8.2f} ms, {cost / base:.2f} times the bare lookups")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/large.db"
        for count, where in ((given.items // 10, f"sqlite:///{folder}/small.db"), (given.items, url)):
            seconds = load(generate(Path(folder), count), where)
            print(f"load {count:>7,} items       {seconds:8.1f} s, peak {child_peak_mb():.0f} MB")
        store = await open_store(url)
        try:
            await measure(store, given.items, given.rounds)
        finally:
            await store.close()


if __name__ == "__main__":
    asyncio.run(main())
