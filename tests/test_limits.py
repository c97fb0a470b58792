"""How often and how much."""

from typing import Any

import pytest

from portico.errors import RateLimited, TooLarge
from portico.limits import Allowance, Limits, Rates, check_payload
from portico.store import Meter

LIMITS = Limits(anonymous_per_minute=3, keys_per_minute=60, payload_bytes=100, depth=3)


def rates(*answers: Meter) -> tuple[Rates, list[tuple[str, int]]]:
    """Rates over buckets that answer as told, and what they were asked."""
    left, asked = list(answers), []

    async def spend(key: str, per_minute: int) -> Meter:
        asked.append((key, per_minute))
        return left.pop(0)

    return Rates(LIMITS, spend), asked


async def test_a_caller_is_told_what_is_left_and_when_it_is_whole_again() -> None:
    metered, _ = rates(Meter(True, 2.0), Meter(True, 1.5), Meter(True, 0.0))

    left = [await metered.spend("ann", anonymous=True) for _ in range(3)]

    assert left == [Allowance(3, 2, 20.0), Allowance(3, 1, 30.0), Allowance(3, 0, 60.0)]


async def test_a_caller_without_a_token_must_wait_for_the_next() -> None:
    metered, _ = rates(Meter(False, 0.25), Meter(False, 0.0))

    with pytest.raises(RateLimited, match="More than 3 requests in a minute") as refusal:
        await metered.spend("ann", anonymous=True)
    with pytest.raises(RateLimited) as of_a_key:
        await metered.spend("key:ann", anonymous=False)

    assert refusal.value.details == {"limit": 3, "retry_after": 15.0}
    assert refusal.value.hint == "Wait 15.0 seconds. An API key has a higher limit."
    assert (of_a_key.value.details["retry_after"], of_a_key.value.hint) == (1.0, "Wait 1.0 seconds.")


async def test_keys_have_more_than_anonymous_callers() -> None:
    metered, asked = rates(Meter(True, 2.0), Meter(True, 59.0))

    await metered.spend("ann", anonymous=True)
    await metered.spend("key:ann", anonymous=False)

    assert asked == [("ann", 3), ("key:ann", 60)]


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
