"""Runs the queries of `portico query --over nwp` on a node of a server, and translates its errors."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx

from portico.client import ClientError, NotReached
from portico.client.transports.nwp import NativeNwpClient, Node, NwpClient, NwpError, QueryOptions, certificate_of
from portico.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    Forbidden,
    InvalidQuery,
    NotFound,
    OperationFailed,
    RateLimited,
    SiteError,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from portico.query import MATCH_ALL, Aggregate, And, Condition, Filter, Not, Or, Query

NATIVE = "nwp-native"


@dataclass(frozen=True, slots=True)
class Way:
    """The form of addresses of a transport, and a hint for when a server does not respond."""

    address: str
    plain: str
    secure: str
    example: str
    absent: str


WAYS: Mapping[str, Way] = {
    "nwp": Way("an HTTP address", "http://", "https://", "http://127.0.0.1:8000", "Is the server running?"),
    NATIVE: Way(
        *("a native address", "nwp://", "nwps://", "nwp://127.0.0.1:17433"),
        "Is the server running, and is this its native port?",
    ),
}

ERRORS: Mapping[str, type[SiteError]] = {
    "NPS-CLIENT-BAD-PARAM": InvalidQuery,
    "NPS-CLIENT-BAD-FRAME": BadRequest,
    "NPS-CLIENT-UNPROCESSABLE": BadRequest,
    "NPS-CLIENT-NOT-FOUND": NotFound,
    "NPS-CLIENT-CONFLICT": Conflict,
    "NPS-AUTH-UNAUTHENTICATED": Unauthenticated,
    "NPS-AUTH-FORBIDDEN": Forbidden,
    "NPS-LIMIT-RATE": RateLimited,
    "NPS-LIMIT-PAYLOAD": TooLarge,
    "NPS-SERVER-UNAVAILABLE": Unavailable,
    "NPS-SERVER-TIMEOUT": TimedOut,
    "NPS-SERVER-UNSUPPORTED": Unsupported,
    "NPS-PROTO-VERSION-INCOMPATIBLE": Unsupported,
}


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server to query, over which transport, and with which credentials."""

    over: str
    url: str | None
    api_key: str | None = None
    ident: Path | None = None
    ca: Path | None = None  # certificates to trust over TLS instead of the public authorities


@dataclass(frozen=True, slots=True)
class RemotePage:
    rows: tuple[Mapping[str, Any], ...]
    total: int | None
    cursor: str


async def query_server(query: Query, server: RemoteServer) -> RemotePage:
    """Return as many rows as the query asks for, in as many pages as the server needs, and the total if it counts."""
    if query.text:
        raise ConfigError("NWP has no text search", hint="Leave out --text, or use `portico ask --url`.")
    try:
        async with _connect(query.collection, server) as node:
            rows, cursor = await _rows(node, query)
            return RemotePage(rows, await _total(node, query, len(rows), cursor), cursor)
    except ClientError as error:
        raise _to_site_error(error, server) from error


