"""The tools: `ask` and `await` of NLWeb, those of MCP-AQL, and operations where they are tools of their own."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from portico.ask.events import Did, Event, Found, Promised
from portico.catalog import Danger, Kind, Operation
from portico.config import Config
from portico.errors import SiteError, Unavailable
from portico.items import title_of
from portico.operations import schema_of
from portico.protocols.mcp import elicitation
from portico.protocols.mcp.aql_tools import AqlTools
from portico.protocols.mcp.elicitation import Context, Forms, Reply
from portico.protocols.mcp.errors import shown
from portico.protocols.nlweb.answers import answer_schema
from portico.protocols.nlweb.dialects import FLAT, V55, voice_of
from portico.protocols.nlweb.errors import BROKEN, Whole, failure
from portico.protocols.nlweb.item_rendering import members
from portico.protocols.nlweb.models import ask_schema, await_schema, nested
from portico.protocols.nlweb.service import Answering, Desk, Received
from portico.requests import Call, Caller, Outcome, Task
from portico.site import Site, shown_task

MAX_NAMED = 12  # collections that the description of `ask` names
MAX_PROGRESS = 200  # characters of what is told of progress
NOT_ERRORS = frozenset({"NO_RESULTS", "CANCELLED"})  # failures that answer what was asked


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool, and who calls it."""

    caller: Caller
    arguments: Mapping[str, Any]
    context: Context
    reply: Reply | None = None  # to a question back, in a second request
    state: str = ""  # that the first one gave


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool, and the task that will have the real one."""

    result: types.CallToolResult | types.InputRequiredResult
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    site: Site
    config: Config
    forms: Forms
    aql: AqlTools

    # What there is

    def listed(self, caller: Caller) -> list[types.Tool]:
        if self.config.aql.offers == "safety":
            return self.aql.listed(caller)
        return [self._ask(caller), _AWAIT, *self.aql.listed(caller), *map(_tool_of, self._operations(caller))]

    def _ask(self, caller: Caller) -> types.Tool:
        known = self.site.catalog.collections
        names = [known[name].title or name for name in self.site.gate.readable(caller)][:MAX_NAMED]
        about = self.config.site.description or f"Everything of {self.site.name}."
        has = f" It has {', '.join(names)}." if names else ""
        return types.Tool(
            name="ask",
            title=f"Ask {self.site.name}",
            description=f"Ask {self.site.name} in natural language. {about}{has}",
            input_schema=_ASK,
            output_schema=_ANSWER,
            # A command in words can have an operation run.
            annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False),
        )

    def _operations(self, caller: Caller) -> Iterator[Operation]:
        """The operations that are tools here, as far as this caller may have them run."""
        match self.config.mcp.operations:
            case "none":
                return
            case "own":
                offered = self.site.own_operations
            case "all":
                offered = sorted(self.site.catalog.operations.values(), key=lambda each: each.name)
        yield from (each for each in offered if self._is_offered(each, caller))

    def _is_offered(self, operation: Operation, caller: Caller) -> bool:
        is_taken = operation.name in _TAKEN or self.aql.has(operation.name)
        return not is_taken and self.site.gate.may(operation, caller)

    # What is called

    async def call(self, name: str, called: Called) -> Answer:
        match name:
            case "ask":
                return await self._asked(called)
            case "await":
                return await self._awaited(called)
            case _ if self.aql.has(name):
                return Answer(await self.aql.call(name, called.caller, called.arguments, called.context))
            case _ if any(each.name == name for each in self._operations(called.caller)):
                return await self._ran(name, called)
            case _:
                await self.site.gate.spend(called.caller)
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:80]}")

    async def _asked(self, called: Called) -> Answer:
        raw, hearing = _nested(called.arguments), Hearing(called.context)
        if called.reply is not None:
            raw = _answered(raw, called.reply, called.state)
        may_clarify = called.reply is None or not called.reply.declined
        whole = await self._told(raw, called, hearing, may_clarify=may_clarify)
        for _ in range(elicitation.MAX_ROUNDS):
            form = elicitation.form(whole.body, called.context)
            if form is None:
                break
            state = whole.body["_meta"]["session_context"]["state_token"]
            if elicitation.is_modern(called.context):
                return Answer(elicitation.asking(form, state))
            if not self.forms.has_room(called.caller):
                break
            reply = await self.forms.answered(called.context, called.caller, form)
            raw, may_clarify = _answered(raw, reply, state), not reply.declined
            whole = await self._told(raw, called, hearing, may_clarify=may_clarify)
        return Answer(_result(whole), hearing.task)

    async def _told(self, raw: dict[str, Any], called: Called, hearing: "Hearing", *, may_clarify: bool) -> Whole:
        got = replace(self._received(raw, called), may_clarify=may_clarify)
        try:
            answering = await self._desk.ask(got)
            return await answering.whole(hearing)
        except SiteError as error:
            return failure(error, got.voice)

    async def _awaited(self, called: Called) -> Answer:
        got = self._received(dict(called.arguments), called)
        hearing = Hearing(called.context)
        try:
            answering: Answering = await self._desk.awaited(got)
            return Answer(_result(await answering.whole(hearing)))
        except SiteError as error:
            return Answer(_result(failure(error, got.voice)))

    async def _ran(self, name: str, called: Called) -> Answer:
        try:
            outcome = await self.site.call(Call(name, called.arguments), called.caller)
        except SiteError as error:
            return Answer(_mistake(error))
        if isinstance(outcome, Outcome):
            return Answer(_object({"operation": name, "result": outcome.result}))
        said = {"task": shown_task(outcome), "hint": "Call await with this id as promise_token to see how it goes."}
        return Answer(_object(said), outcome)

    async def finished(self, id: str, caller: Caller, context: Context) -> types.CallToolResult:
        """What a task has given, as the call that began it would have."""
        called = Called(caller, {"promise_token": id, "action": "checkin"}, context)
        return cast("types.CallToolResult", (await self._awaited(called)).result)

    @property
    def _desk(self) -> Desk:
        return Desk(self.site, self.config)

    def _received(self, raw: dict[str, Any], called: Called) -> Received:
        premises = self._desk.premises(called.context.request, "MCP")
        voice = voice_of(raw)
        if voice.dialect is FLAT:  # MCP is a binding of the nested dialects alone (A.1)
            voice = replace(voice, dialect=V55, query_id="")
        return Received(raw, voice, called.caller, premises, time.perf_counter())


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


def _tool_of(operation: Operation) -> types.Tool:
    is_read = operation.kind is Kind.READ
    return types.Tool(
        name=operation.name,
        description=operation.description.strip(),
        input_schema=_object_schema(schema_of(operation.params)),
        annotations=types.ToolAnnotations(
            read_only_hint=is_read,
            destructive_hint=operation.danger >= Danger.DESTRUCTIVE,
            idempotent_hint=is_read or operation.idempotent,
            open_world_hint=not operation.collection,
        ),
    )


def _object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that says itself that it is one of an object, as tools must."""
    named = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    if named not in definitions:
        return {"type": "object", **schema}
    rest = {name: each for name, each in definitions.items() if name != named}
    return {**definitions[named], **({"$defs": rest} if rest else {})}


