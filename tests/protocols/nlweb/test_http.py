"""`/ask` and `/await` over HTTP, against a real site."""

import asyncio
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Endless, Inn, asking, frames_of, key_of, listening, scripted, soon, telling

from portico.access.identity import RequestCredentials, make_key
from portico.ask.events import ClarificationEvent, EndEvent, ErrorEvent, InterpretationEvent, ItemEvent, Question
from portico.catalog import Danger
from portico.errors import TimedOut, Unavailable
from portico.items import Item
from portico.protocols.http import CALLER
from portico.requests import Ask, Call, Caller
from portico.server.assembly import Parts
from portico.server.http import application
from portico.telemetry import Metrics, TelemetryEvent, UnexpectedError

UNDERSTOOD = InterpretationEvent("soup", ("rooms",))
_NOBODY = RequestCredentials(address="127.0.0.1")
ATTIC = ItemEvent(Item("attic", "rooms", {"name": "The attic"}), 90.0)
QUESTION = ClarificationEvent("Which?", (Question("view", "Which view?", "single_select", ("sea", "garden")),))


async def ask(client: httpx.AsyncClient, query: Any = "attic", **sections: Any) -> httpx.Response:
    return await client.post("/ask", json={"query": {"text": query} if isinstance(query, str) else query, **sections})


