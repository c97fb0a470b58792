"""Telemetry: events for operators, and the sinks that turn them into log lines, metrics and a traffic history."""

import atexit
import logging
import math
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, TextIO, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from portico.redaction import redact_text


class AskAnswered(msgspec.Struct, frozen=True):
    ms: float
    items: int
    caller: str
    model_calls: int = 0


class QueryServed(msgspec.Struct, frozen=True):
    collection: str
    ms: float
    items: int
    caller: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    operation: str
    ms: float
    caller: str
    error: str = ""  # the class of the error; empty if the call succeeded
    cause: BaseException | None = field(default=None, compare=False, repr=False)  # logged at debug level


class RequestRefused(msgspec.Struct, frozen=True):
    """The gate, or another limit, refused a request."""

    what: str
    caller: str
    error: str


class TaskStateChanged(msgspec.Struct, frozen=True):
    task: str
    operation: str
    state: str


class StepsDelegated(msgspec.Struct, frozen=True):
    """A task was delegated to workers as steps. The trace is the caller's, or a new one."""

    task: str
    actions: tuple[str, ...]
    trace: str
    span: str
    caller: str


class SourceLoaded(msgspec.Struct, frozen=True):
    source: str
    collection: str
    added: int
    changed: int
    removed: int
    failed: int


class SourceRefreshed(msgspec.Struct, frozen=True):
    """A server has loaded a source, by its schedule or on request, or has failed to."""

    source: str  # its name
    result: str  # loaded, unchanged or failed
    items: int
    error: str = ""


class AuditEntryAdded(msgspec.Struct, frozen=True):
    """A line of the audit trail. A copy outside the store lets its digest be compared."""

    seq: int
    what: str
    body: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class UnexpectedError:
    """A defect, or a fault of the machine. No other event means one."""

    where: str
    error: str
    cause: BaseException | None = field(default=None, compare=False, repr=False)  # logged at debug level


class FaultResolved(msgspec.Struct, frozen=True):
    """A part that failed works again."""

    where: str
    seconds: float  # how long it did not work


class RequestsCancelled(msgspec.Struct, frozen=True):
    """The server stopped before these requests had been answered."""

    requests: int


TelemetryEvent: TypeAlias = (
    AskAnswered
    | QueryServed
    | CallFinished
    | RequestRefused
    | TaskStateChanged
    | StepsDelegated
    | SourceLoaded
    | SourceRefreshed
    | AuditEntryAdded
    | UnexpectedError
    | FaultResolved
    | RequestsCancelled
)
Recorder: TypeAlias = Callable[[TelemetryEvent], None]

# What operators see in the log and in metrics.
EVENT_NAMES: Mapping[type[TelemetryEvent], str] = {
    AskAnswered: "Asked",
    QueryServed: "Queried",
    CallFinished: "Called",
    RequestRefused: "Refused",
    TaskStateChanged: "TaskMoved",
    StepsDelegated: "Delegated",
    SourceLoaded: "Loaded",
    SourceRefreshed: "Refreshed",
    AuditEntryAdded: "Audited",
    UnexpectedError: "Broke",
    FaultResolved: "Recovered",
    RequestsCancelled: "Cancelled",
}


def discard(_: TelemetryEvent) -> None:
    """A recorder that drops every event."""


MAX_REASONS = 20  # that are recorded of one incident


class Incident:
    """A lasting fault of one part. Each of its reasons is recorded once, and so is its end."""

    def __init__(self, where: str, record: Recorder) -> None:
        self.record = record
        self._where = where
        self._began = 0.0
        self._reasons: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def reason(self) -> str:
        """The latest reason; empty while all is well."""
        return next(reversed(self._reasons), "")

    def report(self, reason: str, error: BaseException, detail: str = "") -> None:
        """Record a fault, unless its reason was recorded before. The detail appears only in the log."""
        with self._lock:
            is_known = reason in self._reasons or len(self._reasons) >= MAX_REASONS
            if not self._reasons:
                self._began = time.monotonic()
            if len(self._reasons) < MAX_REASONS:
                self._reasons.pop(reason, None)  # so that it is the latest
                self._reasons[reason] = None
        if not is_known:
            self.record(UnexpectedError(self._where, f"{reason}: {detail}" if detail else reason, error))

    def resolve(self) -> None:
        with self._lock:
            is_over = bool(self._reasons)
            self._reasons.clear()
        if is_over:
            self.record(FaultResolved(self._where, round(time.monotonic() - self._began, 3)))


LogLevel = Literal["info", "debug"]