# Answers


class Hearing:
    """Tells the client how far an answer is, and keeps the task that it has become."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._steps = 0
        self.task: Task | None = None

    async def __call__(self, event: Event) -> None:
        if isinstance(event, Promised):
            self.task = event.task
        if message := _progress(event):
            self._steps += 1
            await self._context.session.report_progress(self._steps, None, message)


def _progress(event: Event) -> str:
    match event:
        case Found(item=item):
            return title_of(item.data)[:MAX_PROGRESS]
        case Did(operation=operation):
            return operation
        case Promised(task):
            return task.message[:MAX_PROGRESS] or "Under way"
        case _:
            return ""


def _nested(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the specification has them. Front ends of before send the question as a text."""
    if not isinstance(arguments.get("query"), str):
        return dict(arguments)
    kept = {name: arguments[name] for name in ("context", "prefer", "meta") if isinstance(arguments.get(name), dict)}
    return {**nested(arguments), **kept}


def _answered(raw: Mapping[str, Any], reply: Reply, state: str) -> dict[str, Any]:
    """The request again, with what was answered."""
    context, meta = members(raw.get("context")), members(raw.get("meta"))
    session = {**members(meta.get("session_context")), "state_token": state}
    return {
        **raw,
        "context": {**context, "answers": {**members(context.get("answers")), **reply.answers}},
        "meta": {**meta, "session_context": session},
    }


def _result(whole: Whole) -> types.CallToolResult:
    """NLWeb's answer: the whole of it as text and as an object, and what it says of itself as `_meta`."""
    body = whole.body
    error = body.get("error")
    prose = body.get("content")
    return types.CallToolResult(
        content=[_text(each["text"]) for each in prose] if prose else [_text(_encoded(body))],
        structured_content=body,
        is_error=error is not None and error["code"] not in NOT_ERRORS,
        _meta=body["_meta"],
    )


def _object(body: dict[str, Any]) -> types.CallToolResult:
    plain = msgspec.json.decode(_encoded(body))
    return types.CallToolResult(content=[_text(_encoded(body))], structured_content=plain)


def _mistake(error: SiteError) -> types.CallToolResult:
    """An error that a model can act on."""
    known = BROKEN if isinstance(error, Unavailable) else error
    said = {"error": {**shown(known), "message": known.message, **({"hint": known.hint} if known.hint else {})}}
    return _object(said).model_copy(update={"is_error": True})


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _encoded(body: Any) -> str:
    return msgspec.json.encode(body, enc_hook=str).decode()
