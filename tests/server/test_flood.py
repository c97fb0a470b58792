"""One address that opens connections, WebSockets and streams without end: it reaches its own limits, others do not."""

import asyncio
import contextlib
import json
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.protocols.conftest import Inn, inn, listening  # noqa: F401 - a fixture
from tests.server.conftest import ENVIRONMENT, SCRIPT, Running, Serve
from tests.server.test_serve import ready
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

FLOOD = 2000
AT_ONCE = 100  # connections that are being opened; more would wait for one another in the queue of the system
CROWD, OTHER = "127.0.0.1", "127.0.0.2"
SITE = """
[search]
embedder = "none:"
[[source]]
url = "rooms.jsonl"
"""
HANDSHAKE = (
    b"GET /ask HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
)
CLOSE = b"\x88\x80mask"  # a frame without a payload, masked as those of clients are
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
STREAM = json.dumps({"query": {"text": "attic"}, "prefer": {"streaming": True}})


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """This process holds the other end of every connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> Running:
    (tmp_path / "portico.toml").write_text(SITE)
    (tmp_path / "rooms.jsonl").write_text('{"id": "attic", "name": "The attic"}\n')
    server = serve("serve", "--load")
    ready(server)
    return server


@asynccontextmanager
async def flood(port: int, opening: bytes, count: int = FLOOD) -> AsyncIterator[Counter[str]]:
    """Keep as many connections of one address open, each after these first bytes; the statuses that came back."""
    writers: list[asyncio.StreamWriter] = []
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one() -> str:
        async with gate:
            reader, writer = await asyncio.open_connection(CROWD, port)
            writers.append(writer)
            writer.write(opening)
            with contextlib.suppress(ConnectionError):
                return (await reader.readline()).decode()[9:12] if opening else ""
            return "reset"

    try:
        async with asyncio.timeout(120):
            statuses = await asyncio.gather(*(open_one() for _ in range(count)))
        yield Counter(statuses)
    finally:
        for writer in writers:
            writer.close()


async def exchange(port: int, request: bytes, address: str = OTHER) -> bytes:
    """All that comes back for a request from an address, until the server closes."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


def ask(body: str = STREAM) -> bytes:
    head = f"POST /ask HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


async def assert_everybody_else_is_served(port: int) -> None:
    for address in (CROWD, OTHER):
        for path in (b"/healthz", b"/readyz"):
            answer = await exchange(port, HEALTH.replace(b"/healthz", path), address)
            assert answer.startswith(b"HTTP/1.1 200 "), (address, path, answer)
    answer = await exchange(port, ask())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"event: complete" in answer
    async with connect(f"ws://127.0.0.1:{port}/ask", local_addr=(OTHER, 0)) as socket:
        await socket.send(json.dumps({"query": {"text": "attic"}}))
        assert json.loads(await socket.recv())["results"][0]["@id"] == "attic"


async def test_idle_websockets_of_one_address_lock_nobody_else_out(server: Running) -> None:
    async with flood(server.port, HANDSHAKE) as statuses:
        assert 0 < statuses["101"] < 1000
        assert statuses["429"] > 0
        await assert_everybody_else_is_served(server.port)
    _, log = server.stop(signal.SIGTERM)
    assert 0 < log.count('"event":"Refused"') < 100, "the log tells of the flood, and is not flooded itself"
    assert "ERROR" not in log


async def test_idle_connections_of_one_address_lock_nobody_else_out(server: Running) -> None:
    async with flood(server.port, b""):
        await assert_everybody_else_is_served(server.port)


async def test_websockets_and_connections_of_one_address_together_lock_nobody_else_out(server: Running) -> None:
    async with flood(server.port, HANDSHAKE), flood(server.port, b""):
        await assert_everybody_else_is_served(server.port)


async def test_a_crowded_process_still_answers_health_checks(inn: Inn) -> None:  # noqa: F811
    """From more addresses than one, so that no limit of an address is reached."""
    async with inn(limits={"connections": 4}) as parts, listening(parts) as port:
        crowd = [await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{n}", 0)) for n in range(3, 7)]
        health, page = await exchange(port, HEALTH), await exchange(port, ask())
        for _, writer in crowd:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in crowd))
        after = await until_served(port)

    assert health.startswith(b"HTTP/1.1 200 ")
    assert page.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: " in page.lower()
    assert b"event: complete" in after


async def until_served(port: int, address: str = OTHER) -> bytes:
    """The answer to a question, once the server has noticed that others have left."""
    async with asyncio.timeout(60):
        while not (answer := await exchange(port, ask(), address)).startswith(b"HTTP/1.1 200 "):
            assert answer.startswith((b"HTTP/1.1 429 ", b"HTTP/1.1 503 ")), answer
    return answer


async def until_accepted(port: int) -> None:
    """Open a WebSocket, once the server has noticed that another was closed."""
    async with asyncio.timeout(60):
        while not (answer := await exchange(port, HANDSHAKE + CLOSE, CROWD)).startswith(b"HTTP/1.1 101 "):
            assert answer.startswith(b"HTTP/1.1 429 "), answer


async def test_the_reserve_for_health_checks_cannot_be_occupied(inn: Inn) -> None:  # noqa: F811
    async with inn(limits={"connections": 2}) as parts, listening(parts) as port:
        addresses = [f"127.0.{n // 200}.{n % 200 + 3}" for n in range(300)]
        crowd = [await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)) for address in addresses]
        health = await exchange(port, HEALTH)
        for _, writer in crowd:
            writer.close()

    assert health.startswith(b"HTTP/1.1 200 ")


