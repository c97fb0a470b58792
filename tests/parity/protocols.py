"""A small client for each face: a question goes in, and what was heard comes out in the same form."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import httpx
from mcp.shared.exceptions import MCPError
from tests.protocols.a2a.conftest import data, request, sent, text
from tests.protocols.conftest import frames_of
from tests.protocols.mcp.conftest import Era, connected
from websockets.asyncio.client import connect


@dataclass(frozen=True)
class Heard:
    """The items of an answer or what was done, or what its failure is called there."""

    ids: tuple[str, ...] = ()
    code: str | int = ""
    status: int = 200


Ask: TypeAlias = Callable[[str], Awaitable[tuple[Heard, str]]]  # what was heard, and every word of it
Face: TypeAlias = Callable[..., AbstractAsyncContextManager[Ask]]  # of a server on a port, with a key or without


def visitor(port: int, key: str, **headers: str) -> httpx.AsyncClient:
    known = {"x-api-key": key} if key else {}
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={**known, **headers})


def answered(body: Mapping[str, Any], status: int = 200) -> Heard:
    """An answer of NLWeb, or an event of one."""
    items = [*body.get("results", ()), *([body["item"]] if "item" in body else ())]
    # What was done has no id, and a text has no name either.
    return Heard(
        tuple(item.get("@id") or item["name"] for item in items if item.keys() & {"@id", "name"}),
        body.get("error", {}).get("code", ""),
        status,
    )


@asynccontextmanager
async def over_http(port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with visitor(port, key) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            got = await http.post("/ask", json={"query": {"text": question}})
            return answered(got.json(), got.status_code), got.text

        yield ask


@asynccontextmanager
async def over_events(port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with visitor(port, key) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            got = await http.post("/ask", json={"query": {"text": question}, "prefer": {"streaming": True}})
            if got.headers["content-type"].startswith("application/json"):
                return answered(got.json(), got.status_code), got.text
            told = [json.loads(data) for name, data in frames_of(got.text) if name in {"result", "error"}]
            return _joined(told), got.text

        yield ask


@asynccontextmanager
async def over_link(port: int, key: str = "") -> AsyncGenerator[Ask]:
    """A question in a URL, in the flat dialect."""
    async with visitor(port, key) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            got = await http.get("/ask", params={"query": question, "streaming": "false"})
            return answered(got.json(), got.status_code), got.text

        yield ask


@asynccontextmanager
async def over_socket(port: int, key: str = "") -> AsyncGenerator[Ask]:
    headers = {"x-api-key": key} if key else {}
    async with connect(f"ws://127.0.0.1:{port}/ask", additional_headers=headers) as socket:

        async def ask(question: str) -> tuple[Heard, str]:
            await socket.send(json.dumps({"query": {"text": question}, "prefer": {"streaming": False}}))
            said = str(await socket.recv())
            return answered(json.loads(said)), said

        yield ask


@asynccontextmanager
async def over_mcp(era: Era, port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with connected(port, era, key) as client:

        async def ask(question: str) -> tuple[Heard, str]:
            try:
                result = await client.call_tool("ask", {"query": {"text": question}})
            except MCPError as error:
                return Heard(code=error.error.code), error.error.model_dump_json()
            heard = answered(result.structured_content or {})
            assert result.is_error == bool(heard.code and heard.code != "CANCELLED")
            return heard, result.model_dump_json()

        yield ask


@asynccontextmanager
async def over_a2a(version: str, port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with visitor(port, key, **{"a2a-version": version}) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            got = await http.post("/a2a", json=MESSAGES[version](text(question)))
            return _of_task(got.json(), got.status_code), got.text

        yield ask


def _earlier(part: dict[str, Any]) -> dict[str, Any]:
    parts = [{"kind": "text" if "text" in part else "data", **part}]
    return request("message/send", {"message": {"messageId": "m1", "role": "user", "parts": parts}})


def _newest(part: dict[str, Any]) -> dict[str, Any]:
    return request("SendMessage", sent(part))


MESSAGES = {"1.0": _newest, "0.3": _earlier}


def _of_task(body: dict[str, Any], status: int) -> Heard:
    if "error" in body:
        return Heard(code=body["error"]["code"], status=status)
    task = body["result"].get("task", body["result"])
    match task["status"]["state"].removeprefix("TASK_STATE_").lower():
        case "completed":
            return answered(task["artifacts"][0]["parts"][-1]["data"])
        case "failed":
            return answered(task["status"]["message"]["parts"][-1]["data"])
        case state:
            return Heard(code=state)


@asynccontextmanager
async def over_operation(port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with visitor(port, key) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            got = await http.post("/operations/ask", json={"text": question})
            body = got.json()
            if "type" in body:
                return Heard(code=body["type"], status=got.status_code), got.text
            found = (each["item"]["id"] for each in body["result"]["events"] if each["event"] == "Found")
            return Heard(tuple(found)), got.text

        yield ask


@asynccontextmanager
async def over_aql(port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with connected(port, key=key) as client:

        async def ask(question: str) -> tuple[Heard, str]:
            wanted = {"operation": "ask", "params": {"text": question}}
            result = await client.call_tool("mcp_aql_read", wanted)
            body = result.structured_content or {}
            if "error" in body:
                return Heard(code=body["error"]["code"]), result.model_dump_json()
            found = (event["item"]["id"] for event in body["data"]["events"] if event["event"] == "Found")
            return Heard(tuple(found)), result.model_dump_json()

        yield ask


@asynccontextmanager
async def over_nwp(port: int, key: str = "") -> AsyncGenerator[Ask]:
    async with visitor(port, key) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            frame = {"action_id": "site.ask", "params": {"text": question}}
            got = await http.post("/nwp/operations/invoke", json=frame)
            body = got.json()
            if "error" in body:
                return Heard(code=body["error"], status=got.status_code), got.text
            found = (each["item"]["id"] for each in body["data"][0]["events"] if each["event"] == "Found")
            return Heard(tuple(found)), got.text

        yield ask


@asynccontextmanager
async def over_chat(streams: bool, port: int, key: str = "") -> AsyncGenerator[Ask]:
    """The AI Chat Protocol, of a site that tells errors as objects."""
    async with visitor(port, key) as http:

        async def ask(question: str) -> tuple[Heard, str]:
            # Each question for itself: the same one again would be the same turn.
            body = {"messages": [{"role": "user", "content": question}], "sessionState": uuid4().hex}
            got = await http.post("/chat/stream" if streams else "/chat", json=body)
            chunks = [json.loads(line) for line in got.text.splitlines()]
            error = chunks[-1].get("error", {})
            own = chunks[0].get("context", {}).get("portico", {})
            done = [own["action"]["name"]] if "action" in own else []
            found = () if error else (*(item["@id"] for item in own.get("items", ())), *done)
            return Heard(found, error.get("code", ""), got.status_code), got.text

        yield ask


def _joined(frames: list[dict[str, Any]]) -> Heard:
    parts = [answered(frame) for frame in frames]
    return Heard(tuple(id for part in parts for id in part.ids), next((part.code for part in parts if part.code), ""))


NLWEB: Mapping[str, Face] = {
    "http": over_http,
    "events": over_events,
    "link": over_link,
    "socket": over_socket,
    "mcp 2026": partial(over_mcp, "2026-07-28"),
    "mcp before": partial(over_mcp, "legacy"),
}
A2A: Mapping[str, Face] = {f"a2a {version}": partial(over_a2a, version) for version in MESSAGES}
OPERATION: Mapping[str, Face] = {"operation": over_operation}
AQL: Mapping[str, Face] = {"aql": over_aql}
NWP: Mapping[str, Face] = {"nwp": over_nwp}
CHAT: Mapping[str, Face] = {"chat": partial(over_chat, False), "chat stream": partial(over_chat, True)}


# Operations by their names, with a key

Letter: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[tuple[Heard, str]]]  # create, update or delete one
Door: TypeAlias = Callable[[int, str], AbstractAsyncContextManager[Letter]]  # of a server on a port, with a key


@asynccontextmanager
async def through_operations(port: int, key: str) -> AsyncGenerator[Letter]:
    async with visitor(port, key) as http:

        async def call(verb: str, params: Mapping[str, Any]) -> tuple[Heard, str]:
            got = await http.post(f"/operations/{verb}_letter", json=params)
            return Heard(code=got.json().get("type", ""), status=got.status_code), got.text

        yield call


@asynccontextmanager
async def through_mcp(era: Era, port: int, key: str) -> AsyncGenerator[Letter]:
    async with connected(port, era, key) as client:

        async def call(verb: str, params: Mapping[str, Any]) -> tuple[Heard, str]:
            result = await client.call_tool(f"{verb}_letter", dict(params))
            said = result.structured_content or {}
            assert result.is_error == ("error" in said)
            return Heard(code=said.get("error", {}).get("error", "")), json.dumps(said)

        yield call


@asynccontextmanager
async def through_aql(port: int, key: str) -> AsyncGenerator[Letter]:
    async with connected(port, key=key) as client:

        async def call(verb: str, params: Mapping[str, Any]) -> tuple[Heard, str]:
            wanted = {"operation": f"{verb}_letter", "params": params}
            said = (await client.call_tool(f"mcp_aql_{verb}", wanted)).structured_content or {}
            return Heard(code=said.get("error", {}).get("code", "")), json.dumps(said)

        yield call


@asynccontextmanager
async def through_a2a(version: str, port: int, key: str) -> AsyncGenerator[Letter]:
    async with visitor(port, key, **{"a2a-version": version}) as http:

        async def call(verb: str, params: Mapping[str, Any]) -> tuple[Heard, str]:
            wanted = data(operation=f"{verb}_letter", params=dict(params))
            got = await http.post("/a2a", json=MESSAGES[version](wanted))
            return replace(_of_task(got.json(), got.status_code), ids=()), got.text

        yield call


@asynccontextmanager
async def through_nwp(node: str, port: int, key: str) -> AsyncGenerator[Letter]:
    async with visitor(port, key) as http:

        async def call(verb: str, params: Mapping[str, Any]) -> tuple[Heard, str]:
            frame = {"action_id": f"letters.{verb}", "params": params}
            got = await http.post(f"/nwp/{node}/invoke", json=frame)
            return Heard(code=got.json().get("error", ""), status=got.status_code), got.text

        yield call


NAMED: Mapping[str, Door] = {
    "operation": through_operations,
    "mcp 2026": partial(through_mcp, "2026-07-28"),
    "mcp before": partial(through_mcp, "legacy"),
    "aql": through_aql,
    **{f"a2a {version}": partial(through_a2a, version) for version in MESSAGES},
    "nwp": partial(through_nwp, "letters-operations"),
    "nwp gateway": partial(through_nwp, "gateway"),
}
