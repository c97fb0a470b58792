"""What the other tests of NLWeb have no place for."""

import json
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.conformance.test_nlweb_examples import MEAL_PLAN
from tests.protocols.conftest import asking, scripted, telling

from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")


@requirement("nlweb54:ask:query-object")
async def test_0_54_a_text_in_place_of_the_query_object_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/ask", json={"query": "lemon barley soup", "meta": {"api_version": "0.54"}})

    assert answer.status_code == 400, answer.text[:200]
    assert answer.json()["error"]["code"] == "INVALID_REQUEST"


@requirement("nlweb:note:filters-ignored")
async def test_a_command_names_the_attributes_that_had_no_meaning(client: httpx.AsyncClient) -> None:
    promised = (await client.post("/ask", content=MEAL_PLAN)).json()
    await client.post("/await", json={"promise_token": promised["promise"]["token"], "action": "cancel"})

    assert promised["_meta"].get("ignored") == ["query.personalized"]


@requirement("nlweb:note:elicitation-validated")
@pytest.mark.parametrize("answer", [True, 5])
async def test_an_answer_of_the_wrong_type_is_asked_for_again(client: httpx.AsyncClient, answer: Any) -> None:
    body: dict[str, Any] = {"query": {"text": "I need something for dinner"}}
    asked = (await client.post("/ask", json=body)).json()
    body["meta"] = {"session_context": asked["_meta"]["session_context"]}
    body["context"] = {"answers": {"suitableForDiet": ["vegan"], "totalTime": answer}}

    again = (await client.post("/ask", json=body)).json()

    assert again["_meta"]["response_type"] == "elicitation", json.dumps(again)[:400]
    assert [each["id"] for each in again["elicitation"]["questions"]] == ["totalTime"]


@requirement("nlweb54:response:failure", "nlweb54:code:internal-error")
async def test_0_54_what_breaks_unforeseen_is_a_failure_of_0_54(town: Parts) -> None:
    body = {"query": {"text": "lemon barley soup"}, "prefer": {"streaming": False}, "meta": {"api_version": "0.54"}}
    async with asking(scripted(town, telling(ZeroDivisionError()))) as broken:
        answer = await broken.post("/ask", json=body)

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL_ERROR")
    meta = answer.json()["_meta"]
    assert (meta["response_type"], meta["version"]) == ("Failure", "0.54")
