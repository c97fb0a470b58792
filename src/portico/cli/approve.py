"""The command `portico approve`: lists what needs an operator's decision, and carries the decision out.

Text from agents is printed on indented lines, without control characters, so that it cannot pass for a line of this
command. Calls are printed in full.
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
from portico.cli.options import JsonOption, SiteOption, StoreOption
from portico.cli.sites import load_config
from portico.cli.terminal import err, json_text, out, plain, print_json
from portico.config import Config
from portico.errors import BadRequest, ConfigError, NotFound
from portico.requests import Caller
from portico.safety.models import BlockedAgent, Decision, PendingChallenge, PendingConfirmation, PendingItems

if TYPE_CHECKING:
    from portico.safety.supervision import Supervision
    from portico.store.records import AuditEntry

MIN_PREFIX: Final = 8  # characters of a token or id that suffice if they are unambiguous
CONFIRMATION_PREFIX: Final = "conf_"  # every token begins with it, so it does not count
SHORT_LENGTH: Final = 13  # characters of a token that are printed if they are unambiguous
TRAIL_PAGE_SIZE: Final = 1000  # entries of the audit trail per read
POLL_SECONDS: Final = 1.0
MAX_ONE_LINE: Final = 200  # characters of parameters that are printed on one line

PendingEntry: TypeAlias = PendingConfirmation | PendingChallenge | BlockedAgent
_JSON_NAMES: Final = {PendingConfirmation: "waiting", PendingChallenge: "challenged", BlockedAgent: "blocked"}


def approve(
    token: Annotated[
        str | None,
        typer.Argument(
            help="Approve the call with this token. On a terminal, the call is shown for confirmation first.",
            show_default=False,
        ),
    ] = None,
    reject: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Reject the call with this token.", show_default=False)
    ] = None,
    digest: Annotated[
        str,
        typer.Option(help="Approve only if the call has this digest, without confirmation.", show_default=False),
    ] = "",
    note: Annotated[str, typer.Option(help="Reason, for the audit trail.", show_default=False)] = "",
    code: Annotated[
        str | None, typer.Option(metavar="CHALLENGE", help="Print a new code for this challenge.", show_default=False)
    ] = None,
    print_it: Annotated[
        bool, typer.Option("--print", help="Print the code even if the output is not a terminal.")
    ] = False,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="CHALLENGE", help="Let the agent of this challenge continue, without a code.", show_default=False
        ),
    ] = None,
    unblock: Annotated[
        str | None,
        typer.Option(metavar="CALLER", help="Unblock the agents of this caller.", show_default=False),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Skip the confirmation of TOKEN, --release and --unblock.")
    ] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Print the audit trail.")] = False,
    after: Annotated[int, typer.Option(min=0, help="With --audit, print only the entries after this number.")] = 0,
    verify: Annotated[bool, typer.Option("--verify", help="Verify the hash chain of the audit trail.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Print new requests until you press Ctrl-C.")] = False,
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve or reject what agents want to do. Without arguments, list what is waiting.

    Works on the store of a site, even while a server is running. A token or challenge ID may be shortened to its first
    8 characters, not counting `conf_`. On a terminal, the call is shown in full for confirmation, unless you use
    `--digest` or `--yes`. Without a terminal, as in a script, there is no confirmation; use `--digest` to be sure to
    approve the call that you have seen.

        portico approve

        portico approve conf_3xJq8Zv1 --note "asked for by Ann"

        portico approve conf_3xJq8Zv1 --digest 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef

        portico approve --reject conf_3xJq8Zv1

    An agent that was about to do something dangerous is paused until a person enters a code. `--code` prints one; enter
    it on the page /desk or with the operation verify_challenge, which need the scope `approve`. Never show it to the
    agent.

        portico approve --code 7d9e1c04

        portico approve --unblock key:2548990428d0 --note "it was a drill"
    """
    choices: dict[str, Action | None] = {
        "TOKEN": partial(_approve, token, digest, note, yes) if token else None,
        "--reject": partial(_decide, reject, "reject", note, "") if reject else None,
        "--code": partial(_issue, code, print_it) if code else None,
        "--release": partial(_release, release, yes) if release else None,
        "--unblock": partial(_unblock, unblock, note, yes) if unblock else None,
        "--audit": partial(_audit, after) if audit else None,
        "--verify": _verify if verify else None,
        "--watch": _watch if watch else None,
    }
    chosen = {name: work for name, work in choices.items() if work}
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} cannot be combined", hint="Run them one after the other.")
    config = load_config(site, store)
    asyncio.run(_run(next(iter(chosen.values()), _list), config, as_json))


