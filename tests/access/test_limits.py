"""How often and how much."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from portico.access.limits import LEASE_SECONDS, MAX_LEASES, Allowance, Limits, Rates, check_payload
from portico.errors import RateLimited, TooLarge
from portico.store.records import TokenGrant

LIMITS = Limits(anonymous_per_minute=3, keys_per_minute=60, payload_bytes=100, depth=3)


def rates(*answers: TokenGrant) -> tuple[Rates, list[tuple[str, int, int]]]:
    """Rates over buckets that answer as told, and what they were asked."""
    left, asked = list(answers), []

    async def spend(key: str, per_minute: int, count: int) -> TokenGrant:
        asked.append((key, per_minute, count))
        return left.pop(0)

    return Rates(LIMITS, spend), asked


@dataclass
class Buckets:
    """Buckets that never refill, how often each was asked, and a clock that stands still."""

    left: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    now: float = 0.0

    async def spend(self, key: str, per_minute: int, count: int) -> TokenGrant:
        await asyncio.sleep(0)
        self.asked.append(key)
        there = self.left.get(key, per_minute)
        granted = min(count, there)
        self.left[key] = there - granted
        return TokenGrant(granted, float(there - granted))

    def rates(self, limit: int) -> Rates:
        return Rates(Limits(keys_per_minute=limit), self.spend, lambda: self.now)


async def spent(rates: Rates, key: str = "ann") -> int:
    """How many requests are left to a caller after one more."""
    return (await rates.spend(key, anonymous=False)).remaining


async def test_a_caller_is_told_what_is_left_and_when_it_is_whole_again() -> None:
    metered, _ = rates(TokenGrant(1, 2.0), TokenGrant(1, 1.5), TokenGrant(1, 0.0))

    left = [await metered.spend("ann", anonymous=True) for _ in range(3)]

    assert left == [Allowance(3, 2, 20.0), Allowance(3, 1, 30.0), Allowance(3, 0, 60.0)]


async def test_a_caller_without_a_token_must_wait_for_the_next() -> None:
    metered, _ = rates(TokenGrant(0, 0.25), TokenGrant(0, 0.0))

    with pytest.raises(RateLimited, match="More than 3 requests in a minute") as refusal:
        await metered.spend("ann", anonymous=True)
    with pytest.raises(RateLimited) as of_a_key:
        await metered.spend("key:ann", anonymous=False)

    assert refusal.value.details == {"limit": 3, "retry_after": 15.0}
    assert refusal.value.hint == "Wait 15.0 seconds. An API key has a higher limit."
    assert (of_a_key.value.details["retry_after"], of_a_key.value.hint) == (1.0, "Wait 1.0 seconds.")


async def test_keys_have_more_than_anonymous_callers() -> None:
    metered, asked = rates(TokenGrant(1, 2.0), TokenGrant(1, 59.0))

    await metered.spend("ann", anonymous=True)
    await metered.spend("key:ann", anonymous=False)

    assert asked == [("ann", 3, 1), ("key:ann", 60, 1)]


async def test_a_high_limit_is_exact_though_its_bucket_is_seldom_asked() -> None:
    buckets = Buckets()
    metered = buckets.rates(1005)

    left = [await spent(metered) for _ in range(1005)]

    assert left == list(range(1004, -1, -1))
    assert len(buckets.asked) == 103
    with pytest.raises(RateLimited):
        await spent(metered)


async def test_callers_at_once_share_what_is_taken_out_of_their_bucket() -> None:
    buckets = Buckets()
    metered = buckets.rates(1000)

    left = await asyncio.gather(*(spent(metered) for _ in range(25)))

    assert sorted(left, reverse=True) == list(range(999, 974, -1))
    assert len(buckets.asked) == 5


async def test_a_caller_that_gives_up_does_not_keep_others_waiting() -> None:
    buckets = Buckets()
    metered = buckets.rates(1000)
    first, second = (asyncio.create_task(spent(metered)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()

    assert await second == 999


async def test_what_is_unspent_after_a_while_is_let_go() -> None:
    buckets = Buckets()
    metered = buckets.rates(1000)
    assert [await spent(metered) for _ in range(5)] == [999, 998, 997, 996, 995]

    buckets.now = LEASE_SECONDS

    assert [await spent(metered) for _ in range(2)] == [992, 991]


async def test_a_caller_that_goes_from_process_to_process_loses_nothing_by_it() -> None:
    buckets = Buckets()
    processes = [buckets.rates(1000) for _ in range(4)]

    for second in range(50):
        buckets.now = second * LEASE_SECONDS
        left = [await spent(each) for each in processes]

    assert left == [803, 802, 801, 800]


async def test_a_crowd_of_callers_takes_no_more_memory_than_is_allowed() -> None:
    buckets = Buckets()
    metered = buckets.rates(1000)
    assert [await spent(metered, "first") for _ in range(2)] == [999, 998]  # and one more that was taken with it
    for number in range(MAX_LEASES):
        await spent(metered, f"caller {number}")

    assert [await spent(metered, f"caller {MAX_LEASES - 1}") for _ in range(2)] == [998, 997]
    assert len(buckets.asked) == MAX_LEASES + 3
    await spent(metered, "first")
    assert len(buckets.asked) == MAX_LEASES + 4


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

    assert refusal.value.details == {"limit_type": "nesting_depth", "limit": LIMITS.depth, "actual": LIMITS.depth + 1}


def test_nesting_without_end_is_refused_and_not_a_crash() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(TooLarge):
        check_payload({"a": deep}, Limits())
