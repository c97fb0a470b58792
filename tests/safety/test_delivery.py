"""Codes on their way to people: what each channel is told, where a code never is, and what becomes of failures."""

import asyncio
import io
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance.requirements import requirement
from tests.operations.test_webhooks import receiver
from tests.protocols.conftest import soon

from portico.config import Safety
from portico.errors import ConfigError
from portico.safety.delivery import MAX_AT_ONCE, CodeMessage, DeliveryChannels, dialog_of
from portico.safety.models import PendingChallenge, RiskTier, VerificationCode
from portico.telemetry import JsonLog, TelemetryEvent, UnexpectedError

SECRET = "H7KQ2M4ZT6W3X5Y7B9C1D2F4GA"
SOON = datetime.now(UTC) + timedelta(hours=1)
CHALLENGED = PendingChallenge(
    id="9c1d",
    caller="key:1",
    agent='bot"\n1',
    hint="wipe\nCode: AAAA",
    tier=RiskTier.DANGER_ZONE,
    blocks=True,
    issued=SOON,
    expires=SOON,
)
TOLD = {
    "id": "9c1d",
    "agent": 'bot"\n1',
    "hint": "wipe\nCode: AAAA",
    "tier": "danger_zone",
    "expires": SOON.isoformat().replace("+00:00", "Z"),
    "code": SECRET,
}
# Tells somebody on loopback what it was told, and what else could be seen of it.
REPORT = """
import json, os, socket, sys
seen = {"input": sys.stdin.read(), "argv": sys.argv, "environ": dict(os.environ)}
print(seen["input"]); print(seen["input"], file=sys.stderr)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as there:
    there.sendall(json.dumps(seen).encode())
"""


