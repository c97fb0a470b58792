"""What clients propose while an address or a prompt is written."""

from typing import Any

import mcp_types as types
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of
from tests.protocols.mcp.conftest import ERAS, Era, visiting

from portico.catalog import Collection
from portico.server.assembly import Parts
from portico.store.records import Put

ITEM = types.ResourceTemplateReference(uri="portico://items/{collection}/{id}")
COLLECTION = types.ResourceTemplateReference(uri="portico://collections/{collection}")
FIND = types.PromptReference(name="find")


async def proposed(client: Any, ref: Any, name: str, begun: str, **known: str) -> tuple[list[str], int | None, bool]:
    found = (await client.complete(ref, {"name": name, "value": begun}, known or None)).completion
    return found.values, found.total, bool(found.has_more)


@pytest.mark.parametrize("era", ERAS)
@requirement("mcp:completion:proposed")
async def test_collections_are_proposed_by_their_beginning(parts: Parts, era: Era) -> None:
    await parts.store.collections.declare(Collection("routes"))
    await parts.store.collections.declare(Collection("robes", private=True))

    async with visiting(parts, era) as client:
        found = [await proposed(client, ref, "collection", "RO") for ref in (ITEM, COLLECTION, FIND)]
        nothing = await proposed(client, FIND, "collection", "x")
    async with visiting(parts, era, await key_of(parts, "ask", "read:rooms")) as somebody:
        narrow = await proposed(somebody, ITEM, "collection", "")

    assert found == [(["rooms", "routes"], 2, False)] * 3
    assert nothing == ([], 0, False)
    assert narrow == (["rooms"], 1, False)


@pytest.mark.parametrize("era", ERAS)
async def test_ids_are_proposed_by_their_beginning(parts: Parts, era: Era) -> None:
    await parts.store.items.write("rooms", [Put(id, {}) for id in ("gar", "garden/2", "gar🧀", "gas", "Garden", "%_")])

    async with visiting(parts, era) as client:
        found = await proposed(client, ITEM, "id", "gar", collection="rooms")
        literal = await proposed(client, ITEM, "id", "%", collection="rooms")
        all_ids = await proposed(client, ITEM, "id", "", collection="rooms")

    assert found == (["gar", "garden", "garden/2", "gar🧀"], 4, False)
    assert literal == (["%_"], 1, False)
    assert all_ids == (
        sorted(["attic", "cellar", "garden", "gar", "garden/2", "gar🧀", "gas", "Garden", "%_"]),
        9,
        False,
    )


@requirement("mcp:completion:proposed")
async def test_of_many_ids_a_hundred_are_proposed(parts: Parts) -> None:
    await parts.store.items.write("rooms", [Put(f"r{number:03}", {}) for number in range(150)])

    async with visiting(parts) as client:
        found = await proposed(client, ITEM, "id", "r", collection="rooms")

    assert found == ([f"r{number:03}" for number in range(100)], None, True)


async def test_where_nothing_is_known_nothing_is_proposed(parts: Parts) -> None:
    await parts.store.collections.declare(Collection("diary", private=True))
    await parts.store.items.write("diary", [Put("monday", {})])
    elsewhere = types.ResourceTemplateReference(uri="file:///{collection}")

    async with visiting(parts) as client:
        found = [
            await proposed(client, ITEM, "id", "a"),
            await proposed(client, ITEM, "id", "a", collection="nothing"),
            await proposed(client, ITEM, "id", "", collection="diary"),
            await proposed(client, ITEM, "id", "\0", collection="rooms"),
            await proposed(client, ITEM, "id", "a" * 5000, collection="rooms"),
            await proposed(client, ITEM, "beds", "1", collection="rooms"),
            await proposed(client, elsewhere, "collection", ""),
            await proposed(client, types.PromptReference(name="nothing"), "collection", ""),
            await proposed(client, types.PromptReference(name="compare"), "collection", ""),
            await proposed(client, FIND, "what", "quiet"),
        ]

    assert found == [([], 0, False)] * len(found)
