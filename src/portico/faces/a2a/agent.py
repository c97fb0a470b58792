"""The agent as the official SDK wants one: each of its methods, in terms of errands."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, contextmanager
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
from portico.faces.a2a.errands import MAX_HISTORY, Errand, Errands, Event
from portico.faces.a2a.messages import Asking, Wanted, accepted, read, skill_of
from portico.faces.a2a.push import Push
from portico.faces.a2a.runs import Run, Runs, Visitor
from portico.faces.nlweb.desk import Desk
from portico.faces.nlweb.shapes import members

VISITOR = "portico.visitor"  # in the state of a call: who sent it
REFUSAL = "portico.refusal"  # in the state of a call: why the site does not do it
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
        self._patience = desk.config.ask.patience
        self._errands = errands
        self._runs = runs
        self._push = push

    # Messages

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        started = asyncio.get_running_loop().time()
        with refusing(context):
            visitor = _visitor(params, context)
            run = await self._begun(params, visitor)
            if not params.configuration.return_immediately:
                await self._settled(run, visitor, started + self._patience)
            return apply_history_length(run.errand.snapshot(), params.configuration)

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with refusing(context):
            visitor = _visitor(params, context)
            run = await self._begun(params, visitor)
            async with aclosing(self._runs.follow(run, visitor)) as events:
                async for event in events:
                    yield apply_history_length(event, params.configuration) if isinstance(event, pb.Task) else event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with refusing(context):
            visitor = _visitor(params, context)
            errand = await self._looked_at(params.id, visitor)
            if errand.is_final:
                raise UnsupportedOperationError("The task has ended; get it instead")
            async with aclosing(self._runs.resume(errand, visitor)) as events:
                async for event in events:
                    yield event

    async def _begun(self, params: pb.SendMessageRequest, visitor: Visitor) -> Run:
        message, wishes = params.message, params.configuration
        validate_history_length(wishes)
        wanted = read(message, skill_of(message.metadata, params.metadata))
        modes = accepted(wishes.accepted_output_modes)
        known = await self._waiting(message, visitor) if message.task_id else None
        errand = known or _new_errand(message.context_id)
        errand.modes = modes
        errand.heard(message, MAX_HISTORY)
        if wishes.HasField("task_push_notification_config"):
            config = wishes.task_push_notification_config
            await self._push.add(errand.task.id, config, visitor.caller, earlier=visitor.earlier)
            errand.notifies = True
        if isinstance(wanted, Asking):
            wanted = await self._in_context(wanted, errand, visitor)
        run = await self._runs.begin(errand, wanted, visitor)
        if errand.notifies:
            self._push.follow(errand, visitor.caller, lambda: self._runs.follow(run, visitor))
        if wishes.return_immediately and self._runs.is_running(errand):
            await self._errands.put(errand, visitor.caller)  # whoever asks for it may reach another process
        return run

    async def _waiting(self, message: pb.Message, visitor: Visitor) -> Errand:
        """The errand that a message goes on with."""
        errand = await self._runs.find(message.task_id, visitor.caller)
        if errand is None:
            raise TaskNotFoundError
        if message.context_id and message.context_id != errand.task.context_id:
            raise InvalidParamsError("The task belongs to another context")
        if errand.state != pb.TASK_STATE_INPUT_REQUIRED:
            raise UnsupportedOperationError("The task does not wait for a message; send one without its taskId")
        errand.heard(errand.task.status.message, MAX_HISTORY)
        return errand

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
            await self._site.gate.spend(visitor.caller)
            found = await self._listed(params, visitor)
            start = _start(params.page_token)
            page = [_without_artifacts(task, params) for task in found[start : start + size]]
            more = str(start + size) if len(found) > start + size else ""
            return pb.ListTasksResponse(tasks=page, next_page_token=more, page_size=size, total_size=len(found))

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        with refusing(context):
            visitor = _visitor(params, context)
            errand = await self._looked_at(params.id, visitor)
            if errand.is_final:
                raise TaskNotCancelableError("The task has ended already")
            await self._runs.cancel(errand, visitor)
            return errand.snapshot()

    async def _looked_at(self, id: str, visitor: Visitor) -> Errand:
        """An errand as it is by now."""
        await self._site.gate.spend(visitor.caller)
        errand = await self._runs.find(id, visitor.caller)
        if errand is None:
            raise TaskNotFoundError
        await self._runs.look(errand, visitor)
        return errand

    async def _listed(self, params: pb.ListTasksRequest, visitor: Visitor) -> list[pb.Task]:
        """The tasks of a context or of a caller, newest first."""
        caller = visitor.caller
        if params.context_id:
            ids = list((await self._errands.context(params.context_id, caller)).tasks)
        elif caller.is_anonymous:
            # Several who have no name may look like one.
            raise UnsupportedOperationError("Callers without a name list the tasks of one context; name its contextId")
        else:
            ids = await self._errands.tasks_of(caller)
        found = [await self._runs.find(id, caller) for id in ids]
        tasks = [errand.snapshot() for errand in found if errand is not None and _fits(errand.task, params)]
        return sorted(tasks, key=lambda each: each.status.timestamp.ToNanoseconds(), reverse=True)

    # Callbacks

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        with refusing(context):
            visitor = _visitor(params, context)
            errand = await self._looked_at(params.task_id, visitor)
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
        raise ExtendedAgentCardNotConfiguredError("There is one card, and everybody may read it")


def _visitor(params: Any, context: ServerCallContext) -> Visitor:
    """Who sent a request, once it is known to be whole."""
    validate_proto_required_fields(params)
    return context.state[VISITOR]


def _new_errand(context_id: str) -> Errand:
    return Errand(pb.Task(id=str(uuid.uuid4()), context_id=context_id or str(uuid.uuid4())))


def _start(token: str) -> int:
    if token and not (token.isdecimal() and len(token) < 6):
        raise InvalidParamsError("The page token is not one of this agent")
    return int(token or 0)


def _fits(task: pb.Task, params: pb.ListTasksRequest) -> bool:
    after = params.status_timestamp_after if params.HasField("status_timestamp_after") else None
    return params.status in {pb.TASK_STATE_UNSPECIFIED, task.status.state} and (
        after is None or task.status.timestamp.ToNanoseconds() >= after.ToNanoseconds()
    )


def _without_artifacts(task: pb.Task, params: pb.ListTasksRequest) -> pb.Task:
    if not params.include_artifacts:
        task.ClearField("artifacts")
    return apply_history_length(task, params)
