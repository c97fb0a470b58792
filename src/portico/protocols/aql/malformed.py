"""Calls of MCP-AQL's tools whose bytes are no UTF-8, or nested too deeply: no SDK would hand them over.

They are answered as the tool would answer them, with an envelope that says what is wrong and where.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from portico.config import Aql
from portico.protocols.aql.envelopes import INVALID_ENCODING, PAYLOAD_TOO_LARGE, Envelope, Fault, failure
from portico.protocols.aql.requests import misencoded, read
from portico.protocols.aql.surface import tools_of
from portico.protocols.nlweb.item_rendering import members

REVISION = "io.modelcontextprotocol/protocolVersion"  # in `_meta` of requests that stand alone


def answer(body: bytes, aql: Aql) -> Response | None:
    """What a tool says of a call that cannot be read; None if it is no call of one, or has no such fault."""
    message = _guessed(body)
    params, id = members(message.get("params")), message.get("id")
    is_call = message.get("method") == "tools/call" and isinstance(id, str | int)
    if not is_call or str(params.get("name")) not in tools_of(aql):
        return None
    fault = _fault(body, members(params.get("arguments")), aql)
    if fault is None:
        return None
    envelope = Envelope(failure(fault)).encoded
    result = {
        "content": [{"type": "text", "text": envelope.decode()}],
        "structuredContent": msgspec.Raw(envelope),
        "isError": aql.errors,
        **({"resultType": "complete"} if REVISION in members(params.get("_meta")) else {}),
    }
    said = msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": result})
    return Response(said, media_type="application/json")


def _guessed(body: bytes) -> Mapping[str, Any]:
    """A message as far as it can be made out: enough to know what it was meant for."""
    try:
        return members(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def _fault(body: bytes, arguments: Mapping[str, Any], aql: Aql) -> Fault | None:
    try:
        body.decode()
        read(arguments, aql)
    except UnicodeDecodeError as error:
        return misencoded(error.start)
    except Fault as fault:
        return fault if fault.code in {INVALID_ENCODING, PAYLOAD_TOO_LARGE} else None
    return None
