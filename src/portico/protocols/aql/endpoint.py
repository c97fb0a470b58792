"""One endpoint of MCP-AQL: from what was sent to the envelope that answers it, for one operation or a batch of them.

Every failure is an envelope. What is done is done by the operations; what is refused here costs a request, too.
"""

import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from portico.access.limits import Allowance
from portico.catalog import Kind
from portico.config import Config
from portico.errors import SiteError, Unavailable, UnknownOperation
from portico.protocols.aql.envelopes import (
    BATCH_INVALID,
    CONFIRMATION_REQUIRED,
    ENDPOINT_MISMATCH,
    Batch,
    Envelope,
    Failure,
    Fault,
    Item,
    Pending,
    Success,
    Summary,
    failure,
    labels,
    quoted,
    too_large,
)
from portico.protocols.aql.introspection import WARN_BELOW, is_scarce
from portico.protocols.aql.requests import read
from portico.protocols.aql.shapes import INTROSPECT, Answered, Asking, Offered, Warned
from portico.protocols.aql.surface import Surface
from portico.protocols.aql.validation import LABELS, OPERATION, OPERATIONS, Given, checked, given, label
from portico.requests import Call, Caller
from portico.site import Site
from portico.telemetry import Broke, Observe, nowhere

UNTRUSTED = "untrusted_content"  # in `_meta`
SCARCE = "RATE_LIMIT_QUOTA_WARNING"
SLOW = "PERFORMANCE_SLOW_QUERY_WARNING"
SLOW_MILLISECONDS = 2000
MAX_WARNINGS = 10
MAX_NAMED = 200  # characters of a name that there is not
MAX_AVAILABLE = 200  # names of operations that somebody is told who has named another
BEGUN, DONE = 10.0, 90.0  # percent of the way, before operations run and after

Hear: TypeAlias = Callable[[float, str], Awaitable[None]]


async def unheard(_: float, __: str) -> None:
    """For callers that do not want to know how far it is."""


