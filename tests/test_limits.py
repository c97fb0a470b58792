"""How often and how much."""

from typing import Any

import pytest

from portico.errors import RateLimited, TooLarge
from portico.limits import Allowance, Limits, Rates, check_payload

LIMITS = Limits(anonymous_per_minute=3, keys_per_minute=60, payload_bytes=100, depth=3)


def test_a_caller_may_ask_as_often_as_the_limit_says_and_then_must_wait() -> None:
    rates = Rates(LIMITS)

    left = [rates.spend("ann", anonymous=True, now=0.0) for _ in range(3)]
    with pytest.raises(RateLimited) as refusal:
        rates.spend("ann", anonymous=True, now=0.0)

    assert left == [Allowance(3, 2, 20.0), Allowance(3, 1, 40.0), Allowance(3, 0, 60.0)]
    assert refusal.value.details == {"limit": 3, "retry_after": 20.0}


def test_the_allowance_grows_back_evenly_and_never_beyond_the_limit() -> None:
    rates = Rates(LIMITS)
    for _ in range(3):
        rates.spend("ann", anonymous=True, now=0.0)

    assert rates.spend("ann", anonymous=True, now=20.0).remaining == 0
    with pytest.raises(RateLimited):
        rates.spend("ann", anonymous=True, now=39.0)
    assert rates.spend("ann", anonymous=True, now=40.0).remaining == 0
    assert rates.spend("ann", anonymous=True, now=10_000.0).remaining == 2


def test_a_refused_request_costs_nothing() -> None:
    rates = Rates(LIMITS)
    for _ in range(3):
        rates.spend("ann", anonymous=True, now=0.0)
    for moment in range(19):
        with pytest.raises(RateLimited):
            rates.spend("ann", anonymous=True, now=float(moment))

    assert rates.spend("ann", anonymous=True, now=20.0)


def test_callers_do_not_spend_each_others_allowance_and_keys_have_more() -> None:
    rates = Rates(LIMITS)
    for _ in range(3):
        rates.spend("ann", anonymous=True, now=0.0)

    assert rates.spend("bob", anonymous=True, now=0.0).remaining == 2
    assert rates.spend("key:ann", anonymous=False, now=0.0).remaining == 59


@pytest.mark.parametrize("params", [{}, {"a": 1}, {"a": {"b": {"c": 1}}}, {"a": [[1]]}, {"a": "x" * 90}], ids=str)
def test_what_is_small_and_flat_passes(params: dict[str, Any]) -> None:
    check_payload(params, LIMITS)


def test_what_is_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(TooLarge) as refusal:
        check_payload({"a": "x" * 100}, LIMITS)

    assert refusal.value.details == {"limit_type": "request_size", "limit": 100, "actual": 108}


@pytest.mark.parametrize("params", [{"a": {"b": {"c": {"d": 1}}}}, {"a": [[[[]]]]}], ids=str)
def test_what_is_too_deep_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(TooLarge) as refusal:
        check_payload(params, LIMITS)

    assert refusal.value.details == {"limit_type": "nesting_depth"}


def test_nesting_without_end_is_refused_and_not_a_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(TooLarge):
        check_payload({"a": deep}, Limits())