def frames(answer: httpx.Response) -> list[tuple[str, dict]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [(name, json.loads(data)) for name, data in frames_of(answer.text)]


# Answers


@requirement(
    "nlweb:http:ask",
    "nlweb:http:200",
    "nlweb:response:object",
    "nlweb:response:underscore",
    "nlweb:response:version",
    "nlweb:response:session-context",
    "nlweb:answer:results",
    "nlweb:answer:item-type",
    "nlweb:note:request-id",
    "nlweb:note:decontextualized",
)
async def test_a_question_is_answered_with_items_of_the_site(client: httpx.AsyncClient) -> None:
    answer = await ask(client, meta={"version": "0.55", "request_id": "req_1"})
    body = answer.json()

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    meta = body["_meta"]
    assert (meta["response_type"], meta["version"], meta["request_id"]) == ("answer", "0.55", "req_1")
    assert meta["decontextualized_query"] == "attic"
    assert meta["understood"]["collections"] == ["rooms"]
    assert set(meta["session_context"]) == {"conversation_id", "state_token"}
    first = body["results"][0]
    assert (first["@type"], first["@id"], first["site"]) == ("HotelRoom", "attic", "inn.example")
    assert first["url"] == "http://inn.example/rooms/attic"


async def test_the_configured_address_is_the_one_in_answers(inn: Inn) -> None:
    async with inn(server={"url": "https://shop.example/"}) as parts, asking(parts) as client:
        first = (await ask(client)).json()["results"][0]

    assert (first["site"], first["url"]) == ("shop.example", "https://shop.example/rooms/attic")


@pytest.mark.parametrize("host", ["evil.example/x?", "a b", "[::1", "evil@inn.example", "x" * 300])
async def test_a_strange_host_is_not_repeated(parts: Parts, host: str) -> None:
    async with asking(parts, headers={"host": host}) as client:
        posted = (await ask(client)).json()["results"][0]
        got = (await client.get("/ask", params={"query": "attic", "streaming": "0"})).json()["results"][0]
        refused = await client.put("/ask")

    assert (posted["@id"], posted["site"]) == (got["@id"], got["site"]) == ("attic", "127.0.0.1")
    assert refused.json()["error"]["code"] == "INVALID_QUERY"


@requirement(
    "nlweb54:ask:path",
    "nlwebflat:ask:get",
    "nlwebflat:ask:json",
    "nlwebflat:ask:form",
    "nlweb:stream:requested",
    "nlweb54:stream:whole-objects",
)
async def test_the_same_items_come_in_every_dialect_and_form(client: httpx.AsyncClient) -> None:
    text = "room"
    whole = (await ask(client, text)).json()["results"]
    ids = [each["@id"] for each in whole]
    assert len(ids) == 3

    nested = frames(await ask(client, text, prefer={"streaming": True}))
    earlier = frames(await ask(client, text, prefer={"response_format": "conv_search"}, meta={"api_version": "0.54"}))
    earlier_app = await ask(client, text, prefer={"streaming": False}, meta={"api_version": "0.54"})
    flat = frames(await client.get("/ask", params={"query": text, "query_id": "q1"}))
    flat_whole = await client.post("/ask", json={"query": text, "streaming": False})
    form = await client.post("/ask", data={"query": text, "streaming": "False"})

    placed = sorted((data["index"], data["item"]["@id"]) for name, data in nested if name == "result")
    assert [id for _, id in placed] == ids
    assert [each["@id"] for _, data in earlier for each in data.get("results", [])] == ids
    assert [each["@id"] for each in earlier_app.json()["structuredData"]] == ids
    assert [each["@id"] for _, data in flat for each in data.get("results", [])] == ids
    assert [each["@id"] for each in flat_whole.json()["results"]] == ids
    assert [each["@id"] for each in form.json()["results"]] == ids
    assert flat[-1] == ("", {"message_type": "complete", "query_id": "q1"})
    assert nested[0][0] == "start"
    assert nested[-1][0] == "complete"


@requirement(
    "nlweb:prefer:mode-list",
    "nlweb:prefer:mode-summarize",
    "nlweb:prefer:mode-several",
    "nlweb:answer:summary",
    "nlweb:answer:summary-type",
)
async def test_a_summary_is_added_when_asked_for(client: httpx.AsyncClient) -> None:
    plain = (await ask(client, prefer={"mode": "list"})).json()["results"]
    summed = (await ask(client, prefer={"mode": "list, summarize"})).json()["results"]

    assert plain[0]["@id"] == "attic"
    assert (summed[0]["@type"], bool(summed[0]["text"])) == ("SearchSummary", True)
    assert summed[1:] == plain


@requirement("nlweb:failure:no-results", "nlweb54:note:no-results")
async def test_nothing_found_is_said_as_each_dialect_says_it(client: httpx.AsyncClient) -> None:
    current = await ask(client, "zebra crossing")
    earlier = await ask(
        client,
        "zebra crossing",
        prefer={"streaming": False, "response_format": "conv_search"},
        meta={"api_version": "0.54"},
    )

    assert (current.status_code, current.json()["error"]["code"]) == (200, "NO_RESULTS")
    assert (earlier.status_code, earlier.json()["error"]["code"]) == (200, "NO_RESULTS")
    assert earlier.json()["_meta"]["response_type"] == "Failure"


@requirement(
    "nlweb:prefer:streaming",
    "nlweb:http:prefer-over-headers",
    "nlweb:http:accept-stream",
    "nlweb:note:accept-order",
    "nlweb:note:streaming-default",
    "nlweb54:ask:streaming-default",
)
@pytest.mark.parametrize(
    ("accept", "prefer", "meta", "streams"),
    [
        ("*/*", {}, {}, False),
        ("application/json", {}, {}, False),
        ("text/event-stream", {}, {}, True),
        ("application/json, text/event-stream", {}, {}, False),
        ("text/event-stream", {"streaming": False}, {}, False),
        ("application/json", {"streaming": True}, {}, True),
        ("*/*", {}, {"api_version": "0.54"}, True),
        ("*/*", {"streaming": False}, {"api_version": "0.54"}, False),
    ],
)
async def test_what_the_request_prefers_decides_then_the_header_then_the_dialect(
    client: httpx.AsyncClient, accept: str, prefer: dict, meta: dict, streams: bool
) -> None:
    body = {"query": {"text": "attic"}, "prefer": prefer, "meta": meta}
    answer = await client.post("/ask", json=body, headers={"accept": accept})

    assert answer.headers["content-type"].startswith("text/event-stream" if streams else "application/json")


async def test_json_under_the_name_of_a_form_is_read_as_json(client: httpx.AsyncClient) -> None:
    kinds = ["application/x-www-form-urlencoded", "text/plain", "application/xml", ""]
    for kind in kinds:
        body = b' {"query": {"text": "attic"}}'
        answer = await client.post("/ask", content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["_meta"]["response_type"]) == (200, "answer"), kind


@requirement("nlweb:note:filters-ignored")
async def test_attributes_that_mean_nothing_here_are_reported(client: httpx.AsyncClient) -> None:
    answer = await ask(client, {"text": "attic", "limit": -1, "moonPhase": "full"})

    assert "query.limit" in answer.json()["_meta"]["ignored"]
    assert any("moonPhase" in each for each in answer.json()["_meta"]["ignored"])


@pytest.mark.parametrize("site", ["http://inn.example", "https://inn.example/", "inn.example", "all"])
@requirement("nlweb:note:site-url")
async def test_the_address_that_is_asked_is_no_limit_to_what_is_searched(client: httpx.AsyncClient, site: str) -> None:
    answer = (await ask(client, {"text": "attic", "site": site})).json()

    assert answer["results"] == (await ask(client)).json()["results"]
    assert "ignored" not in answer["_meta"]


async def test_another_address_is_searched_for_here_and_reported(client: httpx.AsyncClient) -> None:
    answer = (await ask(client, {"text": "attic", "site": "http://other.example"})).json()

    assert answer["results"][0]["@id"] == "attic"
    assert answer["_meta"]["ignored"] == ["query.site"]


@requirement("nlweb54:ask:body-over-url")
@pytest.mark.parametrize("body", [{"query": {"text": "attic"}, "meta": {"api_version": "0.54"}}, {"query": "attic"}])
async def test_the_body_counts_before_the_url(client: httpx.AsyncClient, body: dict) -> None:
    answer = frames(await client.post("/ask?query=cellar&meta=x", json=body))

    first = next(data for _, data in answer if {"results", "structuredData"} & set(data))
    assert [each["@id"] for each in first.get("results", first.get("structuredData"))] == ["attic"]


# Refusals


@requirement(
    "nlweb:ask:query-required",
    "nlweb:ask:text-required",
    "nlweb:failure:invalid-query",
    "nlweb:http:400",
    "nlweb:note:malformed",
    "nlweb54:ask:text-required",
    "nlweb54:code:invalid-request",
)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "INVALID_QUERY"),
        (b"{", "INVALID_QUERY"),
        (b"[]", "INVALID_QUERY"),
        (b'"soup"', "INVALID_QUERY"),
        (b"NaN", "INVALID_QUERY"),
        (b"\xff\xfe", "INVALID_QUERY"),
        (b'{"query": {"text": "\xff"}}', "INVALID_QUERY"),
        (b'{"query": {"text": "a\\u0000b"}}', "INVALID_QUERY"),
        (b"[" * 50_000, "INVALID_QUERY"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "INVALID_QUERY"),
        (b"{}", "INVALID_QUERY"),
        (b'{"query": {}}', "INVALID_QUERY"),
        (b'{"query": {"text": 5}}', "INVALID_QUERY"),
        (b'{"query": {"text": " \\n "}}', "INVALID_QUERY"),
        (b'{"query": {"text": "soup"}, "context": []}', "INVALID_QUERY"),
        (b'{"query": {"text": "soup"}, "meta": {"version": true}}', "INVALID_QUERY"),
        (b'{"query": {"text": "' + b"x" * 20_000 + b'"}}', "TOKEN_LIMIT"),
        (b'{"query": {"text": "' + b"x" * 1_100_000 + b'"}}', "TOKEN_LIMIT"),
        (b'{"query": {"text": ""}, "meta": {"api_version": "0.54"}}', "INVALID_REQUEST"),
        (b'{"meta": {"api_version": "0.54"}}', "INVALID_REQUEST"),
    ],
    ids=lambda value: value[:24].decode(errors="replace") if isinstance(value, bytes) else value,
)
async def test_what_cannot_be_read_is_a_bad_request_with_a_failure(
    client: httpx.AsyncClient, body: bytes, code: str
) -> None:
    answer = await client.post("/ask", content=body, headers={"content-type": "application/json"})

    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert answer.json()["_meta"]["response_type"].lower() == "failure"
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"]


