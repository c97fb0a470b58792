"""`portico approve`: what waits for a person, and the word of whoever sits at the machine. Decides nothing itself.

What agents say is shown on lines that begin with spaces, without control characters: it cannot look like a line of this
command. Calls are shown whole.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import msgspec
import typer

from portico.access.identity import local_operator
from portico.cli.options import JsonOption, SiteOption, StoreOption, config_of
from portico.cli.terminal import err, json_text, out, plain, print_json
from portico.config import Config
from portico.errors import BadRequest, ConfigError, NotFound
from portico.requests import Caller
from portico.safety.models import Blocked, Challenged, Decision, Pending, Waiting

if TYPE_CHECKING:
    from portico.safety.guard import Guard
    from portico.store.records import AuditEntry

LEAST: Final = 8  # characters of a token or id that are enough, if no other begins with them
BEGINNING: Final = "conf_"  # what every token begins with; it does not count
SHOWN: Final = 13  # characters of it that are shown, if that is enough
LINES: Final = 1000  # of the trail that are read at once
POLL_SECONDS: Final = 1.0
ONE_LINE: Final = 200  # characters of parameters that are shown on one line

Entry: TypeAlias = Waiting | Challenged | Blocked


def approve(
    context: typer.Context,
    token: Annotated[
        str | None,
        typer.Argument(
            help="Agree to what waits under this token; on a terminal the call is shown and asked about first.",
            show_default=False,
        ),
    ] = None,
    reject: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Refuse what waits under this token.", show_default=False)
    ] = None,
    digest: Annotated[
        str,
        typer.Option(help="Agree only if the call has this digest; then nothing is asked.", show_default=False),
    ] = "",
    note: Annotated[str, typer.Option(help="Why; it is kept in the audit trail.", show_default=False)] = "",
    code: Annotated[
        str | None, typer.Option(metavar="CHALLENGE", help="Make a fresh code and show it.", show_default=False)
    ] = None,
    print_it: Annotated[bool, typer.Option("--print", help="Show the code also where no terminal is.")] = False,
    release: Annotated[
        str | None,
        typer.Option(metavar="CHALLENGE", help="Let the agent take the step, without a code.", show_default=False),
    ] = None,
    unblock: Annotated[
        str | None,
        typer.Option(metavar="CALLER", help="Let the agents of a caller work again.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before TOKEN, --release and --unblock.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Print the audit trail.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Of the trail, only what follows this line.")] = 0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that each line of the trail follows from the one before.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show what comes, until you press Ctrl-C.")] = False,
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Agree to what agents want to do, or refuse it. Without arguments, list what waits.

    Works on the store of a site, also while a server runs on it. The beginning of a token or of the id of a challenge
    is enough: 8 characters or more, `conf_` not counted. On a terminal the whole call is shown again and asked about,
    unless `--digest` or `--yes` is given. In a script, where there is no terminal, naming the token approves the call;
    name its digest too to be sure which call that is.

        portico approve

        portico approve conf_3xJq8Zv1 --note "asked for by Ann"

        portico approve conf_3xJq8Zv1 --digest 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef

        portico approve --reject conf_3xJq8Zv1

    An agent that was about to do something dangerous is stopped until a person has given a code. `--code` makes one;
    whoever has the scope `approve` gives it at the desk or with the operation verify_challenge. Do not show it to the
    agent.

        portico approve --code 7d9e1c04

        portico approve --unblock key:2548990428d0 --note "it was a drill"
    """
    given: dict[str, Work | None] = {
        "TOKEN": partial(_approve, token, digest, note, yes) if token else None,
        "--reject": partial(_decide, reject, "reject", note, "") if reject else None,
        "--code": partial(_issue, code, print_it) if code else None,
        "--release": partial(_release, release, yes) if release else None,
        "--unblock": partial(_unblock, unblock, note, yes) if unblock else None,
        "--audit": partial(_audit, after) if audit else None,
        "--verify": _verify if verify else None,
        "--watch": _watch if watch else None,
    }
    chosen = {name: work for name, work in given.items() if work}
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} are not one thing", hint="Do one after the other.")
    config = config_of(context, site, store)
    asyncio.run(_work(next(iter(chosen.values()), _list), config, as_json))


@dataclass(frozen=True, slots=True)
class Desk:
    """Where the operator sits."""

    guard: "Guard"
    operator: Caller
    as_json: bool

    async def pending(self) -> Pending:
        return await self.guard.pending(self.operator)


Work: TypeAlias = Callable[[Desk], Awaitable[None]]


async def _work(work: Work, config: Config, as_json: bool) -> None:
    # Imported here: other commands need no catalog.
    from portico.server.assembly import opened_store_only  # noqa: PLC0415

    async with opened_store_only(config) as parts:
        await work(Desk(parts.site.guard, local_operator(), as_json))


# What waits


