"""The endpoint of MCP-AQL: from a request, for one operation or a batch of them, to its envelope.

Every failure is an envelope, too.
"""

import difflib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from portico.access.limits import Allowance
from portico.catalog import Kind
from portico.config import Config
from portico.errors import SiteError, Unavailable, UnknownOperation
from portico.protocols.aql.envelopes import (
    BATCH_INVALID,
    CONFIRMATION_REQUIRED,
    ENDPOINT_MISMATCH,
    INVALID_ENCODING,
    PAYLOAD_TOO_LARGE,
    Batch,
    BatchItem,
    BatchSummary,
    Envelope,
    FailureResult,
    Fault,
    PendingOperation,
    SuccessResult,
    failure_result,
    labels,
    quote,
    too_large,
)
from portico.protocols.aql.introspection import WARN_BELOW, is_scarce
from portico.protocols.aql.requests import parse_request, utf8_fault
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import INTROSPECT, AqlOperation, AqlRequestContext, AqlResult, OperationWarning
from portico.protocols.aql.surface import OperationRegistry, tools_of
from portico.protocols.aql.validation import (
    LABELS,
    OPERATION,
    OPERATIONS,
    OperationRequest,
    label,
    read_operation,
    validate,
)
from portico.protocols.rendering import members
from portico.requests import Call, Caller
from portico.site import Site
from portico.telemetry import Recorder, UnexpectedError, discard

REVISION = "io.modelcontextprotocol/protocolVersion"  # in `_meta` of requests that stand alone
UNTRUSTED = "untrusted_content"  # in `_meta`
SCARCE = "RATE_LIMIT_QUOTA_WARNING"
SLOW = "PERFORMANCE_SLOW_QUERY_WARNING"
SLOW_MILLISECONDS = 2000
MAX_WARNINGS = 10
MAX_OPERATION_NAME = 200  # characters of an unknown name
MAX_AVAILABLE = 200  # operations listed in the error for an unknown one
STARTED_PERCENT, FINISHED_PERCENT = 10.0, 90.0  # progress before operations run, and after

ProgressCallback: TypeAlias = Callable[[float, str], Awaitable[None]]


async def ignore_progress(_: float, __: str) -> None:
    """The progress callback of callers without one."""


