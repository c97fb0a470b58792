"""Tasks, keys and lines of the trail as they are stored: what goes into a column, what into the record beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from portico.calls import Call, Caller, Priority, Task, TaskState, Warrant
from portico.catalog import Danger, Trust
from portico.errors import Conflict, KeyInUse
from portico.identity import Key
from portico.store import Line, link

PATIENT_MICROS = 60_000_000  # that a task waits until it counts as one of high priority
TASK_COLUMNS = "id, caller, meter, state, rank, created, task"
KEPT_COLUMNS = "scope, digest, task, result, expires, owner, lease, reason"
CASE_COLUMNS = "kind, id, data, version, expires"
LINE_COLUMNS = "seq, at, event, body, before, digest"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RANKS: dict[Priority, int] = {"high": 0, "normal": 1, "low": 2}


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def encode_task(task: Task) -> str:
    return msgspec.json.encode(task, order="deterministic").decode()


def task_row(task: Task) -> tuple[str, str, str, str, int, int, str]:
    """A task as it is first stored: its TASK_COLUMNS."""
    caller, rank = task.caller, _RANKS[task.call.priority]
    return task.id, caller.id, caller.rate_key, task.state.value, rank, micros(task.created), encode_task(task)


def decode_task(raw: str, *, cancelling: bool) -> Task:
    stored = msgspec.json.decode(raw)
    return Task(
        id=stored["id"],
        call=Call(**stored["call"]),
        caller=_caller(stored["caller"]),
        state=TaskState(stored["state"]),
        created=datetime.fromisoformat(stored["created"]),
        updated=datetime.fromisoformat(stored["updated"]),
        progress=stored["progress"],
        message=stored["message"],
        result=stored["result"],
        error=stored["error"],
        attempts=stored["attempts"],
        estimate=stored["estimate"],
        saved=stored["saved"],
        cancelling=cancelling,
    )


def renewed(task: Task, call: Call, at: datetime) -> Task:
    """A task that failed, to be tried again as if it never had been."""
    return replace(
        task,
        call=call,
        state=TaskState.PENDING,
        updated=at,
        progress=0.0,
        message="",
        error=None,
        attempts=0,
        saved=None,
    )


def key_in_use() -> KeyInUse:
    return KeyInUse("Another call has taken over this idempotency key", hint="Repeat the call to get its result.")


def encode_key(key: Key) -> str:
    return msgspec.json.encode(key, order="deterministic").decode()


def decode_key(raw: str, revoked: int | None) -> Key:
    stored = msgspec.json.decode(raw)
    return Key(
        id=stored["id"],
        name=stored["name"],
        digest=stored["digest"],
        scopes=frozenset(stored["scopes"]),
        danger=Danger(stored["danger"]),
        created=datetime.fromisoformat(stored["created"]),
        expires=datetime.fromisoformat(stored["expires"]) if stored["expires"] else None,
        revoked=moment(revoked) if revoked is not None else None,
        trust=Trust(stored.get("trust", Trust.VALIDATED)),
        until=datetime.fromisoformat(stored["until"]) if stored.get("until") else None,
    )


def superseded(key: Key, until: datetime) -> Key | None:
    """The same once another has taken its place; None if one has already, or it was revoked."""
    return None if key.revoked or key.until else replace(key, until=until)


class LeaseLost(Exception):
    """A key or a task is no longer its owner's, so that nothing of the transaction is kept."""


class Overtaken(Exception):
    """A case is not of the version that a decision was made on, so that none of the decision is kept."""


def following(seq: int, before: str, at: datetime, told: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Line]:
    """What happened, as lines that follow the one with this number and digest."""
    for number, (event, body) in enumerate(told, seq + 1):
        digest = link(before, number, at, event, body)
        # As it is read again: a moment is text by then, and a tuple a list.
        yield Line(number, at, event, msgspec.json.decode(_text(body)), before, digest)
        before = digest


def line_row(line: Line) -> tuple[int, int, str, str, str, str]:
    """A line's LINE_COLUMNS."""
    return line.seq, micros(line.at), line.event, _text(line.body), line.before, line.digest


def read_line(seq: int, at: int, event: str, body: str, before: str, digest: str) -> Line:
    return Line(seq, moment(at), event, msgspec.json.decode(body), before, digest)


def is_new(line: Line, there: Mapping[int, str]) -> bool:
    """Whether a trail lacks this line and goes on with it. `there`: the digests of it and of the one before, if any."""
    if there.get(line.seq) == line.digest:
        return False
    last = "" if line.seq == 1 else there.get(line.seq - 1)
    if line.seq in there or line.before != last:
        raise Conflict(
            f"Line {line.seq} does not go on with the audit trail that is there",
            hint="A trail is continued only by the site that began it. Copy into an empty store; if it was empty,"
            " lines are missing where they come from.",
            seq=line.seq,
        )
    return True


def _text(body: Mapping[str, Any]) -> str:
    return msgspec.json.encode(dict(body), order="sorted").decode()


def _caller(stored: dict[str, Any]) -> Caller:
    return Caller(
        stored["id"],
        stored["name"],
        frozenset(stored["scopes"]),
        Danger(stored["danger"]),
        stored["address"],
        msgspec.convert(stored.get("warrant"), Warrant | None),
        Trust(stored.get("trust", Trust.VALIDATED)),
        stored.get("user", ""),
    )
