"""Clients that leave: what they began ends by itself, its answer is kept, and nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
from tests.ports import free_port
from tests.protocols.a2a.conftest import data, request, sent, state, text
from tests.protocols.conftest import Endless, Inn, listening, scripted, soon

from portico.ask.events import EndEvent, Event, InterpretationEvent
from portico.requests import Ask, Caller
from portico.server.http import Serving, application, server_settings

VERSION = {"a2a-version": "1.0"}


async def all_ended(before: set[asyncio.Task[Any]]) -> None:
    """Nothing runs but what ran before."""
    async with asyncio.timeout(60):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)


async def left_in_the_middle(port: int, method: str) -> str:
    """The task of a stream that a client leaves after its first event."""
    body = request(method, sent(text("a")))
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=VERSION) as http,
        http.stream("POST", "/a2a", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                return httpx.Response(200, text=line.removeprefix("data: ")).json()["result"]["task"]["id"]
    raise AssertionError("There was no event")


async def test_an_answer_nobody_hears_is_given_up_and_leaves_nothing(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house(ask={"patience": 0.2}) as parts, listening(scripted(parts, endless)) as port:
        await left_in_the_middle(port, "SendStreamingMessage")  # the first also makes the face
        await soon(endless.stopped)
        before = asyncio.all_tasks()
        await asyncio.gather(*(left_in_the_middle(port, "SendStreamingMessage") for _ in range(5)))
        await all_ended(before)


async def test_an_answer_nobody_hears_is_kept_for_who_comes_back(house: Inn) -> None:
    going = asyncio.Event()

    async def script(ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        yield InterpretationEvent(ask.text, ("rooms",))
        await going.wait()
        yield EndEvent(0)

    async with house() as parts, listening(scripted(parts, script)) as port:
        id = await left_in_the_middle(port, "SendStreamingMessage")
        going.set()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=VERSION) as http, asyncio.timeout(60):
            while (
                state(task := (await http.post("/a2a", json=request("GetTask", {"id": id}))).json()["result"])
                == "working"
            ):
                await asyncio.sleep(0.01)

    assert state(task) == "completed"


async def test_a_client_that_comes_back_hears_the_rest(house: Inn) -> None:
    going = asyncio.Event()

    async def script(ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        yield InterpretationEvent(ask.text, ("rooms",))
        await going.wait()
        yield EndEvent(0)

    async with house() as parts, listening(scripted(parts, script)) as port:
        id = await left_in_the_middle(port, "SendStreamingMessage")
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=VERSION) as http,
            http.stream("POST", "/a2a", json=request("SubscribeToTask", {"id": id})) as answer,
        ):
            told: list[Any] = []
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    told.append(httpx.Response(200, text=line.removeprefix("data: ")).json()["result"])
                    going.set()

    assert [next(iter(each)) for each in told] == ["task", "artifactUpdate", "statusUpdate"]
    assert (told[0]["task"]["id"], state(told[2]["statusUpdate"])) == (id, "completed")


async def test_a_server_that_stops_leaves_nothing(house: Inn) -> None:
    endless = Endless((InterpretationEvent("a", ("rooms",)),))
    async with house() as parts:
        before = asyncio.all_tasks()
        stopped = scripted(parts, endless)
        app = application(stopped)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=VERSION) as http:
            at_once = {"returnImmediately": True}
            await http.post("/a2a", json=request("SendMessage", sent(text("a"), configuration=at_once)))
            await app.close()
        await all_ended(before)

    assert endless.stopped.is_set()


async def test_a_server_that_stops_lets_go_of_who_follows_what_takes_long(house: Inn) -> None:
    slow = data(operation="paint_house", params={"coats": 1, "pause": 60})
    async with house() as parts:
        app = application(parts)
        settings = server_settings(parts, app)
        settings.port, settings.log_level = free_port(), "critical"
        server = Serving(settings, app)
        serving = asyncio.create_task(server.serve())
        async with asyncio.timeout(60):
            while not server.started:
                await asyncio.sleep(0.01)
        told: list[Any] = []
        async with (
            asyncio.timeout(60) as limit,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{settings.port}", headers=VERSION) as http,
        ):
            async with http.stream("POST", "/a2a", json=request("SendStreamingMessage", sent(slow))) as answer:
                async for line in answer.aiter_lines():
                    if "Coat 1" in line:
                        server.should_exit = True
                        # Later than that the server would cut them off.
                        limit.reschedule(asyncio.get_running_loop().time() + settings.timeout_graceful_shutdown / 2)
                    told.append(line)
            await serving

    assert "Coat 1" in told[-2]
    assert not any("TASK_STATE_FAILED" in line for line in told)
