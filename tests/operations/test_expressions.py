"""Paths and conditions: what they say of JSON, and that nothing else comes of hostile ones than a refusal."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from portico.errors import InvalidWorkflow
from portico.operations.expressions import parse_condition, parse_path

DATA = {
    "find": {"items": [{"id": "flour", "grams": 500}, {"id": "salt", "@type": "Spice"}], "cursor": None, "all": True},
    "step-2": "done",
    "input": {"city": "Merrow Bay", "it's": 1, "tags": ["a", "b"]},
}

PATHS = {
    "$": DATA,
    "$.find.items[0].id": "flour",
    "$.find['items'][1][\"@type\"]": "Spice",
    "$.step-2": "done",
    r"$.input['it\'s']": 1,
    "$.find.cursor": None,
    "$.find.items[2]": UNSET,
    "$.find[0]": UNSET,
    "$.find.items.id": UNSET,
    "$.find.cursor.more": UNSET,
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_finds_what_is_there(path: str) -> None:
    assert parse_path(path).find(DATA) == PATHS[path]


@pytest.mark.parametrize(
    "path", ["", "find", "$find", "$.", "$..id", "$.items[-1]", "$.items[*]", "$.a[0", "$.a ", "$" + ".a" * 9, "$[١]"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        parse_path(path)

    assert refusal.value.details["reason"] == "mapping"


TRUE = [
    "true",
    "!false",
    "$.find.items[0].grams == 500.0",
    "find.items[0].grams >= 500 && find.items[0].grams <= 5e2",
    "find.items[0].id < 'salt'",
    'find.items[0].id != "salt"',
    "-1 < 0",
    "1 != true",
    "'1' != 1",
    "find.cursor == null",
    "has($.find.cursor) && !has($.find.total)",
    "size($.find.items) == 2 && size(input) == 3 && size(input.city) > 9",
    "$.step-2 in ['done', 'skipped']",
    "'city' in input && !('town' in input) && 'b' in $.input.tags && !(1 in [])",
    "false && true || true",
    "!(true && (false || !true))",
    "find.all || $.not.there",
    "has(find.items) == true",
    r"'it\'s' in input",
]


@pytest.mark.parametrize("condition", TRUE)
def test_a_condition_holds_and_its_opposite_does_not(condition: str) -> None:
    assert parse_condition(condition).holds(DATA) is True
    assert parse_condition(f"!({condition})").holds(DATA) is False


UNREADABLE = [
    "",
    "  ",
    "true true",
    "1 +",
    "(true",
    "true)",
    "has(1)",
    "has('a')",
    "has",
    "== 1",
    "true &&",
    "true & true",
    "[1, ",
    "'open",
    r"'\x41'",
    "1e999",
    "9" * 400,
    "(" * 200 + "true" + ")" * 200,
    "!" * 500 + "true",
    "$" + ".a" * 9,
    "true" + " " * 512,
    "__import__('os')",
    "a.b()",
    "٣ == 3",
]


@pytest.mark.parametrize("condition", UNREADABLE)
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        parse_condition(condition).holds(DATA)

    assert refusal.value.details["reason"] == "condition"


@pytest.mark.parametrize(
    "condition",
    [
        "1",
        "'true'",
        "find.total > 1",
        "find.items == 1",
        "find.all < 1",
        "1 < '2'",
        "1 in 2",
        "1 in input",
        "!1",
        "size(find.all) > 0",
    ],
)
def test_a_condition_that_makes_no_sense_of_the_data_is_an_error_and_not_false(condition: str) -> None:
    with pytest.raises(InvalidWorkflow) as refusal:
        parse_condition(condition).holds(DATA)

    assert refusal.value.details["reason"] == "condition"


PIECES = [
    *("(", ")", "!", "&&", "||", "==", "<", " in ", "[", "]", ",", "has(", "size(", "$", ".find", "find", ".items"),
    *("[0]", "['x']", "true", "null", "1", "-2.5", "1e308", "'é'", '"\\n"', " ", "\x00", "\ud800", "𝟙", "٣"),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=600))
@example("[" * 512)
@example("!(" * 256)
@example("a" + ".a" * 255)
def test_hostile_text_is_refused_or_decides(text: str) -> None:
    assert outcome(lambda: parse_condition(text).holds(DATA)) in {True, False, "condition"}
    assert outcome(lambda: parse_path(text).text) in {text, "mapping"}


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except InvalidWorkflow as refusal:
        return refusal.details["reason"]
