"""A code that a person was shown is in nothing that an agent could read: no answer, no log, no file, no column."""

import asyncio
import io
import json
import sqlite3
import sys
from base64 import b32decode, b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import listening
from tests.safety.conftest import Open, Person, boss_of, person

from portico.server.assembly import Parts
from portico.telemetry import JsonLog, TelemetryEvent

MARK = "marjoram-7431"  # said by the agent: what is searched is searched well enough to find it
DENIED = f"executing shell command: rm -rf /{MARK}"
RISKY = f"calling set_table for {MARK}"
SEND = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as person:
    person.sendall(sys.stdin.buffer.read())
"""


class Phone:
    """Where a person reads codes."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.codes: list[str] = []

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.told.put_nowait(json.loads(await reader.read()))
        writer.close()

    async def code(self, challenge: str) -> str:
        async with asyncio.timeout(60):
            told = await self.told.get()
        assert told["id"] == challenge
        self.codes.append(told["code"])
        return told["code"]


@asynccontextmanager
async def ringing() -> AsyncIterator[tuple[Phone, list[str]]]:
    """A phone, and the command that has it told."""
    phone = Phone()
    async with await asyncio.start_server(phone.hear, "127.0.0.1", 0) as server:
        yield phone, [sys.executable, "-c", SEND, str(server.sockets[0].getsockname()[1])]


class Ears:
    """Keeps every byte that a client is sent."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def hear(self, answer: httpx.Response) -> None:
        await answer.aread()
        self.heard.append(b"\n".join(b"%b: %b" % each for each in answer.headers.raw) + b"\n\n" + answer.content)

    def client(self, who: Person, port: int) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {who.key}"}
        hooks = {"response": [self.hear]}
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, event_hooks=hooks)


def shapes(code: str) -> list[bytes]:
    """A code as it could be written down."""
    plain = [code, code.lower(), "-".join(code[at : at + 4] for at in range(0, len(code), 4))]
    raw = b32decode(code + "======")
    written = [raw, raw.hex().encode(), b64encode(code.encode()).rstrip(b"="), b64encode(raw).rstrip(b"=")]
    return [*(each.encode() for each in plain), *written]


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.name, path.read_bytes()


def columns(database: Path) -> Iterator[tuple[str, bytes]]:
    """Every value of every table, as bytes."""
    with closing(sqlite3.connect(database)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"').fetchall():
                for value in row:
                    yield table, value if isinstance(value, bytes) else str(value).encode()


def places(texts: Iterator[tuple[str, bytes]], wanted: list[bytes]) -> set[str]:
    return {name for name, text in texts if any(each in text for each in wanted)}


async def blocked_and_verified(parts: Parts, port: int, phone: Phone, ears: Ears) -> None:
    """An agent is stopped, tries what it can, is released, is paused, is released, and ends."""
    bot, boss = await person(parts), await boss_of(parts)
    async with ears.client(bot, port) as agent, ears.client(boss, port) as approver:

        async def does(client: httpx.AsyncClient, operation: str, **params: Any) -> Any:
            return (await client.post(f"/operations/{operation}", json=params)).json()

        async def steps(hint: str, **said: Any) -> Any:
            report = {"element_name": "bot", "next_action_hint": hint, "outcome": "success", **said}
            return (await does(agent, "record_execution_step", **report))["result"]["autonomy"]

        await does(agent, "execute_agent", element_name="bot")
        stopped = await steps(DENIED)
        challenge = stopped["notifications"][-1]["metadata"]["verificationId"]
        code = await phone.code(challenge)
        await does(agent, "verify_challenge", challenge_id=challenge, code=MARK)
        await does(agent, "execute_agent", element_name="bot")
        await does(approver, "verify_challenge", challenge_id=challenge, code=MARK)
        fresh, shown = await parts.site.supervision.reissue(challenge, boss.caller)
        phone.codes.append(shown.reveal())
        assert str(shown) == f"{shown!r}" == "Code(…)"
        later = {"prefer": "respond-async"}
        put_away = {"challenge_id": fresh.id, "code": shown.reveal()}
        assert (await approver.post("/operations/verify_challenge", json=put_away, headers=later)).is_error
        released = await does(approver, "verify_challenge", challenge_id=challenge, code=shown.reveal().lower())
        assert released["result"]["unblocked"] is True
        assert code != shown.reveal()

        await does(agent, "execute_agent", element_name="bot")
        paused = await steps(RISKY, risk_score=70)
        challenge = paused["notifications"][-1]["metadata"]["verificationId"]
        code = await phone.code(challenge)
        released = await does(approver, "verify_challenge", challenge_id=challenge, code=code)
        assert released["result"]["verified"] is True
        assert (await steps(RISKY, risk_score=70))["continue"] is True
        await does(agent, "complete_execution", element_name="bot", summary=MARK)

        for path in ("/operations", "/metrics", "/", "/healthz", "/openapi.json", "/.well-known/agent-card.json"):
            await agent.get(path)
        for query in ("operations", "types"):
            await agent.post("/aql", json={"operation": "introspect", "params": {"query": query}})
        await agent.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})


@requirement(
    "aql:attack:code-leaked",
    "aql:oob:not-in-response",
    "aql:oob:not-in-logs",
    "aql:oob:not-derivable",
    "aql:oob:channel",
)
async def test_the_code_is_found_nowhere_but_with_the_person(
    kitchen: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[TelemetryEvent] = []
    log, ears = io.StringIO(), Ears()

    def record(each: TelemetryEvent) -> None:
        seen.append(each)
        JsonLog(log)(each)

    database = tmp_path / "site.db"
    async with ringing() as (phone, command):
        safety = {"start": "allow", "channels": ["command"], "command": command}
        async with kitchen(f"sqlite:///{database}", safety=safety, record=record) as parts, listening(parts) as port:
            await blocked_and_verified(parts, port, phone, ears)
            written = [*files(tmp_path), *columns(database)]  # with the log that is not yet in the database
    written += [*files(tmp_path), *columns(database)]
    told = [
        *(("answer", each) for each in ears.heard),
        *(("observation", repr(each).encode()) for each in seen),
        ("log", log.getvalue().encode()),
        ("output", "".join(capfd.readouterr()).encode()),
    ]

    assert len(phone.codes) == 3
    for code in phone.codes:
        assert places(iter([*written, *told]), shapes(code)) == set()
    found = places(iter([*written, *told]), [MARK.encode()])
    assert found >= {"answer", "observation", "log", "cases", "trail", "site.db", "site.db-wal"}, found
