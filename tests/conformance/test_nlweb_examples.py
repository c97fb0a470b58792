"""The requests that the specifications of NLWeb give as examples, as written, sent to the sample site."""

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import frames_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

EXAMPLE_HEADERS = {"accept": "application/json"}
STREAM_HEADERS = {"accept": "text/event-stream"}


async def post(client: httpx.AsyncClient, body: str, path: str = "/ask", **headers: str) -> httpx.Response:
    """Send an example with the headers of the examples."""
    return await client.post(path, content=body, headers={"content-type": "application/json", **headers})


async def ask(client: httpx.AsyncClient, **sections: Any) -> Json:
    answer = await client.post("/ask", json=sections)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(answer: httpx.Response) -> list[tuple[str, Json]]:
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    return [(name, json.loads(data)) for name, data in frames_of(answer.text)]


def kind(body: Json) -> tuple[str, str]:
    return body["_meta"]["response_type"], body["_meta"]["version"]


def questions(body: Json) -> dict[str, Json]:
    return {each["id"]: each for each in body["elicitation"]["questions"]}


def diets(body: Json) -> list[list[str]]:
    return [item["suitableForDiet"] for item in body["results"]]


# Section 3


@requirement("nlweb:ask:sections-optional", "nlweb:ask:filters-any", "nlweb:ask:filter-price")
async def test_3_1_a_query_with_filters_is_answered_and_what_has_no_meaning_here_is_named(
    client: httpx.AsyncClient,
) -> None:
    body = await post(
        client,
        """
        {
          "query": {
            "text": "something protein rich that has cinnamon in it",
            "site": "pumpkins-r-us.com",
            "location": "Idaho",
            "price": "less than $20"
          }
        }
        """,
    )

    answer = body.json()
    assert (body.status_code, *kind(answer)) == (200, "answer", "0.55")
    assert [item["name"] for item in answer["results"] if "cinnamon" in json.dumps(item).lower()]
    assert [item for item in answer["results"] if item.get("estimatedCost", item.get("price", 0)) >= 20] == []
    assert answer["_meta"]["ignored"] == ["query.site", "query.location"]


@requirement("nlweb:context:type-default", "nlweb:context:memory")
async def test_3_2_a_conversational_context_needs_no_type(client: httpx.AsyncClient) -> None:
    context = json.loads(
        """
        {
          "context": {
            "prev": ["breakfast muffins", "high fiber snacks"],
            "text": "User has been looking at different options in the context of planning a party",
            "memory": "vegetarian, has a sweet tooth"
          }
        }
        """
    )["context"]

    query = {"text": "something sweet", "site": "recipes"}
    answer = await ask(client, query=query, context=context)
    named = await ask(client, query=query, context={"@type": "ConversationalContext", **context})

    assert kind(answer) == ("answer", "0.55")
    assert answer["_meta"]["decontextualized_query"] == named["_meta"]["decontextualized_query"] != "something sweet"
    assert answer["results"] == named["results"]
    assert all("vegetarian" in each or "vegan" in each for each in diets(answer))


@requirement("nlweb:context:type-custom", "nlweb:note:context-recognised")
async def test_3_2_of_a_custom_context_what_is_known_is_kept_to(client: httpx.AsyncClient) -> None:
    body = await post(
        client,
        """
        {
          "query": {"text": "a dinner recipe with noodles"},
          "context": {
            "@type": "UserDiet",
            "@context": "https://example.com/schemas/diet",
            "restrictions": ["vegan"],
            "allergies": ["peanuts"]
          }
        }
        """,
    )

    answer = body.json()
    anybody = await ask(client, query={"text": "a dinner recipe with noodles"})
    assert kind(answer) == ("answer", "0.55")
    assert all("vegan" in each for each in diets(answer))
    assert "Peanut Noodles with Cucumber" in [item["name"] for item in anybody["results"]]
    assert "Peanut Noodles with Cucumber" not in [item["name"] for item in answer["results"]]


