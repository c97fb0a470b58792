"""Every error has a code of its own in MCP."""

from collections.abc import Iterator

import mcp_types as types
import pytest

from portico import errors
from portico.errors import ConfigError, SiteError
from portico.protocols import edge, jsonrpc
from portico.protocols.mcp import errors as failures
from portico.protocols.mcp.errors import CODES, INTERNAL, code_of, rpc_error

OURS = {errors.__name__, edge.__name__, jsonrpc.__name__}
OF_JSON_RPC = {types.PARSE_ERROR, types.INVALID_REQUEST, types.METHOD_NOT_FOUND, types.INVALID_PARAMS, INTERNAL}


def kinds(of: type[SiteError] = SiteError) -> Iterator[type[SiteError]]:
    for each in of.__subclasses__():
        if each.__module__ in OURS:
            yield each
            yield from kinds(each)


@pytest.mark.parametrize("kind", sorted(set(kinds()), key=lambda each: each.__name__))
def test_every_error_has_a_code_and_says_nothing_of_the_inside(kind: type[SiteError]) -> None:
    said = rpc_error(kind("It broke in /srv/portico"))

    assert said["code"] == code_of(kind("")).code
    assert (said["code"] == INTERNAL) == ("/srv/portico" not in said["message"])


def test_no_code_of_ours_means_something_else_to_the_sdk() -> None:
    taken = {value for name, value in vars(types).items() if name.isupper() and isinstance(value, int)}
    own = {name: value for name, value in vars(failures).items() if name.isupper() and isinstance(value, int)}

    assert {value for value in own.values() if value in taken} <= OF_JSON_RPC
    assert len(set(own.values())) == len(own)
    assert SiteError not in CODES
    assert code_of(ConfigError("")).status == 500