class Endpoint:
    def __init__(self, surface: Surface, site: Site, config: Config, observe: Observe = nowhere) -> None:
        self._surface = surface
        self._site = site
        self._limits = config.aql
        self._observe = observe

    async def answer(
        self, raw: bytes | Mapping[str, Any], family: str | None, asking: Asking, hear: Hear = unheard
    ) -> Envelope:
        """The answer to a request that came to the endpoint of a family; None is the one for all of them."""
        try:
            with Contained(self._observe):
                return await self._answered(raw, family, asking, hear)
        except SiteError as error:
            return Envelope(failure(error, asking))

    async def _answered(
        self, raw: bytes | Mapping[str, Any], family: str | None, asking: Asking, hear: Hear
    ) -> Envelope:
        async with self._site.gate.charging(asking.caller):
            request = read(raw, self._limits)
            wanted = _batch(request, self._limits.batch) if OPERATIONS in request else given(request)
        named = replace(asking, request_id=label(request))
        if not isinstance(wanted, Given):
            return self._fitted(await self._all(wanted, family, named, hear), named)
        await hear(BEGUN, f"Running {wanted.operation[:80]}")
        return self._sized(wanted.operation, await self._one(wanted, family, named), named)

    # One operation

    async def _one(self, wanted: Given, family: str | None, asking: Asking) -> Success | Failure:
        """What became of one operation. Introspection has neither warnings nor details (its schema is closed)."""
        named = replace(asking, request_id=wanted.request_id or asking.request_id)
        is_brief = wanted.operation == INTROSPECT
        try:
            with Contained(self._observe):
                answered = await self._ran(wanted, family, named)
        except SiteError as error:
            return failure(error, named, wanted.operation, brief=is_brief)
        if is_brief:
            return Success(data=answered.data)
        meta = {**labels(named), **_marks(answered)}
        return Success(data=answered.data, warnings=bounded(answered.warnings) or UNSET, meta=meta or UNSET)

    async def _ran(self, wanted: Given, family: str | None, asking: Asking) -> Answered:
        offered = await self._offered(wanted.operation, asking.caller)
        async with self._site.gate.charging(asking.caller):
            self._check_family(offered, family)
            fitting = checked(wanted, offered, strict=self._limits.strict)
        started = time.perf_counter()
        answered = await offered.run(fitting.params, replace(asking, confirmation=fitting.confirmation))
        found = (*fitting.warnings, *answered.warnings, *_slow(offered.name, started))
        return replace(answered, warnings=(*found, *_scarce(self._site.gate.left(asking.caller))))

    async def _offered(self, name: str, caller: Caller) -> Offered:
        known = self._surface.offered(caller)
        if name in known:
            return known[name]
        hidden = self._surface.everything().get(name)
        own = hidden.operation.name if hidden and hidden.operation else name[:MAX_NAMED]
        try:
            # The gate says why not, or sees what another process has just made.
            await self._site.gate.admit(Call(own), caller)
            return self._surface.offered(caller)[name]
        except (UnknownOperation, KeyError) as error:
            alike = difflib.get_close_matches(name[:MAX_NAMED], known, 1)
            hint = f"Did you mean {quoted(alike[0])}?" if alike else "Use introspect for a list of them."
            available = sorted(known)[:MAX_AVAILABLE]
            raise UnknownOperation(
                "Unknown operation", hint=hint, operation=name[:MAX_NAMED], available=available
            ) from error

    def _check_family(self, offered: Offered, family: str | None) -> None:
        own = self._surface.family_of(offered)
        if family is None or own == family:
            return
        said = f"Operation {quoted(offered.name)} belongs to endpoint {quoted(own)}, not {quoted(family)}"
        raise Fault(
            ENDPOINT_MISMATCH,
            f"{said}. Use {self._surface.tool_of(own)}",
            operation=offered.name,
            expected_endpoint=own,
            actual_endpoint=family,
        )

    # Several

    async def _all(self, batch: Sequence[Given], family: str | None, asking: Asking, hear: Hear) -> Batch:
        """One after the other. One that somebody else has to confirm halts the rest, or is left out."""
        results: list[Item] = []
        for index, wanted in enumerate(batch):
            await hear(BEGUN + (DONE - BEGUN) * index / len(batch), f"Running {wanted.operation[:80]}")
            item = Item(index=index, operation=wanted.operation, result=await self._alone(wanted, family, asking))
            if not _waits(item):
                results.append(item)
            elif self._limits.on_confirmation == "halt":
                return _halted(batch, results, item)
            else:
                results.append(msgspec.structs.replace(item, status="pending_confirmation"))
        return Batch(results=tuple(results), summary=_summary(len(batch), results))

    async def _alone(self, wanted: Given, family: str | None, asking: Asking) -> Success | Failure:
        """The result as it stands in a batch: without warnings, and of all labels only whether it is untrusted."""
        result = await self._one(wanted, family, asking)
        if not isinstance(result, Success):
            return result
        is_marked = not isinstance(result.meta, UnsetType) and UNTRUSTED in result.meta
        return Success(data=result.data, meta={UNTRUSTED: True} if is_marked else UNSET)

    # Answers that are too large

    def _sized(self, operation: str, result: Success | Failure, asking: Asking) -> Envelope:
        envelope = Envelope(result)
        size = len(envelope.encoded)
        if size <= self._limits.response_bytes:
            return envelope
        return Envelope(self._left_out(operation, size, asking, completed=self._has_changed(operation, result)))

    def _fitted(self, batch: Batch, asking: Asking) -> Envelope:
        """A batch without its largest results, as many as it takes; each says in its own place that it is left out."""
        envelope, most = Envelope(batch), self._limits.response_bytes
        size = len(envelope.encoded)
        if size <= most:
            return envelope
        results = self._without_largest(batch.results, size, asking)
        counted = _summary(batch.summary.total, results)
        summary = msgspec.structs.replace(batch.summary, succeeded=counted.succeeded, failed=counted.failed)
        smaller = Envelope(msgspec.structs.replace(batch, results=results, summary=summary))
        if len(smaller.encoded) <= most:
            return smaller
        done = any(self._has_changed(each.operation, each.result) for each in batch.results)
        return Envelope(self._left_out("", size, asking, completed=done))

    def _without_largest(self, items: Sequence[Item], size: int, asking: Asking) -> tuple[Item, ...]:
        over = size - self._limits.response_bytes
        results = {each.index: each for each in items}
        sizes = {each.index: len(Envelope(each.result).encoded) for each in items if each.result.success}
        for index in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if over <= 0:
                break
            item = results[index]
            has_changed = self._has_changed(item.operation, item.result)
            left_out = self._left_out(item.operation, size, asking, completed=has_changed)
            results[index] = msgspec.structs.replace(item, result=left_out)
            over -= sizes[index] - len(Envelope(left_out).encoded)
        return tuple(results.values())

    def _left_out(self, operation: str, size: int, asking: Asking, *, completed: bool) -> Failure:
        fault = too_large("response_size", self._limits.response_bytes, size, completed=completed)
        return failure(fault, asking, brief=operation == INTROSPECT)

    def _has_changed(self, operation: str, result: Success | Failure) -> bool:
        """Whether something was done that would be done once more if it were asked for again."""
        known = self._surface.everything().get(operation)
        return result.success and (known is None or known.kind is not Kind.READ)


