"""`query.location`: what the site can tell filters, what it cannot tell is reported."""

from typing import Any

import pytest
from tests.ask.conftest import Asked, Opened
from tests.conformance.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="module")

INNS = {
    "crow": {"@type": "Hotel", "name": "The Crow", "address": {"addressLocality": "Whitby", "addressCountry": "GB"}},
    "rook": {"@type": "Hotel", "name": "The Rook", "address": {"addressLocality": "Robin Hood's Bay"}},
}
PEAKS = {
    "rigg": {"@type": "Mountain", "name": "Rigg", "geo": {"latitude": 54.40, "longitude": -0.60}},
    "howe": {"@type": "Mountain", "name": "Howe", "geo": {"latitude": 54.46, "longitude": -0.70}},
}
TALES = {"crow-song": {"@type": "Book", "name": "The Crow Song"}, "rigg-song": {"@type": "Book", "name": "Rigg Song"}}
ONE_PLACE: list[Any] = [
    "Whitby",
    "whitby",
    ["Whitby"],
    {"name": "Whitby"},
    {"@type": "Place", "address": {"@type": "PostalAddress", "addressLocality": "Whitby", "addressCountry": "GB"}},
    {"@type": "PostalAddress", "addressLocality": "Whitby"},
    {"@type": "Place", "address": "Whitby"},
]
NEAR_RIGG: list[Any] = [
    "54.40, -0.60",
    "geo:54.40,-0.60",
    {"latitude": 54.4, "longitude": -0.6},
    {"latitude": "54.4", "longitude": "-0.6"},
    {"@type": "Place", "geo": {"@type": "GeoCoordinates", "latitude": 54.4, "longitude": -0.6}},
    {"@type": "GeoCircle", "geoMidpoint": {"latitude": 54.42, "longitude": -0.6}, "geoRadius": 4000},
]
UNREADABLE: list[Any] = [5, True, ["Whitby", "York"], {"a": []}, {"latitude": 540, "longitude": -0.6}, {"name": 5}]


@pytest.fixture
def coast(small: Opened) -> Any:
    return lambda: small(
        {"inns": INNS, "peaks": PEAKS, "tales": TALES},
        {"inns": {"type": "Hotel"}, "peaks": {"type": "Mountain"}, "tales": {"type": "Book"}},
    )


@requirement("nlweb:ask:filter-location")
async def test_a_location_that_items_name_keeps_to_them(coast: Any) -> None:
    async with coast() as ask:
        for location in ONE_PLACE:
            answer = await ask("the crow or the rook", filters={"location": location}, may_clarify=False)

            assert (answer.ids, answer.understood.ignored) == (["crow"], ()), location
            assert answer.limits == {"query.location": "in whitby" if location == "whitby" else "in Whitby"}


async def test_a_position_keeps_to_what_lies_around_it(coast: Any) -> None:
    async with coast() as ask:
        for location in NEAR_RIGG:
            answer = await ask("mountains", filters={"location": location}, may_clarify=False)

            assert (answer.ids, answer.understood.ignored) == (["rigg"], ()), location
            assert "query.location" in answer.limits


@requirement("nlweb:note:unknown-location")
@pytest.mark.parametrize("name", ["location", "near"])
async def test_a_location_that_the_site_cannot_tell_is_reported_and_leaves_out_items_elsewhere(
    coast: Any, name: str
) -> None:
    async with coast() as ask:
        inns = await ask("hotels", filters={name: "Atlantis"}, may_clarify=False)
        tales = await ask("books", filters={name: "Atlantis"}, may_clarify=False)
        both = await ask("crow", filters={name: "Atlantis"}, may_clarify=False)

    assert (inns.ids, set(tales.ids), both.ids) == ([], {"crow-song", "rigg-song"}, ["crow-song"])
    for answer in (inns, tales, both):
        assert answer.understood.ignored == (f"query.{name}",)
    assert "Atlantis" in inns.notes[-1]


async def test_a_location_without_a_place_in_it_is_reported(coast: Any) -> None:
    async with coast() as ask:
        for location in UNREADABLE:
            answer = await ask("crow", filters={"location": location}, may_clarify=False)

            assert set(answer.ids) == {"crow", "crow-song"}, location
            assert answer.understood.ignored == ("query.location",), location


@pytest.mark.parametrize("location", ["", " ", "any", "all", None, []])
async def test_a_location_that_says_nothing_is_not_reported(coast: Any, location: Any) -> None:
    async with coast() as ask:
        answer = await ask("crow", filters={"location": location}, may_clarify=False)

    assert (set(answer.ids), answer.understood.ignored) == ({"crow", "crow-song"}, ())


async def test_a_location_counts_beside_a_place_in_the_question(coast: Any) -> None:
    async with coast() as ask:
        elsewhere = await ask("hotels in Whitby", filters={"location": "Robin Hood's Bay"}, may_clarify=False)
        same = await ask("hotels in Whitby", filters={"location": "Whitby"}, may_clarify=False)

    assert (elsewhere.ids, same.ids) == ([], ["crow"])


async def test_the_second_of_two_locations_is_reported(coast: Any) -> None:
    async with coast() as ask:
        answer = await ask("hotels", filters={"location": "Whitby", "near": "York"}, may_clarify=False)

    assert (answer.ids, answer.understood.ignored) == (["crow"], ("query.near",))


async def test_nothing_around_a_position_is_no_result(coast: Any) -> None:
    async with coast() as ask:
        answer = await ask("mountains", filters={"location": {"latitude": 0, "longitude": 0}}, may_clarify=False)

    assert (answer.ids, answer.understood.ignored) == ([], ())


async def test_two_things_are_compared_wherever_they_are_and_the_location_is_reported(coast: Any) -> None:
    async with coast() as ask:
        answer = await ask("rigg or howe?", filters={"location": "54.40, -0.60"}, may_clarify=False)

    assert (set(answer.ids), answer.understood.ignored) == ({"rigg", "howe"}, ("query.location",))


async def test_a_long_text_is_read_in_part(coast: Any) -> None:
    async with coast() as ask:
        answer = await ask("hotels", filters={"location": "1" * 100_000}, may_clarify=False)

    assert (answer.ids, answer.understood.ignored) == ([], ("query.location",))


async def test_events_are_where_their_places_are(demo: Asked) -> None:
    here = await demo("events", filters={"location": "54.47, -0.58"}, may_clarify=False)
    nowhere = await demo("events", filters={"location": "0, 0"}, may_clarify=False)

    assert (bool(here.ids), nowhere.ids) == (True, [])
    assert (here.understood.ignored, nowhere.understood.ignored) == ((), ())
