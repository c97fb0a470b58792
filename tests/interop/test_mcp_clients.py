"""The official MCP clients against the sample site: this major and the previous one, over HTTP and as a child process.

Each makes the same visit, and each is to see what everybody else sees who asks the site over HTTP.
"""

import asyncio
import json
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from tests.conformance.requirements import requirement
from tests.interop.conftest import HERE
from tests.server.conftest import SCRIPT

VISIT_SECONDS = 60
REVISIONS = {  # that a client and the site agree on
    "current, http": "2026-07-28",
    "current, http, legacy": "2025-11-25",
    "current, stdio": "2026-07-28",
    "current, stdio, legacy": "2025-11-25",
    "previous, http": "2025-11-25",
    "previous, stdio": "2025-11-25",
}
ASKS: list[dict[str, Any]] = [
    {"query": {"text": "Find high protein recipes"}, "context": {"@type": "UserDiet", "restrictions": ["vegan"]}},
    {"query": {"text": "healthy breakfast recipes with eggs", "site": "recipes"}, "meta": {"version": "0.55"}},
    {"query": {"text": "soup", "site": "recipes", "itemType": "Recipe"}, "meta": {"version": "0.55"}},
    {"query": {"text": "with chicken"}, "context": {"prev": ["lemon barley soup"], "text": "what to cook today"}},
    {"query": {"text": "a warm soup"}, "prefer": {"mode": "list, summarize"}, "meta": {"request_id": "r1"}},
]
TEXT = {"query": "a warm soup"}  # as front ends of before have it
PLAN: dict[str, Any] = {
    "asks": [*ASKS, TEXT],
    "vague": {"query": {"text": "something nice"}},
    "form": {"collection": "Recipes"},
    "promising": {"query": {"text": "plan meals for five days"}},
    "resource": "portico://items/recipes/recipes/lemon-barley-soup",
    "prompt": ("find", {"what": "a warm soup", "collection": "recipes"}),
    "template": "portico://items/{collection}/{id}",
    "begun": {"name": "collection", "value": "re"},
}

Visit = dict[str, Any]


# Visits


