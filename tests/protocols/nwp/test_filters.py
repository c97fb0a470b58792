"""The filter language over HTTP: what each filter finds, and which ones are refused before anything is looked at."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking
from tests.protocols.nwp.shop import FIELD_UNKNOWN, FILTER_INVALID, REGEX_UNSAFE, found, refusal, refused, shop

from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

NASTY = "a.b'; DROP TABLE items;--"
THINGS: dict[str, dict[str, Any]] = {
    "a": {"name": "Alpha phone", "kind": "phone", "price": 100, "stock": 42, "tags": ["red", "new"], "rating": 4.5},
    "b": {"name": "beta tablet", "kind": "tablet", "price": 250.0, "stock": 0, "tags": ["blue"], "rating": 4.0},
    "c": {"name": "Ünïcode 東京\nsecond line", "kind": "laptop", "price": 299.5, "stock": 7, "tags": []},
    "d": {"name": None, "kind": "phone", "price": None, "stock": None, "tags": None},  # nothing is known of it
    "e": {"kind": "other"},  # and here there is nothing at all
    "f": {"name": 7, "kind": "phone", "price": "250", "stock": 3, "sold": True},  # kinds that the others do not have
    "g": {"name": NASTY, "kind": "tablet", "price": 1000, "stock": 1, "size": {"width": 10}, "sold": False},
    "h": {"name": "Alpha", "kind": "laptop", "price": -1, "tags": [1, "1", None, True], "size": {"width": 20}},
}
EVERYTHING = "abcdefgh"

COMPARISONS: list[tuple[dict[str, Any], str]] = [
    ({"kind": {"$eq": "phone"}}, "adf"),
    ({"price": {"$eq": 250}}, "b"),
    ({"price": {"$eq": 250.0}}, "b"),
    ({"price": {"$eq": "250"}}, "f"),
    ({"stock": {"$eq": True}}, ""),
    ({"sold": {"$eq": True}}, "f"),
    ({"sold": {"$eq": 1}}, ""),
    ({"name": {"$eq": "alpha"}}, ""),
    ({"name": {"$eq": "Ünïcode 東京\nsecond line"}}, "c"),
    ({"kind": {"$ne": "phone"}}, "bcegh"),
    ({"price": {"$lt": 250}}, "ah"),
    ({"price": {"$lte": 250}}, "abh"),
    ({"price": {"$gt": 250}}, "cg"),
    ({"price": {"$gte": 250}}, "bcg"),
    ({"price": {"$gt": "2"}}, "f"),
    ({"name": {"$lt": "B"}}, "ah"),
    ({"size.width": {"$gt": 10}}, "h"),
    ({"id": {"$gte": "g"}}, "gh"),
]
LISTS: list[tuple[dict[str, Any], str]] = [
    ({"kind": {"$in": ["phone", "tablet"]}}, "abdfg"),
    ({"price": {"$in": [100, "250", None]}}, "adef"),
    ({"kind": {"$in": []}}, ""),
    ({"kind": {"$nin": ["phone", "tablet"]}}, "ceh"),
    ({"kind": {"$nin": []}}, EVERYTHING),
    ({"price": {"$between": [100, 250]}}, "ab"),
    ({"price": {"$between": [250, 100]}}, ""),
    ({"name": {"$between": ["A", "Alpha"]}}, "h"),
]
PARTS: list[tuple[dict[str, Any], str]] = [
    ({"name": {"$contains": "pha"}}, "ah"),
    ({"name": {"$contains": "PHA"}}, ""),
    ({"name": {"$contains": "京"}}, "c"),
    ({"name": {"$contains": "%"}}, ""),
    ({"name": {"$contains": "7"}}, ""),
    ({"tags": {"$contains": "red"}}, "a"),
    ({"tags": {"$contains": "re"}}, ""),
    ({"tags": {"$contains": 1}}, "h"),
    ({"tags": {"$contains": "1"}}, "h"),
]
PRESENCE: list[tuple[dict[str, Any], str]] = [
    ({"name": {"$exists": True}}, "abcfgh"),
    ({"name": {"$exists": False}}, "de"),
    ({"tags": {"$exists": True}}, "abch"),
    ({"size.width": {"$exists": True}}, "gh"),
]
PATTERNS: list[tuple[dict[str, Any], str]] = [
    ({"name": {"$regex": "pha"}}, "ah"),
    ({"name": {"$regex": "^Alpha$"}}, "h"),
    ({"name": {"$regex": "(?i)ALPHA"}}, "ah"),
    ({"name": {"$regex": "[東西]京"}}, "c"),
    ({"name": {"$regex": r"\p{Han}+"}}, "c"),
    ({"name": {"$regex": "^.nïcode"}}, "c"),
    ({"name": {"$regex": "(?m)^second"}}, "c"),
    ({"name": {"$regex": "(a|b|e)+t"}}, "b"),
    ({"name": {"$regex": r"^(\d{1,3}\.){3}\d{1,3}$"}}, ""),
    ({"name": {"$regex": "(x+)?(Alpha|Alphabet)$"}}, "h"),
    ({"name": {"$regex": "[a+]+h"}}, ""),
    ({"name": {"$regex": "([[:upper:]+])+lpha"}}, "ah"),
    ({"name": {"$regex": r"(t\w{2})+"}}, "bg"),
    ({"name": {"$regex": "a" * 256}}, ""),
    ({"name": {"$regex": "東" * 256}}, ""),
    ({"name": {"$regex": "7"}}, ""),
]
LOGIC: list[tuple[dict[str, Any], str]] = [
    ({"$and": [{"kind": {"$eq": "phone"}}, {"price": {"$gt": 1}}]}, "a"),
    ({"$or": [{"kind": {"$eq": "other"}}, {"price": {"$lt": 0}}]}, "eh"),
    ({"$not": {"kind": {"$eq": "phone"}}}, "bcegh"),
    ({"$not": {"price": {"$lt": 250}}}, "bcdefg"),
    ({"$not": {"$or": [{"kind": {"$eq": "phone"}}, {"$not": {"stock": {"$gte": 0}}}]}}, "bcg"),
    ({"kind": {"$eq": "phone"}, "stock": {"$gt": 3}}, "a"),
    ({"$or": [{"kind": {"$eq": "other"}}], "kind": {"$ne": "phone"}}, "e"),
    ({"$and": []}, EVERYTHING),
    ({"$or": []}, ""),
]
SEVERAL: list[tuple[Any, str]] = [
    ({"price": {"$gt": 100, "$lt": 299.5}}, "b"),
    ({"name": {"$contains": "Al", "$ne": "Alpha", "$exists": True}}, "a"),
    ({}, EVERYTHING),
    ({"$not": {}}, ""),
    (None, EVERYTHING),
]
ABSENT: list[tuple[dict[str, Any], str]] = [
    ({"price": {"$ne": 100}}, "bcdefgh"),
    ({"price": {"$nin": [100, 250]}}, "cdefgh"),
    ({"price": {"$eq": None}}, "de"),
    ({"price": {"$ne": None}}, "abcfgh"),
    ({"rating": {"$gte": 0}}, "ab"),
    ({"name": {"$gt": 6}}, "f"),
    ({"stock": {"$lt": "9"}}, ""),
    ({"size": {"$gt": 1}}, ""),
    ({"kind": {"$regex": "."}}, EVERYTHING),
    ({"stock": {"$contains": "4"}}, ""),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with shop(tmp_path_factory.mktemp("shop"), THINGS) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


async def matched(client: httpx.AsyncClient, where: Any) -> str:
    return "".join(await found(client, {"filter": where, "order": [{"field": "id"}]}))


async def check(client: httpx.AsyncClient, table: list[tuple[Any, str]]) -> None:
    assert [(where, await matched(client, where)) for where, _ in table] == table


@requirement("nwp:filter:comparison")
async def test_comparisons(client: httpx.AsyncClient) -> None:
    await check(client, COMPARISONS)


@requirement("nwp:filter:lists")
async def test_lists_and_ranges(client: httpx.AsyncClient) -> None:
    await check(client, LISTS)


@requirement("nwp:filter:contains")
async def test_parts_of_texts_and_members_of_arrays(client: httpx.AsyncClient) -> None:
    await check(client, PARTS)


@requirement("nwp:filter:exists")
async def test_what_is_there_and_not_null(client: httpx.AsyncClient) -> None:
    await check(client, PRESENCE)


@requirement("nwp:filter:regex")
async def test_patterns_search_in_unicode_text(client: httpx.AsyncClient) -> None:
    await check(client, PATTERNS)


@requirement("nwp:filter:logic")
async def test_conditions_combine(client: httpx.AsyncClient) -> None:
    await check(client, LOGIC)


@requirement("nwp:filter:several")
async def test_several_operators_on_a_field_must_all_hold_and_no_filter_finds_everything(
    client: httpx.AsyncClient,
) -> None:
    await check(client, SEVERAL)


@requirement("nwp:filter:missing")
async def test_what_is_missing_or_of_another_kind_never_compares_and_never_fails(client: httpx.AsyncClient) -> None:
    await check(client, ABSENT)


@requirement("nwp:filter:logic", "nwp:filter:comparison", "nwp:filter:lists")
async def test_a_record_matches_if_all_of_its_parts_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    things = {
        "1001": {"category": "electronics", "price": 299.0, "stock": 42},
        "1002": {"category": "electronics", "price": 299.0, "stock": 0},
        "1003": {"category": "tablet", "price": 250.0, "rating": 4.0},
    }
    in_stock = [{"category": {"$eq": "electronics"}}, {"price": {"$lt": 500}}, {"stock": {"$gt": 0}}]
    good_or_cheap = {"$or": [{"rating": {"$gte": 4.5}}, {"price": {"$between": [100, 300]}}]}
    mobile = {"category": {"$in": ["phone", "tablet", "laptop"]}}
    async with shop(tmp_path_factory.mktemp("shop"), things) as parts, asking(parts) as client:
        assert await found(client, {"filter": {"$and": in_stock}}) == ["1001"]
        assert await found(client, {"filter": {"$and": [mobile, good_or_cheap]}}) == ["1003"]


def nested(levels: int, operator: str) -> dict[str, Any]:
    where: dict[str, Any] = {"kind": {"$eq": "other"}}
    for _ in range(levels - 1):
        where = {operator: where if operator == "$not" else [where]}
    return where


@requirement("nwp:filter:depth", "nwp:errors:query-filter-invalid")
@pytest.mark.parametrize("operator", ["$and", "$or", "$not"])
async def test_a_filter_is_at_most_eight_levels_deep(client: httpx.AsyncClient, operator: str) -> None:
    others = "abcdfgh"

    assert await matched(client, nested(8, operator)) == (others if operator == "$not" else "e")
    assert await refusal(client, {"filter": nested(9, operator)}) == FILTER_INVALID
    assert await refusal(client, {"filter": {"unheard": {"$eq": 1}, **nested(9, operator)}}) == FILTER_INVALID
    assert await refusal(client, {"filter": nested(400, operator)}) == FILTER_INVALID
    assert await refusal(client, {"filter": {"kind": {"$eq": nested(400, operator)}}}) == FILTER_INVALID


@requirement("nwp:filter:depth")
@pytest.mark.parametrize("levels", [300, 900, 3000, 100_000])
@pytest.mark.parametrize("opened", [b'{"$not":', b"[", b'{"a":['])
async def test_no_depth_breaks_the_node(client: httpx.AsyncClient, opened: bytes, levels: int) -> None:
    closed = b"".join({b"{": b"}", b"[": b"]"}.get(bytes([each]), b"") for each in reversed(opened))
    for member in (b"filter", b"aggregate"):
        body = b'{"%s":%s1%s}' % (member, opened * levels, closed * levels)

        answer = await client.post("/nwp/things/query", content=body)

        assert answer.status_code == 400


@requirement("nwp:filter:regex-unsafe", "nwp:errors:query-regex-unsafe")
@pytest.mark.parametrize(
    "pattern",
    [
        "a" * 257,
        "^(a+)+$",
        "(a*)*",
        "(?:a+b?)*x",
        "((a+))+",
        "(a{1,})+",
        "(a{2,9}){3,}",
        "(?P<word>a+)+",
        "(?i:(x|a+)*)",
        "([a-z]+)*@",
        "(a+)+?",
        r"(\(+)+",
        "(a+){3}",
        "(a|aa)+",
        "(a|a?)*b",
        r"(a)\1",
        r"(?P<a>a)(?P=a)",
        r"(?<a>a)\k<a>",
        "(?=(a+)+)a",
        "(?>a+)+",
        "(a+)++",
        "(a|b){900}",
        "(a?)*",
        "(ab?)+",
        "(a??b)*",
        "((a)?)*",
        "((a)?b)+",
    ],
)
async def test_an_unsafe_pattern_is_refused_before_anything_is_matched(client: httpx.AsyncClient, pattern: str) -> None:
    having = {
        "operations": [{"func": "MAX", "field": "name", "alias": "last"}],
        "having": {"last": {"$regex": pattern}},
    }

    assert await refusal(client, {"filter": {"name": {"$regex": pattern}}}) == REGEX_UNSAFE
    assert await refusal(client, {"filter": {"$and": [{}, {"$not": {"name": {"$regex": pattern}}}]}}) == REGEX_UNSAFE
    assert await refusal(client, {"aggregate": having}) == REGEX_UNSAFE


@requirement("nwp:filter:regex-unsafe")
@pytest.mark.parametrize(
    "pattern",
    [r"\p{L}+", r"^\p{Lu}\p{Ll}+", r"^\w{1,255}$", "^.{1,200}$", r"\d+(\.\d+)?", "a+?b", "https?://", "(a?b)?"],
)
async def test_a_pattern_that_repeats_nothing_repeated_is_let_through(client: httpx.AsyncClient, pattern: str) -> None:
    answer = await client.post("/nwp/things/query", json={"filter": {"name": {"$regex": pattern}}})
    assert answer.status_code == 200, answer.text


@requirement("nwp:filter:regex-syntax", "nwp:errors:query-filter-invalid")
@pytest.mark.parametrize("pattern", ["(", "[a", "a**", "*a", "(?=a)", r"\q", "(?<!a)b", "a{2,1}", 7, None, ["a"]])
async def test_a_pattern_with_wrong_syntax_is_an_invalid_filter(client: httpx.AsyncClient, pattern: Any) -> None:
    assert await refusal(client, {"filter": {"name": {"$regex": pattern}}}) == FILTER_INVALID


@requirement("nwp:filter:unknown-operator", "nwp:errors:query-filter-invalid")
@pytest.mark.parametrize(
    "where",
    [
        {"price": {"$like": "a"}},
        {"price": {"$GT": 1}},
        {"price": {"$": 1}},
        {"price": {"$gt": 1, "lt": 2}},
        {"price": {"$not": {"$gt": 1}}},
        {"price": {}},
        {"$nor": [{"price": {"$gt": 1}}]},
        {"$where": "1 = 1"},
        {"$eq": 1},
        {"$and": {"price": {"$gt": 1}}},
        {"$or": [1]},
        {"$not": [{"price": {"$gt": 1}}]},
        {"price": {"$in": 1}},
        {"price": {"$in": [[1]]}},
        {"price": {"$between": [1]}},
        {"price": {"$between": [1, 2, 3]}},
        {"price": {"$exists": "yes"}},
        {"price": {"$eq": [1]}},
        {"price": {"$eq": {"a": 1}}},
        {"price": {"$lt": 10**400}},
    ],
)
async def test_what_is_no_filter_is_refused(client: httpx.AsyncClient, where: dict[str, Any]) -> None:
    assert await refusal(client, {"filter": where}) == FILTER_INVALID


@requirement("nwp:filter:bare-value")
async def test_a_bare_value_is_refused_unless_the_site_reads_it_as_equal(
    client: httpx.AsyncClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lenient")
    async with shop(folder, THINGS, nwp={"lenient": True}) as parts, asking(parts) as lenient:
        assert await matched(lenient, {"kind": "phone"}) == "adf"
        assert await matched(lenient, {"kind": "phone", "price": {"$gt": 1}}) == "a"
        assert await matched(lenient, {"price": None}) == "de"

    for where in ({"kind": "phone"}, {"price": None}, {"price": 1}, {"tags": ["red"]}, {"$and": [{"kind": "phone"}]}):
        assert await refusal(client, {"filter": where}) == FILTER_INVALID


@requirement("nwp:filter:parameters", "nwp:filter:names")
async def test_nothing_in_a_filter_becomes_part_of_a_statement(client: httpx.AsyncClient) -> None:
    hostile = ("' OR '1'='1", '" OR ""="', "x'); DROP TABLE items;--", "%", "_", "\\", "$.name", "?", ":1", "\0")
    names = ("1=1", "price OR 1", "price'", 'price"', "data->>'name'", "price;--", "json_extract(data)")

    assert await matched(client, {"name": {"$eq": NASTY}}) == "g"
    assert await matched(client, {"name": {"$contains": "DROP TABLE"}}) == "g"
    for value in hostile:
        assert await matched(client, {"name": {"$eq": value}}) == ""
        assert await matched(client, {"name": {"$in": [value]}}) == ""
        assert await matched(client, {"tags": {"$contains": value}}) == ""
    for name in names:
        assert await refusal(client, {"filter": {name: {"$eq": 1}}}) == FILTER_INVALID
    assert await refusal(client, {"filter": {"1": {"$eq": 1}}}) == FIELD_UNKNOWN
    assert await matched(client, {}) == EVERYTHING


@requirement("nwp:errors:query-filter-invalid")
@pytest.mark.parametrize(
    "where",
    [
        {"price": {"$eq": b"250"}},
        {"price": {"$lt": datetime(2026, 1, 1, tzinfo=UTC)}},
        {"price": {"$eq": float("nan")}},
        {"price": {"$lt": float("inf")}},
        {"price": {"$in": [1, float("-inf")]}},
        {"price": {"$eq": msgspec.msgpack.Ext(7, b"x")}},
        {"price": {7: 1}},
        {b"price": {"$eq": 1}},
        {7: {"$eq": 1}},
        {"$and": [{None: {"$eq": 1}}]},
    ],
)
async def test_values_that_json_cannot_say_are_refused(client: httpx.AsyncClient, where: Any) -> None:
    having = {"operations": [{"func": "COUNT", "alias": "n"}], "having": where}
    bodies = ({"filter": where}, {"aggregate": having})

    answers = [await client.post("/nwp/things/query", content=msgspec.msgpack.encode(said)) for said in bodies]

    assert [refused(each) for each in answers] == [FILTER_INVALID] * 2