@dataclass(frozen=True, slots=True)
class ApprovalContext:
    """What an action of the operator works on."""

    supervision: "Supervision"
    operator: Caller
    as_json: bool

    async def load_pending(self) -> PendingItems:
        return await self.supervision.pending(self.operator)


Action: TypeAlias = Callable[[ApprovalContext], Awaitable[None]]


async def _run(action: Action, config: Config, as_json: bool) -> None:
    # Imported here: other commands need no catalog.
    from portico.server.assembly import open_site_without_index

    async with open_site_without_index(config) as parts:
        await action(ApprovalContext(parts.site.supervision, local_operator(), as_json))


# Requests that are waiting


async def _list(context: ApprovalContext) -> None:
    pending = await context.load_pending()
    if context.as_json:
        print_json(msgspec.to_builtins(pending))
        return
    for entry in _entries(pending):
        _print_lines(_lines(entry, pending))
    _print_next_steps(pending)


async def _watch(context: ApprovalContext) -> None:
    names: set[str] = set()
    while True:
        pending = await context.load_pending()
        for entry in _entries(pending):
            if _name(entry) not in names:
                _print_entry(entry, pending, context.as_json)
        names = {_name(item) for item in _entries(pending)}
        await asyncio.sleep(POLL_SECONDS)


def _print_entry(entry: PendingEntry, pending: PendingItems, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({_JSON_NAMES[type(entry)]: msgspec.to_builtins(entry)}) + "\n")
        sys.stdout.flush()
    else:
        _print_lines(_lines(entry, pending))


def _entries(pending: PendingItems) -> Iterator[PendingEntry]:
    yield from pending.confirmations
    yield from pending.challenges
    yield from pending.blocks


def _name(entry: PendingEntry) -> str:
    match entry:
        case PendingConfirmation():
            return entry.token
        case PendingChallenge():
            return entry.id
        case BlockedAgent():
            return entry.caller


def _lines(entry: PendingEntry, pending: PendingItems) -> list[str]:
    """Return all that the operator needs to decide. Only the token is shortened."""
    match entry:
        case PendingConfirmation():
            short = _short(entry.token, [item.token for item in pending.confirmations])
            danger = f", {entry.danger}" if entry.danger else ""
            wants = f"{entry.name} ({entry.caller}) wants {entry.operation}{danger}, {_time_left(entry.expires)}"
            return [short, wants, *_params(entry), *entry.reasons, f"digest {entry.digest}"]
        case PendingChallenge():
            short = _short(entry.id, _challenge_ids(pending))
            state = "is blocked" if entry.blocks else "is paused"
            what = f"agent {entry.agent} of {entry.caller} {state} before: {entry.hint}"
            return [short, what, *_step_call(entry), f"{entry.tier}, {_time_left(entry.expires)}", *entry.reasons]
        case BlockedAgent():
            since = f"since {entry.since.astimezone():%Y-%m-%d %H:%M:%S}, challenge {entry.verification_id}"
            return [entry.caller, f"agent {entry.agent} is blocked: {entry.reason}", since]


def _params(waiting: PendingConfirmation) -> list[str]:
    return _json_lines(waiting.params)


def _step_call(challenged: PendingChallenge) -> list[str]:
    """Return the call that a step names, if it names one."""
    if not challenged.operation:
        return []
    has_params = challenged.params is not None
    lines = _json_lines(challenged.params) if has_params else ["its parameters are unknown"]
    return [f"calls {challenged.operation}", *lines]


