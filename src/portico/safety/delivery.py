"""Delivers verification codes to people: by a dialog on this machine, a command, or a webhook of the operator.

Agents cannot read them: a code goes to the standard input of a process or into the body of a request, never into
arguments, an environment or a log. Delivery runs in the background, and its failures are only recorded.
"""

import asyncio
import base64
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec

from portico.config import Safety
from portico.errors import ConfigError, SiteError
from portico.operations.webhooks import WebhookClient
from portico.safety.models import PendingChallenge, VerificationCode
from portico.telemetry import Recorder, UnexpectedError, discard

MAX_AT_ONCE = 20  # deliveries at once in one channel
COMMAND_SECONDS = 10.0  # for a command
MAX_SHOWN = 20_000  # characters of an agent's text in a dialog
TITLE = "Portico"

Arguments: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CodeMessage:
    """A code and the challenge it is for."""

    challenge: PendingChallenge
    code: VerificationCode

    def body(self) -> bytes:
        challenge = self.challenge
        values = {name: getattr(challenge, name) for name in ("id", "agent", "hint", "tier", "expires")}
        if challenge.operation:
            values |= {"operation": challenge.operation, "params": challenge.params}
        return msgspec.json.encode({**values, "code": self.code.reveal()})

    def text(self) -> str:
        """Return the text for a person. The agent's words come last, on one line, since they could imitate anything."""
        challenge = self.challenge
        return (
            f"Code: {self.code.reveal()}\n\n"
            f"This code releases an agent that was stopped.\n"
            f"Challenge {challenge.id}, {challenge.tier}, until {challenge.expires:%H:%M:%S} UTC\n\n"
            f"Agent: {_one_line(challenge.agent)}\nIt is about to: {_one_line(challenge.hint)}\n{self._call_line()}"
        )

    def _call_line(self) -> str:
        """Return a line with the call of this site that the step names; empty if it names none."""
        challenge = self.challenge
        if not challenge.operation:
            return ""
        params = "with unknown parameters" if challenge.params is None else _json(challenge.params)
        return f"It calls: {_one_line(f'{challenge.operation} {params}')}\n"

    @property
    def seconds(self) -> float:
        """The seconds for which the code is still valid."""
        return max((self.challenge.expires - datetime.now(UTC)).total_seconds(), 0.0)


Sender: TypeAlias = Callable[
    [CodeMessage], Awaitable[str]
]  # returns what went wrong, without the code; empty on success


def _one_line(text: str) -> str:
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    rest = len(line) - MAX_SHOWN
    return line if rest <= 0 else f"{line[:MAX_SHOWN]} … and {rest} more characters, which the desk shows"


def _json(params: Mapping[str, Any]) -> str:
    return msgspec.json.encode(params).decode()


