"""Errands: tasks of A2A, and what they stand for here. Kept where other processes and the next start find them.

What one caller keeps, no other can see. Whoever keeps too much in a minute has the rest kept in memory, for a while.
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

HOURS = 24.0  # that an errand is kept
MAX_HISTORY = 20  # messages of an errand
MAX_MESSAGE = 20_000  # bytes of a message in a history
TOO_LONG = "(This message was too long to keep.)"
MAX_IN_MEMORY = 500  # notes
MAX_MEMORY = 32 << 20  # bytes of them
MAX_CONTEXTS = 50  # of a caller, that are listed
MAX_TASKS = 50  # of a context, that are listed
CONTEXTS = "a2a/contexts"  # the name of the note that lists them
ANSWER = "answer"  # the id of the one artifact that a task has


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What a list of tasks needs to know of one."""

    updated: int  # nanoseconds since 1970
    id: str
    state: int

    @property
    def place(self) -> tuple[int, str]:
        return self.updated, self.id


@dataclass(slots=True)
class Errand:
    """A task of A2A and what it stands for here. It changes while it is worked on; events are copies of it."""

    task: pb.Task
    promise: str = ""  # the task of the site that the answer comes from
    origin: Shown = field(default_factory=dict[str, Any])  # how the answer is wanted: prefer and meta of the request
    modes: tuple[str, ...] = (TEXT, DATA)
    until: float = 0.0  # when an answer is overdue that nobody promised, in seconds since 1970
    notifies: bool = False  # somebody wants to be told

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
    def entry(self) -> Entry:
        return Entry(self.task.status.timestamp.ToNanoseconds(), self.task.id, self.state)

    def snapshot(self) -> pb.Task:
        task = pb.Task()
        task.CopyFrom(self.task)
        return task

    def heard(self, message: pb.Message, most: int) -> None:
        """Take a message of the client into the history."""
        told = self.task.history.add()
        told.CopyFrom(message)
        if message.ByteSize() > MAX_MESSAGE:
            del told.parts[:]
            told.parts.add(text=TOO_LONG)
        told.task_id, told.context_id = self.task.id, self.task.context_id
        del self.task.history[:-most]

    def moved(self, state: pb.TaskState, parts: Sequence[pb.Part] = ()) -> pb.TaskStatusUpdateEvent:
        """Change the state, with a message for the client; gives the event that tells of it."""
        self.task.status.CopyFrom(self.said(state, parts))
        return self.told(self.task.status)

    def said(self, state: pb.TaskState, parts: Sequence[pb.Part] = ()) -> pb.TaskStatus:
        status = pb.TaskStatus(state=state)
        status.timestamp.GetCurrentTime()
        shown = [part for part in parts if part.WhichOneof("content") in self.modes]
        if shown:
            status.message.CopyFrom(self._message(shown))
        return status

    def told(self, status: pb.TaskStatus) -> pb.TaskStatusUpdateEvent:
        return pb.TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=status)

    def answered(self, parts: Sequence[pb.Part]) -> pb.TaskArtifactUpdateEvent:
        """Take an answer, in place of one before; gives the event that tells of it."""
        artifact = self._artifact(parts)
        del self.task.artifacts[:]
        self.task.artifacts.add().CopyFrom(artifact)
        return self.piece(parts, append=False, last=True)

    def piece(self, parts: Sequence[pb.Part], *, append: bool, last: bool) -> pb.TaskArtifactUpdateEvent:
        return pb.TaskArtifactUpdateEvent(
            task_id=self.task.id,
            context_id=self.task.context_id,
            artifact=self._artifact(parts),
            append=append,
            last_chunk=last,
        )

    def _artifact(self, parts: Sequence[pb.Part]) -> pb.Artifact:
        shown = [part for part in parts if part.WhichOneof("content") in self.modes]
        return pb.Artifact(artifact_id=ANSWER, name=ANSWER, parts=shown)

    def _message(self, parts: Sequence[pb.Part]) -> pb.Message:
        return pb.Message(
            message_id=str(uuid.uuid4()),
            role=pb.ROLE_AGENT,
            task_id=self.task.id,
            context_id=self.task.context_id,
            parts=parts,
        )


FINAL = frozenset({pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_REJECTED})
Event: TypeAlias = pb.Task | pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent


