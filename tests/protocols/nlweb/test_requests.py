"""From requests of every dialect to an Ask."""

from typing import Any

import pytest
from tests.conformance.requirements import requirement

from portico.config import AskSettings
from portico.errors import BadRequest
from portico.protocols.nlweb.dialects import FLAT, V54, V55, parse_client_info
from portico.protocols.nlweb.errors import InvalidAction, MissingField, UnsupportedFormat, UnsupportedMode
from portico.protocols.nlweb.models import AskRequest, parse_ask, parse_await
from portico.requests import Ask

SETTINGS = AskSettings(items=10, most=50)


def read(raw: Any, *, flat: bool = False, language: str = "") -> AskRequest:
    return parse_ask(raw, parse_client_info(raw, flat=flat), SETTINGS, language)


def asked(query: Any = None, **sections: Any) -> Ask:
    return read({"query": query or {"text": "soup"}, **sections}).ask


# Dialects


@requirement("nlweb:meta:version", "nlweb54:ask:version", "nlweb:note:dialect-by-version", "nlweb:note:dialect-default")
@pytest.mark.parametrize(
    ("raw", "dialect", "declared"),
    [
        ({"query": {"text": "soup"}, "meta": {"version": "0.55"}}, V55, True),
        ({"query": {"text": "soup"}, "meta": {"version": "0.9"}}, V55, True),
        ({"query": {"text": "soup"}, "meta": {"api_version": "0.54"}}, V54, True),
        ({"query": {"text": "soup"}, "meta": {"api_version": 0.54}}, V54, True),
        ({"query": {"text": "soup"}, "meta": {"version": 0.54}}, V54, True),
        ({"query": {"text": "soup"}, "meta": {"version": 0.55}}, V55, True),
        ({"query": {"text": "soup"}, "meta": {"version": "0.55", "api_version": "0.54"}}, V55, True),
        ({"query": {"text": "soup"}}, V55, False),
        ({"query": "soup"}, FLAT, True),
        ({"query": "soup", "meta": {"version": "0.55"}}, V55, True),
        ([], V55, False),
    ],
)
def test_a_request_is_answered_in_its_own_dialect(raw: Any, dialect: Any, declared: bool) -> None:
    voice = parse_client_info(raw)

    assert (voice.dialect, voice.declared) == (dialect, declared)


def test_ids_of_the_caller_are_echoed_within_bounds() -> None:
    assert parse_client_info({"query": {}, "meta": {"request_id": "req_1"}}).request_id == "req_1"
    assert parse_client_info({"query": {}, "meta": {"request_id": 7}}).request_id == 7
    assert parse_client_info({"query": {}, "meta": {"request_id": {"a": 1}}}).request_id == ""
    assert parse_client_info({"query": "soup", "query_id": "q" * 500}).query_id == "q" * 128
    assert parse_client_info({"query": "soup"}).query_id.startswith("query_")


# Section 3 of the specification


@requirement("nlweb:note:language-order")
def test_every_section_of_a_request_reaches_the_question() -> None:
    wish = read(
        {
            "query": {"text": "soup", "site": "inn.example", "itemType": "Recipe", "price": "less than $20", "x": None},
            "context": {
                "@type": "UserDiet",
                "@context": "https://example.com/schemas/diet",
                "prev": ["bread", "cheese"],
                "text": "planning a party",
                "memory": "vegetarian",
                "restrictions": ["vegan"],
                "answers": {"cuisine": "Thai"},
            },
            "prefer": {
                "streaming": True,
                "response_format": "chatgpt_app",
                "mode": "list, summarize",
                "accept-language": "pt-BR",
                "user-agent": "mobile",
            },
            "meta": {"version": "0.55", "user": {"name": "Jane"}, "remember": True, "start_num": 20},
        },
        language="de",
    )

    assert wish.ask == Ask(
        "soup",
        filters={"site": "inn.example", "itemType": "Recipe", "price": "less than $20"},
        previous=("bread", "cheese"),
        background="planning a party",
        memory=("vegetarian",),
        profile={"restrictions": ["vegan"]},
        answers={"cuisine": "Thai"},
        modes=frozenset({"list", "summarize"}),
        limit=10,
        start=20,
        language="pt-BR",
        remember=True,
    )
    assert (wish.format, wish.streaming, wish.has_previous, wish.ignored) == ("chatgpt_app", True, True, ())


