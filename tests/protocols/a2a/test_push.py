"""Callers that want to be told: who may, where, with what, and how often it is tried."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.protocols.a2a.conftest import Talk, answer, data, hearing, request, sent, state, text, visiting
from tests.protocols.conftest import Inn, key_of

PAINT = data(operation="paint_house", params={"coats": 1, "pause": 0.1})
SLOW = data(operation="paint_house", params={"coats": 1, "pause": 60})
EXECUTE = ("ask", "read:*", "execute:*")


@asynccontextmanager
async def named(house: Inn, **said: Any) -> AsyncIterator[Talk]:
    """A visitor with a name, of a house that may call back to this machine."""
    opened = house(**{"allow_hosts": ["127.0.0.1"], **said})
    async with opened as parts, visiting(parts, await key_of(parts, *EXECUTE)) as talk:
        yield talk


@pytest.mark.parametrize(("waits", "first"), [(False, "working"), (True, "completed")])
async def test_a_caller_is_told_when_what_takes_long_is_done(house: Inn, waits: bool, first: str) -> None:
    config = {"id": "c1", "token": "t1", "authentication": {"scheme": "Bearer", "credentials": "secret"}}
    async with hearing() as receiver, named(house) as talk:
        wanted = {"returnImmediately": not waits, "taskPushNotificationConfig": {**config, "url": receiver.url}}
        task = await talk.send(PAINT, configuration=wanted)
        headers, told = await receiver.next()

    assert state(task) == first
    assert (headers["x-a2a-notification-token"], headers["authorization"]) == ("t1", "Bearer secret")
    assert headers["content-type"] == "application/json"
    assert (told["task"]["id"], state(told["task"])) == (task["id"], "completed")
    assert answer(told["task"])["results"][0]["result"] == {"coats": 1}


async def test_a_caller_is_told_of_a_question_back_and_of_the_answer(house: Inn) -> None:
    details = {"rooms": {"details": ["beds", "price"]}}
    async with hearing() as receiver, named(house, collections=details) as talk:
        asked = await talk.send(text("room"), configuration={"taskPushNotificationConfig": {"url": receiver.url}})
        _, first = await receiver.next()
        await talk.send(data(answers={"beds": 6}), task=asked["id"])
        _, second = await receiver.next()

    assert (state(first["task"]), state(second["task"])) == ("input_required", "completed")


async def test_a_message_that_is_refused_leaves_no_address(house: Inn) -> None:
    async with hearing() as receiver, named(house, collections={"rooms": {"details": ["beds", "price"]}}) as talk:
        asked = await talk.send(text("room"))
        wanted = {"taskPushNotificationConfig": {"url": receiver.url}}
        refused = await talk.send(data(query={"text": 5}), task=asked["id"], configuration=wanted)
        seen = await talk.rpc("GetTask", id=asked["id"])
        listed = await talk.rpc("ListTaskPushNotificationConfigs", taskId=asked["id"])

    assert (refused["code"], seen, listed.get("configs", [])) == (-32602, asked, [])


async def test_a_caller_can_ask_to_be_told_later_and_of_a_cancellation(house: Inn) -> None:
    async with hearing(refusals=1) as receiver, named(house) as talk:
        task = await talk.send(SLOW, configuration={"returnImmediately": True})
        await talk.rpc("CreateTaskPushNotificationConfig", taskId=task["id"], url=receiver.url)
        await talk.rpc("CancelTask", id=task["id"])
        _, told = await receiver.next()

    assert (told["task"]["id"], state(told["task"])) == (task["id"], "canceled")


async def test_a_client_of_0_3_is_told_in_its_own_words(house: Inn) -> None:
    parts = [{"kind": "data", "data": PAINT["data"]}]
    async with hearing() as receiver, named(house) as talk:
        del talk.http.headers["a2a-version"]
        wanted = {"blocking": False, "pushNotificationConfig": {"url": receiver.url}}
        message = {"messageId": "m1", "role": "user", "parts": parts}
        sending = request("message/send", {"message": message, "configuration": wanted})
        task = (await talk.http.post("/a2a", json=sending)).json()["result"]
        _, told = await receiver.next()

    assert (told["kind"], told["id"], told["status"]["state"]) == ("task", task["id"], "completed")


async def test_addresses_are_kept_with_their_task(house: Inn) -> None:
    async with hearing() as receiver, named(house) as talk:
        task = (await talk.send(SLOW, configuration={"returnImmediately": True}))["id"]
        made = await talk.rpc("CreateTaskPushNotificationConfig", taskId=task, url=receiver.url, token="t1")
        listed = await talk.rpc("ListTaskPushNotificationConfigs", taskId=task)
        one = await talk.rpc("GetTaskPushNotificationConfig", taskId=task, id=made["id"])
        await talk.rpc("DeleteTaskPushNotificationConfig", taskId=task, id=made["id"])
        none = await talk.rpc("ListTaskPushNotificationConfigs", taskId=task)
        gone = await talk.rpc("GetTaskPushNotificationConfig", taskId=task, id=made["id"])
        many = [await talk.rpc("CreateTaskPushNotificationConfig", taskId=task, url=receiver.url) for _ in range(6)]

    assert made == {"id": made["id"], "taskId": task, "url": receiver.url, "token": "t1"}
    assert (listed, one, none, gone["code"]) == ({"configs": [made]}, made, {}, -32001)
    assert [each.get("code") for each in many] == [None] * 5 + [-32602]


async def test_an_address_inside_is_refused_and_nothing_is_begun(house: Inn) -> None:
    async with named(house, allow_hosts=[]) as talk:
        for url in ("https://127.0.0.1/", "https://169.254.169.254/", "http://shop.example/"):
            refused = await talk.send(text("a room"), configuration={"taskPushNotificationConfig": {"url": url}})
            assert refused["code"] == -32602
        assert (await talk.rpc("ListTasks"))["totalSize"] == 0


async def test_headers_cannot_be_smuggled_in(house: Inn) -> None:
    async with named(house) as talk:
        config = {"url": "https://shop.example/", "token": "t\r\nhost: evil.example"}
        refused = await talk.send(text("a room"), configuration={"taskPushNotificationConfig": config})

    assert refused["code"] == -32602


async def test_callers_without_a_name_are_not_called_back(house: Inn) -> None:
    config = {"taskPushNotificationConfig": {"url": "https://shop.example/"}}
    async with house() as parts, visiting(parts) as talk:
        refused = await talk.post("SendMessage", **sent(text("a room"), configuration=config))

    assert (refused.status_code, refused.json()["error"]["code"]) == (401, -32041)


async def test_a_site_that_calls_nobody_back_says_so(house: Inn) -> None:
    config = {"taskPushNotificationConfig": {"url": "https://shop.example/"}}
    async with named(house, a2a={"push": False}) as talk:
        refused = await talk.send(text("a room"), configuration=config)
        task = await talk.send(text("a room"))
        listed = await talk.rpc("ListTaskPushNotificationConfigs", taskId=task["id"])

    assert (refused["code"], listed["code"]) == (-32003, -32003)
