"""What only PostgreSQL can do, and can do wrong."""

import asyncio
import random
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import numpy as np
import pytest
from tests.conftest import Opening, StoreUrl
from tests.contract.shelf import all_ids, all_items, fill, ids, walk

from portico.catalog import Collection
from portico.errors import AlreadyExists, ConfigError, InvalidQuery, Unavailable
from portico.items import Item
from portico.query import (
    Aggregate,
    Aggregation,
    And,
    Condition,
    Filter,
    NearVector,
    Not,
    Or,
    Order,
    Query,
    matches,
)
from portico.requests import Call, Caller, Task, TaskState
from portico.store import Store, open_store
from portico.store.postgres import vectors
from portico.store.records import Put

OPEN = """
import asyncio, sys
from portico.catalog import Collection
from portico.store import open_store
from portico.store.records import Put

async def main():
    store = await open_store(sys.argv[1])
    await store.collections.declare(Collection("things"))
    await store.items.write("things", [Put(sys.argv[2], {"from": sys.argv[2]})])
    sys.stdout.write(store.secret.hex())
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
async def session(postgres: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else in the same database."""
    connection = await asyncpg.connect(postgres)
    yield connection
    await connection.close()


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user or 'postgres'}:{quote(password, safe='')}@{host}").geturl()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, held so that nobody else takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


# URLs


@pytest.mark.parametrize("password", ["hush", "h@sh:/?#[]", "hüsh hush"])
async def test_a_password_is_used_and_never_shown(url: str, opening: Opening, password: str) -> None:
    if urlsplit(url).password:
        pytest.skip("this server has a password of its own")
    store = await opening(with_password(url, password))
    named = await opening(f"{url}&password={quote(password, safe='')}")

    for each in (store, named):
        assert password not in each.url
        assert quote(password, safe="") not in each.url
        assert schema_of(url) in each.url


async def test_an_error_of_connecting_does_not_tell_the_password(url: str, closed_port: int) -> None:
    known = urlsplit(with_password(url, "hush"))
    elsewhere = known._replace(netloc=f"postgres:hush@127.0.0.1:{closed_port}")
    for wrong, kind in (
        (elsewhere.geturl(), Unavailable),
        (elsewhere._replace(netloc="postgres:hush@nowhere.invalid").geturl(), Unavailable),
        (known._replace(path="/no_such_database").geturl(), ConfigError),
        (elsewhere._replace(netloc="postgres:hush@127.0.0.1:port").geturl(), ConfigError),
        (elsewhere._replace(netloc="postgres:hush@127.0.0.1:99999").geturl(), ConfigError),
        (f"{known.geturl()}&sslmode=perhaps", ConfigError),
        (f"{known.geturl()}&connect_timeout=soon", ConfigError),
    ):
        with pytest.raises(kind) as refusal:
            await open_store(wrong)
        assert "hush" not in str(refusal.value)
        assert refusal.value.hint


async def test_of_several_hosts_one_that_answers_is_used(url: str, opening: Opening, closed_port: int) -> None:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")

    store = await opening(parts._replace(netloc=f"{user}{at}127.0.0.1:{closed_port},{host}").geturl())
    await fill(store, {"a": {"n": 1}})

    assert await ids(store, {"n": 1}) == ["a"]


@pytest.mark.parametrize(
    "name",
    [
        'a"b', "it's", "with space", "Großes", "a.b", "a;DROP SCHEMA public", "%41$1", "back\\slash", "x" * 63,
        "é" * 31, "SELECT", "a,b", "a=b&c", "?#/",
    ],
)  # fmt: skip
async def test_a_schema_may_have_any_name(
    postgres: str, session: asyncpg.Connection, opening: Opening, name: str
) -> None:
    escaped = name.replace('"', '""')
    url = f"{postgres}{'&' if '?' in postgres else '?'}schema={quote(name, safe='')}"
    try:
        here, there = await opening(url), await opening(url)
        await fill(here, {"a": {"n": 1}})
        heard = asyncio.create_task(there.changes.wait(1, 20))
        await fill(here, {"b": {"n": 2}})

        assert await heard == 2
        assert await ids(there, {"n": {"$gt": 0}}) == ["a", "b"]
        assert await session.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", name)
    finally:
        await here.close()
        await there.close()
        await session.execute(f'DROP SCHEMA IF EXISTS "{escaped}" CASCADE')


