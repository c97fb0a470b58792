"""Budgets: what records cost, and what is left of them when a caller can pay for less."""

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from portico.access.budget import (
    TokenCost,
    Tokenizer,
    TrimmedRecords,
    count_cost,
    find_tokenizer,
    list_tokenizers,
    trim,
)
from portico.errors import BudgetExceeded

CL100K = Tokenizer("cl100k_base", 1.0)
DEARER = Tokenizer("cl100k_base", 1.3)
STORY = "Baked by hand every morning since 1912. " + "Flour, water, salt and patience, " * 8
LOAVES: list[dict[str, Any]] = [
    {"id": f"l{n}", "name": "Rye loaf", "price": 4, "url": f"https://bakery.example/loaves/{n}", "description": STORY}
    for n in range(4)
]


def size(records: list[dict[str, Any]]) -> int:
    return count_cost(msgspec.json.encode(records), None).tokens


def without(*fields: str) -> list[dict[str, Any]]:
    return [{field: value for field, value in loaf.items() if field not in fields} for loaf in LOAVES]


@pytest.mark.parametrize(("encoded", "tokens"), [("", 0), ("[]", 1), ("[12]", 1), ("[123]", 2), ("é" * 6, 3)])
def test_a_token_is_estimated_at_four_bytes(encoded: str, tokens: int) -> None:
    assert count_cost(encoded.encode(), None) == TokenCost(tokens, None, "")


@pytest.mark.parametrize(
    ("text", "cl100k", "o200k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 9, 8),
        ("<|endoftext|>", 7, 7),  # what controls a model is text like any other
        pytest.param("a" * 1_000_000, 125_000, 125_000, id="a million letters"),
    ],
)
def test_a_tokenizer_counts_as_its_models_do(text: str, cl100k: int, o200k: int) -> None:
    assert [Tokenizer(name, 1.0).count(text) for name in list_tokenizers()] == [cl100k, o200k]


def test_tokens_of_a_tokenizer_are_charged_at_its_rate_and_rounded_up() -> None:
    hundred, ten = b"a" * 800, b"a" * 80

    assert count_cost(hundred, Tokenizer("cl100k_base", 1.0)) == TokenCost(100, 100, "cl100k_base")
    assert count_cost(hundred, Tokenizer("cl100k_base", 1.1)) == TokenCost(110, 100, "cl100k_base")
    assert count_cost(ten, Tokenizer("cl100k_base", 1.05)) == TokenCost(11, 10, "cl100k_base")
    assert count_cost(ten, Tokenizer("cl100k_base", 0.95)) == TokenCost(10, 10, "cl100k_base")


@pytest.mark.parametrize(
    ("names", "used"),
    [
        (["cl100k_base"], "cl100k_base"),
        ([" O200K_Base "], "o200k_base"),
        (["claude", "", "openai/gpt-4o-mini"], "o200k_base"),
        (["cl100k_base", "openai/gpt-4o"], "cl100k_base"),
        (["openai/gpt-4"], "cl100k_base"),
        (["openai/gpt-4-turbo"], "cl100k_base"),
        (["gpt-3.5-turbo"], "cl100k_base"),
        (["openai/gpt-4.1"], "o200k_base"),
        (["openai/gpt-40"], None),
        (["anthropic/claude-4", "gemini", "llama-3", "mistral"], None),
        ([""], None),
        ([], None),
    ],
)
def test_the_first_name_that_can_be_counted_with_is_used(names: list[str], used: str | None) -> None:
    assert find_tokenizer(*names) == (Tokenizer(used, 1.0) if used else None)


def test_records_that_fit_are_left_as_they_are() -> None:
    trimmed = trim(LOAVES, size(LOAVES), None)

    assert trimmed == TrimmedRecords(LOAVES, TokenCost(size(LOAVES)))
    assert trimmed.is_whole


def short(*fields: str) -> list[dict[str, Any]]:
    return [{**loaf, "description": "Baked by hand every morning since 1912."} for loaf in without(*fields)]