async def test_a_flat_request_that_is_refused_is_refused_with_its_query_id(client: httpx.AsyncClient) -> None:
    nothing = await client.get("/ask")
    empty = await client.get("/ask", params={"query": " ", "query_id": "q1"})
    crowded = await client.get("/ask?" + urlencode([("a", "b")] * 500))

    assert (nothing.status_code, empty.status_code, crowded.status_code) == (400, 400, 400)
    assert nothing.json()["error"]["code"] == "INVALID_QUERY"
    assert empty.json()["query_id"] == "q1"


@requirement("nlweb:failure:unsupported-format", "nlweb:failure:unsupported-mode")
async def test_unknown_formats_and_modes_are_failures_by_name(client: httpx.AsyncClient) -> None:
    for prefer, code in [({"response_format": "pdf"}, "UNSUPPORTED_FORMAT"), ({"mode": "dance"}, "UNSUPPORTED_MODE")]:
        answer = await ask(client, prefer=prefer)
        assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/ask", {"GET", "POST"}),
        ("DELETE", "/ask", {"GET", "POST"}),
        ("BREW", "/ask", {"GET", "POST"}),
        ("OPTIONS", "/ask", {"GET", "POST"}),
        ("GET", "/await", {"POST"}),
        ("PUT", "/await", {"POST"}),
    ],
)
async def test_other_methods_are_refused_with_those_that_are_allowed(
    client: httpx.AsyncClient, method: str, path: str, allowed: set[str]
) -> None:
    answer = await client.request(method, path)

    assert answer.status_code == 405
    assert {each.strip() for each in answer.headers["allow"].split(",")} == allowed
    assert answer.json()["error"]["code"] == "INVALID_QUERY"
    assert (await client.head("/ask")).status_code == 405


