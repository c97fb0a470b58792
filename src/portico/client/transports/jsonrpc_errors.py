"""Errors of the server below MCP and A2A: an HTTP status with a JSON-RPC error or problem details."""

import re
from collections.abc import Mapping
from typing import Any, cast

import httpx
import msgspec

from portico.client import AskFailed, BadAnswer, ClientError

CODES: Mapping[int, str] = {401: "UNAUTHENTICATED", 403: "FORBIDDEN", 429: "RATE_LIMITED"}


class _RpcError(msgspec.Struct, frozen=True):
    message: str = ""
    data: Any = None


class _ErrorBody(msgspec.Struct, frozen=True):
    """A JSON-RPC error, or problem details."""

    error: _RpcError = _RpcError()
    detail: str = ""


def error_from_response(response: httpx.Response) -> ClientError:
    """Translate a response that has been read. The code is NLWeb's if one fits."""
    status = response.status_code
    if status < 400:
        return BadAnswer(f"The server redirects (status {status}); redirects are not followed")
    error = _error(response.content)
    code = _reason(error.data) or CODES.get(status, f"HTTP_{status}")
    return AskFailed(code, error.message or f"The server answered with status {status}", status, _seconds(response))


def _error(raw: bytes) -> _RpcError:
    try:
        body = msgspec.json.decode(raw, type=_ErrorBody)
        return body.error if body.error.message else _RpcError(body.detail, body.error.data)
    except (ValueError, RecursionError):
        return _RpcError()


def _reason(data: Any) -> str:
    """Return the code of NLWeb from the details of an error."""
    details = cast("list[Any]", data) if isinstance(data, list) else []
    reasons = [cast("dict[str, Any]", item).get("reason") for item in details if isinstance(item, dict)]
    return next((reason for reason in reasons if isinstance(reason, str)), "")


def _seconds(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"[0-9]{1,6}", value) else None