def _json_lines(params: Any) -> list[str]:
    """Return parameters as the lines of one JSON text: nothing is left out, and short values come first."""
    ordered = _short_first(params)
    text = json_text(ordered)
    return [text] if len(text) <= MAX_ONE_LINE else json_text(ordered, 2).splitlines()


def _short_first(value: Any) -> Any:
    match value:
        case dict():
            items = [(name, _short_first(part)) for name, part in cast("dict[str, Any]", value).items()]
            return dict(sorted(items, key=lambda item: len(json.dumps(item[1]))))
        case list():
            return [_short_first(part) for part in cast("list[Any]", value)]
        case _:
            return value


def _print_lines(lines: Sequence[str]) -> None:
    name, first, *others = map(_line, lines)
    out.print(f"[bold]{name}[/]  {first}", highlight=False, soft_wrap=True)
    for line in others:
        out.print(f"    {line}", highlight=False, soft_wrap=True)


def _time_left(expires: datetime) -> str:
    seconds = round((expires - datetime.now(UTC)).total_seconds())
    if seconds <= 0:
        return "expired"
    return f"{seconds} s left" if seconds < 120 else f"{seconds // 60} min left"


def _print_next_steps(pending: PendingItems) -> None:
    """Print the commands that decide what is waiting."""
    if pending.confirmations:
        _print_note("Approve with `portico approve TOKEN`; reject with `portico approve --reject TOKEN`.")
    if pending.challenges:
        _print_note(
            "Get a code with `portico approve --code CHALLENGE`, or continue without one with `--release CHALLENGE`."
        )
    if pending.blocks:
        _print_note("Unblock a caller with `portico approve --unblock CALLER`.")
    if not any(_entries(pending)):
        _print_note("Nothing is waiting. `portico approve --watch` prints new requests.")


# Deciding


async def _approve(prefix: str, digest: str, note: str, skip_prompt: bool, context: ApprovalContext) -> None:
    """Approve the call with this digest, or the one that is printed and confirmed here."""
    pending = await context.load_pending()
    token = _resolve_prefix(prefix, [item.token for item in pending.confirmations])
    waiting = next((item for item in pending.confirmations if item.token == token), None)
    if waiting and not digest:
        _ask(_lines(waiting, pending)[1:], "Approve this call?", skip_prompt or not sys.stdin.isatty())
        digest = waiting.digest
    await _decide(token, "approve", note, digest, context)


async def _decide(prefix: str, decision: Decision, note: str, digest: str, context: ApprovalContext) -> None:
    token = _resolve_prefix(prefix, [item.token for item in (await context.load_pending()).confirmations])
    decided = await context.supervision.confirm(token, decision, note, context.operator, digest=digest)
    if context.as_json:
        print_json(msgspec.to_builtins(decided))
        return
    says = "may make this call once" if decision == "approve" else "may not make this call"
    _print_note(f"{decided.name} ({decided.caller}) {says}: {decided.operation} {json_text(decided.params)}")


async def _issue(prefix: str, print_it: bool, context: ApprovalContext) -> None:
    if not print_it and not sys.stdout.isatty():
        raise ConfigError("A code is printed on a terminal only", hint="Add --print to print it anyway.")
    id = _resolve_prefix(prefix, _challenge_ids(await context.load_pending()))
    challenged, code = await context.supervision.reissue(id, context.operator)
    if context.as_json:
        print_json({"challenge": msgspec.to_builtins(challenged), "code": code.reveal()})
        return
    out.print(code.reveal(), highlight=False, soft_wrap=True)
    _print_note(f"For challenge {challenged.id}: agent {challenged.agent} is about to: {challenged.hint}")
    _print_note(f"Valid once, {_time_left(challenged.expires)}. Earlier codes for this challenge are void.")


