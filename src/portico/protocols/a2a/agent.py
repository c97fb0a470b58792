"""The agent as the official SDK wants one: each of its methods, in terms of errands."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, contextmanager, suppress
from math import inf
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size

from portico.errors import SiteError
from portico.protocols.a2a.messages import Asking, Wanted, accepted, read, skill_of
from portico.protocols.a2a.push import Push
from portico.protocols.a2a.task_records import MAX_HISTORY, Entry, Errand, Errands, Event
from portico.protocols.a2a.task_runner import Run, Runs, Visitor
from portico.protocols.nlweb.item_rendering import members
from portico.protocols.nlweb.service import Desk

VISITOR = "portico.visitor"  # in the state of a call: who sent it
REFUSAL = "portico.refusal"  # in the state of a call: why the site does not do it
WAIT_SECONDS = 4.0  # that a message waits for what takes long: clients of the SDK give up after five
PAGE = 50  # tasks, when the client does not say


@contextmanager
def refusing(context: ServerCallContext) -> Generator[None]:
    """Lets the door know what the site refuses: it has a code and a status for it, which the SDK does not."""
    try:
        yield
    except SiteError as error:
        context.state[REFUSAL] = error
        raise InternalError(error.message) from error


class Agent(RequestHandler):
    def __init__(self, desk: Desk, errands: Errands, runs: Runs, push: Push) -> None:
        self._site = desk.site
        self._patience = min(desk.config.ask.patience, WAIT_SECONDS)
        self._errands = errands
        self._runs = runs
        self._push = push

    # Messages

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        until = asyncio.get_running_loop().time() + self._patience
        with refusing(context):
            visitor = _visitor(params, context)
            if params.configuration.return_immediately:
                run = await self._begun(params, context)
            else:
                with self._runs.listening(visitor.caller):
                    run = await self._begun(params, context)
                    await self._settled(run, visitor, until)
            return apply_history_length(run.errand.snapshot(), params.configuration)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with refusing(context):
            visitor = _visitor(params, context)
            with self._runs.listening(visitor.caller):
                run = await self._begun(params, context)
                async with aclosing(self._runs.follow(run, visitor)) as events:
                    async for event in events:
                        yield apply_history_length(event, params.configuration) if isinstance(event, pb.Task) else event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with refusing(context):
            visitor = _visitor(params, context)
            with self._runs.listening(visitor.caller):
                errand = await self._looked_at(params.id, visitor)
                if errand.is_final:
                    raise UnsupportedOperationError("The task has ended; get it instead")
                async with aclosing(self._runs.resume(errand, visitor)) as events:
                    async for event in events:
                        yield event

    async def _begun(self, params: pb.SendMessageRequest, context: ServerCallContext) -> Run:
        visitor, message = _visitor(params, context), params.message
        validate_history_length(params.configuration)
        wanted = read(message, skill_of(message.metadata, params.metadata))
        if message.task_id:
            async with self._runs.claimed(message.task_id, visitor.caller) as known:
                run = await self._begin(_going_on(known, message), wanted, params, visitor)
        else:
            run = await self._begin(_new_errand(message.context_id), wanted, params, visitor)
        return run

    async def _begin(self, errand: Errand, wanted: Wanted, params: pb.SendMessageRequest, visitor: Visitor) -> Run:
        wishes, caller = params.configuration, visitor.caller
        told = wishes.task_push_notification_config if wishes.HasField("task_push_notification_config") else None
        errand.modes = accepted(wishes.accepted_output_modes)
        errand.heard(params.message, MAX_HISTORY)
        if told is not None:
            await self._push.check(errand.task.id, told, caller)
            errand.notifies = True
        if isinstance(wanted, Asking):
            wanted = await self._in_context(wanted, errand, visitor)
        run = await self._runs.begin(errand, wanted, visitor)
        if told is not None:
            await self._push.add(errand.task.id, told, caller, earlier=visitor.earlier)
        if errand.notifies:
            self._push.follow(errand, caller, lambda: self._runs.follow(run, visitor))
        if wishes.return_immediately and self._runs.is_running(errand, caller):
            await self._errands.put(errand, caller)  # whoever asks for it may reach another process
        return run

    async def _in_context(self, wanted: Asking, errand: Errand, visitor: Visitor) -> Wanted:
        """The question as one of its conversation, and in the manner its errand was given in."""
        raw, context = wanted.raw, errand.task.context_id
        session = (await self._errands.context(context, visitor.caller)).session or {"conversation_id": context}
        given = {name: raw[name] for name in ("prefer", "meta") if isinstance(raw.get(name), dict)}
        errand.origin = {**errand.origin, **given}
        meta = {"session_context": session, **members(errand.origin.get("meta"))}
        errand.origin = {**errand.origin, "meta": {name: meta[name] for name in meta if name != "session_context"}}
        return Asking({**errand.origin, **raw, "meta": meta})

    async def _settled(self, run: Run, visitor: Visitor, until: float) -> None:
        """Wait until an errand ends or waits for its caller, but not for ever."""
        try:
            async with asyncio.timeout_at(until), aclosing(self._runs.follow(run, visitor)) as events:
                async for _ in events:
                    pass
        except TimeoutError:
            return

    # Tasks

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        with refusing(context):
            visitor = _visitor(params, context)
            validate_history_length(params)
            errand = await self._looked_at(params.id, visitor)
            return apply_history_length(errand.snapshot(), params)

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        with refusing(context):
            visitor = _visitor(params, context)
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else PAGE
            validate_page_size(size)
            before = _place(params.page_token)
            known = [each for each in await self._entries(params, visitor) if _may_fit(each, params)]
            rest = sorted((each for each in known if each.place < before), key=lambda each: each.place, reverse=True)
            page, tasks = await self._shown(rest[:size], params, visitor)
            more = _token(page[-1]) if len(rest) > len(page) else ""
            total = len(known) - len(page) + len(tasks)
            return pb.ListTasksResponse(tasks=tasks, next_page_token=more, page_size=size, total_size=total)

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        with refusing(context):
            visitor = _visitor(params, context)
            errand = await self._looked_at(params.id, visitor)
            if errand.is_final:
                raise TaskNotCancelableError("The task has ended already")
            return (await self._runs.cancel(errand, visitor)).snapshot()

    async def _looked_at(self, id: str, visitor: Visitor) -> Errand:
        """An errand as it is by now."""
        errand = await self._runs.find(id, visitor.caller)
        if errand is None:
            raise TaskNotFoundError
        await self._runs.look(errand, visitor)
        return errand

    async def _entries(self, params: pb.ListTasksRequest, visitor: Visitor) -> Sequence[Entry]:
        """What is noted of the tasks of a context or of a caller."""
        if params.context_id:
            return (await self._errands.context(params.context_id, visitor.caller)).tasks
        if visitor.caller.is_anonymous:
            # Several who have no name may look like one.
            raise UnsupportedOperationError("Callers without a name list the tasks of one context; name its contextId")
        return await self._errands.entries_of(visitor.caller)

    async def _shown(
        self, entries: Sequence[Entry], params: pb.ListTasksRequest, visitor: Visitor
    ) -> tuple[Sequence[Entry], list[pb.Task]]:
        """The entries that a page has room for, and their tasks as they are by now, without those that do not fit."""
        tasks: list[pb.Task] = []
        size = 0
        for number, each in enumerate(entries):
            with suppress(TaskNotFoundError):
                errand = await self._looked_at(each.id, visitor)
                if not _fits(errand.entry, params):
                    continue
                task = _without_artifacts(errand.snapshot(), params)
                size += task.ByteSize()
                if tasks and size > self._site.limits.page_bytes:
                    entries = entries[:number]
                    break
                tasks.append(task)
        return entries, sorted(tasks, key=lambda task: task.status.timestamp.ToNanoseconds(), reverse=True)

    # Callbacks

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        with refusing(context):
            visitor = _visitor(params, context)
            errand = await self._looked_at(params.task_id, visitor)
            await self._push.check(params.task_id, params, visitor.caller)
            added = await self._push.add(params.task_id, params, visitor.caller, earlier=visitor.earlier)
            errand.notifies = True
            await self._errands.put(errand, visitor.caller)
            if errand.is_working:
                self._push.follow(errand, visitor.caller, lambda: self._runs.resume(errand, visitor))
            return added

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        with refusing(context):
            visitor = _visitor(params, context)
            await self._looked_at(params.task_id, visitor)
            return await self._push.one(params.task_id, params.id, visitor.caller)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        with refusing(context):
            visitor = _visitor(params, context)
            await self._looked_at(params.task_id, visitor)
            known = await self._push.addresses(params.task_id, visitor.caller)
            return pb.ListTaskPushNotificationConfigsResponse(configs=[each.shown(params.task_id) for each in known])

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        with refusing(context):
            visitor = _visitor(params, context)
            await self._looked_at(params.task_id, visitor)
            await self._push.remove(params.task_id, params.id, visitor.caller)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        with refusing(context):
            _visitor(params, context)
        raise ExtendedAgentCardNotConfiguredError("There is one card, and everybody may read it")


def _visitor(params: Any, context: ServerCallContext) -> Visitor:
    """Who sent a request, once it is known to be whole."""
    validate_proto_required_fields(params)
    return context.state[VISITOR]


def _new_errand(context_id: str) -> Errand:
    return Errand(pb.Task(id=str(uuid.uuid4()), context_id=context_id or str(uuid.uuid4())))


def _going_on(errand: Errand | None, message: pb.Message) -> Errand:
    """The errand that a message goes on with."""
    if errand is None:
        raise TaskNotFoundError
    if message.context_id and message.context_id != errand.task.context_id:
        raise InvalidParamsError("The task belongs to another context")
    if errand.state != pb.TASK_STATE_INPUT_REQUIRED:
        raise UnsupportedOperationError("The task does not wait for a message; send one without its taskId")
    errand.heard(errand.task.status.message, MAX_HISTORY)
    return errand


# A page goes on after the place of its last task: what has changed meanwhile comes before it, so that none is skipped.


def _token(entry: Entry) -> str:
    return f"{entry.updated}.{entry.id}"


def _place(token: str) -> tuple[float, str]:
    updated, _, id = token.partition(".")
    if token and not (updated.isdecimal() and updated.isascii() and len(updated) < 20):
        raise InvalidParamsError("The page token is not one of this agent")
    return (int(updated), id) if token else (inf, "")


def _may_fit(entry: Entry, params: pb.ListTasksRequest) -> bool:
    """Whether a task is wanted, or is by now: what worked when it was noted may have ended."""
    return entry.state == pb.TASK_STATE_WORKING or _fits(entry, params)


def _fits(entry: Entry, params: pb.ListTasksRequest) -> bool:
    after = params.status_timestamp_after.ToNanoseconds() if params.HasField("status_timestamp_after") else 0
    return params.status in {pb.TASK_STATE_UNSPECIFIED, entry.state} and entry.updated >= after


def _without_artifacts(task: pb.Task, params: pb.ListTasksRequest) -> pb.Task:
    if not params.include_artifacts:
        task.ClearField("artifacts")
    return apply_history_length(task, params)
