"""What the MCP conformance suite calls by name, on top of a site's own MCP server: same door, same transport.

Run as `python -m tests.interop.mcp_fixtures PORT`. Tools that begin with `test_` answer as the suite wants it; every
other request goes to the server below. Long work is work of the site, so that its tasks are the real ones.
"""

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from starlette.routing import Route
from tests.edges import behind_edge

from portico.errors import Conflict
from portico.operations import Context as Work
from portico.operations import operation
from portico.protocols import parse_config
from portico.protocols.edge import EdgeMiddleware, sdk_policy
from portico.protocols.http import CALLER
from portico.protocols.mcp.errors import refusal
from portico.protocols.mcp.routes import PATH, build_checked_app
from portico.protocols.mcp.server import make_server
from portico.protocols.mcp.transport import open_transport
from portico.requests import Caller
from portico.server.assembly import Parts, open_site
from portico.server.http import server_settings
from portico.site import Site

Context = ServerRequestContext[Any, Any]
Called = types.CallToolRequestParams
Answer = types.CallToolResult | types.InputRequiredResult
Below = Callable[[Context, Any], Awaitable[Any]]

SITE = {
    "site": {"name": "Fixtures"},
    "store": {"url": "sqlite:///:memory:"},
    "search": {"embedder": "none:"},
    "operations": ["tests.interop.mcp_fixtures"],
    "mcp": {"operations": "own"},
    "limits": {"anonymous_per_minute": 100_000, "tasks_per_caller": 100},
}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # a red point
)
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
STEP_SECONDS = 0.02  # between two messages of one call


# Work of the site


@operation(kind="read", danger="safe", long=True)
async def slow_compute(_: Work, seconds: float = 0.0, label: str = "") -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"Computed {label} for {seconds:g} seconds"


@operation(kind="read", danger="safe", long=True)
async def failing_job(_: Work) -> str:
    """Fail after a while."""
    raise Conflict("This job cannot be done")


@operation(kind="read", danger="safe", long=True)
async def protocol_error_job(_: Work) -> str:
    """Break, as no job should."""
    raise RuntimeError


@operation(kind="read", danger="safe", long=True)
async def confirm_delete(_: Work, filename: str) -> str:
    """Do something without a question: a task of the site never waits for an answer."""
    return f"{filename} stays"


@operation(kind="read", danger="safe", long=True)
async def greet_later(_: Work, name: str) -> str:
    """Greet somebody after a while."""
    return f"Hello, {name}!"


# Tools that always say the same


def text(said: str) -> types.TextContent:
    return types.TextContent(text=said)


def answer(*content: types.ContentBlock) -> types.CallToolResult:
    return types.CallToolResult(content=list(content))


def embedded(uri: str, kind: str, said: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=kind, text=said))


IMAGE = types.ImageContent(data=PIXEL, mime_type="image/png")
SAID: Mapping[str, types.CallToolResult] = {
    "test_simple_text": answer(text("This is a simple text response for testing.")),
    "test_image_content": answer(IMAGE),
    "test_audio_content": answer(types.AudioContent(data=SILENCE, mime_type="audio/wav")),
    "test_embedded_resource": answer(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": answer(
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": types.CallToolResult(
        content=[text("This tool intentionally returns an error for testing")], is_error=True
    ),
    "test_custom_headers": answer(text("Header and argument agree.")),
    "json_schema_2020_12_tool": answer(text("Its schema is what matters.")),
}
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "greet": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_custom_headers": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}


async def greet(_: Context, called: Called) -> Answer:
    return answer(text(f"Hello, {(called.arguments or {})['name']}!"))


# Tools that send something while they run


async def with_logging(context: Context, _: Called) -> Answer:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", said, related_request_id=context.request_id)
        await asyncio.sleep(STEP_SECONDS)
    return answer(text("Three messages were sent."))


async def with_progress(context: Context, _: Called) -> Answer:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(STEP_SECONDS)
    return answer(text("All is done."))


async def sampling(context: Context, called: Called) -> Answer:
    question = types.SamplingMessage(role="user", content=text((called.arguments or {})["prompt"]))
    got = await context.session.create_message([question], max_tokens=100, related_request_id=context.request_id)
    return answer(text(f"LLM response: {getattr(got.content, 'text', '')}"))


# Tools that ask while they run, in the handshake revisions

FORMS: Mapping[str, Mapping[str, Any]] = {
    "test_elicitation": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": "value1", "title": "First Option"}, {"const": "value2", "title": "Second Option"}],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [{"const": "value1", "title": "First Choice"}, {"const": "value2", "title": "Second Choice"}]
            },
        },
    },
}


async def form(context: Context, called: Called) -> Answer:
    message = (called.arguments or {}).get("message", "Please fill this in")
    schema = {"type": "object", "properties": FORMS[called.name], "required": []}
    got = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return answer(text(f"Elicitation completed: action={got.action}, content={json.dumps(got.content)}"))


