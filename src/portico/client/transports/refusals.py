"""What a server says instead of an answer, before MCP or A2A come into play: a status and a JSON-RPC error."""

import re
from collections.abc import Mapping
from typing import Any, cast

import httpx
import msgspec

from portico.client import AskFailed, BadAnswer, ClientError

CODES: Mapping[int, str] = {401: "UNAUTHENTICATED", 403: "FORBIDDEN", 429: "RATE_LIMITED"}


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    data: Any = None


class _Body(msgspec.Struct, frozen=True):
    """A JSON-RPC error, or problem details."""

    error: _Error = _Error()
    detail: str = ""


def refused(response: httpx.Response) -> ClientError:
    """A response that was read, as the client says it. The code is NLWeb's as far as one fits."""
    status = response.status_code
    if status < 400:
        return BadAnswer(f"The server answers elsewhere (status {status}); redirects are not followed")
    error = _error(response.content)
    code = _reason(error.data) or CODES.get(status, f"HTTP_{status}")
    return AskFailed(code, error.message or f"The server answered with status {status}", status, _seconds(response))


def _error(raw: bytes) -> _Error:
    try:
        body = msgspec.json.decode(raw, type=_Body)
        return body.error if body.error.message else _Error(body.detail, body.error.data)
    except (ValueError, RecursionError):
        return _Error()


def _reason(data: Any) -> str:
    """The code of NLWeb, where the details of an error have it."""
    details = cast("list[Any]", data) if isinstance(data, list) else []
    reasons = [cast("dict[str, Any]", each).get("reason") for each in details if isinstance(each, dict)]
    return next((each for each in reasons if isinstance(each, str)), "")


def _seconds(response: httpx.Response) -> float | None:
    said = response.headers.get("retry-after", "")
    return float(said) if re.fullmatch(r"[0-9]{1,6}", said) else None