class AqlEndpoint:
    def __init__(self, surface: OperationRegistry, site: Site, config: Config, record: Recorder = discard) -> None:
        self._surface = surface
        self._site = site
        self._limits = config.section(AqlSettings)
        self._record = record

    async def answer(
        self,
        raw: bytes | Mapping[str, Any],
        family: str | None,
        context: AqlRequestContext,
        hear: ProgressCallback = ignore_progress,
    ) -> Envelope:
        """Answer a request to the endpoint of one tool family, or of all of them (None)."""
        try:
            with ErrorBoundary(self._record):
                return await self._answer(raw, family, context, hear)
        except SiteError as error:
            return Envelope(failure_result(error, context))

    async def _answer(
        self, raw: bytes | Mapping[str, Any], family: str | None, context: AqlRequestContext, hear: ProgressCallback
    ) -> Envelope:
        request = parse_request(raw, self._limits)
        parsed = _parse_batch(request, self._limits.batch) if OPERATIONS in request else read_operation(request)
        labelled = replace(context, request_id=label(request))
        if not isinstance(parsed, OperationRequest):
            return self._limit_batch_size(await self._run_batch(parsed, family, labelled, hear), labelled)
        await hear(STARTED_PERCENT, f"Running {parsed.operation[:80]}")
        return self._limit_size(parsed.operation, await self._run_single(parsed, family, labelled), labelled)

    # One operation

    async def _run_single(
        self, request: OperationRequest, family: str | None, context: AqlRequestContext
    ) -> SuccessResult | FailureResult:
        """Run one operation. Introspection has neither warnings nor details, since its schema is closed."""
        labelled = replace(context, request_id=request.request_id or context.request_id)
        is_brief = request.operation == INTROSPECT
        try:
            with ErrorBoundary(self._record):
                result = await self._execute(request, family, labelled)
        except SiteError as error:
            return failure_result(error, labelled, request.operation, brief=is_brief)
        if is_brief:
            return SuccessResult(data=result.data)
        # Texts of items are data and never instructions.
        meta = {**labels(labelled), **({UNTRUSTED: True} if result.untrusted else {})}
        return SuccessResult(data=result.data, warnings=limit_warnings(result.warnings) or UNSET, meta=meta or UNSET)

    async def _execute(self, request: OperationRequest, family: str | None, context: AqlRequestContext) -> AqlResult:
        operation = await self._find_operation(request.operation, context.caller)
        self._check_family(operation, family)
        validated = validate(request, operation, strict=self._limits.strict)
        started = time.perf_counter()
        result = await operation.run(validated.params, replace(context, confirmation=validated.confirmation))
        warnings = (*validated.warnings, *result.warnings, *_slow_warnings(operation.name, started))
        return replace(result, warnings=(*warnings, *_quota_warnings(self._site.access.quota(context.caller))))

    async def _find_operation(self, name: str, caller: Caller) -> AqlOperation:
        operations = self._surface.operations_for(caller)
        if name in operations:
            return operations[name]
        hidden = self._surface.all_operations().get(name)
        real_name = hidden.operation.name if hidden and hidden.operation else name[:MAX_OPERATION_NAME]
        try:
            # Admission explains the refusal, or finds an operation that another process has just created.
            await self._site.access.check(Call(real_name), caller)
            return self._surface.operations_for(caller)[name]
        except (UnknownOperation, KeyError) as error:
            matches = difflib.get_close_matches(name[:MAX_OPERATION_NAME], operations, 1)
            hint = f"Did you mean {quote(matches[0])}?" if matches else "Use introspect to list the operations."
            available = sorted(operations)[:MAX_AVAILABLE]
            raise UnknownOperation(
                "Unknown operation", hint=hint, operation=name[:MAX_OPERATION_NAME], available=available
            ) from error

    def _check_family(self, operation: AqlOperation, family: str | None) -> None:
        own = self._surface.family_of(operation)
        if family is None or own == family:
            return
        message = f"Operation {quote(operation.name)} belongs to endpoint {quote(own)}, not {quote(family)}"
        raise Fault(
            ENDPOINT_MISMATCH,
            f"{message}. Use {self._surface.tool_of(own)}",
            operation=operation.name,
            expected_endpoint=own,
            actual_endpoint=family,
        )

    # Several

    async def _run_batch(
        self, batch: Sequence[OperationRequest], family: str | None, context: AqlRequestContext, hear: ProgressCallback
    ) -> Batch:
        """Run operations in order. One that needs approval halts the batch, or is skipped, by configuration."""
        results: list[BatchItem] = []
        for index, request in enumerate(batch):
            await hear(
                STARTED_PERCENT + (FINISHED_PERCENT - STARTED_PERCENT) * index / len(batch),
                f"Running {request.operation[:80]}",
            )
            item = BatchItem(
                index=index, operation=request.operation, result=await self._run_batch_item(request, family, context)
            )
            if not _awaits_confirmation(item):
                results.append(item)
            elif self._limits.on_confirmation == "halt":
                return _halt_batch(batch, results, item)
            else:
                results.append(msgspec.structs.replace(item, status="pending_confirmation"))
        return Batch(results=tuple(results), summary=_summary(len(batch), results))

    async def _run_batch_item(
        self, request: OperationRequest, family: str | None, context: AqlRequestContext
    ) -> SuccessResult | FailureResult:
        """Run one operation of a batch. Its result has no warnings, and of the labels only `untrusted_content`."""
        try:
            admission = await self._site.access.admit(context.caller)
        except SiteError as error:
            return failure_result(error, context, request.operation, brief=request.operation == INTROSPECT)
        with admission:
            result = await self._run_single(request, family, context)
        if not isinstance(result, SuccessResult):
            return result
        is_marked = not isinstance(result.meta, UnsetType) and UNTRUSTED in result.meta
        return SuccessResult(data=result.data, meta={UNTRUSTED: True} if is_marked else UNSET)

    # Answers that are too large

    def _limit_size(
        self, operation: str, result: SuccessResult | FailureResult, context: AqlRequestContext
    ) -> Envelope:
        envelope = Envelope(result)
        size = len(envelope.json)
        if size <= self._limits.response_bytes:
            return envelope
        return Envelope(self._omit_result(operation, size, context, completed=self._has_changed(operation, result)))

    def _limit_batch_size(self, batch: Batch, context: AqlRequestContext) -> Envelope:
        """Replace the largest results of a batch by errors until it fits."""
        envelope, limit = Envelope(batch), self._limits.response_bytes
        size = len(envelope.json)
        if size <= limit:
            return envelope
        results = self._without_largest(batch.results, size, context)
        counts = _summary(batch.summary.total, results)
        summary = msgspec.structs.replace(batch.summary, succeeded=counts.succeeded, failed=counts.failed)
        smaller = Envelope(msgspec.structs.replace(batch, results=results, summary=summary))
        if len(smaller.json) <= limit:
            return smaller
        has_changed = any(self._has_changed(item.operation, item.result) for item in batch.results)
        return Envelope(self._omit_result("", size, context, completed=has_changed))

    def _without_largest(
        self, items: Sequence[BatchItem], size: int, context: AqlRequestContext
    ) -> tuple[BatchItem, ...]:
        over = size - self._limits.response_bytes
        results = {result_item.index: result_item for result_item in items}
        sizes = {
            result_item.index: len(Envelope(result_item.result).json)
            for result_item in items
            if result_item.result.success
        }
        for index in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if over <= 0:
                break
            item = results[index]
            has_changed = self._has_changed(item.operation, item.result)
            left_out = self._omit_result(item.operation, size, context, completed=has_changed)
            results[index] = msgspec.structs.replace(item, result=left_out)
            over -= sizes[index] - len(Envelope(left_out).json)
        return tuple(results.values())

    def _omit_result(self, operation: str, size: int, context: AqlRequestContext, *, completed: bool) -> FailureResult:
        fault = too_large("response_size", self._limits.response_bytes, size, completed=completed)
        return failure_result(fault, context, brief=operation == INTROSPECT)

    def _has_changed(self, operation: str, result: SuccessResult | FailureResult) -> bool:
        """Return whether a request changed something, so that repeating it would do so again."""
        offered_operation = self._surface.all_operations().get(operation)
        return result.success and (offered_operation is None or offered_operation.kind is not Kind.READ)