class Note(msgspec.Struct, frozen=True):
    """An errand as it is kept."""

    task: bytes
    promise: str = ""
    origin: dict[str, Any] = {}
    modes: tuple[str, ...] = (TEXT, DATA)
    until: float = 0.0
    notifies: bool = False


class Context(msgspec.Struct, frozen=True):
    """What is known of a conversation: the session of NLWeb, and its tasks, oldest first."""

    session: dict[str, Any] = {}
    tasks: tuple[Entry, ...] = ()


class Cupboard:
    """Notes of callers, by name."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._memory: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], Lock] = WeakValueDictionary()

    def changing(self, name: str, caller: Caller) -> Lock:
        """To be held while a note is read, changed and put back, so that nothing gets lost between.

        It holds for this process. Of two processes that change a note at the same time, the last one wins.
        """
        return self._locks.setdefault((caller.rate_key, name), Lock())

    async def put(self, name: str, note: bytes, caller: Caller) -> None:
        key = (caller.rate_key, name)
        self._memory.pop(key, None)
        if not await self._site.put_away(name, note, caller, HOURS):
            self._memory[key] = note
            while len(self._memory) > MAX_IN_MEMORY or sum(map(len, self._memory.values())) > MAX_MEMORY:
                self._memory.popitem(last=False)

    async def get(self, name: str, caller: Caller) -> bytes | None:
        in_memory = self._memory.get((caller.rate_key, name))
        return in_memory or await self._site.taken_out(name, caller)


class Errands:
    """The errands and conversations of callers."""

    def __init__(self, cupboard: Cupboard) -> None:
        self._cupboard = cupboard

    async def get(self, id: str, caller: Caller) -> Errand | None:
        note = await self._cupboard.get(_named("task", id), caller)
        if note is None:
            return None
        said = msgspec.msgpack.decode(note, type=Note)
        task = pb.Task.FromString(said.task)
        return Errand(task, said.promise, said.origin, said.modes, said.until, said.notifies)

    async def put(self, errand: Errand, caller: Caller, session: Shown | None = None) -> None:
        """Keep an errand as it is by then, and how its conversation stands after it."""
        name = _named("task", errand.task.id)
        async with self._cupboard.changing(name, caller):
            task = errand.task.SerializeToString()
            note = Note(task, errand.promise, errand.origin, errand.modes, errand.until, errand.notifies)
            await self._cupboard.put(name, msgspec.msgpack.encode(note), caller)
        await self._put_entry(errand, session, caller)

    async def context(self, id: str, caller: Caller) -> Context:
        note = await self._cupboard.get(_named("context", id), caller)
        return Context() if note is None else msgspec.msgpack.decode(note, type=Context)

    async def _put_entry(self, errand: Errand, session: Shown | None, caller: Caller) -> None:
        id = errand.task.context_id
        name = _named("context", id)
        async with self._cupboard.changing(name, caller):
            known = await self.context(id, caller)
            entry = errand.entry
            tasks = (*(each for each in known.tasks if each.id != entry.id), entry)[-MAX_TASKS:]
            context = Context(session or known.session, tasks)
            if context == known:
                return
            await self._cupboard.put(name, msgspec.msgpack.encode(context), caller)
        if not caller.is_anonymous:
            await self._put_context(id, caller)

    async def _put_context(self, id: str, caller: Caller) -> None:
        """Note which conversations a caller has; the latest is the last. To note it again is to keep it longer."""
        async with self._cupboard.changing(CONTEXTS, caller):
            known = await self._contexts(caller)
            contexts = (*(each for each in known if each != id), id)[-MAX_CONTEXTS:]
            await self._cupboard.put(CONTEXTS, msgspec.msgpack.encode(contexts), caller)

    async def entries_of(self, caller: Caller) -> list[Entry]:
        """A caller's latest tasks, in no order."""
        return [task for id in await self._contexts(caller) for task in (await self.context(id, caller)).tasks]

    async def _contexts(self, caller: Caller) -> tuple[str, ...]:
        note = await self._cupboard.get(CONTEXTS, caller)
        return () if note is None else msgspec.msgpack.decode(note, type=tuple[str, ...])


def _named(kind: str, id: str) -> str:
    """The name of a note. Clients choose ids, of any length and of any characters."""
    return f"a2a/{kind}/{hashlib.sha256(id.encode(errors='surrogatepass')).hexdigest()}"
