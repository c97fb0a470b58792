"""`portico query --over nwp`: the same query, asked of a node on a server. Says it in NWP; decides nothing."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx

from portico.carriers.nwp import Answer, NativeNwpClient, Node, NwpClient, NwpError, Wishes
from portico.client import ClientError, NotReached
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


@dataclass(frozen=True, slots=True)
class Found:
    rows: tuple[Mapping[str, Any], ...]
    total: int | None
    cursor: str


async def found_there(asked: Query, server: Server) -> Found:
    """One page of a collection on a server, and how many there are in all, if it counts."""
    if asked.text:
        raise ConfigError("NWP has no search for words", hint="Leave out --text, or ask with `portico ask --url`.")
    try:
        async with _opened(asked.collection, server) as node:
            answer = await node.query(**_wishes(asked))
            return Found(answer.records, await _total(node, asked, answer), answer.next_cursor)
    except ClientError as error:
        raise _told(error) from error


@asynccontextmanager
async def _opened(node: str, server: Server) -> AsyncGenerator[Node]:
    scheme = "nwp://" if server.over == NATIVE else "http://"
    if not server.url or not server.url.startswith((scheme, scheme.replace("http:", "https:"))):
        example = "nwp://127.0.0.1:17433" if server.over == NATIVE else "http://127.0.0.1:8000"
        raise ConfigError(f"--over {server.over} needs the address of a server", hint=f"Write --url {example}.")
    if server.over == NATIVE and server.api_key:
        raise ConfigError("A native connection takes no key", hint="Show a certificate with --ident.")
    ident = _certificate(server.ident) if server.ident else None
    try:
        if server.over == NATIVE:
            client: Node = await NativeNwpClient.connect(server.url, node=node, ident=ident)
        else:
            client = NwpClient(server.url, node=node, key=server.api_key or "", ident=ident)
    except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as error:
        raise ConfigError(f"The address or the key cannot be used: {error}") from error
    async with client:
        yield client


def _certificate(file: Path) -> Mapping[str, Any]:
    try:
        said = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ConfigError(f"{file} is not a certificate", hint="`portico keys agent` makes one.")
    return cast("dict[str, Any]", said)


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


async def _total(node: Node, asked: Query, answer: Answer) -> int | None:
    """How many there are in all: an answer does not say, but to count is a query too."""
    if not asked.cursor and not answer.next_cursor:
        return len(answer.records)
    if asked.aggregate:
        return None
    counted: Wishes = {"aggregate": {"operations": [{"func": "COUNT", "alias": "n"}]}, "depth": 0}
    if asked.where != EVERYTHING:
        counted["filter"] = _spelled(asked.where)
    try:
        return (await node.query(**counted)).records[0]["n"]
    except (NwpError, LookupError):
        return None


def _told(error: ClientError) -> SiteError:
    """What went wrong, as commands say it."""
    match error:
        case NwpError():
            kind = ERRORS.get(error.status, OperationFailed)
            return kind(error.message or f"The server refused it: {error.error}", code=error.error)
        case NotReached():
            return Unavailable(str(error), hint="Is the server running?")
        case _:
            return OperationFailed(str(error))