@requirement(
    "nlweb:prefer:streaming",
    "nlweb:prefer:format-chatgpt",
    "nlweb:prefer:user-agent",
    "nlweb:chatgpt:content",
    "nlweb:chatgpt:structured-data",
)
async def test_3_3_a_chatgpt_app_gets_content_and_structured_data(client: httpx.AsyncClient) -> None:
    body = await post(
        client,
        """
        {
          "query": {"text": "lemon barley soup"},
          "prefer": {
            "streaming": false,
            "response_format": "chatgpt_app",
            "mode": "list, summarize",
            "accept-language": "en",
            "user-agent": "Copilot/1.0.0"
          }
        }
        """,
        **STREAM_HEADERS,
    )

    answer = body.json()
    assert kind(answer) == ("answer", "0.55")
    assert answer["_meta"]["response_format"] == "chatgpt_app"
    [said] = answer["content"]
    assert (set(said), said["type"]) == ({"type", "text"}, "text")
    assert "Lemon Barley Soup" in said["text"]
    assert answer["structuredData"][0]["@type"] == "Recipe"
    assert answer["structuredData"][0]["name"] == "Lemon Barley Soup"
    assert "results" not in answer


@requirement("nlweb:meta:version", "nlweb:meta:user", "nlweb:meta:session-context")
async def test_3_4_a_user_is_a_text_or_an_object_and_the_session_keeps_its_name(client: httpx.AsyncClient) -> None:
    examples = [
        """
        {
          "query": {"text": "lemon barley soup"},
          "meta": {
            "version": "0.55",
            "user": "user_12345",
            "session_context": {
              "conversation_id": "conv_98765",
              "state_token": "encrypted_blob_xyz"
            }
          }
        }
        """,
        """
        {
          "query": {"text": "lemon barley soup"},
          "meta": {
            "version": "0.55",
            "user": {
              "@type": "Person",
              "@context": "https://schema.org",
              "identifier": "user_12345",
              "name": "Jane Smith"
            }
          }
        }
        """,
    ]

    simple, structured = [(await post(client, example)).json() for example in examples]

    assert kind(simple) == kind(structured) == ("answer", "0.55")
    assert simple["results"] == structured["results"]
    assert simple["_meta"]["session_context"]["conversation_id"] == "conv_98765"


# Section 4


DINNER = """
{
  "query": {
    "text": "I need something for dinner"
  },
  "meta": {
    "version": "0.55"
  }
}
"""


@requirement(
    "nlweb:elicitation:shape",
    "nlweb:elicitation:question",
    "nlweb:elicitation:types",
    "nlweb:elicitation:options",
    "nlweb:note:elicitation-answers",
    "nlweb:note:elicitation-state",
)
async def test_4_1_3_a_vague_wish_for_dinner_is_asked_back_and_the_answers_narrow(client: httpx.AsyncClient) -> None:
    asked = (await post(client, DINNER)).json()

    assert kind(asked) == ("elicitation", "0.55")
    assert asked["elicitation"]["text"]
    diet, time_left = questions(asked)["suitableForDiet"], questions(asked)["totalTime"]
    assert (diet["type"], time_left["type"]) == ("multi_select", "single_select")
    assert {"vegetarian", "vegan", "gluten-free", "dairy-free"} <= set(diet["options"])
    assert all(each["text"] and each["options"] for each in questions(asked).values())

    answers = {"suitableForDiet": ["vegan", "nut-free"], "totalTime": time_left["options"][0]}
    meta = {"version": "0.55", "session_context": asked["_meta"]["session_context"]}
    answer = await ask(client, query={"text": "I need something for dinner"}, context={"answers": answers}, meta=meta)
    by_attributes = await ask(client, query={"text": "I need something for dinner", **answers}, meta=meta)

    assert kind(answer) == ("answer", "0.55")
    assert all({"vegan", "nut-free"} <= set(each) for each in diets(answer))
    assert {each["field"] for each in answer["_meta"]["understood"]["constraints"]} >= {"suitableForDiet", "totalTime"}
    assert by_attributes["results"] == answer["results"]


