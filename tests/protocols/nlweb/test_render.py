"""From events to answers, in every dialect, streamed and whole."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.requirements import requirement

from portico.ask.events import (
    Action,
    ClarificationEvent,
    Constraint,
    EndEvent,
    ErrorEvent,
    Event,
    InterpretationEvent,
    ItemEvent,
    ModelUsage,
    OperationEvent,
    Question,
    TaskEvent,
    TextEvent,
)
from portico.errors import TimedOut, Unavailable
from portico.items import Item
from portico.protocols.nlweb.dialects import FLAT, V54, V55, ClientInfo
from portico.protocols.nlweb.errors import JsonAnswer
from portico.protocols.nlweb.render import RenderOptions, collect_answer, make_renderer, stream_frames
from portico.protocols.rendering import RenderContext
from portico.requests import Call, Caller, Task, TaskState

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUMMARY = frozenset({"list", "summarize"})


def manner(dialect=V55, **said: Any) -> RenderOptions:
    voice = said.pop("voice", ClientInfo(dialect, query_id="q1" if dialect is FLAT else ""))
    return RenderOptions(
        voice,
        said.pop("premises", RenderContext("https://shop.example")),
        lambda: NOW,
        lambda: 41,
        lambda clarify: {"conversation_id": "c1", "state_token": "pending" if clarify else "answered"},
        said.pop("format", dialect.format),
        **said,
    )


async def each(events: tuple[Event, ...]) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def stream(manner: RenderOptions, *events: Event) -> list[tuple[str, dict]]:
    return [(frame.name, frame.data) async for frame in stream_frames(each(events), make_renderer(manner))]


async def whole(manner: RenderOptions, *events: Event) -> JsonAnswer:
    return await collect_answer(each(events), make_renderer(manner))


UNDERSTOOD = InterpretationEvent(
    "hot soup", ("recipes",), (Constraint("price", "price is less than 20", "cheap"),), ("mood",)
)
MEANT = {
    "decontextualized_query": "hot soup",
    "understood": {
        "collections": ["recipes"],
        "constraints": [{"field": "price", "says": "price is less than 20", "words": "cheap"}],
    },
    "ignored": ["mood"],
}
SESSION = {"session_context": {"conversation_id": "c1", "state_token": "answered"}}
ENDED = {"processing_time_ms": 41}


def found(id: str, place: int, score: float = 50.0, **more: Any) -> ItemEvent:
    return ItemEvent(Item(id, "recipes", {"@type": "Recipe", "name": id.title()}), score, place, **more)


def item(id: str, score: float = 50.0, **more: Any) -> dict:
    url = f"https://shop.example/items/recipes/{id}"
    grounds = {"source_urls": [url], "citations": [id]}
    base = {"@type": "Recipe", "@id": id, "url": url, "name": id.title(), "site": "shop.example", "score": score}
    return {**base, "grounding": grounds, **more}


def earlier_item(id: str) -> dict:
    return item(id, schema_object={"@type": "Recipe", "name": id.title()})


def flat_item(id: str) -> dict:
    return {**earlier_item(id), "siteUrl": "https://shop.example"}


ANSWER = (UNDERSTOOD, found("stew", 1), found("soup", 0), EndEvent(2))
SUMMED = (UNDERSTOOD, found("soup", 0), TextEvent("Soup "), TextEvent("is hot.", ("soup",)), EndEvent(1))
QUESTIONS = ClarificationEvent(
    "Tell me more.",
    (
        Question("cuisine", "Which cuisine?", "single_select", ("Thai", "French")),
        Question("spicy", "Spicy?", "boolean", default=False),
    ),
)
ELICITATION = {
    "text": "Tell me more.",
    "questions": [
        {"id": "cuisine", "text": "Which cuisine?", "type": "single_select", "options": ["Thai", "French"]},
        {"id": "spicy", "text": "Spicy?", "type": "boolean", "default": False},
    ],
}
TASK = Task(
    "task_1",
    Call("plan_meals"),
    Caller(),
    TaskState.RUNNING,
    NOW - timedelta(seconds=20),
    NOW,
    progress=0.25,
    message="Planning",
    estimate=60.0,
)
PROMISE = {"token": "task_1", "estimated_time": 40, "message": "Planning", "progress": 0.25}
ERROR = {"code": "TIMEOUT", "message": "The model took too long"}
BROKE_OFF = ErrorEvent(TimedOut("The model took too long"))


# 0.55


CURRENT = {"response_type": "answer", "response_format": "conversational_search", "version": "0.55", **MEANT}


@requirement("nlweb:response:format", "nlweb:note:version-echoed")
async def test_0_55_whole_items_come_in_the_order_of_their_places() -> None:
    assert await whole(manner(), *ANSWER) == JsonAnswer(
        200, {"_meta": {**CURRENT, **SESSION, **ENDED}, "results": [item("soup"), item("stew")]}
    )


@requirement(
    "nlweb:stream:start-once",
    "nlweb:stream:start-meta",
    "nlweb:stream:result",
    "nlweb:stream:index",
    "nlweb:stream:complete-once",
    "nlweb:stream:complete-meta",
)
async def test_0_55_streamed_items_come_as_they_are_found_with_their_index() -> None:
    assert await stream(manner(), *ANSWER) == [
        ("start", {"_meta": {**CURRENT, "streaming": True}}),
        ("result", {"index": 1, "item": item("stew")}),
        ("result", {"index": 0, "item": item("soup")}),
        ("complete", {"_meta": {**CURRENT, **SESSION, **ENDED}}),
    ]


@requirement("nlweb:answer:summary-anywhere", "nlweb:note:summary-index")
async def test_0_55_a_summary_stands_first_and_the_items_after_it() -> None:
    summary = {"@type": "SearchSummary", "text": "Soup is hot.", "citations": ["soup"]}

    frames = await stream(manner(modes=SUMMARY), *SUMMED)
    answer = await whole(manner(modes=SUMMARY), *SUMMED)

    assert [frame for frame in frames if frame[0] == "result"] == [
        ("result", {"index": 1, "item": item("soup")}),
        ("result", {"index": 0, "item": summary}),
    ]
    assert answer.body["results"] == [summary, item("soup")]


async def test_0_55_pieces_of_a_summary_come_before_it_for_who_wants_them() -> None:
    said = TextEvent("It is soup. ", ("soup",))
    piece = {"text": "It is soup. ", "citations": ["soup"]}
    usual = await stream(manner(modes=SUMMARY), *SUMMED[:-1], said, SUMMED[-1])

    growing = await stream(manner(modes=SUMMARY, streams_text=True), *SUMMED[:-1], said, SUMMED[-1])
    unplaced = await stream(manner(streams_text=True), said)
    broken = await stream(manner(modes=SUMMARY, streams_text=True), said, ErrorEvent(TimedOut("It took too long")))

    assert [frame for frame in growing if frame[0] != "text"] == usual
    assert growing[-3:-2] == [("text", {"index": 0, **piece})]
    assert [frame for frame in unplaced if frame[0] == "text"] == [("text", piece)]
    assert [name for name, _ in broken] == ["start", "text", "error", "complete"]


@pytest.mark.parametrize("dialect", [V54, FLAT], ids=lambda dialect: dialect.name)
async def test_earlier_dialects_have_no_pieces_of_a_summary(dialect: Any) -> None:
    usual = await stream(manner(dialect, modes=SUMMARY), *SUMMED)
    assert await stream(manner(dialect, modes=SUMMARY, streams_text=True), *SUMMED) == usual


async def test_0_55_what_is_said_unasked_comes_last() -> None:
    assert [each.get("@type") for each in (await whole(manner(), *SUMMED)).body["results"]] == [
        "Recipe",
        "SearchSummary",
    ]
    assert (await stream(manner(), *SUMMED))[-2][1]["index"] == 1


@requirement(
    "nlweb:prefer:format-chatgpt",
    "nlweb:chatgpt:content",
    "nlweb:chatgpt:structured-data",
    "nlweb:chatgpt:widget",
)
async def test_0_55_a_chatgpt_app_gets_prose_and_data() -> None:
    app = manner(
        format="chatgpt_app", modes=SUMMARY, premises=RenderContext("https://shop.example", widget="ui://soup")
    )

    answer = await whole(app, *SUMMED)
    frames = await stream(app, *SUMMED)

    content = [{"type": "text", "text": "Soup is hot."}]
    assert (answer.body["content"], answer.body["structuredData"]) == (content, [item("soup")])
    meta = answer.body["_meta"]
    assert meta["response_format"] == "chatgpt_app"
    assert (meta["openai/outputTemplate"], meta["openai/widgetAccessible"]) == ("ui://soup", True)
    assert [name for name, _ in frames] == ["start", "result", "complete"]
    assert frames[1][1] == {"index": 0, "item": item("soup")}
    assert frames[2][1]["content"] == content


async def test_without_a_summary_the_prose_is_a_list_of_names() -> None:
    many = [found(f"dish{number}", number) for number in range(12)]

    answer = await whole(manner(format="chatgpt_app"), UNDERSTOOD, *many, EndEvent(12))

    names = ", ".join(f"Dish{number}" for number in range(10))
    assert answer.body["content"] == [{"type": "text", "text": f"{names} and 2 more."}]


@requirement("nlweb:failure:no-results", "nlweb:note:stream-failure")
async def test_0_55_nothing_found_is_a_failure_that_says_why() -> None:
    nothing = (UNDERSTOOD, EndEvent(0, ("No recipe is that cheap.",)))
    error = {"code": "NO_RESULTS", "message": "No recipe is that cheap."}
    meta = {"response_type": "failure", "version": "0.55", **MEANT}
    ended = {**meta, **SESSION, **ENDED, "notes": ["No recipe is that cheap."]}

    assert await whole(manner(), *nothing) == JsonAnswer(200, {"_meta": ended, "error": error})
    assert await stream(manner(), *nothing) == [
        ("start", {"_meta": {**meta, "streaming": True}}),
        ("error", {"_meta": meta, "error": error}),
        ("complete", {"_meta": ended}),
    ]
    assert (await whole(manner(), EndEvent(0))).body["error"]["message"] == "No results for this question"


@requirement(
    "nlweb:elicitation:shape",
    "nlweb:elicitation:question",
    "nlweb:elicitation:default",
    "nlweb:note:stream-objects",
)
async def test_0_55_questions_come_at_both_ends_of_a_stream() -> None:
    events = (UNDERSTOOD, QUESTIONS, EndEvent(0))
    meta = {"response_type": "elicitation", "version": "0.55", **MEANT}
    ended = {**meta, "session_context": {"conversation_id": "c1", "state_token": "pending"}, **ENDED}

    assert await whole(manner(), *events) == JsonAnswer(200, {"_meta": ended, "elicitation": ELICITATION})
    assert await stream(manner(), *events) == [
        ("start", {"_meta": {**meta, "streaming": True}, "elicitation": ELICITATION}),
        ("complete", {"_meta": ended, "elicitation": ELICITATION}),
    ]


@requirement(
    "nlweb:promise:token",
    "nlweb:promise:estimated-time",
    "nlweb:promise:message",
    "nlweb:promise:progress",
    "nlweb:note:stream-objects",
)
@pytest.mark.parametrize("events", [(UNDERSTOOD, TaskEvent(TASK), EndEvent(0)), (UNDERSTOOD, TaskEvent(TASK))])
async def test_0_55_a_promise_comes_at_both_ends_of_a_stream_and_as_202(events: tuple[Event, ...]) -> None:
    meta = {"response_type": "promise", "version": "0.55", **MEANT}

    assert await whole(manner(), *events) == JsonAnswer(
        202, {"_meta": {**meta, **SESSION, **ENDED}, "promise": PROMISE}
    )
    assert await stream(manner(), *events) == [
        ("start", {"_meta": {**meta, "streaming": True}, "promise": PROMISE}),
        ("complete", {"_meta": {**meta, **SESSION, **ENDED}, "promise": PROMISE}),
    ]


@requirement("nlweb:stream:error", "nlweb:note:stream-complete-after-error", "nlweb:note:stream-failure")
async def test_0_55_an_answer_that_breaks_off_is_an_error_and_still_completes_once() -> None:
    frames = await stream(manner(), UNDERSTOOD, found("soup", 0), BROKE_OFF)
    meta = {"response_type": "failure", "version": "0.55", **MEANT}

    assert [name for name, _ in frames] == ["start", "result", "error", "complete"]
    assert frames[2][1] == {"_meta": meta, "error": ERROR}
    assert frames[3][1] == {"_meta": {**meta, **SESSION, **ENDED}}
    assert await whole(manner(), UNDERSTOOD, found("soup", 0), BROKE_OFF) == JsonAnswer(
        200, {"_meta": {**meta, **SESSION, **ENDED}, "error": ERROR}
    )


@requirement("nlweb:http:500")
async def test_0_55_a_whole_answer_that_fails_inside_has_the_status_of_its_error() -> None:
    answer = await whole(manner(), UNDERSTOOD, ErrorEvent(Unavailable("postgres://secret")))

    assert (answer.status, answer.body["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in str(answer.body)


async def test_0_55_a_deed_is_an_item_of_the_answer() -> None:
    deed = {"@type": "Action", "name": "book_table", "actionStatus": "CompletedActionStatus", "result": {"id": "b1"}}
    events = (UNDERSTOOD, OperationEvent("book_table", {"id": "b1"}), EndEvent(1))

    assert (await whole(manner(), *events)).body["results"] == [deed]
    assert (await stream(manner(), *events))[1] == ("result", {"index": 0, "item": deed})


async def test_what_is_found_after_a_deed_stands_after_it() -> None:
    frames = await stream(
        manner(), UNDERSTOOD, OperationEvent("book_table", {}), found("stew", 1), found("soup", 0), EndEvent(3)
    )

    assert [(data["index"], data["item"]["name"]) for name, data in frames if name == "result"] == [
        (0, "book_table"),
        (2, "Stew"),
        (1, "Soup"),
    ]


@requirement("nlweb:note:meta-cost")
async def test_cost_and_notes_are_told_when_there_are_any() -> None:
    events = (UNDERSTOOD, found("soup", 0), EndEvent(1, ("Ranked by words alone.",), ModelUsage(2, 900, 80, 0.001)))

    meta = (await whole(manner(), *events)).body["_meta"]

    assert meta["notes"] == ["Ranked by words alone."]
    assert meta["cost"] == {"calls": 2, "prompt_tokens": 900, "completion_tokens": 80, "price": 0.001}


async def test_what_the_request_said_in_vain_is_reported_before_what_was_not_understood() -> None:
    meta = (await whole(manner(ignored=("query.limit",)), *ANSWER)).body["_meta"]

    assert meta["ignored"] == ["query.limit", "mood"]


@requirement("nlweb:note:stream-distinct")
async def test_an_item_that_comes_twice_is_sent_once() -> None:
    frames = await stream(manner(), UNDERSTOOD, found("soup", 0), found("soup", 1), EndEvent(1))

    assert [data["index"] for name, data in frames if name == "result"] == [0]


@requirement("nlweb:note:request-id")
async def test_a_request_id_is_sent_back() -> None:
    voice = ClientInfo(V55, request_id="req_1")

    assert (await whole(manner(voice=voice), *ANSWER)).body["_meta"]["request_id"] == "req_1"


async def test_dual_frames_are_for_callers_that_named_no_version() -> None:
    undeclared = manner(voice=ClientInfo(V55, declared=False), dual_frames=True)

    assert (await stream(undeclared, *ANSWER))[1][1] == {"index": 1, "item": item("stew"), "results": [item("stew")]}
    assert "results" not in (await stream(manner(dual_frames=True), *ANSWER))[1][1]


@requirement("nlweb:answer:actions")
async def test_actions_are_shown_with_their_item() -> None:
    booking = found("soup", 0, actions=(Action("order", "Order it.", {"id": "soup"}),))

    shown = (await whole(manner(), UNDERSTOOD, booking, EndEvent(1))).body["results"][0]

    assert [each["endpoint"] for each in shown["actions"]] == ["https://shop.example/operations/order"]


# 0.54


EARLIER = {"response_type": "Answer", "response_format": "conversational_search", "version": "0.54", **MEANT}
LISTS = manner(V54, format="conversational_search")


@requirement("nlweb54:stream:meta-sent", "nlweb54:note:stream-order", "nlweb54:note:summary-type")
async def test_0_54_meta_comes_first_then_results_without_names_then_the_end() -> None:
    assert await stream(replace(LISTS, modes=SUMMARY), *SUMMED) == [
        ("", {"_meta": {**EARLIER, **SESSION, **ENDED}}),
        ("", {"results": [earlier_item("soup")]}),
        ("", {"results": [{"@type": "Summary", "text": "Soup is hot.", "citations": ["soup"]}]}),
    ]


@requirement("nlweb54:response:meta", "nlweb54:response:answer", "nlweb:note:version-echoed")
async def test_0_54_whole_answers_have_titled_types() -> None:
    assert await whole(LISTS, *ANSWER) == JsonAnswer(
        200,
        {"_meta": {**EARLIER, **SESSION, **ENDED}, "results": [earlier_item("soup"), earlier_item("stew")]},
    )


@requirement("nlweb54:response:chatgpt")
async def test_0_54_answers_apps_unless_asked_otherwise() -> None:
    content = [{"type": "text", "text": "Soup is hot."}]
    meta = {**EARLIER, "response_format": "chatgpt_app", **SESSION, **ENDED}

    assert await stream(manner(V54), *SUMMED) == [
        ("", {"_meta": meta}),
        ("", {"structuredData": [earlier_item("soup")]}),
        ("", {"content": content}),
    ]
    assert await whole(manner(V54), *SUMMED) == JsonAnswer(
        200, {"_meta": meta, "content": content, "structuredData": [earlier_item("soup")]}
    )


@requirement("nlweb54:note:no-results")
async def test_0_54_nothing_found_is_a_failure() -> None:
    nothing = (UNDERSTOOD, EndEvent(0))
    meta = {name: value for name, value in EARLIER.items() if name != "response_format"}
    failed = {
        "_meta": {**meta, "response_type": "Failure", **SESSION, **ENDED},
        "error": {"code": "NO_RESULTS", "message": "No results for this question"},
    }

    assert await stream(LISTS, *nothing) == [("", failed)]
    assert await whole(LISTS, *nothing) == JsonAnswer(200, failed)


@requirement("nlweb54:response:elicitation", "nlweb54:response:promise")
async def test_0_54_questions_and_promises_are_objects_with_meta() -> None:
    asked = await stream(LISTS, UNDERSTOOD, QUESTIONS, EndEvent(0))
    promised = await stream(LISTS, UNDERSTOOD, TaskEvent(TASK))

    assert len(asked) == len(promised) == 1
    assert asked[0][1]["_meta"]["response_type"] == "Elicitation"
    assert asked[0][1]["_meta"]["session_context"]["state_token"] == "pending"
    assert asked[0][1]["elicitation"] == ELICITATION
    assert promised[0][1]["_meta"]["response_type"] == "Promise"
    assert promised[0][1]["promise"] == PROMISE
    assert (await whole(LISTS, TaskEvent(TASK))).status == 202


@requirement("nlweb54:response:failure")
async def test_0_54_an_answer_that_breaks_off_ends_with_a_failure() -> None:
    frames = await stream(LISTS, UNDERSTOOD, found("soup", 0), BROKE_OFF)

    assert frames[-1][1]["_meta"]["response_type"] == "Failure"
    assert frames[-1][1]["error"] == ERROR
    assert (await whole(LISTS, UNDERSTOOD, BROKE_OFF)).body["error"] == ERROR


async def test_0_54_kinds_that_the_known_page_drops_come_as_data_too() -> None:
    lamp = ItemEvent(Item("lamp", "recipes", {"@type": "Product", "name": "Lamp"}), 50.0, 1)
    shown = {**earlier_item("lamp"), "@type": "Product", "schema_object": {"@type": "Product", "name": "Lamp"}}

    frames = await stream(LISTS, UNDERSTOOD, found("soup", 0), lamp, EndEvent(2))
    whole_answer = await whole(LISTS, UNDERSTOOD, found("soup", 0), lamp, EndEvent(2))

    assert [data for _, data in frames[1:]] == [
        {"results": [earlier_item("soup")]},
        {"results": [shown], "structuredData": [shown]},
    ]
    assert whole_answer.body["results"] == [earlier_item("soup"), shown]
    assert "structuredData" not in whole_answer.body


# Flat


def message(kind: str, **data: Any) -> tuple[str, dict]:
    return "", {"message_type": kind, "query_id": "q1", **data}


ANALYSIS = message("query_analysis", decontextualized_query="hot soup")


@requirement(
    "nlwebflat:ask:query-id",
    "nlwebflat:answer:unnamed",
    "nlwebflat:answer:query-analysis",
    "nlwebflat:answer:complete-last",
)
async def test_flat_frames_carry_the_query_id_and_end_with_complete() -> None:
    assert await stream(manner(FLAT), *ANSWER) == [
        ANALYSIS,
        message("result_batch", results=[flat_item("stew")]),
        message("result_batch", results=[flat_item("soup")]),
        message("complete"),
    ]


@requirement("nlwebflat:answer:summary", "nlwebflat:answer:nlws")
async def test_flat_summaries_and_generated_answers_have_messages_of_their_own() -> None:
    summed = await stream(manner(FLAT, modes=SUMMARY), *SUMMED)
    generated = await stream(manner(FLAT, modes=frozenset({"list", "generate"})), *SUMMED)
    silent = await stream(manner(FLAT, modes=frozenset({"generate"})), *ANSWER)

    assert summed[2:] == [message("summary", message="Soup is hot."), message("complete")]
    assert generated == [
        ANALYSIS,
        message("nlws", answer="Soup is hot.", items=[flat_item("soup")]),
        message("complete"),
    ]
    assert silent[1:] == [
        message("result_batch", results=[flat_item("soup"), flat_item("stew")]),
        message("complete"),
    ]


@requirement("nlwebflat:answer:ask-user")
async def test_flat_questions_are_put_in_words_with_their_options() -> None:
    frames = await stream(manner(FLAT), UNDERSTOOD, QUESTIONS, EndEvent(0))

    assert frames == [
        ANALYSIS,
        message(
            "ask_user",
            message="Tell me more.\nWhich cuisine? (Thai, French)\nSpicy?",
            questions=ELICITATION["questions"],
        ),
        message("complete"),
    ]


@requirement("nlwebflat:answer:messages")
async def test_flat_promises_failures_and_memories_are_messages_that_the_known_page_shows() -> None:
    promised = await stream(manner(FLAT), UNDERSTOOD, TaskEvent(TASK))
    failed = await stream(manner(FLAT), UNDERSTOOD, BROKE_OFF)
    remembered = await stream(manner(FLAT, memory_text="vegan"), *ANSWER)

    assert promised[1:] == [
        message("intermediate_message", message="Planning", token="task_1", promise=PROMISE),
        message("complete"),
    ]
    assert failed[1:] == [
        message("intermediate_message", message="The model took too long", error=ERROR),
        message("complete"),
    ]
    assert remembered[1] == message("remember", message="vegan")


@requirement("nlwebflat:answer:json")
async def test_flat_whole_answers_hold_each_message_by_its_type() -> None:
    assert await whole(manner(FLAT, modes=SUMMARY), *SUMMED) == JsonAnswer(
        200,
        {
            "query_id": "q1",
            "results": [flat_item("soup")],
            "query_analysis": {"decontextualized_query": "hot soup"},
            "summary": {"message": "Soup is hot."},
        },
    )
    assert (await whole(manner(FLAT), UNDERSTOOD, EndEvent(0))).body["results"] == []
    assert (await whole(manner(FLAT), UNDERSTOOD, QUESTIONS)).body["ask_user"]["questions"] == ELICITATION["questions"]
    promised = await whole(manner(FLAT), UNDERSTOOD, TaskEvent(TASK))
    assert (promised.status, promised.body["intermediate_message"]["token"]) == (202, "task_1")
    failed = await whole(manner(FLAT), UNDERSTOOD, BROKE_OFF)
    assert failed.body["error"] == ERROR


# Breaking


@requirement("nlweb:note:stream-complete-after-error", "nlwebflat:answer:complete-last")
@pytest.mark.parametrize(
    ("dialect", "last"),
    [(V55, "complete"), (V54, ""), (FLAT, "")],
    ids=["0.55", "0.54", "flat"],
)
async def test_what_breaks_still_ends_as_the_dialect_wants(dialect, last: str) -> None:
    answer = make_renderer(manner(dialect))
    answer.add(UNDERSTOOD)

    frames = answer.abort()

    assert frames[-1].name == last
    assert any(frame.data.get("error", {}).get("code") == "INTERNAL_ERROR" for frame in frames)
    assert dialect is not FLAT or frames[-1].data["message_type"] == "complete"
