"""Task records: the tasks of A2A, stored where other processes and the next start find them.

No caller sees another's. If a caller stores too much in a minute, the rest stays in memory for a while.
"""

import hashlib
import uuid
from asyncio import Lock
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from a2a.types import a2a_pb2 as pb

from portico.protocols.a2a.messages import DATA, TEXT, Shown
from portico.requests import Caller
from portico.site import Site

HOURS = 24.0  # that a task is kept
MAX_HISTORY = 20  # messages of a task
MAX_MESSAGE = 20_000  # bytes of a message in a history
TOO_LONG = "(This message was too long to keep.)"
MAX_IN_MEMORY = 500  # notes
MAX_MEMORY = 32 << 20  # bytes of them
MAX_CONTEXTS = 50  # of a caller, that are listed
MAX_TASKS = 50  # of a context, that are listed
CONTEXTS = "a2a/contexts"  # name of the note that lists them
ANSWER = "answer"  # the id of the one artifact that a task has


class TaskEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a list of tasks needs to know of a task."""

    updated: int  # nanoseconds since 1970
    id: str
    state: int

    @property
    def place(self) -> tuple[int, str]:
        return self.updated, self.id


@dataclass(slots=True)
class TaskRecord:
    """A task of A2A and its state in this site. It changes while it runs; events are copies of it."""

    task: pb.Task
    promise: str = ""  # id of the site's task that gives the answer
    origin: Shown = field(default_factory=dict[str, Any])  # prefer and meta of the request
    modes: tuple[str, ...] = (TEXT, DATA)
    until: float = 0.0  # when an answer without a promise is overdue, in seconds since 1970
    notifies: bool = False  # it has notification URLs

    @property
    def state(self) -> pb.TaskState:
        return self.task.status.state

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def is_working(self) -> bool:
        return self.state == pb.TASK_STATE_WORKING

    @property
    def entry(self) -> TaskEntry:
        return TaskEntry(self.task.status.timestamp.ToNanoseconds(), self.task.id, self.state)

    def snapshot(self) -> pb.Task:
        task = pb.Task()
        task.CopyFrom(self.task)
        return task

    def add_message(self, message: pb.Message, most: int) -> None:
        """Add a message of the client to the history."""
        entry = self.task.history.add()
        entry.CopyFrom(message)
        if message.ByteSize() > MAX_MESSAGE:
            del entry.parts[:]
            entry.parts.add(text=TOO_LONG)
        entry.task_id, entry.context_id = self.task.id, self.task.context_id
        del self.task.history[:-most]

    def set_state(self, state: pb.TaskState, parts: Sequence[pb.Part] = ()) -> pb.TaskStatusUpdateEvent:
        """Change the state, with a message for the client, and return the event for it."""
        self.task.status.CopyFrom(self.make_status(state, parts))
        return self.status_event(self.task.status)

    def make_status(self, state: pb.TaskState, parts: Sequence[pb.Part] = ()) -> pb.TaskStatus:
        status = pb.TaskStatus(state=state)
        status.timestamp.GetCurrentTime()
        accepted_parts = [part for part in parts if part.WhichOneof("content") in self.modes]
        if accepted_parts:
            status.message.CopyFrom(self._message(accepted_parts))
        return status

    def status_event(self, status: pb.TaskStatus) -> pb.TaskStatusUpdateEvent:
        return pb.TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=status)

    def set_answer(self, parts: Sequence[pb.Part]) -> pb.TaskArtifactUpdateEvent:
        """Set the answer in place of an earlier one, and return the event for it."""
        artifact = self._artifact(parts)
        del self.task.artifacts[:]
        self.task.artifacts.add().CopyFrom(artifact)
        return self.artifact_event(parts, append=False, last=True)

    def artifact_event(self, parts: Sequence[pb.Part], *, append: bool, last: bool) -> pb.TaskArtifactUpdateEvent:
        return pb.TaskArtifactUpdateEvent(
            task_id=self.task.id,
            context_id=self.task.context_id,
            artifact=self._artifact(parts),
            append=append,
            last_chunk=last,
        )

    def _artifact(self, parts: Sequence[pb.Part]) -> pb.Artifact:
        accepted_parts = [part for part in parts if part.WhichOneof("content") in self.modes]
        return pb.Artifact(artifact_id=ANSWER, name=ANSWER, parts=accepted_parts)

    def _message(self, parts: Sequence[pb.Part]) -> pb.Message:
        return pb.Message(
            message_id=str(uuid.uuid4()),
            role=pb.ROLE_AGENT,
            task_id=self.task.id,
            context_id=self.task.context_id,
            parts=parts,
        )


FINAL = frozenset({pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_REJECTED})
A2aEvent: TypeAlias = pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent


class StoredTask(msgspec.Struct, frozen=True):
    """A task record as it is stored."""

    task: bytes
    promise: str = ""
    origin: dict[str, Any] = {}
    modes: tuple[str, ...] = (TEXT, DATA)
    until: float = 0.0
    notifies: bool = False


class StoredContext(msgspec.Struct, frozen=True):
    """A stored conversation: its NLWeb session, and its tasks, oldest first."""

    session: dict[str, Any] = {}
    tasks: tuple[TaskEntry, ...] = ()


class NoteCache:
    """Notes of callers by name: in the store, or in memory beyond a caller's write allowance."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._memory: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], Lock] = WeakValueDictionary()

    def lock(self, name: str, caller: Caller) -> Lock:
        """Return the lock to hold while a note is read, changed and written.

        It works within this process. If two processes change a note at the same time, the last one wins.
        """
        return self._locks.setdefault((caller.rate_key, name), Lock())

    async def put(self, name: str, note: bytes, caller: Caller) -> None:
        key = (caller.rate_key, name)
        self._memory.pop(key, None)
        if not await self._site.notes.set(name, note, caller, HOURS):
            self._memory[key] = note
            while len(self._memory) > MAX_IN_MEMORY or sum(map(len, self._memory.values())) > MAX_MEMORY:
                self._memory.popitem(last=False)

    async def get(self, name: str, caller: Caller) -> bytes | None:
        in_memory = self._memory.get((caller.rate_key, name))
        return in_memory or await self._site.notes.get(name, caller)


