"""What is said while a command waits for what it lacks: an answer, something else, or that it is not wanted."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.protocols.conftest import Inn, asking

OWN = '''
from portico.operations import Context, operation

@operation(kind="execute", danger="reversible")
async def clean_room(context: Context, room: str, note: str = "") -> dict[str, object]:
    """Have a room cleaned."""
    return {"room": (await context.get("rooms", room)).id, "note": note}

@operation(kind="execute", danger="safe")
async def count_keys(context: Context) -> int:
    """Count the keys."""
    return 7
'''
COMMAND = "clean the room"


@pytest.fixture
async def client(inn: Inn, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "own.py").write_text(OWN)
    anybody = {"scopes": ["ask", "read:*", "execute:*"], "danger": "reversible"}
    async with inn(operations=["own.py"], anonymous=anybody) as parts, asking(parts) as client:
        yield client


async def say(client: httpx.AsyncClient, text: str, before: Any = None, **answers: Any) -> Any:
    """The next answer of a conversation; `answers` are those of a form."""
    meta = {"session_context": before["_meta"]["session_context"]} if before else {}
    body = {"query": {"text": text}, "meta": meta, **({"context": {"answers": answers}} if answers else {})}
    return (await client.post("/ask", json=body)).json()


def asked(answer: Any) -> list[str]:
    return [question["id"] for question in answer.get("elicitation", {}).get("questions", ())]


async def test_a_name_that_is_typed_answers_what_was_asked(client: httpx.AsyncClient) -> None:
    waiting = await say(client, COMMAND)
    sure = await say(client, "the attic", waiting)
    done = await say(client, "yes", sure)

    assert (asked(waiting), asked(sure)) == (["room"], ["confirm"])
    assert done["results"][0]["result"] == {"room": "attic", "note": ""}


@pytest.mark.parametrize("said", ["count the keys", "best rooms", "what rooms are there?", "show me the cellar"])
async def test_something_else_is_taken_as_what_it_is(client: httpx.AsyncClient, said: str) -> None:
    waiting = await say(client, COMMAND)
    other, alone = await say(client, said, waiting), await say(client, said)

    assert asked(other) == asked(alone)
    assert other.get("results") == alone.get("results")


async def test_what_is_neither_yes_nor_no_is_taken_as_what_it_is(client: httpx.AsyncClient) -> None:
    sure = await say(client, "clean the room The attic")
    other = await say(client, "the cellar", sure)

    assert (asked(sure), asked(other)) == (["confirm"], [])
    assert other["results"] == (await say(client, "the cellar"))["results"]


@pytest.mark.parametrize(
    "said", ["never mind", "Forget it!", "cancel", "vergiss es", "laisse tomber", "déjalo", "算了"]
)
async def test_who_gives_up_ends_it(client: httpx.AsyncClient, said: str) -> None:
    ended = await say(client, said, await say(client, COMMAND))
    after = await say(client, "the attic", ended)

    assert ended["error"]["code"] == "CANCELLED"
    assert after["results"][0]["@id"] == "attic"


async def test_a_yes_to_one_command_is_none_to_the_next(client: httpx.AsyncClient) -> None:
    sure = await say(client, "", await say(client, COMMAND), room="attic")
    done = await say(client, "yes", sure)
    again = await say(client, "", await say(client, COMMAND, done), room="attic")

    assert done["results"][0]["result"]["room"] == "attic"
    assert asked(again) == ["confirm"]


async def test_nothing_said_is_no_answer(client: httpx.AsyncClient) -> None:
    waiting = await say(client, COMMAND)

    assert (await say(client, " ", waiting))["error"]["code"] == "INVALID_QUERY"
