"""nps-lib, the library of the protocol's authors, as it is against the sample site: its HTTP client and its native one.

The town's own files say what the answers must be.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
from nps_sdk.core.codec import NpsFrame, NpsFrameCodec
from nps_sdk.core.frames import EncodingTier
from nps_sdk.core.registry import FrameRegistry
from nps_sdk.ncp.client import NcpHandshakeError, NcpNativeClient
from nps_sdk.ncp.frames import CapsFrame, ErrorFrame, HelloFrame, StreamFrame
from nps_sdk.ncp.session import NcpSession
from nps_sdk.nwp.client import NwpClient
from nps_sdk.nwp.frames import ActionFrame, AsyncActionResponse, QueryFrame, QueryOrderClause
from tests.conformance.requirements import requirement

TIERS = {"json": EncodingTier.JSON, "msgpack": EncodingTier.MSGPACK}
TASK_SECONDS = 60
CHEAP_SOUPS = {"recipeCategory": {"$eq": "soup"}, "estimatedCost": {"$lt": 1.2}}
BY_COST = (QueryOrderClause("estimatedCost", "DESC"), QueryOrderClause("name", "ASC"))
BY_NAME = (QueryOrderClause("name", "ASC"),)
RESTAURANT = "restaurants/the-harbour-lamp"
REQUEST = "5f0c1e0e-3b1b-4c57-9d4e-8a3b6f1c2d40"
MEALS = {"days": 2, "wish": "soup", "pace": 0}


Visit = Callable[[str], NwpClient]  # to the node of a name
Recipes = list[dict[str, Any]]


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    """As the town's file has them, by name."""
    said = json.loads(files("portico.demo").joinpath("data/recipes.jsonld").read_text("utf-8"))
    return sorted(said if isinstance(said, list) else said["@graph"], key=lambda each: each["name"])


@pytest.fixture(scope="module")
def manifest(demo: str) -> dict[str, Any]:
    return httpx.get(f"{demo}/nwp/recipes/.nwm").raise_for_status().json()


@pytest.fixture
def anchor(manifest: dict[str, Any]) -> str:
    return manifest["schema_anchors"]["recipes"]