class TaskRecords:
    """The tasks and conversations of callers."""

    def __init__(self, notes: NoteCache) -> None:
        self._notes = notes

    async def get(self, id: str, caller: Caller) -> TaskRecord | None:
        note = await self._notes.get(_note_name("task", id), caller)
        if note is None:
            return None
        stored = msgspec.msgpack.decode(note, type=StoredTask)
        task = pb.Task.FromString(stored.task)
        return TaskRecord(task, stored.promise, stored.origin, stored.modes, stored.until, stored.notifies)

    async def put(self, record: TaskRecord, caller: Caller, session: Shown | None = None) -> None:
        """Store a task, and the session of its conversation after it."""
        name = _note_name("task", record.task.id)
        async with self._notes.lock(name, caller):
            task = record.task.SerializeToString()
            note = StoredTask(task, record.promise, record.origin, record.modes, record.until, record.notifies)
            await self._notes.put(name, msgspec.msgpack.encode(note), caller)
        await self._put_entry(record, session, caller)

    async def context(self, id: str, caller: Caller) -> StoredContext:
        note = await self._notes.get(_note_name("context", id), caller)
        return StoredContext() if note is None else msgspec.msgpack.decode(note, type=StoredContext)

    async def _put_entry(self, record: TaskRecord, session: Shown | None, caller: Caller) -> None:
        id = record.task.context_id
        name = _note_name("context", id)
        async with self._notes.lock(name, caller):
            stored = await self.context(id, caller)
            entry = record.entry
            tasks = (*(old_entry for old_entry in stored.tasks if old_entry.id != entry.id), entry)[-MAX_TASKS:]
            context = StoredContext(session or stored.session, tasks)
            if context == stored:
                return
            await self._notes.put(name, msgspec.msgpack.encode(context), caller)
        if not caller.is_anonymous:
            await self._put_context(id, caller)

    async def _put_context(self, id: str, caller: Caller) -> None:
        """Store which conversations a caller has, the latest last. Storing again extends the expiry."""
        async with self._notes.lock(CONTEXTS, caller):
            ids = await self._contexts(caller)
            contexts = (*(other for other in ids if other != id), id)[-MAX_CONTEXTS:]
            await self._notes.put(CONTEXTS, msgspec.msgpack.encode(contexts), caller)

    async def entries_of(self, caller: Caller) -> list[TaskEntry]:
        """Return a caller's latest tasks, in no order."""
        return [task for id in await self._contexts(caller) for task in (await self.context(id, caller)).tasks]

    async def _contexts(self, caller: Caller) -> tuple[str, ...]:
        note = await self._notes.get(CONTEXTS, caller)
        return () if note is None else msgspec.msgpack.decode(note, type=tuple[str, ...])


def _note_name(kind: str, id: str) -> str:
    """Return the name of a note. Clients choose ids of any length and any characters."""
    return f"a2a/{kind}/{hashlib.sha256(id.encode(errors='surrogatepass')).hexdigest()}"