async def _rows(node: Node, query: Query) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Return rows up to the limit, and the cursor to the rest. A server may end a page before its limit."""
    rows: list[Mapping[str, Any]] = []
    options = _query_options(query)
    while True:
        answer = await node.query(**options)
        rows += answer.records
        missing = query.limit - len(rows)
        if missing <= 0 or not answer.next_cursor or not answer.records:
            return tuple(rows), answer.next_cursor
        options["cursor"], options["limit"] = answer.next_cursor, missing


@asynccontextmanager
async def _connect(node: str, server: RemoteServer) -> AsyncGenerator[Node]:
    url = _address(server)
    ident = _certificate(server.ident) if server.ident else None
    trust = _trust(server.ca) if server.ca else None
    try:
        if server.over == NATIVE:
            client: Node = await NativeNwpClient.connect(url, node=node, ident=ident, ssl=trust)
        else:
            client = NwpClient(url, node=node, key=server.api_key or "", ident=ident, ssl=trust)
    except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as error:
        raise ConfigError(f"The address or the key cannot be used: {error}") from error
    async with client:
        yield client


def _address(server: RemoteServer) -> str:
    """Return the URL of the server, or raise if this transport cannot use it."""
    way = WAYS[server.over]
    hint = f"Write --url {way.example}."
    if not server.url:
        raise ConfigError(f"--over {server.over} needs the address of a server", hint=hint)
    if not server.url.startswith((way.plain, way.secure)):
        raise ConfigError(f"{server.url} is not {way.address}, which --over {server.over} needs", hint=hint)
    if server.over == NATIVE and server.api_key:
        raise ConfigError("A native connection cannot use an API key", hint="Use a certificate with --ident.")
    if server.ca and not server.url.startswith(way.secure):
        raise ConfigError("--ca needs an address with TLS", hint=f"Write --url {way.secure}….")
    return server.url


def _certificate(file: Path) -> Mapping[str, Any]:
    try:
        return certificate_of(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(
            f"{file} is not a certificate: {error}", hint="Create one with `portico keys agent`."
        ) from error


def _trust(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise ConfigError(f"--ca {file} cannot be used: {error.strerror}", hint="It must be a PEM file.") from error


def _query_options(query: Query) -> QueryOptions:
    options: QueryOptions = {
        "order": [f"-{key.field}" if key.descending else key.field for key in query.order],
        "fields": list(dict.fromkeys(("id", *query.fields))) if query.fields and not query.aggregate else [],
        "limit": query.limit,
        "cursor": query.cursor,
        "depth": 0,
    }
    if query.where != MATCH_ALL:
        options["filter"] = _filter_json(query.where)
    if query.aggregate:
        options["aggregate"] = _aggregate_json(query.aggregate)
    return options


def _filter_json(where: Filter) -> dict[str, Any]:
    match where:
        case Condition(name, op, value):
            return {name: {f"${op}": list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value}}
        case And(parts):
            return {"$and": [_filter_json(part) for part in parts]}
        case Or(parts):
            return {"$or": [_filter_json(part) for part in parts]}
        case Not(part):
            return {"$not": _filter_json(part)}


def _aggregate_json(aggregate: Aggregate) -> dict[str, Any]:
    operations = [
        {
            "func": operation.function.upper(),
            "alias": operation.alias,
            **({"field": operation.field} if operation.field else {}),
        }
        for operation in aggregate.operations
    ]
    having = {} if aggregate.having == MATCH_ALL else {"having": _filter_json(aggregate.having)}
    return {"operations": operations, "group_by": list(aggregate.group_by), **having}


async def _total(node: Node, query: Query, count: int, cursor: str) -> int | None:
    """Return the number of all matching rows, by a query that counts them; None if the node cannot."""
    if not query.cursor and not cursor:
        return count
    if query.aggregate:
        return None
    count_options: QueryOptions = {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}]}, "depth": 0}
    if query.where != MATCH_ALL:
        count_options["filter"] = _filter_json(query.where)
    try:
        return (await node.query(**count_options)).records[0]["n"]
    except (NwpError, LookupError, TypeError):
        return None


def _to_site_error(error: ClientError, server: RemoteServer) -> SiteError:
    """Translate an error of the client into one that the command line shows."""
    match error:
        case NwpError():
            kind = ERRORS.get(error.status, OperationFailed)
            shows_nothing = kind is Unauthenticated and not server.ident and not server.api_key
            hint = "Use a certificate with --ident FILE." if shows_nothing else ""
            return kind(error.message or f"The server refused the query: {error.error}", code=error.error, hint=hint)
        case NotReached() if distrust := _distrust(error):
            hint = "Trust it, or the authority that signed it, with --ca FILE."
            return Unavailable(f"The server's certificate is not trusted: {distrust}", hint=hint)
        case NotReached():
            return Unavailable(str(error), hint=WAYS[server.over].absent)
        case _:
            return OperationFailed(str(error))


def _distrust(error: BaseException | None) -> str:
    """Return why a certificate was not trusted, if that caused the error."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error.verify_message if error else ""
