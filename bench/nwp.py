"""NWP beside nps-lib, the reference library of its authors, in one run: requests per second and frames per second.

    python -m bench.nwp
    python -m bench.nwp --seconds 2 --rounds 21

Both serve the same rows, each from a process of its own: nps-lib its Memory node with rows in memory, Portico a site on
SQLite as `portico serve` runs it. Both are asked over the same number of connections, one right after the other in
every round; the medians of the rounds count, and that of their ratios. Read the ratio: machines differ. The plain
query is the same each time, and its page is cached; the other one is a new query each time. Both stay below what is
wanted.

Frames are measured twice. As clients handle them: a page is read without a look at its records; that is less work than
nps-lib does. And like for like: all records of a page are written and read each time, as objects of any kind or as
records of a type. What is wanted is not reached there by reading objects, by reading typed records of MessagePack, and
by writing objects in MessagePack. Objects of any kind could not be read so fast: the interpreter's own marshal takes
longer to make them.
Ends with an error if the answers differ.
"""

import argparse
import asyncio
import json
import marshal
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any, cast
from urllib.error import URLError

import msgspec
import uvicorn
import uvloop
from nps_sdk.core.codec import NpsFrame, NpsFrameCodec
from nps_sdk.core.frames import EncodingTier
from nps_sdk.core.registry import FrameRegistry
from nps_sdk.ncp.frames import (
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    ErrorFrame,
    FrameSchema,
    HelloFrame,
    JsonPatchOperation,
    NcpHandshakeCapsFrame,
    SchemaField,
)
from nps_sdk.ncp.server import NcpServer, NcpServerConnection
from nps_sdk.nwp.frames import ActionFrame, QueryFrame, QueryOrderClause
from nps_sdk.nwp.memory_node_server import (
    InMemoryMemoryNodeProvider,
    MemoryNodeField,
    MemoryNodeOptions,
    MemoryNodeSchema,
    MemoryNodeServer,
    NodeRequest,
)
from nps_sdk.nwp.native_server import NwpNativeNodeServer

from portico.protocols.nwp import frames

HOST = "127.0.0.1"
COLLECTION = "products"
CATEGORIES = "kettle lamp chair basket knife boat jacket clock".split()
FIELDS = {
    "id": "string",
    "name": "string",
    "description": "string",
    "category": "string",
    "price": "decimal",
    "stock": "int64",
    "released": "string",
    "rating": "decimal",
}
ROWS = 1000
PAGE = 20
ANCHOR = "sha256:" + "0" * 64
CODEC = 5  # times as fast
WARM_SECONDS = 8.0
START_SECONDS = 60
CAPS, QUERY, HELLO = 0x04, 0x10, 0x06
JSON, MSGPACK, EXTENDED = 0x04, 0x05, 0x80  # flags: of a final frame in either encoding, of a long header
SITE = """
[store]
url = "sqlite:///site.db"

[search]
embedder = "none:"

[limits]
anonymous_per_minute = 1_000_000_000
"""

