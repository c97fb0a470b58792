"""Operations that are HTTP endpoints elsewhere: described in the site file, or read from an OpenAPI document."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from portico.catalog import OPERATIONS, Danger, JsonSchema, Kind, Operation
from portico.config import Config, OperationSettings
from portico.errors import InvalidParams, OperationFailed, OutcomeUnknown, SourceError, Unavailable
from portico.operations import Context, check_operation_name, default_danger
from portico.sources.fetch import Fetcher, may_have_arrived
from portico.store import Store

MAX_ANSWER = 4 << 20
THREADS = 16
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})  # methods that are idempotent (RFC 9110, 9.2.2)
TIMEOUT = 30.0  # seconds, for what an OpenAPI document describes
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"


class WayOut:
    """Sends requests on threads of its own: endpoints that do not answer hold up only each other."""

    def __init__(self, allow_hosts: Sequence[str]) -> None:
        self._allow_hosts = tuple(allow_hosts)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="endpoint")

    def runner(self, endpoint: "Endpoint", seconds: float) -> Callable[[Context, Mapping[str, Any]], Any]:
        fetcher = Fetcher(allow_hosts=self._allow_hosts, max_bytes=MAX_ANSWER, timeout=seconds, deadline=seconds)

        async def run(_: Context, params: Mapping[str, Any]) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _send, endpoint, params, fetcher)

        return run


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How parameters become a request."""

    name: str
    method: str
    url: str
    places: Mapping[str, str]  # parameter -> path, query, header, body
    headers: Mapping[str, str]
    whole_body: bool  # the parameter named body is the body
    content_type: str
    is_repeatable: bool  # a request without a readable response may be sent again

    def request(self, params: Mapping[str, Any]) -> tuple[str, bytes, dict[str, str]]:
        """URL, body and headers of one call."""
        url, headers = self.url, dict(self.headers)
        query: dict[str, str | list[str]] = {}
        body: dict[str, Any] = {}
        for name, value in params.items():
            match self.places.get(name, "body"):
                case "path":
                    url = url.replace(f"{{{name}}}", _path_part(self.name, name, _text(value)))
                case "query":
                    several = cast("list[Any]", value) if isinstance(value, list) else None
                    query[name] = _text(value) if several is None else [_text(each) for each in several]
                case "header":
                    headers[name] = _text(value).replace("\r", " ").replace("\n", " ")
                case _:
                    body[name] = value
        if query:
            url += ("&" if "?" in url else "?") + urlencode(query, doseq=True)
        return url, self._body(body, headers), headers

    def _body(self, body: Mapping[str, Any], headers: dict[str, str]) -> bytes:
        if not body:
            return b""
        headers["Content-Type"] = self.content_type
        if self.content_type == _FORM:
            return urlencode({name: _text(value) for name, value in body.items()}).encode()
        return msgspec.json.encode(body["body"] if self.whole_body else body)


async def operations_elsewhere(config: Config, store: Store, secret: Callable[[str], str]) -> list[Operation]:
    """Those of the site file, and those that were loaded from OpenAPI documents."""
    out = WayOut(config.allow_hosts)
    described = [described_operation(each, out, secret) for each in config.operation]
    if OPERATIONS not in store.collections.schema:
        return described
    loaded = [_stored(item.data, out) async for items in store.items.scan(OPERATIONS) for item in items]
    return [*described, *loaded]


def described_operation(said: OperationSettings, out: WayOut, secret: Callable[[str], str]) -> Operation:
    """An [[operation]] of the site file. `${NAME}` in a header is a secret from the environment."""
    check_operation_name(said.name)
    kind = Kind(said.kind)
    headers = {name: _VARIABLE.sub(lambda found: secret(found[1]), value) for name, value in said.headers.items()}
    endpoint = Endpoint(
        said.name,
        said.method,
        said.url,
        {name: "path" if f"{{{name}}}" in said.url else each.location for name, each in said.params.items()},
        headers,
        False,
        _JSON,
        _is_repeatable(kind, said.method),
    )
    properties = {
        name: {"type": each.type, **({"description": each.description} if each.description else {})}
        for name, each in said.params.items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name, each in said.params.items() if each.required],
        "additionalProperties": False,
    }
    danger = Danger[said.danger.upper()] if said.danger else default_danger(kind, said.name)
    return Operation(
        said.name,
        kind,
        said.description,
        JsonSchema(schema),
        Any,
        out.runner(endpoint, said.timeout),
        danger,
        timeout=said.timeout,
        long=said.long,
    )


def _is_repeatable(kind: Kind, method: str) -> bool:
    return kind is Kind.READ or method in REPEATABLE


def _stored(data: Mapping[str, Any], out: WayOut) -> Operation:
    kind = Kind(data["kind"])
    endpoint = Endpoint(
        data["name"],
        data["method"],
        data["url"],
        {each["name"]: each["in"] for each in data["parameters"]},
        {},
        data.get("body") == "whole",
        data.get("content_type") or _JSON,
        _is_repeatable(kind, data["method"]),
    )
    result = data.get("result_schema")
    return Operation(
        data["name"],
        kind,
        data["description"],
        JsonSchema(data["params_schema"]),
        JsonSchema(result) if result else Any,
        out.runner(endpoint, TIMEOUT),
        default_danger(kind, data["name"]),
        idempotent=data["method"] in REPEATABLE,
    )


def _send(endpoint: Endpoint, params: Mapping[str, Any], fetcher: Fetcher) -> Any:
    url, body, headers = endpoint.request(params)
    is_answered = False
    try:
        with fetcher.send(endpoint.method, url, body=body, headers=headers, max_bytes=MAX_ANSWER) as answer:
            is_answered = True
            _check_status(endpoint, answer.status)
            raw = answer.read()
    except SourceError as error:
        if not endpoint.is_repeatable and (is_answered or may_have_arrived(error)):
            raise _unknown(endpoint, "sent no complete response") from error
        raise Unavailable(f"{endpoint.name}: {error.message}", hint=error.hint, operation=endpoint.name) from error
    if not raw:
        return None
    if "json" not in answer.content_type:
        return raw.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        problem = "answered with broken JSON"
        if not endpoint.is_repeatable:
            raise _unknown(endpoint, problem) from error
        raise OperationFailed(f"{endpoint.name}: the endpoint {problem}", operation=endpoint.name) from error


def _check_status(endpoint: Endpoint, status: int) -> None:
    """Raise an error for a failed request. With 4xx it was refused; with 5xx it may have been carried out."""
    if status < 400:
        return
    problem = f"answered {status}"
    if status >= 500 and not endpoint.is_repeatable:
        raise _unknown(endpoint, problem, status=status)
    raise OperationFailed(f"{endpoint.name}: the endpoint {problem}", operation=endpoint.name, status=status)


def _unknown(endpoint: Endpoint, problem: str, **details: Any) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{endpoint.name}: the endpoint {problem}",
        operation=endpoint.name,
        state="unknown",
        hint="The operation may have been carried out. Check with the endpoint before you call it again.",
        **details,
    )


def _path_part(operation: str, name: str, text: str) -> str:
    # Dots alone are steps in a path, however they are quoted.
    if text in {"", ".", ".."}:
        raise InvalidParams(f"{operation}: {name}: {text!r} cannot stand in a path", operation=operation, param=name)
    return quote(text, safe="")


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)
