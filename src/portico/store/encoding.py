"""How times, tasks, keys and audit entries are stored: what goes into a column, and what into the JSON beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from portico.access.identity import ApiKey
from portico.catalog import Danger, Trust
from portico.requests import Call, Caller, Priority, Task, TaskState, Warrant
from portico.store.records import AuditEntry, AuditEvent, audit_digest

TASK_COLUMNS = "id, caller, meter, state, rank, created, task"
AUDIT_COLUMNS = "seq, at, event, body, before, digest"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RANKS: dict[Priority, int] = {"high": 0, "normal": 1, "low": 2}


def to_micros(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def from_micros(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def encode_task(task: Task) -> str:
    return msgspec.json.encode(task, order="deterministic").decode()


def task_row(task: Task) -> tuple[str, str, str, str, int, int, str]:
    """Return the TASK_COLUMNS of a task as it is first stored."""
    caller, rank = task.caller, _RANKS[task.call.priority]
    return task.id, caller.id, caller.rate_key, task.state.value, rank, to_micros(task.created), encode_task(task)


def decode_task(raw: str, cancelling: bool) -> Task:
    stored = msgspec.json.decode(raw)
    return Task(
        id=stored["id"],
        call=Call(**stored["call"]),
        caller=_decode_caller(stored["caller"]),
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
        cancelling=bool(cancelling),
    )


def encode_key(key: ApiKey) -> str:
    return msgspec.json.encode(key, order="deterministic").decode()


def decode_key(raw: str, revoked: int | None) -> ApiKey:
    stored = msgspec.json.decode(raw)
    return ApiKey(
        id=stored["id"],
        name=stored["name"],
        digest=stored["digest"],
        scopes=frozenset(stored["scopes"]),
        danger=Danger(stored["danger"]),
        created=datetime.fromisoformat(stored["created"]),
        expires=datetime.fromisoformat(stored["expires"]) if stored["expires"] else None,
        revoked=from_micros(revoked) if revoked is not None else None,
        trust=Trust(stored.get("trust", Trust.VALIDATED)),
        until=datetime.fromisoformat(stored["until"]) if stored.get("until") else None,
    )


def make_audit_entries(seq: int, before: str, at: datetime, events: Sequence[AuditEvent]) -> Iterator[AuditEntry]:
    """Yield the events as entries that follow the one with this number and digest."""
    for number, (event, body) in enumerate(events, seq + 1):
        digest = audit_digest(before, number, at, event, body)
        # As it will be read: a time is then a text, and a tuple a list.
        yield AuditEntry(number, at, event, msgspec.json.decode(encode_body(body)), before, digest)
        before = digest


def decode_audit_entry(seq: int, at: int, event: str, body: str, before: str, digest: str) -> AuditEntry:
    return AuditEntry(seq, from_micros(at), event, msgspec.json.decode(body), before, digest)


def retry_task(task: Task, call: Call, at: datetime) -> Task:
    """Return a failed task in the state before its first attempt."""
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


def encode_body(body: Mapping[str, Any]) -> str:
    return msgspec.json.encode(dict(body), order="sorted").decode()


def _decode_caller(stored: dict[str, Any]) -> Caller:
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
