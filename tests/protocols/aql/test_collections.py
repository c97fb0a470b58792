"""Collections in MCP-AQL: filters, orders, fields, pages on and back, aggregates."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.aql.library import BOOKS, READER, STAFF, data, library, run

from portico.errors import (
    Forbidden,
    InvalidAggregate,
    InvalidCursor,
    InvalidParams,
    InvalidQuery,
    SiteError,
    UnknownField,
    UnknownItem,
)
from portico.operations import collection_operations
from portico.protocols.aql.collections import collection_operations_for
from portico.protocols.aql.shapes import AqlOperation, AqlRequestContext, OperationWarning
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

# By pages, then from the dearest to the cheapest, those without a price last, then by id.
BY_PAGES = ["mosses", "atlas", "tides", "ferns", "dunes"]
SORT = [{"field": "pages"}, {"field": "price", "order": "desc"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with library(tmp_path_factory.mktemp("library"), aql={"page": 2, "most": 3}) as parts:
        yield parts


@pytest.fixture
def books(parts: Parts) -> dict[str, AqlOperation]:
    return {
        each.name: each
        for each in collection_operations_for(parts.site, parts.config, parts.site.catalog.collection("books"))
    }


def ids(told: dict[str, Any]) -> list[str]:
    return [item["id"] for item in told["items"]]


async def refusal(offer: AqlOperation, asking: AqlRequestContext = READER, **params: Any) -> SiteError:
    with pytest.raises(SiteError) as refused:
        await run(offer, asking, **params)
    return refused.value


async def test_a_collection_offers_what_the_catalog_calls_by_the_same_names(
    parts: Parts, books: dict[str, AqlOperation]
) -> None:
    known = parts.site.catalog.operations
    read = [f"{verb}_{noun}" for verb, noun in (("list", "books"), ("search", "books"), ("get", "book"))]

    assert list(books) == [*read, "count_books"]
    assert all(each.operation is not None and known[name].kind == each.kind for name, each in books.items())
    assert {each.name for each in collection_operations(parts.site.catalog.collection("books"))} >= set(books)


@requirement("aql:page:first-after", "aql:page:last-before", "aql:page:info", "aql:page:sort")
async def test_a_walk_on_and_a_walk_back_show_the_same_items_in_the_same_order(books: dict[str, AqlOperation]) -> None:
    walk = books["list_books"]
    on = [await data(walk, sort=SORT, first=2)]
    while on[-1]["pageInfo"]["hasNextPage"]:
        on.append(await data(walk, sort=SORT, first=2, after=on[-1]["pageInfo"]["endCursor"]))
    back = [await data(walk, sort=SORT, last=2)]
    while back[-1]["pageInfo"]["hasPreviousPage"]:
        back.append(await data(walk, sort=SORT, last=2, before=back[-1]["pageInfo"]["startCursor"]))

    assert [ids(page) for page in on] == [BY_PAGES[:2], BY_PAGES[2:4], BY_PAGES[4:]]
    assert [ids(page) for page in back] == [BY_PAGES[3:], BY_PAGES[1:3], BY_PAGES[:1]]
    assert [page["pageInfo"]["hasPreviousPage"] for page in on] == [False, True, True]
    assert [page["pageInfo"]["hasNextPage"] for page in back] == [False, True, True]


@requirement("aql:page:info")
async def test_every_cursor_of_a_page_leads_both_ways(books: dict[str, AqlOperation]) -> None:
    walk = books["list_books"]
    start = await data(walk, sort=SORT, first=2)
    middle = await data(walk, sort=SORT, first=2, after=start["pageInfo"]["endCursor"])
    end = await data(walk, sort=SORT, last=1)

    async def after(cursor: str) -> list[str]:
        return ids(await data(walk, sort=SORT, first=3, after=cursor))

    async def before(cursor: str) -> list[str]:
        return ids(await data(walk, sort=SORT, last=3, before=cursor))

    first, last = middle["pageInfo"]["startCursor"], middle["pageInfo"]["endCursor"]
    assert (await before(first), await after(first)) == (BY_PAGES[:2], BY_PAGES[3:])
    assert (await before(last), await after(last)) == (BY_PAGES[:3], BY_PAGES[4:])
    assert await before(start["pageInfo"]["startCursor"]) == []
    assert end["pageInfo"]["startCursor"] == end["pageInfo"]["endCursor"]
    assert await after(end["pageInfo"]["endCursor"]) == []
    assert await before(end["pageInfo"]["startCursor"]) == BY_PAGES[1:4]


@requirement("aql:page:cursor-opaque")
async def test_fields_may_change_on_the_way_but_a_cursor_stays_with_its_query(books: dict[str, AqlOperation]) -> None:
    walk = books["list_books"]
    cursor = (await data(walk, first=2))["pageInfo"]["endCursor"]

    assert ids(await data(walk, first=2, after=cursor, fields="minimal")) == ["ferns", "mosses"]
    foreign = await refusal(walk, first=2, after=cursor, sort={"field": "pages"})
    assert isinstance(foreign, InvalidCursor)
    assert foreign.details == {"operation": "list_books", "param": "after"}


@requirement("aql:page:conflicts")
@pytest.mark.parametrize(
    "given",
    [
        {"first": 1, "last": 1},
        {"after": "x"},
        {"before": "x"},
        {"first": 1, "before": "x"},
        {"after": "x", "last": 1},
        {"first": 1, "after": ""},
    ],
    ids="+".join,
)
async def test_what_no_page_can_be_is_refused(books: dict[str, AqlOperation], given: dict[str, Any]) -> None:
    refused = await refusal(books["list_books"], **given)

    assert isinstance(refused, InvalidParams)
    assert refused.details == {
        "operation": "list_books",
        "param": "pagination",
        "expected": "first, first with after, last, or last with before",
        "got": ", ".join(given),
    }


@requirement("aql:page:clamped", "aql:page:truncated-warning")
async def test_a_page_is_no_longer_than_the_site_allows_and_says_so(books: dict[str, AqlOperation]) -> None:
    answered = await run(books["list_books"], last=50, include_total=True, fields=[])
    cursors = {name: answered.data["pageInfo"].pop(name) for name in ("startCursor", "endCursor")}

    assert all(cursors.values())
    assert answered.data == {
        "items": [{"id": "ferns"}, {"id": "mosses"}, {"id": "tides"}],
        "pageInfo": {"hasNextPage": False, "hasPreviousPage": True, "totalCount": 5, "pageSize": 3},
    }
    assert answered.warnings == (
        OperationWarning(
            code="VALIDATION_TRUNCATED_WARNING",
            message="'last' was reduced from 50 to 3",
            details={"field": "last", "original_count": 50, "truncated_count": 3, "limit": 3},
        ),
    )
    assert (await data(books["list_books"]))["pageInfo"]["pageSize"] == 2


@requirement(
    "aql:fields:paths",
    "aql:fields:presets",
    "aql:fields:union",
    "aql:fields:missing",
    "aql:fields:schema-names",
)
async def test_presets_and_paths_pick_fields_and_together_give_both(
    parts: Parts, books: dict[str, AqlOperation]
) -> None:
    get = books["get_book"]
    version = (await parts.store.items.get_many("books", ["dunes"]))["dunes"].version
    tags = {"_version": version, "_etag": f'W/"{version}"'}
    minimal = {"id": "dunes", "name": "Dunes", "url": "https://library.example/dunes"}
    scalars = {
        **minimal,
        "description": "Sand and more sand.",
        "schema_type": "Book",
        "genre": "novel",
        "pages": 300,
        "price": 12.0,
    }
    whole = {name: value for name, value in BOOKS["dunes"].items() if name != "@type"}

    assert await data(get, id="dunes", fields="minimal") == minimal
    assert await data(get, id="dunes", preset="standard") == {**scalars, **tags}
    assert await data(get, id="dunes") == {"id": "dunes", "schema_type": "Book", **whole, **tags}
    assert await data(get, id="dunes", fields=["name"], preset="full") == await data(get, id="dunes")
    assert await data(get, id="dunes", fields=["offers.price", "schema_type", "dateModified"]) == {
        "id": "dunes",
        "offers": {"price": 12.0},
        "schema_type": "Book",
    }
    assert await data(get, id="dunes", fields=["genre", "_etag"], preset="minimal") == {
        **minimal,
        "genre": "novel",
        "_etag": tags["_etag"],
    }
    assert "minimal = id, name, url; standard = id, name, url, description, schema_type" in get.description


@requirement("aql:fields:defaults", "aql:page:filter")
async def test_lists_are_standard_and_searches_minimal(books: dict[str, AqlOperation]) -> None:
    listed = await data(books["list_books"], filter={"schema_type": "Book", "name": "Tides"})
    found = await data(books["search_books"], query="sand tides", first=2, include_total=True)

    assert {*listed["items"][0]} == {"id", "name", "schema_type", "genre", "pages", "price", "_version", "_etag"}
    assert sorted(found["items"], key=lambda item: item["id"]) == [
        {"id": "dunes", "name": "Dunes", "url": "https://library.example/dunes"},
        {"id": "tides", "name": "Tides"},
    ]
    assert found["pageInfo"] == {"hasNextPage": False, "hasPreviousPage": False, "totalCount": 2, "pageSize": 2}


@requirement("aql:page:names")
async def test_a_search_goes_on_from_its_cursor(books: dict[str, AqlOperation]) -> None:
    search = books["search_books"]
    best = await data(search, query="sand tides", first=1, fields=["_computed.score"])
    rest = await data(search, query="sand tides", first=1, after=best["pageInfo"]["endCursor"])

    assert sorted(ids(best) + ids(rest)) == ["dunes", "tides"]
    assert best["items"][0]["_computed"]["score"] > 0
    assert {each.name for each in search.params}.isdisjoint({"last", "before", "aggregate"})


@requirement("aql:computed:requested")
async def test_computed_fields_are_told_when_they_are_asked_for(books: dict[str, AqlOperation]) -> None:
    wanted = [f"_computed.{name}" for name in ("title", "text_length", "related_count")]
    told = await data(books["get_book"], id="ferns", fields=[*wanted, "_computed.age_days"])
    undated = await data(books["get_book"], id="dunes", fields=[*wanted[::2], "_computed.age_days"])

    age = told["_computed"].pop("age_days")
    assert age > 365 * 5
    assert told == {
        "id": "ferns",
        "_computed": {"title": "Ferns", "text_length": len("BookFernsnaturePersonBo2020-01-01"), "related_count": 1},
    }
    assert undated == {"id": "dunes", "_computed": {"title": "Dunes", "related_count": 2}}


@requirement(
    "aql:page:filter",
    "aql:page:sort",
    "aql:fields:invalid",
    "aql:aggregate:unsupported",
    "aql:computed:not-filterable",
)
@pytest.mark.parametrize(
    ("operation", "given", "kind", "told"),
    [
        ("list_books", {"filter": {"colour": 1}}, UnknownField, {"param": "filter", "field": "colour"}),
        ("list_books", {"filter": {"pages": {"$like": 1}}}, InvalidQuery, {"param": "filter", "operator": "like"}),
        ("list_books", {"filter": {"_computed.title": "x"}}, UnknownField, {"param": "filter"}),
        ("count_books", {"filter": []}, InvalidQuery, {"param": "filter", "got": "list"}),
        ("list_books", {"sort": {"field": "colour"}}, UnknownField, {"param": "sort", "field": "colour"}),
        ("list_books", {"sort": {"field": "pages", "order": "up"}}, InvalidParams, {"param": "sort"}),
        ("list_books", {"sort": "pages"}, InvalidParams, {"param": "sort", "got": "string"}),
        ("get_book", {"id": "dunes", "fields": "most"}, InvalidParams, {"expected": "minimal, standard, full"}),
        ("get_book", {"id": "dunes", "fields": ["name", 1]}, InvalidParams, {"param": "fields", "got": "integer"}),
        ("get_book", {"id": "dunes", "fields": ["colour.red"]}, UnknownField, {"param": "fields"}),
        ("get_book", {"id": "dunes", "fields": ["_computed.score"]}, UnknownField, {"field": "_computed.score"}),
        ("list_books", {"aggregate": {"n": {"median": "price"}}}, InvalidParams, {"param": "aggregate"}),
        ("list_books", {"aggregate": {"n": {"group_by": "genre"}}}, InvalidParams, {"param": "aggregate"}),
        ("list_books", {"aggregate": {"n": {"sum": "genre"}}}, InvalidAggregate, {"param": "aggregate"}),
        ("list_books", {"aggregate": {"n": {"count": True, "group_by": "offers"}}}, InvalidAggregate, {}),
        ("list_books", {"aggregate": {"n": {"sum": "colour"}}}, UnknownField, {"param": "aggregate"}),
        ("list_books", {"aggregate": {"n": {"count": True}}, "first": 1}, InvalidParams, {"param": "include_items"}),
    ],
)
async def test_what_a_collection_cannot_do_is_refused_with_what_it_can(
    books: dict[str, AqlOperation], operation: str, given: dict[str, Any], kind: type[SiteError], told: dict[str, Any]
) -> None:
    refused = await refusal(books[operation], **given)

    assert type(refused) is kind
    assert refused.details["operation"] == operation
    assert refused.details | told == refused.details
    if kind is UnknownField:
        assert {"id", "schema_type", "name", "pages"} <= set(refused.details["valid"])
    if "operator" in told:
        assert {"$lt", "$and"} <= set(refused.details["valid"])


@requirement("aql:aggregate:count", "aql:aggregate:functions", "aql:aggregate:items")
async def test_aggregates_reckon_what_the_filter_leaves(books: dict[str, AqlOperation]) -> None:
    wanted = {
        "all": {"count": True},
        "priced": {"count": "price"},
        "genres": {"count": True, "group_by": "genre"},
        "dearest": {"max": "price", "group_by": "genre"},
        "pages": {"sum": "pages"},
        "mean": {"avg": "pages"},
    }
    reckoned = {
        "all": 4,
        "priced": 3,
        "genres": {"novel": 2, "nature": 1, "null": 1},
        "dearest": {"novel": 12.0, "nature": None, "null": 40.0},
        "pages": 900,
        "mean": 225,
    }
    long = {"pages": {"$gte": 200}}
    beside = await data(
        books["list_books"], filter=long, aggregate={"all": wanted["all"]}, include_items=True, first=1, fields=["name"]
    )

    assert (await run(books["list_books"], filter=long, aggregate=wanted)).data == {"aggregations": reckoned}
    assert beside["items"] == [{"id": "atlas", "name": "Atlas"}]
    assert beside["aggregations"] == {"all": 4}
    assert await data(books["count_books"], filter=long) == {"count": 4}


@requirement("aql:aggregate:published")
async def test_what_aggregates_can_do_is_published(books: dict[str, AqlOperation]) -> None:
    known = books["list_books"].aggregation

    assert known is not None
    assert known.functions == ("count", "group_by", "sum", "avg", "min", "max")
    aggregate = next(each for each in books["list_books"].params if each.name == "aggregate")
    assert "count_distinct" in aggregate.description  # which the structure has no name for
    assert {"schema_type", "genre", "pages"} <= set(known.groupable_fields)
    assert known.numeric_fields == ("pages", "price")
    assert books["search_books"].aggregation is None


@requirement("aql:aggregate:visibility")
async def test_an_unknown_item_is_not_found_and_a_closed_collection_stays_closed(
    parts: Parts, books: dict[str, AqlOperation]
) -> None:
    ledgers = {
        each.name: each
        for each in collection_operations_for(parts.site, parts.config, parts.site.catalog.collection("ledgers"))
    }
    missed = await refusal(books["get_book"], id="ann")

    assert type(missed) is UnknownItem
    assert missed.details == {"collection": "books", "id": "ann"}
    for name, given in (
        ("list_ledgers", {}),
        ("get_ledger", {"id": "debts"}),
        ("count_ledgers", {}),
        ("search_ledgers", {"query": "debts"}),
        ("list_ledgers", {"aggregate": {"n": {"count": True}}}),
    ):
        assert isinstance(await refusal(ledgers[name], **given), Forbidden)
    assert await data(ledgers["count_ledgers"], STAFF) == {"count": 1}
