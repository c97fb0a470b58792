"""Several at once: who is answered, who is refused, and that nothing gets lost between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
from tests.protocols.a2a.conftest import Talk, data, hearing, request, sent, state, text, visiting
from tests.protocols.conftest import Inn, frames_of, key_of, listening, scripted, soon

from portico.ask.events import ClarificationEvent, Event, InterpretationEvent, Question
from portico.protocols.a2a.task_runner import MAX_LISTENERS
from portico.requests import Ask, Caller

DETAILS = {"rooms": {"details": ["beds", "price"]}}
SLOW = data(operation="paint_house", params={"coats": 1, "pause": 60})
AT_ONCE = {"returnImmediately": True}
VERSION = {"a2a-version": "1.0"}


async def test_a_question_back_is_answered_once(house: Inn) -> None:
    async with house(collections=DETAILS) as parts, visiting(parts) as talk:
        asked = await talk.send(text("room"))
        reply = sent(data(answers={"beds": 6}), task=asked["id"])
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(talk.post("SendStreamingMessage", **reply) for _ in range(4)))
        seen = await talk.rpc("GetTask", id=asked["id"])

    refused = [each.json()["error"]["code"] for each in answers if "event-stream" not in each.headers["content-type"]]
    (told,) = [frames_of(each.text) for each in answers if "event-stream" in each.headers["content-type"]]
    assert refused == [-32004, -32004, -32004]
    assert (state(seen), '"TASK_STATE_COMPLETED"' in told[-1][1]) == ("completed", True)
    assert [message["role"] for message in seen["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]


async def test_whoever_replies_second_is_told_so_before_the_first_is_let_in(house: Inn) -> None:
    begun = asyncio.Event()

    async def script(ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        if ask.rounds:
            begun.set()
            await asyncio.Event().wait()
        yield InterpretationEvent(ask.text, ("rooms",))
        yield ClarificationEvent("Tell me more:", (Question("beds", "How many beds?", "single_select", ("1", "2")),))

    async with house() as parts, visiting(scripted(parts, script)) as talk:
        asked = await talk.send(text("room"))
        first = asyncio.create_task(talk.send(text("two beds"), task=asked["id"]))
        await soon(begun)
        second = await talk.send(text("three beds"), task=asked["id"])
        cancelled = await talk.rpc("CancelTask", id=asked["id"])
        answered = await first

    assert (second["code"], second["message"]) == (-32004, "Another request is continuing this task")
    assert (state(answered), state(cancelled)) == ("canceled", "canceled")


async def test_answers_that_end_together_are_all_noted(house: Inn) -> None:
    async with house() as parts, visiting(parts, await key_of(parts)) as talk:
        ours = await asyncio.gather(*(talk.send(text("a quiet room"), context="ours") for _ in range(6)))
        own = await asyncio.gather(*(talk.send(text("a quiet room")) for _ in range(6)))
        one, all_of_them = await talk.rpc("ListTasks", contextId="ours"), await talk.rpc("ListTasks")

    assert {task["id"] for task in one["tasks"]} == {task["id"] for task in ours}
    assert {task["id"] for task in all_of_them["tasks"]} == {task["id"] for task in (*ours, *own)}


async def test_addresses_that_are_named_together_are_all_kept(house: Inn) -> None:
    async with (
        house(allow_hosts=["127.0.0.1"]) as parts,
        hearing() as receiver,
        visiting(parts, await key_of(parts, "ask", "read:*", "execute:*")) as talk,
    ):
        task = (await talk.send(SLOW, configuration=AT_ONCE))["id"]
        naming = [{"taskId": task, "id": id, "url": receiver.url} for id in "abcd"]
        await asyncio.gather(*(talk.rpc("CreateTaskPushNotificationConfig", **each) for each in naming))
        listed = await talk.rpc("ListTaskPushNotificationConfigs", taskId=task)

    assert {each["id"] for each in listed["configs"]} == set("abcd")


async def test_a_caller_follows_only_so_many_tasks_at_once(house: Inn) -> None:
    async with house() as parts, listening(parts) as port, AsyncExitStack() as left:
        base = f"http://127.0.0.1:{port}"
        http = await left.enter_async_context(httpx.AsyncClient(base_url=base, headers=VERSION))
        task = await Talk(http).send(SLOW, configuration=AT_ONCE)
        follow = request("SubscribeToTask", {"id": task["id"]})
        streams = [
            await left.enter_async_context(http.stream("POST", "/a2a", json=follow)) for _ in range(MAX_LISTENERS)
        ]
        refused = await http.post("/a2a", json=follow)
        other = request("SendMessage", sent(text("a quiet room"), configuration=AT_ONCE))
        unbothered = await http.post("/a2a", json=other)
        await streams[0].aclose()
        async with asyncio.timeout(60):
            while (await left.enter_async_context(http.stream("POST", "/a2a", json=follow))).status_code != 200:
                await asyncio.sleep(0.01)
        await Talk(http).rpc("CancelTask", id=task["id"])

    assert {each.status_code for each in streams} == {200}
    assert (refused.status_code, refused.json()["error"]["code"], unbothered.status_code) == (429, -32029, 200)


async def test_of_many_tasks_only_those_of_the_page_are_read(house: Inn, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    async def get_note(name: str, caller: Caller) -> bytes | None:
        names.append(name)
        return await get(name, caller)

    async with house() as parts:
        get = parts.site.notes.get
        monkeypatch.setattr(parts.site.notes, "get", get_note)
        async with visiting(parts, await key_of(parts)) as talk:
            for _ in range(5):
                await talk.send(text("a quiet room"), context="ours")
            names.clear()
            page = await talk.rpc("ListTasks", pageSize=2)

    assert (len(page["tasks"]), page["totalSize"]) == (2, 5)
    assert len([name for name in names if name.startswith("a2a/task/")]) == 2
