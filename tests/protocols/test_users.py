"""`meta.user` keeps the people apart who ask through one key, over every protocol."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from msgspec import structs
from tests.conformance.requirements import requirement
from tests.conftest import StoreUrl
from tests.protocols.a2a import conftest as a2a
from tests.protocols.conftest import asking, key_of
from tests.protocols.mcp.conftest import structured, visiting

from portico.conversations.memories import COLLECTION
from portico.protocols import parse_config
from portico.protocols.mcp.settings import McpSettings
from portico.query import Query
from portico.server.assembly import Parts, open_site
from portico.store.records import Put

DISHES = {
    "leek": {"@type": "Recipe", "name": "Leek pie", "suitableForDiet": ["vegan"]},
    "beef": {"@type": "Recipe", "name": "Beef pie", "suitableForDiet": ["halal"]},
}
BOOKING = '''
from portico.operations import Context, operation

BOOKED = []

@operation(kind="execute", danger="safe")
async def book_table(context: Context, people: int) -> dict[str, int]:
    """Book a table."""
    BOOKED.append(people)
    return {"number": len(BOOKED)}

@operation(kind="execute", danger="safe", long=True)
async def bake_bread(context: Context) -> str:
    """Bake bread."""
    return "baked"
'''
EVERYTHING = {"leek", "beef"}
REMEMBERED: dict[str, Any] = {"query": {"text": "pie"}, "context": {"memory": "vegan"}}


@pytest.fixture(params=("sqlite", "postgres"))
async def parts(request: pytest.FixtureRequest, store_url: StoreUrl, tmp_path: Path) -> AsyncIterator[Parts]:
    (tmp_path / "own.py").write_text(BOOKING)
    settings = {
        "search": {"embedder": "none:"},
        "store": {"url": store_url(request.param)},
        "folder": str(tmp_path),
        "operations": ["own.py"],
    }
    async with open_site(parse_config(settings)) as parts:
        await parts.store.collections.declare(parts.config.collection("dishes"))
        await parts.store.items.write("dishes", [Put(id, data) for id, data in DISHES.items()])
        await parts.index.sync(await parts.store.changes.head())
        yield parts


async def keyed(parts: Parts) -> httpx.AsyncClient:
    """A client with a key of its own."""
    return asking(parts, headers={"x-api-key": await key_of(parts, "ask", "read:*", "execute:*")})


async def ask(client: httpx.AsyncClient, text: str = "pie", user: Any = None, **more: Any) -> dict[str, Any]:
    meta = {**more.pop("meta", {}), **({} if user is None else {"user": user})}
    answer = await client.post("/ask", json={"query": {"text": text}, "meta": meta, **more})
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


async def remember(client: httpx.AsyncClient, user: Any = None, memory: str = "vegan") -> None:
    await ask(client, user=user, context={"memory": memory}, meta={"remember": True})


def ids(answer: dict[str, Any]) -> set[str]:
    return {item["@id"] for item in answer["results"]}


async def memories(client: httpx.AsyncClient, **params: Any) -> set[str]:
    answer = await client.post("/operations/list_memories", json=params)
    assert answer.status_code == 200, answer.text
    return {each["text"] for each in answer.json()["result"]}


# Memories


@requirement("nlweb:note:users-apart")
async def test_what_one_user_asked_to_be_remembered_is_not_applied_to_another(parts: Parts) -> None:
    async with await keyed(parts) as client:
        await remember(client, "ann")

        assert ids(await ask(client, user="ann")) == {"leek"}
        assert ids(await ask(client, user="ben")) == ids(await ask(client)) == EVERYTHING


async def test_what_was_remembered_without_a_user_stays_with_the_key(parts: Parts) -> None:
    async with await keyed(parts) as client:
        await remember(client)

        assert ids(await ask(client)) == {"leek"}
        assert ids(await ask(client, user="ann")) == EVERYTHING


async def test_the_same_user_under_another_key_is_somebody_else(parts: Parts) -> None:
    async with await keyed(parts) as client, await keyed(parts) as other:
        await remember(client, "ann")

        assert ids(await ask(other, user="ann")) == EVERYTHING
        assert await memories(other, user="ann") == set()


@requirement("nlweb:note:user-is-a-label")
async def test_naming_a_user_without_a_key_shows_nothing_of_that_user(parts: Parts) -> None:
    async with await keyed(parts) as client, asking(parts) as nobody:
        await remember(client, "ann")
        answer = await ask(nobody, user="ann")
        await remember(nobody, "ann", "halal")

        assert (ids(answer), answer["_meta"]["ignored"]) == (EVERYTHING, ["meta.user"])
        assert await memories(nobody, user="ann") == set()
        assert await memories(client, user="ann") == {"vegan", "pie"}


@pytest.mark.parametrize(
    "forms",
    [
        ["ann", {"id": "ann"}, {"@id": "ann"}, {"@type": "Person", "identifier": "ann", "name": "Ann"}],
        [7, "7", {"id": 7}],
        [{"name": "Ann", "email": "a@x.example"}, {"email": "a@x.example", "name": "Ann"}],
        [
            {"identifier": {"@type": "PropertyValue", "value": "7"}},
            {"identifier": {"value": "7", "@type": "PropertyValue"}},
        ],
    ],
)
async def test_a_user_is_the_same_in_every_form(parts: Parts, forms: list[Any]) -> None:
    async with await keyed(parts) as client:
        await remember(client, forms[0])

        for form in forms:
            assert ids(await ask(client, user=form)) == {"leek"}, form
            assert await memories(client, user=form) == {"vegan", "pie"}, form


HOSTILE = [
    "ann", "Ann", " ann", "ann ", "ann\n", "\nann", "ann\u0000", "", " ", "*", "%", "_", "' or 1=1 --", '"ann"',
    "\n" + "0" * 32, "key:ann", "operator:ann", "anonymous", "é", "é", "x" * 5000, "x" * 5001,
    {"name": "ann"}, '{"name": "ann"}', '{"name":"ann"}', {"name": "Ann"}, {"id": {"a": 1}}, {"id": ["ann"]},
    ["ann"], True, False, 1.5, [], {}, {"id": "ann\n"}, {"identifier": "Ann"},
]  # fmt: skip

NOBODY: list[Any] = ["", " ", [], {}]  # what names no user


async def test_no_name_of_a_user_leads_to_another(parts: Parts) -> None:
    async with await keyed(parts) as client:
        names = {"": None, **{repr(user): user for user in HOSTILE if user not in NOBODY}}
        for name, user in names.items():
            await remember(client, user, f"likes {name}"[:900])
        same = {repr({"id": "ann\n"}): repr("ann\n"), repr({"identifier": "Ann"}): repr("Ann")}

        for name, user in names.items():
            expected = {f"likes {each}"[:900] for each in names if same.get(each, each) == same.get(name, name)}
            if user is None:
                assert await memories(client) == {*expected, "pie"}
            elif "\0" not in str(user):  # which no operation takes
                assert await memories(client, user=user) == {*expected, "pie"}, name
        await remember(client, memory="likes nobody")
        for user in NOBODY:
            await remember(client, user, f"likes {user!r}")
        assert {f"likes {user!r}" for user in NOBODY} | {"likes nobody"} <= await memories(client)


async def test_users_are_listed_and_forgotten_one_by_one(parts: Parts) -> None:
    async with await keyed(parts) as client:
        for user in ("ann", "ben", None):
            await remember(client, user)
        forgotten = await client.post("/operations/forget_memories", json={"user": "ann"})

        assert forgotten.json()["result"]["count"] == 2
        assert await memories(client, user="ann") == set()
        assert await memories(client, user="ben") == await memories(client) == {"vegan", "pie"}


@pytest.mark.parametrize("user", [{"id": "ann"}, {"name": "Ann", "email": "a@x.example"}])
async def test_operations_take_a_user_as_an_object(parts: Parts, user: dict[str, str]) -> None:
    async with await keyed(parts) as client:
        created = await client.post("/operations/create_memories", json={"preferences": ["vegan"], "user": user})
        answer = await client.post("/operations/ask", json={"text": "pie", "user": user})
        kept = await memories(client, user=user)
        forgotten = await client.post("/operations/forget_memories", json={"user": user})

        assert [each["text"] for each in created.json()["result"]] == ["vegan"]
        assert "Beef" not in answer.text
        assert (kept, await memories(client)) == ({"vegan"}, set())
        assert (forgotten.json()["result"], await memories(client, user=user)) == ({"count": 1}, set())


async def test_the_memories_of_all_users_are_forgotten_at_once(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.conversations.memories.MAX_LIMIT", 3)  # several pages
    async with await keyed(parts) as client, await keyed(parts) as other:
        users = ("ann", {"id": "ben"}, {"name": "Cleo"})
        for user in (*users, None):
            await remember(client, user)
        await remember(other, "ann")

        async def forget(**params: Any) -> httpx.Response:
            return await client.post("/operations/forget_memories", json=params)

        mixed = [await forget(all_users=True, **more) for more in ({"user": "ann"}, {"id": "x"})]
        untouched = await memories(client, user="ann")
        forgotten = [(await forget(all_users=True)).json()["result"]["count"] for _ in range(2)]

        assert [answer.status_code for answer in mixed] == [422, 422]
        assert (untouched, forgotten) == ({"vegan", "pie"}, [6, 0])
        assert [await memories(client, user=user) for user in users] == [set()] * 3
        assert await memories(client) == await memories(other, user="ann") == {"vegan", "pie"}
        assert (await forget()).json()["result"]["count"] == 2


async def test_without_a_key_nobody_forgets_the_memories_of_users(parts: Parts) -> None:
    async with await keyed(parts) as client, asking(parts) as anonymous:
        await remember(client, "ann")
        answer = await anonymous.post("/operations/forget_memories", json={"all_users": True})

        assert answer.json()["result"]["count"] == 0
        assert await memories(client, user="ann") == {"vegan", "pie"}


async def test_the_users_of_a_key_cannot_fill_the_store(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.conversations.memories.MOST_OF_USERS", 6)
    async with await keyed(parts) as client, await keyed(parts) as other:
        await remember(client)
        await remember(other, "zoe")
        for number in range(8):
            await remember(client, f"user {number}")

        assert await memories(client, user="user 0") == set()
        assert await memories(client, user="user 7") == {"vegan", "pie"}
        assert await memories(client) == await memories(other, user="zoe") == {"vegan", "pie"}
    kept = await parts.store.items.find(Query(COLLECTION, limit=100))
    assert len(kept.items) == 6 + 2 + 2


# Conversations


async def test_a_command_that_waits_for_answers_waits_for_its_user(parts: Parts) -> None:
    async with await keyed(parts) as client:
        asked = await ask(client, "book a table", user="ann")
        session = asked["_meta"]["session_context"]
        answers = {"context": {"answers": {"people": 4}}, "meta": {"session_context": session}}
        stolen = await ask(client, "4", user="ben", **answers)
        unnamed = await ask(client, "4", **answers)
        done = await ask(client, "4", user="ann", **answers)

    assert asked["_meta"]["response_type"] == "elicitation"
    for answer in (stolen, unnamed):
        assert "meta.session_context.state_token" in answer["_meta"]["ignored"]
    assert done["results"][0]["result"] == {"number": 1}


async def test_a_promise_is_seen_by_its_user_and_by_the_key_alone(parts: Parts) -> None:
    async with await keyed(parts) as client:
        token = (await ask(client, "bake bread", user="ann"))["promise"]["token"]

        async def look(**meta: Any) -> str:
            body = {"promise_token": token, "action": "checkin", "meta": meta}
            return (await client.post("/await", json=body)).json()["_meta"]["response_type"]

        stored = await parts.store.tasks.get(token)
        assert stored is not None
        await parts.site.tasks.wait(token, stored.caller, 30)
        assert [await look(user="ben"), await look(user="ann"), await look()] == ["failure", "answer", "answer"]


# Other protocols


async def test_users_are_kept_apart_over_mcp(parts: Parts) -> None:
    key = await key_of(parts)

    async def asked(client: Client, user: str, **more: Any) -> set[str]:
        meta = {"user": user, **more.pop("meta", {})}
        return ids(structured(await client.call_tool("ask", {"query": {"text": "pie"}, "meta": meta, **more})))

    async with visiting(parts, key=key) as client:
        await asked(client, "ann", context={"memory": "vegan"}, meta={"remember": True})

        assert (await asked(client, "ann"), await asked(client, "ben")) == ({"leek"}, EVERYTHING)


@pytest.mark.parametrize("user", ["ann", {"id": "ann"}, {"name": "Ann"}])
async def test_memories_of_a_user_are_forgotten_over_mcp_and_mcp_aql(parts: Parts, user: Any) -> None:
    key = await key_of(parts, "ask", "read:*", "execute:*")
    all_tools = parts.config.with_section(structs.replace(parts.config.section(McpSettings), operations="all"))
    params = {"user": user}

    async with visiting(replace(parts, config=all_tools), key=key) as client:

        async def forgotten(tool: str, arguments: dict[str, Any]) -> str:
            await client.call_tool("ask", REMEMBERED | {"meta": {"user": user, "remember": True}})
            return str(structured(await client.call_tool(tool, arguments)))

        by_tool = await forgotten("forget_memories", params)
        by_aql = await forgotten("mcp_aql_execute", {"operation": "forget_memories", "params": params})
        [tool] = [each for each in (await client.list_tools()).tools if each.name == "forget_memories"]

    assert "'count': 2" in by_tool
    assert "'count': 2" in by_aql
    assert "anyOf" not in tool.input_schema["properties"]["user"]


async def test_users_are_kept_apart_over_a2a(parts: Parts) -> None:
    key = await key_of(parts)

    async def asked(talk: a2a.Talk, user: str, **more: Any) -> set[str]:
        meta = {"user": user, **more.pop("meta", {})}
        return ids(a2a.answer(await talk.send(a2a.data(query={"text": "pie"}, meta=meta, **more))))

    async with a2a.visiting(parts, key) as talk:
        await asked(talk, "ann", context={"memory": "vegan"}, meta={"remember": True})

        assert (await asked(talk, "ann"), await asked(talk, "ben")) == ({"leek"}, EVERYTHING)


async def test_users_are_kept_apart_in_a_chat(parts: Parts) -> None:
    async with await keyed(parts) as client:
        await remember(client, "ann")

        async def chat(user: str) -> dict[str, Any]:
            body = {"messages": [{"role": "user", "content": "pie"}], "context": {"userId": user}, "sessionState": "s"}
            return (await client.post("/chat", json=body)).json()

        async def kept(**params: str) -> list[dict[str, Any]]:
            return (await client.get("/chat/conversations", params=params)).json()["conversations"]

        ann, ben = await chat("ann"), await chat("ben")
        [conversation] = await kept(userId="ann")
        others = [
            await client.get(f"/chat/conversations/{conversation['id']}", params=params)
            for params in ({"userId": "ben"}, {})
        ]
        deleted = await client.delete(f"/chat/conversations/{conversation['id']}", params={"userId": "ben"})
        own = await client.get(f"/chat/conversations/{conversation['id']}", params={"userId": "ann"})

        assert ["Beef" in each["message"]["content"] for each in (ann, ben)] == [False, True]
        assert [each["context"]["portico"]["conversation"]["session"] for each in (ann, ben)] == ["new", "new"]
        assert [each.status_code for each in (*others, deleted, own)] == [404, 404, 404, 200]
        assert (len(await kept(userId="ben")), await kept()) == (1, [])


async def test_one_command_of_two_users_is_done_for_both(parts: Parts) -> None:
    async with await keyed(parts) as client:

        async def book(user: str) -> Any:
            body = {
                "messages": [{"role": "user", "content": "book a table people 4"}],
                "context": {"userId": user},
                "sessionState": "evening",
            }
            return (await client.post("/chat", json=body)).json()["context"]["portico"]

        first, again, other = [str(await book(user)) for user in ("ann", "ann", "ben")]

    assert "'number': 1" in first
    assert "'number': 1" in again
    assert "'number': 2" in other


async def test_feedback_says_which_user_gave_it(parts: Parts) -> None:
    async with await keyed(parts) as client:
        for user in ("ann", "ann", "ben", None):
            await client.post("/chat/feedback", json={"rating": "up", "userId": user})

    by_user = Counter(noted.user for noted in await parts.site.feedback.all())
    assert sorted(by_user.values()) == [1, 1, 2]
    assert by_user[""] == 1
