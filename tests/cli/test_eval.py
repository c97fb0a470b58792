"""`portico eval`."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Portico

SITE = '[search]\nembedder = "none:"\n'
DRINKS = "id,name\ntea,Green tea\nblack,Black tea\ncocoa,Cocoa\n"
QUESTIONS = [
    {"question": "cocoa", "items": ["drinks/cocoa"]},
    {"question": "black tea", "items": ["drinks/black"]},
    {"question": "coffee", "items": ["drinks/tea"]},
]


@pytest.fixture
def bar(portico: Portico, tmp_path: Path) -> Portico:
    (tmp_path / "portico.toml").write_text(SITE)
    (tmp_path / "drinks.csv").write_text(DRINKS)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in QUESTIONS))
    assert portico("load", "drinks.csv").code == 0
    return portico


def test_a_table_says_how_well_questions_are_answered_and_what_went_wrong(bar: Portico) -> None:
    done = bar("eval", "questions.jsonl")

    assert done.code == 0, done.err
    head, means, *rest = done.out.splitlines()
    assert head.split() == ["by", "nDCG@10", "recall@10", "first", "ms", "questions"]
    assert means.split()[:4] == ["hybrid", "0.667", "0.667", "0.667"]
    assert means.split()[-1] == "3"
    assert [line.strip() for line in rest] == ["", "coffee  0.00", "found  nothing", "relevant  drinks/tea"]


def test_ways_are_compared_for_programs(bar: Portico) -> None:
    scores = bar("eval", "questions.jsonl", "--by", "all", "--limit", "3", "--json").json

    assert [each["by"] for each in scores] == ["text"]  # there is nothing to compare it with
    assert bar("eval", "questions.jsonl", "--by", "vectors").code == 2
    assert scores[0]["results"][0] == {
        "question": "cocoa",
        "ndcg": 1.0,
        "recall": 1.0,
        "first": 1.0,
        "found": ["drinks/cocoa"],
        "items": {"drinks/cocoa": 1.0},
    }


def test_a_least_can_be_demanded(bar: Portico) -> None:
    assert bar("eval", "questions.jsonl", "--least", "0.5").code == 0
    low = bar("eval", "questions.jsonl", "--least", "0.7")
    assert (low.code, "nDCG is 0.667 by hybrid, below the minimum of 0.7" in low.err) == (1, True)


def test_what_cannot_be_measured_is_said(bar: Portico, tmp_path: Path) -> None:
    (tmp_path / "strays.jsonl").write_text('{"question": "cocoa", "items": ["drinks/cocoa", "drinks/mate"]}\n')

    strays, missing = bar("eval", "strays.jsonl"), bar("eval", "nothing.jsonl")
    elsewhere = bar("eval", "questions.jsonl", "--collection", "dishes")

    assert "Relevant items that do not exist: drinks/mate (1 in all)" in strays.err
    assert (strays.code, missing.code, elsewhere.code) == (0, 6, 3)
