"""How much, how often, how deep: the published bounds of a site, and how callers are held to them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeAlias, cast

import msgspec

from portico.errors import BadRequest, InvalidParams, RateLimited, TooLarge
from portico.items import problem_with, text_problem

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a site file may set under [limits]."""

    anonymous_per_minute: Positive = 600
    keys_per_minute: Positive = 1200
    payload_bytes: Positive = 1_000_000
    depth: Positive = 32
    text_characters: Positive = 10_000
    concurrent_tasks: Positive = 16
    tasks_per_caller: Positive = 20
    connections: Positive = 2000  # of one process, at once
    model_calls_per_minute: Positive = 120  # that questions of one caller may cost


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller has left, for faces that tell."""

    limit: int
    remaining: int
    reset: float  # seconds until the allowance is whole again


class Metered(Protocol):
    """What is left in a caller's token bucket after a request asked for a token."""

    @property
    def granted(self) -> bool: ...

    @property
    def tokens(self) -> float: ...


Spend: TypeAlias = Callable[[str, int], Awaitable[Metered]]


class Rates:
    """An allowance for each caller, refilled evenly over a minute. Whoever keeps the buckets is an argument."""

    def __init__(self, limits: Limits, spend: Spend) -> None:
        self._limits = limits
        self._spend = spend

    async def spend(self, key: str, *, anonymous: bool) -> Allowance:
        """Take one request out of a caller's allowance."""
        limit = self._limits.anonymous_per_minute if anonymous else self._limits.keys_per_minute
        meter = await self._spend(key, limit)
        if not meter.granted:
            wait = (1 - meter.tokens) * 60 / limit
            raise RateLimited(
                f"More than {limit} requests in a minute",
                limit=limit,
                retry_after=round(wait, 2),
                hint=f"Wait {wait:.1f} seconds. An API key has a higher limit."
                if anonymous
                else f"Wait {wait:.1f} seconds.",
            )
        return Allowance(limit, int(meter.tokens), (limit - meter.tokens) * 60 / limit)


def check_text(text: str, limits: Limits) -> None:
    problem = text_problem(text)
    if problem:
        raise BadRequest(f"The text cannot be used: {problem}")
    if len(text) > limits.text_characters:
        raise TooLarge(
            f"The text has {len(text)} characters; {limits.text_characters} are allowed",
            limit_type="string_length",
            limit=limits.text_characters,
            actual=len(text),
        )


def check_payload(params: Mapping[str, Any], limits: Limits) -> None:
    """Refuse what is too deep or too large before anything is done with it."""
    _check_depth(params, limits.depth)
    problem = problem_with("params", params)
    if problem:
        raise InvalidParams(f"The parameters cannot be used: {problem}")
    size = len(msgspec.json.encode(params))
    if size > limits.payload_bytes:
        raise TooLarge(
            f"The parameters take {size} bytes; {limits.payload_bytes} are allowed",
            limit_type="request_size",
            limit=limits.payload_bytes,
            actual=size,
        )


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise TooLarge("The parameters are nested too deeply", limit_type="nesting_depth")
    if isinstance(value, Mapping):
        for inner in cast("Mapping[str, Any]", value).values():
            _check_depth(inner, left - 1)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            _check_depth(inner, left - 1)
