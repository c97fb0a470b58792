"""What every collection gets, what a site writes in Python, and how parameters and results are held to their types."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.conformance.requirements import requirement
from tests.site.conftest import OPERATOR, ROOMS, Calling, Open, furnish

from portico.catalog import JsonSchema, Kind, Operation
from portico.errors import (
    AlreadyExists,
    BadRequest,
    ConfigError,
    InvalidParams,
    OperationFailed,
    TimedOut,
    UnknownField,
    UnknownItem,
    VersionMismatch,
)
from portico.operations import schema_of
from portico.requests import Call
from portico.server.assembly import Parts
from portico.site import Site
from portico.store.records import Merge


def bare(item: dict) -> dict:
    return {name: value for name, value in item.items() if name not in ("_version", "_score")}


async def test_a_collection_has_its_seven_operations_beside_those_of_every_site(site: Site) -> None:
    found = {name: (each.kind.value, each.danger.name) for name, each in site.catalog.operations.items()}

    assert found == {
        "ask": ("read", "SAFE"),
        "create_memories": ("create", "SAFE"),
        "list_memories": ("read", "SAFE"),
        "forget_memories": ("execute", "SAFE"),
        "list_rooms": ("read", "SAFE"),
        "get_room": ("read", "SAFE"),
        "search_rooms": ("read", "SAFE"),
        "count_rooms": ("read", "SAFE"),
        "create_room": ("create", "REVERSIBLE"),
        "update_room": ("update", "REVERSIBLE"),
        "delete_room": ("delete", "DESTRUCTIVE"),
        "get_task": ("read", "SAFE"),
        "cancel_task": ("execute", "SAFE"),
        "run_workflow": ("execute", "SAFE"),
        "execute_agent": ("execute", "REVERSIBLE"),
        "record_execution_step": ("create", "SAFE"),
        "complete_execution": ("execute", "SAFE"),
        "abort_execution": ("execute", "SAFE"),
        "get_execution_status": ("read", "SAFE"),
        "cancel_execution": ("execute", "SAFE"),
        "retry_execution": ("execute", "SAFE"),
        "confirm_operation": ("execute", "SAFE"),
        "list_pending_approvals": ("read", "SAFE"),
        "verify_challenge": ("create", "SAFE"),
    }


REFUSED: list[tuple[dict[str, Any], str, str, str, str]] = [
    ({"beds": "six"}, "beds", "integer", "string", "a whole number, not the text 'six'"),
    ({"beds": 2.5}, "beds", "integer", "number", "a whole number, not the number 2.5"),
    ({"beds": [2, 3]}, "beds", "integer", "array", "a whole number, not a list of 2"),
    ({"price": True}, "price", "number", "boolean", "a number, not true"),
    ({"price": "cheap"}, "price", "number", "string", "a number, not the text 'cheap'"),
    ({"name": 7}, "name", "string", "integer", "a text, not the number 7"),
    ({"name": ["Garden"]}, "name", "string", "array", "a text, not a list of 1"),
    ({"view": ["sea"]}, "view", "object", "array", "an object, not a list of 1"),
    ({"tags": "quiet"}, "tags", "array", "string", "a list, not the text 'quiet'"),
    ({"tags": {"a": 1}}, "tags", "array", "object", "a list, not an object"),
    (
        {"opened": "soon"},
        "opened",
        "timestamp",
        "string",
        "a date or time such as 2026-12-05 or 2026-12-05T18:30:00Z, not the text 'soon'",
    ),
    ({"view": {"height": "tall"}}, "view.height", "number", "string", "a number, not the text 'tall'"),
    ({"stars": 2.5}, "stars", "integer", "number", "a whole number, not the number 2.5"),
]
TAKEN: list[dict[str, Any]] = [
    {"beds": "9007199254740993", "price": "45.10"},  # exact digits
    {"name": "Garden"},
    {"price": 70},
    {"tags": []},
    {"view": {"sea": None}},
    {"beds": None, "name": None},
    {"opened": "2026-12-05", "stars": 4, "view": {"height": "3.5"}},
    {"never_seen": None},
]
DECLARED = {
    "rooms": {
        "fields": {
            "opened": {"type": "timestamp"},
            "stars": {"type": "integer"},
            "height": {"type": "number", "path": "view.height"},
        }
    }
}


@requirement("aql:update:input-validated")
async def test_what_callers_write_keeps_the_types_of_the_collection(opened: Open) -> None:
    async with opened(collections=DECLARED) as parts:
        await furnish(parts)
        call, head = Calling(parts.site), await parts.store.changes.head()
        published = parts.site.catalog.collections["rooms"].fields
        for fields, name, expected, got, problem in REFUSED:
            for verb in ("create", "update"):
                with pytest.raises(InvalidParams) as refusal:
                    await call(f"{verb}_room", id="garden", input={"price": 1, **fields})
                details = refusal.value.details
                assert details["operation"] == f"{verb}_room"
                assert (details["param"], details["field"]) == (f"input.{name}", name)
                assert (details["expected"], details["got"]) == (expected, got)
                assert refusal.value.message == f"`{name}` must be {problem}"
        assert await parts.store.changes.head() == head
        for fields in TAKEN:
            await call("update_room", id="garden", input=fields)
            await call("create_room", input=fields)

        assert parts.site.catalog.collections["rooms"].fields == published


async def test_a_field_that_the_collection_does_not_have_is_refused(call: Calling) -> None:
    for verb in ("create", "update"):
        with pytest.raises(InvalidParams, match="rooms has no field 'prise', 'colour'") as refusal:
            await call(f"{verb}_room", id="garden", input={"prise": 45, "colour": "green", "name": "Garden"})

        assert refusal.value.hint == "Did you mean price?"
        assert refusal.value.details["fields"] == ["prise", "colour"]


async def test_a_site_may_keep_fields_that_callers_add(opened: Open) -> None:
    async with opened(collections={"rooms": {"unknown": "keep"}}) as parts:
        await furnish(parts)
        call, before = Calling(parts.site), parts.site.catalog.collections["rooms"].fields
        await call("update_room", id="garden", input={"colour": "green"})
        with pytest.raises(InvalidParams, match="`colour` must be a text, not the number 5"):
            await call("create_room", input={"colour": 5})
        after = parts.site.catalog.collections["rooms"].fields

        assert (await call("get_room", id="garden"))["colour"] == "green"
    assert after == {**before, "colour": after["colour"]}


async def test_the_first_item_of_a_collection_defines_its_fields(opened: Open) -> None:
    async with opened(collections={"guests": {}}) as parts:
        call = Calling(parts.site)
        await call("create_guest", id="ann", input={"name": "Ann", "nights": 3})
        for fields in ({"nights": "three"}, {"nights": 3, "breakfast": True}):
            with pytest.raises(InvalidParams):
                await call("create_guest", id="bob", input=fields)

        assert (await call("count_guests"))["count"] == 1


async def test_of_two_first_items_at_once_the_second_is_held_to_the_first(opened: Open) -> None:
    async with opened(collections={"guests": {}}) as one, opened(collections={"guests": {}}) as two:
        calls = [
            Calling(parts.site)("create_guest", id=id, input={"nights": nights})
            for parts, id, nights in ((one, "ann", 3), (two, "bob", "three"))
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)

        assert [isinstance(result, InvalidParams) for result in results].count(True) == 1
        assert (await Calling(one.site)("count_guests"))["count"] == 1


async def test_a_field_that_another_process_has_just_added_can_be_written(opened: Open) -> None:
    async with opened() as one, opened() as two:
        await furnish(one)
        await two.store.items.write("rooms", [Merge("attic", {"colour": "red"})])

        assert (await Calling(one.site)("update_room", id="garden", input={"colour": "green"}))["colour"] == "green"


async def test_what_the_site_itself_writes_may_widen_a_type(opened: Open) -> None:
    async with opened(own=RENAMING) as parts:
        await furnish(parts)
        await Calling(parts.site)("close_room", id="attic")

        assert parts.site.catalog.collections["rooms"].fields["price"].type == "any"


RENAMING = '''
from portico.operations import Context, operation

@operation(kind="update", danger="safe")
async def close_room(context: Context, id: str) -> None:
    """Close a room."""
    await context.merge("rooms", id, {"price": "closed", "since": "2026-12-05"})
'''


async def test_list_filters_sorts_projects_and_pages(call: Calling) -> None:
    order = [{"field": "price", "descending": True}]
    first = await call("list_rooms", where={"beds": {"$lt": 6}}, order=order, fields=["beds"], limit=1)
    rest = await call(
        "list_rooms", where={"beds": {"$lt": 6}}, order=order, fields=["beds"], limit=1, cursor=first["cursor"]
    )

    assert [bare(item) for item in first["items"]] == [{"id": "attic", "beds": 2}]
    assert [bare(item) for item in rest["items"]] == [{"id": "garden", "beds": 1}]
    assert "cursor" not in rest


async def test_null_for_a_parameter_of_a_read_means_that_it_is_left_out(call: Calling) -> None:
    nulls = dict.fromkeys(("where", "order", "fields", "limit", "cursor"))

    assert await call("list_rooms", **nulls) == await call("list_rooms")
    assert await call("count_rooms", where=None) == await call("count_rooms")
    with pytest.raises(InvalidParams, match="needs 'id'"):
        await call("get_room", id=None)
    with pytest.raises(InvalidParams):
        await call("delete_room", id="attic", if_match=None)


async def test_get_gives_one_item_whole_or_in_part(call: Calling) -> None:
    assert bare(await call("get_room", id="attic")) == {"id": "attic", **ROOMS["attic"]}
    assert bare(await call("get_room", id="attic", fields=["view.sea"])) == {"id": "attic", "view": {"sea": True}}
    with pytest.raises(UnknownItem):
        await call("get_room", id="stable")


async def test_search_finds_by_word_within_a_filter(call: Calling) -> None:
    assert [item["id"] for item in (await call("search_rooms", query="garden"))["items"]] == ["garden"]
    found = await call("search_rooms", query="room in the garden or the cellar", where={"beds": {"$gt": 2}})
    assert [item["id"] for item in found["items"]] == ["cellar"]


async def test_a_collection_that_was_just_made_can_be_searched(parts: Parts) -> None:
    """Another process may have made it; the catalog shows it, so its operations work."""
    await parts.store.collections.declare(parts.config.collection("guests"))

    found = await parts.site.call(Call("search_guests", {"query": "ada"}), OPERATOR)

    assert found.result["items"] == []


async def test_create_makes_an_item_once_and_it_is_found_at_once(call: Calling) -> None:
    made = await call("create_room", id="loft", input={"name": "Loft", "beds": 3})
    unnamed = await call("create_room", input={"name": "Nook"})

    assert bare(made) == {"id": "loft", "name": "Loft", "beds": 3}
    assert await call("get_room", id="loft") == made
    assert [item["id"] for item in (await call("search_rooms", query="loft"))["items"]] == ["loft"]
    assert len(unnamed["id"]) >= 16
    assert await call("count_rooms") == {"count": 5}
    with pytest.raises(AlreadyExists):
        await call("create_room", id="loft", input={})


async def test_update_merges_deeply_and_null_removes(call: Calling) -> None:
    changed = await call("update_room", id="attic", input={"view": {"sea": None, "moor": True}, "beds": 3})

    assert bare(changed) == {**ROOMS["attic"], "id": "attic", "beds": 3, "view": {"floor": 4, "moor": True}}
    with pytest.raises(UnknownItem):
        await call("update_room", id="stable", input={"beds": 1})


async def test_an_update_that_changes_nothing_keeps_the_version(call: Calling) -> None:
    before = await call("get_room", id="attic")

    assert await call("update_room", id="attic", input={"beds": 2}) == before


async def test_a_write_for_an_old_version_is_refused(call: Calling) -> None:
    old = (await call("get_room", id="attic"))["_version"]
    new = (await call("update_room", id="attic", input={"beds": 3}, if_match=old))["_version"]

    with pytest.raises(VersionMismatch):
        await call("update_room", id="attic", input={"beds": 4}, if_match=old)
    with pytest.raises(VersionMismatch):
        await call("delete_room", id="attic", if_match=old)
    assert (await call("get_room", id="attic"))["beds"] == 3
    assert await call("delete_room", id="attic", if_match=new) == {"id": "attic", "deleted": True}


async def test_of_two_writers_with_one_version_one_wins(call: Calling) -> None:
    version = (await call("get_room", id="attic"))["_version"]

    results = await asyncio.gather(
        *(call("update_room", id="attic", input={"beds": n}, if_match=version) for n in range(10, 20)),
        return_exceptions=True,
    )

    assert sorted(type(each).__name__ for each in results) == ["VersionMismatch"] * 9 + ["dict"]


async def test_delete_removes_and_says_so_once(call: Calling) -> None:
    assert await call("delete_room", id="attic") == {"id": "attic", "deleted": True}
    assert await call("count_rooms") == {"count": 2}
    assert (await call("search_rooms", query="attic"))["items"] == []
    with pytest.raises(UnknownItem):
        await call("delete_room", id="attic")


async def test_count_takes_a_filter(call: Calling) -> None:
    assert await call("count_rooms", where={"tags": {"$contains": "quiet"}}) == {"count": 1}
    with pytest.raises(UnknownField):
        await call("count_rooms", where={"stars": 5})


@pytest.mark.parametrize(
    ("operation", "params", "details"),
    [
        ("get_room", {}, {"missing": ["id"]}),
        ("create_room", {"id": "x"}, {"missing": ["input"]}),
        ("get_room", {"id": "a", "color": 1, "size": 2}, {"unknown": ["color", "size"], "valid": ["id", "fields"]}),
        ("get_room", {"id": 7}, {"param": "id"}),
        ("get_room", {"id": ""}, {"param": "id"}),
        ("get_room", {"id": "x" * 2000}, {"param": "id"}),
        ("list_rooms", {"limit": "ten"}, {"param": "limit"}),
        ("list_rooms", {"limit": -1}, {"param": "limit"}),
        ("list_rooms", {"order": [{"field": "beds", "down": True}]}, {"param": "order[0]"}),
        ("list_rooms", {"where": "beds > 1"}, {"param": "where"}),
        ("search_rooms", {"query": ""}, {"param": "query"}),
        ("create_room", {"id": "x", "input": {"id": "y"}}, {"param": "input"}),
        ("create_room", {"id": "x", "input": [1]}, {"param": "input"}),
    ],
)
async def test_every_complaint_names_the_parameter(call: Calling, operation: str, params: dict, details: dict) -> None:
    with pytest.raises(InvalidParams) as refusal:
        await call(operation, **params)

    assert {name: refusal.value.details.get(name) for name in details} == details
    assert all(str(name) in str(refusal.value) for name in details.get("missing", details.get("unknown", ())))


async def test_an_item_that_cannot_be_kept_is_a_bad_request(call: Calling) -> None:
    with pytest.raises(BadRequest):
        await call("create_room", id="x", input={"name": "zero \0 byte"})


async def test_the_published_schema_names_what_is_checked(site: Site) -> None:
    schema = schema_of(site.catalog.operation("get_room").params)

    shape = next(iter(schema["$defs"].values())) if "$defs" in schema else schema
    assert shape["required"] == ["id"]
    assert sorted(shape["properties"]) == ["fields", "id"]
    assert shape["additionalProperties"] is False


OWN = '''
"""Operations of the inn."""
import asyncio
from typing import Annotated
import msgspec
from msgspec import Meta
from portico.operations import Context, operation

class Bill(msgspec.Struct):
    room: str
    nights: int
    total: float

@operation(kind="execute", danger="safe")
async def bill(
    context: Context, room: str, nights: Annotated[int, Meta(ge=1, le=30)] = 1, extras: list[str] = []
) -> Bill:
    """What a stay costs.

    More about it."""
    item = await context.get("rooms", room)
    extras.append("x")
    return Bill(room, nights, item.data["price"] * nights + len(extras) - 1)

@operation(kind="read")
async def liar(context: Context) -> Bill:
    return {"room": "attic", "nights": "many"}

@operation(kind="read")
async def clumsy(context: Context) -> str:
    raise ZeroDivisionError("the secret is 42")

@operation(kind="read", timeout=0.05)
async def sleeper(context: Context) -> str:
    await asyncio.sleep(30)

@operation(kind="read")
async def odd(context: Context) -> object:
    return object()

@operation(kind="read")
async def hoard(context: Context, how: str) -> str:
    match how:
        case "put":
            await context.put("rooms", "hoard", {"name": "Gold"})
        case "merge":
            await context.merge("rooms", "attic", {"name": "Gold"})
        case _:
            await context.remove("rooms", "attic")

@operation(kind="update", collection="rooms", name="paint_room")
async def paint(context: Context, id: str, color: str) -> dict:
    return dict((await context.merge("rooms", id, {"color": color})).data)
'''


@pytest.fixture
async def own(opened: Open) -> AsyncIterator[Calling]:
    async with opened(OWN) as parts:
        await furnish(parts)
        yield Calling(parts.site)


async def test_a_function_is_an_operation_with_its_own_types(own: Calling) -> None:
    operation = own.site.catalog.operation("bill")

    assert (operation.summary, operation.danger.name) == ("What a stay costs.", "SAFE")
    assert await own("bill", room="attic", nights=3) == {"room": "attic", "nights": 3, "total": 180.0}
    with pytest.raises(InvalidParams) as refusal:
        await own("bill", room="attic", nights=99)
    assert refusal.value.details["param"] == "nights"


async def test_a_default_list_is_new_for_every_call(own: Calling) -> None:
    assert (await own("bill", room="attic"))["total"] == 60.0
    assert (await own("bill", room="attic"))["total"] == 60.0


@pytest.mark.parametrize("name", ["liar", "odd"])
async def test_a_result_that_does_not_fit_its_type_is_a_failure_of_the_operation(own: Calling, name: str) -> None:
    with pytest.raises(OperationFailed):
        await own(name)


async def test_an_error_inside_an_operation_is_not_told_to_the_caller(own: Calling) -> None:
    with pytest.raises(OperationFailed) as failure:
        await own("clumsy")

    assert "42" not in f"{failure.value} {failure.value.details}"


@pytest.mark.parametrize("how", ["put", "merge", "remove"])
async def test_an_operation_that_is_declared_to_read_writes_nothing(own: Calling, how: str) -> None:
    store = own.site.finder.store
    before = await store.changes.head()
    with pytest.raises(OperationFailed):
        await own("hoard", how=how)

    assert await store.changes.head() == before
    assert await store.items.get("rooms", "hoard") is None


async def test_an_operation_that_takes_too_long_is_ended(own: Calling) -> None:
    with pytest.raises(TimedOut):
        await own("sleeper")


async def test_an_operation_of_a_collection_is_covered_by_its_scopes(own: Calling) -> None:
    operation = own.site.catalog.operation("paint_room")

    assert (operation.collection, operation.kind.value) == ("rooms", "update")
    assert (await own("paint_room", id="attic", color="blue"))["color"] == "blue"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("@operation()\ndef f(context: Context) -> str: ...", "is not an async function"),
        ("@operation()\nasync def f() -> str: ...", "is not a Context"),
        ("@operation()\nasync def f(name: str) -> str: ...", "is not a Context"),
        ("@operation()\nasync def f(context: Context, name) -> str: ...", "name of the operation f ("),
        ("@operation(kind='explode')\nasync def f(context: Context) -> str: ...", "explode"),
        ("@operation(danger='wild')\nasync def f(context: Context) -> str: ...", "wild"),
        ("@operation()\nasync def f(context: Context, x: Unheard) -> str: ...", "Unheard"),
        ("@operation()\nasync def f(context: Context, *names: str) -> str: ...", "names"),
        ("@operation(name='get room')\nasync def f(context: Context) -> str: ...", "get room"),
        ("@operation()\nasync def get_task(context: Context) -> str: ...", "get_task"),
        ("raise RuntimeError('on import')", "own.py"),
        ("def broken(:", "own.py"),
    ],
)
async def test_a_function_that_cannot_be_an_operation_is_a_fault_of_the_site_file(
    opened: Open, source: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        async with opened(f"from portico.operations import Context, operation\n{source}\n"):
            pass

    assert says in str(refusal.value)


TYPES = """
import enum
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Callable, Iterator

