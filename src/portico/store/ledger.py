"""Tasks, keys and idempotency keys as they are stored: what goes into a column, what into the record beside it."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from portico.calls import Call, Caller, Priority, Task, TaskState, Warrant
from portico.catalog import Danger, Trust
from portico.identity import Key

PATIENT_MICROS = 60_000_000  # that a task waits until it counts as one of high priority
TASK_COLUMNS = "id, caller, meter, state, rank, created, task"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RANKS: dict[Priority, int] = {"high": 0, "normal": 1, "low": 2}


def micros(moment: datetime) -> int:
    return round((moment - _EPOCH).total_seconds() * 1_000_000)


def moment(value: int) -> datetime:
    return datetime.fromtimestamp(value / 1_000_000, UTC)


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
    )


def _caller(stored: dict[str, Any]) -> Caller:
    return Caller(
        stored["id"],
        stored["name"],
        frozenset(stored["scopes"]),
        Danger(stored["danger"]),
        stored["address"],
        msgspec.convert(stored.get("warrant"), Warrant | None),
        Trust(stored.get("trust", Trust.VALIDATED)),
    )