async def _list(desk: Desk) -> None:
    pending = await desk.pending()
    if desk.as_json:
        print_json(msgspec.to_builtins(pending))
        return
    for entry in _entries(pending):
        _show(_lines(entry, pending))
    _teach(pending)


async def _watch(desk: Desk) -> None:
    seen: set[str] = set()
    while True:
        pending = await desk.pending()
        for entry in _entries(pending):
            if _name(entry) not in seen:
                _tell(entry, pending, desk.as_json)
        seen = {_name(each) for each in _entries(pending)}
        await asyncio.sleep(POLL_SECONDS)


def _tell(entry: Entry, pending: Pending, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({type(entry).__name__.lower(): msgspec.to_builtins(entry)}) + "\n")
        sys.stdout.flush()
    else:
        _show(_lines(entry, pending))


def _entries(pending: Pending) -> Iterator[Entry]:
    yield from pending.confirmations
    yield from pending.challenges
    yield from pending.blocks


def _name(entry: Entry) -> str:
    match entry:
        case Waiting():
            return entry.token
        case Challenged():
            return entry.id
        case Blocked():
            return entry.caller


def _lines(entry: Entry, pending: Pending) -> list[str]:
    """What there is to know before one decides; nothing is cut off but the name."""
    match entry:
        case Waiting():
            short = _short(entry.token, [each.token for each in pending.confirmations])
            danger = f", {entry.danger}" if entry.danger else ""
            wants = f"{entry.name} ({entry.caller}) wants {entry.operation}{danger}, {_left(entry.expires)}"
            return [short, wants, *_params(entry), *entry.reasons, f"digest {entry.digest}"]
        case Challenged():
            short = _short(entry.id, _challenge_ids(pending))
            state = "is blocked" if entry.blocks else "is paused"
            what = f"agent {entry.agent} of {entry.caller} {state} before: {entry.hint}"
            return [short, what, *_step_call(entry), f"{entry.tier}, {_left(entry.expires)}", *entry.reasons]
        case Blocked():
            since = f"since {entry.since.astimezone():%Y-%m-%d %H:%M:%S}, challenge {entry.verification_id}"
            return [entry.caller, f"agent {entry.agent} is blocked: {entry.reason}", since]


def _params(waiting: Waiting) -> list[str]:
    return _json_lines(waiting.params)


def _step_call(challenged: Challenged) -> list[str]:
    """Return the call that a step names, if it names one."""
    if not challenged.operation:
        return []
    named = challenged.params is not None
    shown = _json_lines(challenged.params) if named else ["its parameters are not named"]
    return [f"calls {challenged.operation}", *shown]


def _json_lines(params: Any) -> list[str]:
    """Return parameters as the lines of one JSON text: nothing is left out, and short values come first."""
    ordered = _short_first(params)
    text = json_text(ordered)
    return [text] if len(text) <= ONE_LINE else json_text(ordered, 2).splitlines()


def _short_first(value: Any) -> Any:
    match value:
        case dict():
            items = [(name, _short_first(part)) for name, part in cast("dict[str, Any]", value).items()]
            return dict(sorted(items, key=lambda item: len(json.dumps(item[1]))))
        case list():
            return [_short_first(part) for part in cast("list[Any]", value)]
        case _:
            return value


def _show(lines: Sequence[str]) -> None:
    name, first, *others = map(_line, lines)
    out.print(f"[bold]{name}[/]  {first}", highlight=False, soft_wrap=True)
    for each in others:
        out.print(f"    {each}", highlight=False, soft_wrap=True)


def _left(expires: datetime) -> str:
    seconds = round((expires - datetime.now(UTC)).total_seconds())
    if seconds <= 0:
        return "expired"
    return f"{seconds} s left" if seconds < 120 else f"{seconds // 60} min left"


def _teach(pending: Pending) -> None:
    """How to go on from here."""
    if pending.confirmations:
        _say("Agree with `portico approve TOKEN`; refuse with `portico approve --reject TOKEN`.")
    if pending.challenges:
        _say("Get a code with `portico approve --code CHALLENGE`; `--release CHALLENGE` needs none.")
    if pending.blocks:
        _say("Let a caller work again with `portico approve --unblock CALLER`.")
    if not any(_entries(pending)):
        _say("Nothing waits. `portico approve --watch` shows what comes.")


# Deciding


async def _approve(given: str, digest: str, note: str, is_sure: bool, desk: Desk) -> None:
    """Agree to a call: to the one that has this digest, or to the one that is shown here and agreed to."""
    pending = await desk.pending()
    token = _found(given, [each.token for each in pending.confirmations])
    waiting = next((each for each in pending.confirmations if each.token == token), None)
    if waiting and not digest:
        _ask(_lines(waiting, pending)[1:], "Approve this call?", is_sure or not sys.stdin.isatty())
        digest = waiting.digest
    await _decide(token, "approve", note, digest, desk)


