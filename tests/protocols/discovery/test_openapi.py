"""`/openapi.json`: valid, complete, true of what is answered, and the same for everybody."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from tests.protocols.conftest import Inn, asking, frames_of, key_of, scripted, telling

from portico.ask.events import ClarificationEvent, ErrorEvent, Question, TaskEvent
from portico.errors import Conflict
from portico.protocols.nlweb.answers import answer_schema
from portico.protocols.nlweb.models import ask_schema, await_schema
from portico.protocols.nwp.http import PATHS
from portico.requests import Call, Caller, Task, TaskState
from portico.server.assembly import Parts
from portico.server.http import application
from portico.store.records import Put

METHODS = {"get", "post", "put", "patch", "delete"}
OWN = '''
from portico.operations import Context, operation

@operation(danger="safe")
async def wonder(context: Context) -> object:
    """Nobody knows the shape of what comes."""
    return 1
'''


async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    return (await client.get("/openapi.json")).json()


def fits(value: Any, name: str, document: dict[str, Any]) -> bool:
    """Whether a value is what the document publishes under a name."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


# The document


async def test_it_is_valid(client: httpx.AsyncClient) -> None:
    found = await document(client)

    validate(found)
    assert (found["openapi"], found["info"]["title"]) == ("3.1.0", "Portico")


async def test_it_has_every_address_of_the_site_and_no_other(inn: Inn, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    issuer = {"issuer": "https://login.example", "keys": "https://login.example/keys"}
    settings = {"site": {"images": "pictures"}, "oauth": issuer, "chat": {"azure": True}}
    async with inn(**settings) as parts, asking(parts) as client:
        told = {
            (path, method)
            for path, item in (await document(client))["paths"].items()
            for method in METHODS & item.keys()
        }
        served = {
            (path, method)
            for path, methods in _served(parts)
            for method in methods or {m for p, m in told if p == path}
        }

    assert told == served


def _served(parts: Parts) -> list[tuple[str, set[str]]]:
    """The paths of the application as a document writes them, and their methods; none means any."""
    app: Any = application(parts)
    while not isinstance(app, Starlette):
        app = app._app  # what wraps the routes shows them to nobody
    found: list[tuple[str, set[str]]] = []
    for route in app.routes:
        if isinstance(route, Mount):
            found.append((f"{route.path}/{{path}}", {"get"}))
        elif isinstance(route, Route):
            path = route.path.replace(":path}", "}")
            names = parts.site.catalog.operations if path == "/operations/{name}" else [""]
            methods = {method.lower() for method in route.methods or ()} - {"head"}
            found.extend((path.replace("{name}", name) if name else path, methods) for name in names)
    return found + [(f"/nwp/{{node}}/{below}".rstrip("/"), {method.lower()}) for below, method in PATHS.items()]


async def test_what_it_says_of_nodes_is_what_they_answer(client: httpx.AsyncClient) -> None:
    shown = {path: item for path, item in (await document(client))["paths"].items() if path.startswith("/nwp/")}
    asked = {
        (path, method): await client.request(method, path.format(node="site", task="none"))
        for path in shown
        for method in METHODS
    }
    nothing = await client.get("/nwp/site/nothing")

    told = {(path, method) for path, item in shown.items() for method in METHODS & item.keys()}
    assert {key for key, answer in asked.items() if answer.status_code != 405} == told
    allowed = {
        (path, asked[path, method].headers["allow"].partition(",")[0].lower()) for path, method in asked.keys() - told
    }
    assert allowed == told
    assert nothing.status_code == 404


@pytest.mark.parametrize(
    ("below", "body", "name"),
    [
        ("query", {"limit": 1}, "NodeCapsFrame"),
        ("query", {"limit": -1}, "NodeError"),
        ("invoke", {"action_id": "rooms.count"}, "NodeCapsFrame"),
        ("invoke", {"action_id": "rooms.sell"}, "NodeError"),
        (".schema", None, "NodeAnchorFrame"),
    ],
)
async def test_an_answer_of_a_node_is_what_is_published(
    client: httpx.AsyncClient, below: str, body: dict[str, Any] | None, name: str
) -> None:
    found = await document(client)
    answer = await client.request("POST" if body else "GET", f"/nwp/site/{below}", json=body)

    step = found["paths"][f"/nwp/{{node}}/{below}"]["post" if body else "get"]
    told = step["responses"][str(answer.status_code)]
    told = found["components"]["responses"][told["$ref"].rpartition("/")[2]] if "$ref" in told else told
    assert answer.headers["content-type"] in told["content"]
    assert fits(answer.json(), name, found)


async def test_an_operation_has_an_address_with_the_types_that_check_it(client: httpx.AsyncClient) -> None:
    found = await document(client)
    call = found["paths"]["/operations/get_room"]["post"]

    assert call["operationId"] == "call_get_room"
    assert fits({"id": "attic"}, _name(call["requestBody"]), found)
    assert not fits({"id": ""}, _name(call["requestBody"]), found)
    assert not fits({"id": "attic", "colour": "red"}, _name(call["requestBody"]), found)
    assert {"200", "202", "401", "404", "422", "429", "504"} <= call["responses"].keys()


def _name(body: dict[str, Any]) -> str:
    return body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]


