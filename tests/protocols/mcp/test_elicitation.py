"""Questions back through MCP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import scripted, soon
from tests.protocols.mcp.conftest import ERAS, Era, structured, visiting

from portico.ask.events import ClarificationEvent, EndEvent, Event, InterpretationEvent, ItemEvent, Question
from portico.items import Item
from portico.protocols.mcp import elicitation, server
from portico.requests import Ask, Caller
from portico.server.assembly import Parts

BEDS = Question("beds", "How many beds?", "number")
VIEW = Question("view", "Which view?", "single_select", ("sea", "garden"))
EXTRAS = Question("extras", "Anything else?", "multi_select", ("breakfast", "bicycle"))
ROOM = {"query": {"text": "a room"}}


async def host(ask: Ask, _: Caller) -> AsyncIterator[Event]:
    """Asks for beds and a view, and names a room after what was answered."""
    yield InterpretationEvent(ask.text, ("rooms",))
    if not ask.answers and ask.may_clarify:
        yield ClarificationEvent("Tell me more:", (BEDS, VIEW, EXTRAS))
        return
    yield ItemEvent(Item("room", "rooms", {"name": f"{dict(ask.answers)}"}, "1"), 0, 90)
    yield EndEvent(1)


class Person:
    """Somebody before the client, who fills in the form as told."""

    def __init__(self, action: str, **content: Any) -> None:
        self.seen: list[types.ElicitRequestFormParams] = []
        self._result = types.ElicitResult(action=action, content=content or None)

    async def __call__(self, _: object, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        self.seen.append(params)
        return self._result


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:elicitation:push", "mcp:elicitation:input-required")
async def test_a_client_that_shows_forms_gets_one_and_its_answers_count(parts: Parts, era: Era) -> None:
    person = Person("accept", beds=2, view="sea", extras=["bicycle"])
    async with visiting(scripted(parts, host), era, elicitation_callback=person) as client:
        result = await client.call_tool("ask", ROOM)

    (form,) = person.seen
    assert form.message == "Tell me more:"
    assert form.requested_schema == {
        "type": "object",
        "properties": {
            "beds": {"type": "number", "title": "How many beds?"},
            "view": {"type": "string", "enum": ["sea", "garden"], "title": "Which view?"},
            "extras": {
                "type": "array",
                "items": {"type": "string", "enum": ["breakfast", "bicycle"]},
                "title": "Anything else?",
            },
        },
        "required": ["beds", "view", "extras"],
    }
    (item,) = structured(result)["results"]
    assert item["name"] == "{'beds': 2, 'view': 'sea', 'extras': ['bicycle']}"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
@requirement("mcp:elicitation:declined")
async def test_who_declines_to_say_more_gets_an_answer_without(parts: Parts, era: Era, action: str) -> None:
    async with visiting(scripted(parts, host), era, elicitation_callback=Person(action)) as client:
        result = await client.call_tool("ask", ROOM)

    assert [item["name"] for item in structured(result)["results"]] == ["{}"]


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:elicitation:otherwise")
async def test_a_client_without_forms_is_asked_back_in_the_result_and_answers_by_asking_again(
    parts: Parts, era: Era
) -> None:
    async with visiting(scripted(parts, host), era) as client:
        back = structured(await client.call_tool("ask", ROOM))
        session = back["_meta"]["session_context"]
        again = {**ROOM, "context": {"answers": {"beds": 3}}, "meta": {"session_context": session}}
        result = structured(await client.call_tool("ask", again))

    assert [question["id"] for question in back["elicitation"]["questions"]] == ["beds", "view", "extras"]
    assert [item["name"] for item in result["results"]] == ["{'beds': 3}"]


@requirement("mcp:elicitation:state-untrusted")
async def test_a_state_of_another_making_is_left_aside(parts: Parts) -> None:
    async with visiting(scripted(parts, host)) as client:
        given = {"clarify": types.ElicitResult(action="accept", content={"beds": 1})}
        result = await client.session.call_tool(
            "ask", ROOM, input_responses=given, request_state="forged", allow_input_required=True
        )

    assert isinstance(result, types.CallToolResult)
    assert "meta.session_context.state_token" in structured(result)["_meta"]["ignored"]


async def test_a_form_that_nobody_fills_in_is_declined_in_the_end(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> types.ElicitResult:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(elicitation, "FORM_SECONDS", 0.05)
    async with visiting(scripted(parts, host), "legacy", elicitation_callback=away) as client:
        result = await client.call_tool("ask", ROOM)

    assert [item["name"] for item in structured(result)["results"]] == ["{}"]


async def test_only_so_many_forms_wait_for_one_caller(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, done = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> types.ElicitResult:
        shown.set()
        await done.wait()
        return types.ElicitResult(action="decline")

    monkeypatch.setattr(server, "MAX_FORMS", 1)
    async with visiting(scripted(parts, host), "legacy", elicitation_callback=slow) as client:
        waiting = asyncio.create_task(client.call_tool("ask", ROOM))
        await soon(shown)
        second = structured(await client.call_tool("ask", ROOM))
        done.set()
        first = structured(await waiting)

    assert second["elicitation"]["text"] == "Tell me more:"
    assert len(first["results"]) == 1
