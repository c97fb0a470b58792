"""A question that is asked again in the same words: as quick as can be, and never an old or another's answer."""

import asyncio
import uuid
from typing import Any

import httpx
from starlette.types import Message
from tests.faces.conftest import Inn, asking, key_of

from portico.connections import WHOLE
from portico.faces.nwp.familiar import Ids, first_of, is_anybodys, short_body
from portico.faces.nwp.familiar import key_of as words_of
from portico.http import application
from portico.server import Parts
from portico.store.records import Put, Remove

QUESTION = b'{"fields": ["id"], "order": [{"field": "id"}]}'


async def ids(client: httpx.AsyncClient, **headers: str) -> list[str]:
    return [each["id"] for each in (await told(client, **headers)).json()["data"]]


async def told(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    return await client.post("/nwp/rooms/query", content=QUESTION, headers=headers)


async def test_the_same_words_get_the_same_answer_under_another_name(parts: Parts, client: httpx.AsyncClient) -> None:
    first, *again = [await told(client) for _ in range(4)]

    assert {answer.status_code for answer in again} == {200}
    assert len({answer.headers["x-nwp-request-id"] for answer in (first, *again)}) == 4
    assert {answer.headers["x-nwp-cached"] for answer in again} == {"true"}
    assert {answer.content for answer in again} == {again[0].content}
    assert again[0].json() == {**first.json(), "cached": True}
    left = [int(answer.headers["x-nwp-rate-remaining"]) for answer in (first, *again)]
    assert left == sorted(left, reverse=True) != left[::-1]


async def test_what_was_written_is_told_at_once(parts: Parts, client: httpx.AsyncClient) -> None:
    assert [await ids(client) for _ in range(3)] == [["attic", "cellar", "garden"]] * 3

    await parts.store.items.write("rooms", [Put("tower", {"name": "The tower", "storeys": 4})])
    assert [await ids(client) for _ in range(3)] == [["attic", "cellar", "garden", "tower"]] * 3

    await parts.store.items.write("rooms", [Remove("attic")])
    assert [await ids(client) for _ in range(3)] == [["cellar", "garden", "tower"]] * 3


async def test_whoever_asks_too_often_is_told_so_however_familiar(inn: Inn) -> None:
    async with inn(limits={"anonymous_per_minute": 4}) as parts, asking(parts) as client:
        answers = [await told(client) for _ in range(6)]

    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
    assert answers[-1].json()["error"] == "NWP-RATE-LIMIT-EXCEEDED"
    assert answers[-1].json()["request_id"] == answers[-1].headers["x-nwp-request-id"]


async def test_what_everybody_may_read_is_not_what_a_key_may(inn: Inn) -> None:
    async with inn() as parts, asking(parts) as client:
        token = await key_of(parts, "ask")
        assert [await ids(client) for _ in range(3)] == [["attic", "cellar", "garden"]] * 3
        refused = await told(client, authorization=f"Bearer {token}")
        wrong = await told(client, authorization="Bearer pk_wrong")

    assert [(answer.status_code, "data" in answer.json()) for answer in (refused, wrong)] == [
        (403, False),
        (401, False),
    ]


async def test_a_question_with_a_name_is_answered_by_its_name(client: httpx.AsyncClient) -> None:
    names = [str(uuid.uuid4()) for _ in range(3)]
    bodies = [(await client.post("/nwp/rooms/query", json={"request_id": name})).json() for name in names]
    same = [(await client.post("/nwp/rooms/query", json={"request_id": names[0]})) for _ in range(3)]

    assert [body["request_id"] for body in bodies] == names
    assert {answer.headers["x-nwp-request-id"] for answer in same} == {names[0]}


async def test_a_body_that_comes_in_pieces_is_read_whole(parts: Parts) -> None:
    pieces: list[Message] = [
        {"type": "http.request", "body": QUESTION[:10], "more_body": True},
        {"type": "http.request", "body": QUESTION[10:], "more_body": False},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return pieces.pop(0) if pieces else await asyncio.Future[Any]()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/nwp/rooms/query", "scheme": "http", "headers": []}
    await application(parts)(scope, receive, send)

    assert sent[0]["status"] == 200


async def test_only_short_whole_questions_of_nobody_in_particular_are_known() -> None:
    scope = {"path": "/nwp/rooms/query", "scheme": "http", "client": ("127.0.0.1", 1), "headers": [(b"host", b"a")]}
    whole: Message = {"type": "http.request", "body": b"{}"}

    async def receive() -> Message:
        return whole

    for arrived in (scope, {**scope, "extensions": {WHOLE: {}}}):
        message, again = await first_of(arrived, receive)
        assert message is whole is await again()
    assert words_of(scope, b"{}") == ("/nwp/rooms/query", "http", "127.0.0.1", b"{}", (b"host", b"a"))
    assert words_of(scope, None) is None
    assert (short_body(whole, 2), short_body(whole, 1)) == (b"{}", None)
    assert short_body({**whole, "more_body": True}, 9000) is None
    assert short_body({**whole, "body": b" " * 3000}, 9000) is None
    assert short_body({"type": "http.disconnect"}, 9000) is None
    assert is_anybodys(scope)
    for name in (b"authorization", b"x-api-key", b"x-nwp-agent", b"x-nwp-ident", b"x-nwp-budget", b"origin"):
        assert not is_anybodys({**scope, "headers": [(name, b"x")]})


def test_made_up_names_are_uuids_and_never_the_same() -> None:
    made = [Ids().next() for _ in range(3)] + [each for ids in (Ids(),) for each in (ids.next(), ids.next())]

    assert len(set(made)) == 5
    assert {uuid.UUID(each).version for each in made} == {4}