async def test_a_result_that_no_schema_can_describe_is_anything(inn: Inn, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    async with inn(operations=["own.py"]) as parts, asking(parts) as client:
        found = await document(client)

    done = found["paths"]["/operations/wonder"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert done["properties"] == {"operation": {"const": "wonder"}, "result": {}}


async def test_a_new_collection_is_told_of_at_once(client: httpx.AsyncClient, parts: Parts) -> None:
    before = await client.get("/openapi.json")
    await parts.store.collections.declare(parts.config.collection("boats"))
    after = await client.get("/openapi.json", headers={"if-none-match": before.headers["etag"]})

    assert "/operations/list_boats" not in before.json()["paths"]
    assert "/operations/list_boats" in after.json()["paths"]


async def test_who_has_it_already_is_told_so(client: httpx.AsyncClient) -> None:
    first = await client.get("/openapi.json")
    again = await client.get("/openapi.json", headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})

    assert (first.headers["cache-control"], again.status_code, again.content) == ("no-cache", 304, b"")


async def test_everybody_sees_the_same_and_nobody_sees_what_is_private(inn: Inn) -> None:
    async with inn(collections={"diaries": {"private": True}}) as parts, asking(parts) as client:
        await parts.store.collections.declare(parts.config.collection("diaries"))
        await parts.store.items.write("diaries", [Put("d1", {"name": "Dear diary"})])
        key = await key_of(parts, "ask", "*:*")
        bodies = [(await client.get(path)).text for path in ("/openapi.json", "/docs")]
        known = [(await client.get(path, headers={"x-api-key": key})).text for path in ("/openapi.json", "/docs")]

    assert bodies == known
    assert not any("diar" in body for body in bodies)


# Its examples


async def test_its_examples_are_answered(client: httpx.AsyncClient) -> None:
    ask = (await document(client))["paths"]["/ask"]
    bodies = ask["post"]["requestBody"]["content"]
    in_url = {
        each["name"]: json.dumps(each["example"]).strip('"') for each in ask["get"]["parameters"] if "example" in each
    }

    answers = [
        await client.post("/ask", json=bodies["application/json"]["example"]),
        await client.post("/ask", data=bodies["application/x-www-form-urlencoded"]["example"]),
        await client.get("/ask", params=in_url),
    ]

    assert [len(each.json()["results"]) for each in answers] == [3, 3, 3]


# What it says of answers


QUESTION = {"query": {"text": "rooms"}, "prefer": {"streaming": False}}
WHEN = datetime(2026, 1, 2, tzinfo=UTC)
TASK = Task("t1", Call("ask", {}), Caller(), TaskState.RUNNING, WHEN, WHEN, 0.25, "Thinking", estimate=60.0)
BACK = ClarificationEvent("Tell me more", (Question("beds", "How many beds?", "single_select", ("1", "2"), "2"),))


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ({}, "Answer"),
        ({"meta": {"version": "0.55", "request_id": 7}}, "Answer"),
        ({"prefer": {"mode": "summarize", "response_format": "chatgpt_app", "streaming": False}}, "Answer"),
        ({"query": {"text": "rooms with more than 40 beds"}}, "Answer"),
        ({"query": {"text": "rooms", "colour": "blue"}}, "Answer"),
        ({"query": {"text": ""}}, "Answer"),
        ({"meta": {"api_version": "0.54"}}, "EarlierAnswer"),
        ({"query": "rooms", "streaming": False}, "FlatAnswer"),
        ({"query": "rooms", "streaming": False, "generate_mode": "summarize"}, "FlatAnswer"),
    ],
)
async def test_an_answer_is_what_is_published(client: httpx.AsyncClient, extra: dict[str, Any], name: str) -> None:
    found = await document(client)
    answer = (await client.post("/ask", json={**QUESTION, **extra})).json()

    assert [each for each in ("Answer", "EarlierAnswer", "FlatAnswer") if fits(answer, each, found)] == [name]


