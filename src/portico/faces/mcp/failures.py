"""Errors as MCP tells them: one table from class to JSON-RPC code, for what is not the result of a tool."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from portico.errors import (
    BadRequest,
    Conflict,
    Denied,
    NotFound,
    RateLimited,
    SiteError,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from portico.faces.nlweb.failures import retry_after

# Codes from -32000 to -32099 are a server's own; MCP has taken -32002 and -32020 to -32042.
CODES: Mapping[type[SiteError], int] = {
    SiteError: types.INTERNAL_ERROR,
    BadRequest: types.INVALID_PARAMS,
    NotFound: types.INVALID_PARAMS,
    Denied: -32003,
    Unauthenticated: -32001,
    Conflict: -32009,
    RateLimited: -32005,
    Unavailable: -32010,
    TimedOut: types.REQUEST_TIMEOUT,
    Unsupported: types.METHOD_NOT_FOUND,
}


def told(error: SiteError) -> MCPError:
    """A site's error as one that goes over the wire."""
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    if code == types.INTERNAL_ERROR:
        return MCPError(code, "The site cannot answer this at the moment")
    return MCPError(code, str(error), shown(error) or None)


def shown(error: SiteError) -> dict[str, Any]:
    """What a program can use of an error, besides its message."""
    details = {"error": type(error).__name__, **error.details}
    return {**details, "retry_after": retry_after(error)} if isinstance(error, RateLimited) else details
