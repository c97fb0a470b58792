"""Tasks: whose they are, how long they last, and what becomes of those that take long."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from tests.protocols.a2a.conftest import Talk, answer, data, request, sent, state, text, visiting, words
from tests.protocols.conftest import Endless, Inn, frames_of, key_of, listening, scripted

from portico.ask.events import EndEvent, Event, InterpretationEvent
from portico.conversations.notes import NOTES_PER_MINUTE
from portico.protocols.a2a.task_records import NoteCache, TaskRecord, TaskRecords
from portico.requests import Ask, Caller

SLOW = data(operation="paint_house", params={"coats": 1, "pause": 60})
QUICK = data(operation="paint_house", params={"coats": 2, "pause": 0.05})
AT_ONCE = {"returnImmediately": True}


async def begun(talk: Talk, task: dict[str, Any]) -> dict[str, Any]:
    """A task that takes long, once it says so itself."""
    async with asyncio.timeout(60):
        while "message" not in (seen := await talk.rpc("GetTask", id=task["id"]))["status"] or words(seen) != "Coat 1":
            await asyncio.sleep(0.01)
    return seen


async def test_a_client_that_waits_gets_the_result_of_what_takes_long(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(QUICK)

    assert state(task) == "completed"
    assert answer(task)["results"][0]["result"] == {"coats": 2}


async def test_a_client_waits_no_longer_than_the_site_has_patience(house: Inn) -> None:
    async with house(ask={"patience": 0.3}) as parts, visiting(parts) as talk:
        task = await talk.send(SLOW)
        seen = await begun(talk, task)

    assert (state(task), state(seen)) == ("working", "working")
    assert seen["status"]["message"]["parts"][1]["data"]["promise"]["progress"] == 0


async def test_a_client_that_does_not_wait_can_look_later(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(QUICK, configuration=AT_ONCE)
        assert state(task) == "working"
        async with asyncio.timeout(60):
            while state(seen := await talk.rpc("GetTask", id=task["id"])) == "working":
                await asyncio.sleep(0.01)

    assert state(seen) == "completed"
    assert answer(seen)["results"][0]["result"] == {"coats": 2}


async def test_a_stream_follows_what_takes_long_to_its_end(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        first, *progress, whole, last = await talk.stream(data(operation="paint_house", params={"coats": 1}))

    assert state(first["task"]) == "working"
    assert progress
    assert {state(each["statusUpdate"]) for each in progress} == {"working"}
    assert whole["artifactUpdate"]["artifact"]["parts"][1]["data"]["results"][0]["result"] == {"coats": 1}
    assert state(last["statusUpdate"]) == "completed"


async def test_what_takes_long_is_cancelled_with_its_task(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await begun(talk, await talk.send(SLOW, configuration=AT_ONCE))
        cancelled = await talk.rpc("CancelTask", id=task["id"])
        seen = await talk.rpc("GetTask", id=task["id"])
        again = await talk.rpc("CancelTask", id=task["id"])
        token = task["status"]["message"]["parts"][1]["data"]["promise"]["token"]
        beneath = (await talk.http.get(f"/tasks/{token}")).json()["task"]

    assert (state(cancelled), state(seen), again["code"]) == ("canceled", "canceled", -32002)
    assert beneath["state"] == "cancelled"


async def test_a_question_that_is_being_answered_can_be_cancelled(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house() as parts, visiting(scripted(parts, endless)) as talk:
        task = await talk.send(text("a"), configuration=AT_ONCE)
        cancelled = await talk.rpc("CancelTask", id=task["id"])

    assert (state(task), state(cancelled)) == ("working", "canceled")
    assert endless.stopped.is_set()


async def test_a_question_back_can_be_cancelled(house: Inn) -> None:
    async with house(collections={"rooms": {"details": ["beds", "price"]}}) as parts, visiting(parts) as talk:
        asked = await talk.send(text("room"))
        cancelled = await talk.rpc("CancelTask", id=asked["id"])
        late = await talk.send(text("two beds"), task=asked["id"])

    assert (state(asked), state(cancelled), late["code"]) == ("input_required", "canceled", -32004)


async def test_an_answer_that_never_comes_is_given_up(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house(ask={"patience": 0.2}) as parts, visiting(scripted(parts, endless)) as talk:
        *_, last = await talk.stream(text("a"))

    assert (state(last["statusUpdate"]), words(last["statusUpdate"])) == (
        "failed",
        "The answer took too long. Ask for less.",
    )
    assert endless.stopped.is_set()


async def test_only_so_many_questions_of_a_caller_are_answered_at_once(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house(limits={"tasks_per_caller": 1}) as parts, visiting(scripted(parts, endless)) as talk:
        first = await talk.send(text("a"), configuration=AT_ONCE)
        refused = await talk.post("SendMessage", **sent(text("b")))
        key = await key_of(parts)
        other = await talk.http.post(
            "/a2a",
            json=request("SendMessage", sent(text("b"), configuration=AT_ONCE)),
            headers={"x-api-key": key},
        )

    assert (state(first), refused.status_code) == ("working", 429)
    assert state(other.json()["result"]["task"]) == "working"


async def test_nobody_sees_the_task_of_another(house: Inn) -> None:
    async with house() as parts:
        mine, yours = [await key_of(parts, "ask", "read:*", "execute:*") for _ in range(2)]
        async with visiting(parts, mine) as talk:
            running = await talk.send(SLOW, configuration=AT_ONCE)
            done = await talk.send(text("a quiet room"), context="ours")
            for key in (yours, ""):
                talk.http.headers["x-api-key"] = key
                for task in (running, done):
                    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
                        assert (await talk.rpc(method, id=task["id"]))["code"] == -32001
                    assert (await talk.send(text("and now?"), task=task["id"]))["code"] == -32001
                assert (await talk.rpc("ListTasks", contextId="ours"))["totalSize"] == 0
            talk.http.headers["x-api-key"] = mine
            assert state(await talk.rpc("GetTask", id=done["id"])) == "completed"


async def test_nobody_sees_what_is_being_answered_for_another(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house() as parts, visiting(scripted(parts, endless), await key_of(parts)) as talk:
        task = await talk.send(text("a"), configuration=AT_ONCE)
        del talk.http.headers["x-api-key"]
        codes = [(await talk.rpc(each, id=task["id"]))["code"] for each in ("GetTask", "CancelTask", "SubscribeToTask")]

    assert codes == [-32001, -32001, -32001]


async def test_tasks_and_conversations_outlast_a_restart(house: Inn, tmp_path: Path) -> None:
    kept = {"store": {"url": f"sqlite:///{tmp_path}/kept.db"}, "collections": {"rooms": {"details": ["beds", "price"]}}}
    async with house(**kept) as parts, visiting(parts) as talk:
        done = await talk.send(text("a quiet garden room"))
        asked = await talk.send(text("room"))
        slow = await talk.send(data(operation="paint_house", params={"pause": 0.6}), configuration=AT_ONCE)
    async with house(**kept) as parts, visiting(parts) as talk:
        followed = await talk.post("SubscribeToTask", id=slow["id"])
        seen = await talk.rpc("GetTask", id=done["id"])
        answered = await talk.send(data(answers={"beds": 6}), task=asked["id"])

    assert seen == done
    assert [item["@id"] for item in answer(answered)["results"]] == ["cellar"]
    first, *_, last = [json.loads(each)["result"] for _, each in frames_of(followed.text)]
    assert (first["task"]["id"], state(last["statusUpdate"])) == (slow["id"], "completed")


async def test_a_task_that_is_over_cannot_be_followed(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(text("a quiet room"))
        over = await talk.rpc("SubscribeToTask", id=task["id"])
        missing = await talk.rpc("SubscribeToTask", id="missing")

    assert (over["code"], missing["code"]) == (-32004, -32001)


async def test_whoever_keeps_a_lot_finds_it_all_the_same(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        kept = 0
        while await parts.site.notes.set("other", b"note", parts.site.access.anonymous_caller("127.0.0.1")):
            kept += 1  # more than so many, where a busy machine takes a while for them
        assert kept >= NOTES_PER_MINUTE
        task = await talk.send(text("a quiet room"))
        seen = await talk.rpc("GetTask", id=task["id"])

    assert seen == task


async def test_tasks_are_listed_newest_first_page_by_page(house: Inn) -> None:
    async with house() as parts, visiting(parts, await key_of(parts, "ask", "read:*", "execute:*")) as talk:
        first = await talk.send(text("a quiet room"), context="a")
        second = await talk.send(text("a cheap room"), context="a")
        third = await talk.send(data(operation="close_house"), context="b")
        whole = await talk.rpc("ListTasks")
        page = await talk.rpc("ListTasks", pageSize=2)
        rest = await talk.rpc("ListTasks", pageSize=2, pageToken=page["nextPageToken"])
        one = await talk.rpc("ListTasks", contextId="a", status="TASK_STATE_COMPLETED", includeArtifacts=True)
        wrong = await talk.rpc("ListTasks", pageToken="x")

    def ids(listed: dict[str, Any]) -> list[str]:
        return [task["id"] for task in listed["tasks"]]

    assert ids(whole) == [third["id"], second["id"], first["id"]]
    assert not any("artifacts" in task for task in whole["tasks"])
    assert (ids(page), ids(rest), page["totalSize"]) == ([third["id"], second["id"]], [first["id"]], 3)
    assert (ids(one), answer(one["tasks"][1])) == ([second["id"], first["id"]], answer(first))
    assert wrong["code"] == -32602


async def test_what_has_ended_since_is_listed_as_it_is(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        painting = data(operation="paint_house", params={"coats": 1, "pause": 0.2})
        task = await begun(talk, await talk.send(painting, context="ours", configuration=AT_ONCE))
        token = task["status"]["message"]["parts"][1]["data"]["promise"]["token"]
        done = await parts.site.tasks.wait(token, parts.site.access.anonymous_caller("127.0.0.1"), 10)
        working = await talk.rpc("ListTasks", contextId="ours", status="TASK_STATE_WORKING")
        completed = await talk.rpc("ListTasks", contextId="ours", status="TASK_STATE_COMPLETED")

    assert done.state == "completed"
    assert (working["tasks"], working["totalSize"]) == ([], 0)
    assert [(each["id"], state(each)) for each in completed["tasks"]] == [(task["id"], "completed")]


async def test_what_is_being_answered_is_listed(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house() as parts, visiting(scripted(parts, endless)) as talk:
        task = await talk.send(text("a"), context="ours", configuration=AT_ONCE)
        listed = await talk.rpc("ListTasks", contextId="ours")

    assert [(each["id"], state(each)) for each in listed["tasks"]] == [(task["id"], "working")]


async def test_callers_without_a_name_list_only_what_they_can_name(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(text("a quiet room"))
        everything = await talk.rpc("ListTasks")
        mine = await talk.rpc("ListTasks", contextId=task["contextId"])

    assert (everything["code"], [each["id"] for each in mine["tasks"]]) == (-32004, [task["id"]])


@pytest.mark.parametrize(("length", "kept"), [(0, 0), (1, 1), (5, 1)])
async def test_a_client_says_how_much_history_it_wants(house: Inn, length: int, kept: int) -> None:
    async with house() as parts, visiting(parts) as talk:
        task = await talk.send(text("a quiet room"), configuration={"historyLength": length})

    assert len(task.get("history", [])) == kept


async def test_a_long_message_is_answered_but_not_kept(house: Inn) -> None:
    async with house(limits={"text_characters": 50_000}) as parts, visiting(parts) as talk:
        task = await talk.send(text("a quiet room " * 3000))

    assert task["history"][0]["parts"] == [{"text": "(This message was too long to keep.)"}]


# Several processes on one store: each has an application of its own.


async def test_a_run_of_another_process_is_seen_and_followed(house: Inn) -> None:
    going = asyncio.Event()

    async def script(ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        yield InterpretationEvent(ask.text, ("rooms",))
        await going.wait()
        yield EndEvent(0)

    async with house() as parts, visiting(scripted(parts, script)) as here, listening(parts) as there:
        task = await here.send(text("a"), configuration=AT_ONCE)
        named = {"id": task["id"]}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{there}", headers=here.http.headers) as http:
            seen = (await http.post("/a2a", json=request("GetTask", named))).json()["result"]
            refused = (await http.post("/a2a", json=request("CancelTask", named))).json()["error"]
            told: list[Any] = []
            async with http.stream("POST", "/a2a", json=request("SubscribeToTask", named)) as stream:
                async for line in stream.aiter_lines():
                    told.extend(json.loads(each)["result"] for _, each in frames_of(line))
                    going.set()

    assert (state(seen), refused["code"]) == ("working", -32002)
    assert [next(iter(each)) for each in told] == ["task", "artifactUpdate", "statusUpdate"]
    assert state(told[-1]["statusUpdate"]) == "completed"


async def test_what_takes_long_is_cancelled_from_anywhere(house: Inn) -> None:
    async with house() as parts, visiting(parts) as here, visiting(parts) as there:
        task = await begun(here, await here.send(SLOW, configuration=AT_ONCE))
        cancelled = await there.rpc("CancelTask", id=task["id"])
        seen = await here.rpc("GetTask", id=task["id"])

    assert (state(cancelled), state(seen)) == ("canceled", "canceled")


async def test_a_run_that_its_process_stopped_has_failed(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house() as parts, visiting(parts) as there:
        async with visiting(scripted(parts, endless)) as here:
            task = await here.send(text("a"), configuration=AT_ONCE)
        seen = await there.rpc("GetTask", id=task["id"])

    assert (state(seen), words(seen)) == (
        "failed",
        "The server was shut down before the answer was complete. Ask again.",
    )


async def test_a_run_whose_process_died_is_given_up_in_the_end(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        nobody = parts.site.access.anonymous_caller("127.0.0.1")
        for id, until in (("old", time.time() - 1), ("new", time.time() + 60)):
            left = TaskRecord(
                pb.Task(id=id, context_id="c", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING)), until=until
            )
            await TaskRecords(NoteCache(parts.site)).put(left, nobody)
        old, new = await talk.rpc("GetTask", id="old"), await talk.rpc("GetTask", id="new")

    assert (state(old), state(new)) == ("failed", "working")
