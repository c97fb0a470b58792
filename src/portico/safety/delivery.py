"""Verification codes on their way to people: a dialog on this machine, a command, a webhook of the operator.

Agents read none of them: a code goes to the input of a process or into the body of a request, never into arguments, an
environment or a log. Whoever waits for a code is not kept waiting by a channel, and not told when one fails.
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
from portico.operations.webhooks import Callbacks
from portico.safety.models import Challenged, Code
from portico.telemetry import Broke, Observe, nowhere

MAX_AT_ONCE = 20  # codes under way in one channel
SECONDS = 10.0  # for a command
MAX_SHOWN = 20_000  # characters of what an agent says, in a dialog
TITLE = "Portico"

Arguments: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A code and what it is for."""

    challenged: Challenged
    code: Code

    def body(self) -> bytes:
        about = self.challenged
        said = {name: getattr(about, name) for name in ("id", "agent", "hint", "tier", "expires")}
        if about.operation:
            said |= {"operation": about.operation, "params": about.params}
        return msgspec.json.encode({**said, "code": self.code.revealed()})

    def text(self) -> str:
        """For a person. What the agent says comes last and has no lines of its own: it could look like anything."""
        about = self.challenged
        return (
            f"Code: {self.code.revealed()}\n\n"
            f"Whoever has it can let an agent go on that was stopped.\n"
            f"Challenge {about.id}, {about.tier}, until {about.expires:%H:%M:%S} UTC\n\n"
            f"Agent: {_one_line(about.agent)}\nIt is about to: {_one_line(about.hint)}\n{self._call()}"
        )

    def _call(self) -> str:
        """Return the call of this site that the step names, as a line; empty if it names none."""
        about = self.challenged
        if not about.operation:
            return ""
        params = "with parameters that it did not name" if about.params is None else _json(about.params)
        return f"It calls: {_one_line(f'{about.operation} {params}')}\n"

    @property
    def seconds(self) -> float:
        """How long the code is of any use."""
        return max((self.challenged.expires - datetime.now(UTC)).total_seconds(), 0.0)


Tell: TypeAlias = Callable[[Message], Awaitable[str]]  # gives what went wrong, in words without the code


def _one_line(text: str) -> str:
    shown = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    rest = len(shown) - MAX_SHOWN
    return shown if rest <= 0 else f"{shown[:MAX_SHOWN]} … and {rest} more characters, which the desk shows"


def _json(params: Mapping[str, Any]) -> str:
    return msgspec.json.encode(params).decode()


class Channels:
    """The channels of the site file. Each is told of a code in the background, for as long as it is of use."""

    def __init__(
        self,
        settings: Safety,
        allow_hosts: Iterable[str] = (),
        observe: Observe = nowhere,
        screen: str = "",
        ca_file: str = "",
    ) -> None:
        self._observe = observe
        own = [_checked_host(settings.webhook)] if "webhook" in settings.channels else []
        self._callbacks = Callbacks((*allow_hosts, *own), ca_file=ca_file)
        made: dict[str, Callable[[], Tell]] = {
            "dialog": lambda: partial(_show_dialog, screen),
            "command": lambda: partial(_run_command, _checked_command(settings.command)),
            "webhook": lambda: partial(_post, self._callbacks, settings.webhook),
        }
        self._tells = {name: made[name]() for name in settings.channels}
        self._under_way: dict[str, set[asyncio.Task[None]]] = {name: set() for name in self._tells}

    def show(self, challenged: Challenged, code: Code) -> None:
        """Begin to tell people of a code. That it does not arrive is observed, for whoever looks after the site."""
        for name in self._tells:
            self._begin(name, Message(challenged, code))

    async def close(self) -> None:
        """End what is under way: dialogs close, commands are stopped."""
        tasks = [each for running in self._under_way.values() for each in running]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._callbacks.close()

    def _begin(self, name: str, message: Message) -> None:
        running = self._under_way[name]
        if len(running) >= MAX_AT_ONCE:
            self._observe(Broke(f"channel {name}", "too many at once"))
            return
        task = asyncio.create_task(self._tell(name, message))
        running.add(task)
        task.add_done_callback(running.discard)

    async def _tell(self, name: str, message: Message) -> None:
        try:
            problem = await self._tells[name](message)
        except (OSError, ValueError, SiteError) as error:
            # Its words may name what was sent, and where to: neither they nor its traceback are logged.
            problem = type(error).__name__
        if problem:
            self._observe(Broke(f"channel {name}", problem))


def _checked_command(command: Arguments) -> Arguments:
    if not command:
        raise ConfigError("safety.channels names a command, but there is none", hint="Set safety.command.")
    return command


def _checked_host(url: str) -> str:
    """The host of the operator's webhook, which may be anywhere. Codes leave this machine only under TLS."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigError("safety.webhook is not an address", hint="Write https://pager.example/codes.")
    if parts.scheme == "http" and not _is_this_machine(host):
        raise ConfigError("safety.webhook is not https", hint="Codes leave this machine only over https.")
    return f"{host}:{port or {'http': 80, 'https': 443}[parts.scheme]}"


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# A command and a webhook


async def _run_command(command: Arguments, message: Message) -> str:
    status = await _run(command, message.body() + b"\n", SECONDS)
    return f"exit status {status}" if status else ""


async def _post(callbacks: Callbacks, url: str, message: Message) -> str:
    status = await callbacks.send(url, message.body(), {"Content-Type": "application/json"})
    return "" if 200 <= status < 300 else f"status {status}"


async def _run(arguments: Arguments, said: bytes, seconds: float) -> int:
    """The exit status of a process that is told something on its input. It does not outlive its time, nor the wait."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(seconds):
            await process.communicate(said)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0


# Dialogs


@dataclass(frozen=True, slots=True)
class Dialog:
    """A program that shows a text which it reads from its input."""

    arguments: Arguments
    said: Callable[[str], str]
    dismissed: frozenset[int] = frozenset({0})  # exit statuses of one that was shown


def dialog_of(platform: str, screen: str) -> Dialog | None:
    """How to show a dialog here; None where there is no screen."""
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


async def _show_dialog(screen: str, message: Message) -> str:
    dialog = dialog_of(sys.platform, screen)
    if dialog is None:
        return "no screen"
    said = dialog.said(message.text()).encode(errors="replace")
    try:
        status = await _run(dialog.arguments, said, message.seconds)
    except TimeoutError:
        return ""  # nobody has closed it, and the code has expired
    return "" if status in dialog.dismissed else f"exit status {status}"


def _applescript(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'display dialog "{quoted}" with title "{TITLE}" buttons {{"OK"}} default button 1\n'


def _powershell(text: str) -> str:
    # Nothing of the text can be taken for a command.
    encoded = base64.b64encode(text.encode(errors="replace")).decode()
    return (
        "Add-Type -AssemblyName System.Windows.Forms\n"
        f"$text = [Text.Encoding]::UTF8.GetString([Convert]::FromBase64String('{encoded}'))\n"
        f"[void][System.Windows.Forms.MessageBox]::Show($text, '{TITLE}')\n"
    )