@pytest.mark.parametrize("name", ["", "x" * 64, "é" * 32, "a\0b"])
async def test_what_cannot_name_a_schema_is_refused(postgres: str, name: str) -> None:
    url = f"{postgres}{'&' if '?' in postgres else '?'}schema={quote(name, safe='')}"
    with pytest.raises(ConfigError):
        await open_store(url)


# Making the tables


async def test_a_store_of_a_newer_portico_is_refused(url: str, store: Store, session: asyncpg.Connection) -> None:
    await session.execute(f"UPDATE {schema_of(url)}.meta SET version = 99")

    with pytest.raises(ConfigError, match="newer Portico"):
        await open_store(url)


async def test_a_store_of_an_older_portico_is_brought_up_to_date_with_its_tasks(
    url: str, opening: Opening, store: Store, session: asyncpg.Connection
) -> None:
    now = datetime.now(UTC)
    left = Task("left", Call("export"), Caller("key:ann"), TaskState.PENDING, now, now)
    await store.tasks.add(left)
    await session.execute(f"ALTER TABLE {schema_of(url)}.tasks DROP COLUMN rank")
    await session.execute(f"DROP TABLE {schema_of(url)}.cases, {schema_of(url)}.trail")
    await session.execute(f"DROP FUNCTION {schema_of(url)}.refuse_change")
    await session.execute(f"DROP TABLE {schema_of(url)}.commits")
    await session.execute(f"ALTER TABLE {schema_of(url)}.kept DROP COLUMN owner, DROP COLUMN lease, DROP COLUMN reason")
    await session.execute(f"UPDATE {schema_of(url)}.meta SET version = 1")

    newer = await opening(url)

    for priority in ("low", "high"):
        await newer.tasks.add(replace(left, id=priority, call=Call("export", priority=priority)))
    claimed = [await newer.tasks.claim("me", 60) for _ in range(3)]
    assert [each.id for each in claimed if each] == ["high", "left", "low"]


async def test_of_the_tasks_that_wait_only_the_one_that_is_claimed_is_read(
    url: str, store: Store, session: asyncpg.Connection
) -> None:
    now = datetime.now(UTC)
    for number in range(3):
        await store.tasks.add(Task(f"t{number}", Call("export"), Caller(), TaskState.PENDING, now, now))
    spoil = f"UPDATE {schema_of(url)}.tasks SET task = 'no task', created = created + 1 WHERE id <> 't1'"
    await session.execute(spoil)

    claimed = await store.tasks.claim("me", 60)

    assert claimed is not None
    assert claimed.id == "t1"


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE {0}.meta (title text)",
        "CREATE TABLE {0}.meta (version int, secret bytea)",
        "CREATE TABLE {0}.meta (version text, secret text); INSERT INTO {0}.meta VALUES ('1.0', 'x')",
        "CREATE TABLE {0}.tasks (what text)",
        "CREATE VIEW {0}.changes AS SELECT 1 AS one",
    ],
)
async def test_a_schema_in_use_for_something_else_is_not_touched(
    url: str, session: asyncpg.Connection, tables: str
) -> None:
    schema = schema_of(url)
    await session.execute(f"CREATE SCHEMA {schema}; {tables.format(schema)}")
    there = "SELECT relname FROM pg_class WHERE relnamespace = $1::text::regnamespace ORDER BY 1"
    before = await session.fetch(there, schema)

    with pytest.raises(ConfigError, match="something else") as refusal:
        await open_store(url)

    assert refusal.value.hint
    assert await session.fetch(there, schema) == before


async def test_stores_opened_at_once_on_an_empty_schema_are_one(url: str, opening: Opening) -> None:
    stores = await asyncio.gather(*(opening(url) for _ in range(6)))

    assert len({store.secret for store in stores}) == 1
    await asyncio.gather(*(store.collections.declare(Collection("things")) for store in stores))
    await asyncio.gather(*(store.items.write("things", [Put(f"i{n}", {"n": n})]) for n, store in enumerate(stores)))
    for store in stores:
        assert await ids(store, {"n": {"$gte": 0}}) == [f"i{n}" for n in range(6)]