@requirement("nlweb:ask:sections-optional")
def test_nulls_mean_that_nothing_was_said() -> None:
    plain = read({"query": {"text": "soup"}})
    with_nulls = read(
        {
            "query": {"text": "soup", "site": None, "limit": None},
            "context": {"prev": None, "text": None, "memory": None, "answers": None},
            "prefer": {"streaming": None, "response_format": None, "mode": None, "accept-language": None},
            "meta": {"version": None, "session_context": None, "remember": None, "start_num": None, "user": None},
        }
    )

    assert with_nulls == plain
    assert read({"query": {"text": "soup"}, "context": None, "prefer": None, "meta": None}) == plain


def test_lists_may_be_single_texts_and_contexts_plain_text() -> None:
    assert asked(context={"prev": "bread", "memory": ["vegan", "sweet tooth"]}).previous == ("bread",)
    assert asked(context={"memory": ["vegan", "sweet tooth"]}).memory == ("vegan", "sweet tooth")
    assert asked(context="planning a party").background == "planning a party"
    assert asked("soup", meta={"version": "0.55"}).text == "soup"


@requirement("nlweb:note:page-hints", "nlweb:note:page-cap")
@pytest.mark.parametrize(
    ("hints", "limit", "ignored"),
    [
        ({}, 10, ()),
        ({"limit": 3}, 3, ()),
        ({"limit": 7.0}, 7, ()),
        ({"num_results": 50, "max_results": 9}, 9, ()),
        ({"limit": 4, "num_results": 50}, 4, ()),
        ({"limit": 10_000}, 50, ()),
        ({"limit": 0}, 10, ("query.limit",)),
        ({"limit": -3}, 10, ("query.limit",)),
        ({"limit": "5"}, 10, ("query.limit",)),
        ({"limit": True}, 10, ("query.limit",)),
        ({"max_results": 1e300, "limit": 5}, 5, ("query.max_results",)),
    ],
)
def test_page_hints_are_bounded_and_bad_ones_are_reported(hints: dict, limit: int, ignored: tuple[str, ...]) -> None:
    wish = read({"query": {"text": "soup", **hints}})

    assert (wish.ask.limit, wish.ask.filters, wish.ignored) == (limit, {}, ignored)


def test_a_bad_start_and_a_bad_language_are_reported() -> None:
    wish = read({"query": {"text": "soup"}, "prefer": {"accept-language": "??"}, "meta": {"start_num": -1}})

    assert (wish.ask.start, wish.ask.language) == (0, "")
    assert set(wish.ignored) == {"meta.start_num", "prefer.accept-language"}


@pytest.mark.parametrize(
    ("header", "language"),
    [("de-CH, en;q=0.8", "de-CH"), ("en;q=0.1, fr;q=0.9", "fr"), ("*", ""), ("", ""), ("x" * 5000, "")],
)
def test_the_header_says_the_language_when_the_request_does_not(header: str, language: str) -> None:
    assert read({"query": {"text": "soup"}}, language=header).ask.language == language


@requirement("nlweb:prefer:mode-several", "nlweb:note:mode-adds", "nlweb:note:mode-unknown")
@pytest.mark.parametrize(
    ("mode", "modes", "ignored"),
    [
        ("list", {"list"}, ()),
        ("summarize", {"list", "summarize"}, ()),
        (" list ,summarize ", {"list", "summarize"}, ()),
        (["generate"], {"list", "generate"}, ()),
        ("list, dance", {"list"}, ("prefer.mode dance",)),
        ("", {"list"}, ()),
    ],
)
def test_known_modes_count_and_unknown_ones_are_reported(mode: Any, modes: set[str], ignored: tuple[str, ...]) -> None:
    wish = read({"query": {"text": "soup"}, "prefer": {"mode": mode}})

    assert (wish.ask.modes, wish.ignored) == (modes, ignored)