@requirement("nlweb:auth:transport", "nlweb:http:401", "nlweb:note:user-is-a-label")
async def test_who_asks_is_told_by_the_transport_and_never_by_the_body(inn: Inn) -> None:
    async with inn(anonymous={"scopes": []}) as parts, asking(parts) as client:
        key = await key_of(parts)
        nobody = await ask(client, meta={"user": {"id": "operator:root"}})
        somebody = await client.post("/ask", json={"query": {"text": "attic"}}, headers={"x-api-key": key})
        wrong = await client.post("/ask", json={"query": {"text": "attic"}}, headers={"authorization": "Bearer pk_x"})

    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert somebody.status_code == 200
    assert wrong.status_code == 401


async def test_code_of_this_process_may_say_who_asks(inn: Inn) -> None:
    async with inn(anonymous={"scopes": []}) as parts:
        app = application(parts)

        async def as_somebody(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, CALLER: Caller("operator:me", "me", frozenset({"ask", "*:*"}))}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(as_somebody), base_url="http://inn") as client:
            assert (await ask(client)).status_code == 200


@requirement("nlweb:rate:http-429", "nlweb:failure:rate-limited", "nlweb:http:429")
async def test_who_asks_too_often_is_told_to_wait(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 2}) as parts, asking(parts) as client:
        answers = [await ask(client) for _ in range(3)]

    assert [each.status_code for each in answers] == [200, 200, 429]
    refused = answers[-1]
    assert refused.json()["error"]["code"] == "RATE_LIMITED"
    assert int(refused.headers["retry-after"]) == refused.json()["error"]["retry_after"] >= 1


@requirement("nlweb:note:rate-per-caller")
async def test_each_caller_and_each_address_has_an_allowance_of_its_own(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 1, "keys_per_minute": 1}) as parts:
        app = application(parts)

        async def asked(address: str, key: str = "") -> int:
            transport = httpx.ASGITransport(app, client=(address, 5000))
            async with httpx.AsyncClient(transport=transport, base_url="http://inn.example") as client:
                headers = {"x-api-key": key} if key else {}
                return (await client.post("/ask", json={"query": {"text": "attic"}}, headers=headers)).status_code

        ann, ben = [await _key(parts, name) for name in ("ann", "ben")]
        here, there = "192.0.2.1", "192.0.2.2"

        assert [await asked(here), await asked(here), await asked(there)] == [200, 429, 200]
        assert [await asked(here, ann), await asked(there, ann), await asked(here, ben)] == [200, 429, 200]


async def _key(parts: Parts, name: str) -> str:
    token, record = make_key(name, ["ask", "read:*"], Danger.SAFE, 1)
    await parts.store.keys.add(record)
    return token


@requirement("nlweb:note:token-not-in-url")
async def test_a_key_in_the_url_is_no_key_and_a_wrong_one_is_refused(inn: Inn) -> None:
    async with inn(anonymous={"scopes": []}) as parts, asking(parts) as client:
        key = await key_of(parts)
        names = ("key", "api_key", "x-api-key", "authorization", "access_token", "token")
        by_url = [await client.get("/ask", params={"query": "attic", name: key, "streaming": "0"}) for name in names]
        by_header = await client.get("/ask", params={"query": "attic", "streaming": "0"}, headers={"x-api-key": key})
    async with inn() as parts, asking(parts, headers={"x-api-key": "pk_wrong"}) as client:
        wrong = await ask(client)

    assert {each.status_code for each in by_url} == {401}
    assert by_header.status_code == 200
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "UNAUTHENTICATED")