Rows = list[dict[str, Any]]
Requests = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Side:
    """Who is asked, and where."""

    name: str
    port: int
    native_port: int
    path: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """How a query travels, and how the end of an answer is known."""

    name: str
    port: Callable[[Side], int]
    opening: bytes  # sent once, and answered
    wrap: Callable[[Side, dict[str, Any]], bytes]
    size: Callable[[bytes], int]
    unwrap: Callable[[bytes], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    query: Callable[[int], dict[str, Any]]
    varies: bool
    wanted: int  # times as fast


# What is asked


def made_up_rows() -> Rows:
    """No two have the same price, so that there is one right order."""
    return [
        {
            "id": f"p{number:04}",
            "name": f"{CATEGORIES[number % 7]} number {number}",
            "description": f"A {CATEGORIES[number % 5]} from the harbour, made by hand, sold by weight, lot {number}.",
            "category": CATEGORIES[number * 3 % 8],
            "price": 100 + number * 7919 % ROWS * 0.5,
            "stock": number * 31 % 500,
            "released": f"20{10 + number % 16}-{1 + number % 12:02}-{1 + number % 28:02}",
            "rating": 1 + number * 13 % 40 / 10,
        }
        for number in range(ROWS)
    ]


def plain(_: int) -> dict[str, Any]:
    return {"limit": PAGE}


def narrowed(number: int) -> dict[str, Any]:
    """Of one category, below a price, by price: a different price for every number."""
    below = 350 + number % 1_000_000 / 10_000
    return {
        "filter": {"category": {"$eq": CATEGORIES[number % 8]}, "price": {"$lt": below}},
        "order": [{"field": "price", "dir": "ASC"}],
        "limit": PAGE,
    }


MEASURES = (
    Measure("plain", plain, False, 3),
    Measure("filter and order", narrowed, True, 10),
)


# How it travels


def frame(kind: int, flags: int, payload: bytes) -> bytes:
    return bytes((kind, flags)) + len(payload).to_bytes(2, "big") + payload


def http_request(side: Side, query: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(query)
    head = f"POST {side.path} HTTP/1.1\r\nHost: {HOST}:{side.port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def http_size(answer: bytes) -> int:
    """How long the whole answer is; 0 while that is unknown, -1 if it is a refusal."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = answer[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        return -1
    length = head.find(b"content-length:") + 15
    return end + 4 + int(head[length:].split(b"\r\n", 1)[0])


def frame_size(answer: bytes) -> int:
    if len(answer) < 4:
        return 0
    if answer[0] != CAPS or answer[1] & EXTENDED:
        return -1
    return 4 + int.from_bytes(answer[2:4], "big")


GREETING = {
    "nps_version": "0.4",
    "min_version": "0.1",
    "supported_encodings": ["msgpack", "json"],
    "supported_protocols": ["ncp", "nwp"],
}
CARRIERS = (
    Carrier(
        "HTTP, JSON",
        lambda side: side.port,
        b"",
        http_request,
        http_size,
        lambda answer: json.loads(answer.partition(b"\r\n\r\n")[2]),
    ),
    Carrier(
        "native, MessagePack",
        lambda side: side.native_port,
        b"NPS/1.0\n" + frame(HELLO, JSON, msgspec.json.encode(GREETING)),
        lambda side, query: frame(QUERY, MSGPACK, msgspec.msgpack.encode({**query, "anchor_ref": side.anchor})),
        frame_size,
        lambda answer: msgspec.msgpack.decode(answer[4:]),
    ),
)


def requests_of(side: Side, carrier: Carrier, measure: Measure) -> Requests:
    if measure.varies:
        return (carrier.wrap(side, measure.query(number)) for number in count(1))
    return repeat(carrier.wrap(side, measure.query(0)))


# The load


class Asker(asyncio.Protocol):
    """One connection, which asks again as soon as it is answered."""

    transport: asyncio.Transport

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.requests: Requests = repeat(carrier.opening)
        self.received = b""
        self.size = 0
        self.answered = 0
        self.goes_on = False
        self.awaited: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received = self.received + data if self.received else data
        self.size = self.size or self.carrier.size(self.received)
        if self.size < 0:
            self.transport.abort()
        elif self.size and len(self.received) >= self.size:
            self.take()

    def take(self) -> None:
        """An answer is whole."""
        self.answered += 1
        if self.goes_on:
            self.ask()
        elif self.awaited:
            self.awaited.set_result(self.received)
            self.awaited = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.awaited:
            self.awaited.set_exception(exc or ConnectionError(f"no answer but {self.received[:500]!r}"))

    def ask(self) -> None:
        self.received, self.size = b"", 0
        self.transport.write(next(self.requests))

    async def answer(self) -> bytes:
        """Ask once, and wait."""
        awaited = self.awaited = asyncio.get_running_loop().create_future()
        self.ask()
        return await awaited


async def connected(side: Side, carrier: Carrier, asked: Requests) -> Asker:
    loop = asyncio.get_running_loop()
    _, asker = await loop.create_connection(lambda: Asker(carrier), HOST, carrier.port(side))
    if carrier.opening:
        await asker.answer()
    asker.requests = asked
    return asker


async def rate(side: Side, carrier: Carrier, asked: Requests, seconds: float, connections: int) -> float:
    """Answers each second, while every connection always waits for one."""
    askers = [await connected(side, carrier, asked) for _ in range(connections)]
    before = sum(asker.answered for asker in askers)
    started = time.perf_counter()
    for asker in askers:
        asker.goes_on = True
        asker.ask()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - started
    answered = sum(asker.answered for asker in askers) - before
    for asker in askers:
        if asker.transport.is_closing():
            sys.exit(f"{side.name} over {carrier.name}: no answer but {asker.received[:500]!r}")
        asker.goes_on = False
        asker.transport.abort()
    return answered / took


async def compare(sides: list[Side], carrier: Carrier, measure: Measure) -> None:
    """Both must give the same rows, for several numbers."""
    for number in range(3):
        said: list[Rows] = []
        for side in sides:
            asker = await connected(side, carrier, repeat(carrier.wrap(side, measure.query(number))))
            data = carrier.unwrap(await asker.answer())["data"]
            asker.transport.abort()
            said.append([{name: row.get(name) for name in FIELDS} for row in data])
        if said[0] != said[1] or len(said[0]) != PAGE:
            sys.exit(f"{carrier.name}, {measure.name}: the answers differ\n{said[0][:2]}\n{said[1][:2]}")


# nps-lib


def serve_nps_lib(port: int, native_port: int) -> None:
    uvloop.run(nps_lib(port, native_port))


async def nps_lib(port: int, native_port: int) -> None:
    """Its Memory node behind uvicorn, as Portico is, and behind its own native server."""
    schema = MemoryNodeSchema([MemoryNodeField(name, kind) for name, kind in FIELDS.items()])
    options = MemoryNodeOptions("urn:nps:node:localhost:products", schema)
    provider = InMemoryMemoryNodeProvider(made_up_rows())
    app = mounted(MemoryNodeServer(provider, options))
    config = uvicorn.Config(app, HOST, port, http="httptools", lifespan="off", log_level="warning", access_log=False)
    codec = NpsFrameCodec(FrameRegistry.create_full())
    node = NwpNativeNodeServer(codec=codec, memory_provider=provider, memory_options=options)
    async with NcpServer(HOST, native_port, codec) as listener:
        accepting = asyncio.create_task(accept(listener, node))
        await uvicorn.Server(config).serve()
        accepting.cancel()


def mounted(node: MemoryNodeServer) -> Callable[..., Any]:
    async def app(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        answer = await node.handle(NodeRequest(scope["method"], scope["path"], headers, body))
        fields = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        fields.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": fields})
        await send({"type": "http.response.body", "body": answer.body})

    return app


async def accept(listener: NcpServer, node: NwpNativeNodeServer) -> None:
    async with asyncio.TaskGroup() as conversations:
        while True:
            connection = await listener.accept_connection()
            conversations.create_task(converse(connection, node))


async def converse(connection: NcpServerConnection, node: NwpNativeNodeServer) -> None:
    session = await connection.accept(NcpHandshakeCapsFrame("urn:nps:node:localhost:products", ("nwp:query",)))
    try:
        # Its session keeps the streams to itself, and a loop over the session is slower than its serving loop.
        await node.serve(session._reader, session._writer)
    except (asyncio.IncompleteReadError, ConnectionError):  # they have heard enough
        await session.close()


@contextmanager
def nps_lib_process() -> Iterator[Side]:
    port, native_port = free_ports()
    process = multiprocessing.get_context("spawn").Process(target=serve_nps_lib, args=(port, native_port), daemon=True)
    process.start()
    try:
        wait_for(lambda: is_listening(port), process.is_alive)
        yield Side("nps-lib", port, native_port, "/query", "native:nwp")
    finally:
        process.terminate()
        process.join()


# Portico


@contextmanager
def portico_process(folder: Path) -> Iterator[Side]:
    """A site with the rows loaded, as an operator runs it."""
    portico = Path(sys.executable).parent / "portico"
    (folder / "portico.toml").write_text(SITE)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made_up_rows()))
    load = [portico, "load", "rows.jsonl", "--collection", COLLECTION]
    subprocess.run(load, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    port, native_port = free_ports()
    command = [portico, "serve", "--port", str(port), "--nwp-port", str(native_port)]
    with (folder / "log").open("w") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: is_ready(port), lambda: process.poll() is None)
            path = f"/nwp/{COLLECTION}"
            yield Side("Portico", port, native_port, f"{path}/query", anchor_of(port, path))
        finally:
            process.terminate()


def anchor_of(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}/.schema") as answer:
        return json.load(answer)["anchor_id"]


def free_ports() -> tuple[int, int]:
    with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def wait_for(is_open: Callable[[], bool], lives: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_open():
        if not lives() or time.monotonic() > deadline:
            sys.exit("A server did not start.")
        time.sleep(0.05)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/readyz"):
            return True
    except URLError:  # it does not listen yet, or says that it is not ready
        return False


# Frames


@dataclass(frozen=True, slots=True)
class Coding:
    """One thing that both codecs do with the same frames."""

    name: str
    theirs: Callable[[], Any]
    ours: Callable[[], Any]
    wanted: int | None = None  # times as fast


def codings() -> Iterator[Coding]:
    for tier, same in (
        (frames.EncodingTier.JSON, EncodingTier.JSON),
        (frames.EncodingTier.MSGPACK, EncodingTier.MSGPACK),
    ):
        for coding in codings_in(tier, same):
            yield replace(coding, name=f"{tier.token}, {coding.name}")
    rows = made_up_rows()[:PAGE]
    codec = NpsFrameCodec(FrameRegistry.create_full())
    page = codec.encode(page_of(rows), override_tier=EncodingTier.MSGPACK)
    made = partial(marshal.loads, marshal.dumps(rows))
    yield Coding("msgpack, read a page; its objects, by marshal", partial(codec.decode, page), made)


def codings_in(tier: frames.EncodingTier, same: EncodingTier) -> list[Coding]:
    """The frames of a session, and a page of rows by itself, written and read by either.

    Of a session there is one frame of each kind, the answer with a page of rows. Each reads what Portico has written.
    Portico has rows in two forms: as objects of any kind, and as records of a type that follows from the schema. Typed
    they are in the session, and so its client reads them.
    """
    codec = NpsFrameCodec(FrameRegistry.create_full())
    write, encode = partial(codec.encode, override_tier=same), partial(frames.encode, tier=tier)
    rows = made_up_rows()[:PAGE]
    row = frames.row_type(schema_of(rows[0]))
    reader, page, others = frames.RecordReader(row, ANCHOR), page_of(rows), session()
    ours = msgspec.structs.replace(caps_of(frames.decode(write(page))), data=rows)
    typed = msgspec.structs.replace(ours, data=[row(**each) for each in rows])
    our_others = [frames.decode(write(each)) for each in others]
    wire, wires = encode(ours), [encode(each) for each in our_others]
    if [codec.decode(each) for each in (*wires, wire)] != [*others, page]:
        sys.exit(f"{tier.token}: the codecs do not read each other")
    if frames.decode(wire) != ours or reader.decode(wire) != typed or encode(typed) != wire:
        sys.exit(f"{tier.token}: typed rows are not the same rows")

    def read_all() -> Any:
        return caps_of(frames.decode(wire)).data.read()

    writing, read = partial(write, page), partial(codec.decode, wire)
    return [
        Coding("read a page", read, partial(frames.decode, wire), CODEC),
        Coding("write a session", each_of(write, [*others, page]), each_of(encode, [*our_others, typed]), CODEC),
        Coding("read a session", each_of(codec.decode, [*wires, wire]), each_of(reader.decode, [*wires, wire]), CODEC),
        Coding("write a page from objects", writing, partial(encode, ours), CODEC),
        Coding("write a page from typed records", writing, partial(encode, typed), CODEC),
        Coding("read a page, records as objects", read, read_all, CODEC),
        Coding("read a page, records typed", read, partial(reader.decode, wire), CODEC),
    ]


def caps_of(frame: frames.Frame) -> frames.CapsFrame:
    return cast("frames.CapsFrame", frame)


def page_of(rows: Rows) -> CapsFrame:
    return CapsFrame(anchor_ref=ANCHOR, count=len(rows), data=tuple(rows), next_cursor="MjA", token_est=1000)


def session() -> list[NpsFrame]:
    """What is said in a session beside the page."""
    fields = tuple(SchemaField(name=name, type=kind) for name, kind in FIELDS.items())
    changes = JsonPatchOperation("replace", "/price", 12.5), JsonPatchOperation("replace", "/stock", 3)
    asked = narrowed(3)
    return [
        HelloFrame("0.4", ("msgpack", "json"), ("nwp",)),
        AnchorFrame(ANCHOR, FrameSchema(fields=fields)),
        QueryFrame(ANCHOR, asked["filter"], order=(QueryOrderClause("price", "ASC"),), limit=PAGE),
        ActionFrame("order_product", {"product": "p0001", "count": 2}, "0b6c5a1e"),
        DiffFrame(ANCHOR, 7, changes, "p0001"),
        ErrorFrame("NPS-CLIENT-NOT-FOUND", "NWP-ACTION-NOT-FOUND", "There is no such action", {"action": "buy"}),
    ]


def each_of(work: Callable[[Any], Any], values: list[Any]) -> Callable[[], Any]:
    def all_of_them() -> None:
        for value in values:
            work(value)

    return all_of_them


def schema_of(row: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {str: "string", int: "int64", float: "decimal", bool: "bool"}
    return {"fields": [{"name": name, "type": kinds[type(value)]} for name, value in row.items()]}


def speed(work: Callable[[], Any], seconds: float) -> float:
    """How often each second."""
    batch, done = 20, 0
    started = time.perf_counter()
    while (took := time.perf_counter() - started) < seconds:
        for _ in range(batch):
            work()
        done += batch
    return done / took


# The table

ABOUT = """Frames: a page has {page} records of {fields} fields.
"read a page": its records are read when they are wanted. A session: one frame of each kind, with all records read.
By marshal: no work of Portico's, but what the interpreter itself takes for the same objects.
Nodes: {rows:,} rows, asked over {connections} connections; "plain" asks the same each time, "filter and order" never.
Medians of at least {rounds} rounds; < is less than wanted.
"""


def show(name: str, pairs: list[list[float]], wanted: int | None) -> None:
    theirs, ours = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(other / one for one, other in pairs)
    mark = " <" if wanted and ratio < wanted else ""
    print(f"{name:<54} {theirs:>9,.0f} {ours:>9,.0f} {ratio:>7.1f} {wanted or '':>7}{mark}", flush=True)


async def measure_nodes(sides: list[Side], rounds: int, seconds: float, connections: int) -> None:
    for side in sides:
        await rate(side, CARRIERS[0], requests_of(side, CARRIERS[0], MEASURES[0]), WARM_SECONDS, connections)
    for carrier in CARRIERS:
        for measure in MEASURES:
            await compare(sides, carrier, measure)
            asked = [requests_of(side, carrier, measure) for side in sides]  # across rounds, so that none comes again
            pairs = [
                [await rate(side, carrier, each, seconds, connections) for side, each in zip(sides, asked, strict=True)]
                for _ in range(rounds)
            ]
            show(f"{carrier.name}: {measure.name}", pairs, measure.wanted)


def measure_frames(rounds: int, seconds: float) -> None:
    for coding in codings():
        pairs = [[speed(coding.theirs, seconds), speed(coding.ours, seconds)] for _ in range(rounds)]
        show(f"frames: {coding.name}", pairs, coding.wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round of each side")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--connections", type=int, default=8)
    given = parser.parse_args()
    print(ABOUT.format(page=PAGE, fields=len(FIELDS), rows=ROWS, connections=given.connections, rounds=given.rounds))
    print(f"{'each second':<54} {'nps-lib':>9} {'Portico':>9} {'ratio':>7} {'wanted':>7}")
    measure_frames(given.rounds * 3, given.seconds / 10)
    with tempfile.TemporaryDirectory() as folder, nps_lib_process() as theirs, portico_process(Path(folder)) as ours:
        uvloop.run(measure_nodes([theirs, ours], given.rounds, given.seconds, given.connections))


if __name__ == "__main__":
    main()
