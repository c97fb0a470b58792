"""The paths that every site has, as OpenAPI describes them: schemas from the wire types, statuses from the tables of
errors. Knows nothing of a site; `openapi.py` adds its operations.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from portico.config import Config
from portico.protocols.a2a import errors as a2a
from portico.protocols.a2a.card import PATH as AGENT_CARD_PATH
from portico.protocols.a2a.card import RPC_PATH as A2A_PATH
from portico.protocols.aql.envelopes import STATUSES as AQL_STATUSES
from portico.protocols.aql.requests import SCHEMA as AQL_REQUEST
from portico.protocols.aql.routes import PATH as AQL_PATH
from portico.protocols.chat.azure_compat import CHATS
from portico.protocols.chat.conversations import (
    MARKDOWN,
    FeedbackNoted,
    FeedbackRequest,
    Headings,
    ShownConversation,
)
from portico.protocols.chat.errors import STATUSES as CHAT_STATUSES
from portico.protocols.chat.requests import request_schema as chat_schema
from portico.protocols.chat.routes import LINES, MULTIPART, OTHER_LINES
from portico.protocols.discovery.sitemap import XML
from portico.protocols.discovery.wellknown import JSON, PROTOCOLS, documents
from portico.protocols.mcp import errors as mcp
from portico.protocols.mcp.routes import PATH as MCP_PATH
from portico.protocols.nlweb.answers import Answer, FlatAnswer, earlier_schema
from portico.protocols.nlweb.errors import CODES
from portico.protocols.nlweb.models import ask_schema, await_schema, flat_schema
from portico.protocols.nlweb.routes import FORM
from portico.protocols.nlweb.schema import whole_schema
from portico.protocols.rest.desk import API as DESK_API
from portico.protocols.rest.desk import (
    MAX_LINES,
    MAX_TASKS,
    AtWork,
    Checked,
    Decided,
    Ended,
    Executions,
    FeedbackGiven,
    Issued,
    PendingNamed,
    Released,
    Tasks,
    TaskSeen,
    Trail,
    Typed,
    Unblocked,
)
from portico.protocols.rest.desk import PATH as DESK_PATH
from portico.protocols.rest.inspector import PATH as INSPECT_PATH
from portico.protocols.rest.operations import PATH, STATUSES, TASKS_PATH, Listed, Problem
from portico.requests import TaskState
from portico.safety.models import Challenged, Waiting
from portico.sources.refresh import SourceShown
from portico.telemetry import Minute
from portico.web.assets import EMBED, KINDS
from portico.web.item import FORMATS
from portico.web.style import ASSETS

Described: TypeAlias = dict[str, Any]

EVENTS = "text/event-stream"
PROBLEM = "application/problem+json"
HANDSHAKE = PROTOCOLS[-2]  # the last revision of MCP that begins with one

OPERATIONS = "Operations"
FIRST_TAGS: Mapping[str, str] = {
    "Questions": "Ask in plain words (NLWeb). The same requests go over WebSocket, at the same addresses.",
    "Items": "Everything public that the site has, one address each.",
}
TAGS: Mapping[str, str] = {
    OPERATIONS: "What can be done here, and what every site can do. Errors are problem details (RFC 9457).",
    "Tasks": "Work that takes longer. Only who began it can see it.",
    "Agents": "The same site over MCP, MCP-AQL and A2A.",
    "Desk": "For who runs the site, with a key of the scope `approve`: what waits for a person.",
    "Discovery": "What there is, for browsers, crawlers and agents.",
    "Health": "For who runs the site. A server with too much to do answers any request with 503 and a line of text.",
}


# What is answered and has no type where it is made


class TaskShown(msgspec.Struct):
    id: str
    operation: str
    state: TaskState
    progress: Annotated[float, Meta(description="0 to 1")]
    message: str
    created: str
    updated: str
    estimate: Annotated[Any, Meta(description="Seconds in all", extra_json_schema={"type": ["number", "null"]})]
    result: Any
    error: Annotated[Any, Meta(extra_json_schema={"type": ["object", "null"]})]


class TaskHeld(msgspec.Struct):
    task: TaskShown


class Operations(msgspec.Struct):
    operations: list[Listed]


class Health(msgspec.Struct):
    status: Literal["ok"]
    version: str


class Readiness(msgspec.Struct):
    ready: Annotated[bool, Meta(description="Whether questions are answered")]
    current: Annotated[bool, Meta(description="Whether everything stored is found")]
    behind: Annotated[int | None, Meta(description="Changes that are not found yet")] = None
    collections: dict[str, Any] | None = None
    reason: str | None = None


class Event(msgspec.Struct):
    """One of a stream."""

    data: Annotated[str, Meta(description="JSON", extra_json_schema={"contentMediaType": "application/json"})]
    event: Annotated[str | None, Meta(description="Of 0.55: start, result, text, error or complete")] = None


class ChatAnswer(msgspec.Struct):
    role: Literal["assistant"]
    content: Annotated[str, Meta(description="Sources stand in square brackets")]


class ChatCompletion(msgspec.Struct):
    message: ChatAnswer
    context: Annotated[dict[str, Any] | None, Meta(description="data_points, thoughts, followup_questions and more")]
    session: Annotated[Any, Meta(description="As it was sent")] = msgspec.field(name="sessionState", default=None)


class ChatError(msgspec.Struct):
    error: Annotated[Any, Meta(description="A text; an object with code and message where chat.errors says so")]


class RpcRequest(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: dict[str, Any] | None = None


class RpcError(msgspec.Struct):
    code: int
    message: str


class RpcResponse(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: Any = None
    result: Any = None
    error: RpcError | None = None


class Sources(msgspec.Struct):
    sources: list[SourceShown]


class Traffic(msgspec.Struct):
    at: datetime
    minutes: list[Minute]


# Building blocks


def reference(part: str, name: str) -> Described:
    return {"$ref": f"#/components/{part}/{name}"}


def content(schema: Described, *kinds: str) -> Described:
    return {kind: {"schema": schema} for kind in kinds}


def answer(description: str, content: Described | None = None, **headers: str) -> Described:
    """What comes back with a status. Headers are named with _ for -."""
    told = {name.replace("_", "-"): {"description": says, "schema": TEXT} for name, says in headers.items()}
    said = {"description": description, "headers": told, "content": content}
    return {name: value for name, value in said.items() if value}


def step(id: str, tag: str, summary: str, answers: Mapping[int, Described], **more: Any) -> Described:
    """One method of a path."""
    responses = {str(status): each for status, each in sorted(answers.items())}
    return {"operationId": id, "tags": [tag], "summary": summary, **more, "responses": responses}


def problems(*statuses: int) -> dict[int, Described]:
    return {status: reference("responses", f"Problem{status}") for status in statuses}


def _failures() -> dict[int, Described]:
    return {status: reference("responses", f"Failure{status}") for status in _FAILURES}


def parameter(name: str, place: str, schema: Described, *, required: bool = False) -> Described:
    told = {key: value for key, value in schema.items() if key != "description"}
    said = {"name": name, "in": place, "required": required, "description": schema.get("description"), "schema": told}
    return {name: value for name, value in said.items() if value is not None}


TEXT: Described = {"type": "string"}
_ID = parameter("id", "path", {**TEXT, "minLength": 1}, required=True)
_PAGE = content(TEXT, "text/html")
_DOCUMENT = content({"type": "object"}, JSON)
_EVENTS = content(reference("schemas", "Event"), EVENTS)
_FAILURES = sorted({code.status for code in CODES.values() if code.status != HTTPStatus.OK})
_MCP_REFUSALS = sorted({code.status for code in mcp.CODES.values()} | {405, 406})  # those two are the SDK's
_AQL_REFUSALS = sorted({status.value for status in AQL_STATUSES.values()} | {401})
_A2A_REFUSALS = sorted({code.status for code in a2a.CODES.values() if code.status != HTTPStatus.OK})
OPERATION_PROBLEMS = tuple(sorted({status.value for status in STATUSES.values()}))
_READING_PROBLEMS = (400, 401, 403, 404, 422, 429, 503, 504)


# The paths


def paths(config: Config, question: str) -> dict[str, Described]:
    """Every path of the HTTP faces but those of single operations. The question is one that the site can answer."""
    return {
        **_questions(question),
        **_chat(config, question),
        **(_chat_elsewhere() if config.chat.azure else {}),
        **_tasks(),
        **_items(config),
        **_agents(question),
        **_aql(config),
        **_desk(),
        **_discovery(config),
        **_health(),
    }


def _questions(question: str) -> dict[str, Described]:
    whole = content({"anyOf": [reference("schemas", name) for name in ("Answer", "EarlierAnswer", "FlatAnswer")]}, JSON)
    answers = {
        200: answer("An answer, a question back, or a failure of what was asked", {**whole, **_EVENTS}),
        202: answer("A promise: look at it with /await", whole),
        **_failures(),
    }
    asked = {"anyOf": [reference("schemas", "AskRequest"), reference("schemas", "FlatRequest")]}
    body = {
        JSON: {"schema": asked, "example": {"query": {"text": question}}},
        FORM: {"schema": reference("schemas", "FlatRequest"), "example": {"query": question, "streaming": False}},
    }
    awaited = {"schema": reference("schemas", "AwaitRequest"), "example": {"promise_token": "…", "action": "checkin"}}
    return {
        "/ask": {
            "post": step(
                "post_ask",
                "Questions",
                "Ask a question",
                answers,
                description="`prefer.streaming` chooses between one JSON object and events; else `Accept` does.",
                requestBody={"required": True, "content": body},
            ),
            "get": step(
                "get_ask",
                "Questions",
                "Ask a question in a URL",
                answers,
                description="Streams unless `streaming=false`. Parameters that are not listed are filters.",
                parameters=_in_url(question),
            ),
        },
        "/await": {
            "post": step(
                "post_await",
                "Questions",
                "Look at a promise, or cancel it",
                answers,
                requestBody={"required": True, "content": {JSON: awaited}},
            )
        },
    }


_ONCE = [reference("parameters", "IdempotencyKey")]


def _chat(config: Config, question: str) -> dict[str, Described]:
    """The AI Chat Protocol, and what is kept of it."""
    path = config.chat.path
    example = {"messages": [{"role": "user", "content": question}]}
    form = {"type": "object", "properties": {"json": reference("schemas", "ChatRequest")}, "required": ["json"]}
    asked = {JSON: {"schema": reference("schemas", "ChatRequest"), "example": example}}
    body = {"required": True, "content": {**asked, MULTIPART: {"schema": form}}}
    whole, lines = content(reference("schemas", "ChatCompletion"), JSON), content({}, LINES, OTHER_LINES)
    listed, kept = content(reference("schemas", "Headings"), JSON), reference("schemas", "ShownConversation")
    shown = {**content(kept, JSON), **content(TEXT, MARKDOWN)}
    format = parameter("format", "query", {"enum": ["json", "markdown"], "description": "Instead of what Accept says"})
    user = parameter("userId", "query", {**TEXT, "description": "One of your users"})
    noted = {201: answer("Kept", content(reference("schemas", "FeedbackNoted"), JSON))}
    turn = {"requestBody": body, "parameters": _ONCE}
    return {
        path: {"post": _chatted("post_chat", "Chat (AI Chat Protocol)", {**whole, **lines}, **turn)},
        f"{path}/stream": {"post": _chatted("post_chat_stream", "Chat, in lines of JSON", lines, **turn)},
        f"{path}/conversations": {
            "get": _chatted("get_conversations", "Stored conversations of yours", listed, parameters=[user])
        },
        f"{path}/conversations/{{id}}": {
            "parameters": [_ID, user],
            "get": _chatted("get_conversation", "A stored conversation", shown, parameters=[format]),
            "delete": _chatted("delete_conversation", "Delete a stored conversation", None),
        },
        f"{path}/feedback": {
            "post": step(
                "post_feedback",
                "Questions",
                "Say what you think of an answer",
                {**noted, **_chat_refusals()},
                **_said(FeedbackRequest),
            )
        },
    }


def _chat_elsewhere() -> dict[str, Described]:
    """What older front ends expect."""
    user = parameter("userId", "query", {**TEXT, "minLength": 16})
    citation = parameter("citation", "path", {**TEXT, "minLength": 1}, required=True)
    sent_on = {307: answer("Where it is", location="Of the item"), **_chat_refusals()}
    body = {"required": True, "content": content(reference("schemas", "ChatRequest"), JSON)}
    lines, turn = content({}, LINES, OTHER_LINES), {"requestBody": body, "parameters": _ONCE}
    return {
        "/auth_setup": {"get": _chatted("get_auth_setup", "How to sign in: not at all", _DOCUMENT)},
        "/config": {"get": _chatted("get_page_setup", "What a page offers to set", _DOCUMENT)},
        "/content/{citation}": {
            "parameters": [citation],
            "get": step("get_content", "Questions", "What a citation leads to", sent_on),
        },
        f"{CHATS}/stream": {"post": _chatted("post_chats_stream", "Chat, in lines of JSON", lines, **turn)},
        CHATS: {"get": _chatted("get_chats", "Conversations of a user", content({}, JSON), parameters=[user])},
        f"{CHATS}/{{id}}": {
            "parameters": [_ID],
            "get": _chatted("get_chat", "Messages of a conversation", content({}, JSON), parameters=[user]),
            "delete": _chatted("delete_chat", "Delete a conversation", None, parameters=[user]),
        },
    }


def _chatted(id: str, summary: str, form: Described | None, **more: Any) -> Described:
    done = {200: answer("The answer", form)} if form else {204: answer("Done")}
    return step(id, "Questions", summary, {**done, **_chat_refusals()}, **more)


def _chat_refusals() -> dict[int, Described]:
    statuses = sorted({status.value for status in CHAT_STATUSES.values()})
    return _spoken_refusals(statuses, content(reference("schemas", "ChatError"), JSON))


def _in_url(question: str) -> list[Described]:
    schema = flat_schema()
    told = {
        name: parameter(name, "query", each, required=name in schema["required"])
        for name, each in schema["properties"].items()
    }
    told["query"]["example"] = question
    told["streaming"]["example"] = False
    return list(told.values())


def _tasks() -> dict[str, Described]:
    held = {200: answer("The task", content(reference("schemas", "TaskHeld"), JSON))}
    answers = {**held, **problems(*_READING_PROBLEMS)}
    return {
        PATH: {
            "get": step(
                "get_operations",
                OPERATIONS,
                "What can be done here",
                {
                    200: answer("All operations", content(reference("schemas", "Operations"), JSON)),
                    **problems(401, 403, 429, 503),
                },
            )
        },
        f"{TASKS_PATH}/{{id}}": {
            "parameters": [_ID],
            "get": step("get_task", "Tasks", "How a task is getting on", answers),
            "delete": step("delete_task", "Tasks", "Stop a task", {**answers, **problems(409)}),
        },
    }


def _items(config: Config) -> dict[str, Described]:
    forms = {**_PAGE, **content({"type": "object"}, *FORMATS.values())}
    form = parameter("format", "query", {"enum": list(FORMATS), "description": "Instead of what Accept says"})
    cursor = parameter("cursor", "query", {**TEXT, "description": "Where the page before ended"})
    shown = {
        "/collections/{name}": {
            "parameters": [parameter("name", "path", {**TEXT, "minLength": 1}, required=True)],
            "get": step("get_collection", "Items", "A list of items, for people", _kept(_PAGE), parameters=[cursor]),
        },
        "/items/{id}": {
            "parameters": [_ID],
            "get": step(
                "get_item",
                "Items",
                "One item",
                _kept(forms),
                description="A page, JSON-LD or JSON, as `Accept` says.",
                parameters=[form],
            ),
        },
    }
    pictures = {
        "/images/{path}": {
            "parameters": [parameter("path", "path", {**TEXT, "minLength": 1}, required=True)],
            "get": step("get_image", "Items", "A picture", {**found(content({}, "*/*")), **problems(404)}),
        }
    }
    return {**shown, **pictures} if config.site.images else shown


def found(forms: Described) -> dict[int, Described]:
    """Something that a reader may keep, and ask whether it has changed."""
    return {200: answer("Found", forms, etag="Of this version"), 304: answer("Nothing has changed since")}


def _kept(forms: Described) -> dict[int, Described]:
    """The same, of what is not there for everybody. Who reads pages is told so on a page."""
    refusals = {status: reference("responses", f"Refusal{status}") for status in _READING_PROBLEMS}
    return {**found(forms), **refusals}


def _agents(question: str) -> dict[str, Described]:
    spoken = content(reference("schemas", "RpcResponse"), JSON)
    mcp_refused, a2a_refused = _spoken_refusals(_MCP_REFUSALS, spoken), _spoken_refusals(_A2A_REFUSALS, spoken)
    client = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "somebody", "version": "1"}}
    words = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": question}]}
    said = {200: answer("The response", {**spoken, **_EVENTS})}
    taken = {202: answer("Taken note of")}
    return {
        MCP_PATH: {
            "post": step(
                "post_mcp",
                "Agents",
                "MCP: a message of the client",
                {**said, **taken, **mcp_refused},
                requestBody=_rpc("initialize", client),
            ),
            "get": step(
                "get_mcp", "Agents", "MCP: messages of the server", {200: answer("Messages", _EVENTS), **mcp_refused}
            ),
            "delete": step("delete_mcp", "Agents", "MCP: end a session", {200: answer("Ended"), **mcp_refused}),
        },
        A2A_PATH: {
            "post": step(
                "post_a2a",
                "Agents",
                "A2A: a message to the agent",
                {**said, **a2a_refused},
                requestBody=_rpc("message/send", {"message": words}),
            ),
        },
    }


def _aql(config: Config) -> dict[str, Described]:
    if config.aql.mode == "none":
        return {}
    answers = {200: answer("What came of it", _DOCUMENT), **_spoken_refusals(_AQL_REFUSALS, _DOCUMENT)}
    example = {"operation": "introspect", "params": {"query": "operations"}}
    body = {"required": True, "content": {JSON: {"schema": AQL_REQUEST, "example": example}}}
    family = parameter("endpoint", "path", {**TEXT, "minLength": 1}, required=True)
    of_family = step("post_aql_endpoint", "Agents", "MCP-AQL: operations of one family", answers, requestBody=body)
    return {
        AQL_PATH: {"post": step("post_aql", "Agents", "MCP-AQL: any operation", answers, requestBody=body)},
        f"{AQL_PATH}/{{endpoint}}": {"parameters": [family], "post": of_family},
    }


def _spoken_refusals(statuses: Iterable[int], spoken: Described) -> dict[int, Described]:
    return {status: answer(HTTPStatus(status).phrase, spoken, **HEADERS.get(status, {})) for status in statuses}


def _rpc(method: str, params: Described) -> Described:
    example = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return {"required": True, "content": {JSON: {"schema": reference("schemas", "RpcRequest"), "example": example}}}


def _desk() -> dict[str, Described]:
    """What waits for a person. A code is said nowhere else."""
    token = parameter("token", "path", {**TEXT, "minLength": 1}, required=True)
    after = parameter("after", "query", {"type": "integer", "minimum": 0, "description": "The last line that is known"})
    cursor = parameter("cursor", "query", {**TEXT, "description": "Where the page before ended"})
    limit = parameter("limit", "query", {"type": "integer", "minimum": 0, "maximum": MAX_LINES})
    few = parameter("limit", "query", {"type": "integer", "minimum": 0, "maximum": MAX_TASKS})
    closed = {status: reference("responses", f"Refusal{status}") for status in (400, 401, 403, 429, 503)}
    page = {200: answer("The page", _PAGE), **closed}
    code, verify = f"{DESK_API}/challenges/{{id}}/code", f"{DESK_API}/challenges/{{id}}/verify"
    return {
        DESK_PATH: {"get": step("get_desk", "Desk", "The desk, for people", page)},
        f"{DESK_API}/pending": {"get": _at_desk("get_pending", "What waits", PendingNamed, parameters=[cursor])},
        f"{DESK_API}/audit": {"get": _at_desk("get_audit", "The audit trail", Trail, parameters=[after, limit])},
        f"{DESK_API}/audit/check": {"get": _at_desk("get_audit_check", "What is wrong with the trail", Checked)},
        f"{DESK_API}/executions": {"get": _at_desk("get_executions", "Agents at work", Executions)},
        f"{DESK_API}/executions/{{id}}/end": {
            "parameters": [_ID],
            "post": _at_desk("post_end", "End what an agent does", AtWork, **_said(Ended)),
        },
        f"{DESK_API}/tasks": {"get": _at_desk("get_tasks", "The newest tasks of all", Tasks, parameters=[few])},
        f"{DESK_API}/tasks/{{id}}/cancel": {
            "parameters": [_ID],
            "post": _at_desk("post_cancel", "Cancel a task of anybody", TaskSeen),
        },
        f"{DESK_API}/sources": {"get": _at_desk("get_sources", "What the site is loaded from", Sources)},
        f"{DESK_API}/sources/{{number}}/reload": {
            "parameters": [parameter("number", "path", {"type": "integer", "minimum": 1}, required=True)],
            "post": _at_desk("post_reload", "Load a source again", SourceShown, 202),
        },
        f"{DESK_API}/feedback": {
            "get": _at_desk("get_feedback", "What people say of answers", FeedbackGiven, parameters=[few])
        },
        f"{DESK_API}/traffic": {"get": _at_desk("get_traffic", "The last hour of this process", Traffic)},
        f"{DESK_API}/confirmations/{{token}}": {
            "parameters": [token],
            "post": _at_desk("post_confirmation", "Agree, or refuse", Waiting, **_said(Decided)),
        },
        code: {"parameters": [_ID], "post": _at_desk("post_code", "Make a fresh code", Issued)},
        verify: {"parameters": [_ID], "post": _at_desk("post_verify", "Give the code", Challenged, **_said(Typed))},
        f"{DESK_API}/agents/unblock": {
            "post": _at_desk("post_unblock", "Let a caller go on without a code", Released, **_said(Unblocked))
        },
    }


def _at_desk(id: str, summary: str, kind: type, status: int = 200, **more: Any) -> Described:
    form = content(reference("schemas", kind.__name__), JSON)
    answers = {status: answer("Done", form), **problems(400, 401, 403, 404, 409, 413, 422, 429, 503)}
    return step(id, "Desk", summary, answers, **more)


def _said(kind: type) -> Described:
    return {"requestBody": {"required": True, "content": content(reference("schemas", kind.__name__), JSON)}}


def _discovery(config: Config) -> dict[str, Described]:
    """Documents at addresses that are known beforehand."""
    refused = problems(401, 429, 503)
    text, xml = {**found(content(TEXT, "text/plain")), **refused}, {**found(content({}, XML)), **refused}
    file = parameter("name", "path", {**TEXT, "description": "A collection and a number"}, required=True)
    asset = parameter("name", "path", {**TEXT, "description": "As pages name it"}, required=True)
    shown = [
        _read("/", "What this site is, and a place to ask it, for people", _kept(_PAGE)),
        _read("/docs", "This description, for people", {**found(_PAGE), **refused}),
        _read(INSPECT_PATH, "One question through every protocol, for people", {**found(_PAGE), **refused}),
        _read(
            f"{ASSETS}/{{name}}", "A part of pages", {**found(content(TEXT, *KINDS.values())), **problems(404)}, asset
        ),
        _read(EMBED, "The chat, for pages elsewhere", found(content(TEXT, KINDS[".js"]))),
        _read("/openapi.json", "This description, for programs", {**found(_DOCUMENT), **refused}),
        _read("/llms.txt", "What this site is, for language models", text),
        _read("/robots.txt", "What crawlers may read", text),
        _read("/sitemap.xml", "The sitemaps of all items", xml),
        _read("/sitemap-{name}.xml", "A sitemap", {**xml, **problems(*_READING_PROBLEMS)}, file),
        _read(AGENT_CARD_PATH, "What the A2A agent can do", {**found(_DOCUMENT), **refused}),
    ]
    for path, each in documents(config).items():
        form = content({"type": "object"}, each.kind.partition(";")[0])
        shown.append(_read(path, each.summary, {**found(form), **refused}))
    return {path: item for each in shown for path, item in each.items()}


def _read(path: str, summary: str, answers: Mapping[int, Described], *parameters: Described) -> Described:
    """A document that is there to be read."""
    id = re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_") or "home"
    shown = step(f"get_{id}", "Discovery", summary, answers)
    return {path: {"parameters": list(parameters), "get": shown} if parameters else {"get": shown}}


def _health() -> dict[str, Described]:
    ready = content(reference("schemas", "Readiness"), JSON)
    health = content(reference("schemas", "Health"), JSON)
    return {
        "/healthz": {"get": step("get_health", "Health", "Whether the server runs", {200: answer("It does", health)})},
        "/readyz": {
            "get": step(
                "get_readiness",
                "Health",
                "Whether the site answers questions",
                {200: answer("It does", ready), 503: answer("Not yet", ready)},
            )
        },
        "/metrics": {
            "get": step(
                "get_metrics", "Health", "Figures for Prometheus", {200: answer("Text", content(TEXT, "text/plain"))}
            )
        },
    }


# What the paths refer to


def components() -> dict[str, Described]:
    problem = content(reference("schemas", "Problem"), PROBLEM)
    failures = [reference("schemas", "Answer"), reference("schemas", "EarlierAnswer")]
    return {
        "schemas": {
            "AskRequest": ask_schema(),
            "FlatRequest": flat_schema(),
            "AwaitRequest": await_schema(),
            "ChatRequest": chat_schema(),
            "EarlierAnswer": earlier_schema(),
            **{kind.__name__: whole_schema(kind) for kind in _PUBLISHED},
        },
        "responses": {
            "Begun": answer("A task", content(reference("schemas", "TaskHeld"), JSON), location="Where the task is"),
            **_refusals("Problem", OPERATION_PROBLEMS, problem),
            **_refusals("Refusal", _READING_PROBLEMS, {**problem, **_PAGE}),
            **_refusals("Failure", _FAILURES, content({"anyOf": failures}, JSON)),
        },
        "parameters": {
            "Prefer": parameter(
                "prefer", "header", {**TEXT, "description": "respond-async: begin a task, and answer at once"}
            ),
            "IdempotencyKey": parameter(
                "idempotency-key", "header", {**TEXT, "description": "The same key again does nothing again"}
            ),
        },
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "description": "An API key or an access token"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An API key"},
        },
    }


_PUBLISHED = (
    *(Answer, FlatAnswer, Problem, Operations, TaskHeld, Health, Readiness, Event, RpcRequest, RpcResponse),
    *(PendingNamed, Waiting, Challenged, Decided, Ended, Issued, Released, Trail, Typed, Unblocked),
    *(ChatCompletion, ChatError, FeedbackNoted, FeedbackRequest, Headings, ShownConversation),
    *(AtWork, Checked, Executions, FeedbackGiven, Tasks, TaskSeen, Sources, SourceShown, Traffic),
)
HEADERS: Mapping[int, dict[str, str]] = {
    401: {"www_authenticate": "How to say who asks"},
    429: {"retry_after": "Seconds to wait"},
}


def _refusals(name: str, statuses: Iterable[int], shown: Described) -> dict[str, Described]:
    return {
        f"{name}{status}": answer(HTTPStatus(status).phrase, shown, **HEADERS.get(status, {})) for status in statuses
    }