@requirement("nlweb:note:elicitation-state", "nlweb:meta:session-context", "nlweb:response:session-context")
async def test_4_1_3_what_was_answered_holds_for_what_is_asked_next(client: httpx.AsyncClient) -> None:
    asked = (await post(client, DINNER)).json()
    session = asked["_meta"]["session_context"]
    answer = await ask(
        client,
        query={"text": ""},
        context={"answers": {"suitableForDiet": ["vegan"]}},
        meta={"session_context": session},
    )
    session = answer["_meta"]["session_context"]
    cheapest = await ask(client, query={"text": "which is cheapest"}, meta={"session_context": session})

    costs = [item["estimatedCost"] for item in cheapest["results"]]
    assert costs == sorted(costs)
    assert {item["recipeCategory"] for item in cheapest["results"]} == {"dinner"}
    assert all("vegan" in each for each in diets(cheapest))


@requirement("nlweb:note:elicitation-prev")
async def test_4_1_3_a_plain_follow_up_answers_as_well(client: httpx.AsyncClient) -> None:
    asked = (await post(client, DINNER)).json()
    session = asked["_meta"]["session_context"]
    query = {"text": "a vegan one with chickpeas"}

    by_token = await ask(client, query=query, meta={"session_context": session})
    by_prev = await ask(client, query=query, context={"prev": ["I need something for dinner"]})

    for answer in (by_token, by_prev):
        assert kind(answer) == ("answer", "0.55")
        assert "dinner" in answer["_meta"]["decontextualized_query"]
        assert all("vegan" in each for each in diets(answer))


@requirement("nlweb:note:elicitation-bounded")
async def test_4_1_3_nobody_is_asked_back_more_than_twice(client: httpx.AsyncClient) -> None:
    meta: Json = {}
    kinds: list[str] = []
    for _ in range(4):
        body = await ask(client, query={"text": "I need something for dinner"}, meta=meta)
        meta = {"session_context": body["_meta"]["session_context"]}
        kinds.append(body["_meta"]["response_type"])

    assert kinds[:3] == ["elicitation", "elicitation", "answer"]


@requirement("nlweb:http:await", "nlweb:note:unknown-promise", "nlweb:note:request-id", "nlweb:await:meta-optional")
async def test_4_2_a_look_at_a_promise_of_another_server(client: httpx.AsyncClient) -> None:
    answer = await post(
        client,
        """
        {
          "promise_token": "promise_xyz789",
          "action": "checkin",
          "meta": {
            "version": "0.55",
            "request_id": "req_def456"
          }
        }
        """,
        "/await",
    )
    bare = await client.post("/await", json={"promise_token": "promise_xyz789", "action": "checkin"})

    assert answer.status_code == bare.status_code == 200
    assert answer.json() == {
        "_meta": {"response_type": "failure", "version": "0.55", "request_id": "req_def456"},
        "error": {"code": "UNKNOWN_PROMISE", "message": answer.json()["error"]["message"]},
    }
    assert bare.json()["error"] == answer.json()["error"]


# Section 6


@requirement("nlweb:stream:requested", "nlweb:stream:start-meta", "nlweb:stream:headers")
async def test_6_2_a_stream_has_start_results_and_complete(client: httpx.AsyncClient) -> None:
    stream = events(
        await post(
            client,
            """
            {
              "query": {
                "text": "give me a detailed tutorial on making homemade pasta"
              },
              "prefer": {
                "streaming": true
              }
            }
            """,
            **STREAM_HEADERS,
        )
    )

    names = [name for name, _ in stream]
    assert names == ["start", *["result"] * (len(stream) - 2), "complete"]
    assert (kind(stream[0][1]), stream[0][1]["_meta"]["streaming"]) == (("answer", "0.55"), True)
    results = [data for name, data in stream if name == "result"]
    assert all(set(data) == {"index", "item"} for data in results)
    assert sorted(data["index"] for data in results) == list(range(len(results)))
    assert "Recipe" in {data["item"]["@type"] for data in results}
    assert kind(stream[-1][1]) == ("answer", "0.55")
    assert stream[-1][1]["_meta"]["session_context"]["conversation_id"]


# Appendix B


