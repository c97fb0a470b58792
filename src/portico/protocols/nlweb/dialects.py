"""The dialects of NLWeb, and which one a request is written in."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from portico.items import MAX_EXACT_INTEGER

Format: TypeAlias = Literal["conversational_search", "chatgpt_app"]
ResponseType: TypeAlias = Literal["answer", "elicitation", "promise", "failure"]

MAX_ECHO = 128  # characters of an identifier that is sent back


@dataclass(frozen=True, slots=True)
class NlwebDialect:
    name: Literal["0.55", "0.54", "flat"]
    version: str  # said in `_meta`
    format: Format  # when the caller does not say
    streams: bool  # when the caller does not say
    summary: str  # the type of an item that is a summary
    titled: bool = False  # response types begin with a capital

    def response_type(self, kind: ResponseType) -> str:
        return kind.title() if self.titled else kind


V55 = NlwebDialect("0.55", "0.55", "conversational_search", False, "SearchSummary")
V54 = NlwebDialect("0.54", "0.54", "chatgpt_app", True, "Summary", titled=True)
FLAT = NlwebDialect("flat", "0.55", "conversational_search", True, "Summary")
VERSIONS: Mapping[str, NlwebDialect] = {dialect.version: dialect for dialect in (V55, V54)}
# The attributes of `meta` that name a version, and the dialect of a request that names an unknown one there.
VERSION_ATTRIBUTES: Mapping[str, NlwebDialect] = {"version": V55, "api_version": V54}


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """What a request says of its client. Known before the rest is parsed, so that the client can read a refusal."""

    dialect: NlwebDialect = V55
    declared: bool = True  # the caller named a version
    request_id: str | int = ""
    query_id: str = ""  # of the flat dialect: clients drop what has another
    ignored: tuple[str, ...] = ()  # attributes whose version is unknown


def parse_client_info(raw: Any, *, flat: bool = False) -> ClientInfo:
    """Return the dialect of a request, whatever else may be wrong with it.

    An unknown version is answered in the newest dialect that has the attribute, and listed in `_meta.ignored`.
    """
    if not isinstance(raw, dict):
        return ClientInfo(FLAT if flat else V55, declared=False)
    body = cast("dict[str, Any]", raw)
    meta: Mapping[str, Any] = body["meta"] if isinstance(body.get("meta"), dict) else {}
    request_id = echo(meta.get("request_id"))
    for name, newest in VERSION_ATTRIBUTES.items():
        version = meta.get(name)
        if version is not None:
            # A version may be written as a number, 0.55.
            is_version = isinstance(version, str | float)
            dialect = VERSIONS.get(str(version).strip()) if is_version else None
            return ClientInfo(dialect or newest, True, request_id, ignored=() if dialect else (f"meta.{name}",))
    if flat or isinstance(body.get("query"), str):
        return ClientInfo(FLAT, True, request_id, str(echo(body.get("query_id"))) or f"query_{secrets.token_hex(12)}")
    return ClientInfo(V55, False, request_id)


def echo(value: Any) -> str | int:
    """Return an identifier of the caller in a form to send back; empty if it is not an identifier."""
    if isinstance(value, str):
        return value[:MAX_ECHO]
    return value if type(value) is int and abs(value) <= MAX_EXACT_INTEGER else ""
