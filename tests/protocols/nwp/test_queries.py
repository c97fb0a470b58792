"""Queries over HTTP: what comes back, in which order, how much of it, and how to get the rest."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking, key_of
from tests.protocols.nwp.shop import CURSOR_INVALID, FIELD_UNKNOWN, FILTER_INVALID, ask, capsule, found, refusal, shop

from portico.catalog import Collection
from portico.items import diff
from portico.protocols.nwp.frames import CapsFrame, EncodingTier, QueryFrame, decode, encode
from portico.protocols.nwp.queries import publish_patch
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUEST = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
# Twenty-five things of three colours; the dearest come first, and some cost the same.
THINGS: dict[str, dict[str, Any]] = {
    f"t{n:02}": {"name": f"Thing {n}", "price": 100 - n // 2, "colour": ("red", "green", "blue")[n % 3]}
    for n in range(25)
}
IDS = list(THINGS)
BY_ID = {"order": [{"field": "id"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with shop(tmp_path_factory.mktemp("shop"), THINGS) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


async def walk(client: httpx.AsyncClient, said: dict[str, Any]) -> list[list[str]]:
    """The ids on each page of a query."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while cursor or not pages:
        page = await capsule(client, {**said, "cursor": cursor})
        pages.append([each["id"] for each in page["data"]])
        cursor = page.get("next_cursor")
    return pages


@requirement("nwp:query:answer")
async def test_records_come_in_a_capsule_with_their_anchor_and_the_id_of_the_request(client: httpx.AsyncClient) -> None:
    anchor = (await client.get("/nwp/things/.schema")).json()["anchor_id"]

    answer = await ask(client, {"anchor_ref": anchor, "filter": {"id": {"$eq": "t03"}}, "request_id": REQUEST})

    told = answer.json()
    assert told == {
        "frame": "0x04",
        "anchor_ref": anchor,
        "count": 1,
        "data": [{"id": "t03", "name": "Thing 3", "price": 99, "colour": "red"}],
        "token_est": told["token_est"],
        "request_id": REQUEST,
    }
    assert answer.headers["content-type"] == "application/nwp-capsule"
    assert (answer.headers["x-nwp-schema"], answer.headers["x-nwp-request-id"]) == (anchor, REQUEST)


@requirement("nwp:query:answer")
async def test_a_query_without_anything_is_the_first_twenty_records_in_either_tier(client: httpx.AsyncClient) -> None:
    bare = await capsule(client, {})
    framed = {
        tier: decode((await client.post("/nwp/things/query", content=encode(QueryFrame(), tier))).content)
        for tier in EncodingTier
    }

    assert [each["id"] for each in bare["data"]] == IDS[:20]
    for answer in framed.values():
        assert isinstance(answer, CapsFrame)
        assert (answer.data, answer.count, answer.anchor_ref) == (bare["data"], 20, bare["anchor_ref"])


@requirement("nwp:fields:chosen")
@pytest.mark.parametrize(
    ("fields", "record"),
    [
        (["price"], {"price": 99}),
        (["colour", "id", "colour"], {"id": "t03", "colour": "red"}),
        ([], {"id": "t03", "name": "Thing 3", "price": 99, "colour": "red"}),
        (None, {"id": "t03", "name": "Thing 3", "price": 99, "colour": "red"}),
    ],
)
async def test_records_have_the_fields_that_were_asked_for(
    client: httpx.AsyncClient, fields: list[str] | None, record: dict[str, Any]
) -> None:
    answer = await capsule(client, {"filter": {"id": {"$eq": "t03"}}, "fields": fields})

    assert answer["data"] == [record]


@requirement("nwp:limit:bounds", "nwp:limit:odd")
async def test_a_limit_bounds_a_page_and_odd_ones_are_mended_or_refused(client: httpx.AsyncClient) -> None:
    counts = {limit: (await capsule(client, {"limit": limit}))["count"] for limit in (1, 7, 0, None, 5000, 10**25)}

    assert counts == {1: 1, 7: 7, 0: 20, None: 20, 5000: 25, 10**25: 25}
    for odd in (-1, 1.5, "7", True, [], {}):
        assert await refusal(client, {"limit": odd}) == FILTER_INVALID


