"""Who comes in at `/a2a`, and what those are told who do not: a JSON-RPC error, with the status of its reason."""

from typing import Any

import httpx
import pytest
from tests.protocols.a2a.conftest import request, sent, text, visiting
from tests.protocols.conftest import Inn, key_of

ASK = request("SendMessage", sent(text("a quiet room")))


def told(answer: httpx.Response) -> tuple[int, int, Any]:
    body = answer.json()
    assert body["jsonrpc"] == "2.0"
    return answer.status_code, body["error"]["code"], body["error"]["data"][0]["reason"]


@pytest.mark.parametrize(
    ("sending", "status", "code", "reason"),
    [
        ({"json": ASK, "headers": {"host": "evil.example"}}, 421, -32600, "FORBIDDEN"),
        ({"json": ASK, "headers": {"origin": "https://evil.example"}}, 403, -32043, "FORBIDDEN"),
        ({"json": ASK, "headers": {"x-api-key": "pk_wrong"}}, 401, -32041, "UNAUTHENTICATED"),
        ({"content": "text", "headers": {"content-type": "text/plain"}}, 415, -32600, "INVALID_QUERY"),
        ({"content": "{", "headers": {"content-type": "application/json"}}, 200, -32700, "INVALID_QUERY"),
        ({"content": b'"\xff"', "headers": {"content-type": "application/json"}}, 200, -32700, "INVALID_QUERY"),
        ({"json": {"deep": [[[[[[[[[[[]]]]]]]]]]]}}, 200, -32700, "INVALID_QUERY"),
        ({"json": {"long": "x" * 20_000}}, 413, -32600, "TOKEN_LIMIT"),
    ],
    ids=["host", "origin", "key", "content type", "syntax", "encoding", "depth", "size"],
)
async def test_what_is_wrong_at_the_door(
    house: Inn, sending: dict[str, Any], status: int, code: int, reason: str
) -> None:
    async with house(limits={"payload_bytes": 10_000, "depth": 10}) as parts, visiting(parts) as talk:
        answer = await talk.http.post("/a2a", **sending)

    assert told(answer) == (status, code, reason)
    assert ("www-authenticate" in answer.headers) == (status == 401)


async def test_only_messages_are_taken(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        answer = await talk.http.get("/a2a")

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_a_site_that_wants_to_know_who_asks_says_so(house: Inn) -> None:
    async with house(anonymous={"scopes": ["read:*"]}) as parts, visiting(parts) as talk:
        answer = await talk.post("GetTask", id="any")

    assert told(answer) == (401, -32041, "UNAUTHENTICATED")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_whoever_asks_too_often_is_told_when_to_come_back(house: Inn) -> None:
    question = sent(text("a quiet room"))
    calls: dict[str, dict[str, Any]] = {
        "SendMessage": question,
        "SendStreamingMessage": question,
        "SubscribeToTask": {"id": "any"},
        "GetTask": {"id": "any"},
        "ListTasks": {"contextId": "any"},
        "CancelTask": {"id": "any"},
    }
    async with house(limits={"anonymous_per_minute": 1}) as parts, visiting(parts) as talk:
        await talk.rpc("GetTask", id="any")
        answers = {method: await talk.post(method, **params) for method, params in calls.items()}

    assert {method: told(each) for method, each in answers.items()} == dict.fromkeys(
        calls, (429, -32029, "RATE_LIMITED")
    )
    assert all(int(each.headers["retry-after"]) > 0 and each.json()["id"] == 7 for each in answers.values())


async def test_a_client_of_0_3_is_told_before_its_stream_begins(house: Inn) -> None:
    message = {"messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "a quiet room"}]}
    async with house(limits={"anonymous_per_minute": 1}) as parts, visiting(parts) as talk:
        del talk.http.headers["a2a-version"]
        await talk.http.post("/a2a", json=request("tasks/get", {"id": "any"}))
        answer = await talk.http.post("/a2a", json=request("message/stream", {"message": message}))

    assert told(answer) == (429, -32029, "RATE_LIMITED")


GUESSED = sent(text("and now?"), task="guessed")
WRONG: dict[str, tuple[dict[str, Any], int]] = {
    "a guessed task": (request("SendMessage", GUESSED), -32001),
    "a guessed task, as a stream": (request("SendStreamingMessage", GUESSED), -32001),
    "data of no known kind": (request("SendMessage", sent({"data": {"colour": "red"}})), -32602),
    "a file": (request("SendMessage", sent({"url": "https://example.org/a.png"})), -32005),
    "an empty text": (request("SendMessage", sent(text(" "))), -32602),
    "an unknown method": (request("Dance", {}), -32601),
    "wrong parameters": (request("GetTask", {"id": [5]}), -32602),
    "no parameters": (request("GetTask", {}), -32602),
    "another card": (request("GetExtendedAgentCard", {}), -32007),
    "no request": ({"id": 7, "text": "hello"}, -32600),
}


async def test_what_is_refused_costs_as_much_as_what_is_not(house: Inn) -> None:
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    async with house(limits={"keys_per_minute": 1}) as parts, visiting(parts) as talk:
        for name, (wrong, _) in WRONG.items():
            talk.http.headers["x-api-key"] = await key_of(parts)
            first[name] = (await talk.http.post("/a2a", json=wrong)).json()["error"]["code"]
            answer = await talk.http.post("/a2a", json=wrong)
            second[name] = (*told(answer), answer.json()["id"])

    # One that the site itself has refused may have cost more than one, and is told of that.
    assert first == {name: code for name, (_, code) in WRONG.items()}
    assert second == dict.fromkeys(WRONG, (429, -32029, "RATE_LIMITED", 7))


async def test_a_version_that_is_not_spoken_is_refused(house: Inn) -> None:
    async with house() as parts, visiting(parts) as talk:
        answer = await talk.http.post("/a2a", json=ASK, headers={"a2a-version": "2.0"})

    assert answer.json()["error"]["code"] == -32009
