"""The carrier over A2A: sends each request as a message to the site's agent, with the official SDK.

A promise is a task of the agent, and its token is the ID of that task.
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

from portico.client import AskFailed, BadAnswer, ClientError, NotReached, RequestPath
from portico.client.transports.jsonrpc_errors import error_from_response

JSON = "application/json"
MAX_EXACT_INTEGER = 2**53 - 1  # up to here a number of a data part, which is a float, is as exact as an int
RUNNING_STATES = frozenset({pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING})

CODES: Mapping[type[Exception], str] = {
    InvalidParamsError: "INVALID_QUERY",
    TaskNotFoundError: "UNKNOWN_PROMISE",
    UnsupportedOperationError: "UNSUPPORTED",
    InternalError: "INTERNAL_ERROR",
}


class A2aCarrier:
    """Asks the agent of the server's card. An agent on another server is refused, since it would receive the key."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._known: Client | None = None

    async def post(self, path: RequestPath, body: Mapping[str, Any]) -> Mapping[str, Any]:
        with _translate_errors():
            agent = await self._agent()
            if path == "ask":
                return await _send_message(agent, body)
            return _answer(await _load_task(agent, body["promise_token"], cancel=body["action"] == "cancel"))

    async def _agent(self) -> Client:
        if self._known is None:
            card = await A2ACardResolver(self._http, str(self._http.base_url)).get_agent_card()
            _check(card, self._http.base_url)
            config = ClientConfig(httpx_client=self._http, accepted_output_modes=[JSON])
            self._known = ClientFactory(config).create(card)
        return self._known


def _check(card: pb.AgentCard, server: httpx.URL) -> None:
    """Raise if the agent is on another server."""
    urls = [
        interface.url
        for interface in card.supported_interfaces
        if interface.protocol_binding == TransportProtocol.JSONRPC
    ]
    for url in map(httpx.URL, urls):
        if (url.scheme, url.host, url.port) != (server.scheme, server.host, server.port):
            raise BadAnswer(f"The agent is on another server: use {url.scheme}://{url.netloc.decode()}")


async def _send_message(agent: Client, body: Mapping[str, Any]) -> Mapping[str, Any]:
    part = pb.Part(media_type=JSON)
    json_format.ParseDict(dict(body), part.data)
    message = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[part])
    events = cast("AsyncGenerator[pb.StreamResponse]", agent.send_message(pb.SendMessageRequest(message=message)))
    task = pb.Task()
    async with aclosing(events):
        async for event in events:
            if event.HasField("message"):
                return _data(event.message.parts)
            _update_task(event, task)
            if _is_promised(task):  # the stream would continue until it is fulfilled
                break
    return _answer(task)


def _update_task(event: pb.StreamResponse, task: pb.Task) -> None:
    """Apply an event to a task."""
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
    """Return whether the agent has promised an answer."""
    return any("promise" in part.data.struct_value.fields for part in task.status.message.parts)


async def _load_task(agent: Client, id: str, *, cancel: bool) -> pb.Task:
    """Return the current task, cancelled first if it has not ended."""
    if cancel:
        try:
            return await agent.cancel_task(pb.CancelTaskRequest(id=id))
        except TaskNotCancelableError:
            pass
    return await agent.get_task(pb.GetTaskRequest(id=id))


def _answer(task: pb.Task) -> Mapping[str, Any]:
    """Return the response of a task: its artifact, or the message of its state."""
    parts = [part for artifact in task.artifacts for part in artifact.parts] or task.status.message.parts
    if task.status.state in RUNNING_STATES:
        return _promise(task.id, _data(task.status.message.parts) if _is_promised(task) else {})
    if task.status.state == pb.TASK_STATE_CANCELED and not parts:
        error = {"code": "CANCELLED", "message": "The task was cancelled"}
        return {"_meta": {"response_type": "failure"}, "error": error}
    return _data(parts)


def _promise(id: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    meta, promise = data.get("_meta", {}), data.get("promise", {})
    return {"_meta": {**meta, "response_type": "promise"}, "promise": {**promise, "token": id}}


def _data(parts: Iterable[pb.Part]) -> dict[str, Any]:
    data_parts = [part for part in parts if part.HasField("data")]
    value = _with_integers(json_format.MessageToDict(data_parts[-1].data)) if data_parts else None
    if not isinstance(value, dict):
        raise BadAnswer("The answer is not NLWeb: it has no data")
    return cast("dict[str, Any]", value)


def _with_integers(value: Any) -> Any:
    """Restore integers: A2A turns all numbers into floats."""
    match value:
        case float() if value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
            return int(value)
        case dict():
            return {name: _with_integers(item) for name, item in cast("dict[str, Any]", value).items()}
        case list():
            return [_with_integers(item) for item in cast("list[Any]", value)]
        case _:
            return value


@contextmanager
def _translate_errors() -> Generator[None]:
    """Translate errors of the SDK into those of the client."""
    try:
        yield
    except A2AError as error:
        raise _to_client_error(error) from error
    except (ValueError, json_format.Error, httpx.InvalidURL) as error:
        raise BadAnswer(f"The response is not valid A2A: {error}") from error


def _to_client_error(error: A2AError) -> ClientError:
    match error.__cause__:
        case httpx.HTTPStatusError(response=response):
            return error_from_response(response)
        case httpx.HTTPError() as cause:
            return NotReached(f"The server cannot be reached: {str(cause) or type(cause).__name__}")
        case _:
            pass
    if type(error) in CODES:
        return AskFailed(CODES[type(error)], str(error), 200)
    return BadAnswer(f"The response is not valid A2A: {error}")