@requirement(
    "nlweb:http:ask",
    "nlweb:http:200",
    "nlweb:response:object",
    "nlweb:answer:results",
    "nlweb:answer:item-type",
    "nlweb:answer:item-fields",
    "nlweb:response:type",
)
async def test_b_1_an_answer_has_items_with_the_fields_of_their_type(client: httpx.AsyncClient) -> None:
    body = await post(
        client,
        """
        {
          "query": {
            "text": "healthy breakfast recipes with eggs",
            "site": "breakfast-central.com"
          },
          "meta": {
            "version": "0.55"
          }
        }
        """,
        **EXAMPLE_HEADERS,
    )

    answer = body.json()
    assert (body.status_code, body.headers["content-type"]) == (200, "application/json")
    assert kind(answer) == ("answer", "0.55")
    assert answer["_meta"]["response_format"] == "conversational_search"
    assert isinstance(answer["_meta"]["processing_time_ms"], int)
    assert {item["@type"] for item in answer["results"]} == {"Recipe"}
    assert {item["recipeCategory"] for item in answer["results"]} == {"breakfast"}
    expected = {"name", "description", "url", "image", "cookTime", "prepTime", "nutrition", "recipeIngredient"}
    assert all(expected <= set(item) for item in answer["results"])
    assert "eggs" in " ".join(answer["results"][0]["recipeIngredient"])


@requirement(
    "nlweb:elicitation:shape", "nlweb:elicitation:question", "nlweb:elicitation:options", "nlweb:response:type"
)
async def test_b_2_a_pasta_recipe_is_asked_back(client: httpx.AsyncClient) -> None:
    body = await post(
        client,
        """
        {
          "query": {
            "text": "pasta recipe"
          },
          "meta": {
            "version": "0.55"
          }
        }
        """,
    )

    assert (body.status_code, *kind(body.json())) == (200, "elicitation", "0.55")
    asked = questions(body.json())
    assert {id: each["type"] for id, each in asked.items()} == {
        "suitableForDiet": "multi_select",
        "recipeCategory": "single_select",
        "totalTime": "single_select",
    }
    assert all(each["text"] and len(each["options"]) > 2 for each in asked.values())


MEAL_PLAN = """
{
  "query": {
    "text": "analyze my meal history and create a personalized weekly meal plan with shopping list",
    "personalized": true
  },
  "meta": {
    "version": "0.55",
    "session_context": {
      "conversation_id": "conv_meal_plan_789"
    }
  }
}
"""


async def look(client: httpx.AsyncClient, token: str, action: str = "checkin") -> httpx.Response:
    """The second request of B.3, with the token that was got."""
    body = {"promise_token": token, "action": action, "meta": {"version": "0.55"}}
    return await client.post("/await", json=body)


