"""Items: merge, diff, hash, and what can be kept."""

import copy
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from portico.items import IN_WORDS, content_hash, diff, invisible_pattern, merge, problem_with

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from("ab")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b/c", "d~e"]), inner)),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(["a", "b/c", "d~e", ""]), values, max_size=4)


def patched(data: dict[str, Any], patch: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """RFC 6902, as far as `diff` uses it."""
    result = copy.deepcopy(data)
    for step in patch:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        target = result
        for part in path:
            target = target[part]
        assert (last in target) == (step["op"] != "add")
        if step["op"] == "remove":
            del target[last]
        else:
            target[last] = step["value"]
    return result


@given(objects, objects)
@example({"a": [1]}, {"a": [1.0]})
@example({"a": [{"b": 1}]}, {"a": [{"b": True}]})
def test_a_diff_turns_the_old_into_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert content_hash(patched(old, diff(old, new))) == content_hash(new)


@given(objects)
def test_a_diff_of_the_same_is_empty(data: dict[str, Any]) -> None:
    assert diff(data, copy.deepcopy(data)) == ()


@given(objects, objects)
@example({"a": [1]}, {"a": [1.0]})
@example({"a": [{"b": 1}]}, {"a": [{"b": True}]})
def test_data_with_another_hash_has_a_diff(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert bool(diff(old, new)) == (content_hash(old) != content_hash(new))


@pytest.mark.parametrize(
    ("old", "patch", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": None, "z": 3}}, {"a": {"x": 1, "z": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
        ({"a": {"x": 1}}, {"a": 5}, {"a": 5}),
        ({}, {"a": None}, {}),
    ],
)
def test_objects_merge_key_by_key_and_null_removes(old: Any, patch: Any, merged: Any) -> None:
    before = copy.deepcopy(old)

    assert merge(old, patch) == merged
    assert old == before


def test_the_hash_does_not_depend_on_the_order_of_keys_but_on_kinds() -> None:
    assert content_hash({"a": 1, "b": {"c": 1, "d": 2}}) == content_hash({"b": {"d": 2, "c": 1}, "a": 1})
    assert len({content_hash({"a": value}) for value in (1, 1.0, True, "1", None, [1])}) == 6


@pytest.mark.parametrize(
    ("id", "data"),
    [
        ("", {}),
        ("x" * 1025, {}),
        ("a", {"n": float("nan")}),
        ("a", {"n": [float("inf")]}),
        ("a", {"t": "\ud800"}),
        ("\ud800", {}),
        ("a", {"t": "\0"}),
        ("a", {"\0": 1}),
        ("a\0", {}),
        ("a", {"o": object()}),
        ("a", {1: 2}),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_what_cannot_be_kept_has_a_reason(id: str, data: Any) -> None:
    assert problem_with(id, data)


@pytest.mark.parametrize("data", [{"t": "\\u0000"}, {"t": "\\\\u0000"}, {"t": "é🦊"}, {"n": 2**64}, {}])
def test_what_can_be_kept_has_none(data: dict[str, Any]) -> None:
    assert problem_with("a", data) is None


def test_nesting_without_end_is_a_problem_and_not_a_crash() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}

    assert problem_with("a", deep)


def test_what_no_eye_sees_is_one_set_and_places_say_how_they_differ_from_it() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    found = set(invisible_pattern().findall(every))
    letters = {each for each in found if unicodedata.category(each)[0] in "LNPSZ"}

    assert {each for each in every if unicodedata.category(each) in {"Cc", "Cs"}} <= found
    assert set("\u00ad\u061c\u200b\u200f\u202e\u2069\ufeff\ufe0f\U000e0041") <= found
    assert letters == set("\u115f\u1160\u3164\uffa0")  # that fill a syllable with nothing
    assert (
        invisible_pattern(except_for=rf"\n{IN_WORDS}").sub("", "\x07\ufeff\t\u200b\n\u200c\ufe0f") == "\n\u200c\ufe0f"
    )
    assert invisible_pattern(also=r"\s").sub("-", "a b\u200bc") == "a-b-c"
