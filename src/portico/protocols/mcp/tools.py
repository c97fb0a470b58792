"""The tools: `ask` and `await` of NLWeb, those of other protocols, and operations as tools of their own."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import mcp_types as types
import msgspec
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError

from portico.ask.events import Event, ItemEvent, OperationEvent, TaskEvent
from portico.catalog import Danger, Kind, Operation
from portico.config import Config
from portico.errors import SiteError, Unavailable
from portico.items import title_of
from portico.operations import schema_of
from portico.operations.builtin import render_task
from portico.protocols import ToolDescription, ToolSet
from portico.protocols.mcp import elicitation
from portico.protocols.mcp.elicitation import Context, FormReply, Forms
from portico.protocols.mcp.errors import error_data
from portico.protocols.mcp.settings import McpSettings
from portico.protocols.nlweb.answers import answer_schema
from portico.protocols.nlweb.dialects import FLAT, V55, parse_client_info
from portico.protocols.nlweb.errors import JsonAnswer, failure_answer
from portico.protocols.nlweb.models import ask_schema, await_schema, nest_flat_request
from portico.protocols.nlweb.service import AnswerStream, IncomingRequest, NlwebService
from portico.protocols.problems import BROKEN
from portico.protocols.rendering import members
from portico.requests import Call, Caller, Outcome, Task
from portico.site import Site

MAX_NAMED = 12  # collections that the description of `ask` names
MAX_PROGRESS = 200  # characters of a progress message
SESSION = "portico.session"  # in the state of a connection: the label of its session
WHOLE = 100.0  # percent
NOT_ERRORS = frozenset({"NO_RESULTS", "CANCELLED"})  # failures that are an answer


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, and its caller."""

    caller: Caller
    arguments: Mapping[str, Any]
    context: Context
    reply: FormReply | None = None  # to a question back, in a second request
    state: str = ""  # from the first request


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool, and the task that will have the real one."""

    result: types.CallToolResult | types.InputRequiredResult
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    site: Site
    config: Config
    forms: Forms
    sets: Sequence[ToolSet]  # of other protocols
    is_local: bool = False  # whether all requests come from one client, as over standard input

    # Listing

    def list_tools(self, caller: Caller) -> list[types.Tool]:
        others = [_described_tool(tool) for tool_set in self.sets for tool in tool_set.list_tools(caller)]
        if any(tool_set.instructions for tool_set in self.sets):
            return others
        return [self._ask(caller), _AWAIT, *others, *map(_tool_of, self._operations(caller))]

    def _ask(self, caller: Caller) -> types.Tool:
        collections = self.site.catalog.collections
        names = [collections[name].title or name for name in self.site.access.readable(caller)][:MAX_NAMED]
        about = self.config.site.description or f"Everything of {self.site.name}."
        has = f" It has {', '.join(names)}." if names else ""
        return types.Tool(
            name="ask",
            title=f"Ask {self.site.name}",
            description=f"Ask {self.site.name} in natural language. {about}{has}",
            input_schema=_ASK,
            output_schema=_ANSWER,
            # A command in plain words can run an operation.
            annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False),
        )

    def _operations(self, caller: Caller) -> Iterator[Operation]:
        """Yield the operations that are tools and that this caller may run."""
        match self.config.section(McpSettings).operations:
            case "none":
                return
            case "own":
                operations = self.site.own_operations
            case "all":
                operations = sorted(self.site.catalog.operations.values(), key=lambda operation: operation.name)
        yield from (operation for operation in operations if self._is_offered(operation, caller))

    def _is_offered(self, operation: Operation, caller: Caller) -> bool:
        is_taken = operation.name in _TAKEN or self._find_set(operation.name) is not None
        return not is_taken and self.site.access.may(operation, caller)

    def _find_set(self, name: str) -> ToolSet | None:
        return next((tool_set for tool_set in self.sets if name in tool_set.names), None)

    # Calling

    async def call(self, name: str, call: ToolCall) -> ToolAnswer:
        if tool_set := self._find_set(name):
            return ToolAnswer(await self._call_set(tool_set, name, call))
        match name:
            case "ask":
                return await self._call_ask(call)
            case "await":
                return await self._call_await(call)
            case _ if any(operation.name == name for operation in self._operations(call.caller)):
                return await self._call_operation(name, call)
            case _:
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:80]}")

    async def _call_ask(self, call: ToolCall) -> ToolAnswer:
        raw, progress = _nest_arguments(call.arguments), ProgressReporter(call.context)
        if call.reply is not None:
            raw = _add_reply(raw, call.reply, call.state)
        may_clarify = call.reply is None or not call.reply.declined
        answer = await self._ask_service(raw, call, progress, may_clarify=may_clarify)
        for _ in range(elicitation.MAX_ROUNDS):
            form = elicitation.form(answer.body, call.context)
            if form is None:
                break
            state = answer.body["_meta"]["session_context"]["state_token"]
            if elicitation.is_modern(call.context):
                # The client repeats the request with the answers and this state.
                requests: types.InputRequests = {elicitation.ROUND: types.ElicitRequest(params=form)}
                return ToolAnswer(types.InputRequiredResult(input_requests=requests, request_state=state))
            if not self.forms.has_room(call.caller):
                break
            reply = await self.forms.ask(call.context, call.caller, form)
            raw, may_clarify = _add_reply(raw, reply, state), not reply.declined
            answer = await self._ask_service(raw, call, progress, may_clarify=may_clarify)
        return ToolAnswer(_result(answer), progress.task)

    async def _ask_service(
        self, raw: dict[str, Any], call: ToolCall, progress: "ProgressReporter", *, may_clarify: bool
    ) -> JsonAnswer:
        request = replace(self._nlweb_request(raw, call), may_clarify=may_clarify)
        try:
            stream = await self._service.ask(request)
            return await stream.collect(progress)
        except SiteError as error:
            return failure_answer(error, request.client)

    async def _call_await(self, call: ToolCall) -> ToolAnswer:
        request = self._nlweb_request(dict(call.arguments), call)
        progress = ProgressReporter(call.context)
        try:
            stream: AnswerStream = await self._service.check_promise(request)
            return ToolAnswer(_result(await stream.collect(progress)))
        except SiteError as error:
            return ToolAnswer(_result(failure_answer(error, request.client)))

    async def _call_operation(self, name: str, call: ToolCall) -> ToolAnswer:
        try:
            outcome = await self.site.call(Call(name, call.arguments), call.caller)
        except SiteError as error:
            return ToolAnswer(_error_result(error))
        if isinstance(outcome, Outcome):
            return ToolAnswer(_object_result({"operation": name, "result": outcome.result}))
        body = {"task": render_task(outcome), "hint": "Call await with this id as promise_token to see how it goes."}
        return ToolAnswer(_object_result(body), outcome)

    async def task_result(self, id: str, caller: Caller, context: Context) -> types.CallToolResult:
        """Return the result of a task, as the call that began it would have."""
        call = ToolCall(caller, {"promise_token": id, "action": "checkin"}, context)
        return cast("types.CallToolResult", (await self._call_await(call)).result)

    async def _call_set(self, tool_set: ToolSet, name: str, call: ToolCall) -> types.CallToolResult:
        """Call a tool of another protocol, and report its progress."""

        async def report(percent: float, message: str) -> None:
            await call.context.session.report_progress(percent, WHOLE, message)

        session = self._session_of(call.context)
        output = await tool_set.call(name, call.arguments, call.caller, session, report)
        await report(WHOLE, "Done")
        return types.CallToolResult(
            content=[_text(output.json.decode())],
            structured_content=msgspec.json.decode(output.json),
            is_error=output.is_error,
        )

    def _session_of(self, context: Context) -> str:
        """Return the server's own label for the session of a request; empty if there are no sessions."""
        # The SDK has no public way from a handler to the state and the end of its session.
        connection: Connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
        if elicitation.is_modern(context) or (connection.session_id is None and not self.is_local):
            return ""
        if SESSION not in connection.state:
            connection.state[SESSION] = secrets.token_hex(8)
            connection.exit_stack.push_async_callback(self.site.access.end_session, connection.state[SESSION])
        return connection.state[SESSION]

    @property
    def _service(self) -> NlwebService:
        return NlwebService(self.site, self.config)

    def _nlweb_request(self, raw: dict[str, Any], call: ToolCall) -> IncomingRequest:
        context = self._service.render_context(call.context.request, "MCP")
        client = parse_client_info(raw)
        if client.dialect is FLAT:  # MCP is a binding of the nested dialects alone (A.1)
            client = replace(client, dialect=V55, query_id="")
        return IncomingRequest(raw, client, call.caller, context, time.perf_counter())