def _parse_batch(request: Mapping[str, Any], most: int) -> list[OperationRequest]:
    others = request.keys() - LABELS - {OPERATIONS}
    entries = request[OPERATIONS]
    if OPERATION in others:
        raise Fault(BATCH_INVALID, "A request must have either 'operation' or 'operations'")
    if others:
        raise Fault(BATCH_INVALID, "A batch must have 'operations' alone; put parameters into each operation")
    if not isinstance(entries, list | tuple) or not entries:
        raise Fault(BATCH_INVALID, "'operations' must be an array with one operation or more")
    if len(cast("list[Any]", entries)) > most:
        raise Fault(BATCH_INVALID, f"A batch may have up to {most} operations")
    return [_parse_batch_item(entry, index) for index, entry in enumerate(cast("list[Any]", entries))]


def _parse_batch_item(raw: Any, index: int) -> OperationRequest:
    try:
        return read_operation(cast("Mapping[str, Any]", raw if isinstance(raw, Mapping) else {}))
    except Fault as error:
        raise Fault(BATCH_INVALID, f"Entry {index} of 'operations' is not an operation: {error.message}") from error


def _awaits_confirmation(item: BatchItem) -> bool:
    return isinstance(item.result, FailureResult) and item.result.error.code == CONFIRMATION_REQUIRED


def _halt_batch(batch: Sequence[OperationRequest], results: Sequence[BatchItem], item: BatchItem) -> Batch:
    rest = tuple(
        PendingOperation(index=index, operation=request.operation, params=request.params)
        for index, request in enumerate(batch)
        if index > item.index
    )
    counts = _summary(len(batch), results)
    return Batch(
        results=tuple(results),
        summary=msgspec.structs.replace(counts, halted=1, pending=len(rest)),
        halted_at=item,
        pending_operations=rest,
    )


