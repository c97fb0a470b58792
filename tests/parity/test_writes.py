"""Whichever door a write comes through: it keeps the shape of the collection, or is refused with the field."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import pytest
import pytest_asyncio
from tests.parity.protocols import NAMED, Heard
from tests.parity.test_parity import SETTINGS, key_of
from tests.protocols.conftest import listening

from portico.protocols import parse_config
from portico.server.assembly import Parts, open_site
from portico.store.records import Put

pytestmark = pytest.mark.asyncio(loop_scope="module")

LETTER = {"name": "To the harbour", "weight": 20.5, "sent": "2026-12-05"}
PARAMS = {
    "operation": Heard(code="urn:portico:error:InvalidParams", status=422),
    "mcp 2026": Heard(code="InvalidParams"),
    "mcp before": Heard(code="InvalidParams"),
    "aql": Heard(code="VALIDATION_INVALID_TYPE"),
    "a2a 1.0": Heard(code=-32602),
    "a2a 0.3": Heard(code=-32602),
    "nwp": Heard(code="NWP-ACTION-PARAMS-INVALID", status=422),
    "nwp gateway": Heard(code="NWP-ACTION-PARAMS-INVALID", status=422),
}
UNKNOWN = {**PARAMS, "aql": Heard(code="VALIDATION_UNKNOWN_FIELD")}
WRONG = {
    "`weight` must be a number, not the text 'heavy'": {"weight": "heavy"},
    "`name` must be a text, not the number 7": {"name": 7},
    "`sent` must be a date or time": {"sent": "soon"},
}


@dataclass(frozen=True)
class Office:
    parts: Parts
    port: int
    key: str


@asynccontextmanager
async def opened(unknown: Literal["refuse", "keep"]) -> AsyncIterator[Office]:
    settings = {**SETTINGS, "mcp": {"operations": "all"}, "collections": {"letters": {"unknown": unknown}}}
    async with open_site(parse_config(settings)) as parts:
        await parts.store.items.write("letters", [Put(door, LETTER) for door in NAMED])
        await parts.index.sync(await parts.store.changes.head())
        key = await key_of(parts, "ask", "*:*")
        async with listening(parts) as port:
            yield Office(parts, port, key)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office() -> AsyncIterator[Office]:
    async with opened("refuse") as office:
        yield office


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeping() -> AsyncIterator[Office]:
    async with opened("keep") as office:
        yield office


@pytest.mark.parametrize("name", NAMED)
async def test_a_value_of_another_type_is_refused_with_its_field_and_the_expected_type(
    name: str, office: Office
) -> None:
    published = office.parts.site.catalog.collections["letters"].fields
    head = await office.parts.store.changes.head()
    async with NAMED[name](office.port, office.key) as call:
        for problem, fields in WRONG.items():
            for verb in ("create", "update"):
                heard, body = await call(verb, {"id": name, "input": {**LETTER, **fields}})
                assert heard == PARAMS[name]
                assert problem in body

    assert await office.parts.store.changes.head() == head
    assert (await office.parts.store.collections.refresh())["letters"].fields == published


@pytest.mark.parametrize("name", NAMED)
async def test_a_field_that_the_collection_does_not_have_is_refused(name: str, office: Office) -> None:
    head = await office.parts.store.changes.head()
    async with NAMED[name](office.port, office.key) as call:
        for verb in ("create", "update"):
            heard, body = await call(verb, {"id": name, "input": {"wieght": 20.5}})
            assert heard == UNKNOWN[name]
            assert "wieght" in body
            assert "weight" in body

    assert await office.parts.store.changes.head() == head


@pytest.mark.parametrize("name", NAMED)
async def test_what_fits_is_stored_and_widens_nothing(name: str, office: Office) -> None:
    published = office.parts.site.catalog.collections["letters"].fields
    written = {"name": "Home", "weight": "10.250", "sent": "2026-12-06T08:00:00Z"}
    async with NAMED[name](office.port, office.key) as call:
        assert (await call("update", {"id": name, "input": written}))[0] == Heard()
        assert (await call("create", {"id": f"{name} 2", "input": {"weight": 5, "sent": None}}))[0] == Heard()

    item = await office.parts.store.items.get("letters", name)
    assert item
    assert item.data == written
    assert await office.parts.store.items.get("letters", f"{name} 2")
    assert (await office.parts.store.collections.refresh())["letters"].fields == published


@pytest.mark.parametrize("name", NAMED)
async def test_a_site_that_keeps_unknown_fields_stores_them_beside_types_that_stay(name: str, keeping: Office) -> None:
    before = keeping.parts.site.catalog.collections["letters"].fields
    colour = f"colour_{list(NAMED).index(name)}"
    async with NAMED[name](keeping.port, keeping.key) as call:
        assert (await call("update", {"id": name, "input": {colour: "red", "weight": "3"}}))[0] == Heard()
        refused, body = await call("update", {"id": name, "input": {colour: "blue", "weight": "heavy"}})

    item = await keeping.parts.store.items.get("letters", name)
    after = (await keeping.parts.store.collections.refresh())["letters"].fields
    assert item
    assert item.data == {**LETTER, colour: "red", "weight": "3"}
    assert after == {**before, colour: after[colour]}
    assert refused == PARAMS[name]
    assert "`weight` must be a number" in body