@requirement(
    "nlweb:http:202",
    "nlweb:promise:token",
    "nlweb:promise:estimated-time",
    "nlweb:promise:message",
    "nlweb:promise:progress",
    "nlweb:await:running-promise",
    "nlweb:await:cancelled-code",
    "nlweb:note:await-202",
    "nlweb:response:type",
)
async def test_b_3_a_meal_plan_is_promised_looked_at_and_cancelled(client: httpx.AsyncClient) -> None:
    promised = await post(client, MEAL_PLAN)

    body = promised.json()
    assert (promised.status_code, *kind(body)) == (202, "promise", "0.55")
    assert body["_meta"]["session_context"]["conversation_id"] == "conv_meal_plan_789"
    assert body["promise"]["estimated_time"] == 30
    assert 0 <= body["promise"]["progress"] <= 1
    token = body["promise"]["token"]

    deadline = time.monotonic() + 20
    while "message" not in (running := await look(client, token)).json()["promise"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert (running.status_code, *kind(running.json())) == (202, "promise", "0.55")
    assert running.json()["promise"]["token"] == token
    assert running.json()["promise"]["message"].startswith("Choosing a meal")
    assert 0 <= running.json()["promise"]["progress"] <= 1

    cancelled = await look(client, token, "cancel")
    while cancelled.status_code == 202:
        assert time.monotonic() < deadline
        cancelled = await look(client, token)
    assert (cancelled.status_code, *kind(cancelled.json())) == (200, "failure", "0.55")
    assert cancelled.json()["error"]["code"] == "CANCELLED"


@requirement("nlweb:answer:summary", "nlweb:answer:summary-type", "nlweb:stream:index", "nlweb:note:summary-index")
async def test_b_4_a_stream_with_a_summary(client: httpx.AsyncClient) -> None:
    stream = events(
        await post(
            client,
            """
            {
              "query": {
                "text": "give me a detailed tutorial on making homemade pasta"
              },
              "prefer": {
                "streaming": true,
                "mode": "list, summarize"
              }
            }
            """,
            **STREAM_HEADERS,
        )
    )

    assert [stream[0][0], stream[-1][0]] == ["start", "complete"]
    assert {name for name, _ in stream[1:-1]} == {"result"}
    items = {data["index"]: data["item"] for name, data in stream if name == "result"}
    assert sorted(items) == list(range(len(stream) - 2))
    assert items[0]["@type"] == "SearchSummary"
    assert items[0]["text"]
    assert [item["@type"] for item in items.values()].count("SearchSummary") == 1
    assert items[1]["@type"] == "Recipe"


@requirement("nlweb:failure:shape", "nlweb:failure:no-results", "nlweb:failure:message", "nlweb:response:type")
async def test_b_5_recipes_from_mars_are_a_failure(client: httpx.AsyncClient) -> None:
    body = await post(
        client,
        """
        {
          "query": {
            "text": "recipes from planet Mars"
          },
          "meta": {
            "version": "0.55"
          }
        }
        """,
    )

    assert (body.status_code, *kind(body.json())) == (200, "failure", "0.55")
    assert body.json()["error"]["code"] == "NO_RESULTS"
    assert body.json()["error"]["message"]
    assert "results" not in body.json()


# The document of 0.54


TARGET = json.loads(
    """
    {
        "query": {
            "text": "something protein rich that has cinnamon in it",
            "site": "pumpkins-r-us.com",
            "itemType": "Recipe",
            "location": "Idaho",
            "price": "less than $20"
        },
        "context": {
            "@type": "ConversationalContext",
            "prev": ["breakfast muffins", "high fiber snacks"],
            "text": "User has been looking at different options...",
            "memory": "vegetarian, has a sweet tooth"
        },
        "prefer": {
            "streaming": false,
            "response_format": "chatgpt_app",
            "mode": "list",
            "accept-language": "en",
            "user-agent": "Copilot/1.0.0"
        },
        "meta": {
            "api_version": "0.54",
            "session_context": {
                "conversation_id": "conv_98765",
                "state_token": "encrypted_blob_xyz"
            }
        }
    }
    """
)


@requirement(
    "nlweb54:ask:version",
    "nlweb54:ask:filters-any",
    "nlweb54:ask:context-default",
    "nlweb54:response:types",
    "nlweb54:response:meta",
    "nlweb54:response:chatgpt",
)
async def test_0_54_the_request_of_the_document_is_answered_for_an_app(client: httpx.AsyncClient) -> None:
    answer = await ask(client, **TARGET)
    untyped = {name: value for name, value in TARGET["context"].items() if name != "@type"}
    without_type = await ask(client, **{**TARGET, "context": untyped})

    meta = answer["_meta"]
    assert (meta["response_type"], meta["response_format"], meta["version"]) == ("Answer", "chatgpt_app", "0.54")
    assert meta["session_context"]["conversation_id"] == "conv_98765"
    assert answer["content"][0]["type"] == "text"
    assert {item["@type"] for item in answer["structuredData"]} == {"Recipe"}
    assert all({"vegetarian", "vegan"} & set(item["suitableForDiet"]) for item in answer["structuredData"])
    assert all(item["estimatedCost"] < 20 for item in answer["structuredData"])
    assert without_type["structuredData"] == answer["structuredData"]


@requirement("nlweb54:ask:format-conv-search", "nlweb54:response:answer", "nlweb54:response:extra-fields")
async def test_0_54_a_search_gets_results_with_grounding_and_the_fields_of_their_type(
    client: httpx.AsyncClient,
) -> None:
    prefer = {**TARGET["prefer"], "response_format": "conv_search"}
    answer = await ask(client, **{**TARGET, "prefer": prefer})
    products = await ask(client, **{**TARGET, "query": {"text": "storm lantern", "site": "products"}, "prefer": prefer})

    assert answer["_meta"]["response_format"] == "conversational_search"
    assert "structuredData" not in answer
    first = answer["results"][0]
    assert {"@type", "name", "description", "recipeIngredient", "cookTime"} <= set(first)
    assert set(first["grounding"]) == {"source_urls", "citations"}
    assert [each["name"] for each in products["results"][0]["actions"]] == ["add_to_cart"]


@requirement("nlweb54:ask:memory-list", "nlweb:note:either-form")
@pytest.mark.parametrize("version", ["version", "api_version"])
async def test_memory_user_and_format_are_read_in_either_form(client: httpx.AsyncClient, version: str) -> None:
    async def found(memory: Any, user: Any, format: str) -> list[str]:
        answer = await ask(
            client,
            query={"text": "a warm dinner recipe with lentils"},
            context={"memory": memory},
            prefer={"streaming": False, "response_format": format},
            meta={version: "0.54" if version == "api_version" else "0.55", "user": user},
        )
        assert all("vegan" in each for each in diets(answer))
        return [item["@id"] for item in answer["results"]]

    one = await found("vegan", "user_12345", "conv_search")

    assert one == await found(["vegan", "has a sweet tooth"], {"id": "user_12345"}, "conversational_search")


@requirement("nlweb54:ask:prefer-names", "nlweb:prefer:language")
@pytest.mark.parametrize("version", ["version", "api_version"])
async def test_accept_language_is_the_language_of_the_answer(client: httpx.AsyncClient, version: str) -> None:
    prefer = {"streaming": False, "response_format": "chatgpt_app", "mode": "summarize", "user-agent": "desktop"}

    async def said(**more: str) -> str:
        body = {"query": {"text": "lemon barley soup"}, "prefer": {**prefer, **more}, "meta": {version: "0.5"}}
        answer = await client.post("/ask", json=body, headers={"accept-language": "fr"})
        return answer.json()["content"][0]["text"]

    assert "Am besten passt Lemon Barley Soup" in await said(**{"accept-language": "de"})
    assert "The best match is Lemon Barley Soup" in await said(**{"accept-language": "en"})
    assert "Lemon Barley Soup" in (in_french := await said())
    assert "best match" not in in_french


@requirement("nlweb54:response:types", "nlweb54:response:elicitation", "nlweb54:response:promise")
async def test_0_54_asks_back_promises_and_refuses_with_types_in_capitals(client: httpx.AsyncClient) -> None:
    meta = {"api_version": "0.54"}
    asked = await ask(client, query={"text": "I need something for dinner"}, prefer={"streaming": False}, meta=meta)
    plan = {"query": json.loads(MEAL_PLAN)["query"], "prefer": {"streaming": False}, "meta": meta}
    promised = await client.post("/ask", json=plan)
    looked = await client.post("/await", json={"promise_token": "promise_xyz789", "action": "checkin", "meta": meta})
    await look(client, promised.json()["promise"]["token"], "cancel")

    assert kind(asked) == ("Elicitation", "0.54")
    assert "suitableForDiet" in questions(asked)
    assert asked["elicitation"]["text"]
    assert (promised.status_code, *kind(promised.json())) == (202, "Promise", "0.54")
    assert promised.json()["promise"]["estimated_time"] == 30
    assert (kind(looked.json()), set(looked.json()["error"])) == (("Failure", "0.54"), {"code", "message"})


@requirement("nlwebflat:ask:query", "nlwebflat:ask:json", "nlwebflat:ask:streaming-default", "nlwebflat:answer:unnamed")
async def test_0_54_the_flat_request_that_it_replaces_is_answered_in_flat_frames(client: httpx.AsyncClient) -> None:
    stream = events(
        await post(
            client,
            """
            {
                "query": "some text",
                "site": "example.com",
                "prev": ["previous query"],
                "context": "some context",
                "streaming": true,
                "num_results": 50
            }
            """,
        )
    )

    kinds = [data["message_type"] for _, data in stream]
    assert {name for name, _ in stream} == {""}
    assert (kinds[0], kinds[-1]) == ("query_analysis", "complete")
    assert set(kinds[1:-1]) == {"result_batch"}