# Tools that ask for a second request, since 2026-07-28


def question(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def prompting(said: str) -> types.CreateMessageRequest:
    messages = [types.SamplingMessage(role="user", content=text(said))]
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=messages, max_tokens=100))


def asking(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


ROOTS = types.ListRootsRequest(params=types.RequestParams())
NAME = question("What is your name?", "name")
# What a tool asks for; it is content when all of it has come.
WANTED: Mapping[str, Mapping[str, Any]] = {
    "test_input_required_result_elicitation": {"user_name": NAME},
    "test_input_required_result_sampling": {"capital_question": prompting("What is the capital of France?")},
    "test_input_required_result_list_roots": {"client_roots": ROOTS},
    "test_streaming_elicitation": {"user_name": NAME},
}
# The same with a state that must come back.
WANTED_WITH_STATE: Mapping[str, Mapping[str, Any]] = {
    "test_input_required_result_request_state": {"confirm": question("Please confirm", "ok", "boolean")},
    "test_input_required_result_tampered_state": {"confirm": question("Please confirm", "ok", "boolean")},
    "test_input_required_result_multiple_inputs": {
        "user_name": NAME,
        "greeting": prompting("Generate a greeting"),
        "client_roots": ROOTS,
    },
}
STEPS = (
    {"step1": question("Step 1: What is your name?", "name")},
    {"step2": question("Step 2: What is your favorite color?", "color")},
)


async def wanting(_: Context, called: Called) -> Answer:
    wanted = WANTED[called.name]
    if not wanted.keys() <= (called.input_responses or {}).keys():
        return asking(**wanted)
    return answer(text(f"Got {', '.join(wanted)}."))


async def missing_capability(context: Context, _: Called) -> Answer:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This needs sampling", needed)
    return answer(text("Sampling is there."))


async def capabilities(context: Context, called: Called) -> Answer:
    """Asks for what the client can give."""
    if called.input_responses:
        return answer(text("Thank you."))
    has = context.session.client_capabilities or types.ClientCapabilities()
    can = {"name": has.elicitation and NAME, "text": has.sampling and prompting("Say something")}
    return asking(**{name: request for name, request in can.items() if request})


@dataclass(frozen=True, slots=True)
class Stateful:
    """Tools whose state is sealed by the site, for the caller who brings it back."""

    site: Site

    async def wanting(self, context: Context, called: Called) -> Answer:
        wanted = WANTED_WITH_STATE[called.name]
        state = self._opened(context, called)
        if state is None or not wanted.keys() <= (called.input_responses or {}).keys():
            return asking(self._sealed(context, 1), **wanted)
        return answer(text("state-ok"))

    async def in_steps(self, context: Context, called: Called) -> Answer:
        number = self._opened(context, called) or 0
        if number == len(STEPS):
            return answer(text("That was all."))
        return asking(self._sealed(context, number + 1), **STEPS[number])

    def _sealed(self, context: Context, number: int) -> str:
        return self.site.tokens.seal({"number": number}, caller_of(context), 60)

    def _opened(self, context: Context, called: Called) -> int | None:
        if called.request_state is None:
            return None
        said = self.site.tokens.unseal(called.request_state, caller_of(context))
        if said is None:
            raise MCPError(types.INVALID_PARAMS, "This state is not the one that was given")
        return said["number"]


def caller_of(context: Context) -> Caller:
    return cast("Any", context.request).scope[CALLER]


# Resources

RESOURCES: Mapping[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PIXEL),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="It could change."
    ),
}


def resource(uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    id = uri.removeprefix("test://template/").removesuffix("/data")
    if uri == f"test://template/{id}/data":
        said = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=said)
    return RESOURCES.get(uri)


# Prompts