@requirement("nlweb:note:mode-unknown")
def test_a_request_for_unknown_modes_alone_is_unsupported() -> None:
    with pytest.raises(UnsupportedMode):
        asked(prefer={"mode": "dance, sing"})


@requirement(
    "nlweb:prefer:format-default",
    "nlweb:prefer:format-choice",
    "nlweb:note:format-first",
    "nlweb54:ask:format-default",
)
@pytest.mark.parametrize(
    ("formats", "version", "chosen"),
    [
        (None, "version", "conversational_search"),
        (None, "api_version", "chatgpt_app"),
        ("conv_search", "version", "conversational_search"),
        ("chatgpt_app", "version", "chatgpt_app"),
        (["pdf", "chatgpt_app", "conv_search"], "version", "chatgpt_app"),
        ("pdf, conversational_search", "api_version", "conversational_search"),
    ],
)
def test_the_first_format_that_is_known_is_chosen(formats: Any, version: str, chosen: str) -> None:
    raw = {"query": {"text": "soup"}, "prefer": {"response_format": formats}, "meta": {version: "0.5"}}

    assert read(raw).format == chosen


@requirement("nlweb:note:format-first")
def test_a_request_for_unknown_formats_alone_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormat):
        asked(prefer={"response_format": "pdf"})


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "The request is not a JSON object"),
        ("soup", "The request is not a JSON object"),
        ({}, "query is missing"),
        ({"query": None}, "query must be a text or an object, not null"),
        ({"query": 5}, "query must be a text or an object, not a whole number"),
        ({"query": {"text": 5}}, "query.text must be a text, not a whole number"),
        ({"query": {"text": ["soup"]}}, "query.text must be a text, not a list"),
        ({"query": {"text": "soup"}, "context": []}, "context must be a text or an object, not a list"),
        ({"query": {"text": "soup"}, "context": {"prev": [1]}}, "context.prev[0] must be a text, not a whole number"),
        ({"query": {"text": "soup"}, "context": {"text": {}}}, "context.text must be a text, not an object"),
        ({"query": {"text": "soup"}, "context": {"answers": []}}, "context.answers must be an object, not a list"),
        ({"query": {"text": "soup"}, "prefer": "fast"}, "prefer must be an object, not a text"),
        ({"query": {"text": "soup"}, "prefer": {"streaming": "no"}}, "prefer.streaming must be true or false"),
        ({"query": {"text": "soup"}, "prefer": {"mode": 1}}, "prefer.mode must be a text or a list, not a whole"),
        ({"query": {"text": "soup"}, "meta": {"version": True}}, "meta.version must be a number or a text, not true"),
        ({"query": {"text": "soup"}, "meta": {"session_context": "x"}}, "meta.session_context must be an object"),
    ],
)
def test_what_has_the_wrong_type_is_refused_by_name(raw: Any, said: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        read(raw)

    assert refusal.value.message.startswith(said)
    assert refusal.value.hint


# Flat requests


@requirement("nlwebflat:ask:prev")
def test_a_flat_request_from_a_url_means_what_a_nested_one_means() -> None:
    wish = read(
        {
            "query": "soup",
            "site": "inn.example",
            "price": "less than $20",
            "prev": '["bread", "cheese"]',
            "context": "planning a party",
            "decontextualized_query": "soup for a party",
            "generate_mode": "summarize",
            "streaming": "False",
            "num_results": "5",
            "start_num": "10",
            "query_id": "q1",
            "context_url": "http://127.0.0.1/secret",
            "item_to_remember": "vegan",
        },
        flat=True,
    )

    assert wish.ask == Ask(
        "soup",
        filters={"site": "inn.example", "price": "less than $20"},
        previous=("bread", "cheese"),
        background="planning a party soup for a party",
        memory=("vegan",),
        modes=frozenset({"list", "summarize"}),
        limit=5,
        start=10,
        remember=True,
    )
    assert (wish.client.dialect, wish.client.query_id, wish.streaming, wish.memory_text) == (FLAT, "q1", False, "vegan")


def test_what_the_known_page_sends_when_nothing_was_chosen_asks_a_plain_question() -> None:
    raw = {
        "query": "soup",
        "generate_mode": "list",
        "prev": "[]",
        "item_to_remember": "",
        "context_url": "",
        "site": "",
    }

    assert read(raw, flat=True).ask == Ask("soup")


@pytest.mark.parametrize("said", [",", ", ,,", " , ", "", ["vegan"], 5, None])
def test_nothing_to_remember_is_nothing_also_with_commas(said: Any) -> None:
    wish = read({"query": "soup", "item_to_remember": said})

    assert (wish.memory_text, wish.ask) == ("", Ask("soup"))


def test_what_is_to_be_remembered_is_kept_with_the_commas_around_it() -> None:
    wish = read({"query": "soup", "item_to_remember": ",vegan, "})

    assert (wish.memory_text, wish.ask.memory, wish.ask.remember) == (",vegan,", (",vegan,",), True)


@pytest.mark.parametrize(
    ("prev", "previous"),
    [
        ('["bread", 5, " "]', ("bread",)),
        ("bread", ("bread",)),
        ("bread, cheese", ("bread, cheese",)),
        (["bread", "cheese"], ("bread", "cheese")),
        ("[bread", ("[bread",)),
        ("[" * 100_000, ("[" * 100_000,)),
        ("", ()),
        (5, ()),
    ],
)
def test_earlier_questions_of_a_flat_request_come_in_several_forms(prev: Any, previous: tuple[str, ...]) -> None:
    assert read({"query": "soup", "prev": prev}).ask.previous == previous


@requirement("nlwebflat:ask:streaming-default")
@pytest.mark.parametrize(
    ("said", "streaming"),
    [
        ("False", False),
        ("false", False),
        ("0", False),
        (False, False),
        (0, False),
        ("true", True),
        (True, True),
        ("", None),
    ],
)
def test_a_flat_request_turns_streaming_off_in_several_ways(said: Any, streaming: bool | None) -> None:
    assert read({"query": "soup", "streaming": said}).streaming is streaming


@requirement("nlwebflat:ask:query")
@pytest.mark.parametrize("raw", [{}, {"query": None}, {"query": ["a", "b"]}])
def test_a_flat_request_without_one_question_is_refused(raw: dict) -> None:
    with pytest.raises(BadRequest) as refusal:
        read(raw, flat=True)

    assert refusal.value.message.startswith("`query` ")


# Await


def test_a_look_at_a_promise_names_its_token_and_an_action() -> None:
    raw = {"promise_token": "t1", "action": "cancel", "prefer": {"streaming": True}, "meta": {"version": "0.55"}}

    look = parse_await(raw, parse_client_info(raw))

    assert (look.token, look.cancel, look.streaming, look.format) == ("t1", True, True, "conversational_search")


@requirement("nlweb:await:token-required")
@pytest.mark.parametrize(
    "raw", [{}, {"promise_token": "", "action": "checkin"}, {"promise_token": None, "action": "x"}]
)
def test_a_look_without_a_token_misses_it(raw: dict) -> None:
    with pytest.raises(MissingField):
        parse_await(raw, parse_client_info(raw))


@requirement("nlweb:await:action-required")
@pytest.mark.parametrize("action", [None, "", "CANCEL", 5, ["cancel"], {}])
def test_an_action_is_checkin_or_cancel(action: Any) -> None:
    raw = {"promise_token": "t1", "action": action}
    with pytest.raises(InvalidAction):
        parse_await(raw, parse_client_info(raw))