import msgspec
from msgspec import Meta

from portico.operations import Context, operation

class Image: ...
class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"
class Loose(msgspec.Struct):
    x: "Unheard"
"""


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ("image: Image", "Image"),
        ("image: list[Image]", "Image"),
        ("image: Image | None = None", "Image"),
        ("image: complex = 1j", "complex"),
        ("image: Callable[[], int]", "Callable"),
        ("image: date | datetime", "more than one str-like type"),
        ("image: Annotated[str, Meta(ge=1)]", "`ge`"),
        ("image: Mixed", "Mixed"),
        ("image: Loose", "Unheard"),
        ("image: Any = Image()", "default"),
        ("image: Any = Loose(1)", "default"),
        ("image: 'list['", "Forward reference"),
    ],
)
async def test_an_operation_with_a_parameter_that_cannot_be_published_prevents_the_start_by_name(
    opened: Open, parameter: str, reason: str
) -> None:
    source = f"@operation()\nasync def scan(context: Context, quality: int, {parameter}) -> str: ..."
    with pytest.raises(ConfigError) as refusal:
        async with opened(f"{TYPES}\n{source}\n"):
            pass

    says = str(refusal.value)
    assert "scan" in says
    assert "own.py" in says
    assert "image" in says
    assert "quality" not in says
    assert reason in says


async def test_an_operation_with_a_result_that_cannot_be_published_prevents_the_start_by_name(opened: Open) -> None:
    source = "@operation()\nasync def scan(context: Context) -> Iterator[int]: ..."
    with pytest.raises(ConfigError, match=r"scan.*own\.py.*result.*Iterator"):
        async with opened(f"{TYPES}\n{source}\n"):
            pass


async def test_every_operation_that_cannot_be_published_is_named(opened: Open) -> None:
    source = "\n".join(f"@operation()\nasync def {name}(context: Context, x: Image) -> str: ..." for name in ("a", "b"))
    with pytest.raises(ConfigError) as refusal:
        async with opened(f"{TYPES}\n{source}\n"):
            pass

    assert "operation a " in str(refusal.value)
    assert "operation b " in str(refusal.value)


async def test_a_site_refuses_an_operation_that_would_break_its_lists(parts: Parts) -> None:
    async def run(context: Any, params: Any) -> None: ...

    odd = Operation("odd", Kind.READ, "", msgspec.defstruct("Nothing", []), complex, run)
    described = Operation("described", Kind.READ, "", JsonSchema({"default": object()}), Any, run)
    for operation in (odd, described):
        with pytest.raises(ConfigError, match=operation.name):
            Site("inn", parts.site.finder, parts.site.identity, operations=[operation])


async def test_a_repeat_with_a_key_gives_the_stored_result(parts: Parts) -> None:
    call = Call("create_room", {"input": {"beds": 9}}, key="k")

    first, second = await parts.site.call(call, OPERATOR), await parts.site.call(call, OPERATOR)

    assert (first.repeated, second.repeated) == (False, True)
    assert second.result == first.result
    assert await Calling(parts.site)("count_rooms") == {"count": 4}
