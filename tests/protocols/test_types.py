"""Operations with unusual types: every list of operations that a protocol publishes stays whole."""

from pathlib import Path
from typing import Any

import pytest
from tests.protocols.conftest import Inn, asking, key_of
from tests.protocols.mcp.conftest import ERAS, Era, visiting

UNUSUAL = '''
import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from portico.operations import Context, operation

T = TypeVar("T")

class Colour(enum.Enum):
    RED = "red"

class Tree(msgspec.Struct):
    name: str
    children: "list[Tree]" = []

class Boxed(msgspec.Struct, Generic[T]):
    held: T

class Cat(msgspec.Struct, tag=True):
    lives: int

class Dog(msgspec.Struct, tag=True):
    tricks: set[str]

class Pair(NamedTuple):
    left: int
    right: float

class Loose(TypedDict, total=False):
    note: str

@dataclass
class Bag:
    """A bag."""

    trees: list[Tree]

def _other():
    class Tree(msgspec.Struct):
        height: decimal.Decimal
    return Tree

OtherTree = _other()

@operation(danger="safe")
async def unusual(
    context: Context,
    tree: Tree,
    other: OtherTree,
    boxed: Boxed[int] | None = None,
    pet: Cat | Dog | None = None,
    pair: Pair = Pair(1, 2.0),
    loose: Loose = {},
    bag: Bag | UnsetType = UNSET,
    colour: Colour = Colour.RED,
    kind: Literal["a", 1, None] = "a",
    when: datetime.datetime | None = None,
    span: datetime.timedelta = datetime.timedelta(seconds=3),
    raw: bytes = b"x",
    code: uuid.UUID | int = 3,
    keys: dict[int, tuple[str, ...]] = {},
    pattern: Annotated[str, Meta(pattern="^a+$", extra_json_schema={"format": "a"})] = "a",
    whatever: Any = None,
    nothing: None = None,
) -> dict[str, Tree | None]:
    """Takes everything."""

@operation(danger="safe")
async def shapeless(context: Context):
    ...

@operation(danger="safe")
async def anything(context: Context) -> object:
    ...

@operation(danger="safe")
async def ordinary(context: Context, name: str) -> str:
    return name
'''
NAMES = {"unusual", "shapeless", "anything", "ordinary"}


@pytest.fixture
def own(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "own.py").write_text(UNUSUAL)
    return {"operations": ["own.py"], "mcp": {"operations": "all"}, "limits": {"anonymous_per_minute": 10_000}}


async def test_every_list_of_operations_holds_all_of_them(inn: Inn, own: dict[str, Any]) -> None:
    async with inn(**own) as parts, asking(parts) as client:
        key = {"authorization": f"Bearer {await key_of(parts, 'ask', '*:*')}"}
        listed = (await client.get("/operations", headers=key)).json()
        described = (await client.get("/openapi.json")).json()
        card = (await client.get("/.well-known/agent-card.json")).json()
        actions = (await client.get("/nwp/operations/actions", headers=key)).text
        introspect = {"operation": "introspect", "params": {"query": "operations"}}
        introspected = (await client.post("/aql", json=introspect, headers=key)).json()
        page = await client.get("/docs")

    assert {each["name"] for each in listed["operations"]} >= NAMES
    assert {path.rpartition("/")[2] for path in described["paths"]} >= NAMES
    assert {skill["id"] for skill in card["skills"]} >= NAMES
    assert all(f'.{name}"' in actions for name in NAMES)
    assert {each["name"] for each in introspected["data"]["operations"]} >= NAMES
    assert page.status_code == 200


async def test_every_operation_is_introspected_by_itself(inn: Inn, own: dict[str, Any]) -> None:
    async with inn(**own) as parts, asking(parts) as client:
        key = {"authorization": f"Bearer {await key_of(parts, 'ask', '*:*')}"}
        for name in NAMES:
            introspect = {"operation": "introspect", "params": {"query": "operations", "name": name}}
            answer = (await client.post("/aql", json=introspect, headers=key)).json()
            assert answer["success"] is True


@pytest.mark.parametrize("era", ERAS)
async def test_every_tool_is_listed(inn: Inn, own: dict[str, Any], era: Era) -> None:
    async with inn(**own) as parts, visiting(parts, era, await key_of(parts, "ask", "*:*")) as client:
        tools = (await client.list_tools()).tools

    assert {tool.name for tool in tools} >= NAMES
