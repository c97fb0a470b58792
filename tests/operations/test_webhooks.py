"""Messages to addresses that callers name, and questions: where they go, where they never go, and what is answered."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.protocols.conftest import key_of
from tests.site.conftest import config

from portico.errors import BadRequest, TimedOut, Unavailable
from portico.operations.webhooks import MAX_ASKED, THREADS, WebhookClient
from portico.server.assembly import open_site_without_index
from portico.server.http import application


@asynccontextmanager
async def receiver(status: str, heard: list[bytes], extra: str = "", body: str = "") -> AsyncIterator[str]:
    """The address of somebody who answers everything alike."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length")
        )
        heard.append(head + await reader.readexactly(length))
        writer.write(f"HTTP/1.1 {status}\r\n{extra}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/told?of=it"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "ftp://shop.example/",
        "http://shop.example/told",
        "https://user:word@shop.example/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://[::1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1:8443/",
        "https://shop.example:99999/",
        "https://shop.example/" + "x" * 2000,
    ],
)
def test_what_cannot_be_called_back_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        WebhookClient([]).check(url)


def test_public_addresses_are_taken_and_what_the_operator_allows() -> None:
    WebhookClient([]).check("https://shop.example/told?of=it")
    WebhookClient(["127.0.0.1", "[::1]:8080", "hook.internal:80"]).check("http://127.0.0.1:9/")
    WebhookClient(["127.0.0.1", "[::1]:8080", "hook.internal:80"]).check("http://[::1]:8080/")
    WebhookClient(["127.0.0.1", "[::1]:8080", "hook.internal:80"]).check("http://hook.internal/")


async def test_a_message_arrives_as_it_was_given() -> None:
    heard: list[bytes] = []
    callbacks = WebhookClient(["127.0.0.1"])
    async with receiver("204 No Content", heard) as url:
        status = await callbacks.send(url, b'{"a": 1}', {"Content-Type": "application/json", "X-Token": "t"})

    assert status == 204
    (request,) = heard
    assert request.startswith(b"POST /told?of=it HTTP/1.1\r\n")
    assert b"X-Token: t\r\n" in request
    assert request.endswith(b'\r\n\r\n{"a": 1}')


async def test_a_redirect_is_not_followed() -> None:
    heard: list[bytes] = []
    async with receiver("307 Temporary Redirect", heard, "Location: http://127.0.0.1:1/\r\n") as url:
        assert await WebhookClient(["127.0.0.1"]).send(url, b"{}", {}) == 307

    assert len(heard) == 1


async def test_a_name_that_leads_inside_is_noticed_when_a_message_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks = WebhookClient([])
    callbacks.check("https://inside.example/")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", 443))])

    with pytest.raises(Unavailable, match="not a public address"):
        await callbacks.send("https://inside.example/", b"{}", {})
    with pytest.raises(Unavailable, match="not a public address"):
        await callbacks.ask("https://inside.example/", b"", {}, 100, 5)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "inn.localhost:8443"])
def test_a_name_of_this_machine_is_refused_at_once_unless_it_is_allowed(host: str) -> None:
    with pytest.raises(BadRequest, match="not a public address"):
        WebhookClient([]).check(f"https://{host}/")

    WebhookClient([host]).check(f"https://{host}/")


async def test_whoever_does_not_listen_is_not_reached() -> None:
    with pytest.raises(Unavailable, match="The callback failed"):
        await WebhookClient(["127.0.0.1"]).send("http://127.0.0.1:1/", b"{}", {})


async def test_after_the_end_nothing_is_sent() -> None:
    callbacks = WebhookClient(["127.0.0.1"])
    callbacks.close()

    with pytest.raises(Unavailable, match="The server is stopping"):
        await callbacks.send("http://127.0.0.1:1/", b"{}", {})


async def test_a_question_brings_the_status_and_the_body_of_its_answer() -> None:
    heard: list[bytes] = []
    async with receiver("422 No", heard, body="because") as url:
        answer = await WebhookClient(["127.0.0.1"]).ask(url, b"why", {"X-Id": "1"}, 100, 5)

    assert answer == (422, b"because")
    (request,) = heard
    assert b"X-Id: 1\r\n" in request
    assert request.endswith(b"\r\n\r\nwhy")


async def test_questions_pass_the_same_guard_and_their_answers_are_bounded() -> None:
    with pytest.raises(BadRequest):
        await WebhookClient([]).ask("https://127.0.0.1/", b"", {}, 100, 5)
    async with receiver("200 OK", [], body="too long") as url:
        with pytest.raises(Unavailable, match="larger than 7 bytes"):
            await WebhookClient(["127.0.0.1"]).ask(url, b"", {}, 7, 5)


async def test_nobody_waits_longer_for_an_answer_than_they_said_and_only_so_many_at_once() -> None:
    over = asyncio.Event()

    async def keep_waiting(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(keep_waiting, "127.0.0.1", 0) as server:
        url, callbacks = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", WebhookClient(["127.0.0.1"])
        many = [callbacks.ask(url, b"", {}, 100, 0.2) for _ in range(MAX_ASKED + 1)]
        async with asyncio.timeout(60):
            *waited, last = await asyncio.gather(*many, return_exceptions=True)
            with pytest.raises(TimedOut):  # there is room again
                await callbacks.ask(url, b"", {}, 100, 0.01)
        over.set()
    assert {type(each) for each in waited} == {TimedOut}
    assert str(last) == "64 questions are under way already"
    callbacks.close()
    with pytest.raises(Unavailable, match="The server is stopping"):
        await callbacks.ask(url, b"", {}, 100, 5)


async def test_questions_that_wait_for_others_are_not_asked_once_it_is_over() -> None:
    asked, all_asked, over = [0], asyncio.Event(), asyncio.Event()

    async def keep_waiting(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked[0] += 1
        if asked[0] == THREADS:
            all_asked.set()
        await over.wait()
        writer.close()

    async with await asyncio.start_server(keep_waiting, "127.0.0.1", 0) as server, asyncio.timeout(60):
        url, callbacks = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", WebhookClient(["127.0.0.1"])
        asking = [asyncio.create_task(callbacks.ask(url, b"", {}, 100, 20)) for _ in range(THREADS + 2)]
        await all_asked.wait()
        callbacks.close()
        over.set()
        said = [str(each) for each in await asyncio.gather(*asking, return_exceptions=True)]

    assert (asked[0], said[THREADS:]) == (THREADS, ["The server is stopping"] * 2)


async def test_a_site_that_stops_asks_nobody_any_more(tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with receiver("200 OK", heard, body='{"count": 0, "data": []}') as url:
        nwp = {"node": [{"rel": "peer", "url": url.partition("?")[0]}], "allow_nodes": [url.partition("?")[0]]}
        said = config(tmp_path, "sqlite:///:memory:", allow_hosts=["127.0.0.1"], nwp=nwp)
        async with open_site_without_index(said) as parts:
            await parts.store.collections.declare(parts.config.collection("rooms"))
            app = application(parts)
            headers = {"authorization": f"Bearer {await key_of(parts)}"}
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
                anchors = (await client.get("/nwp/site/.nwm")).json()["schema_anchors"]
                question = {"anchor_ref": anchors["rooms"]}
                before = (await client.post("/nwp/site/query", json=question, headers={"x-nwp-depth": "2"})).json()
                await app.close()
                after = (await client.post("/nwp/site/query", json=question, headers={"x-nwp-depth": "2"})).json()

    assert "data" in before["graph"][-1]
    assert after["graph"][-1]["error"]["code"] == "NWP-NODE-UNAVAILABLE"
    assert len(heard) == 1