@pytest.fixture(params=TIERS)
def encoding(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def visit(demo: str, encoding: str) -> AsyncIterator[Visit]:
    """The HTTP client, for one node or another."""
    async with httpx.AsyncClient(timeout=TASK_SECONDS) as http:
        yield lambda node: NwpClient(f"{demo}/nwp/{node}", default_tier=TIERS[encoding], http_client=http)


@pytest.fixture
async def session(manifest: dict[str, Any], encoding: str) -> AsyncIterator[NcpSession]:
    """A native session on the port that the manifest names, in this encoding."""
    async with await connected(manifest, hello(supported_encodings=(encoding,))) as session:
        yield session


async def connected(manifest: dict[str, Any], greeting: HelloFrame) -> NcpSession:
    place = urlsplit(manifest["endpoints"]["query"])
    client = NcpNativeClient(NpsFrameCodec(FrameRegistry.create_full()))
    return await client.connect(str(place.hostname), place.port or 0, greeting)


def hello(**said: Any) -> HelloFrame:
    spoken = {"nps_version": "0.11", "min_version": "0.1", "supported_protocols": ("ncp", "nwp")}
    return HelloFrame(**{**spoken, "supported_encodings": ("msgpack", "json"), **said})


async def asked(session: NcpSession, frame: NpsFrame) -> NpsFrame:
    await session.send_frame(frame)
    return await session.receive_frame()


def of(recipes: Recipes, *names: str) -> Recipes:
    return [{name: each[name] for name in names} for each in recipes]


def cheap_soups(recipes: Recipes) -> Recipes:
    found = [each for each in recipes if each["recipeCategory"] == "soup" and each["estimatedCost"] < 1.2]
    return of(sorted(found, key=lambda each: -each["estimatedCost"]), "name", "estimatedCost")


# Over HTTP


@requirement("nwp:clients:nps-lib-query")
async def test_a_query_finds_what_fits_in_order_with_the_fields_it_names(
    visit: Visit, anchor: str, recipes: Recipes
) -> None:
    query = QueryFrame(anchor, CHEAP_SOUPS, ("name", "estimatedCost"), order=BY_COST, limit=50)

    found = await visit("recipes").query(query)

    assert cheap_soups(recipes)
    assert list(found.data) == cheap_soups(recipes)
    assert (found.anchor_ref, found.count, found.next_cursor) == (anchor, len(found.data), None)


async def test_pages_lead_through_every_recipe_once(visit: Visit, recipes: Recipes) -> None:
    client, cursor, names = visit("recipes"), None, []
    while True:
        page = await client.query(QueryFrame(fields=("name",), order=BY_NAME, limit=40, cursor=cursor))
        names += [each["name"] for each in page.data]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert names == [each["name"] for each in recipes]


@requirement("nwp:clients:nps-lib-query")
async def test_a_stream_brings_every_recipe_and_says_when_it_ends(visit: Visit, anchor: str, recipes: Recipes) -> None:
    parts = [part async for part in visit("recipes").stream(QueryFrame(anchor, order=BY_NAME))]

    assert [each["name"] for part in parts for each in part.data] == [each["name"] for each in recipes]
    assert [part.seq for part in parts] == list(range(len(parts)))
    assert [part.is_last for part in parts] == [False, *[False] * (len(parts) - 2), True]
    assert (len({part.stream_id for part in parts}), parts[0].anchor_ref) == (1, anchor)


@requirement("nwp:clients:nps-lib-invoke")
async def test_an_action_is_done_once_however_often_it_is_sent(visit: Visit) -> None:
    client, params = visit("operations"), {"restaurant": RESTAURANT, "time": "2026-12-05T19:00", "people": 3}
    booking = ActionFrame("site.book_table", params, idempotency_key=str(uuid.uuid4()))

    answer, again = await client.invoke(booking), await client.invoke(booking)
    [booked] = answer.data
    cancelled = await client.invoke(ActionFrame("site.cancel_booking", {"booking": booked["id"]}))

    assert {**booked, **params, "time": booked["time"], "status": "confirmed"} == booked
    assert again.data == answer.data
    assert cancelled.data == ({**booked, "status": "cancelled"},)


@requirement("nwp:clients:nps-lib-invoke")
async def test_an_action_that_takes_its_time_is_polled_until_it_is_done(visit: Visit) -> None:
    client = visit("operations")

    started = await client.invoke(ActionFrame("site.plan_meals", MEALS, async_=True))
    done = await polled(client.invoke, started.task_id)

    assert isinstance(started, AsyncActionResponse)
    assert [meal["day"] for meal in done["result"]["meals"]] == [1, 2]
    assert (done["task_id"], done["progress"]) == (started.task_id, 1)


async def polled(ask: Callable[[ActionFrame], Any], task: str) -> dict[str, Any]:
    """How a task ended, as its status says."""
    async with asyncio.timeout(TASK_SECONDS):
        while True:
            [status] = (await ask(ActionFrame("system.task.status", {"task_id": task}))).data
            if status["status"] not in ("pending", "running"):
                assert status["status"] == "completed", status
                return status
            await asyncio.sleep(0.05)


async def test_a_gateway_has_an_action_done_by_its_workers(visit: Visit) -> None:
    answer = await visit("gateway").invoke(ActionFrame("site.plan_meals", MEALS, timeout_ms=20_000))

    assert [meal["day"] for meal in answer.data[0]["meals"]] == [1, 2]


async def test_a_refusal_is_an_http_error_with_the_code_of_the_protocol(visit: Visit) -> None:
    with pytest.raises(httpx.HTTPStatusError) as refusal:
        await visit("recipes").query(QueryFrame(filter={"colour": {"$eq": "red"}}))

    said = refusal.value.response
    assert (said.status_code, said.json()["error"]) == (400, "NWP-QUERY-FIELD-UNKNOWN")


# Natively


@requirement("nwp:clients:nps-lib-native")
async def test_a_native_session_speaks_the_encoding_that_both_know(session: NcpSession, encoding: str) -> None:
    caps = session.server_caps

    assert session.negotiated_tier == TIERS[encoding]
    assert (caps.negotiated_encoding, caps.supported_protocols) == (encoding, ("ncp", "nwp"))


@requirement("nwp:clients:nps-lib-native")
async def test_a_native_query_finds_what_one_over_http_finds(
    session: NcpSession, anchor: str, recipes: Recipes
) -> None:
    query = QueryFrame(anchor, CHEAP_SOUPS, ("name", "estimatedCost"), order=BY_COST, limit=50, request_id=REQUEST)

    found = await asked(session, query)

    assert isinstance(found, CapsFrame)
    assert list(found.data) == cheap_soups(recipes)
    assert (found.anchor_ref, found.count, found.request_id) == (anchor, len(found.data), REQUEST)


async def test_a_native_stream_brings_every_recipe_and_says_when_it_ends(
    session: NcpSession, anchor: str, recipes: Recipes
) -> None:
    parts = [cast("StreamFrame", await asked(session, QueryFrame(anchor, order=BY_NAME, stream=True)))]
    while not parts[-1].is_last:
        parts.append(cast("StreamFrame", await session.receive_frame()))

    assert [each["name"] for part in parts for each in part.data] == [each["name"] for each in recipes]
    assert [part.seq for part in parts] == list(range(len(parts)))


async def test_native_actions_are_done_at_once_or_polled(session: NcpSession) -> None:
    at_once = cast("CapsFrame", await asked(session, ActionFrame("site.plan_meals", MEALS, timeout_ms=20_000)))
    started = cast("CapsFrame", await asked(session, ActionFrame("site.plan_meals", MEALS, async_=True)))
    done = await polled(lambda status: asked(session, status), started.data[0]["task_id"])

    assert [meal["day"] for meal in at_once.data[0]["meals"]] == [1, 2]
    assert done["result"] == at_once.data[0]


async def test_a_native_session_outlives_a_refusal(session: NcpSession, anchor: str) -> None:
    refused = await asked(session, QueryFrame(anchor, filter={"colour": {"$eq": "red"}}))
    answered = await asked(session, QueryFrame(anchor, limit=1))

    assert isinstance(refused, ErrorFrame)
    assert (refused.status, refused.error) == ("NPS-CLIENT-BAD-PARAM", "NWP-QUERY-FIELD-UNKNOWN")
    assert isinstance(answered, CapsFrame)
    assert answered.count == 1


@pytest.mark.parametrize(
    ("greeting", "code"),
    [
        (hello(nps_version="9.0", min_version="9.0"), "NCP-VERSION-INCOMPATIBLE"),
        (hello(supported_encodings=("morse",)), "NCP-ENCODING-UNSUPPORTED"),
    ],
    ids=["a version", "an encoding"],
)
async def test_a_session_is_refused_where_nothing_is_common(
    greeting: HelloFrame, code: str, manifest: dict[str, Any]
) -> None:
    with pytest.raises(NcpHandshakeError) as refusal:
        await connected(manifest, greeting)

    assert refusal.value.error == code