@requirement("nlweb:note:metric-labels")
async def test_no_label_of_a_metric_comes_from_a_request(client: httpx.AsyncClient) -> None:
    strange = "zebra-4711"
    await ask(client, strange, meta={"user": strange, "request_id": strange})
    await client.get(f"/{strange}")
    await client.post(f"/operations/{strange}", json={strange: strange})
    await client.post("/await", json={"promise_token": strange, "action": "checkin"})

    metrics = (await client.get("/metrics")).text

    assert 'portico_events_total{event="Asked"} 1.0' in metrics
    assert strange not in metrics


async def test_an_allowed_page_can_read_refusals_and_breakdowns_too(inn: Inn) -> None:
    async with inn(server={"origins": ["https://page.example"]}) as parts:
        broken = scripted(parts, telling(ZeroDivisionError("secret")))
        async with asking(broken, headers={"origin": "https://page.example"}) as client:
            refused, broke = await client.put("/ask"), await ask(client)

    assert (refused.status_code, broke.status_code) == (405, 500)
    for answer in (refused, broke):
        assert answer.headers["access-control-allow-origin"] == "https://page.example"


REFUSALS = [({"query": " "}, "INVALID_QUERY"), ({"query": "attic", "generate_mode": "dance"}, "UNSUPPORTED_MODE")]


@requirement("nlwebflat:answer:complete-last", "nlwebflat:answer:messages")
@pytest.mark.parametrize(("params", "code"), REFUSALS)
async def test_a_page_that_waits_for_a_stream_is_refused_with_one(
    client: httpx.AsyncClient, params: dict, code: str
) -> None:
    refused = await client.get("/ask", params={**params, "query_id": "q1"}, headers={"accept": "text/event-stream"})

    assert refused.status_code == 200
    (_, said), (_, last) = frames(refused)
    assert (said["message_type"], said["query_id"], said["error"]["code"]) == ("intermediate_message", "q1", code)
    assert said["message"] == said["error"]["message"]
    assert last == {"message_type": "complete", "query_id": "q1"}


@requirement("nlwebflat:answer:complete-last")
async def test_a_page_that_asks_too_often_is_told_in_a_stream(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 1}) as parts, asking(parts) as client:
        answers = [
            await client.get("/ask", params={"query": "attic"}, headers={"accept": "text/event-stream"})
            for _ in range(2)
        ]

    (_, said), (_, last) = frames(answers[1])
    assert (said["error"]["code"], last["message_type"]) == ("RATE_LIMITED", "complete")


@requirement("nlwebflat:answer:messages")
async def test_a_flat_question_that_nothing_fits_is_told_so(client: httpx.AsyncClient) -> None:
    streamed = frames(await client.get("/ask", params={"query": "zebra crossing", "query_id": "q1"}))
    whole = (await client.get("/ask", params={"query": "zebra crossing", "streaming": "0"})).json()

    assert [data["message_type"] for _, data in streamed] == ["query_analysis", "intermediate_message", "complete"]
    assert streamed[1][1]["message"] == whole["intermediate_message"]["message"] != ""
    assert whole["results"] == []


# Breaking


