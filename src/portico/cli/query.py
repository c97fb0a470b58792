"""`portico query --over nwp`: the same query, asked of a node on a server. Says it in NWP; decides nothing."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx

from portico.client import ClientError, NotReached
from portico.client.transports.nwp import NativeNwpClient, Node, NwpClient, NwpError, Wishes, certificate_of
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
from portico.query import EVERYTHING, Aggregate, And, Condition, Filter, Not, Or, Query

NATIVE = "nwp-native"


@dataclass(frozen=True, slots=True)
class Way:
    """What addresses look like that can be asked in a way, and what to look after if nobody answers."""

    address: str
    plain: str
    secure: str
    example: str
    absent: str


WAYS: Mapping[str, Way] = {
    "nwp": Way("an address of HTTP", "http://", "https://", "http://127.0.0.1:8000", "Is the server running?"),
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
class Server:
    """Where to ask, which way, and as whom."""

    over: str
    url: str | None
    api_key: str | None = None
    ident: Path | None = None
    ca: Path | None = None  # whom to trust over TLS, in place of the authorities of the web


@dataclass(frozen=True, slots=True)
class Found:
    rows: tuple[Mapping[str, Any], ...]
    total: int | None
    cursor: str


async def found_there(asked: Query, server: Server) -> Found:
    """Return as many rows as the query asks for, in as many pages as the server needs, and the total if it counts."""
    if asked.text:
        raise ConfigError("NWP has no search for words", hint="Leave out --text, or ask with `portico ask --url`.")
    try:
        async with _opened(asked.collection, server) as node:
            rows, cursor = await _rows(node, asked)
            return Found(rows, await _total(node, asked, len(rows), cursor), cursor)
    except ClientError as error:
        raise _told(error, server) from error


async def _rows(node: Node, asked: Query) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Return rows up to the limit, and the cursor to the rest. A server may end a page before its limit."""
    rows: list[Mapping[str, Any]] = []
    wishes = _wishes(asked)
    while True:
        answer = await node.query(**wishes)
        rows += answer.records
        missing = asked.limit - len(rows)
        if missing <= 0 or not answer.next_cursor or not answer.records:
            return tuple(rows), answer.next_cursor
        wishes["cursor"], wishes["limit"] = answer.next_cursor, missing


@asynccontextmanager
async def _opened(node: str, server: Server) -> AsyncGenerator[Node]:
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


def _address(server: Server) -> str:
    """Where to ask, if it can be asked there in this way."""
    way = WAYS[server.over]
    hint = f"Write --url {way.example}."
    if not server.url:
        raise ConfigError(f"--over {server.over} needs the address of a server", hint=hint)
    if not server.url.startswith((way.plain, way.secure)):
        raise ConfigError(f"{server.url} is not {way.address}, as --over {server.over} needs one", hint=hint)
    if server.over == NATIVE and server.api_key:
        raise ConfigError("A native connection takes no key", hint="Show a certificate with --ident.")
    if server.ca and not server.url.startswith(way.secure):
        raise ConfigError("--ca is about TLS, which this address does without", hint=f"Write --url {way.secure}….")
    return server.url


def _certificate(file: Path) -> Mapping[str, Any]:
    try:
        return certificate_of(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not a certificate: {error}", hint="`portico keys agent` makes one.") from error


def _trust(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise ConfigError(f"--ca {file} cannot be used: {error.strerror}", hint="It is a file in PEM.") from error


def _wishes(asked: Query) -> Wishes:
    wishes: Wishes = {
        "order": [f"-{each.field}" if each.descending else each.field for each in asked.order],
        "fields": list(dict.fromkeys(("id", *asked.fields))) if asked.fields and not asked.aggregate else [],
        "limit": asked.limit,
        "cursor": asked.cursor,
        "depth": 0,
    }
    if asked.where != EVERYTHING:
        wishes["filter"] = _spelled(asked.where)
    if asked.aggregate:
        wishes["aggregate"] = _spelled_aggregate(asked.aggregate)
    return wishes


def _spelled(where: Filter) -> dict[str, Any]:
    match where:
        case Condition(name, op, value):
            return {name: {f"${op}": list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value}}
        case And(parts):
            return {"$and": [_spelled(each) for each in parts]}
        case Or(parts):
            return {"$or": [_spelled(each) for each in parts]}
        case Not(part):
            return {"$not": _spelled(part)}


def _spelled_aggregate(aggregate: Aggregate) -> dict[str, Any]:
    operations = [
        {"func": each.function.upper(), "alias": each.alias, **({"field": each.field} if each.field else {})}
        for each in aggregate.operations
    ]
    having = {} if aggregate.having == EVERYTHING else {"having": _spelled(aggregate.having)}
    return {"operations": operations, "group_by": list(aggregate.group_by), **having}


async def _total(node: Node, asked: Query, count: int, cursor: str) -> int | None:
    """Return how many rows there are in all: an answer does not say, but to count is a query too."""
    if not asked.cursor and not cursor:
        return count
    if asked.aggregate:
        return None
    counted: Wishes = {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}]}, "depth": 0}
    if asked.where != EVERYTHING:
        counted["filter"] = _spelled(asked.where)
    try:
        return (await node.query(**counted)).records[0]["n"]
    except (NwpError, LookupError, TypeError):
        return None


def _told(error: ClientError, server: Server) -> SiteError:
    """What went wrong, as commands say it."""
    match error:
        case NwpError():
            kind = ERRORS.get(error.status, OperationFailed)
            shows_nothing = kind is Unauthenticated and not server.ident and not server.api_key
            hint = "With a certificate: --ident FILE." if shows_nothing else ""
            return kind(error.message or f"The server refused it: {error.error}", code=error.error, hint=hint)
        case NotReached() if distrust := _distrust(error):
            hint = "Name a file with it, or with the authority that signed it: --ca FILE."
            return Unavailable(f"The server's certificate is not trusted: {distrust}", hint=hint)
        case NotReached():
            return Unavailable(str(error), hint=WAYS[server.over].absent)
        case _:
            return OperationFailed(str(error))


def _distrust(error: BaseException | None) -> str:
    """Why a certificate was not believed, if that is behind an error."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error.verify_message if error else ""
