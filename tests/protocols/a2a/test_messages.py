"""What messages want and what comes of them: questions, requests of NLWeb, operations, answers to questions back."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.a2a.conftest import answer, data, sent, state, text, visiting, words
from tests.protocols.conftest import Endless, Inn, scripted, soon, telling

from portico.ask.events import ClarificationEvent, EndEvent, InterpretationEvent, ItemEvent, Question, TextEvent
from portico.errors import BadRequest, SiteError, Unavailable
from portico.items import Item
from portico.server.assembly import Parts
from portico.telemetry import UnexpectedError

GARDEN = ItemEvent(
    Item("garden", "rooms", {"@type": "HotelRoom", "name": "Garden room", "description": "Quiet."}), 90.0
)


async def test_the_items_are_those_of_ask_and_stand_in_the_same_order(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(text("a quiet garden room"))
        wanted = {"query": {"text": "a quiet garden room"}, "prefer": {"portico_actions": "A2A"}}
        asked = (await talk.http.post("/ask", json=wanted)).json()

    assert state(task) == "completed"
    assert answer(task)["results"] == asked["results"]
    assert [part.get("mediaType") for part in task["artifacts"][0]["parts"]] == ["text/plain", "application/json"]
    assert task["artifacts"][0]["parts"][0]["text"].startswith("1. Garden room: Quiet and green. <http://127.0.0.1/")


async def test_a_data_part_may_be_a_whole_request(house: Inn) -> None:
    request = {"query": {"text": "a room", "beds": 6}, "prefer": {"mode": "summarize"}, "meta": {"version": "0.55"}}
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(data(**request))
        flat = await talk.send(data(query="a room", beds=6))

    summary, cellar, *_ = answer(task)["results"]
    assert (summary["@type"], cellar["@id"]) == ("SearchSummary", "cellar")
    assert task["artifacts"][0]["parts"][0]["text"] == summary["text"]
    assert answer(flat)["results"][0]["@id"] == "cellar"


@pytest.mark.parametrize(
    "sending",
    [
        {"parts": [data(operation="reserve_room", params={"room": "attic", "nights": 2})]},
        {"parts": [data(room="attic", nights=2)], "skillId": "reserve_room"},
    ],
    ids=["named", "skill"],
)
async def test_an_operation_is_run(house: Inn, sending: dict[str, Any]) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(*sending.pop("parts"), **sending)

    done = {"@type": "Action", "name": "reserve_room", "actionStatus": "CompletedActionStatus"}
    result = {"room": "attic", "nights": 2}
    assert answer(task)["results"] == [{**done, "result": result}]
    assert task["artifacts"][0]["parts"][0]["text"] == '1. reserve_room: {"room":"attic","nights":2}'


@requirement("nlweb:action:a2a")
async def test_the_message_that_an_item_offers_is_understood(house: Inn) -> None:
    async with house(nlweb={"actions": ["A2A"]}) as parts, visiting(parts) as talk:
        (action,) = answer(await talk.send(text("the attic")))["results"][0]["actions"]
        said = await talk.rpc("SendMessage", message={**action["message"], "messageId": "m2"})

    assert (action["agent_url"], action["skill"]) == ("http://127.0.0.1/a2a", "reserve_room")
    assert answer(said["task"])["results"][0]["result"] == {"room": "attic", "nights": 1}


async def test_a_key_makes_an_operation_run_once(house: Inn) -> None:
    wanted = {"operation": "reserve_room", "params": {"room": "attic"}, "key": "k1"}
    async with house() as parts, visiting(parts) as talk:
        first = await talk.send(data(**wanted))
        other = await talk.send(data(**{**wanted, "params": {"room": "cellar"}}))

    assert (state(first), state(other)) == ("completed", "failed")
    assert words(other) == "This idempotency key was used with other parameters"


WRONG: dict[str, tuple[list[Any], int]] = {
    "nothing": ([], -32602),
    "an empty text": ([text(" ")], -32602),
    "a file": ([{"raw": "aGk=", "mediaType": "image/png"}], -32005),
    "a file elsewhere": ([{"url": "https://example.org/a.png"}], -32005),
    "data of no known kind": ([data(colour="red")], -32602),
    "two requests": ([data(query={"text": "a"}), data(query={"text": "b"})], -32602),
    "no object": ([{"data": [1]}], -32602),
    "a wrong request": ([data(query={"text": 5})], -32602),
    "params that are a list": ([data(operation="reserve_room", params=[])], -32602),
    "params that lack one": ([data(operation="reserve_room", params={"nights": 1})], -32602),
    "a key that is a number": ([data(operation="reserve_room", params={"room": "attic"}, key=1)], -32602),
    "an unknown operation": ([data(operation="fly")], -32602),
    "answers that are a list": ([data(answers=[1])], -32602),
    "answers to nothing": ([data(answers={"beds": 2})], -32602),
}


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_what_cannot_be_done_is_refused(house: Inn, method: str) -> None:
    async with house() as parts, visiting(parts) as talk:
        codes = {name: (await talk.rpc(method, **sent(*wrong))).get("code") for name, (wrong, _) in WRONG.items()}

    assert codes == {name: code for name, (_, code) in WRONG.items()}


async def test_what_a_caller_may_not_do_is_refused_with_a_status(house: Inn) -> None:
    async with house(anonymous={"scopes": ["ask", "read:*"]}) as parts, visiting(parts) as talk:
        refused = await talk.post("SendMessage", **sent(data(operation="reserve_room", params={"room": "attic"})))

    assert (refused.status_code, refused.json()["error"]["code"]) == (401, -32041)


async def test_an_operation_that_fails_is_a_failed_task(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(data(operation="close_house"))

    assert (state(task), words(task)) == ("failed", "There are guests. Wait until they have left.")
    assert task["status"]["message"]["parts"][1]["data"]["error"]["code"] == "CONFLICT"


async def test_nothing_found_is_a_completed_task_that_says_so(house: Inn) -> None:
    async with house() as parts:
        nothing = scripted(
            parts, telling(InterpretationEvent("a yacht", ("rooms",)), EndEvent(0, ("Nothing is called a yacht",)))
        )
        async with visiting(nothing) as talk:
            task = await talk.send(text("a yacht"))

    assert state(task) == "completed"
    assert task["artifacts"][0]["parts"][0]["text"] == "Nothing is called a yacht"
    assert answer(task)["error"]["code"] == "NO_RESULTS"


@pytest.mark.parametrize(
    ("broken", "code"),
    [(Unavailable("The disk is gone"), "INTERNAL_ERROR"), (ZeroDivisionError(), "INTERNAL_ERROR")],
    ids=["known", "unknown"],
)
async def test_what_breaks_on_the_way_is_not_told(parts: Parts, broken: Exception, code: str) -> None:
    seen: list[Any] = []
    script = telling(InterpretationEvent("a", ("rooms",)), GARDEN, broken)
    async with visiting(replace(scripted(parts, script), record=seen.append)) as talk:
        task = await talk.send(text("a"))

    assert (state(task), words(task)) == ("failed", "The site cannot answer this at the moment. Try again later.")
    assert task["status"]["message"]["parts"][1]["data"]["error"]["code"] == code
    assert seen == ([] if isinstance(broken, SiteError) else [UnexpectedError("/a2a", type(broken).__name__)])


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_what_is_refused_before_the_answer_begins_is_an_error_however_long_that_takes(
    parts: Parts, method: str
) -> None:
    async def script(ask: Any, caller: Any) -> Any:
        await asyncio.sleep(0.3)
        raise BadRequest("That is no question")
        yield

    async with visiting(scripted(parts, script)) as talk:
        refused = await talk.rpc(method, **sent(text("a")))

    assert (refused["code"], refused["message"]) == (-32602, "That is no question")


async def test_what_an_operation_itself_refuses_is_a_failed_task(house: Inn, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from portico.errors import BadRequest\n"
        "from portico.operations import Context, operation\n"
        '@operation(kind="execute", danger="safe")\n'
        "async def paint_door(context: Context, colour: str) -> None:\n"
        "    raise BadRequest('There is no such paint')\n"
    )
    async with house() as parts, visiting(parts) as talk:
        wrong = await talk.send(data(operation="paint_door", params={"colour": 5}))
        task = await talk.send(data(operation="paint_door", params={"colour": "plaid"}))

    assert (wrong["code"], state(task), words(task)) == (-32602, "failed", "There is no such paint")


async def test_an_answer_that_does_not_begin_is_waited_for_no_longer_than_the_site_has_patience(house: Inn) -> None:
    endless = Endless(())
    async with house(ask={"patience": 0.2}) as parts, visiting(scripted(parts, endless)) as talk:
        task = await talk.send(text("a"))
        await soon(endless.stopped)
        async with asyncio.timeout(60):
            while state(seen := await talk.rpc("GetTask", id=task["id"])) == "working":
                await asyncio.sleep(0.01)

    assert (state(task), state(seen), words(seen)) == ("working", "failed", "The answer took too long. Ask for less.")


async def test_a_stream_tells_items_and_text_as_they_come_and_the_whole_in_the_end(parts: Parts) -> None:
    script = telling(
        InterpretationEvent("a", ("rooms",)), GARDEN, TextEvent("It is "), TextEvent("quiet.", ("garden",)), EndEvent(1)
    )
    async with visiting(scripted(parts, script)) as talk:
        first, item, piece, more, whole, last = await talk.stream(text("a"))

    assert (state(first["task"]), first["task"]["history"][0]["parts"]) == ("working", [{"text": "a"}])
    said, found = item["statusUpdate"]["status"]["message"]["parts"]
    assert said["text"] == "Garden room: Quiet. <http://127.0.0.1/items/rooms/garden>"
    assert (found["data"]["index"], found["data"]["item"]["@id"]) == (0, "garden")
    pieces = [each["artifactUpdate"] for each in (piece, more)]
    assert [(each.get("append", False), each["artifact"]["parts"][0]["text"]) for each in pieces] == [
        (False, "It is "),
        (True, "quiet."),
    ]
    update = whole["artifactUpdate"]
    assert (update.get("append", False), update["lastChunk"]) == (False, True)
    assert update["artifact"]["parts"][0]["text"] == "It is quiet."
    assert state(last["statusUpdate"]) == "completed"


@pytest.mark.parametrize(
    ("modes", "kinds"),
    [(["text/plain"], ["text"]), (["application/json", "video/mp4"], ["data"]), (["*/*"], ["text", "data"])],
)
async def test_a_client_gets_the_kinds_of_parts_it_takes(parts: Parts, modes: list[str], kinds: list[str]) -> None:
    async with visiting(parts) as talk:
        task = await talk.send(text("a quiet room"), configuration={"acceptedOutputModes": modes})
        refused = await talk.send(text("a quiet room"), configuration={"acceptedOutputModes": ["video/mp4"]})

    assert [kind for part in task["artifacts"][0]["parts"] for kind in ("text", "data") if kind in part] == kinds
    assert refused["code"] == -32005


BEDS = ClarificationEvent("Tell me more:", (Question("beds", "How many beds?", "single_select", ("1", "2")),))


async def test_a_question_back_waits_for_its_answer(house: Inn) -> None:
    details = {"rooms": {"details": ["beds", "price"], "type": "HotelRoom"}}
    async with house(collections=details) as parts, visiting(parts) as talk:
        asked = await talk.send(text("room"))
        assert state(asked) == "input_required", asked
        ids = [each["id"] for each in asked["status"]["message"]["parts"][1]["data"]["elicitation"]["questions"]]
        answered = await talk.send(data(answers={"beds": 6}), task=asked["id"])
        again = await talk.send(data(answers={"beds": 6}), task=asked["id"])

    assert "beds" in ids
    assert (answered["id"], answered["contextId"]) == (asked["id"], asked["contextId"])
    assert state(answered) == "completed"
    assert [item["@id"] for item in answer(answered)["results"]] == ["cellar"]
    assert [message["role"] for message in answered["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]
    assert again["code"] == -32004


async def test_a_question_back_can_be_answered_in_words_and_keeps_the_manner_of_the_question(parts: Parts) -> None:
    heard: list[Any] = []

    async def script(ask: Any, caller: Any) -> Any:
        heard.append((ask.text, sorted(ask.modes), ask.rounds))
        yield InterpretationEvent(ask.text, ("rooms",))
        if not ask.rounds:
            yield BEDS
        else:
            yield GARDEN
            yield EndEvent(1)

    async with visiting(scripted(parts, script)) as talk:
        asked = await talk.send(data(query={"text": "a room"}, prefer={"mode": "summarize"}))
        answered = await talk.send(text("2 beds"), task=asked["id"])

    assert words(asked) == "Tell me more:\nHow many beds? (1, 2)"
    assert state(answered) == "completed"
    assert heard == [("a room", ["list", "summarize"], 0), ("a room, 2 beds", ["list", "summarize"], 1)]


async def test_questions_of_one_context_are_one_conversation(parts: Parts) -> None:
    heard: list[Any] = []

    async def script(ask: Any, caller: Any) -> Any:
        heard.append(ask.previous)
        yield InterpretationEvent(ask.text, ("rooms",))
        yield GARDEN
        yield EndEvent(1)

    async with visiting(scripted(parts, script)) as talk:
        first = await talk.send(text("a quiet room"), context="mine")
        await talk.send(text("and with a view?"), context="mine")
        await talk.send(text("a cellar"))

    assert first["contextId"] == "mine"
    assert heard == [(), ("a quiet room",), ()]
