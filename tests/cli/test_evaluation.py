"""How well questions are answered: what is read, what is asked, and how it is counted."""

import json
from collections.abc import AsyncIterator
from math import log2
from pathlib import Path
from typing import Any

import pytest

from portico.access.identity import local_operator
from portico.cli.evaluation import JudgedQuestion, evaluate, read_questions, unknown_items
from portico.errors import BadRequest, SourceError
from portico.protocols import parse_config
from portico.server.assembly import Parts, open_site
from portico.store.records import Put

DRINKS = {
    "tea": {"name": "Green tea", "price": 3.0},
    "black": {"name": "Black tea", "price": 4.0},
    "herbs": {"name": "Herbal tea", "price": 5.0},
    "cocoa": {"name": "Cocoa", "price": 6.0},
}


@pytest.fixture
async def bar() -> AsyncIterator[Parts]:
    settings: dict[str, Any] = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}}
    async with open_site(parse_config({**settings, "collections": {"drinks": {}}}), background=False) as parts:
        await parts.store.items.write("drinks", [Put(id, data) for id, data in DRINKS.items()])
        await parts.index.sync(await parts.store.changes.head())
        yield parts


async def test_an_answer_counts_by_the_places_of_its_right_items(bar: Parts) -> None:
    questions = [
        JudgedQuestion("cheapest tea first", {"tea": 1, "black": 1, "herbs": 1}),
        JudgedQuestion("cheapest tea first", {"drinks/black": 1}),
        JudgedQuestion("cheapest tea first", {"drinks/black": 1, "drinks/herbs": 3}),
        JudgedQuestion("cheapest tea first", {"cocoa": 1}),
    ]

    scores = await evaluate(bar.site, local_operator(), questions)

    assert [each.refs for each in scores.results] == [("drinks/tea", "drinks/black", "drinks/herbs")] * 4
    assert [each.ndcg for each in scores.results] == pytest.approx(
        [1, 1 / log2(3), (1 / log2(3) + 3 / 2) / (3 + 1 / log2(3)), 0]
    )
    assert [each.recall for each in scores.results] == [1, 1, 1, 0]
    assert [each.first for each in scores.results] == [1, 0.5, 0.5, 0]
    assert scores.ndcg == pytest.approx(sum(each.ndcg for each in scores.results) / 4)
    assert [each.question.grades for each in scores.worst(2)] == [{"cocoa": 1}, questions[2].grades]


async def test_an_id_that_several_items_have_counts_once(bar: Parts) -> None:
    await bar.store.collections.declare(bar.config.collection("cups"))
    await bar.store.items.write("cups", [Put("tea", {"name": "Green tea"})])
    await bar.index.sync(await bar.store.changes.head())

    [result] = (await evaluate(bar.site, local_operator(), [JudgedQuestion("green tea", {"tea": 1})])).results

    assert {"drinks/tea", "cups/tea"} <= set(result.refs)
    assert (result.ndcg, result.recall) == (1, 1)


async def test_only_so_many_items_count_and_only_of_the_named_collections(bar: Parts) -> None:
    question = [JudgedQuestion("cheapest tea first", {"herbs": 1})]

    short = await evaluate(bar.site, local_operator(), question, depth=2)
    elsewhere = await evaluate(bar.site, local_operator(), question, collections=["drinks"], by="text")

    assert [(each.recall, len(each.refs)) for each in short.results] == [(0, 2)]
    assert [each.recall for each in elsewhere.results] == [1]


async def test_a_question_that_sounds_like_a_command_does_nothing_and_earlier_ones_count(bar: Parts) -> None:
    before = await bar.store.changes.head()
    questions = [
        JudgedQuestion("delete drink cocoa", {"cocoa": 1}),
        JudgedQuestion("and the dearest one?", {"herbs": 1}, previous=("cheapest tea first",)),
    ]
    asked: list[int] = []

    scores = await evaluate(bar.site, local_operator(), questions, on_progress=asked.append)

    assert await bar.store.changes.head() == before
    assert asked == [1, 2]
    assert scores.results[1].first == 1


async def test_right_items_that_are_not_there_are_named(bar: Parts) -> None:
    questions = [
        JudgedQuestion("tea", {"tea": 1, "drinks/mate": 1, "gone": 0}),
        JudgedQuestion("x", {"drinks/mate": 2}),
    ]

    assert await unknown_items(bar.site, local_operator(), questions) == ["drinks/mate"]


def test_questions_are_read_from_lines(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    lines: list[Any] = [
        {"question": "tea?", "items": ["tea", "drinks/black"]},
        {"query": "more?", "items": {"herbs": 2, "tea": 0}, "previous": ["tea?"]},
        {"text": "cocoa", "items": "http://127.0.0.1:8000/items/drinks/cocoa"},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)))

    assert read_questions(file) == [
        JudgedQuestion("tea?", {"tea": 1, "drinks/black": 1}),
        JudgedQuestion("more?", {"herbs": 2, "tea": 0}, ("tea?",)),
        JudgedQuestion("cocoa", {"drinks/cocoa": 1}),
    ]


def test_questions_are_read_from_a_folder_as_benchmarks_have_it(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "tea?"}\n{"_id": "q2", "text": "unjudged"}\n')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ttea\t2\nq1\tcocoa\t0\n")

    assert read_questions(tmp_path) == [JudgedQuestion("tea?", {"tea": 2, "cocoa": 0})]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels.tsv").rename(tmp_path / "qrels" / "test.tsv")
    assert read_questions(tmp_path) == [JudgedQuestion("tea?", {"tea": 2, "cocoa": 0})]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "contains no questions"),
        ("[]", ":1: not a JSON object"),
        ('{"question": "a"', ":1: not a JSON object"),
        ('{"question": " ", "items": ["a"]}', ":1: the question is missing"),
        ('{"question": "a"}', ":1: `items` must be a list of refs"),
        ('{"question": "a", "items": []}', ":1: no item has a grade above 0"),
        ('{"question": "a", "items": {"b": 0}}', ":1: no item has a grade above 0"),
        ('{"question": "a", "items": {"b": "good"}}', ":1: a grade must be a number"),
        ('{"question": "a", "items": ["b"], "previous": "c"}', ":1: `previous` must be a list"),
    ],
)
def test_a_line_that_says_nothing_is_named(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(line)

    with pytest.raises(BadRequest) as refused:
        read_questions(file)
    assert why in refused.value.message
    assert '"items"' in refused.value.hint


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("q1\ttea\tvery\n")
    with pytest.raises(BadRequest, match=r"qrels.tsv:1: a line must have a question, an item and a score"):
        read_questions(tmp_path)
    (tmp_path / "qrels.tsv").unlink()
    with pytest.raises(SourceError, match=r"qrels.tsv"):
        read_questions(tmp_path)
    with pytest.raises(SourceError, match="cannot be read"):
        read_questions(tmp_path / "nothing.jsonl")