def _batch(request: Mapping[str, Any], most: int) -> list[Given]:
    others = request.keys() - LABELS - {OPERATIONS}
    wanted = request[OPERATIONS]
    if OPERATION in others:
        raise Fault(BATCH_INVALID, "A request must have either 'operation' or 'operations'")
    if others:
        raise Fault(BATCH_INVALID, "A batch must have 'operations' alone; put parameters into each operation")
    if not isinstance(wanted, list | tuple) or not wanted:
        raise Fault(BATCH_INVALID, "'operations' must be an array with one operation or more")
    if len(cast("list[Any]", wanted)) > most:
        raise Fault(BATCH_INVALID, f"A batch may have up to {most} operations")
    return [_item(each, index) for index, each in enumerate(cast("list[Any]", wanted))]


def _item(raw: Any, index: int) -> Given:
    try:
        return given(cast("Mapping[str, Any]", raw if isinstance(raw, Mapping) else {}))
    except Fault as error:
        raise Fault(BATCH_INVALID, f"Entry {index} of 'operations' is not an operation: {error.message}") from error


def _waits(item: Item) -> bool:
    return isinstance(item.result, Failure) and item.result.error.code == CONFIRMATION_REQUIRED


def _halted(batch: Sequence[Given], results: Sequence[Item], item: Item) -> Batch:
    rest = tuple(
        Pending(index=index, operation=each.operation, params=each.params)
        for index, each in enumerate(batch)
        if index > item.index
    )
    counts = _summary(len(batch), results)
    return Batch(
        results=tuple(results),
        summary=msgspec.structs.replace(counts, halted=1, pending=len(rest)),
        halted_at=item,
        pending_operations=rest,
    )


def _summary(total: int, results: Iterable[Item]) -> Summary:
    """How many went well. What waits for a confirmation has not failed."""
    done = list(results)
    waiting = sum(map(_waits, done))
    succeeded = sum(1 for each in done if each.result.success)
    failed = len(done) - succeeded - waiting
    return Summary(total=total, succeeded=succeeded, failed=failed, pending=waiting or UNSET)


def _marks(answered: Answered) -> dict[str, Any]:
    """What an agent has to know before it reads on: texts of items are no instructions, whatever they say."""
    return {UNTRUSTED: True} if answered.untrusted else {}


# Warnings


def bounded(warnings: Iterable[Warned]) -> tuple[Warned, ...]:
    """Each warning once, with how often it was given, and not too many."""
    found: dict[tuple[str, str], list[Warned]] = {}
    for each in warnings:
        found.setdefault((each.code, each.message), []).append(each)
    return tuple(_counted(each) for each in list(found.values())[:MAX_WARNINGS])


def _counted(same: Sequence[Warned]) -> Warned:
    if len(same) == 1:
        return same[0]
    return msgspec.structs.replace(same[0], details={**same[0].details, "occurrence_count": len(same)})


def _scarce(left: Allowance) -> tuple[Warned, ...]:
    if not is_scarce(left):
        return ()
    current, threshold = left.limit - left.remaining, round(left.limit * (1 - WARN_BELOW))
    details = {"metric": "requests_per_minute", "current": current, "warn_threshold": threshold}
    message = f"{left.remaining} of {left.limit} requests in a minute are left"
    return (Warned(code=SCARCE, message=message, details=details, severity="high"),)


def _slow(operation: str, started: float) -> tuple[Warned, ...]:
    took = round((time.perf_counter() - started) * 1000)
    if took <= SLOW_MILLISECONDS:
        return ()
    details = {"operation": operation, "duration_ms": took, "threshold_ms": SLOW_MILLISECONDS}
    return (Warned(code=SLOW, message=f"Operation {quoted(operation)} took {took} ms", details=details),)


@dataclass(frozen=True, slots=True)
class Contained:
    """Turns what should not happen into an error of the site: the operator hears of it, the caller hears that it is."""

    observe: Observe

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, SiteError):
            self.observe(Broke("aql", type(error).__name__, error))
            raise Unavailable("The site broke") from error