async def _decide(given: str, decision: Decision, note: str, digest: str, desk: Desk) -> None:
    token = _found(given, [each.token for each in (await desk.pending()).confirmations])
    decided = await desk.guard.confirm(token, decision, note, desk.operator, digest=digest)
    if desk.as_json:
        print_json(msgspec.to_builtins(decided))
        return
    says = "may do this once" if decision == "approve" else "may not do this"
    _say(f"{decided.name} ({decided.caller}) {says}: {decided.operation} {json_text(decided.params)}")


async def _issue(given: str, print_it: bool, desk: Desk) -> None:
    if not print_it and not sys.stdout.isatty():
        raise ConfigError("A code is for the eyes of a person", hint="Use a terminal, or --print if that is meant.")
    id = _found(given, _challenge_ids(await desk.pending()))
    challenged, code = await desk.guard.reissue(id, desk.operator)
    if desk.as_json:
        print_json({"challenge": msgspec.to_builtins(challenged), "code": code.revealed()})
        return
    out.print(code.revealed(), highlight=False, soft_wrap=True)
    _say(f"For challenge {challenged.id}: agent {challenged.agent}, about to: {challenged.hint}")
    _say(f"Good once, {_left(challenged.expires)}. Codes for it from before are void.")


async def _release(given: str, is_sure: bool, desk: Desk) -> None:
    """Make a code and give it at once: the word of whoever sits at the machine is enough."""
    pending = await desk.pending()
    id = _found(given, _challenge_ids(pending))
    about = [_lines(each, pending)[1:] for each in pending.challenges if each.id == id]
    _ask(about[0] if about else [f"Challenge {id}"], "Let it go on?", is_sure)
    _, code = await desk.guard.reissue(id, desk.operator)
    released = await desk.guard.verify(id, code.revealed(), desk.operator)
    if desk.as_json:
        print_json(msgspec.to_builtins(released))
    else:
        _say(f"Agent {released.agent} may go on, and take this step once: {released.hint}")


async def _unblock(caller: str, note: str, is_sure: bool, desk: Desk) -> None:
    block = next((each for each in (await desk.pending()).blocks if each.caller == caller), None)
    if block is None:
        raise NotFound(f"{caller!r} is not blocked", hint="`portico approve` lists who is.")
    _ask([f"Agent {block.agent} is blocked: {block.reason}"], "Let it work again?", is_sure)
    await desk.guard.unblock(caller, note, desk.operator)
    if desk.as_json:
        print_json({"unblocked": caller})
    else:
        _say(f"The agents of {caller} may work again.")


def _ask(about: Iterable[str], question: str, is_sure: bool) -> None:
    if not is_sure:
        for line in about:
            err.print(f"    {_line(line)}", highlight=False, soft_wrap=True)
        typer.confirm(question, abort=True, err=True)


def _challenge_ids(pending: Pending) -> list[str]:
    named = [*(each.id for each in pending.challenges), *(each.verification_id for each in pending.blocks)]
    return list(dict.fromkeys(named))


def _found(given: str, names: Sequence[str]) -> str:
    """The one name that begins so. What begins no name is taken for one, so that it is told what became of it."""
    if given in names:
        return given
    if len(given.removeprefix(BEGINNING)) < LEAST:
        raise BadRequest(f"{given!r} is too short", hint=f"Give at least {LEAST} characters, {BEGINNING} not counted.")
    matching = [each for each in names if each.startswith(given)]
    if len(matching) > 1:
        raise BadRequest(f"{len(matching)} begin with {given!r}", hint="Give more of it.")
    return matching[0] if matching else given


def _short(name: str, names: Iterable[str]) -> str:
    others = [each for each in names if each != name]
    sizes = range(SHOWN, len(name))
    return next((name[:size] for size in sizes if not any(each.startswith(name[:size]) for each in others)), name)


# The audit trail


async def _audit(after: int, desk: Desk) -> None:
    lines = [line async for line in _trail(after, desk)]
    if desk.as_json:
        print_json(msgspec.to_builtins(lines))
        return
    for line in lines:
        body = json.dumps(msgspec.to_builtins(line.body), ensure_ascii=False)
        said = f"{line.seq} {line.at.astimezone():%Y-%m-%d %H:%M:%S} {line.event} {body}"
        out.print(_line(said), highlight=False, soft_wrap=True)


async def _trail(after: int, desk: Desk) -> "AsyncIterator[AuditEntry]":
    while lines := await desk.guard.trail(after, LINES, desk.operator):
        for line in lines:
            yield line
        after = lines[-1].seq


async def _verify(desk: Desk) -> None:
    problems = await desk.guard.check_trail()
    if desk.as_json:
        print_json({"well": not problems, "problems": problems})
    else:
        for each in problems or ["Each line of the audit trail follows from the one before."]:
            out.print(_line(each), highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def _say(text: str) -> None:
    err.print(f"[dim]{_line(text)}[/]", highlight=False, soft_wrap=True)


def _line(text: str) -> str:
    """Return text of unknown origin as a part of one line. Spaces stay: they are part of what is approved."""
    return plain(" ".join(text.splitlines()))