def test_long_texts_are_summarized_before_anything_goes() -> None:
    assert trim(LOAVES, size(LOAVES) - 1, None) == TrimmedRecords(
        short(), TokenCost(size(short())), (), ("description",)
    )


def test_the_texts_whose_summaries_save_most_are_summarized_first() -> None:
    review = "Crisp outside, soft inside, and gone by noon. " * 4
    loaves = [{**loaf, "review": review} for loaf in LOAVES]

    assert trim(loaves, size(loaves) - 1, None).summarized_fields == ("description",)
    assert trim(loaves, size([{**loaf, "review": review} for loaf in short()]) - 1, None).summarized_fields == (
        "description",
        "review",
    )


def test_then_the_dearest_field_goes_first_and_the_description_after_all_others() -> None:
    first = trim(LOAVES, size(short()) - 1, None)
    second = trim(LOAVES, size(short("url")) - 1, None)
    bare = trim(LOAVES, size(short("url", "price")) - 1, None)

    assert first == TrimmedRecords(short("url"), TokenCost(size(short("url"))), ("url",), ("description",))
    assert second.dropped_fields == ("url", "price")
    assert [bare.dropped_fields, bare.summarized_fields] == [("url", "price", "description"), ()]
    assert bare.records == [{"id": f"l{n}", "name": "Rye loaf"} for n in range(4)]


def test_records_go_before_fields_that_were_asked_for() -> None:
    asked = ["price", "url", "description"]

    fewer = trim(LOAVES, size(short()[:2]), None, last=asked)
    single = trim(LOAVES, size(short()[:1]) - 1, None, last=asked)

    assert fewer == TrimmedRecords(short()[:2], TokenCost(size(short()[:2])), (), ("description",), 2)
    assert single.records == [{field: value for field, value in short()[0].items() if field != "url"}]
    assert (single.dropped_fields, single.dropped_records) == (("url",), 3)


def test_fields_that_were_not_asked_for_go_before_records() -> None:
    trimmed = trim(LOAVES, size(short("url")[:3]), None, last=["price", "description"])

    assert trimmed == TrimmedRecords(short("url")[:3], TokenCost(size(short("url")[:3])), ("url",), ("description",), 1)


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("word " * 100, ("word " * 20).strip() + "…"),
        ("字" * 200, "字" * 100 + "…"),
        ("https://bakery.example/" + "a" * 200, "https://bakery.example/" + "a" * 77 + "…"),
        ("今日は。" + "字" * 200, "今日は。"),
        ("Dr. Rye bakes. He does so at night. " + "So it goes on " * 20, "Dr. Rye bakes. He does so at night."),
        ("  Bread.\n" + "More of it " * 20, "Bread."),
    ],
)
def test_a_summary_is_whole_sentences_or_whole_words(text: str, summary: str) -> None:
    trimmed = trim([{"id": "r1", "text": text}], size([{"id": "r1", "text": text}]) - 1, None)

    assert trimmed.records == [{"id": "r1", "text": summary}]
    assert trimmed.summarized_fields == ("text",)


def test_records_go_last_and_from_the_end() -> None:
    two = [{"id": f"l{n}", "name": "Rye loaf"} for n in range(2)]

    trimmed = trim(LOAVES, size(two), None)

    assert trimmed == TrimmedRecords(two, TokenCost(size(two)), ("url", "price", "description"), (), 2)
    assert not trimmed.is_whole


def test_a_caller_may_name_fields_to_keep() -> None:
    trimmed = trim(LOAVES, 60, None, keep=["price"])

    assert trimmed.dropped_fields == ("url", "description")
    assert trimmed.records[0] == {"id": "l0", "name": "Rye loaf", "price": 4}


def test_each_record_keeps_the_title_it_has() -> None:
    blank, rye = {"id": "a", "name": " ", "alternateName": "Spelt"}, {"id": "b", "name": "Rye"}
    records = [blank, rye, {"id": "c", "headline": "News", "title": "x" * 50}]

    assert trim(records, 30, None).records == [blank, rye, {"id": "c", "headline": "News"}]
    assert trim(records, size([blank]), None).records == [blank]


