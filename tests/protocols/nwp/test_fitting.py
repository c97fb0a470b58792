"""Records that are trimmed to a frame lose what they can do without, in the order in which a budget trims them."""

from typing import Any

import pytest

from portico.access.budget import trim
from portico.errors import TooLarge
from portico.protocols.nwp.fitting import fit_records
from portico.protocols.nwp.frames import EncodingTier, encode_value

ROOM = 2000
LIST = list(range(1000, 1100))  # 300 to 500 bytes, which no summary shortens


@pytest.fixture(params=list(EncodingTier))
def tier(request: pytest.FixtureRequest) -> EncodingTier:
    return request.param


def lists(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, LIST)


def test_named_fields_go_after_all_others_however_large(tier: EncodingTier) -> None:
    record = {"id": "r", "asked": [*LIST, *LIST], **lists("a", "b", "c", "d", "e", "f", "g", "h")}

    trimmed = fit_records([record], ROOM, tier, last={"asked"})

    assert "asked" in trimmed.records[0]
    assert trimmed.dropped_fields
    assert "asked" not in trimmed.dropped_fields


def test_fields_to_keep_and_the_title_stay_though_they_are_the_largest(tier: EncodingTier) -> None:
    record = {"kept": LIST, "name": "n" * 120, **{f"field{n:03}": n for n in range(300)}, "id": "r"}

    trimmed = fit_records([record], ROOM, tier, keep=("kept",))

    assert {"id", "name", "kept"} <= trimmed.records[0].keys()
    assert trimmed.records[0]["name"] == "n" * 120
    assert 0 < len(trimmed.dropped_fields) <= 300


def test_a_long_title_is_summarized_only_if_nothing_else_helps(tier: EncodingTier) -> None:
    title, text = "title " * 200, "text " * 200

    first = fit_records([{"id": "r", "name": title, "about": text, **lists("a", "b", "c")}], ROOM, tier)
    then = fit_records([{"id": "r", "name": title * 9, "about": text, "n": 1}], ROOM, tier)

    assert first.records[0]["name"] == title
    assert first.summarized_fields == ("about",)
    assert first.dropped_fields
    assert (then.summarized_fields, then.dropped_fields) == (("name",), ())
    assert len(then.records[0]["name"]) < 150


def test_a_record_without_id_and_title_loses_a_first_field_that_no_frame_holds(tier: EncodingTier) -> None:
    trimmed = fit_records([{"items": LIST * 50, "total": 5}], ROOM, tier)

    assert trimmed.records == [{"total": 5}]
    assert trimmed.dropped_fields == ("items",)


def test_several_records_are_trimmed_to_a_frame_as_to_a_budget() -> None:
    records = [{"id": f"r{n}", "text": "word " * 60, "list": LIST[: 10 * n]} for n in range(12)]

    fitted, trimmed = fit_records(records, ROOM, EncodingTier.JSON), trim(records, ROOM // 4, None)

    assert len(encode_value(fitted.records, EncodingTier.JSON)) <= ROOM
    assert fitted.dropped_fields == trimmed.dropped_fields == ("list",)
    assert fitted.summarized_fields == trimmed.summarized_fields == ("text",)
    assert [record["id"] for record in fitted.records] == [record["id"] for record in records]


def test_a_record_whose_required_fields_fit_no_frame_is_refused_with_the_remedy(tier: EncodingTier) -> None:
    with pytest.raises(TooLarge) as refusal:
        fit_records([{"id": "r", "kept": LIST * 50}], ROOM, tier, keep=("kept",))

    assert refusal.value.details["limit"] == ROOM
    assert "max_frame_payload" in refusal.value.hint
