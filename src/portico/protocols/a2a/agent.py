"""The request handler of the official SDK: each method of A2A in terms of task records."""

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
from portico.protocols.a2a.messages import AskMessage, MessageIntent, parse_message, parse_modes, skill_of
from portico.protocols.a2a.push import PushNotifier
from portico.protocols.a2a.task_records import MAX_HISTORY, A2aEvent, TaskEntry, TaskRecord, TaskRecords
from portico.protocols.a2a.task_runner import A2aRun, MessageContext, TaskRunner
from portico.protocols.rendering import members
from portico.site import Site

VISITOR = "portico.visitor"  # in the state of a call: who sent it
REFUSAL = "portico.refusal"  # in the state of a call: why the site does not do it
WAIT_SECONDS = 4.0  # that a message waits for what takes long: clients of the SDK give up after five
PAGE = 50  # tasks, when the client does not say


@contextmanager
def store_refusal(context: ServerCallContext) -> Generator[None]:
    """Store a refusal of the site in the call's context: the response gets a code and status that the SDK lacks."""
    try:
        yield
    except SiteError as error:
        context.state[REFUSAL] = error
        raise InternalError(error.message) from error


class SiteAgent(RequestHandler):
    def __init__(
        self, site: Site, patience: float, records: TaskRecords, runner: TaskRunner, push: PushNotifier
    ) -> None:
        self._site = site
        self._patience = min(patience, WAIT_SECONDS)
        self._records = records
        self._runner = runner
        self._push = push

    # Messages

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        until = asyncio.get_running_loop().time() + self._patience
        with store_refusal(context):
            sender = _message_context(params, context)
            if params.configuration.return_immediately:
                run = await self._begin_message(params, context)
            else:
                with self._runner.count_listener(sender.caller):
                    run = await self._begin_message(params, context)
                    await self._wait_for(run, sender, until)
            return apply_history_length(run.record.snapshot(), params.configuration)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2aEvent]:
        with store_refusal(context):
            sender = _message_context(params, context)
            with self._runner.count_listener(sender.caller):
                run = await self._begin_message(params, context)
                async with aclosing(self._runner.follow(run, sender)) as events:
                    async for event in events:
                        yield apply_history_length(event, params.configuration) if isinstance(event, pb.Task) else event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2aEvent]:
        with store_refusal(context):
            sender = _message_context(params, context)
            with self._runner.count_listener(sender.caller):
                record = await self._refresh(params.id, sender)
                if record.is_final:
                    raise UnsupportedOperationError("The task has ended; use GetTask")
                async with aclosing(self._runner.resume(record, sender)) as events:
                    async for event in events:
                        yield event

    async def _begin_message(self, params: pb.SendMessageRequest, context: ServerCallContext) -> A2aRun:
        sender, message = _message_context(params, context), params.message
        validate_history_length(params.configuration)
        intent = parse_message(message, skill_of(message.metadata, params.metadata))
        if message.task_id:
            async with self._runner.claim(message.task_id, sender.caller) as waiting:
                run = await self._begin(_continue_record(waiting, message), intent, params, sender)
        else:
            task = pb.Task(id=str(uuid.uuid4()), context_id=message.context_id or str(uuid.uuid4()))
            run = await self._begin(TaskRecord(task), intent, params, sender)
        return run

    async def _begin(
        self, record: TaskRecord, intent: MessageIntent, params: pb.SendMessageRequest, sender: MessageContext
    ) -> A2aRun:
        settings, caller = params.configuration, sender.caller
        callback = (
            settings.task_push_notification_config if settings.HasField("task_push_notification_config") else None
        )
        record.modes = parse_modes(settings.accepted_output_modes)
        record.add_message(params.message, MAX_HISTORY)
        if callback is not None:
            await self._push.check(record.task.id, callback, caller)
            record.notifies = True
        if isinstance(intent, AskMessage):
            intent = await self._in_context(intent, record, sender)
        run = await self._runner.begin(record, intent, sender)
        if callback is not None:
            await self._push.add(record.task.id, callback, caller, earlier=sender.earlier)
        if record.notifies:
            self._push.follow(record, caller, lambda: self._runner.follow(run, sender))
        if settings.return_immediately and self._runner.is_running(record, caller):
            await self._records.put(record, caller)  # the next request for it may reach another process
        return run

    async def _in_context(self, question: AskMessage, record: TaskRecord, sender: MessageContext) -> MessageIntent:
        """Return the question with the session of its conversation, and with the options of its task."""
        raw, context = question.raw, record.task.context_id
        session = (await self._records.context(context, sender.caller)).session or {"conversation_id": context}
        options = {name: raw[name] for name in ("prefer", "meta") if isinstance(raw.get(name), dict)}
        record.origin = {**record.origin, **options}
        meta = {"session_context": session, **members(record.origin.get("meta"))}
        record.origin = {**record.origin, "meta": {name: meta[name] for name in meta if name != "session_context"}}
        return AskMessage({**record.origin, **raw, "meta": meta})

    async def _wait_for(self, run: A2aRun, sender: MessageContext, until: float) -> None:
        """Wait until a task ends or waits for its caller, but no longer than `until`."""
        try:
            async with asyncio.timeout_at(until), aclosing(self._runner.follow(run, sender)) as events:
                async for _ in events:
                    pass
        except TimeoutError:
            return

    # Tasks

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        with store_refusal(context):
            sender = _message_context(params, context)
            validate_history_length(params)
            record = await self._refresh(params.id, sender)
            return apply_history_length(record.snapshot(), params)

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        with store_refusal(context):
            sender = _message_context(params, context)
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else PAGE
            validate_page_size(size)
            before = _place(params.page_token)
            candidates = [entry for entry in await self._entries(params, sender) if _may_fit(entry, params)]
            rest = sorted(
                (entry for entry in candidates if entry.place < before), key=lambda entry: entry.place, reverse=True
            )
            page, tasks = await self._page_tasks(rest[:size], params, sender)
            more = _token(page[-1]) if len(rest) > len(page) else ""
            total = len(candidates) - len(page) + len(tasks)
            return pb.ListTasksResponse(tasks=tasks, next_page_token=more, page_size=size, total_size=total)

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        with store_refusal(context):
            sender = _message_context(params, context)
            record = await self._refresh(params.id, sender)
            if record.is_final:
                raise TaskNotCancelableError("The task has ended already")
            return (await self._runner.cancel(record, sender)).snapshot()

    async def _refresh(self, id: str, sender: MessageContext) -> TaskRecord:
        """Return the current record of a task."""
        record = await self._runner.find(id, sender.caller)
        if record is None:
            raise TaskNotFoundError
        await self._runner.refresh(record, sender)
        return record

    async def _entries(self, params: pb.ListTasksRequest, sender: MessageContext) -> Sequence[TaskEntry]:
        """Return the entries of the tasks of a context, or of a caller."""
        if params.context_id:
            return (await self._records.context(params.context_id, sender.caller)).tasks
        if sender.caller.is_anonymous:
            # Several anonymous callers may look like one.
            raise UnsupportedOperationError(
                "Anonymous callers can list the tasks of one context only; send its contextId"
            )
        return await self._records.entries_of(sender.caller)

    async def _page_tasks(
        self, entries: Sequence[TaskEntry], params: pb.ListTasksRequest, sender: MessageContext
    ) -> tuple[Sequence[TaskEntry], list[pb.Task]]:
        """Return the entries that a page has room for, and their current tasks, without those that no longer match."""
        tasks: list[pb.Task] = []
        size = 0
        for number, entry in enumerate(entries):
            with suppress(TaskNotFoundError):
                record = await self._refresh(entry.id, sender)
                if not _fits(record.entry, params):
                    continue
                task = record.snapshot()
                if not params.include_artifacts:
                    task.ClearField("artifacts")
                apply_history_length(task, params)
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
        with store_refusal(context):
            sender = _message_context(params, context)
            record = await self._refresh(params.task_id, sender)
            await self._push.check(params.task_id, params, sender.caller)
            added = await self._push.add(params.task_id, params, sender.caller, earlier=sender.earlier)
            record.notifies = True
            await self._records.put(record, sender.caller)
            if record.is_working:
                self._push.follow(record, sender.caller, lambda: self._runner.resume(record, sender))
            return added

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        with store_refusal(context):
            sender = _message_context(params, context)
            await self._refresh(params.task_id, sender)
            return await self._push.one(params.task_id, params.id, sender.caller)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        with store_refusal(context):
            sender = _message_context(params, context)
            await self._refresh(params.task_id, sender)
            targets = await self._push.addresses(params.task_id, sender.caller)
            return pb.ListTaskPushNotificationConfigsResponse(
                configs=[target.to_config(params.task_id) for target in targets]
            )

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        with store_refusal(context):
            sender = _message_context(params, context)
            await self._refresh(params.task_id, sender)
            await self._push.remove(params.task_id, params.id, sender.caller)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        with store_refusal(context):
            _message_context(params, context)
        raise ExtendedAgentCardNotConfiguredError("There is no extended agent card")


