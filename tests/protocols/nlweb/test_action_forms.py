"""In which form an item's actions are offered: that of the caller's protocol, or the one that `prefer` names."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.a2a import conftest as a2a
from tests.protocols.conftest import Inn, asking
from tests.protocols.mcp.conftest import structured, visiting

OWN = '''
from typing import Any
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def reserve_room(context: Context, room: str, nights: int = 1) -> dict[str, Any]:
    """Reserve a room."""
    return {"room": room, "nights": nights}
'''


@pytest.fixture
def house(inn: Inn, tmp_path: Path) -> Inn:
    """The inn with an operation of its own, which anybody may run."""
    (tmp_path / "own.py").write_text(OWN)
    anybody = {"scopes": ["ask", "read:*", "execute:*"]}
    return lambda **more: inn(**{"operations": ["own.py"], "anonymous": anybody, **more})


def forms(answer: dict[str, Any]) -> list[str]:
    return [action["protocol"] for action in answer["results"][0]["actions"]]


@requirement("nlweb:action:mcp", "nlweb:note:action-binding")
@pytest.mark.parametrize(
    ("settings", "tool"),
    [({}, "mcp_aql"), ({"mcp": {"operations": "own"}}, "reserve_room"), ({"aql": {"mode": "single"}}, "mcp_aql")],
)
async def test_callers_over_mcp_are_offered_tools_that_they_can_call(house: Inn, settings: Any, tool: str) -> None:
    async with house(**settings) as parts, visiting(parts) as client:
        answer = structured(await client.call_tool("ask", {"query": {"text": "the attic"}}))
        [action] = answer["results"][0]["actions"]
        result = structured(await client.call_tool(action["tool"], action["arguments"]))
        offered = {each.name for each in (await client.list_tools()).tools}

    assert (action["protocol"], action["tool"]) == ("MCP", tool)
    assert action["server"].endswith("/mcp")
    assert tool in offered
    assert {"room": "attic", "nights": 1} in (result.get("result"), result.get("data"))


@pytest.mark.parametrize("mode", ["semantic", "none"])
async def test_callers_over_mcp_without_a_tool_for_an_operation_are_offered_http(house: Inn, mode: str) -> None:
    async with house(aql={"mode": mode}) as parts, visiting(parts) as client:
        answer = structured(await client.call_tool("ask", {"query": {"text": "the attic"}}))

    assert forms(answer) == ["HTTP"]


@requirement("nlweb:action:a2a", "nlweb:note:action-binding")
async def test_callers_over_a2a_are_offered_messages_that_they_can_send(house: Inn) -> None:
    async with house() as parts, a2a.visiting(parts) as talk:
        found = a2a.answer(await talk.send(a2a.text("the attic")))
        [action] = found["results"][0]["actions"]
        said = await talk.rpc("SendMessage", message={**action["message"], "messageId": "m2"})

    assert (action["protocol"], action["skill"]) == ("A2A", "reserve_room")
    assert a2a.answer(said["task"])["results"][0]["result"] == {"room": "attic", "nights": 1}


@requirement("nlweb:note:action-binding")
@pytest.mark.parametrize(
    ("wanted", "offered", "ignored"),
    [
        (None, ["HTTP"], []),
        ("MCP", ["MCP"], []),
        ("a2a", ["A2A"], []),
        ("MCP, A2A", ["MCP", "A2A"], []),
        (["A2A", "HTTP", "A2A"], ["A2A", "HTTP"], []),
        ("MCP, SOAP", ["MCP"], ["prefer.portico_actions SOAP"]),
        ("SOAP", ["HTTP"], ["prefer.portico_actions SOAP"]),
        ("", ["HTTP"], []),
    ],
)
async def test_prefer_chooses_the_form_of_actions(house: Inn, wanted: Any, offered: Any, ignored: Any) -> None:
    async with house() as parts, asking(parts) as client:
        body = {"query": {"text": "the attic"}, "prefer": {"portico_actions": wanted}}
        answer = (await client.post("/ask", json=body)).json()

    assert (forms(answer), answer["_meta"].get("ignored", [])) == (offered, ignored)


async def test_prefer_counts_over_mcp_and_a2a_too(house: Inn) -> None:
    wanted = {"query": {"text": "the attic"}, "prefer": {"portico_actions": "HTTP"}}
    async with house() as parts:
        async with visiting(parts) as client:
            over_mcp = structured(await client.call_tool("ask", wanted))
        async with a2a.visiting(parts) as talk:
            over_a2a = a2a.answer(await talk.send(a2a.data(**wanted)))

    assert forms(over_mcp) == forms(over_a2a) == ["HTTP"]
