"""The way over A2A: each request is a message to the site's agent, with the client of the official SDK.

A promise is a task of the agent there: its token is the id of that task.
"""

import uuid
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, cast

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf import json_format

from portico.client import AskFailed, BadAnswer, ClientError, NotReached, Path
from portico.client.transports.refusals import refused

JSON = "application/json"
EXACT = 2**53 - 1  # up to here a number of a data part, which is a float, is as exact as an int
UNDER_WAY = frozenset({pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING})

CODES: Mapping[type[Exception], str] = {
    InvalidParamsError: "INVALID_QUERY",
    TaskNotFoundError: "UNKNOWN_PROMISE",
    UnsupportedOperationError: "UNSUPPORTED",
    InternalError: "INTERNAL_ERROR",
}


class A2aCarrier:
    """Asks the agent that the server's card names. An agent of another server is not asked: it would get the key."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._known: Client | None = None

    async def post(self, path: Path, body: Mapping[str, Any]) -> Mapping[str, Any]:
        with _told():
            agent = await self._agent()
            if path == "ask":
                return await _asked(agent, body)
            return _answer(await _looked(agent, body["promise_token"], cancel=body["action"] == "cancel"))

    async def _agent(self) -> Client:
        if self._known is None:
            card = await A2ACardResolver(self._http, str(self._http.base_url)).get_agent_card()
            _check(card, self._http.base_url)
            config = ClientConfig(httpx_client=self._http, accepted_output_modes=[JSON])
            self._known = ClientFactory(config).create(card)
        return self._known


def _check(card: pb.AgentCard, asked: httpx.URL) -> None:
    """Refuse an agent elsewhere."""
    spoken = [each.url for each in card.supported_interfaces if each.protocol_binding == TransportProtocol.JSONRPC]
    for url in map(httpx.URL, spoken):
        if (url.scheme, url.host, url.port) != (asked.scheme, asked.host, asked.port):
            raise BadAnswer(f"The agent is on another server, {url.scheme}://{url.netloc.decode()}: ask that one")


async def _asked(agent: Client, body: Mapping[str, Any]) -> Mapping[str, Any]:
    part = pb.Part(media_type=JSON)
    json_format.ParseDict(dict(body), part.data)
    message = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[part])
    told = cast("AsyncGenerator[pb.StreamResponse]", agent.send_message(pb.SendMessageRequest(message=message)))
    task = pb.Task()
    async with aclosing(told):
        async for event in told:
            if event.HasField("message"):
                return _data(event.message.parts)
            _take(event, task)
            if _is_promised(task):  # the stream goes on until it is kept
                break
    return _answer(task)


def _take(event: pb.StreamResponse, task: pb.Task) -> None:
    """Bring a task up to date with what is told of it."""
    match event.WhichOneof("payload"):
        case "task":
            task.CopyFrom(event.task)
        case "status_update":
            task.status.CopyFrom(event.status_update.status)
        case "artifact_update" if event.artifact_update.append and task.artifacts:
            task.artifacts[-1].parts.extend(event.artifact_update.artifact.parts)
        case "artifact_update":
            task.artifacts.append(event.artifact_update.artifact)
        case _:
            pass


def _is_promised(task: pb.Task) -> bool:
    """Whether it is known that the answer takes longer."""
    return any("promise" in part.data.struct_value.fields for part in task.status.message.parts)


async def _looked(agent: Client, id: str, *, cancel: bool) -> pb.Task:
    """A task as it is by now, or after it was cancelled; one that has ended cannot be cancelled."""
    if cancel:
        try:
            return await agent.cancel_task(pb.CancelTaskRequest(id=id))
        except TaskNotCancelableError:
            pass
    return await agent.get_task(pb.GetTaskRequest(id=id))


def _answer(task: pb.Task) -> Mapping[str, Any]:
    """What a task says: its artifact, or what is said of its state."""
    parts = [part for artifact in task.artifacts for part in artifact.parts] or task.status.message.parts
    if task.status.state in UNDER_WAY:
        return _promise(task.id, _data(task.status.message.parts) if _is_promised(task) else {})
    if task.status.state == pb.TASK_STATE_CANCELED and not parts:
        return {"_meta": {"response_type": "failure"}, "error": {"code": "CANCELLED", "message": "It was cancelled"}}
    return _data(parts)


def _promise(id: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
    meta, promise = said.get("_meta", {}), said.get("promise", {})
    return {"_meta": {**meta, "response_type": "promise"}, "promise": {**promise, "token": id}}


def _data(parts: Iterable[pb.Part]) -> dict[str, Any]:
    found = [part for part in parts if part.HasField("data")]
    said = _whole(json_format.MessageToDict(found[-1].data)) if found else None
    if not isinstance(said, dict):
        raise BadAnswer("The answer is not NLWeb: it has no data")
    return cast("dict[str, Any]", said)


def _whole(value: Any) -> Any:
    """Data with ints where numbers are whole: A2A makes all of them floats."""
    match value:
        case float() if value.is_integer() and abs(value) <= EXACT:
            return int(value)
        case dict():
            return {name: _whole(each) for name, each in cast("dict[str, Any]", value).items()}
        case list():
            return [_whole(each) for each in cast("list[Any]", value)]
        case _:
            return value


@contextmanager
def _told() -> Generator[None]:
    """What goes wrong, as the client says it."""
    try:
        yield
    except A2AError as error:
        raise _failed(error) from error
    except (ValueError, json_format.Error, httpx.InvalidURL) as error:
        raise BadAnswer(f"The server does not answer as A2A says: {error}") from error


def _failed(error: A2AError) -> ClientError:
    match error.__cause__:
        case httpx.HTTPStatusError(response=response):
            return refused(response)
        case httpx.HTTPError() as cause:
            return NotReached(f"The server cannot be reached: {str(cause) or type(cause).__name__}")
        case _:
            pass
    if type(error) in CODES:
        return AskFailed(CODES[type(error)], str(error), 200)
    return BadAnswer(f"The server does not answer as A2A says: {error}")