@requirement("nwp:limit:bounds", "nwp:limit:odd")
async def test_a_page_has_never_more_than_a_thousand_records(tmp_path_factory: pytest.TempPathFactory) -> None:
    many = {f"m{n:04}": {"n": n} for n in range(1001)}
    async with shop(tmp_path_factory.mktemp("many"), many) as parts, asking(parts) as client:
        page = await capsule(client, {"limit": 5000})
        rest = await capsule(client, {"limit": 5000, "cursor": page["next_cursor"]})

    assert (page["count"], rest["count"], "next_cursor" in rest) == (1000, 1, False)


@requirement("nwp:order:several")
async def test_records_are_sorted_by_several_fields_each_in_its_direction(client: httpx.AsyncClient) -> None:
    def order(*keys: tuple[str, str]) -> dict[str, Any]:
        return {"order": [{"field": field, "dir": direction} for field, direction in keys], "limit": 100}

    by_colour = await found(client, order(("colour", "ASC"), ("price", "desc"), ("id", "DESC")))
    by_price = await found(client, order(("price", "ASC"), ("id", "ASC")))

    assert by_colour == sorted(sorted(IDS, reverse=True), key=lambda id: (THINGS[id]["colour"], -THINGS[id]["price"]))
    assert by_price == sorted(IDS, key=lambda id: THINGS[id]["price"])
    assert await found(client, {"order": [{"field": "id"}], "limit": 2}) == ["t00", "t01"]
    assert await found(client, {"order": [{"field": "id", "dir": None}], "limit": 2}) == ["t00", "t01"]
    assert await refusal(client, order(("price", "UP"))) == FILTER_INVALID
    assert await refusal(client, {"order": [{"dir": "ASC"}]}) == FILTER_INVALID


@requirement("nwp:cursor:next")
@pytest.mark.parametrize(
    "said",
    [{}, {"order": [{"field": "price", "dir": "DESC"}]}, {"filter": {"colour": {"$ne": "red"}}, "fields": ["id"]}],
    ids=["plain", "sorted", "filtered"],
)
async def test_cursors_lead_to_every_record_once_and_the_last_page_has_none(
    client: httpx.AsyncClient, said: dict[str, Any]
) -> None:
    whole = await found(client, {**said, "limit": 1000})

    pages = await walk(client, {**said, "limit": 8})

    assert [id for page in pages for id in page] == whole
    assert [len(page) for page in pages[:-1]] == [8] * (len(pages) - 1)


@requirement("nwp:cursor:next")
async def test_a_page_that_ends_with_the_last_record_has_no_cursor(client: httpx.AsyncClient) -> None:
    assert [len(page) for page in await walk(client, {"limit": 5})] == [5] * 5


@requirement("nwp:cursor:bound", "nwp:errors:query-cursor-invalid")
async def test_a_cursor_that_was_altered_or_is_of_another_query_is_refused(client: httpx.AsyncClient) -> None:
    said: dict[str, Any] = {"limit": 5, "filter": {"price": {"$gt": 50}}, "fields": ["id", "name"], **BY_ID}
    cursor = (await capsule(client, said))["next_cursor"]
    other = "B" if cursor[20] == "A" else "A"
    forged = (cursor[:20] + other + cursor[21:], cursor[:-4], cursor + "AAAA", "nonsense", "a" * 100_000, "ü", 5, [])
    others = ({"filter": {"price": {"$gt": 51}}}, {"fields": ["id"]}, {"order": [{"field": "id", "dir": "DESC"}]})

    assert [each["id"] for each in (await capsule(client, {**said, "cursor": cursor}))["data"]] == IDS[5:10]
    for bad in forged:
        assert await refusal(client, {**said, "cursor": bad}) == CURSOR_INVALID
    for changed in others:
        assert await refusal(client, {**said, **changed, "cursor": cursor}) == CURSOR_INVALID