_ASK, _ANSWER = ask_schema(), answer_schema()
_AWAIT = types.Tool(
    name="await",
    title="Check or cancel a promise",
    description="Check in on, or cancel, what `ask` has promised.",
    input_schema=await_schema(),
    output_schema=_ANSWER,
    annotations=types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)
_TAKEN = frozenset({"ask", "await"})


def _described_tool(tool: ToolDescription) -> types.Tool:
    """Return a tool of another protocol, with hints by its riskiest operation."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.kinds == frozenset({Kind.READ}),
            destructive_hint=bool(tool.kinds - {Kind.READ, Kind.CREATE}),
            open_world_hint=False,
        ),
    )


def _tool_of(operation: Operation) -> types.Tool:
    is_read = operation.kind is Kind.READ
    return types.Tool(
        name=operation.name,
        description=operation.description.strip(),
        input_schema=_object_schema(schema_of(operation.params)),
        annotations=types.ToolAnnotations(
            read_only_hint=is_read,
            destructive_hint=operation.danger >= Danger.DESTRUCTIVE,
            idempotent_hint=operation.is_idempotent,
            open_world_hint=not operation.collection,
        ),
    )


def _object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the type `object` at its root, as tools require."""
    name_of_root = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    if name_of_root not in definitions:
        return {"type": "object", **schema}
    rest = {name: definition for name, definition in definitions.items() if name != name_of_root}
    return {**definitions[name_of_root], **({"$defs": rest} if rest else {})}


