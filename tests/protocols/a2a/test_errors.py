"""Every error has a code."""

from collections.abc import Iterator

import pytest

from portico import errors
from portico.errors import SiteError
from portico.protocols.a2a import errors as failures
from portico.protocols.a2a.errors import CODES, code_of


def kinds(kind: type[SiteError]) -> Iterator[type[SiteError]]:
    for each in kind.__subclasses__():
        yield each
        yield from kinds(each)


KNOWN = [kind for kind in kinds(SiteError) if kind.__module__ in {errors.__name__, failures.__name__}]


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_of_json_rpc(kind: type[SiteError]) -> None:
    code = code_of(kind("It went wrong"))

    assert -32768 <= code.code <= -32000
    assert code.status in {200, 401, 403, 413, 415, 421, 429, 500, 503}


def test_no_code_is_left_to_chance() -> None:
    assert SiteError not in CODES
