"""What is done for a caller: commands in words, the questions they lead to, and the actions that items offer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, frames_of, key_of

from portico.server.assembly import Parts
from portico.store.records import Put

OWN = '''
from typing import Literal
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def ring_bell(context: Context) -> int:
    """Ring the bell of the house."""
    bell = await context.get("bells", "house")
    await context.put("bells", "house", {"rung": bell.data["rung"] + 1})
    return bell.data["rung"] + 1

@operation(kind="execute", danger="safe")
async def reserve_room(context: Context, room: str, nights: int = 1) -> dict[str, object]:
    """Reserve a room."""
    return {"room": (await context.get("rooms", room)).id, "nights": nights}

@operation(kind="execute", danger="safe")
async def paint_wall(
    context: Context,
    colour: Literal["red", "blue"],
    coats: int,
    gloss: bool,
    sides: list[Literal["inner", "outer"]],
    painter: str,
) -> dict[str, object]:
    """Paint the wall."""
    return {"colour": colour, "coats": coats, "gloss": gloss, "sides": sides, "painter": painter}
'''

# What can be undone is done once it is confirmed.
OWN += '''
@operation(kind="execute", danger="reversible")
async def strike_gong(context: Context) -> int:
    """Strike the gong."""
    bell = await context.get("bells", "house")
    await context.put("bells", "house", {"rung": bell.data["rung"] + 1})
    return bell.data["rung"] + 1
'''
COMMAND = "Please ring the bell"


@pytest.fixture
def house(inn: Inn, tmp_path: Path) -> Any:
    """The inn with operations of its own, which anybody may run."""
    (tmp_path / "own.py").write_text(OWN)

    @asynccontextmanager
    async def opening(**said: Any) -> AsyncIterator[tuple[Parts, httpx.AsyncClient]]:
        anybody = {"scopes": ["ask", "read:*", "execute:*"], "danger": "reversible"}
        collections = {"bells": {"private": True}}
        settings = {"operations": ["own.py"], "anonymous": anybody, "collections": collections, **said}
        async with inn(**settings) as parts, asking(parts) as client:
            await parts.store.items.write("bells", [Put("house", {"rung": 0})])
            yield parts, client

    return opening


async def ask(client: httpx.AsyncClient, text: str, headers: dict[str, str] | None = None, **sections: Any) -> Any:
    answer = await client.post("/ask", json={"query": {"text": text}, **sections}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def rung(parts: Parts) -> int:
    bell = await parts.store.items.get("bells", "house")
    assert bell
    return bell.data["rung"]


# Who may have something done


async def test_the_address_of_a_picture_asks_nothing(house: Any) -> None:
    async with house() as (_, client):
        asked = {place: await client.get("/ask?query=rooms", headers={"sec-fetch-dest": place}) for place in PLACES}

    assert [each.status_code for each in asked.values()] == [200, 200, 400, 400]
    assert asked["image"].json()["error"]["message"] == "`/ask` cannot be loaded as a resource of a page"


PLACES = ("document", "empty", "image", "script")  # where a browser wants to have what it asks for


@pytest.mark.parametrize("origin", [None, "http://inn.example", "https://shop.example", "http://localhost:5173"])
async def test_a_command_that_only_the_caller_can_have_sent_is_done(house: Any, origin: str | None) -> None:
    server = {"origins": ["http://localhost:*"], "url": "https://shop.example", "hosts": ["inn.example"]}
    async with house(server=server) as (parts, client):
        answer = await ask(client, COMMAND, {"origin": origin} if origin else {})

        assert await rung(parts) == 1
    assert answer["results"] == [
        {"@type": "Action", "name": "ring_bell", "actionStatus": "CompletedActionStatus", "result": 1}
    ]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://inn.example.evil.example", "http://inn"])
async def test_a_command_that_a_page_elsewhere_sent_is_a_question(house: Any, origin: str) -> None:
    async with house() as (parts, client):
        posted = await client.post("/ask", json={"query": {"text": COMMAND}}, headers={"origin": origin})
        form = await client.post("/ask", data={"query": COMMAND, "streaming": "0"}, headers={"origin": origin})

        assert await rung(parts) == 0
    assert posted.json()["_meta"]["response_type"] in {"answer", "failure"}
    assert "ring_bell" not in f"{posted.text}{form.text}"


async def test_a_command_that_is_only_to_be_answered_is_a_question(house: Any) -> None:
    async with house() as (parts, client):
        answer = await ask(client, COMMAND, prefer={"portico_act": False})

        assert await rung(parts) == 0
    assert answer["_meta"]["response_type"] in {"answer", "failure"}


@pytest.mark.parametrize("headers", [{}, {"accept": "text/event-stream"}, {"origin": "http://inn.example"}])
async def test_what_a_link_or_a_picture_can_send_does_nothing(house: Any, headers: dict[str, str]) -> None:
    async with house() as (parts, client):
        streamed = await client.get("/ask", params={"query": COMMAND}, headers=headers)
        whole = await client.get("/ask", params={"query": COMMAND, "streaming": "0"}, headers=headers)

        assert await rung(parts) == 0
    assert frames_of(streamed.text)[-1][1].startswith('{"message_type":"complete"')
    assert "ring_bell" not in f"{streamed.text}{whole.text}"


@requirement("nlweb:note:action-gate")
async def test_a_command_is_done_only_for_those_who_may_call_the_operation(house: Any) -> None:
    async with house(anonymous={"scopes": ["ask", "read:*"]}) as (parts, client):
        may_not = {"x-api-key": await key_of(parts, "ask", "read:*")}
        may = {"x-api-key": await key_of(parts, "ask", "read:*", "execute:ring_bell")}

        await ask(client, COMMAND)
        await ask(client, COMMAND, may_not)
        assert await rung(parts) == 0
        await ask(client, COMMAND, may)
        assert await rung(parts) == 1


# What a command still needs


@requirement("nlweb:elicitation:types", "nlweb:elicitation:options", "nlweb:elicitation:question")
async def test_what_a_command_lacks_is_asked_for_with_a_question_of_its_type(house: Any) -> None:
    async with house() as (_, client):
        asked = await ask(client, "paint the wall")

    questions = {each["id"]: each for each in asked["elicitation"]["questions"]}
    assert {id: each["type"] for id, each in questions.items()} == {
        "colour": "single_select",
        "coats": "number",
        "gloss": "boolean",
        "sides": "multi_select",
        "painter": "free_text",
    }
    assert {id: set(each["options"]) for id, each in questions.items() if "options" in each} == {
        "colour": {"red", "blue"},
        "sides": {"inner", "outer"},
    }
    assert all(each["text"] for each in questions.values())


@requirement("nlweb:note:elicitation-validated", "nlweb:note:elicitation-answers")
async def test_only_what_is_missing_is_asked_again_and_then_it_is_done(house: Any) -> None:
    async with house() as (_, client):
        asked = await ask(client, "paint the wall")
        session = {"session_context": asked["_meta"]["session_context"]}
        some = {"colour": "red", "coats": 2, "sides": ["inner"]}
        again = await ask(client, "", context={"answers": some}, meta=session)
        session = {"session_context": again["_meta"]["session_context"]}
        done = await ask(client, "", context={"answers": {"gloss": False, "painter": "Ann"}}, meta=session)

    assert [each["id"] for each in again["elicitation"]["questions"]] == ["gloss", "painter"]
    assert done["results"][0]["result"] == {**some, "gloss": False, "painter": "Ann"}


@requirement("nlweb:note:elicitation-validated")
@pytest.mark.parametrize("wrong", [{"colour": "green"}, {"colour": 5}, {"coats": "many"}, {"sides": ["upper"]}])
async def test_an_answer_that_is_no_option_or_of_another_type_does_nothing(house: Any, wrong: dict[str, Any]) -> None:
    right = {"colour": "red", "coats": 2, "sides": ["inner"], "gloss": False, "painter": "Ann"}
    async with house() as (_, client):
        session = {"session_context": (await ask(client, "paint the wall"))["_meta"]["session_context"]}
        body = {"query": {"text": ""}, "context": {"answers": {**right, **wrong}}, "meta": session}
        answer = await client.post("/ask", json=body)

    assert answer.json()["_meta"]["response_type"] in {"elicitation", "failure"}
    assert "CompletedActionStatus" not in answer.text


# Actions of items


@requirement(
    "nlweb:answer:actions",
    "nlweb:action:required",
    "nlweb:action:protocol",
    "nlweb:action:http",
    "nlweb:action:type",
    "nlweb:note:action-sources",
)
async def test_an_item_offers_operations_of_the_site_and_actions_of_its_data(house: Any) -> None:
    own = {"@type": "OrderAction", "name": "breakfast", "target": {"urlTemplate": "/breakfast"}}
    foreign = {"@type": "PayAction", "target": "https://evil.example/pay"}
    async with house() as (parts, client):
        data = {"@type": "HotelRoom", "name": "The loft", "potentialAction": [own, foreign]}
        await parts.store.items.write("rooms", [Put("loft", data)])
        await parts.index.sync(await parts.store.changes.head())
        [loft] = [each for each in (await ask(client, "loft"))["results"] if each["@id"] == "loft"]

    assert loft["actions"] == [
        {
            "@context": "http://schema.org/",
            "@type": "ReserveAction",
            "name": "reserve_room",
            "description": "Reserve a room.",
            "protocol": "HTTP",
            "method": "POST",
            "endpoint": "http://inn.example/operations/reserve_room",
            "params": {"room": "loft"},
        },
        {
            "@context": "http://schema.org/",
            "@type": "OrderAction",
            "name": "breakfast",
            "description": "breakfast",
            "protocol": "HTTP",
            "method": "GET",
            "endpoint": "http://inn.example/breakfast",
        },
    ]


@requirement("nlweb:action:http", "nlweb:note:action-gate")
async def test_an_action_works_as_it_is_given_and_through_the_gate(house: Any) -> None:
    async with house() as (parts, client):
        [action] = (await ask(client, "attic"))["results"][0]["actions"]
        by = {"method": action["method"], "url": action["endpoint"], "json": action["params"]}
        done = await client.request(**by)
        refused = await client.request(**by, headers={"x-api-key": await key_of(parts, "ask", "read:*")})

    assert (done.status_code, done.json()["result"]) == (200, {"room": "attic", "nights": 1})
    assert refused.status_code == 403


@requirement("nlweb:note:action-gate")
async def test_nobody_is_offered_what_they_may_not_do(house: Any) -> None:
    async with house(anonymous={"scopes": ["ask", "read:*"]}) as (_, client):
        first = (await ask(client, "attic"))["results"][0]
        called = await client.post("/operations/reserve_room", json={"room": "attic"})

    assert "actions" not in first
    assert called.status_code == 401


async def test_a_confirmation_that_is_sent_twice_is_acted_on_once(house: Any) -> None:
    async with house() as (_, client):
        asked = await ask(client, "strike the gong")
        body = {
            "query": {"text": "yes"},
            "meta": {"session_context": asked["_meta"]["session_context"]},
        }
        once, again = [(await client.post("/ask", json=body)).json()["results"][0]["result"] for _ in range(2)]
        anew = await ask(client, "strike the gong")
        body["meta"]["session_context"] = anew["_meta"]["session_context"]
        later = (await client.post("/ask", json=body)).json()["results"][0]["result"]

    assert [question["id"] for question in asked["elicitation"]["questions"]] == ["confirm"]
    assert (once, again, later) == (1, 1, 2)


async def test_a_yes_counts_only_with_the_question_it_was_asked_for(house: Any) -> None:
    async with house() as (parts, client):
        sure = {"context": {"answers": {"confirm": True}}}
        unasked = await ask(client, "strike the gong", **sure)
        forged = await ask(client, "strike the gong", **sure, meta={"session_context": {"state_token": "forged"}})
        other = (await ask(client, "something quiet"))["_meta"]["session_context"]
        elsewhere = await ask(client, "strike the gong", **sure, meta={"session_context": other})

        assert await rung(parts) == 0
    for answer in (unasked, forged, elsewhere):
        assert [question["id"] for question in answer["elicitation"]["questions"]] == ["confirm"]


async def test_a_page_whose_name_was_made_to_lead_here_has_nothing_done(house: Any) -> None:
    rebound = {"host": "evil.example", "origin": "http://evil.example"}
    async with house() as (parts, client):
        await ask(client, COMMAND, rebound)
        called = await client.post("/operations/ring_bell", json={}, headers=rebound)

        assert await rung(parts) == 0
    assert called.status_code == 403
