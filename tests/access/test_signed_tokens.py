"""Tokens that callers carry: whole, their own, and in time, or nothing."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.access.signed_tokens import MAX_TOKEN, seal, unseal
from portico.errors import BadRequest

SECRET = b"a secret of this site"
PAYLOADS = st.dictionaries(
    st.text(max_size=10),
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    max_size=5,
)


@given(payload=PAYLOADS, holder=st.text(max_size=20))
def test_what_was_sealed_comes_back(payload: dict[str, Any], holder: str) -> None:
    assert unseal(seal(payload, holder, SECRET, 60), holder, SECRET) == payload


@given(payload=PAYLOADS)
def test_a_token_goes_through_a_url_as_it_is(payload: dict[str, Any]) -> None:
    token = seal(payload, "ann", SECRET, 60)

    assert token.isascii()
    assert token.replace("-", "").replace("_", "").isalnum()


def test_a_token_is_good_for_its_holder_alone() -> None:
    token = seal({"task": "t1"}, "ann", SECRET, 60)

    assert unseal(token, "bob", SECRET) is None
    assert unseal(token, "", SECRET) is None


def test_a_token_of_another_site_says_nothing() -> None:
    assert unseal(seal({}, "ann", b"another secret", 60), "ann", SECRET) is None


def test_a_token_that_has_expired_says_nothing() -> None:
    assert unseal(seal({"a": 1}, "ann", SECRET, -1), "ann", SECRET) is None


@given(at=st.integers(0, 200), bit=st.integers(0, 7))
def test_no_bit_of_a_token_can_be_changed(at: int, bit: int) -> None:
    token = seal({"task": "t1", "rounds": 1}, "ann", SECRET, 60)
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[at % len(raw)] ^= 1 << bit

    assert unseal(base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode(), "ann", SECRET) is None


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_whatever_else_is_brought_says_nothing(token: str) -> None:
    assert unseal(token, "ann", SECRET) is None


def test_a_token_that_is_too_long_is_not_looked_at() -> None:
    token = seal({"much": "x" * MAX_TOKEN}, "ann", SECRET, 60)

    assert len(token) > MAX_TOKEN
    assert unseal(token, "ann", SECRET) is None


def test_any_holder_may_hold_a_token() -> None:
    lone = "\ud800"

    assert unseal(seal({"a": 1}, lone, SECRET, 60), lone, SECRET) == {"a": 1}


def test_a_number_that_no_token_holds_is_refused() -> None:
    with pytest.raises(BadRequest):
        seal({"much": 2**64}, "ann", SECRET, 60)
