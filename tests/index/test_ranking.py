"""How well items match, and that the answer does not depend on how they came into the index."""

from datetime import UTC, datetime

import numpy as np
import pytest

from portico.catalog import Collection
from portico.index import Ranked, Search
from portico.index.memory import CollectionIndex
from portico.index.segment import Vocabulary, build_segment, dump_segment, load_segment, merge_segments
from portico.index.snapshot import Snapshot
from portico.items import Change, Item

THINGS = Collection("things")
AT = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ["soup", "lentil", "cake", "apple", "bread", "warm", "sweet", "old", "new", "garden"]
TEXTS = [" ".join(WORDS[(n * k + n) % 10] for k in range(1, 3 + n % 6)) for n in range(60)]
ITEMS = [Item(f"i{n:02}", "things", {"name": text, "n": n}) for n, text in enumerate(TEXTS)]
QUESTIONS = ["soup", "warm lentil soup", "sweet apple cake", '"garden soup"', "nothing known", "the old"]


def ranked(snapshot: Snapshot, text: str, limit: int = 1000) -> Ranked:
    return snapshot.rank(Search(text), limit, None)


def whole(items: list[Item]) -> Snapshot:
    vocabulary = Vocabulary()
    segment = build_segment(items, THINGS, vocabulary)
    return Snapshot(THINGS, vocabulary, (segment,), (np.ones(len(items), bool),)).counted()


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
    assert found.by_word[0] - found.by_word[1] < found.by_word[1] - found.by_word[2]


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
    assert ranked(Snapshot(THINGS, Vocabulary()), "soup").ids == []


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
    vocabulary = Vocabulary()
    parts = [build_segment(ITEMS[n : n + 20], THINGS, vocabulary) for n in (0, 20, 40)]
    live = [np.arange(20) % 3 > 0 for _ in parts]
    merged = merge_segments(parts, live)
    kept = [item for n, item in enumerate(ITEMS) if n % 20 % 3]

    assert ranked(Snapshot(THINGS, vocabulary, (merged,), (np.ones(len(merged), bool),)).counted(), question) == ranked(
        whole(kept), question
    )
    assert ranked(Snapshot(THINGS, vocabulary, tuple(parts), tuple(live)).counted(), question) == ranked(
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
    vocabulary = Vocabulary()
    segment = build_segment(ITEMS, THINGS, vocabulary)

    loaded, words = load_segment(dump_segment(segment, vocabulary))

    assert ranked(Snapshot(THINGS, words, (loaded,), (np.ones(60, bool),)).counted(), question) == ranked(
        whole(ITEMS), question
    )


def test_an_item_with_a_number_beyond_any_column_can_be_written_and_read() -> None:
    vocabulary = Vocabulary()
    collection = THINGS.widened({"o": {}})
    segment = build_segment([Item("a", "things", {"o": {"n": 10**25}})], collection, vocabulary)

    loaded, _ = load_segment(dump_segment(segment, vocabulary))

    assert loaded.ids == ["a"]


def test_pages_of_a_ranking_join_without_gap_or_overlap() -> None:
    snapshot = whole(ITEMS)
    complete = ranked(snapshot, "soup cake")

    found: list[str] = []
    after = None
    while True:
        page = snapshot.rank(Search("soup cake"), 7, after)
        found += page.ids
        if len(page.ids) < 7:
            break
        after = (page.scores[-1], page.ids[-1])

    assert found == complete.ids


def test_a_page_behind_many_ties_is_full_when_more_follow() -> None:
    equals = [Item(f"a{n:02}", "things", {"name": "soup"}) for n in range(15)]
    others = [Item(f"b{n:03}", "things", {"name": "soup " + "x " * (n + 1)}) for n in range(300)]
    snapshot = whole([*equals, *others])

    first = snapshot.rank(Search("soup"), 15, None)
    second = snapshot.rank(Search("soup"), 15, (first.scores[-1], first.ids[-1]))

    assert first.ids == [item.id for item in equals]
    assert len(second.ids) == 15