async def test_an_address_at_its_limit_of_connections_is_told_so_and_closed(inn: Inn) -> None:  # noqa: F811
    async with inn(limits={"connections_per_address": 2}) as parts, listening(parts) as port:
        crowd = [await asyncio.open_connection(CROWD, port) for _ in range(2)]
        refused, upgrade = await exchange(port, ask(), CROWD), await exchange(port, HANDSHAKE, CROWD)
        other = await exchange(port, ask())
        for _, writer in crowd:
            writer.close()

    for answer in (refused, upgrade):
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: " in answer.lower()
    assert other.startswith(b"HTTP/1.1 200 ")


async def test_an_address_at_its_limit_of_websockets_is_refused_before_the_handshake(inn: Inn) -> None:  # noqa: F811
    async with (
        inn(limits={"websockets_per_address": 2}) as parts,
        listening(parts) as port,
        connect(f"ws://{CROWD}:{port}/ask"),
        connect(f"ws://{CROWD}:{port}/await") as second,
        connect(f"ws://{CROWD}:{port}/ask", local_addr=(OTHER, 0)),
    ):
        refused, plain = await exchange(port, HANDSHAKE, CROWD), await exchange(port, ask(), CROWD)
        await second.close()
        await until_accepted(port)

    assert refused.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nretry-after: " in refused.lower()
    assert b"RATE_LIMITED" in refused
    assert plain.startswith(b"HTTP/1.1 200 ")


@asynccontextmanager
async def subscribed(port: int, address: str) -> AsyncIterator[None]:
    """A stream of changes of the rooms, open from an address."""
    body = json.dumps({"action": "subscribe", "stream_id": "s-1"})
    head = "POST /nwp/rooms/subscribe HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    assert b" 200 " in await reader.readline()
    yield
    writer.close()


async def test_an_address_at_its_limit_of_streams_is_refused_until_one_ends(inn: Inn) -> None:  # noqa: F811
    async with inn(limits={"streams_per_address": 1}) as parts, listening(parts) as port:
        async with subscribed(port, CROWD):
            refused = await exchange(port, ask(), CROWD)
            whole = await exchange(port, ask(json.dumps({"query": {"text": "attic"}})), CROWD)
            other = await exchange(port, ask())
        after = await until_served(port, CROWD)

    assert refused.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nretry-after: " in refused.lower()
    assert b"event: " not in refused
    assert whole.startswith(b"HTTP/1.1 200 ")
    assert other.startswith(b"HTTP/1.1 200 ")
    assert b"event: complete" in after


STREAMS = {
    "nlweb": ("/ask", STREAM),
    "chat": ("/chat/stream", json.dumps({"messages": [{"role": "user", "content": "attic"}]})),
    "nwp": ("/nwp/rooms/stream", "{}"),
    "a2a": (
        "/a2a",
        json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "message/stream",
                "params": {"message": {"role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "attic"}]}},
            }
        ),
    ),
}


@pytest.mark.parametrize(("path", "body"), STREAMS.values(), ids=STREAMS)
async def test_streams_of_every_protocol_are_counted(inn: Inn, path: str, body: str) -> None:  # noqa: F811
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    request = f"{head}accept: */*, text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    async with inn(limits={"streams_per_address": 1}) as parts, listening(parts) as port:
        streamed = await exchange(port, request)
        async with subscribed(port, OTHER):
            refused = await exchange(port, request)

    assert streamed.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding: chunked" in streamed.lower()
    assert refused.startswith(b"HTTP/1.1 429 ")


async def test_a_websocket_without_messages_is_closed(inn: Inn) -> None:  # noqa: F811
    async with (
        inn(limits={"websocket_idle": 0.3}) as parts,
        listening(parts) as port,
        connect(f"ws://{CROWD}:{port}/ask") as socket,
        asyncio.timeout(60),
    ):
        await socket.send(json.dumps({"query": {"text": "attic"}}))
        assert "results" in json.loads(await socket.recv())
        with pytest.raises(ConnectionClosed) as closing:
            await socket.recv()

    assert closing.value.rcvd is not None
    assert (closing.value.rcvd.code, "0.3 seconds" in closing.value.rcvd.reason) == (1001, True)


@pytest.mark.parametrize(
    ("soft", "hard", "fitting", "raised"),
    [(100, 2000, 739, 2000), (100, 6000, 2000, 4522), (5000, 6000, 2000, 5000), (100, 200, 50, 200)],
    ids=["a low hard limit", "a low soft limit", "enough", "nearly nothing"],
)
def test_connections_fit_into_the_open_files_of_the_process(soft: int, hard: int, fitting: int, raised: int) -> None:
    program = f"""
import resource
from portico.server.admission import fit_connections
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(fit_connections(2000, 10), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.split() == [str(fitting), str(raised), str(hard)]


def test_a_check_tells_of_too_few_open_files(tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text('[search]\nembedder = "none:"\n[server]\nport = 0\nnwp_port = 0\n')
    limited = 'ulimit -n 2000; exec "$0" check'

    ended = subprocess.run(
        ["sh", "-c", limited, SCRIPT], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1
    says = "open files: the limit leaves room for 739 connections, not for the 2000 of limits.connections"
    assert says in " ".join(ended.stdout.split())


def test_a_server_that_takes_fewer_connections_than_configured_records_it(serve: Serve, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("open files have no limit here")
    settings = f'[search]\nembedder = "none:"\n[limits]\nconnections = {hard}\n'
    (tmp_path / "portico.toml").write_text(settings)

    _, log = serve().stop(signal.SIGTERM)

    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    [lowered] = [event for event in events if event["event"] == "Broke"]
    assert lowered["where"] == "admission"
    assert f"limits.connections is {hard}, but the limit of open files leaves room for" in lowered["error"]