class DeliveryChannels:
    """The channels of the site file. Codes are delivered in the background for as long as they are valid."""

    def __init__(
        self,
        settings: Safety,
        allow_hosts: Iterable[str] = (),
        record: Recorder = discard,
        screen: str = "",
        ca_file: str = "",
    ) -> None:
        self._record = record
        own_hosts = [check_webhook(settings.webhook)] if "webhook" in settings.channels else []
        self._callbacks = WebhookClient((*allow_hosts, *own_hosts), ca_file=ca_file)
        factories: dict[str, Callable[[], Sender]] = {
            "dialog": lambda: partial(_show_dialog, screen),
            "command": lambda: partial(_run_command, check_command(settings.command)),
            "webhook": lambda: partial(_post, self._callbacks, settings.webhook),
        }
        self._senders = {name: factories[name]() for name in settings.channels}
        self._tasks: dict[str, set[asyncio.Task[None]]] = {name: set() for name in self._senders}

    def deliver(self, challenge: PendingChallenge, code: VerificationCode) -> None:
        """Start to deliver a code through every channel. Failures are recorded for the operator."""
        for name in self._senders:
            self._begin(name, CodeMessage(challenge, code))

    async def close(self) -> None:
        """Cancel running deliveries: dialogs close, commands are stopped."""
        tasks = [task for running in self._tasks.values() for task in running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._callbacks.close()

    def _begin(self, name: str, message: CodeMessage) -> None:
        running = self._tasks[name]
        if len(running) >= MAX_AT_ONCE:
            self._record(UnexpectedError(f"channel {name}", "too many at once"))
            return
        task = asyncio.create_task(self._deliver(name, message))
        running.add(task)
        task.add_done_callback(running.discard)

    async def _deliver(self, name: str, message: CodeMessage) -> None:
        try:
            problem = await self._senders[name](message)
        except (OSError, ValueError, SiteError) as error:
            # The message may contain what was sent, and where: neither it nor the traceback is logged.
            problem = type(error).__name__
        if problem:
            self._record(UnexpectedError(f"channel {name}", problem))


def check_command(command: Arguments) -> Arguments:
    if not command:
        raise ConfigError(
            "`safety.channels` has `command`, but `safety.command` is empty", hint="Set `safety.command`."
        )
    return command


def check_webhook(url: str) -> str:
    """Return the host of the operator's webhook. Codes may leave this machine only over TLS."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigError("`safety.webhook` is not a URL", hint="Example: https://pager.example/codes")
    if parts.scheme == "http" and not _is_this_machine(host):
        raise ConfigError("`safety.webhook` is not an https URL", hint="Codes may leave this machine only over https.")
    return f"{host}:{port or {'http': 80, 'https': 443}[parts.scheme]}"


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Commands and webhooks


async def _run_command(command: Arguments, message: CodeMessage) -> str:
    status = await _run(command, message.body() + b"\n", COMMAND_SECONDS)
    return f"exit status {status}" if status else ""


async def _post(callbacks: WebhookClient, url: str, message: CodeMessage) -> str:
    status = await callbacks.send(url, message.body(), {"Content-Type": "application/json"})
    return "" if 200 <= status < 300 else f"status {status}"


async def _run(arguments: Arguments, stdin: bytes, seconds: float) -> int:
    """Run a process with some input and return its exit status. It is killed on timeout and on cancellation."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            await process.communicate(stdin)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0


# Dialogs


@dataclass(frozen=True, slots=True)
class Dialog:
    """A program that shows a text from its standard input."""

    arguments: Arguments
    render_input: Callable[[str], str]
    closed_statuses: frozenset[int] = frozenset({0})  # exit statuses of a dialog that was shown


def dialog_of(platform: str, screen: str) -> Dialog | None:
    """Return how to show a dialog on this platform; None without a screen."""
    match platform:
        case "darwin":
            return Dialog(("osascript", "-"), _applescript)
        case "win32":
            return Dialog(("powershell", "-NoProfile", "-Command", "-"), _powershell)
        case _ if screen:
            window = ("--text-info", f"--title={TITLE}", "--width=640", "--height=320")
            return Dialog(("zenity", *window), str, frozenset({0, 1}))
        case _:
            return None


async def _show_dialog(screen: str, message: CodeMessage) -> str:
    dialog = dialog_of(sys.platform, screen)
    if dialog is None:
        return "no screen"
    stdin = dialog.render_input(message.text()).encode(errors="replace")
    try:
        status = await _run(dialog.arguments, stdin, message.seconds)
    except TimeoutError:
        return ""  # the code has expired, and nobody has closed the dialog
    return "" if status in dialog.closed_statuses else f"exit status {status}"


def _applescript(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'display dialog "{quoted}" with title "{TITLE}" buttons {{"OK"}} default button 1\n'


def _powershell(text: str) -> str:
    # Encoded, no part of the text can be read as a command.
    encoded = base64.b64encode(text.encode(errors="replace")).decode()
    return (
        "Add-Type -AssemblyName System.Windows.Forms\n"
        f"$text = [Text.Encoding]::UTF8.GetString([Convert]::FromBase64String('{encoded}'))\n"
        f"[void][System.Windows.Forms.MessageBox]::Show($text, '{TITLE}')\n"
    )
