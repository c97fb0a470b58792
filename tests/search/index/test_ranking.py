"""How well items match, and that the answer does not depend on how they came into the index."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from portico.catalog import Collection
from portico.items import Change, Item
from portico.search.index import Ranking, SearchRequest
from portico.search.index.collection import CollectionIndex
from portico.search.index.segment import StemVocabulary, build_segment, dump_segment, load_segment, merge_segments
from portico.search.index.snapshot import Snapshot

THINGS = Collection("things")
AT = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ["soup", "lentil", "cake", "apple", "bread", "warm", "sweet", "old", "new", "garden"]
TEXTS = [" ".join(WORDS[(n * k + n) % 10] for k in range(1, 3 + n % 6)) for n in range(60)]
ITEMS = [Item(f"i{n:02}", "things", {"name": text, "n": n}) for n, text in enumerate(TEXTS)]
QUESTIONS = ["soup", "warm lentil soup", "sweet apple cake", '"garden soup"', "nothing known", "the old"]


def ranked(snapshot: Snapshot, text: str, limit: int = 1000) -> Ranking:
    return snapshot.rank(SearchRequest(text, explain=True), limit, None)


def whole(items: list[Item]) -> Snapshot:
    vocabulary = StemVocabulary()
    segment = build_segment(items, THINGS, vocabulary)
    return Snapshot(THINGS, vocabulary, (segment,), (np.ones(len(items), bool),)).with_statistics()


def titled(**names: str) -> Snapshot:
    return whole([Item(id, "things", {"name": name}) for id, name in names.items()])


def test_rarer_words_count_more() -> None:
    snapshot = titled(a="lentil soup", b="tomato soup", c="potato soup", d="lentil cake")

    assert ranked(snapshot, "lentil soup").ids[0] == "a"
    assert ranked(snapshot, "tomato lentil soup").ids[0] == "b"
    assert ranked(snapshot, "tomato").ids == ["b"]


def test_a_short_text_about_it_comes_before_a_long_one_that_mentions_it() -> None:
    snapshot = titled(long="soup " + "and many other things to eat " * 10, short="soup")

    assert ranked(snapshot, "soup").ids == ["short", "long"]


def test_saying_it_more_often_counts_more_but_less_each_time() -> None:
    snapshot = titled(a="soup x y z", b="soup soup y z", c="soup soup soup z", d="other words to read")

    found = ranked(snapshot, "soup")

    assert found.ids == ["c", "b", "a"]
    assert found.text_scores[0] - found.text_scores[1] < found.text_scores[1] - found.text_scores[2]


def test_a_title_counts_more_than_the_text_below_it() -> None:
    snapshot = whole(
        [
            Item("below", "things", {"name": "first", "body": "soup"}),
            Item("title", "things", {"name": "soup", "body": "first"}),
        ]
    )

    assert ranked(snapshot, "soup").ids == ["title", "below"]


def test_scores_fall_from_one_and_ties_are_in_the_order_of_ids() -> None:
    snapshot = titled(b="soup", a="soup", c="soup")

    found = ranked(snapshot, "soup")

    assert (found.ids, found.scores, found.total) == (["a", "b", "c"], [1.0, 1.0, 1.0], 3)


def test_a_phrase_is_found_only_where_its_words_follow_each_other() -> None:
    snapshot = whole(
        [
            Item("apart", "things", {"name": "soup with lentil"}),
            Item("split", "things", {"name": "lentil", "body": "soup"}),
            Item("together", "things", {"name": "a Lentils SOUP"}),
            Item("turned", "things", {"name": "soup lentil"}),
        ]
    )

    assert ranked(snapshot, '"lentil soup"').ids == ["together"]
    assert ranked(snapshot, '"lentil soup" "no such"').ids == []


def test_chinese_is_found_by_its_pairs() -> None:
    assert ranked(titled(a="東京大学", b="京都"), "東京").ids == ["a"]


def test_an_item_is_found_in_its_own_language() -> None:
    snapshot = whole(
        [
            Item("de", "things", {"name": "Die alten Häuser", "inLanguage": "de-AT"}),
            Item("en", "things", {"name": "Old houses"}),
        ]
    )

    assert (ranked(snapshot, "Haus").ids, ranked(snapshot, "house").ids) == (["de"], ["en"])


def test_no_text_at_all_finds_everything_and_nothing_better_than_the_rest() -> None:
    found = ranked(whole(ITEMS), "")

    assert sorted(found.ids) == sorted(item.id for item in ITEMS)
    assert set(found.scores) == {0.0}


def test_words_without_meaning_find_nothing() -> None:
    assert ranked(whole(ITEMS), "?!").ids == []
    assert ranked(Snapshot(THINGS, StemVocabulary()), "soup").ids == []


def changes(items: list[Item], kind: str = "create") -> list[Change]:
    return [Change(n + 1, kind, item, (), AT) for n, item in enumerate(items)]  # type: ignore[arg-type]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("batch", [1, 7, 25])
def test_scores_do_not_depend_on_how_items_are_spread(question: str, batch: int) -> None:
    index = CollectionIndex(THINGS, [])
    for start in range(0, len(ITEMS), batch):
        index.apply(changes(ITEMS[start : start + batch]), THINGS)
    index.publish(THINGS, 1)

    assert ranked(index.snapshot, question) == ranked(whole(ITEMS), question)


@pytest.mark.parametrize("question", QUESTIONS)
def test_scores_after_changes_and_deletions_are_those_of_a_fresh_index(question: str) -> None:
    index = CollectionIndex(THINGS, [])
    index.apply(changes(ITEMS), THINGS)
    edited = [Item(item.id, "things", {"name": f"new {item.data['name']}"}) for item in ITEMS[10:30]]
    index.apply(changes(edited, "update"), THINGS)
    index.apply(changes(ITEMS[:10], "delete"), THINGS)
    index.apply(changes(ITEMS[:3]), THINGS)
    index.publish(THINGS, 1)

    expected = ranked(whole([*ITEMS[:3], *edited, *ITEMS[30:]]), question)

    assert ranked(index.snapshot, question) == expected


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_merge_of_segments_with_gaps_answers_like_the_living_items(question: str) -> None:
    vocabulary = StemVocabulary()
    parts = [build_segment(ITEMS[n : n + 20], THINGS, vocabulary) for n in (0, 20, 40)]
    live = [np.arange(20) % 3 > 0 for _ in parts]
    merged = merge_segments(parts, live)
    kept = [item for n, item in enumerate(ITEMS) if n % 20 % 3]

    assert ranked(
        Snapshot(THINGS, vocabulary, (merged,), (np.ones(len(merged), bool),)).with_statistics(), question
    ) == ranked(whole(kept), question)
    assert ranked(Snapshot(THINGS, vocabulary, tuple(parts), tuple(live)).with_statistics(), question) == ranked(
        whole(kept), question
    )


def test_many_small_changes_leave_few_segments() -> None:
    index = CollectionIndex(THINGS, [])
    for number in range(200):
        index.apply(changes([Item(f"i{number}", "things", {"name": "soup"})]), THINGS)

    assert len(index.segments) <= 10
    assert len(index.places) == 200


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_segment_survives_being_written_and_read(question: str) -> None:
    vocabulary = StemVocabulary()
    segment = build_segment(ITEMS, THINGS, vocabulary)

    loaded, words = load_segment(dump_segment(segment, vocabulary))

    assert ranked(Snapshot(THINGS, words, (loaded,), (np.ones(60, bool),)).with_statistics(), question) == ranked(
        whole(ITEMS), question
    )


def test_an_item_with_a_number_beyond_any_column_can_be_written_and_read() -> None:
    vocabulary = StemVocabulary()
    collection = THINGS.widen({"o": {}})
    segment = build_segment([Item("a", "things", {"o": {"n": 10**25}})], collection, vocabulary)

    loaded, _ = load_segment(dump_segment(segment, vocabulary))

    assert loaded.ids == ["a"]


def test_pages_of_a_ranking_join_without_gap_or_overlap() -> None:
    snapshot = whole(ITEMS)
    complete = ranked(snapshot, "soup cake")

    found: list[str] = []
    after = None
    while True:
        page = snapshot.rank(SearchRequest("soup cake"), 7, after)
        found += page.ids
        if len(page.ids) < 7:
            break
        after = (page.scores[-1], page.ids[-1])

    assert found == complete.ids


def test_a_page_behind_many_ties_is_full_when_more_follow() -> None:
    equals = [Item(f"a{n:02}", "things", {"name": "soup"}) for n in range(15)]
    others = [Item(f"b{n:03}", "things", {"name": "soup " + "x " * (n + 1)}) for n in range(300)]
    snapshot = whole([*equals, *others])

    first = snapshot.rank(SearchRequest("soup"), 15, None)
    second = snapshot.rank(SearchRequest("soup"), 15, (first.scores[-1], first.ids[-1]))

    assert first.ids == [item.id for item in equals]
    assert len(second.ids) == 15


# What must not be said


def without(snapshot: Snapshot, *unwanted: str, text: str = "") -> list[str]:
    return sorted(snapshot.rank(SearchRequest(text, excluded=unwanted), 1000, None).ids)


def test_what_says_an_unwanted_word_is_left_out_in_every_form_of_it() -> None:
    snapshot = titled(a="lentil soup", b="soup of Lentils", c="tomato soup")

    assert without(snapshot, "lentils") == ["c"]
    assert without(snapshot, "LENTIL", text="soup") == ["c"]


def test_several_unwanted_words_are_a_phrase_and_several_phrases_are_all_left_out() -> None:
    snapshot = titled(a="pine nut pesto", b="pine table", c="nut of pine", d="almond cake")

    assert without(snapshot, "pine nut") == ["b", "c", "d"]
    assert without(snapshot, "pine nut", "almonds") == ["b", "c"]


def test_an_unwanted_word_is_looked_for_in_every_field() -> None:
    snapshot = whole([Item("a", "things", {"name": "cake", "made": {"of": [{"x": "two almonds"}]}})])

    assert without(snapshot, "almond") == []


def test_an_unwanted_word_that_nobody_says_leaves_nothing_out() -> None:
    snapshot = titled(a="soup", b="cake")

    assert without(snapshot, "zebra", "the zebra", "", "?!") == ["a", "b"]


def test_the_total_counts_what_is_left() -> None:
    found = titled(a="soup", b="cake", c="soup and cake")

    assert found.rank(SearchRequest(excluded=("cake",)), 1000, None).total == 1


@pytest.mark.parametrize("unwanted", ["soup", "lentil soup", "warm lentil", "garden", "nothing known"])
def test_what_is_left_out_does_not_depend_on_segments(unwanted: str) -> None:
    index = CollectionIndex(THINGS, [])
    for item in ITEMS:
        index.apply(changes([item]), THINGS)
    index.publish(THINGS, 1)
    stems = [set(text.split()) for text in TEXTS]
    plain = {f"i{n:02}" for n, words in enumerate(stems) if unwanted not in words}

    found = without(index.snapshot, unwanted)
    assert found == without(whole(ITEMS), unwanted)
    if " " not in unwanted:
        assert set(found) == plain


# How much of a question is said


def test_what_says_all_of_a_question_covers_it_and_what_says_nothing_does_not() -> None:
    found = ranked(titled(a="lentil soup", b="lentil stew", c="apple cake"), "lentil soup")

    assert dict(zip(found.ids, found.term_coverage, strict=True))["a"] == 1.0
    assert all(0 < share < 1 for id, share in zip(found.ids, found.term_coverage, strict=True) if id == "b")


def test_a_rare_word_covers_more_of_a_question_than_a_common_one() -> None:
    snapshot = titled(a="soup", b="lentil", c="soup of peas", d="soup of leeks", e="soup of beans")
    found = ranked(snapshot, "lentil soup")
    share = dict(zip(found.ids, found.term_coverage, strict=True))

    assert share["b"] > share["a"]


def test_a_word_that_nobody_says_is_not_covered() -> None:
    found = ranked(titled(a="soup", b="cake"), "soup zebra")

    assert all(share < 0.5 for share in found.term_coverage)


@pytest.mark.parametrize("question", QUESTIONS)
def test_there_is_a_share_for_every_id_between_none_and_all(question: str) -> None:
    found = ranked(whole(ITEMS), question)

    assert len(found.term_coverage) == len(found.ids)
    assert all(0 <= share <= 1 for share in found.term_coverage)


# What the fields hold


def held_by(*data: dict[str, Any]) -> dict[str, dict[Any, int]]:
    index, collection = CollectionIndex(THINGS, []), THINGS
    for number, each in enumerate(data):
        collection = collection.widen(each)
        index.apply(changes([Item(f"i{number}", "things", each)]), collection)
    index.publish(collection, 1)
    return index.snapshot.values()


def test_every_value_is_counted_by_path() -> None:
    held = held_by(
        {"name": "x", "tags": ["red", "blue"], "size": {"cm": 3}, "new": True},
        {"name": "y", "tags": ["red"], "size": {"cm": 4}, "new": None},
        {"name": "y", "offers": [{"price": "5"}, {"price": 6}]},
    )

    assert held["tags"] == {"red": 2, "blue": 1}
    assert held["name"] == {"x": 1, "y": 2}
    assert held["size.cm"] == {3: 1, 4: 1}
    assert held["new"] == {True: 1}
    assert held["offers.price"] == {"5": 1, 6: 1}


def test_what_is_gone_is_not_counted() -> None:
    index, kinds = CollectionIndex(THINGS, []), THINGS.widen({"kind": ""})
    index.apply(changes([Item("a", "things", {"kind": "old"}), Item("b", "things", {"kind": "new"})]), kinds)
    index.apply(changes([Item("a", "things", {"kind": "new"})], "update"), kinds)
    index.apply(changes([Item("b", "things", {"kind": "new"})], "delete"), kinds)
    index.publish(kinds, 1)

    assert index.snapshot.values()["kind"] == {"new": 1}


def test_long_texts_are_no_values() -> None:
    held = held_by({"name": "x", "body": "word " * 2000})

    assert (held["name"], held["body"]) == ({"x": 1}, {})