async def test_processes_that_start_together_on_an_empty_schema_are_one(
    url: str, opening: Opening, tmp_path: Path
) -> None:
    script = tmp_path / "open.py"
    script.write_text(OPEN)

    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, script, url, f"p{n}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for n in range(4)
    ]
    said = await asyncio.gather(*(process.communicate() for process in processes))

    assert [process.returncode for process in processes] == [0] * 4, said
    store = await opening(url)
    assert {out.decode() for out, _ in said} == {store.secret.hex()}
    assert await ids(store, {"from": {"$exists": True}}) == ["p0", "p1", "p2", "p3"]


# Many writers


async def test_a_follower_of_the_feed_sees_every_change_once_and_in_order(url: str, opening: Opening) -> None:
    """A number that becomes visible after a greater one would be missed for ever."""
    writers = [await opening(url) for _ in range(2)]
    reader = await opening(url)
    for name in ("things", "others"):
        await writers[0].collections.declare(Collection(name))
    rounds = 30
    done = False

    async def write(number: int) -> int:
        written = 0
        store, name = writers[number % 2], ("things", "others")[number // 2 % 2]
        for turn in range(rounds):
            puts = [Put(f"w{number}-{turn}-{n}", {"n": turn}) for n in range(1 + (number + turn) % 3)]
            shared = Put(f"shared{turn % 3}", {"by": f"{number}-{turn}"})
            written += len(await store.items.write(name, [*puts, shared]))
        return written

    async def follow() -> list[int]:
        seen: list[int] = []
        since = 0
        while True:
            ended = done
            changes = await reader.changes.list_since(since, 7)
            seen += [change.seq for change in changes]
            if not changes and ended:
                return seen
            since = seen[-1] if seen else 0
            if not changes:
                await reader.changes.wait(since, 0.2)

    following = asyncio.create_task(follow())
    written = sum(await asyncio.gather(*(write(number) for number in range(8))))
    done = True

    assert await following == list(range(1, written + 1))
    assert await reader.changes.head() == written
    for name in ("things", "others"):
        of_one = [change.seq for change in await reader.changes.list_since(0, 10_000, name)]
        assert all(a < b for a, b in pairwise(of_one))


async def test_of_two_creations_of_one_item_exactly_one_wins(pair: tuple[Store, Store]) -> None:
    await fill(pair[0], {"seed": {"by": 0}})
    for number in range(20):
        said = await asyncio.gather(
            *(each.items.write("things", [Put(f"i{number}", {"by": n}, expect="")]) for n, each in enumerate(pair)),
            return_exceptions=True,
        )

        won = [each for each in said if isinstance(each, list)]
        assert [type(each) for each in said if not isinstance(each, list)] == [AlreadyExists]
        assert (await pair[0].items.get("things", f"i{number}")) == won[0][0].item


async def test_of_two_plain_puts_of_a_new_item_one_is_the_second(pair: tuple[Store, Store]) -> None:
    await fill(pair[0], {"seed": {"by": 0}})
    for number in range(20):
        said = await asyncio.gather(
            *(each.items.write("things", [Put(f"i{number}", {"by": n})]) for n, each in enumerate(pair))
        )

        first, second = sorted((changes[0] for changes in said), key=lambda change: change.seq)
        assert (first.kind, second.kind) == ("create", "update")
        assert [change.item.version.partition("-")[0] for change in (first, second)] == ["1", "2"]
        assert await pair[0].items.get("things", f"i{number}") == second.item


async def test_writers_of_the_same_items_in_different_orders_do_not_block_each_other(pair: tuple[Store, Store]) -> None:
    names = [f"i{n}" for n in range(12)]
    await fill(pair[0], {name: {"n": 0} for name in names})

    async def write(store: Store, number: int) -> None:
        for turn in range(10):
            order = random.Random(100 * number + turn).sample(names, 8)
            await store.items.write("things", [Put(name, {"n": 100 * number + turn + 1}) for name in order])

    await asyncio.gather(*(write(pair[n % 2], n) for n in range(6)))

    assert await pair[1].changes.head() == len(names) + 6 * 10 * 8


async def test_two_stores_that_add_different_fields_at_once_both_keep_theirs(pair: tuple[Store, Store]) -> None:
    await fill(pair[0], {"seed": {"n": 0}})
    for number in range(6):
        await asyncio.gather(
            *(
                each.items.write("things", [Put(f"{side}{number}", {f"{side}{number}": number, f"both{number}": side})])
                for side, each in zip("ab", pair, strict=True)
            )
        )

    for store in pair:
        await store.collections.refresh()
        assert {f"{side}{n}" for side in ("a", "b", "both") for n in range(6)} <= set(
            store.collections.schema["things"].fields
        )
        for number in range(6):
            for side in "ab":
                assert await ids(store, {f"{side}{number}": number}) == [f"{side}{number}"]
                assert await ids(store, {f"both{number}": side}) == [f"{side}{number}"]
    assert pair[0].collections.schema["things"] == pair[1].collections.schema["things"]


# Indexes


async def test_a_long_text_can_be_written_after_its_field_got_an_index(
    url: str, store: Store, session: asyncpg.Connection
) -> None:
    await fill(store, {f"i{n:04}": {"note": f"short {n}", "n": n} for n in range(1100)})
    await store.collections.optimize("things")
    indexed = "SELECT count(*) FROM pg_indexes WHERE schemaname = $1 AND indexname ~ '^items_1_f'"
    assert await session.fetchval(indexed, schema_of(url)) == 2
    letters = [chr(n) for n in range(0x4E00, 0x9000)]
    long, longer = ("".join(random.Random(seed).choices(letters, k=10_000)) for seed in (1, 2))

    await store.items.write("things", [Put("long", {"note": long, "n": -1})])
    load = await store.loads.begin("a source")
    await store.loads.put(load, "things", [Put("longer", {"note": longer, "n": -2})])
    await store.collections.optimize("things")
    await store.items.write("things", [Put("i0001", {"note": longer + long})])

    assert await ids(store, Condition("note", "eq", long)) == ["long"]
    assert await ids(store, Condition("note", "gte", longer)) == sorted(
        item.id for item in (await store.items.get_many("things", ["long", "longer", "i0001"])).values()
        if item.data["note"] >= longer
    )  # fmt: skip
    assert await store.check() == []


@pytest.fixture
async def near_stores(
    store: Store, store_url: StoreUrl, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> tuple[Store, Store]:
    """One with a graph of its vectors, and one that compares with all of them."""
    monkeypatch.setattr(vectors, "GRAPH_FROM", 200)
    exact = await opening(store_url("sqlite"))
    numbers = np.random.default_rng(7).normal(size=(500, 24)).round(4).tolist()
    shelf = {f"i{n:03}": {"v": v, "rare": n % 100, "half": n % 2, "n": n} for n, v in enumerate(numbers)}
    for each in (store, exact):
        await fill(each, shelf)
        embedded = [(item, digest) for item, digest in await each.vectors.list_missing("things", "m", 1000)]
        made = [(item.id, digest, np.asarray(item.data["v"][::-1], "<f4").tobytes()) for item, digest in embedded]
        await each.vectors.put("things", "m", made)
        await each.collections.optimize("things")
    return store, exact


WHERES: tuple[Filter, ...] = (
    And(()),
    Condition("rare", "eq", 7),
    Condition("half", "eq", 1),
    And((Condition("half", "eq", 0), Condition("n", "lt", 60))),
    Condition("n", "regex", "x"),
    Condition("rare", "in", (1, 2, 3)),
)


@pytest.mark.parametrize("field", ["v", ""])
async def test_neighbours_found_by_a_graph_fill_the_page_whatever_the_filter(
    near_stores: tuple[Store, Store], url: str, session: asyncpg.Connection, field: str
) -> None:
    graphed, exact = near_stores
    graphs = "SELECT count(*) FROM pg_indexes WHERE schemaname = $1 AND indexdef ~ 'hnsw'"
    assert await session.fetchval(graphs, schema_of(url)) == 2
    asked = np.random.default_rng(8).normal(size=(3, 24)).round(4).tolist()

    for where in WHERES:
        matching = await exact.items.count("things", where)
        for vector in asked:
            for top in (5, 60):
                query = Query("things", near=NearVector(tuple(vector), field, top=top), where=where, limit=1000)
                found, wanted = await graphed.items.find(query), await exact.items.find(query)
                assert len(found.items) == min(top, matching)
                assert [item.id for item in found.items] == [item.id for item in wanted.items]
                assert found.scores == pytest.approx(wanted.scores, abs=1e-6)


async def test_a_graph_follows_what_is_written_after_it(near_stores: tuple[Store, Store]) -> None:
    store, _ = near_stores
    target = [1.0] * 24
    await fill(store, {"new": {"v": target, "n": 1000}})
    nearest = Query("things", near=NearVector(tuple(target), "v", top=1))
    assert all_ids([await store.items.find(nearest)]) == ["new"]

    await fill(store, {"new": {"v": [-1.0] * 24, "n": 1000}})
    assert all_ids([await store.items.find(nearest)]) != ["new"]


async def test_vectors_of_different_lengths_live_in_one_field(store: Store) -> None:
    shelf = {f"{size}-{n}": {"v": [float(n + 1)] * (size - 1) + [0.5]} for size in (16, 20, 32) for n in range(3)}
    await fill(store, {**shelf, "zero": {"v": [0] * 16}, "none": {"n": 1}})

    for size in (16, 20, 32):
        for metric in ("cosine", "euclidean", "dot_product"):
            page = await store.items.find(Query("things", near=NearVector((1.0,) * size, "v", metric=metric)))
            same = {id for id in shelf if id.startswith(f"{size}-")} | ({"zero"} if size == 16 else set())
            assert {item.id for item in page.items} == same
    with pytest.raises(InvalidQuery, match="24 numbers"):
        await store.items.find(Query("things", near=NearVector((1.0,) * 24, "v")))


# Values


def wild_floats(count: int) -> list[float]:
    """Floats of all sizes, bit by bit at random."""
    source = random.Random(3)
    found: list[float] = [5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 0.1, 0.1 + 0.2, 1e16, 1e22]
    while len(found) < count:
        (value,) = struct.unpack("<d", source.randbytes(8))
        if abs(value) < 1.8e308 and value not in found:
            found.append(value)
    return found


async def test_floats_are_exact_to_the_last_bit(store: Store) -> None:
    values = wild_floats(120)
    await fill(store, {f"i{n:03}": {"x": value, "o": {"x": value}} for n, value in enumerate(values)})
    rising = [f"i{n:03}" for n in sorted(range(len(values)), key=values.__getitem__)]

    for path in ("x", "o.x"):
        for descending in (False, True):
            pages = await walk(store, Query("things", order=(Order(path, descending),), limit=1))
            assert all_ids(pages) == (rising[::-1] if descending else rising)
        for n, value in enumerate(values):
            assert await ids(store, Condition(path, "eq", value)) == [f"i{n:03}"], value
            assert await store.items.count("things", Condition(path, "lt", value)) == rising.index(f"i{n:03}")
    assert {item.id: item.data["x"] for item in all_items(pages)} == {f"i{n:03}": v for n, v in enumerate(values)}
    ends = (Aggregation("min", "least", "x"), Aggregation("max", "most", "x"))
    (row,) = (await store.items.find(Query("things", aggregate=Aggregate(ends)))).rows
    assert row == {"least": min(values), "most": max(values)}


async def test_integers_of_64_bits_are_exact(store: Store) -> None:
    values = [s * (2**power + step) for power in (31, 53, 62) for step in (-1, 0, 1) for s in (1, -1)]
    values += [2**63 - 1, 1 - 2**63, 2**63 - 2]
    await fill(store, {f"i{n:02}": {"x": value, "o": {"x": value}} for n, value in enumerate(values)})
    rising = [f"i{n:02}" for n in sorted(range(len(values)), key=values.__getitem__)]

    for path in ("x", "o.x"):
        assert all_ids(await walk(store, Query("things", order=(Order(path),), limit=2))) == rising
        for n, value in enumerate(values):
            assert await ids(store, Condition(path, "eq", value)) == [f"i{n:02}"]
            assert await ids(store, Condition(path, "in", (value,))) == [f"i{n:02}"]
            assert await store.items.count("things", Condition(path, "gt", value)) == len(values) - 1 - rising.index(
                f"i{n:02}"
            )
    counted = Aggregate((Aggregation("count", "n"),), ("x",))
    rows = (await store.items.find(Query("things", aggregate=counted, limit=100))).rows
    assert [row["x"] for row in rows] == sorted(values)


@pytest.mark.parametrize("letter", ["x", "é", "日", "🦊"])
async def test_an_id_may_have_1024_bytes(store: Store, letter: str) -> None:
    size = len(letter.encode())
    longest = letter * (1024 // size) + "x" * (1024 % size)
    await fill(store, {longest: {"v": [1.0] * 16, "n": 1}, "a": {"n": 2}})
    load = await store.loads.begin("a source")
    await store.loads.put(load, "things", [Put(longest, {"v": [1.0] * 16, "n": 3})])

    assert await store.loads.finish(load) == 0
    assert (await store.items.get("things", longest)).data["n"] == 3
    assert await ids(store, Condition("id", "eq", longest)) == [longest]
    assert set(all_ids(await walk(store, Query("things", order=(Order("id", descending=True),), limit=1)))) == {
        "a",
        longest,
    }
    assert all_ids([await store.items.find(Query("things", near=NearVector((1.0,) * 16, "v")))]) == [longest]
    assert [change.item.id for change in await store.changes.list_since(2)] == [longest]


PATTERN = Condition("name", "regex", "^(ab|c.)")
NESTED = Condition("o.tags", "regex", "(?i)^R")


@pytest.mark.parametrize(
    "where",
    [
        PATTERN,
        Not(PATTERN),
        Or((PATTERN, Condition("n", "lt", 30))),
        And((Not(PATTERN), Condition("n", "gte", 30))),
        Not(Or((PATTERN, NESTED))),
        Or((And((PATTERN, NESTED)), Not(Or((Condition("n", "gt", 20), Not(NESTED)))))),
        And((Or((PATTERN, NESTED)), Not(And((PATTERN, NESTED))), Condition("n", "ne", 7))),
        Not(Not(And((Condition("id", "regex", "5$"), Not(Condition("name", "regex", "")))))),
        Or((Condition("missing", "regex", "x"), Not(Condition("missing", "regex", "x")))),
        And((Condition("n", "regex", "1"), PATTERN)),
    ],
    ids=lambda where: str(where)[:60],
)
async def test_patterns_mean_the_same_inside_any_filter(store: Store, where: Filter) -> None:
    source = random.Random(5)
    shelf = {
        f"i{n:03}": {
            "n": source.randrange(60),
            **({"name": "".join(source.choices("abcé", k=3))} if n % 7 else {"name": None}),
            "o": {"tags": source.sample(["red", "Round", "blue", "é"], source.randrange(4))},
            **({"missing": "box"} if n == 3 else {}),
        }
        for n in range(150)
    }
    await fill(store, shelf)
    known = store.collections.schema["things"]
    wanted = [id for id, data in shelf.items() if matches(where, Item(id, "things", data), known)]

    order = (Order("n", descending=True), Order("name"))
    pages = await walk(store, Query("things", where=where, order=order, limit=7, count=True))

    assert {page.total for page in pages} == {len(wanted)}
    assert sorted(all_ids(pages)) == wanted
    falling = [item.data["n"] for item in all_items(pages)]
    assert falling == sorted(falling, reverse=True)
    assert await store.items.count("things", where) == len(wanted)
    assert sorted(await store.items.list_ids("things", where)) == wanted
    rows = (
        await store.items.find(Query("things", where=where, aggregate=Aggregate((Aggregation("count", "n"),))))
    ).rows
    assert rows == ({"n": len(wanted)},)


async def test_whether_anybody_has_written_is_not_told_without_asking(store: Store) -> None:
    assert store.changes.stamp() is None
