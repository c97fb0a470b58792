"""How much, how often, how deep: the published bounds of a site, and how callers are held to them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeAlias, cast

import msgspec

from portico.errors import BadRequest, InvalidParams, RateLimited, TooLarge
from portico.items import problem_with, text_problem

Positive = Annotated[int, msgspec.Meta(ge=1)]

LEASES = 100  # that a limit is taken in at least; a small limit is taken token by token
LEASE_SECONDS = 1.0
MAX_LEASES = 10_000  # kept in memory


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a site file may set under [limits]."""

    anonymous_per_minute: Positive = 600
    keys_per_minute: Positive = 1200
    payload_bytes: Positive = 1_200_000  # a message around the largest request of MCP-AQL
    page_bytes: Positive = 8_000_000  # the items of a page or an answer as JSON; one item is always sent
    depth: Positive = 32
    text_characters: Positive = 10_000
    concurrent_tasks: Positive = 16
    tasks_per_caller: Positive = 20
    connections: Positive = 2000  # of one process, at once
    connections_per_address: Positive = 256  # except of trusted proxies
    websockets_per_address: Positive = 64
    streams_per_address: Positive = 256
    websocket_idle: Annotated[float, msgspec.Meta(gt=0)] = 600.0  # seconds without a message
    model_calls_per_minute: Positive = 120  # that questions of one caller may cost


class Allowance(msgspec.Struct, frozen=True):
    """What a caller has left, for protocols that report it."""

    limit: int
    remaining: int
    reset: float  # seconds until the allowance is whole again


class Metered(Protocol):
    """How many tokens a caller's bucket gave, and how many are left in it."""

    @property
    def granted(self) -> int: ...

    @property
    def tokens(self) -> float: ...


Spend: TypeAlias = Callable[[str, int, int], Awaitable[Metered]]


@dataclass(slots=True)
class Lease:
    """Tokens that were taken out of a bucket together, to be spent one by one."""

    size: int = 0
    left: int = 0
    behind: float = 0.0  # tokens that stayed in the bucket
    until: float = 0.0
    renewing: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class PrepaidUnit:
    """One unit of a caller's allowance that was taken before it was known what the request asks for."""

    key: str
    is_unused: bool = True


_PREPAID: ContextVar[PrepaidUnit | None] = ContextVar("portico.prepaid", default=None)


class Admission:
    """The context of one piece of work of a caller, for which a unit of its allowance was taken.

    The first request to the site within uses that unit; each further one takes another. Work that goes on in the
    background after the end pays for itself.
    """

    def __init__(self, key: str) -> None:
        self._unit = PrepaidUnit(key)
        self._token: Token[PrepaidUnit | None] | None = None

    def __enter__(self) -> None:
        self._token = _PREPAID.set(self._unit)

    def __exit__(self, *_: object) -> None:
        self._unit.is_unused = False
        if self._token:
            _PREPAID.reset(self._token)


class Rates:
    """An allowance for each caller, refilled evenly over a minute. Whoever keeps the buckets is an argument.

    A bucket is shared, and asking it takes time: whoever spends quickly is given more at once, up to a hundredth of the
    limit. What of that is unspent after a second is let go: it is never more than the caller has spent just before, so
    that one who goes from process to process loses no more than it uses.
    """

    def __init__(self, limits: Limits, spend: Spend, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._spend = spend
        self._clock = clock
        self._leases: dict[str, Lease] = {}

    async def spend(self, key: str, *, anonymous: bool) -> Allowance:
        """Take one request out of a caller's allowance."""
        limit = self._limits.anonymous_per_minute if anonymous else self._limits.keys_per_minute
        lease = self._leases.get(key) or self._begin(key)
        if not self._lasts(lease):
            async with lease.renewing:
                # Whoever had to wait here may find that another has renewed it.
                if not self._lasts(lease):
                    await self._renew(lease, key, limit)
        if not lease.left:
            raise _refusal(limit, lease.behind, anonymous=anonymous)
        lease.left -= 1
        tokens = lease.behind + lease.left
        return Allowance(limit, int(tokens), (limit - tokens) * 60 / limit)

    async def charge(self, key: str, *, anonymous: bool) -> None:
        """Use the unit that was paid in advance for the work under way, or take one out of the allowance."""
        unit = _PREPAID.get()
        if unit and unit.is_unused and unit.key == key:
            unit.is_unused = False
        else:
            await self.spend(key, anonymous=anonymous)

    def left(self, key: str, *, anonymous: bool) -> Allowance:
        """What a caller has left, as far as this process knows."""
        limit = self._limits.anonymous_per_minute if anonymous else self._limits.keys_per_minute
        lease = self._leases.get(key)
        tokens = min(lease.behind + lease.left, limit) if lease else limit
        return Allowance(limit, int(tokens), (limit - tokens) * 60 / limit)

    def _lasts(self, lease: Lease) -> bool:
        return lease.left > 0 and self._clock() < lease.until

    def _begin(self, key: str) -> Lease:
        if len(self._leases) >= MAX_LEASES:
            del self._leases[next(iter(self._leases))]
        return self._leases.setdefault(key, Lease())

    async def _renew(self, lease: Lease, key: str, limit: int) -> None:
        is_spent_in_time = not lease.left and self._clock() < lease.until
        lease.size = max(1, min(2 * lease.size, limit // LEASES)) if is_spent_in_time else 1
        meter = await self._spend(key, limit, lease.size)
        lease.left, lease.behind = meter.granted, meter.tokens
        lease.until = self._clock() + LEASE_SECONDS


def _refusal(limit: int, tokens: float, *, anonymous: bool) -> RateLimited:
    wait = (1 - tokens) * 60 / limit
    return RateLimited(
        f"More than {limit} requests in a minute",
        limit=limit,
        retry_after=round(wait, 2),
        hint=f"Wait {wait:.1f} seconds." + (" An API key has a higher limit." if anonymous else ""),
    )


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
    try:
        for _ in walk_json(params, limits.depth):
            pass
    except NestingTooDeep as error:
        raise TooLarge(
            "The parameters are nested too deeply",
            limit_type="nesting_depth",
            limit=limits.depth,
            actual=limits.depth + 1,
        ) from error
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


_SCALARS = frozenset({str, int, float, bool, type(None)})  # spares the slow check for abstract types


class NestingTooDeep(Exception):
    """Decoded JSON has more levels than are allowed. `path` leads to the first object or list that is too deep."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(".".join(path))
        self.path = path


def walk_json(value: Any, max_depth: int) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield every value of decoded JSON with its path, parents before their members. A step into a list is `[]`.

    Raises NestingTooDeep at an object or list below `max_depth` levels of others.
    """
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, ())]
    while pending:
        inner, path = pending.pop()
        yield inner, path
        if type(inner) in _SCALARS or not isinstance(inner, Mapping | list | tuple):
            continue
        if len(path) >= max_depth:
            raise NestingTooDeep(path)
        if isinstance(inner, Mapping):
            members = cast("Mapping[str, Any]", inner)
            pending.extend((member, (*path, name)) for name, member in reversed([*members.items()]))
        else:
            step = (*path, "[]")
            pending.extend((element, step) for element in reversed(cast("list[Any]", inner)))