# Answers


class ProgressReporter:
    """Reports progress to the client, and keeps the task if the answer becomes one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._steps = 0
        self.task: Task | None = None

    async def __call__(self, event: Event) -> None:
        if isinstance(event, TaskEvent):
            self.task = event.task
        if message := _progress(event):
            self._steps += 1
            await self._context.session.report_progress(self._steps, None, message)


def _progress(event: Event) -> str:
    match event:
        case ItemEvent(item=item):
            return title_of(item.data)[:MAX_PROGRESS]
        case OperationEvent(operation=operation):
            return operation
        case TaskEvent(task):
            return task.message[:MAX_PROGRESS] or "Under way"
        case _:
            return ""


def _nest_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments in the nested form. Older front ends send the question as a string."""
    if not isinstance(arguments.get("query"), str):
        return dict(arguments)
    sections = {
        name: arguments[name] for name in ("context", "prefer", "meta") if isinstance(arguments.get(name), dict)
    }
    return {**nest_flat_request(arguments), **sections}


def _add_reply(raw: Mapping[str, Any], reply: FormReply, state: str) -> dict[str, Any]:
    """Return the request with the answers added."""
    context, meta = members(raw.get("context")), members(raw.get("meta"))
    session = {**members(meta.get("session_context")), "state_token": state}
    return {
        **raw,
        "context": {**context, "answers": {**members(context.get("answers")), **reply.answers}},
        "meta": {**meta, "session_context": session},
    }


def _result(answer: JsonAnswer) -> types.CallToolResult:
    """Return NLWeb's answer as text and as an object, with its metadata as `_meta`."""
    body = answer.body
    error = body.get("error")
    prose = body.get("content")
    return types.CallToolResult(
        content=[_text(part["text"]) for part in prose] if prose else [_text(_encode(body))],
        structured_content=body,
        is_error=error is not None and error["code"] not in NOT_ERRORS,
        _meta=body["_meta"],
    )


def _object_result(body: dict[str, Any]) -> types.CallToolResult:
    plain = msgspec.json.decode(_encode(body))
    return types.CallToolResult(content=[_text(_encode(body))], structured_content=plain)


def _error_result(error: SiteError) -> types.CallToolResult:
    """Return an error that a model can act on."""
    public_error = BROKEN if isinstance(error, Unavailable) else error
    body = {
        "error": {
            **error_data(public_error),
            "message": public_error.message,
            **({"hint": public_error.hint} if public_error.hint else {}),
        }
    }
    return _object_result(body).model_copy(update={"is_error": True})


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _encode(body: Any) -> str:
    return msgspec.json.encode(body, enc_hook=str).decode()