@requirement(
    "nlweb:failure:internal-error",
    "nlweb:failure:timeout",
    "nlweb:http:500",
    "nlweb:stream:error",
    "nlweb:note:stream-complete-after-error",
    "nlweb:note:errors-from-catalogue",
)
async def test_an_error_before_the_first_event_is_a_status_and_after_it_an_event(parts: Parts) -> None:
    late = TimedOut("Too slow")
    async with asking(scripted(parts, telling(late))) as client:
        before = await ask(client, prefer={"streaming": True})
    async with asking(scripted(parts, telling(UNDERSTOOD, ATTIC, ZeroDivisionError("secret")))) as client:
        after = frames(await ask(client, prefer={"streaming": True}))
        flat = frames(await client.get("/ask", params={"query": "soup"}))
        whole = await ask(client)

    assert (before.status_code, before.json()["error"]["code"]) == (200, "TIMEOUT")
    assert [name for name, _ in after] == ["start", "result", "error", "complete"]
    assert after[2][1]["error"]["code"] == "INTERNAL_ERROR"
    assert flat[-1][1]["message_type"] == "complete"
    assert (whole.status_code, whole.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in f"{after}{flat}{whole.text}"


@requirement("nlweb54:code:internal-error", "nlweb54:response:failure")
async def test_0_54_what_breaks_is_an_internal_error(parts: Parts) -> None:
    async with asking(scripted(parts, telling(UNDERSTOOD, ErrorEvent(Unavailable("secret"))))) as client:
        answer = await ask(client, prefer={"streaming": False}, meta={"api_version": "0.54"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    meta = answer.json()["_meta"]
    assert (meta["response_type"], meta["version"]) == ("Failure", "0.54")
    assert "secret" not in answer.text


class Noting(Metrics):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[TelemetryEvent] = []

    def __call__(self, seen: TelemetryEvent) -> None:
        self.seen.append(seen)


@pytest.mark.parametrize("streaming", [True, False])
async def test_the_operator_learns_what_broke(parts: Parts, streaming: bool) -> None:
    metrics = Noting()
    broken = replace(scripted(parts, telling(UNDERSTOOD, ZeroDivisionError())), record=metrics)
    async with asking(broken) as client:
        await ask(client, prefer={"streaming": streaming})

    assert metrics.seen == [UnexpectedError("/ask", "ZeroDivisionError")]


@requirement("nlweb:note:stream-disconnect")
async def test_the_work_stops_when_the_client_leaves_a_stream(parts: Parts) -> None:
    endless = Endless((UNDERSTOOD, ATTIC))
    async with listening(scripted(parts, endless)) as port, httpx.AsyncClient() as client:
        body = {"query": {"text": "soup"}, "prefer": {"streaming": True}}
        async with client.stream("POST", f"http://127.0.0.1:{port}/ask", json=body) as answer:
            await anext(answer.aiter_text())
            assert not endless.stopped.is_set()
        await soon(endless.stopped)


@requirement("nlweb:note:stream-disconnect")
@pytest.mark.parametrize("first", [(), (UNDERSTOOD, ATTIC)], ids=["before the first event", "before the whole answer"])
async def test_the_work_stops_when_the_client_leaves_without_an_answer(parts: Parts, first: tuple) -> None:
    endless = Endless(first)
    async with listening(scripted(parts, endless)) as port:
        body = json.dumps({"query": {"text": "soup"}})
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST /ask HTTP/1.1\r\nhost: inn\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await soon(endless.begun)
        writer.close()
        await soon(endless.stopped)


# Conversations


class Listening:
    """Notes what it is asked, and answers each time as it is told."""

    def __init__(self, *answers: tuple) -> None:
        self.asked: list[Ask] = []
        self._answers = iter(answers)

    async def __call__(self, ask: Ask, _: Caller) -> Any:
        self.asked.append(ask)
        for event in next(self._answers):
            yield event


@requirement("nlweb:meta:session-context", "nlweb:note:elicitation-answers")
async def test_a_question_asked_back_is_answered_in_the_next_request(parts: Parts) -> None:
    site = Listening((UNDERSTOOD, QUESTION, EndEvent(0)), (UNDERSTOOD, ATTIC, EndEvent(1)), (ATTIC, EndEvent(1)))
    async with asking(scripted(parts, site)) as client:
        first = (await ask(client, "a room", meta={"session_context": {"conversation_id": "conv_1"}})).json()
        session = first["_meta"]["session_context"]
        second = await ask(client, "", context={"answers": {"view": "sea"}}, meta={"session_context": session})
        session = second.json()["_meta"]["session_context"]
        await ask(client, "cheaper", meta={"session_context": session})

    assert first["elicitation"]["questions"][0]["options"] == ["sea", "garden"]
    assert session["conversation_id"] == "conv_1"
    questions = [(each.text, each.previous, each.answers, each.rounds) for each in site.asked]
    assert questions == [
        ("a room", (), {}, 0),
        ("a room", (), {"view": "sea"}, 1),
        ("cheaper", ("a room",), {}, 0),
    ]


@requirement("nlweb:note:session-signed")
async def test_a_foreign_token_is_reported_and_otherwise_ignored(client: httpx.AsyncClient) -> None:
    session = {"conversation_id": "conv_98765", "state_token": "encrypted_blob_xyz"}

    answer = await ask(client, meta={"session_context": session})

    assert answer.json()["_meta"]["ignored"] == ["meta.session_context.state_token"]
    assert answer.json()["_meta"]["session_context"]["conversation_id"] == "conv_98765"


@requirement("nlweb54:note:no-elicitation")
@pytest.mark.parametrize(
    ("settings", "body", "may"),
    [
        ({}, {}, True),
        ({"ask": {"clarify": False}}, {}, False),
        ({}, {"meta": {"api_version": "0.54"}}, True),
        ({}, {"meta": {"api_version": "0.54"}, "prefer": {"response_format": "conv_search"}}, False),
        (
            {"nlweb": {"clarify_lists": True}},
            {"meta": {"api_version": "0.54"}, "prefer": {"response_format": "conv_search"}},
            True,
        ),
        (
            {},
            {"meta": {"api_version": "0.54"}, "prefer": {"response_format": "conv_search", "streaming": False}},
            True,
        ),
        ({}, {"query": "soup"}, True),
        ({}, {"query": "soup", "prev": ["bread"]}, False),
    ],
)
async def test_only_those_who_can_answer_are_asked_back(inn: Inn, settings: dict, body: dict, may: bool) -> None:
    site = Listening((UNDERSTOOD, EndEvent(0)))
    async with inn(**settings) as parts, asking(scripted(parts, site)) as client:
        await client.post("/ask", json={"query": {"text": "soup"}, **body})

    assert [each.may_clarify for each in site.asked] == [may]


# Promises

SLOW = """
import asyncio
from portico.operations import Context, operation

@operation(kind="execute", danger="safe", long=True)
async def bake(context: Context, loaves: int = 1) -> dict:
    \"\"\"Bake bread.\"\"\"
    while not FLAG.exists():
        await context.progress(0.5, "In the oven")
        await asyncio.sleep(0.01)
    return {"loaves": loaves}
"""


@pytest.fixture
def baking(tmp_path: Path) -> dict:
    """Settings of a site that bakes until the bread is called done."""
    source = SLOW.replace("FLAG", f"Path({str(tmp_path / 'done')!r})")
    (tmp_path / "own.py").write_text(f"from pathlib import Path\n{source}")
    return {"operations": ["own.py"], "anonymous": {"scopes": ["ask", "read:*", "execute:bake"]}}


async def look(client: httpx.AsyncClient, token: str, action: str = "checkin", **more: Any) -> httpx.Response:
    return await client.post("/await", json={"promise_token": token, "action": action, **more})


async def started(parts: Parts) -> str:
    task = await parts.site.call(Call("bake", {"loaves": 3}), await parts.site.access.authenticate(_NOBODY))
    return task.id


async def until(client: httpx.AsyncClient, token: str, status: int) -> httpx.Response:
    deadline = time.monotonic() + 60
    while (answer := await look(client, token)).status_code != status:
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.02)
    return answer


@requirement(
    "nlweb:http:await",
    "nlweb:http:202",
    "nlweb:await:running-promise",
    "nlweb:await:complete-answer",
    "nlweb:note:await-202",
    "nlweb:note:request-id",
    "nlweb:note:stream-objects",
    "nlweb54:await:actions",
)
async def test_a_promise_is_kept(inn: Inn, baking: dict, tmp_path: Path) -> None:
    async with inn(**baking) as parts, asking(parts) as client:
        token = await started(parts)
        running = await look(client, token, meta={"version": "0.55", "request_id": "req_1"})
        earlier = await look(client, token, meta={"api_version": "0.54"})
        streamed = frames(await look(client, token, prefer={"streaming": True}))
        (tmp_path / "done").touch()
        done = await until(client, token, 200)
        done_earlier = await look(client, token, meta={"api_version": "0.54"})

    assert running.status_code == earlier.status_code == 202
    assert running.json()["_meta"]["response_type"] == "promise"
    assert running.json()["_meta"]["request_id"] == "req_1"
    assert running.json()["promise"]["token"] == token
    assert earlier.json()["_meta"]["response_type"] == "Promise"
    assert [(name, data["promise"]["token"]) for name, data in streamed] == [("start", token), ("complete", token)]
    assert done.json()["results"] == [
        {"@type": "Action", "name": "bake", "actionStatus": "CompletedActionStatus", "result": {"loaves": 3}}
    ]
    assert done_earlier.json()["_meta"]["response_type"] == "Answer"
    assert done_earlier.json()["structuredData"] == done.json()["results"]


@requirement("nlweb:await:cancelled-code", "nlweb:note:cancel-idempotent")
async def test_a_promise_can_be_cancelled_and_cancelled_again(inn: Inn, baking: dict) -> None:
    async with inn(**baking) as parts, asking(parts) as client:
        token = await started(parts)
        await look(client, token, "cancel")
        cancelled = await until(client, token, 200)
        again = await look(client, token, "cancel")

    assert cancelled.json()["error"]["code"] == again.json()["error"]["code"] == "CANCELLED"
    assert (again.status_code, again.json()["_meta"]["response_type"]) == (200, "failure")


@requirement("nlweb:note:cancel-finished")
async def test_cancelling_what_is_done_gives_its_answer(inn: Inn, baking: dict, tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    async with inn(**baking) as parts, asking(parts) as client:
        token = await started(parts)
        done = await until(client, token, 200)
        cancelled = await look(client, token, "cancel")

    assert (cancelled.status_code, cancelled.json()["_meta"]["response_type"]) == (200, "answer")
    assert cancelled.json()["results"] == done.json()["results"]


@requirement("nlweb:note:promise-token", "nlweb:promise:token")
async def test_a_promise_has_a_token_that_cannot_be_guessed(inn: Inn, baking: dict, tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    async with inn(**baking) as parts:
        tokens = {await started(parts) for _ in range(8)}

    assert len(tokens) == 8
    for token in tokens:
        assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
        assert len(token) * 6 >= 128  # bits
    assert len(set("".join(tokens))) > 40  # all of its letters vary


@requirement("nlweb:note:unknown-promise", "nlweb:note:promise-token")
async def test_a_promise_of_somebody_else_is_unknown_like_one_that_never_was(inn: Inn, baking: dict) -> None:
    async with inn(**baking) as parts, asking(parts) as client:
        token = await started(parts)
        key, record = make_key("other", ["ask"], Danger.SAFE, 1)
        await parts.store.keys.add(record)
        headers = {"x-api-key": key}
        foreign = await client.post("/await", json={"promise_token": token, "action": "checkin"}, headers=headers)
        never = await client.post("/await", json={"promise_token": "nope", "action": "cancel"}, headers=headers)
        await look(client, token, "cancel")
        await until(client, token, 200)
        await parts.store.backup.delete_entries()
        forgotten = await look(client, token)

    assert foreign.status_code == never.status_code == forgotten.status_code == 200
    assert never.json()["error"]["code"] == "UNKNOWN_PROMISE"
    assert foreign.json()["error"]["message"].replace(token, "") == never.json()["error"]["message"].replace("nope", "")
    assert forgotten.json() == foreign.json()


@requirement(
    "nlweb:await:token-required",
    "nlweb:await:action-required",
    "nlweb:note:bad-action",
    "nlweb54:code:missing-field",
    "nlweb54:code:invalid-action",
)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"promise_token": "t", "action": "dance"}, "INVALID_QUERY"),
        ({"action": "checkin"}, "INVALID_QUERY"),
        ({"promise_token": 5, "action": "checkin"}, "INVALID_QUERY"),
        ({"promise_token": "t", "meta": {"api_version": "0.54"}}, "INVALID_ACTION"),
        ({"action": "checkin", "meta": {"api_version": "0.54"}}, "MISSING_FIELD"),
        ([], "INVALID_QUERY"),
    ],
)
async def test_a_look_that_is_not_well_formed_is_refused(client: httpx.AsyncClient, body: Any, code: str) -> None:
    answer = await client.post("/await", json=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


async def test_looking_at_a_promise_leaves_the_session_as_it_was(inn: Inn, baking: dict) -> None:
    session = {"conversation_id": "conv_1", "state_token": "anything"}
    async with inn(**baking) as parts, asking(parts) as client:
        answer = await look(client, await started(parts), meta={"session_context": session})

    assert answer.json()["_meta"]["session_context"] == session
