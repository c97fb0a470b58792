"""Operations that call HTTP endpoints: described in the site file, or loaded from an OpenAPI document."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from portico.catalog import OPERATIONS, Danger, JsonSchema, Kind, Operation
from portico.config import Config, OperationSettings
from portico.errors import InvalidParams, OperationFailed, OutcomeUnknown, SourceError, Unavailable
from portico.operations import Context, check_operation_name, default_danger
from portico.operations.credentials import (
    Credentials,
    RequestSecrets,
    clear_hosts_of,
    make_authenticator,
    redact_response,
)
from portico.sources.fetch import Fetcher, may_have_arrived
from portico.sources.freshness import source_names
from portico.store import Store

MAX_RESPONSE = 4 << 20
THREADS = 16
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})  # idempotent methods (RFC 9110, 9.2.2)
TIMEOUT = 30.0  # seconds, for operations of OpenAPI documents
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"


class EndpointClient:
    """Sends requests on its own threads, so that slow endpoints delay only each other."""

    def __init__(self, allow_hosts: Sequence[str]) -> None:
        self._allow_hosts = tuple(allow_hosts)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="endpoint")

    def runner(self, endpoint: "HttpEndpoint", seconds: float) -> Callable[[Context, Mapping[str, Any]], Any]:
        fetcher = Fetcher(allow_hosts=self._allow_hosts, max_bytes=MAX_RESPONSE, timeout=seconds, deadline=seconds)

        async def run(_: Context, params: Mapping[str, Any]) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _send, endpoint, params, fetcher)

        return run


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """Turns parameters into a request."""

    name: str
    method: str
    url: str
    locations: Mapping[str, str]  # parameter -> path, query, header, body
    headers: Mapping[str, str]
    whole_body: bool  # the parameter `body` is the whole body
    content_type: str
    is_repeatable: bool  # a request without a readable response may be sent again
    credentials: Credentials | None = None

    def request(self, params: Mapping[str, Any]) -> tuple[str, bytes, dict[str, str]]:
        """Return the URL, body and headers of a call."""
        url, headers = self.url, dict(self.headers)
        query: dict[str, str | list[str]] = {}
        body: dict[str, Any] = {}
        for name, value in params.items():
            match self.locations.get(name, "body"):
                case "path":
                    url = url.replace(f"{{{name}}}", _path_part(self.name, name, _render_text(value)))
                case "query":
                    items = cast("list[Any]", value) if isinstance(value, list) else None
                    query[name] = _render_text(value) if items is None else [_render_text(item) for item in items]
                case "header":
                    headers[name] = _render_text(value).replace("\r", " ").replace("\n", " ")
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
            return urlencode({name: _render_text(value) for name, value in body.items()}).encode()
        return msgspec.json.encode(body["body"] if self.whole_body else body)


async def load_endpoint_operations(config: Config, store: Store, secret: Callable[[str], str]) -> list[Operation]:
    """Return the operations of the site file and those loaded from OpenAPI documents."""
    client = EndpointClient(config.allow_hosts)
    clear_hosts = clear_hosts_of(config.allow_hosts)
    # Also where nothing has been loaded yet: a variable that is missing is reported at the start.
    authenticators = {
        name: make_authenticator(source.auth, secret, clear_hosts)
        for source, name in zip(config.source, source_names(config), strict=True)
        if source.auth
    }

    def credentials_of(data: Mapping[str, Any]) -> Credentials | None:
        authenticator = authenticators.get(data.get("source", ""))
        return Credentials(authenticator, data.get("origin", ""), clear_hosts) if authenticator else None

    configured = [from_settings(settings, client, secret) for settings in config.operation]
    if OPERATIONS not in store.collections.schema:
        return configured
    loaded = [
        _from_item_data(item.data, client, credentials_of(item.data))
        async for items in store.items.scan(OPERATIONS)
        for item in items
    ]
    return [*configured, *loaded]


def from_settings(settings: OperationSettings, client: EndpointClient, secret: Callable[[str], str]) -> Operation:
    """Return an [[operation]] of the site file. `${NAME}` in a header is a secret from the environment."""
    check_operation_name(settings.name)
    kind = Kind(settings.kind)
    headers = {name: _VARIABLE.sub(lambda match: secret(match[1]), value) for name, value in settings.headers.items()}
    endpoint = HttpEndpoint(
        settings.name,
        settings.method,
        settings.url,
        {name: "path" if f"{{{name}}}" in settings.url else param.location for name, param in settings.params.items()},
        headers,
        False,
        _JSON,
        _is_repeatable(kind, settings.method),
    )
    properties = {
        name: {"type": param.type, **({"description": param.description} if param.description else {})}
        for name, param in settings.params.items()
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name, param in settings.params.items() if param.required],
        "additionalProperties": False,
    }
    danger = Danger[settings.danger.upper()] if settings.danger else default_danger(kind, settings.name)
    return Operation(
        settings.name,
        kind,
        settings.description,
        JsonSchema(schema),
        Any,
        client.runner(endpoint, settings.timeout),
        danger,
        timeout=settings.timeout,
        long=settings.long,
    )


def _is_repeatable(kind: Kind, method: str) -> bool:
    return kind is Kind.READ or method in REPEATABLE


def _from_item_data(
    data: Mapping[str, Any], client: EndpointClient, credentials: Credentials | None = None
) -> Operation:
    kind = Kind(data["kind"])
    endpoint = HttpEndpoint(
        data["name"],
        data["method"],
        data["url"],
        {param["name"]: param["in"] for param in data["parameters"]},
        {},
        data.get("body") == "whole",
        data.get("content_type") or _JSON,
        _is_repeatable(kind, data["method"]),
        credentials,
    )
    result = data.get("result_schema")
    return Operation(
        data["name"],
        kind,
        data["description"],
        JsonSchema(data["params_schema"]),
        JsonSchema(result) if result else Any,
        client.runner(endpoint, TIMEOUT),
        default_danger(kind, data["name"]),
        idempotent=data["method"] in REPEATABLE,
    )


def _send(endpoint: HttpEndpoint, params: Mapping[str, Any], fetcher: Fetcher) -> Any:
    request = endpoint.request(params)
    credentials = endpoint.credentials
    secrets = credentials.secrets_for(request[0], fetcher) if credentials else RequestSecrets()
    response = _exchange(endpoint, request, secrets, fetcher)
    if response.status == HTTPStatus.UNAUTHORIZED and credentials and credentials.authenticator.renew():
        secrets = credentials.secrets_for(request[0], fetcher)
        response = _exchange(endpoint, request, secrets, fetcher)
    _check_status(endpoint, response.status)
    raw = redact_response(response.body, secrets)
    if not raw:
        return None
    if "json" not in response.content_type:
        return raw.decode("utf-8", "replace")
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        problem = "answered with broken JSON"
        if not endpoint.is_repeatable:
            raise _unknown_outcome(endpoint, problem) from error
        raise OperationFailed(f"{endpoint.name}: the endpoint {problem}", operation=endpoint.name) from error


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """A response that was read to its end. That of an error has no body."""

    status: int
    content_type: str
    body: bytes


def _exchange(
    endpoint: HttpEndpoint, request: tuple[str, bytes, dict[str, str]], secrets: RequestSecrets, fetcher: Fetcher
) -> EndpointResponse:
    url, body, headers = request
    taken = {name.lower() for name in secrets.headers}
    headers = {name: value for name, value in headers.items() if name.lower() not in taken} | secrets.headers
    is_answered = False
    try:
        with fetcher.send(
            endpoint.method,
            url,
            body=body,
            headers=headers,
            max_bytes=MAX_RESPONSE,
            secret_query=secrets.query,
        ) as answer:
            is_answered = True
            has_failed = answer.status >= HTTPStatus.BAD_REQUEST
            return EndpointResponse(answer.status, answer.content_type, b"" if has_failed else answer.read())
    except SourceError as error:
        if not endpoint.is_repeatable and (is_answered or may_have_arrived(error)):
            raise _unknown_outcome(endpoint, "sent no complete response") from error
        raise Unavailable(f"{endpoint.name}: {error.message}", hint=error.hint, operation=endpoint.name) from error


def _check_status(endpoint: HttpEndpoint, status: int) -> None:
    """Raise for an error status. After 4xx the request was refused; after 5xx it may have been carried out."""
    if status < 400:
        return
    problem = f"answered {status}"
    if status >= 500 and not endpoint.is_repeatable:
        raise _unknown_outcome(endpoint, problem, status=status)
    raise OperationFailed(f"{endpoint.name}: the endpoint {problem}", operation=endpoint.name, status=status)


def _unknown_outcome(endpoint: HttpEndpoint, problem: str, **details: Any) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{endpoint.name}: the endpoint {problem}",
        operation=endpoint.name,
        state="unknown",
        hint="The operation may have been carried out. Check with the endpoint before you call it again.",
        **details,
    )


def _path_part(operation: str, name: str, text: str) -> str:
    # Segments of only dots are path steps, however they are quoted.
    if text in {"", ".", ".."}:
        raise InvalidParams(f"{operation}: {name}: {text!r} cannot stand in a path", operation=operation, param=name)
    return quote(text, safe="")


def _render_text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case _:
            return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else str(value)