class JsonLog:
    """Writes one JSON line for each event; at debug level, failures have their traceback.

    The lines of `seconds` are written together, because writing one takes as long as a small answer.
    """

    def __init__(self, stream: TextIO | None = None, seconds: float = 0.0, level: LogLevel = "info") -> None:
        self._stream = stream or sys.stderr
        self._seconds = seconds
        self._is_debug = level == "debug"
        self._queue: list[tuple[float, TelemetryEvent]] = []
        self._lock = threading.Lock()
        if seconds:
            atexit.register(self.flush)

    def __call__(self, event: TelemetryEvent) -> None:
        with self._lock:
            is_first = not self._queue
            self._queue.append((time.time(), event))
        if not self._seconds:
            self.flush()
        elif is_first:
            timer = threading.Timer(self._seconds, self.flush)
            timer.daemon = True
            timer.start()

    def flush(self) -> None:
        """Write the lines that are queued."""
        with self._lock:
            self._stream.write("".join(_render_line(at, event, self._is_debug) for at, event in self._queue))
            self._stream.flush()
            self._queue.clear()


def _render_line(at: float, event: TelemetryEvent, is_debug: bool) -> str:
    body = msgspec.json.encode(
        _loggable_fields(event, is_debug) if isinstance(event, UnexpectedError | CallFinished) else event
    ).decode()
    return f'{{"at":"{_format_time(int(at * 1000))}","event":"{EVENT_NAMES[type(event)]}",{body[1:]}\n'


def _loggable_fields(event: UnexpectedError | CallFinished, is_debug: bool) -> dict[str, Any]:
    values = {item.name: getattr(event, item.name) for item in fields(event) if item.name != "cause"}
    if isinstance(event, UnexpectedError):
        values["error"] = redact_text(event.error)
    if is_debug and event.cause:
        values["traceback"] = redact_text("".join(traceback.format_exception(event.cause)))
    return values


@lru_cache(maxsize=1)  # many lines share a millisecond
def _format_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


MINUTES = 60  # of traffic that are kept
REQUEST_KINDS = ("ask", "query", "call")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BUCKET_LABELS = (*(str(float(bound)) for bound in _BOUNDS), "+Inf")


class Counter:
    """How often something happened, and since when it is counted."""

    __slots__ = ("since", "value")

    def __init__(self) -> None:
        self.since = time.time()
        self.value = 0


class Histogram:
    """Durations, counted by bucket, and their sum."""

    __slots__ = ("counts", "seconds", "since")

    def __init__(self) -> None:
        self.since = time.time()
        self.counts = [0] * len(_BUCKET_LABELS)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.seconds += seconds


class SourceFreshness(msgspec.Struct, frozen=True):
    """What metrics show of a source."""

    succeeded: float | None  # the time of its last successful load
    items: int


class Metrics(Collector):
    """Counters and durations for Prometheus. Labels are names from the catalog, never from a request.

    Events are only added up here and become samples when Prometheus collects them, so that counting is cheap.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._events: defaultdict[type[TelemetryEvent], Counter] = defaultdict(Counter)
        self._calls: defaultdict[tuple[str, str], Counter] = defaultdict(Counter)
        self._seconds: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._refreshes: defaultdict[tuple[str, str], Counter] = defaultdict(Counter)
        self._read_freshness: Callable[[], Mapping[str, SourceFreshness]] = dict
        self.registry.register(self)

    def __call__(self, event: TelemetryEvent) -> None:
        with self._lock:
            self._events[type(event)].value += 1
            match event:
                case AskAnswered(ms=ms):
                    self._seconds["ask"].add(ms / 1000)
                case QueryServed(ms=ms):
                    self._seconds["query"].add(ms / 1000)
                case CallFinished(operation=operation, ms=ms, error=error):
                    self._seconds["call"].add(ms / 1000)
                    self._calls[operation, error].value += 1
                case SourceRefreshed(source=source, result=result):
                    self._refreshes[source, result].value += 1
                case (
                    RequestRefused()
                    | TaskStateChanged()
                    | StepsDelegated()
                    | SourceLoaded()
                    | AuditEntryAdded()
                    | UnexpectedError()
                    | FaultResolved()
                    | RequestsCancelled()
                ):
                    pass

    def watch_sources(self, read: Callable[[], "Mapping[str, SourceFreshness]"]) -> None:
        """Read the freshness of sources from here on."""
        self._read_freshness = read

    def collect(self) -> list[Metric]:
        freshness = self._read_freshness()
        last = {name: source.succeeded for name, source in freshness.items() if source.succeeded is not None}
        items = {name: source.items for name, source in freshness.items()}
        with self._lock:
            events = {(EVENT_NAMES[kind],): count for kind, count in self._events.items()}
            return [
                _counter("portico_events", "Events by kind", ["event"], events),
                _counter("portico_calls", "Calls", ["operation", "error"], self._calls),
                _histogram("portico_seconds", "Time taken", "request", self._seconds),
                _counter("portico_source_refresh", "Loads of sources", ["source", "result"], self._refreshes),
                _gauge("portico_source_last_success_timestamp_seconds", "When a source was last loaded", last),
                _gauge("portico_source_items", "Items that the last load of a source read", items),
            ]


class RequestStats(msgspec.Struct):
    """The requests of one kind in one minute."""

    count: int = 0
    errors: int = 0
    ms: float = 0.0  # in total
    slowest: float = 0.0


class TrafficMinute(msgspec.Struct, frozen=True):
    """What the operator's page shows of one minute."""

    at: datetime
    requests: dict[str, RequestStats]  # by kind of request
    refusals: int
    defects: int


