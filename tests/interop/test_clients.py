"""Clients that other people published, unchanged, against a running server."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sudhanva import APIError, Client
from tests.conformance.requirements import requirement
from tests.interop.conftest import Drive

SOUP = "Lemon Barley Soup"
WITH_CHICKEN = "Lemon and Barley Soup with Chicken"
CLOSED = 2  # readyState of an EventSource that does not connect again


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


# PyPI: sudhanva 0.2.0, which speaks 0.55


@requirement("nlweb:client:sudhanva-ask", "nlweb:note:site-url")
def test_sudhanva_gets_items_for_a_question(demo: str) -> None:
    answer = Client(base_url=f"{demo}/api/v1").ask("lemon barley soup")

    meta = answer["_meta"]
    assert (meta["response_type"], meta["version"]) == ("answer", "0.55")
    assert meta["response_format"] == "conversational_search"
    assert names(answer["results"])[0] == SOUP


@requirement("nlweb:client:sudhanva-limit", "nlweb:note:page-hints")
@pytest.mark.parametrize("limit", [1, 3])
def test_sudhanva_gets_as_many_items_as_it_wants(demo: str, limit: int) -> None:
    answer = Client(base_url=demo).ask("lemon barley soup", limit=limit)

    assert len(answer["results"]) == limit


@requirement("nlweb:answer:summary", "nlweb:answer:summary-type")
def test_sudhanva_gets_a_summary_when_it_asks_for_one(demo: str) -> None:
    answer = Client(base_url=demo).ask("lemon barley soup", mode="list, summarize")

    summaries = [item["text"] for item in answer["results"] if item["@type"] == "SearchSummary"]
    assert len(summaries) == 1
    assert summaries[0]


@requirement("nlweb:client:sudhanva-failure")
def test_sudhanva_reads_what_went_wrong(demo: str) -> None:
    client = Client(base_url=demo)

    refused = client.ask("lemon barley soup", mode="dance")
    assert (refused["_meta"]["response_type"], refused["error"]["code"]) == ("failure", "UNSUPPORTED_MODE")

    with pytest.raises(APIError) as malformed:
        client.ask(" ")
    assert (malformed.value.status, malformed.value.code) == (400, "INVALID_QUERY")
    assert malformed.value.message != "Request failed"  # which it says for want of a message


# npm: @nlweb-ai/search-components 0.1.10, whose hook speaks 0.54

SHOWN = {"Recipe", "Movie", "Article", "NewsArticle", "BlogPosting"}


@requirement(
    "nlweb54:client:data-lines", "nlweb54:client:item-keys", "nlweb54:client:item-shapes", "nlweb54:client:summary"
)
def test_the_hook_shows_items_and_a_summary(demo: str, drive: Drive) -> None:
    shown = drive(
        "search_components.mjs",
        f"{demo}/ask",
        config={"site": "all"},
        searches=[{"query": "lemon barley soup"}, {"query": "what the paper wrote about parked cars"}],
    )

    soup, cars = shown["states"]
    assert (soup["error"], soup["loading"], cars["error"], cars["loading"]) == (None, False, None, False)
    assert names(soup["results"])[0] == SOUP
    assert "What we learned from counting every parked car" in names(cars["results"])
    assert soup["summary"]
    assert cars["summary"]
    assert shown["errors"] == []
    assert [item for item in shown["dropped"] if item["@type"] in SHOWN] == []


@requirement("nlweb54:client:decontextualized")
def test_the_hook_shows_what_a_follow_up_was_taken_to_mean(demo: str, drive: Drive) -> None:
    shown = drive(
        "search_components.mjs",
        f"{demo}/ask",
        config={"site": "all"},
        searches=[
            {"query": "lemon barley soup"},
            {"query": "with chicken", "conversationHistory": ["lemon barley soup"], "userId": "visitor"},
        ],
    )

    first, second = shown["states"]
    assert first["decontextualizedQuery"] == "lemon barley soup"
    assert "barley" in second["decontextualizedQuery"]
    assert "chicken" in second["decontextualizedQuery"]
    assert second["rawLogs"][0]["_meta"]["decontextualized_query"] == second["decontextualizedQuery"]
    assert names(second["results"])[0] == WITH_CHICKEN
    assert shown["errors"] == []


@requirement("nlweb54:client:more", "nlweb54:note:start-num")
def test_the_hook_loads_more(demo: str, drive: Drive) -> None:
    # As the package's own page button does: the question as it was understood, without history, from an offset.
    question: dict[str, Any] = {"query": "a recipe with lemon", "conversationHistory": []}
    pages = [{**question, "resultOffset": offset} for offset in (0, 4, 8)]

    shown = drive("search_components.mjs", f"{demo}/ask", config={"site": "all", "maxResults": 4}, searches=pages)

    first, second, third = ([item["@id"] for item in state["results"]] for state in shown["states"])
    assert (len(first), len(second), len(third)) == (4, 4, 4)
    assert len({*first, *second, *third}) == 12
    scores = [item["score"] for state in shown["states"] for item in state["results"]]
    assert scores == sorted(scores, reverse=True)
    assert shown["errors"] == []


@requirement("nlweb54:note:hard-errors")
def test_the_hook_shows_that_a_request_was_refused_and_goes_on(demo: str, drive: Drive) -> None:
    searches = [{"query": " "}, {"query": "lemon barley soup"}]

    shown = drive("search_components.mjs", f"{demo}/ask", config={"site": "all"}, searches=searches)

    refused, answered = shown["states"]
    assert (refused["error"], refused["results"]) == ("HTTP 400: Bad Request", [])
    assert (answered["error"], names(answered["results"])[0]) == (None, SOUP)


@requirement("nlweb54:note:no-results")
def test_the_hook_shows_an_empty_list_when_nothing_fits(demo: str, drive: Drive) -> None:
    shown = drive("search_components.mjs", f"{demo}/ask", config={"site": "all"}, searches=[{"query": "zzqx wwvv"}])

    [nothing] = shown["states"]
    assert (nothing["results"], nothing["error"], nothing["loading"]) == ([], None, False)
    assert nothing["rawLogs"][0]["_meta"]["response_type"] == "Failure"
    assert any("NO_RESULTS" in error for error in shown["errors"])  # it writes a Failure there, and shows nobody


# npm: nlweb-js-client 1.0.2, which speaks the flat dialect over an EventSource


@requirement("nlwebflat:client:items", "nlwebflat:client:summary")
def test_the_chat_shows_items_and_a_summary(demo: str, drive: Drive) -> None:
    shown = drive("js_client.mjs", f"{demo}/ask", site="", mode="summarize", questions=["lemon barley soup"])

    [answer] = shown["rounds"]
    assert names(answer["items"])[0] == SOUP
    assert all(item["onPage"] for item in answer["items"])
    assert all(item["href"].startswith(f"{demo}/") for item in answer["items"])
    assert [message for message in answer["messages"] if message]
    assert shown["errors"] == []


@requirement("nlwebflat:client:no-reconnect", "nlwebflat:answer:complete-last", "nlwebflat:ask:query-id")
@pytest.mark.parametrize("mode", ["list", "summarize", "generate"])
def test_the_chat_is_told_once_that_an_answer_is_complete(demo: str, drive: Drive, mode: str) -> None:
    shown = drive("js_client.mjs", f"{demo}/ask", site="", mode=mode, questions=["lemon barley soup"])

    [answer] = shown["rounds"]
    kinds = [frame["message_type"] for frame in answer["frames"]]
    assert (kinds.count("complete"), kinds[-1]) == (1, "complete")
    assert (answer["ended"], answer["readyState"], answer["connections"]) == ("closed", CLOSED, 1)
    [asked] = parse_qs(urlsplit(answer["url"]).query)["query_id"]
    assert {frame["query_id"] for frame in answer["frames"]} == {asked}


@requirement("nlwebflat:client:follow-up", "nlwebflat:ask:prev")
def test_the_chat_gets_a_follow_up_understood(demo: str, drive: Drive) -> None:
    questions = ["lemon barley soup", "with chicken", "a bus to the beach"]

    shown = drive("js_client.mjs", f"{demo}/ask", site="", mode="list", questions=questions)

    first, second, third = shown["rounds"]
    assert first["understood"] == "lemon barley soup"
    assert "barley" in second["understood"]
    assert "chicken" in second["understood"]
    assert names(second["items"])[0] == WITH_CHICKEN
    assert third["remembered"] == []  # of nothing to remember in two rounds the client makes a comma
    assert shown["errors"] == []


@requirement("nlwebflat:client:generated", "nlwebflat:answer:nlws")
def test_the_chat_shows_a_generated_answer_and_no_item_twice(demo: str, drive: Drive) -> None:
    shown = drive("js_client.mjs", f"{demo}/ask", site="all", mode="generate", questions=["lemon barley soup"])

    [answer] = shown["rounds"]
    assert [text for text in answer["answers"] if text]
    assert SOUP in names(answer["items"])
    assert len(names(answer["items"])) == len(set(names(answer["items"])))
    assert shown["errors"] == []