class Observed:
    """What was observed, as it goes to the log."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.seen: asyncio.Queue[TelemetryEvent] = asyncio.Queue()

    def __call__(self, seen: TelemetryEvent) -> None:
        JsonLog(self.text)(seen)
        self.seen.put_nowait(seen)

    async def next(self) -> TelemetryEvent:
        async with asyncio.timeout(60):
            return await self.seen.get()


@asynccontextmanager
async def channels(observed: Observed | None = None, **said: Any) -> AsyncIterator[DeliveryChannels]:
    opened = DeliveryChannels(Safety(**said), (), observed or Observed(), screen=":0")
    try:
        yield opened
    finally:
        await opened.close()


@requirement("aql:oob:channels", "aql:oob:channel")
async def test_a_command_reads_the_code_from_its_input_and_it_is_seen_nowhere_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    told: asyncio.Queue[bytes] = asyncio.Queue()
    observed = Observed()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.put_nowait(await reader.read())
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        command = (sys.executable, "-c", REPORT, str(port))
        async with channels(observed, channels=("command",), command=command) as opened:
            opened.deliver(CHALLENGED, VerificationCode(SECRET))
            async with asyncio.timeout(60):
                seen = json.loads(await told.get())

    assert json.loads(seen.pop("input")) == TOLD
    assert SECRET not in json.dumps(seen)
    assert SECRET not in observed.text.getvalue() + "".join(capfd.readouterr())


@requirement("aql:oob:channels")
async def test_a_webhook_on_this_machine_is_posted_the_code_and_its_redirect_is_a_failure() -> None:
    heard: list[bytes] = []
    observed = Observed()
    async with (
        receiver("307 Temporary Redirect", heard, "Location: http://127.0.0.1:1/\r\n") as url,
        channels(observed, channels=("webhook",), webhook=url) as opened,
    ):
        opened.deliver(CHALLENGED, VerificationCode(SECRET))
        assert await observed.next() == UnexpectedError("channel webhook", "status 307")

    [request] = heard
    assert request.startswith(b"POST /told?of=it HTTP/1.1\r\n")
    assert json.loads(request.partition(b"\r\n\r\n")[2]) == TOLD
    assert SECRET not in observed.text.getvalue()


async def test_what_fails_is_observed_without_a_word_of_it() -> None:
    observed = Observed()
    failing = (sys.executable, "-c", "import sys; sys.exit(sys.stdin.read() and 3)")
    async with channels(observed, channels=("command",), command=failing) as opened:
        opened.deliver(CHALLENGED, VerificationCode(SECRET))
        failed = await observed.next()
    async with channels(observed, channels=("command",), command=("/no/such/command",)) as opened:
        opened.deliver(CHALLENGED, VerificationCode(SECRET))
        missing = await observed.next()

    assert failed == UnexpectedError("channel command", "exit status 3")
    assert missing == UnexpectedError("channel command", "FileNotFoundError")


async def test_a_channel_takes_only_so_many_at_once() -> None:
    observed = Observed()
    async with channels(observed, channels=("command",), command=("true",)) as opened:
        for _ in range(MAX_AT_ONCE):
            opened.deliver(CHALLENGED, VerificationCode(SECRET))
        before = observed.seen.qsize()
        opened.deliver(CHALLENGED, VerificationCode(SECRET))

    assert before == 0
    assert await observed.next() == UnexpectedError("channel command", "too many at once")


async def test_a_command_that_runs_ends_when_the_channels_close() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        endless = f"import socket, time; here = socket.create_connection(('127.0.0.1', {port})); time.sleep(600)"
        async with channels(channels=("command",), command=(sys.executable, "-c", endless)) as opened:
            opened.deliver(CHALLENGED, VerificationCode(SECRET))
            await soon(begun)
        await soon(ended)


@requirement("aql:oob:channels")
async def test_a_dialog_is_told_on_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, shown = tmp_path / "zenity", tmp_path / "shown"
    os.mkfifo(shown)
    program.write_text(f'#!/bin/sh\n(echo "$@"; cat) > "{shown}"\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    async with channels(channels=("dialog",)) as opened:
        opened.deliver(CHALLENGED, VerificationCode(SECRET))
        arguments, *lines = (await asyncio.to_thread(shown.read_text)).splitlines()

    assert arguments.startswith("--text-info ")
    assert SECRET not in arguments
    assert lines[0] == f"Code: {SECRET}"
    assert lines[-2:] == ['Agent: bot" 1', "It is about to: wipe Code: AAAA"]  # no line of the agent's own


def test_a_code_comes_with_the_whole_call_that_it_releases() -> None:
    params = {"id": "n5", "input": {"description": "long " * 900, "price": 0.01}}
    about = msgspec.structs.replace(CHALLENGED, hint="word " * 400, operation="update_note", params=params)

    message = CodeMessage(about, VerificationCode(SECRET))

    assert json.loads(message.body())["params"] == params
    text = message.text()
    assert '"price":0.01' in text
    assert text.count("word") == 400
    assert (
        "more characters, which the desk shows"
        in CodeMessage(msgspec.structs.replace(about, hint="x" * 30_000), VerificationCode(SECRET)).text()
    )


def test_no_text_can_become_a_command_of_a_dialog() -> None:
    tricky = 'a" & (do shell script "x") \\\n$(y) \u2019; z'
    mac, windows = dialog_of("darwin", ""), dialog_of("win32", "")

    assert mac.render_input(tricky).startswith(
        'display dialog "a\\" & (do shell script \\"x\\") \\\\\\n$(y) \u2019; z" with'
    )
    assert not any(each in windows.render_input(tricky) for each in ("$(y)", "\u2019", "; z"))
    assert dialog_of("linux", "") is None


@pytest.mark.parametrize(
    "said",
    [
        {"channels": ("command",)},
        {"channels": ("webhook",)},
        {"channels": ("webhook",), "webhook": "http://pager.example/"},
        {"channels": ("webhook",), "webhook": "http://10.0.0.1/"},
        {"channels": ("webhook",), "webhook": "https://pager.example:port/"},
        {"channels": ("webhook",), "webhook": "ftp://127.0.0.1/"},
    ],
)
def test_a_channel_that_cannot_work_or_would_tell_everybody_is_refused_at_the_start(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"safety\."):
        DeliveryChannels(Safety(**said))


@pytest.mark.parametrize("url", ["https://10.0.0.1/codes", "https://pager.example/", "http://[::1]:8080/"])
def test_a_webhook_may_be_wherever_its_operator_is(url: str) -> None:
    DeliveryChannels(Safety(channels=("webhook",), webhook=url))