PROMPTS: Mapping[str, Sequence[str]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


def messages(name: str, said: Mapping[str, str]) -> list[types.ContentBlock]:
    match name:
        case "test_prompt_with_arguments":
            return [text(f"Prompt with arguments: arg1='{said['arg1']}', arg2='{said['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            shown = embedded(said["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return [shown, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            return [IMAGE, text("Please analyze the image above.")]
        case _:
            return [text("This is a simple prompt for testing.")]


# The server


CHANGING = ("tools", "prompts")
LAID_OVER = (
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
)


class Fixtures:
    """Lays the fixtures over a server: what they do not know, it answers."""

    def __init__(self, server: Server[Any], site: Site) -> None:
        self._bus = InMemorySubscriptionBus()
        stateful = Stateful(site)
        self._tools: dict[str, Callable[[Context, Called], Awaitable[Answer]]] = {
            **dict.fromkeys(SAID, self._said),
            **dict.fromkeys(FORMS, form),
            **dict.fromkeys(WANTED, wanting),
            **dict.fromkeys(WANTED_WITH_STATE, stateful.wanting),
            "greet": greet,
            "test_input_required_result_multi_round": stateful.in_steps,
            "test_input_required_result_capabilities": capabilities,
            "test_missing_capability": missing_capability,
            "test_tool_with_logging": with_logging,
            "test_logging_tool": with_logging,
            "test_tool_with_progress": with_progress,
            "test_sampling": sampling,
            "test_tool_with_task": self._with_task,
            "test_trigger_tool_change": self._changed,
            "test_trigger_prompt_change": self._changed,
        }
        self._below: dict[str, Below] = {
            method: cast("Any", server.get_request_handler(method)).handler for method in LAID_OVER
        }
        self._lay_over(server)

    def _lay_over(self, server: Server[Any]) -> None:
        paged, add = types.PaginatedRequestParams, server.add_request_handler
        add("server/discover", types.RequestParams, self.discover)
        add("tools/list", paged, self.list_tools)
        add("tools/call", Called, self.call_tool)
        add("resources/list", paged, self.list_resources)
        add("resources/read", types.ReadResourceRequestParams, self.read_resource)
        add("resources/subscribe", types.SubscribeRequestParams, self.accept)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self.accept)
        add("prompts/list", paged, self.list_prompts)
        add("prompts/get", types.GetPromptRequestParams, self.get_prompt)
        add("logging/setLevel", types.SetLevelRequestParams, self.accept)
        add("subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(self._bus))
        server.get_tool_input_schema = SCHEMAS.get

    async def accept(self, _: Context, __: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def discover(self, context: Context, params: Any) -> types.DiscoverResult:
        """What the server below can do, and that it tells of lists that change."""
        found = await self._below["server/discover"](context, params)
        changing = {
            name: getattr(found.capabilities, name).model_copy(update={"list_changed": True}) for name in CHANGING
        }
        return found.model_copy(update={"capabilities": found.capabilities.model_copy(update=changing)})

    async def list_tools(self, context: Context, params: Any) -> types.ListToolsResult:
        listed = await self._below["tools/list"](context, params)
        own = [
            types.Tool(
                name=name, description="For the conformance suite.", input_schema=dict(SCHEMAS.get(name, NOTHING))
            )
            for name in self._tools
        ]
        return listed.model_copy(update={"tools": [*listed.tools, *own]})

    async def call_tool(self, context: Context, params: Called) -> Any:
        tool = self._tools.get(params.name, self._below["tools/call"])
        return await tool(context, params)

    async def list_resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        listed = await self._below["resources/list"](context, params)
        own = [types.Resource(uri=uri, name=uri, mime_type=each.mime_type) for uri, each in RESOURCES.items()]
        return listed.model_copy(update={"resources": [*listed.resources, *own]})

    async def read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> Any:
        found = resource(str(params.uri))
        if found is None:
            return await self._below["resources/read"](context, params)
        return types.ReadResourceResult(contents=[found])

    async def list_prompts(self, context: Context, params: Any) -> types.ListPromptsResult:
        listed = await self._below["prompts/list"](context, params)
        own = [
            types.Prompt(
                name=name,
                description="For the conformance suite.",
                arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
            )
            for name, arguments in PROMPTS.items()
        ]
        return listed.model_copy(update={"prompts": [*listed.prompts, *own]})

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS:
            return await self._below["prompts/get"](context, params)
        if params.name == "test_input_required_result_prompt" and not params.input_responses:
            return asking(user_context=question("What context should the prompt use?", "context"))
        said = messages(params.name, params.arguments or {})
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=each) for each in said])

    async def _said(self, _: Context, called: Called) -> Answer:
        return SAID[called.name]

    async def _with_task(self, context: Context, called: Called) -> Any:
        """Asks first, and gives the answer to work of the site that takes long."""
        got = (called.input_responses or {}).get("user_name")
        if not isinstance(got, types.ElicitResult):
            return asking(user_name=NAME)
        name = (got.content or {})["name"]
        return await self._below["tools/call"](context, Called(name="greet_later", arguments={"name": name}))

    async def _changed(self, _: Context, called: Called) -> Answer:
        event = ToolsListChanged() if called.name == "test_trigger_tool_change" else PromptsListChanged()
        await self._bus.publish(event)
        return answer(text("It is told."))


@asynccontextmanager
async def served(parts: Parts) -> AsyncGenerator[EdgeMiddleware]:
    server = make_server(parts.site, parts.config, parts.record)
    Fixtures(server, parts.site)
    async with open_transport(server, parts.config) as inside:
        routes = [Route(PATH, build_checked_app(parts.site, parts.config, inside))]
        yield behind_edge(parts.site, routes, sdk_policy(parts.config), lambda _, error: refusal(error))


async def main(port: int) -> None:
    # The suite looks at logging and sampling, which the newest revision is giving up.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    async with open_site(parse_config(SITE)) as parts, served(parts) as app:
        settings = server_settings(parts)
        settings.app = app
        settings.port = port
        await uvicorn.Server(settings).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