@pytest.fixture(scope="module")
def plan(demo: str, demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """How to reach the site, and what to do there. A child process calls the site by the same address."""
    site = tmp_path_factory.mktemp("site") / "portico.toml"
    said = files("portico.demo").joinpath("portico.toml").read_text("utf-8")
    site.write_text(said.replace("[server]\n", f'[server]\nurl = "{demo}"\n'))
    store = f"sqlite:///{demo_folder / '.portico' / 'demo.db'}"
    command = [str(SCRIPT), "mcp", "--site", str(site), "--store", store]
    return {**PLAN, "url": f"{demo}/mcp", "command": command}


@pytest.fixture(scope="module", params=REVISIONS)
def client(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def seen(client: str, plan: dict[str, Any], request: pytest.FixtureRequest) -> Visit:
    """What a client sees. It comes once, and every test looks at that."""
    major, carrier, *mode = client.split(", ")
    if major == "previous":
        reached = {**plan, "command": plan["command"] if carrier == "stdio" else []}
        return visit_with_older(request.getfixturevalue("older"), reached)
    command = StdioServerParameters(command=plan["command"][0], args=plan["command"][1:])
    return asyncio.run(visit(plan, command if carrier == "stdio" else plan["url"], *mode or ["auto"]))


async def visit(plan: dict[str, Any], server: str | StdioServerParameters, mode: str) -> Visit:
    """What older_client.py does, with the current major."""
    forms: list[Any] = []

    async def fill_in(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(plain(params))
        return types.ElicitResult(action="accept", content=plan["form"])

    async with Client(server, mode=mode, elicitation_callback=fill_in) as client:

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            told: list[str | None] = []

            async def hear(_: float, __: float | None, message: str | None) -> None:
                told.append(message)

            return {**plain(await client.call_tool(name, arguments, progress_callback=hear)), "progress": told}

        template = types.ResourceTemplateReference(uri=plan["template"])
        promise = await call("ask", plan["promising"])
        token = promise["structuredContent"]["promise"]["token"]
        checked_in = await call("await", {"promise_token": token, "action": "checkin"})
        cancelled = await call("await", {"promise_token": token, "action": "cancel"})
        return {
            "revision": client.protocol_version,
            "tools": plain(await client.list_tools())["tools"],
            "answers": [await call("ask", each) for each in plan["asks"]],
            "asked_back": await call("ask", plan["vague"]),
            "forms": forms,
            "promise": promise,
            "checked_in": checked_in,
            "cancelled": cancelled,
            "resources": plain(await client.list_resources())["resources"],
            "templates": plain(await client.list_resource_templates())["resourceTemplates"],
            "read": plain(await client.read_resource(plan["resource"]))["contents"],
            "prompts": plain(await client.list_prompts())["prompts"],
            "prompt": plain(await client.get_prompt(*plan["prompt"]))["messages"],
            "completed": plain(await client.complete(template, plan["begun"]))["completion"],
        }


def plain(result: Any) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def visit_with_older(python: Path, plan: dict[str, Any]) -> Visit:
    command = [python, HERE / "older_client.py", json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=VISIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# What they see


@requirement("mcp:transport:revisions", "mcp:transport:stdio")
def test_a_client_agrees_on_its_newest_revision_and_finds_the_tools(client: str, seen: Visit) -> None:
    ask, wait, *_ = seen["tools"]

    assert seen["revision"] == REVISIONS[client]
    assert (ask["name"], list(ask["inputSchema"]["properties"])) == ("ask", ["query", "context", "prefer", "meta"])
    assert ask["inputSchema"]["required"] == ["query"]
    assert (wait["name"], {"promise_token", "action", "meta"} - set(wait["inputSchema"]["properties"])) == (
        "await",
        set(),
    )
    assert wait["inputSchema"]["required"] == ["promise_token", "action"]


def test_an_answer_has_the_same_items_in_the_same_order_as_over_http(seen: Visit, demo: str) -> None:
    asks = [{**each, "prefer": {**each.get("prefer", {}), "portico_actions": "MCP"}} for each in ASKS]
    text = {"query": {"text": TEXT["query"]}, "prefer": {"portico_actions": "MCP"}}
    asked = [httpx.post(f"{demo}/ask", json=each).json()["results"] for each in (*asks, text)]

    assert all(asked)
    assert [answer["structuredContent"]["results"] for answer in seen["answers"]] == asked


def test_an_answer_is_told_as_text_and_as_an_object_and_says_what_it_is(seen: Visit) -> None:
    for answer in seen["answers"]:
        body = answer["structuredContent"]
        assert [json.loads(each["text"]) for each in answer["content"]] == [body]
        assert (body["_meta"]["response_type"], body["_meta"]["version"]) == ("answer", "0.55")
        assert {name: answer["_meta"][name] for name in body["_meta"]} == body["_meta"]


def test_items_are_told_while_they_are_found(seen: Visit) -> None:
    for answer in seen["answers"]:
        items = [each["name"] for each in answer["structuredContent"]["results"] if each["@type"] != "SearchSummary"]
        assert answer["progress"] == items


def test_a_question_back_is_a_form_and_its_answers_count(seen: Visit, demo: str) -> None:
    vague = httpx.post(f"{demo}/ask", json=PLAN["vague"]).json()
    [question] = vague["elicitation"]["questions"]
    told = {"context": {"answers": PLAN["form"]}, "meta": {"session_context": vague["_meta"]["session_context"]}}
    answered = httpx.post(f"{demo}/ask", json={**PLAN["vague"], **told}).json()

    [form] = seen["forms"]
    assert form["message"] == vague["elicitation"]["text"]
    assert form["requestedSchema"] == {
        "type": "object",
        "properties": {"collection": {"type": "string", "title": question["text"], "enum": question["options"]}},
        "required": ["collection"],
    }
    assert {each["@type"] for each in answered["results"]} == {"Recipe"}
    assert seen["asked_back"]["structuredContent"]["results"] == answered["results"]


def test_a_promise_is_looked_at_and_cancelled(seen: Visit, demo: str) -> None:
    promised, running, cancelled = (seen[each]["structuredContent"] for each in ("promise", "checked_in", "cancelled"))
    token = promised["promise"]["token"]
    looked = httpx.post(f"{demo}/await", json={"promise_token": token, "action": "checkin"}).json()

    kinds = [each["_meta"]["response_type"] for each in (promised, running, cancelled)]
    assert kinds == ["promise", "promise", "failure"]
    assert running["promise"]["token"] == token
    assert cancelled["error"]["code"] == "CANCELLED"
    assert looked["error"] == cancelled["error"]  # it is over for everybody


def test_resources_and_prompts_are_found_read_and_completed(seen: Visit) -> None:
    [read] = seen["read"]
    [message] = seen["prompt"]

    collections = ["articles", "books", "events", "faqs", "places", "products", "recipes", "restaurants"]
    assert [each["name"] for each in seen["resources"]] == ["catalog", *collections]
    assert PLAN["template"] in [each["uriTemplate"] for each in seen["templates"]]
    assert (read["uri"], json.loads(read["text"])["name"]) == (PLAN["resource"], "Lemon Barley Soup")
    assert [each["name"] for each in seen["prompts"]] == ["find", "compare", "recommend", "arrange"]
    assert '"a warm soup"' in message["content"]["text"]
    assert seen["completed"]["values"] == ["recipes", "restaurants"]


# The front end nlweb-ui, which speaks 2024-11-05 in its own way: without sessions, capabilities or streams

AXIOS = {"accept": "application/json, text/plain, */*"}


@requirement("nlweb:note:mcp-ui-client")
@requirement("mcp:transport:revisions")
def test_a_front_end_that_knows_no_sessions_and_no_streams_is_answered(demo: str) -> None:
    def sent(id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return httpx.post(f"{demo}/mcp", json=body, headers=AXIOS).json()["result"]

    begun = sent(1, "initialize", {"protocolVersion": "2024-11-05", "clientInfo": {"name": "nlweb-ui", "version": "1"}})
    arguments = {"query": "a warm soup", "site": "recipes", "num_results": 3}
    result = sent(2, "tools/call", {"name": "ask", "arguments": arguments})

    asked = httpx.post(f"{demo}/ask", json={"query": {"text": "a warm soup", "site": "recipes"}}).json()
    assert begun["protocolVersion"] == "2024-11-05"
    assert [each["type"] for each in result["content"]] == ["text"]
    assert result["structuredContent"]["results"] == asked["results"][:3]
