"""Addresses that older front ends of Azure samples expect, where a site turns them on."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.chat.talk import QUIET, lines_of, message, said
from tests.protocols.conftest import Inn, asking, key_of

from portico.store.records import Put

ANN = "user-of-somebody-0001"


@pytest.fixture
async def front(inn: Inn) -> AsyncIterator[httpx.AsyncClient]:
    async with inn(chat={"azure": True}) as parts, asking(parts) as http:
        http.headers["x-key"] = await key_of(parts)
        yield http


@requirement("chat:client:azure")
async def test_the_azure_demo_finds_what_it_looks_for(front: httpx.AsyncClient) -> None:
    auth, setup = (await front.get("/auth_setup")).json(), (await front.get("/config")).json()
    content = await front.get("/content/attic")
    body: dict[str, Any] = {
        **QUIET,
        "context": {"overrides": {"top": 3, "retrieval_mode": "text", "suggest_followup_questions": True}},
        "session_state": None,
    }
    first, *_, last = lines_of((await front.post("/chat/stream", json=body)).text)

    assert (auth["useLogin"], auth["requireAccessControl"]) == (False, False)
    assert (setup["streamingEnabled"], setup["showVectorOption"]) == (True, False)
    assert (content.status_code, content.headers["location"]) == (307, "/items/rooms/attic")
    [cited, *_] = first["context"]["data_points"]["citations"]
    for citation in (cited, cited.replace("://", ":/")):
        opened = await front.get(f"/content/{citation}")
        assert (opened.status_code, opened.headers["location"]) == (307, "/items/rooms/garden")
    assert (await front.get("/content/http://else.example/items/attic")).status_code == 404
    assert (await front.get("/content/nothing.pdf")).json() == {"error": "There is no item 'nothing.pdf'"}
    assert first["context"]["data_points"]["text"]
    assert "session_state" not in body["context"]
    assert last["context"]["followup_questions"]


@requirement("chat:client:serverless")
async def test_the_serverless_chat_keeps_conversations_of_its_users(front: httpx.AsyncClient) -> None:
    first = lines_of((await front.post("/api/chats/stream", json={**QUIET, "context": {"userId": ANN}})).text)[0]
    session = first["context"]["sessionId"]
    more = {"messages": [message("user", "and the cellar?")], "context": {"userId": ANN, "sessionId": session}}
    second = lines_of((await front.post("/api/chats/stream", json=more)).text)[0]

    user = {"userId": ANN}
    assert second["context"]["sessionId"] == session
    assert second["context"]["portico"]["conversation"]["turn"] == 2
    assert (await front.get("/api/chats", params=user)).json() == [{"id": session, "title": "a quiet room"}]
    told = (await front.get(f"/api/chats/{session}", params=user)).json()
    assert [each["role"] for each in told] == ["user", "assistant", "user", "assistant"]
    assert told[0]["content"] == "a quiet room"
    for stranger in ({"userId": "user-of-somebody-0002"}, {"userId": "short"}, {}):
        assert (await front.get(f"/api/chats/{session}", params=stranger)).status_code in {400, 404}
    elsewhere = {"origin": "https://else.example"}
    assert (await front.delete(f"/api/chats/{session}", params=user, headers=elsewhere)).status_code == 403
    assert (await front.delete(f"/api/chats/{session}", params=user)).status_code == 204
    assert (await front.get("/api/chats", params=user)).json() == []


async def test_a_chat_goes_on_under_the_id_that_the_list_gives_it(front: httpx.AsyncClient) -> None:
    made_up = {"userId": ANN, "sessionId": "made-up"}
    await front.post("/api/chats/stream/", json={**QUIET, "context": made_up})
    [listed] = (await front.get("/api/chats/", params={"userId": ANN})).json()
    more = {"messages": [message("user", "and the cellar?")], "context": {"userId": ANN, "sessionId": listed["id"]}}
    again = lines_of((await front.post("/api/chats/stream", json=more)).text)[0]

    assert again["context"]["portico"]["conversation"]["turn"] == 2
    assert len((await front.get(f"/api/chats/{listed['id']}", params={"userId": ANN})).json()) == 4


async def test_a_citation_may_end_with_a_slash_of_its_own(inn: Inn) -> None:
    async with inn(chat={"azure": True}) as parts, asking(parts) as http:
        await parts.store.items.write("rooms", [Put("http://inn.example/tower/", {"name": "The tower"})])
        content = await http.get("/content/http://inn.example/tower/")

    assert (content.status_code, content.headers["location"]) == (307, "/items/http:%2F%2Finn.example%2Ftower%2F")


async def test_what_is_refused_there_is_told_as_in_the_chat(front: httpx.AsyncClient) -> None:
    for method, path, told in (
        ("PUT", "/api/chats", "Method Not Allowed. Use GET, HEAD."),
        ("POST", "/content/attic", "Method Not Allowed. Use GET, HEAD."),
        ("PUT", "/api/chats/1", "Method Not Allowed. Use DELETE, GET, HEAD."),
        ("GET", "/api/chats/a/b", "Not Found"),
        ("GET", "/api/chats", "userId is missing, or shorter than 16 characters"),
    ):
        assert (await front.request(method, path)).json() == {"error": told}


async def test_a_user_id_leads_to_nothing_of_a_caller_with_a_name(front: httpx.AsyncClient) -> None:
    key = {"authorization": f"Bearer {front.headers['x-key']}"}
    await front.post("/chat", json={**QUIET, "context": {"userId": ANN}}, headers=key)

    assert (await front.get("/api/chats", params={"userId": ANN})).json() == []
    assert len((await front.get("/api/chats", params={"userId": ANN}, headers=key)).json()) == 1


async def test_without_the_setting_none_of_them_is_there(client: httpx.AsyncClient) -> None:
    paths = ("/auth_setup", "/config", "/content/attic", "/api/chats", "/api/chats/1")
    answers = [(await client.get(path)).status_code for path in paths]
    answer = await said(client, "a quiet room", context={"userId": ANN})

    assert answers == [404] * len(paths)
    assert answer["context"]["portico"]["conversation"]["stored"] is False