@requirement("nwp:cursor:bound")
async def test_a_cursor_belongs_to_the_caller_who_got_it(parts: Parts, client: httpx.AsyncClient) -> None:
    mine, other = [{"authorization": f"Bearer {await key_of(parts)}"} for _ in range(2)]
    cursor = (await client.post("/nwp/things/query", json={"limit": 5}, headers=mine)).json()["next_cursor"]
    next_page = {"limit": 5, "cursor": cursor}

    answers = [await client.post("/nwp/things/query", json=next_page, headers=key) for key in (mine, other, {})]

    assert [each.status_code for each in answers] == [200, 400, 400]
    assert [each["id"] for each in answers[0].json()["data"]] == IDS[5:10]
    assert {each.json()["error"] for each in answers[1:]} == {"NWP-QUERY-CURSOR-INVALID"}


@requirement("nwp:errors:query-cursor-invalid")
async def test_a_cursor_expires(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(parts) as client:
        monkeypatch.setattr("portico.protocols.nwp.service.CURSOR_SECONDS", -1.0)
        cursor = (await capsule(client, {"limit": 5}))["next_cursor"]

        assert await refusal(client, {"limit": 5, "cursor": cursor}) == CURSOR_INVALID


@requirement("nwp:errors:query-field-unknown")
@pytest.mark.parametrize(
    "said",
    [
        {"fields": ["id", "weight"]},
        {"fields": ["name.first"]},
        {"filter": {"weight": {"$gt": 1}}},
        {"filter": {"$or": [{"price": {"$gt": 1}}, {"$not": {"weight": {"$exists": True}}}]}},
        {"order": [{"field": "price"}, {"field": "weight"}]},
        {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}], "group_by": ["weight"]}},
        {"aggregate": {"operations": [{"func": "SUM", "field": "weight", "alias": "n"}]}},
    ],
)
async def test_a_field_that_there_is_not_is_refused_wherever_it_is_named(
    client: httpx.AsyncClient, said: dict[str, Any]
) -> None:
    assert await refusal(client, said) == FIELD_UNKNOWN


@requirement("nwp:filter:names", "nwp:errors:query-filter-invalid")
@pytest.mark.parametrize(
    "name", ["a b", "price'; DROP TABLE items;--", "naïve", "", "a" * 129, "a-b", "price\0", "[0]"]
)
async def test_a_name_with_other_characters_is_refused_wherever_it_stands(client: httpx.AsyncClient, name: str) -> None:
    grouped = {"operations": [{"func": "COUNT", "alias": "n"}], "group_by": [name]}
    places = ({"fields": [name]}, {"filter": {name: {"$eq": 1}}}, {"order": [{"field": name}]}, {"aggregate": grouped})

    for said in places:
        assert await refusal(client, said) == FILTER_INVALID


async def test_members_of_the_wrong_kind_are_refused_in_either_tier(client: httpx.AsyncClient) -> None:
    wrong: list[dict[str, Any]] = [
        {"fields": "id"},
        {"fields": [1]},
        {"order": {"field": "id"}},
        {"filter": []},
        {"filter": "price"},
        {"token_budget": -1},
        {"depth": "1"},
    ]

    for said in wrong:
        assert await refusal(client, said) == FILTER_INVALID
        packed = await client.post("/nwp/things/query", content=msgspec.msgpack.encode(said))
        assert (packed.status_code, packed.json()["error"]) == (400, "NWP-QUERY-FILTER-INVALID")


async def test_a_patch_names_fields_as_the_schema_does() -> None:
    names = Collection("shops").widen({"Region Name": "x", "a/b": 1, "offers": {}}).names
    before = {"Region Name": "x", "a/b": 1, "offers": {"Region Name": 1}}
    after = {"Region Name": "y", "a/b": 2, "offers": {"Region Name": 2}}

    paths = [step["path"] for step in publish_patch(diff(before, after), names)]

    assert paths == ["/region_name", "/a_b", "/offers/Region Name"]