def _message_context(params: Any, context: ServerCallContext) -> MessageContext:
    """Return the sender of a request that has all required fields."""
    validate_proto_required_fields(params)
    return context.state[VISITOR]


def _continue_record(record: TaskRecord | None, message: pb.Message) -> TaskRecord:
    """Return the task that a message continues."""
    if record is None:
        raise TaskNotFoundError
    if message.context_id and message.context_id != record.task.context_id:
        raise InvalidParamsError("The task belongs to another context")
    if record.state != pb.TASK_STATE_INPUT_REQUIRED:
        raise UnsupportedOperationError("The task does not wait for a message; send the message without its taskId")
    record.add_message(record.task.status.message, MAX_HISTORY)
    return record


# A page continues after its last task. Tasks that change meanwhile move before it, so that none is skipped.


def _token(entry: TaskEntry) -> str:
    return f"{entry.updated}.{entry.id}"


def _place(token: str) -> tuple[float, str]:
    updated, _, id = token.partition(".")
    if token and not (updated.isdecimal() and updated.isascii() and len(updated) < 20):
        raise InvalidParamsError("The page token is not valid")
    return (int(updated), id) if token else (inf, "")


def _may_fit(entry: TaskEntry, params: pb.ListTasksRequest) -> bool:
    """Return whether a task matches, or may match by now: one that was working may have ended."""
    return entry.state == pb.TASK_STATE_WORKING or _fits(entry, params)


def _fits(entry: TaskEntry, params: pb.ListTasksRequest) -> bool:
    after = params.status_timestamp_after.ToNanoseconds() if params.HasField("status_timestamp_after") else 0
    return params.status in {pb.TASK_STATE_UNSPECIFIED, entry.state} and entry.updated >= after