def test_a_row_without_id_and_title_keeps_its_first_field() -> None:
    rows = [{"cuisine": "thai", "count": 12, "average_price": 11.25}, {"cuisine": "greek", "count": 7}]

    assert trim(rows, 12, None).records == [{"cuisine": "thai"}, {"cuisine": "greek"}]


def test_a_record_that_cannot_be_made_small_enough_is_refused_with_what_it_needs() -> None:
    with pytest.raises(BudgetExceeded) as refusal:
        trim(LOAVES, 5, None)

    assert refusal.value.details == {"budget": 5, "needed": 8}
    assert str(refusal.value) == (
        "The smallest answer takes 8 tokens; the budget is 5. Ask for fewer fields, or allow 8 tokens."
    )
    assert trim(LOAVES, 8, None).records == [{"id": "l0", "name": "Rye loaf"}]


def test_no_records_cost_one_token() -> None:
    assert trim([], 1, CL100K) == TrimmedRecords([], TokenCost(1, 1, "cl100k_base"))
    with pytest.raises(BudgetExceeded):
        trim([], 0, CL100K)


def test_a_thousand_records_are_trimmed_to_the_last_one_that_fits() -> None:
    records = [{"id": f"r{n}", "name": "x" * (n % 90), "data": "0123456789" * 3} for n in range(1000)]

    for counter in (None, CL100K):
        trimmed = trim(records, 3000, counter)
        one_more = [{"id": each["id"], "name": each["name"]} for each in records[: len(trimmed.records) + 1]]

        assert trimmed.records == one_more[:-1]
        assert trimmed.dropped_records == 1000 - len(trimmed.records)
        assert count_cost(msgspec.json.encode(one_more), counter).tokens > 3000


texts = st.text(max_size=20) | st.builds(str.__mul__, st.text(min_size=1, max_size=12), st.integers(1, 40))
values = st.none() | st.integers(-(2**60), 2**60) | texts | st.lists(texts, max_size=3)
fields = st.sampled_from(["id", "name", "headline", "description", "text", "price", "größe", "", '"\\'])
pages = st.lists(st.dictionaries(fields, values, max_size=7), max_size=6)


@given(pages, st.integers(0, 200), st.sampled_from([None, CL100K, DEARER]), *[st.sets(fields, max_size=2)] * 2)
@example([{"description": "…" * 200, "": 1}], 50, None, set(), set())
@example([{"id": "r1", "text": " " * 500 + "x"}], 20, CL100K, set(), set())
def test_whatever_the_budget_the_answer_fits_and_says_what_it_lacks(
    records: list[dict[str, Any]], budget: int, counter: Tokenizer | None, keep: set[str], last: set[str]
) -> None:
    try:
        trimmed = trim(records, budget, counter, keep, last)
    except BudgetExceeded as refusal:
        budget = refusal.details["needed"]
        trimmed = trim(records, budget, counter, keep, last)

    assert trimmed.cost == count_cost(msgspec.json.encode(trimmed.records), counter)
    assert trimmed.cost.tokens <= budget
    assert trimmed.is_whole == (trimmed.records == records)
    assert len(trimmed.records) + trimmed.dropped_records == len(records)
    assert not {"id", *keep} & {*trimmed.dropped_fields}
    assert len(trimmed.records) <= 1 or not last & {*trimmed.dropped_fields}
    for shown, record in zip(trimmed.records, records, strict=False):
        assert bool(shown) == bool(record)
        assert [*shown] == [field for field in record if field not in trimmed.dropped_fields]
        for field in shown.keys() - trimmed.summarized_fields:
            assert shown[field] == record[field]
        for field in shown.keys() & trimmed.summarized_fields:
            assert shown[field] == record[field] or record[field].strip().startswith(shown[field].removesuffix("…"))


def test_without_the_extra_tokens_a_named_tokenizer_gets_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rs_bpe", None)

    assert (list_tokenizers(), find_tokenizer("cl100k_base", "openai/gpt-4o")) == ((), None)
    assert count_cost(msgspec.json.encode(LOAVES), find_tokenizer("o200k_base")).tokenizer == ""