class TrafficHistory:
    """The last hour of this process, minute by minute. Minutes without requests are left out."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._minutes: deque[tuple[int, defaultdict[str, RequestStats]]] = deque(maxlen=MINUTES)

    def __call__(self, event: TelemetryEvent) -> None:
        match event:
            case AskAnswered(ms=ms):
                self._add("ask", ms)
            case QueryServed(ms=ms):
                self._add("query", ms)
            case CallFinished(ms=ms, error=error):
                self._add("call", ms, failed=bool(error))
            case RequestRefused():
                self._add("refusals")
            case UnexpectedError():
                self._add("defects")
            case (
                TaskStateChanged()
                | StepsDelegated()
                | SourceLoaded()
                | SourceRefreshed()
                | AuditEntryAdded()
                | FaultResolved()
                | RequestsCancelled()
            ):
                pass

    def _add(self, what: str, ms: float = 0.0, *, failed: bool = False) -> None:
        minute = int(self._clock() // 60)
        with self._lock:
            if not self._minutes or self._minutes[-1][0] != minute:
                self._minutes.append((minute, defaultdict(RequestStats)))
            stats = self._minutes[-1][1][what]
            stats.count += 1
            stats.errors += failed
            stats.ms += ms
            stats.slowest = max(stats.slowest, ms)

    def minutes(self) -> list[TrafficMinute]:
        """Return the minutes, oldest first."""
        oldest = int(self._clock() // 60) - MINUTES
        with self._lock:
            return [_to_minute(number, stats) for number, stats in self._minutes if number > oldest]


def _to_minute(number: int, stats: Mapping[str, RequestStats]) -> TrafficMinute:
    requests = {name: msgspec.structs.replace(stats[name]) for name in REQUEST_KINDS if name in stats}
    counts = [stats[name].count if name in stats else 0 for name in ("refusals", "defects")]
    return TrafficMinute(datetime.fromtimestamp(number * 60, UTC), requests, *counts)


def _counter(name: str, help: str, labels: list[str], counts: Mapping[tuple[str, ...], Counter]) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count.value, created=count.since)
    return family


def _gauge(name: str, help: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=["source"])
    for source, value in values.items():
        family.add_metric([source], value)
    return family


def _histogram(name: str, help: str, label: str, tallies: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, help, labels=[label])
    for value, tally in tallies.items():
        buckets = list(zip(_BUCKET_LABELS, accumulate(tally.counts), strict=True))
        family.add_metric([value], buckets, tally.seconds)
        family.add_sample(f"{name}_created", {label: value}, tally.since)
    return family


def fan_out(*sinks: Recorder) -> Recorder:
    """Return a recorder that passes each event to several."""

    def record(event: TelemetryEvent) -> None:
        for sink in sinks:
            sink(event)

    return record


class LibraryLog(logging.Handler):
    """Turns the log records of a library into events.

    An exception is a fault. A warning is of something that any client can cause: at most one a second is recorded.
    Other records are dropped, as they repeat what is recorded elsewhere.
    """

    def __init__(self, where: str, record: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._where = where
        self._record = record
        self._warned = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        if isinstance(cause, Exception):
            self._record(UnexpectedError(self._where, type(cause).__name__, cause))
        elif record.levelno == logging.WARNING and time.monotonic() - self._warned >= 1:
            self._warned = time.monotonic()
            self._record(RequestRefused(self._where, "anonymous", record.getMessage()))


def silence_library(library: str) -> None:
    """Keep a library's log off the terminal, unless a handler is configured. Its failures are recorded as events."""
    log = logging.getLogger(library)
    if not log.hasHandlers():
        log.addHandler(logging.NullHandler())
