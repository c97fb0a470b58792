"""Conversations: what holds turns together, what is kept of them and for whom, and what people say of answers."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.chat.talk import QUIET, chat, message, said
from tests.protocols.conftest import Inn, asking, key_of

from portico.conversations.feedback import Opinion
from portico.conversations.transcripts import StoredConversation, TranscriptTurn, new_conversation
from portico.errors import RateLimited
from portico.protocols.chat.conversations import as_markdown
from portico.requests import Call, Caller
from portico.server.assembly import Parts


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def about(answer: dict[str, Any]) -> dict[str, Any]:
    told = answer["context"]["portico"]["conversation"]
    return {name: told.get(name) for name in ("session", "turn", "repeated", "stored")}


@requirement("chat:request:session-state", "chat:response:session-state", "chat:session:echo")
async def test_a_session_comes_back_as_it_was_sent(client: httpx.AsyncClient) -> None:
    for session in ({"user": "u1", "deep": [None, {"a": 1}]}, "plain", 7, [], False):
        assert (await said(client, "a quiet room", sessionState=session))["sessionState"] == session


@requirement("chat:shape:snake-session")
async def test_a_session_goes_back_under_the_name_it_came_by(client: httpx.AsyncClient) -> None:
    answer = await said(client, "a quiet room", session_state={"a": 1})
    given = await said(client, "a quiet room", session_state=None)
    both = await said(client, "a quiet room", session_state=None, sessionState={"b": 1})

    assert answer["session_state"] == {"a": 1}
    assert given["session_state"]["conversation"]
    assert "sessionState" not in answer | given
    assert (both["sessionState"], "session_state" in both) == ({"b": 1}, False)


@requirement("chat:session:unknown", "chat:session:known", "chat:session:history-wins")
async def test_one_message_of_a_known_session_has_its_history_unless_the_client_tells_one(
    client: httpx.AsyncClient,
) -> None:
    first = await said(client, "a room with two beds", sessionState="s")
    second = await said(client, "which is cheaper?", sessionState="s")
    history = [message("user", "the garden"), message("assistant", "…"), message("user", "which is cheaper?")]
    third = await chat(client, messages=history, sessionState="s")

    assert [about(each) for each in (first, second)] == [
        {"session": "new", "turn": 1, "repeated": None, "stored": False},
        {"session": "known", "turn": 2, "repeated": None, "stored": False},
    ]
    understood = [each["context"]["portico"]["understood"]["text"] for each in (second, third)]
    assert "beds" in understood[0]
    assert "garden" in understood[1]
    assert "beds" not in understood[1]


async def test_a_session_that_is_empty_names_none(parts: Parts, client: httpx.AsyncClient) -> None:
    for headers, stored in (({}, False), (bearer(await key_of(parts)), True)):
        for empty in ({}, [], ""):
            await chat(client, headers, messages=[message("user", f"a room {empty}")], sessionState=empty)
            second = await chat(client, headers, messages=[message("user", f"which {empty}")], sessionState=empty)

            assert second["sessionState"] == empty
            assert about(second) == {"session": "new", "turn": 1, "repeated": None, "stored": stored}


async def test_turns_that_begin_one_session_at_the_same_time_meet_in_one_conversation(
    parts: Parts, client: httpx.AsyncClient
) -> None:
    asked = [f"room {number}" for number in range(12)]
    for headers in (bearer(await key_of(parts)), {}):
        answers = await asyncio.gather(
            *(chat(client, headers, messages=[message("user", each)], sessionState="s") for each in asked)
        )
        ids = {each["context"]["portico"]["conversation"]["id"] for each in answers}
        assert len(ids) == 1
        if headers:
            stored = (await client.get(f"/chat/conversations/{ids.pop()}", headers=headers)).json()
            assert sorted(each["question"] for each in stored["turns"]) == sorted(asked)


def talk(*questions: str) -> list[dict[str, Any]]:
    """The messages of a client that tells everything that was said."""
    *before, last = questions
    return [said for each in before for said in (message("user", each), message("assistant", "…"))] + [
        message("user", last)
    ]


async def questions(client: httpx.AsyncClient, headers: dict[str, str], answer: dict[str, Any]) -> list[str]:
    path = f"/chat/conversations/{answer['context']['portico']['conversation']['id']}"
    return [each["question"] for each in (await client.get(path, headers=headers)).json()["turns"]]


async def test_a_long_history_is_kept_and_known_again(
    parts: Parts, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = bearer(await key_of(parts))
    asked = [f"room {number}" for number in range(30)]
    first = await chat(client, ann, messages=talk(*asked[:28]))
    second = await chat(client, ann, messages=talk(*asked[:29]))

    assert (about(first)["turn"], about(second)["turn"], about(second)["session"]) == (28, 29, "known")
    assert await questions(client, ann, second) == asked[:29]
    monkeypatch.setattr("portico.conversations.transcripts.MAX_TURNS", 20)
    told = [await chat(client, ann, messages=talk(*asked), sessionState=first["sessionState"]) for _ in range(2)]
    assert [about(each)["repeated"] for each in told] == [None, True]
    assert await questions(client, ann, told[1]) == asked[10:]


async def test_a_client_that_sends_only_the_last_turns_loses_none_and_one_that_goes_back_does(
    parts: Parts, client: httpx.AsyncClient
) -> None:
    ann = bearer(await key_of(parts))
    windows = (("a", "b"), ("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e"), ("c", "d", "e"))
    answers = [await chat(client, ann, messages=talk(*each), sessionState="s") for each in windows]

    assert [about(each)["turn"] for each in answers] == [2, 3, 4, 5, 5]
    assert about(answers[-1])["repeated"] is True
    assert await questions(client, ann, answers[0]) == ["a", "b", "c", "d", "e"]
    await chat(client, ann, messages=talk("a", "x"), sessionState="s")
    assert await questions(client, ann, answers[0]) == ["a", "x"]


async def test_a_client_without_a_session_is_given_one(client: httpx.AsyncClient) -> None:
    first = await said(client, "a room with two beds")
    second = await said(client, "which is cheaper?", sessionState=first["sessionState"])

    assert about(second)["turn"] == 2
    assert second["sessionState"] == first["sessionState"]


async def test_sessions_of_others_are_unknown(parts: Parts, client: httpx.AsyncClient) -> None:
    ann, bob = bearer(await key_of(parts)), bearer(await key_of(parts))
    await chat(client, ann, **QUIET, sessionState="s")

    assert about(await chat(client, bob, **QUIET, sessionState="s"))["session"] == "new"
    assert about(await chat(client, **QUIET, sessionState="s"))["session"] == "new"


@requirement("chat:rule:idempotent")
async def test_a_turn_that_is_sent_again_is_one_turn(parts: Parts, client: httpx.AsyncClient) -> None:
    ann = bearer(await key_of(parts))
    for body in (
        {**QUIET, "sessionState": "s"},
        QUIET,
        {"messages": [message("user", "rooms"), message("assistant", "…"), *QUIET["messages"]]},
    ):
        answers = [await chat(client, ann, **body) for _ in range(3)]
        ids = {each["context"]["portico"]["conversation"]["id"] for each in answers}
        told = [about(each)["repeated"] for each in answers]
        assert (len(ids), told) == (1, [None, True, True])
        stored = (await client.get(f"/chat/conversations/{ids.pop()}", headers=ann)).json()
        assert [each["question"] for each in stored["turns"]] == [
            each["content"] for each in body["messages"] if each["role"] == "user"
        ]


OWN = '''
from portico.operations import Context, operation

RUNG = []

@operation(kind="execute", danger="safe")
async def ring_bell(context: Context) -> int:
    """Ring the bell of the house."""
    RUNG.append(1)
    return len(RUNG)
'''


def rung(answer: dict[str, Any]) -> int:
    return int(answer["message"]["content"].removeprefix("Ring bell: "))


@requirement("chat:rule:idempotent")
async def test_nothing_is_done_twice_for_a_turn_that_is_sent_again(inn: Inn, tmp_path: Any) -> None:
    (tmp_path / "own.py").write_text(OWN)
    async with inn(operations=["own.py"]) as parts, asking(parts) as http:
        ann = bearer(await key_of(parts, "ask", "*:*"))
        bodies = [{"messages": [message("user", "Ring the bell")], "sessionState": each} for each in ("s", "s", "t")]
        answers = [await chat(http, ann, **body) for body in bodies]
        bell = bodies[0]["messages"]
        told = [message("user", "rooms"), message("assistant", "…"), *bell]
        bob = bearer(await key_of(parts, "ask", "*:*"))
        unnamed = [await chat(http, bob, messages=each) for each in (bell, bell, told, told)]
        keys = [{**bob, "idempotency-key": each} for each in ("k", "k", "l")]
        keyed = [await chat(http, each, messages=bell, sessionState=number) for number, each in enumerate(keys)]

    assert [rung(each) for each in answers] == [1, 1, 2]
    assert [rung(each) for each in unnamed] == [3, 3, 4, 4]
    assert [rung(each) for each in keyed] == [5, 5, 6]


async def test_of_two_turns_that_come_with_one_key_at_the_same_time_one_is_answered(
    parts: Parts, client: httpx.AsyncClient
) -> None:
    keyed = {**bearer(await key_of(parts)), "idempotency-key": "k"}
    bodies = [{"messages": [message("user", each)]} for each in ("a quiet room", "a garden")]
    answers = await asyncio.gather(*(client.post("/chat", json=each, headers=keyed) for each in bodies))

    assert sorted(each.status_code for each in answers) == [200, 400]


HELD = '''
import asyncio

from portico.operations import Context, operation

DOOR = asyncio.Event()

@operation(kind="execute", danger="safe")
async def ring_bell(context: Context) -> str:
    """Ring the bell of the house, and wait until somebody opens."""
    await DOOR.wait()
    return "ding"

@operation(kind="execute", danger="safe")
async def open_door(context: Context) -> str:
    """Open the door of the house."""
    DOOR.set()
    return "open"
'''


async def test_a_key_stands_for_one_turn_also_while_that_is_under_way(inn: Inn, tmp_path: Any) -> None:
    (tmp_path / "own.py").write_text(HELD)
    async with inn(operations=["own.py"]) as parts, asking(parts) as http:
        keyed = {**bearer(await key_of(parts, "ask", "*:*")), "idempotency-key": "k" * 1000}
        bell = {"messages": [message("user", "Ring the bell")]}
        ringing = {asyncio.create_task(http.post("/chat", json=bell, headers=keyed)) for _ in range(2)}
        [refused], [waiting] = await asyncio.wait(ringing, return_when=asyncio.FIRST_COMPLETED)
        others = [await http.post(path, json=QUIET, headers=keyed) for path in ("/chat", "/chat/stream")]
        del keyed["idempotency-key"]
        await chat(http, keyed, messages=[message("user", "Open the door")])
        rung = await waiting

    under_way = (
        400,
        {"error": "A call with this idempotency key is still running. Call again in a few seconds to get its result."},
    )
    assert (refused.result().status_code, refused.result().json()) == under_way
    another = {"error": "This idempotency key was used for another turn. Send a new one."}
    assert [(each.status_code, each.json()) for each in others] == [(400, another)] * 2
    assert (rung.status_code, rung.json()["message"]["content"]) == (200, "Ring bell: ding")


async def test_in_a_long_conversation_too_each_turn_is_done_once(
    inn: Inn, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.conversations.transcripts.MAX_TURNS", 2)
    (tmp_path / "own.py").write_text(OWN)
    async with inn(operations=["own.py"]) as parts, asking(parts) as http:
        ann = bearer(await key_of(parts, "ask", "*:*"))
        asked = ["Ring the bell", "rooms", "Ring the bell", "rooms", "Ring the bell", "Ring the bell"]
        answers = [await chat(http, ann, messages=[message("user", each)], sessionState="s") for each in asked]

    assert [rung(each) for each in (answers[0], answers[2], answers[4], answers[5])] == [1, 2, 3, 3]


@requirement("chat:own:conversations")
async def test_a_caller_with_a_key_lists_reads_exports_and_deletes_its_conversations(
    parts: Parts, client: httpx.AsyncClient
) -> None:
    ann, bob = bearer(await key_of(parts)), bearer(await key_of(parts))
    answer = await chat(client, ann, **QUIET, sessionState="s")
    await chat(client, ann, messages=[message("user", "and the cellar?")], sessionState="s")

    [heading] = (await client.get("/chat/conversations", headers=ann)).json()["conversations"]
    path = f"/chat/conversations/{heading['id']}"
    whole = (await client.get(path, headers=ann)).json()
    exported = await client.get(path, headers={**ann, "accept": "text/markdown"})

    assert (heading["title"], heading["turns"]) == ("a quiet room", 2)
    assert whole["turns"][0] == {
        "question": "a quiet room",
        "answer": answer["message"]["content"],
        "at": whole["turns"][0]["at"],
        "sources": ["http://inn.example/items/rooms/garden"],
    }
    assert exported.headers["content-type"].startswith("text/markdown")
    assert exported.text.startswith("# a quiet room\n")
    assert "**You:**\n\n> and the cellar?\n" in exported.text
    assert (await client.get(f"{path}?format=pdf", headers=ann)).status_code == 400
    for stranger, status in ((bob, 404), ({}, 401)):
        assert (await client.get(path, headers=stranger)).status_code == status
        assert (await client.delete(path, headers=stranger)).status_code == status
    assert (await client.delete(path, headers={**ann, "origin": "https://else.example"})).status_code == 403
    assert (await client.delete(path, headers=ann)).status_code == 204
    assert (await client.get("/chat/conversations", headers=ann)).json() == {"conversations": []}
    assert "conversation" not in str([each.name for each in parts.site.catalog.public])


def test_what_was_said_is_exported_as_a_quotation_of_plain_text() -> None:
    turn = TranscriptTurn(
        "# Hi\n- [x](javascript:1)\n\n1. a",
        "<b>\u202e\x1b|`*_!\\\nو\u200f، \u2764\ufe0f",
        "2026-01-01",
        ("http://a/b_c",),
    )
    told = StoredConversation("c", "A *title*\n# b", "2026-01-01", "2026-01-02", (turn,))

    assert as_markdown(told).split("\n\n") == [
        r"# A \*title\* \# b",
        "2026-01-01 to 2026-01-02",
        "**You:**",
        "\n".join([r"> \# Hi", r"> \- \[x\](javascript:1)", ">", r"> 1\. a"]),
        "**Answer:**",
        "\n".join([r"> \<b\>  \|\`\*\_\!\\", "> و\u200f، \u2764\ufe0f"]),
        "Sources:",
        "> http://a/b\\_c\n",
    ]


async def test_nothing_is_stored_where_the_site_keeps_nothing(inn: Inn) -> None:
    async with inn(chat={"keep": False}) as parts, asking(parts) as http:
        ann = bearer(await key_of(parts))
        first = await chat(http, ann, **QUIET, sessionState="s")
        second = await chat(http, ann, messages=[message("user", "and the cellar?")], sessionState="s")

        assert [about(each)["session"] for each in (first, second)] == ["new", "known"]
        assert (await http.get("/chat/conversations", headers=ann)).json() == {"conversations": []}


async def test_of_many_conversations_the_oldest_go_first(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.conversations.transcripts.MAX_CONVERSATIONS", 3)
    for number in range(5):
        await kept(parts, "ann", number)

    assert await titles(parts, "ann") == ["question 4", "question 3", "question 2"]
    monkeypatch.setattr("portico.conversations.transcripts.MAX_BYTES", 10_000)
    for number, size in ((5, 4000), (6, 4000), (7, 4000)):
        await kept(parts, "ann", number, "x" * size)

    assert await titles(parts, "ann") == ["question 7", "question 6"]


async def test_of_all_visitors_so_many_conversations_are_kept_and_the_oldest_go_first(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.conversations.transcripts.MAX_OF_VISITORS", 2)
    owners = ("visitor:1", "ann", "visitor:2", "visitor:3")
    for number, owner in enumerate(owners):
        await kept(parts, owner, number)

    left = {owner: await titles(parts, owner) for owner in owners}
    assert left == {"visitor:1": [], "ann": ["question 1"], "visitor:2": ["question 2"], "visitor:3": ["question 3"]}


async def kept(parts: Parts, owner: str, number: int, answer: str = "yes") -> None:
    conversation = new_conversation(f"s{number}", f"question {number}", datetime.now(UTC))
    await parts.site.transcripts.add(owner, conversation, None, TranscriptTurn(f"question {number}", answer))


async def titles(parts: Parts, owner: str) -> list[str]:
    return [each.title for each in await parts.site.transcripts.list_for(owner)]


@requirement("chat:own:feedback")
async def test_everybody_can_say_what_they_think_and_only_the_operator_reads_it(
    parts: Parts, client: httpx.AsyncClient
) -> None:
    comment = "Too\n\x1b\x07short\x9b\u202e\u200b\ufeff\u061c"
    opinion = {"rating": "down", "comment": comment, "question": "a room", "items": ["attic"], "turn": None}
    given = await client.post("/chat/feedback", json=opinion)
    wrong = [
        await client.post("/chat/feedback", json=each)
        for each in (
            {},
            {"rating": "sideways"},
            {"rating": "up", "comment": "x" * 3000},
            [],
            {"rating": "up", "turn": 0},
        )
    ]
    spent = [(await client.post("/chat/feedback", json={"rating": "up"})).status_code for _ in range(20)]

    assert given.status_code == 201
    assert [each.status_code for each in wrong] == [400] * 5
    assert spent[0] == 201
    assert spent[-1] == 429
    first = (await parts.site.feedback.all(1000))[-1]
    assert (first.id, first.caller) == (given.json()["id"], "anonymous")
    assert (first.opinion.rating, first.opinion.comment, first.opinion.items) == ("down", "Too\nshort", ("attic",))
    assert (await client.get("/chat/feedback")).status_code == 405
    with pytest.raises(Exception, match="list__feedback"):
        await parts.site.call(Call("list__feedback"), Caller())


async def test_feedback_is_bounded_by_the_day_and_when_it_is_full_who_gave_most_loses_first(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("PER_DAY", 6), ("MOST", 4), ("SPARE", 1)):
        monkeypatch.setattr(f"portico.conversations.feedback.{name}", most)
    feedback = parts.site.feedback
    quiet, loud = Caller(address="192.0.2.1"), Caller(address="192.0.2.2")
    await feedback.give(Opinion("up", "quiet"), quiet)
    for number in range(5):
        await feedback.give(Opinion("down", f"loud {number}"), loud)

    assert [each.opinion.comment for each in await feedback.all()] == ["loud 4", "loud 3", "loud 2", "quiet"]
    monkeypatch.setattr("portico.conversations.feedback.PER_DAY", 3)
    with pytest.raises(RateLimited):
        await feedback.give(Opinion("down"), loud)
    assert (await feedback.give(Opinion("up"), quiet)).caller == "anonymous"