async def _release(prefix: str, skip_prompt: bool, context: ApprovalContext) -> None:
    """Issue a code and enter it at once, since the operator of the machine needs no further proof."""
    pending = await context.load_pending()
    id = _resolve_prefix(prefix, _challenge_ids(pending))
    about = [_lines(item, pending)[1:] for item in pending.challenges if item.id == id]
    _ask(about[0] if about else [f"Challenge {id}"], "Let it continue?", skip_prompt)
    _, code = await context.supervision.reissue(id, context.operator)
    released = await context.supervision.verify(id, code.reveal(), context.operator)
    if context.as_json:
        print_json(msgspec.to_builtins(released))
    else:
        _print_note(f"Agent {released.agent} may continue, and take this step once: {released.hint}")


async def _unblock(caller: str, note: str, skip_prompt: bool, context: ApprovalContext) -> None:
    block = next((item for item in (await context.load_pending()).blocks if item.caller == caller), None)
    if block is None:
        raise NotFound(f"{caller!r} is not blocked", hint="`portico approve` lists the blocked callers.")
    _ask([f"Agent {block.agent} is blocked: {block.reason}"], "Unblock it?", skip_prompt)
    await context.supervision.unblock(caller, note, context.operator)
    if context.as_json:
        print_json({"unblocked": caller})
    else:
        _print_note(f"The agents of {caller} are unblocked.")


def _ask(about: Iterable[str], question: str, skip_prompt: bool) -> None:
    if not skip_prompt:
        for line in about:
            err.print(f"    {_line(line)}", highlight=False, soft_wrap=True)
        typer.confirm(question, abort=True, err=True)


def _challenge_ids(pending: PendingItems) -> list[str]:
    ids = [*(item.id for item in pending.challenges), *(item.verification_id for item in pending.blocks)]
    return list(dict.fromkeys(ids))


def _resolve_prefix(prefix: str, names: Sequence[str]) -> str:
    """Return the only name with this prefix. A prefix of none is returned as it is, for an error that names it."""
    if prefix in names:
        return prefix
    if len(prefix.removeprefix(CONFIRMATION_PREFIX)) < MIN_PREFIX:
        raise BadRequest(
            f"{prefix!r} is too short",
            hint=f"Use {MIN_PREFIX} characters or more, not counting {CONFIRMATION_PREFIX}.",
        )
    matching = [name for name in names if name.startswith(prefix)]
    if len(matching) > 1:
        raise BadRequest(f"{prefix!r} is ambiguous: {len(matching)} begin with it", hint="Use more of its characters.")
    return matching[0] if matching else prefix


def _short(name: str, names: Iterable[str]) -> str:
    others = [other for other in names if other != name]
    sizes = range(SHORT_LENGTH, len(name))
    return next((name[:size] for size in sizes if not any(other.startswith(name[:size]) for other in others)), name)


# The audit trail


async def _audit(after: int, context: ApprovalContext) -> None:
    lines = [line async for line in _trail(after, context)]
    if context.as_json:
        print_json(msgspec.to_builtins(lines))
        return
    for line in lines:
        body = json.dumps(msgspec.to_builtins(line.body), ensure_ascii=False)
        text = f"{line.seq} {line.at.astimezone():%Y-%m-%d %H:%M:%S} {line.event} {body}"
        out.print(_line(text), highlight=False, soft_wrap=True)


async def _trail(after: int, context: ApprovalContext) -> "AsyncIterator[AuditEntry]":
    while lines := await context.supervision.trail(after, TRAIL_PAGE_SIZE, context.operator):
        for line in lines:
            yield line
        after = lines[-1].seq


async def _verify(context: ApprovalContext) -> None:
    problems = await context.supervision.check_trail()
    if context.as_json:
        print_json({"well": not problems, "problems": problems})
    else:
        for problem in problems or ["The audit trail is complete and unchanged."]:
            out.print(_line(problem), highlight=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)


def _print_note(text: str) -> None:
    err.print(f"[dim]{_line(text)}[/]", highlight=False, soft_wrap=True)


def _line(text: str) -> str:
    """Return untrusted text on one line. Spaces stay: they are part of what is approved."""
    return plain(" ".join(text.splitlines()))