def _summary(total: int, results: Iterable[BatchItem]) -> BatchSummary:
    """Count the results. An operation that waits for approval has not failed."""
    items = list(results)
    waiting = sum(map(_awaits_confirmation, items))
    succeeded = sum(1 for item in items if item.result.success)
    failed = len(items) - succeeded - waiting
    return BatchSummary(total=total, succeeded=succeeded, failed=failed, pending=waiting or UNSET)


# Warnings


def limit_warnings(warnings: Iterable[OperationWarning]) -> tuple[OperationWarning, ...]:
    """Merge equal warnings, with their number, and keep the first MAX_WARNINGS."""
    grouped: dict[tuple[str, str], list[OperationWarning]] = {}
    for warning in warnings:
        grouped.setdefault((warning.code, warning.message), []).append(warning)
    return tuple(_merge_warnings(warning) for warning in list(grouped.values())[:MAX_WARNINGS])


def _merge_warnings(same: Sequence[OperationWarning]) -> OperationWarning:
    if len(same) == 1:
        return same[0]
    return msgspec.structs.replace(same[0], details={**same[0].details, "occurrence_count": len(same)})


def _quota_warnings(left: Allowance) -> tuple[OperationWarning, ...]:
    if not is_scarce(left):
        return ()
    current, threshold = left.limit - left.remaining, round(left.limit * (1 - WARN_BELOW))
    details = {"metric": "requests_per_minute", "current": current, "warn_threshold": threshold}
    message = f"{left.remaining} of {left.limit} requests in a minute are left"
    return (OperationWarning(code=SCARCE, message=message, details=details, severity="high"),)


def _slow_warnings(operation: str, started: float) -> tuple[OperationWarning, ...]:
    took = round((time.perf_counter() - started) * 1000)
    if took <= SLOW_MILLISECONDS:
        return ()
    details = {"operation": operation, "duration_ms": took, "threshold_ms": SLOW_MILLISECONDS}
    return (OperationWarning(code=SLOW, message=f"Operation {quote(operation)} took {took} ms", details=details),)


@dataclass(frozen=True, slots=True)
class ErrorBoundary:
    """Records an unexpected exception for the operator, and raises Unavailable for the caller in its place."""

    record: Recorder

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, SiteError):
            self.record(UnexpectedError("aql", type(error).__name__, error))
            raise Unavailable("The operation failed unexpectedly") from error


# Calls that cannot be parsed


def answer_malformed(body: bytes, aql: AqlSettings) -> Response | None:
    """Return a tool's error for a call that is not UTF-8 or too deeply nested, which no MCP SDK passes on.

    None if it is no call of an MCP-AQL tool, or has no such fault.
    """
    message = _parse_leniently(body)
    params, id = members(message.get("params")), message.get("id")
    is_call = message.get("method") == "tools/call" and isinstance(id, str | int)
    if not is_call or str(params.get("name")) not in tools_of(aql):
        return None
    fault = _find_fault(body, members(params.get("arguments")), aql)
    if fault is None:
        return None
    envelope = Envelope(failure_result(fault)).json
    result = {
        "content": [{"type": "text", "text": envelope.decode()}],
        "structuredContent": msgspec.Raw(envelope),
        "isError": aql.errors,
        **({"resultType": "complete"} if REVISION in members(params.get("_meta")) else {}),
    }
    response = msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": result})
    return Response(response, media_type="application/json")


def _parse_leniently(body: bytes) -> Mapping[str, Any]:
    """Decode a message as far as possible: enough to know which tool it calls."""
    try:
        return members(json.loads(body.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return {}


def _find_fault(body: bytes, arguments: Mapping[str, Any], aql: AqlSettings) -> Fault | None:
    try:
        body.decode()
        parse_request(arguments, aql)
    except UnicodeDecodeError as error:
        return utf8_fault(error.start)
    except Fault as fault:
        return fault if fault.code in {INVALID_ENCODING, PAYLOAD_TOO_LARGE} else None
    return None
