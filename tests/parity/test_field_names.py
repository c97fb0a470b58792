"""Whichever door a question comes through: a field of any name filters, sorts and returns the same items."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from tests.parity.protocols import A2A, NLWEB, Face, visitor
from tests.parity.test_parity import SETTINGS, key_of
from tests.protocols.mcp.conftest import connected, structured
from tests.protocols.nwp.conftest import Ports, serving

from portico.client.transports.nwp import NativeNwpClient
from portico.field_names import alias_of
from portico.protocols import parse_config
from portico.server.assembly import Parts, open_site
from portico.store.records import Put, Remove

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOPS: dict[str, dict[str, Any]] = {
    "a": {"name": "Anchor", "Region Name": "Oslo", "Price ($)": 5.5, "名前": "錨", "a.b": 1, "$where": "x"},
    "b": {"name": "Beacon", "Region Name": "Bergen", "Price ($)": 7.5, "名前": "灯", "a.b": 2, "$where": "y"},
    "c": {"name": "Cliff", "Region Name": "Oslo", "Price ($)": 9.5, "名前": "崖", "a.b": 3, "$where": "z"},
}
ALIASES = {
    "Region Name": "region_name",
    "Price ($)": "price",
    "名前": alias_of("名前"),
    "a.b": "a_b",
    "$where": "where",
}
CASES = {"Region Name": ("Oslo", ["a", "c"]), "名前": ("灯", ["b"]), "a.b": (3, ["c"]), "$where": ("x", ["a"])}

Rows: TypeAlias = list[Mapping[str, Any]]
Find: TypeAlias = Callable[[Mapping[str, Any], str], Awaitable[Rows]]  # by a filter, in the falling order of a field


@dataclass(frozen=True)
class Mall:
    parts: Parts
    ports: Ports
    key: str

    async def over_operation(self, where: Mapping[str, Any], order: str) -> Rows:
        async with visitor(self.ports.http, self.key) as http:
            wanted = {"where": where, "order": [{"field": order, "descending": True}]}
            return (await http.post("/operations/list_shops", json=wanted)).json()["result"]["items"]

    async def over_mcp(self, where: Mapping[str, Any], order: str) -> Rows:
        async with connected(self.ports.http, key=self.key) as client:
            wanted = {"where": where, "order": [{"field": order, "descending": True}]}
            return structured(await client.call_tool("list_shops", wanted))["result"]["items"]

    async def over_aql(self, where: Mapping[str, Any], order: str) -> Rows:
        async with connected(self.ports.http, key=self.key) as client:
            params = {"filter": where, "sort": {"field": order, "order": "desc"}, "fields": "full"}
            wanted = {"operation": "list_shops", "params": params}
            return structured(await client.call_tool("mcp_aql_read", wanted))["data"]["items"]

    async def over_nwp(self, where: Mapping[str, Any], order: str) -> Rows:
        async with visitor(self.ports.http, self.key) as http:
            frame = {"filter": where, "order": [{"field": order, "dir": "DESC"}]}
            return (await http.post("/nwp/shops/query", json=frame)).json()["data"]

    async def over_native(self, where: Mapping[str, Any], order: str) -> Rows:
        url = f"nwp://127.0.0.1:{self.ports.native}/shops"
        async with await NativeNwpClient.connect(url) as client:
            return list((await client.query(filter=dict(where), order=[f"-{order}"])).records)


FINDS: Mapping[str, Callable[[Mall], Find]] = {
    "operation": lambda mall: mall.over_operation,
    "mcp": lambda mall: mall.over_mcp,
    "aql": lambda mall: mall.over_aql,
    "nwp": lambda mall: mall.over_nwp,
    "nwp native": lambda mall: mall.over_native,
}
OWN = {"operation", "mcp"}  # doors that show own names


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mall() -> AsyncIterator[Mall]:
    async with open_site(
        parse_config({**SETTINGS, "mcp": {"operations": "all"}, "collections": {"shops": {}}})
    ) as parts:
        await parts.store.items.write("shops", [Put(id, data) for id, data in SHOPS.items()])
        await parts.index.sync(await parts.store.changes.head())
        key = await key_of(parts, "ask", "*:*")
        async with serving(parts) as ports:
            yield Mall(parts, ports, key)


@pytest.mark.parametrize("door", FINDS)
@pytest.mark.parametrize("name", CASES)
async def test_a_field_filters_by_its_own_name_and_by_its_alias(door: str, name: str, mall: Mall) -> None:
    value, ids = CASES[name]
    for asked in (name, ALIASES[name]):
        for where in ({asked: {"$eq": value}}, {"$not": {asked: {"$ne": value}}}):
            rows = await FINDS[door](mall)(where, "name")
            assert sorted(row["id"] for row in rows) == ids


@pytest.mark.parametrize("door", FINDS)
async def test_a_field_sorts_and_comes_under_the_name_of_the_schema(door: str, mall: Mall) -> None:
    shown = {} if door in OWN else ALIASES
    expected = [{shown.get(name, name): value for name, value in SHOPS[id].items()} for id in "cba"]
    for asked in ("Price ($)", "price", "PRICE ($)"):
        rows = await FINDS[door](mall)({asked: {"$gt": 1}}, asked)
        assert [{name: row[name] for name in expected[0]} for row in rows] == expected


async def test_the_schemas_list_the_names_that_their_records_have(mall: Mall) -> None:
    async with visitor(mall.ports.http, mall.key) as http:
        fields = (await http.get("/nwp/shops/.schema")).json()["schema"]["fields"]
    async with connected(mall.ports.http, key=mall.key) as client:
        wanted = {"operation": "introspect", "params": {"query": "types", "name": "Shop"}}
        kind = structured(await client.call_tool("mcp_aql_read", wanted))["data"]["type"]

    assert {field["label"]: field["name"] for field in fields if "label" in field} == ALIASES
    listed = {field.get("description"): field["name"] for field in kind["fields"]}
    assert {own: listed[own] for own in ALIASES} == ALIASES


@pytest.mark.parametrize("door", ["nwp", "aql"])
async def test_groups_are_named_by_the_alias(door: str, mall: Mall) -> None:
    if door == "aql":
        async with connected(mall.ports.http, key=mall.key) as client:
            spec = {"total": {"sum": "price", "group_by": "Region Name"}}
            wanted = {"operation": "list_shops", "params": {"aggregate": spec}}
            data = structured(await client.call_tool("mcp_aql_read", wanted))["data"]
        assert data["aggregations"]["total"] == {"Bergen": 7.5, "Oslo": 15}
        return
    aggregate = {"operations": [{"func": "SUM", "field": "price", "alias": "total"}], "group_by": ["region_name"]}
    having = {"having": {"region_name": {"$ne": "Bergen"}}}
    frame = {"aggregate": {**aggregate, **having}, "order": [{"field": "region_name", "dir": "ASC"}]}
    async with visitor(mall.ports.http, mall.key) as http:
        assert (await http.post("/nwp/shops/query", json=frame)).json()["data"] == [
            {"region_name": "Oslo", "total": 15}
        ]


@pytest.mark.parametrize("door", FINDS)
async def test_hostile_names_are_refused_and_break_nothing(door: str, mall: Mall) -> None:
    for name in ("' OR 1=1", "x'); DROP TABLE items_1; --", "a\0b", "__proto__", "x" * 5000):
        with pytest.raises(Exception):  # noqa: B017, PT011 - each client has an error of its own
            await FINDS[door](mall)({name: {"$eq": 1}}, "name")
    assert len(await FINDS[door](mall)({"name": {"$exists": True}}, "name")) == 3


@pytest.mark.parametrize("door", {**NLWEB, **A2A})
async def test_words_find_the_items(door: str, mall: Mall) -> None:
    face: Face = {**NLWEB, **A2A}[door]
    async with face(mall.ports.http, mall.key) as ask:
        heard, _ = await ask("Region Name Oslo")

    assert sorted(id.rpartition("/")[2] for id in heard.ids) == ["a", "c"]


async def test_pages_show_the_own_names(mall: Mall) -> None:
    async with visitor(mall.ports.http, mall.key) as http:
        data = (await http.get("/items/shops/a", params={"format": "json"})).json()["data"]
        page = (await http.get("/items/shops/a", headers={"accept": "text/html"})).text

    assert data == SHOPS["a"]
    assert "Oslo" in page
    assert "region_name" not in page


@pytest.mark.parametrize("door", ["operation", "aql", "nwp"])
async def test_a_write_takes_the_own_name_and_the_alias(door: str, mall: Mall) -> None:
    for asked in ("Region Name", "region_name"):
        written = {"name": "New", asked: f"{door} {asked}"}
        id = f"{door} {asked}"
        params = {"id": id, "input": written}
        async with visitor(mall.ports.http, mall.key) as http, connected(mall.ports.http, key=mall.key) as client:
            match door:
                case "operation":
                    heard = (await http.post("/operations/create_shop", json=params)).text
                case "nwp":
                    frame = {"action_id": "shops.create", "params": params}
                    heard = (await http.post("/nwp/shops-operations/invoke", json=frame)).text
                case _:
                    wanted = {"operation": "create_shop", "params": params}
                    heard = str(structured(await client.call_tool("mcp_aql_create", wanted)))
        item = await mall.parts.store.items.get("shops", id)
        assert item, heard
        assert item.data == {"name": "New", "Region Name": f"{door} {asked}"}
        await mall.parts.store.items.write("shops", [Remove(id)])
