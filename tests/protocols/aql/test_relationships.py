"""query_relationships: links between items, found in what they say, as far as the caller may read."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.conformance.requirements import requirement
from tests.protocols.aql.library import READER, STAFF, data, library, run

from portico.errors import InvalidCursor, InvalidParams, UnknownItem
from portico.protocols.aql.relationships import relationships_operation
from portico.protocols.aql.shapes import AqlOperation, AqlRequestContext, OperationWarning, RelationshipCapabilities
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with library(tmp_path_factory.mktemp("library")) as parts:
        yield parts


@pytest.fixture
def query(parts: Parts) -> AqlOperation:
    found = relationships_operation(parts.site, parts.config, ["books", "people", "ledgers", "pamphlets"])
    assert found
    return found


def root(id: str, collection: str = "books") -> dict[str, str]:
    return {"element_type": collection, "element_name": id}


def told(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (each["depth"], each["direction"], each["type"], f"{each['target']['element_type']}/{name}")
        for each in answer["relationships"]
        for name in [each["target"]["element_name"]]
    ]


@requirement("aql:relation:root", "aql:relation:graph")
async def test_the_links_of_an_item_are_told_with_the_graph_they_make(query: AqlOperation) -> None:
    answer = await data(query, root=root("dunes"), direction="outgoing")

    assert answer["pageInfo"].pop("endCursor")
    assert answer == {
        "root": root("dunes"),
        "relationships": [
            {"type": "author", "direction": "outgoing", "target": root("ann", "people"), "depth": 1},
            {"type": "mentions", "direction": "outgoing", "target": root("tides"), "depth": 1},
        ],
        "graph": {
            "nodes": [
                {"id": "books/dunes", **root("dunes")},
                {"id": "people/ann", **root("ann", "people")},
                {"id": "books/tides", **root("tides")},
            ],
            "edges": [
                {"source": "books/dunes", "target": "people/ann", "type": "author"},
                {"source": "books/dunes", "target": "books/tides", "type": "mentions"},
            ],
        },
        "pageInfo": {"hasNextPage": False, "hasPreviousPage": False, "pageSize": 20},
    }


@requirement("aql:relation:root")
async def test_links_are_found_from_both_their_ends(query: AqlOperation) -> None:
    assert told(await data(query, root=root("bo", "people"))) == [
        (1, "incoming", "author", "books/ferns"),
        (1, "outgoing", "knows", "people/ann"),
    ]
    assert told(await data(query, root=root("ann", "people"), direction="incoming", depth=2)) == [
        (1, "incoming", "author", "books/dunes"),
        (1, "incoming", "knows", "people/bo"),
        (2, "incoming", "author", "books/ferns"),
        (2, "incoming", "mentions", "books/tides"),
    ]
    assert told(await data(query, root=root("bo-the-cat", "people"))) == []


@requirement("aql:relation:depth")
async def test_a_walk_goes_as_deep_as_it_is_told_and_one_relationship_leads_one_way(query: AqlOperation) -> None:
    steps = [
        (1, "outgoing", "isPartOf", "books/ferns"),
        (2, "outgoing", "author", "people/bo"),
        (3, "outgoing", "knows", "people/ann"),
    ]
    for depth in (1, 2, 3):
        found = await data(query, root=root("mosses"), direction="outgoing", depth=depth)
        assert told(found) == steps[:depth]

    kept = await data(query, root=root("mosses"), relationship="isPartOf", depth=3)
    assert told(kept) == steps[:1]


@requirement("aql:relation:cycles")
async def test_a_circle_is_closed_once(query: AqlOperation) -> None:
    answer = await data(query, root=root("dunes"), relationship="mentions", depth=3)
    outward = await data(query, root=root("dunes"), direction="outgoing", relationship="mentions", depth=3)

    assert told(answer) == [(1, "incoming", "mentions", "books/tides"), (1, "outgoing", "mentions", "books/tides")]
    assert told(outward) == [(1, "outgoing", "mentions", "books/tides"), (2, "outgoing", "mentions", "books/dunes")]
    assert [node["id"] for node in outward["graph"]["nodes"]] == ["books/dunes", "books/tides"]


@requirement("aql:relation:graph")
async def test_only_the_parts_that_are_asked_for_are_told(query: AqlOperation) -> None:
    answer = await data(query, root=root("mosses"), include=["graph.edges"])

    assert answer.keys() == {"graph", "pageInfo"}
    assert answer["graph"] == {"edges": [{"source": "books/mosses", "target": "books/ferns", "type": "isPartOf"}]}


@requirement("aql:relation:paged")
async def test_relationships_come_page_by_page(query: AqlOperation) -> None:
    asked = {"root": root("dunes"), "direction": "both", "depth": 2}
    whole = await data(query, **asked)
    pages = [await data(query, **asked, first=1)]
    while pages[-1]["pageInfo"]["hasNextPage"]:
        pages.append(await data(query, **asked, first=1, after=pages[-1]["pageInfo"]["endCursor"]))

    assert [each for page in pages for each in page["relationships"]] == whole["relationships"]
    assert len(pages) == 4
    for other in ({**asked, "depth": 1}, {**asked, "after": "x"}):
        with pytest.raises(InvalidCursor):
            await run(query, **{"after": pages[0]["pageInfo"]["endCursor"], **other}, first=1)


@requirement("aql:relation:visibility")
async def test_what_a_caller_may_not_read_is_neither_found_nor_named(query: AqlOperation) -> None:
    async def incoming(asking: AqlRequestContext) -> list[tuple[Any, ...]]:
        return told(await data(query, asking, root=root("dunes"), direction="incoming"))

    assert await incoming(READER) == [(1, "incoming", "mentions", "books/tides")]
    assert await incoming(STAFF) == [
        (1, "incoming", "about", "ledgers/debts"),
        (1, "incoming", "mentions", "books/tides"),
    ]
    for given in ({"root": root("debts", "ledgers")}, {"root": root("dunes"), "relationship": "about"}):
        with pytest.raises(InvalidParams) as refused:
            await run(query, READER, **given)
        assert "ledgers" not in refused.value.details["valid"]
        assert "about" not in refused.value.details["valid"]


async def test_more_than_one_look_can_see_is_cut_with_a_warning(query: AqlOperation) -> None:
    answered = await run(query, STAFF, root=root("cid", "people"), relationship="editor", first=100)

    assert told(answered.data)[-1] == (1, "incoming", "editor", "pamphlets/p099")
    assert answered.warnings == (
        OperationWarning(
            code="VALIDATION_TRUNCATED_WARNING",
            message="'relationships' was reduced from 200 to 199",
            details={"field": "relationships", "original_count": 200, "truncated_count": 199, "limit": 199},
        ),
    )


@requirement("aql:relation:depth")
@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"root": {"element_type": "books"}}, "root"),
        ({"root": root("dunes"), "depth": 4}, "depth"),
        ({"root": root("dunes"), "direction": "up"}, "direction"),
        ({"root": root("dunes"), "include": ["nodes"]}, "include"),
        ({"root": root("dunes"), "after": "x"}, "pagination"),
    ],
)
async def test_what_cannot_be_walked_is_refused(query: AqlOperation, given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        await run(query, **given)

    assert (refused.value.details["operation"], refused.value.details["param"]) == ("query_relationships", param)


@requirement("aql:relation:published")
async def test_an_unknown_root_is_not_found_and_what_can_be_asked_is_published(
    parts: Parts, query: AqlOperation
) -> None:
    with pytest.raises(UnknownItem) as missed:
        await run(query, root=root("nothing"))

    assert missed.value.details == {"collection": "books", "id": "nothing"}
    assert query.relationships == RelationshipCapabilities(
        supported=True,
        directions=("incoming", "outgoing", "both"),
        relationship_types=("isPartOf", "mentions", "author", "sameAs", "offers", "knows"),
        max_depth=3,
    )
    assert relationships_operation(parts.site, parts.config, []) is None