@pytest.mark.parametrize("event", [BACK, TaskEvent(TASK), ErrorEvent(Conflict("Taken"))])
@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ({}, "Answer"),
        ({"meta": {"api_version": "0.54"}}, "EarlierAnswer"),
        ({"query": "rooms", "streaming": False}, "FlatAnswer"),
    ],
)
async def test_questions_back_promises_and_failures_are_what_is_published(
    parts: Parts, event: Any, extra: dict[str, Any], name: str
) -> None:
    async with asking(scripted(parts, telling(event))) as client:
        found = await document(client)
        answer = (await client.post("/ask", json={**QUESTION, **extra})).json()

    # A failure of the flat dialect is written as one of 0.55, with the id of the question.
    published = "Answer" if "error" in answer and name == "FlatAnswer" else name
    assert fits(answer, published, found)
    is_nested = published in {"Answer", "EarlierAnswer"}
    assert jsonschema.Draft202012Validator(answer_schema()).is_valid(answer) == is_nested


async def test_events_hold_what_is_published(client: httpx.AsyncClient) -> None:
    found = await document(client)
    stream = await client.post("/ask", json={**QUESTION, "prefer": {"streaming": True}})

    events = [{"event": name, "data": data} for name, data in frames_of(stream.text)]
    assert [each["event"] for each in events] == ["start", "result", "result", "result", "complete"]
    assert all(fits(each, "Event", found) for each in events)
    assert fits(json.loads(events[0]["data"]), "Answer", found)


async def test_a_refusal_is_what_is_published(client: httpx.AsyncClient) -> None:
    found = await document(client)
    refused = await client.post("/operations/get_room", json={"id": "nowhere"})

    assert refused.headers["content-type"] == "application/problem+json"
    assert fits(refused.json(), "Problem", found)
    assert not fits({**refused.json(), "status": "404"}, "Problem", found)


async def test_a_task_is_what_is_published(parts: Parts, client: httpx.AsyncClient) -> None:
    found = await document(client)
    key = {"x-api-key": await key_of(parts)}
    begun = await client.post("/operations/count_rooms", json={}, headers={**key, "prefer": "respond-async"})
    seen = await client.get(begun.headers["location"], headers=key)

    assert begun.status_code == 202
    assert fits(begun.json(), "TaskHeld", found)
    assert fits(seen.json(), "TaskHeld", found)
    published = found["components"]["schemas"]["TaskHeld"]["properties"]["task"]["properties"]
    assert seen.json()["task"].keys() == published.keys()


async def test_health_is_what_is_published(client: httpx.AsyncClient) -> None:
    found = await document(client)
    health, readiness = (await client.get("/healthz")).json(), (await client.get("/readyz")).json()

    schemas = found["components"]["schemas"]
    assert fits(health, "Health", found)
    assert fits(readiness, "Readiness", found)
    assert health.keys() == schemas["Health"]["properties"].keys()
    assert {*readiness, "reason"} == schemas["Readiness"]["properties"].keys()


# What tools publish of the same types


def test_the_schemas_of_tools_stand_alone() -> None:
    shown = json.dumps([ask_schema(), await_schema(), answer_schema()])

    assert "$ref" not in shown
    assert "$defs" not in shown


def test_ask_takes_what_the_specification_says() -> None:
    schema = ask_schema()
    question = jsonschema.Draft202012Validator(schema)

    assert list(schema["properties"]) == ["query", "context", "prefer", "meta"]
    assert question.is_valid(
        {"query": {"text": "soup", "price": "< 5"}, "context": {"@type": "UserDiet", "restrictions": ["vegan"]}}
    )
    assert not question.is_valid({"query": {}})
    assert not question.is_valid({"context": {}})


def test_await_takes_what_the_specification_says() -> None:
    look = jsonschema.Draft202012Validator(await_schema())

    assert look.is_valid({"promise_token": "t1", "action": "checkin", "meta": {"version": "0.55"}})
    assert not look.is_valid({"promise_token": "t1", "action": "forget"})
    assert not look.is_valid({"action": "cancel"})
