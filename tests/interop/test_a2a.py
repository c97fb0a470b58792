"""The official A2A client against the sample site, over a real socket, in both versions of the protocol."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import httpx
import msgspec
import pytest
import pytest_asyncio
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseDict
from tests.protocols.a2a.conftest import hearing
from tests.protocols.conftest import key_of, serving

from portico.cli.sites import demo_config
from portico.config import Search, StoreSettings
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

Version = Literal["1.0", "0.3"]
Stream = AsyncGenerator[pb.StreamResponse]
SOUP = "lemon barley soup"
ANSWERS = {"suitableForDiet": ["vegetarian"], "recipeCategory": "dinner", "totalTime": "no preference"}


@dataclass(frozen=True)
class Town:
    parts: Parts
    base: str

    @asynccontextmanager
    async def client(self, version: Version, *, key: str = "", **wishes: Any) -> AsyncIterator[Client]:
        """The official client, as it reads the card; of the two versions it is left one."""
        headers = {"x-api-key": key} if key else {}
        async with httpx.AsyncClient(headers=headers, timeout=20) as http:
            card = await A2ACardResolver(http, self.base).get_agent_card()
            spoken = [each for each in card.supported_interfaces if each.protocol_version == version]
            del card.supported_interfaces[:]
            card.supported_interfaces.extend(spoken)
            async with ClientFactory(ClientConfig(httpx_client=http, **wishes)).create(card) as client:
                yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """The sample site, without a model."""
    store = StoreSettings(url=f"sqlite:///{tmp_path_factory.mktemp('town')}/town.db")
    config = msgspec.structs.replace(
        demo_config(), store=store, search=Search(embedder="none:"), allow_hosts=["127.0.0.1"]
    )
    async with serving(config) as (parts, base):
        yield Town(parts, base)


def message(said: str | Mapping[str, Any], **more: Any) -> pb.SendMessageRequest:
    part = pb.Part(text=said) if isinstance(said, str) else ParseDict({"data": said}, pb.Part())
    sent = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[part], **more)
    return pb.SendMessageRequest(message=sent)


async def one(client: Client, request: pb.SendMessageRequest) -> pb.Task:
    """The task that a message led to, for a client that does not stream."""
    (event,) = [event async for event in client.send_message(request)]
    return event.task


def shown(task: pb.Task) -> Any:
    """The answer of a task, as data."""
    (artifact,) = task.artifacts
    return MessageToDict(artifact.parts[1].data)


@pytest.fixture(params=["1.0", "0.3"])
def version(request: pytest.FixtureRequest) -> Version:
    return cast("Version", request.param)


async def test_a_question_has_the_items_of_ask_in_the_same_order(town: Town, version: Version) -> None:
    async with town.client(version, streaming=False) as client, httpx.AsyncClient(base_url=town.base) as http:
        task = await one(client, message(SOUP))
        wanted = {"query": {"text": SOUP}, "prefer": {"portico_actions": "A2A"}}
        asked = (await http.post("/ask", json=wanted)).json()

    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert len(asked["results"]) > 5
    assert shown(task)["results"] == asked["results"]
    assert task.artifacts[0].parts[0].text.startswith("1. Lemon Barley Soup: ")


async def test_a_stream_brings_items_one_by_one_and_then_the_answer(town: Town, version: Version) -> None:
    async with town.client(version) as client:
        first, *between, last = [event async for event in client.send_message(message(SOUP))]

    assert first.task.status.state == pb.TASK_STATE_WORKING
    found = [
        MessageToDict(event.status_update.status.message.parts[1].data)["item"]
        for event in between
        if event.HasField("status_update")
    ]
    (whole,) = [event.artifact_update.artifact for event in between if event.HasField("artifact_update")]
    assert MessageToDict(whole.parts[1].data)["results"] == found
    assert last.status_update.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("said", [{"answers": ANSWERS}, "vegetarian dinner"], ids=["data", "words"])
async def test_a_question_back_is_answered_in_its_task(
    town: Town, version: Version, said: str | Mapping[str, Any]
) -> None:
    async with town.client(version, streaming=False) as client:
        asked = await one(client, message("pasta recipe"))
        answered = await one(client, message(said, task_id=asked.id, context_id=asked.context_id))

    assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
    words, questions = asked.status.message.parts
    assert "Is there a diet to keep to?" in words.text
    assert [each["id"] for each in MessageToDict(questions.data)["elicitation"]["questions"]] == list(ANSWERS)
    assert (answered.id, answered.status.state) == (asked.id, pb.TASK_STATE_COMPLETED)
    items = shown(answered)["results"]
    assert items
    assert {item["recipeCategory"] for item in items} == {"dinner"}


async def test_what_takes_long_is_cancelled(town: Town, version: Version) -> None:
    slow = {"operation": "plan_meals", "params": {"days": 2, "pace": 60}}
    async with town.client(version, streaming=False, polling=True) as client:
        task = await one(client, message(slow))
        cancelled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        seen = await client.get_task(pb.GetTaskRequest(id=task.id))
        with pytest.raises((A2AError, A2AClientError)):
            await client.cancel_task(pb.CancelTaskRequest(id=task.id))

    assert (task.status.state, cancelled.status.state) == (pb.TASK_STATE_WORKING, pb.TASK_STATE_CANCELED)
    assert seen.status.state == pb.TASK_STATE_CANCELED


async def test_a_client_that_left_its_stream_comes_back_to_it(town: Town, version: Version) -> None:
    plan = {"operation": "plan_meals", "params": {"days": 2, "pace": 0.3}}
    async with town.client(version) as client:
        async with aclosing(cast("Stream", client.send_message(message(plan)))) as stream:
            task = (await anext(stream)).task
        events = [event async for event in client.subscribe(pb.SubscribeToTaskRequest(id=task.id))]
        seen = await client.get_task(pb.GetTaskRequest(id=task.id))

    assert events[0].task.id == task.id
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    assert [meal["day"] for meal in shown(seen)["results"][0]["result"]["meals"]] == [1, 2]


async def test_a_client_is_told_of_its_task_elsewhere(town: Town, version: Version) -> None:
    key = await key_of(town.parts, "ask", "read:*", "execute:*")
    plan = {"operation": "plan_meals", "params": {"days": 1, "pace": 0.1}}
    async with hearing() as receiver:
        config = pb.TaskPushNotificationConfig(id="here", url=receiver.url, token="t1")
        wishes = {"streaming": False, "polling": True, "push_notification_config": config}
        async with town.client(version, key=key, **wishes) as client:
            task = await one(client, message(plan))
            headers, told = await receiver.next()

    whole = told["task"] if version == "1.0" else told
    assert (headers["x-a2a-notification-token"], whole["id"]) == ("t1", task.id)
    assert whole["status"]["state"] == ("TASK_STATE_COMPLETED" if version == "1.0" else "completed")


async def test_a_conversation_goes_on_in_its_context(town: Town, version: Version) -> None:
    async with town.client(version, streaming=False) as client:
        first = await one(client, message(SOUP))
        second = await one(client, message("and with chicken?", context_id=first.context_id))

    assert (second.context_id, second.id == first.id) == (first.context_id, False)
    assert shown(second)["_meta"]["decontextualized_query"] != "and with chicken?"


async def test_nobody_else_sees_a_task(town: Town, version: Version) -> None:
    async with town.client(version, key=await key_of(town.parts), streaming=False) as mine:
        task = await one(mine, message(SOUP))
        assert (await mine.get_task(pb.GetTaskRequest(id=task.id))).id == task.id
    async with town.client(version, streaming=False) as other:
        with pytest.raises((A2AError, A2AClientError), match=r"(?i)not found"):
            await other.get_task(pb.GetTaskRequest(id=task.id))


async def test_the_card_names_the_skills_of_the_town(town: Town) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, town.base).get_agent_card()

    assert card.name == "Merrow Bay"
    assert {"ask", "book_table", "plan_meals", "place_order"} <= {skill.id for skill in card.skills}
    assert not {"carts", "orders", "bookings"} & {tag for skill in card.skills for tag in skill.tags}
