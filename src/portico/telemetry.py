"""What an operator may want to know, as types, and where it goes: a log, counters. Nothing here decides anything."""

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
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from portico.redaction import redact_text


class Asked(msgspec.Struct, frozen=True):
    ms: float
    items: int
    caller: str
    model_calls: int = 0


class Queried(msgspec.Struct, frozen=True):
    collection: str
    ms: float
    items: int
    caller: str


@dataclass(frozen=True, slots=True)
class Called:
    operation: str
    ms: float
    caller: str
    error: str = ""  # the class of the error, when it failed
    cause: BaseException | None = field(default=None, compare=False, repr=False)  # logged at debug level


class Refused(msgspec.Struct, frozen=True):
    """The gate said no."""

    what: str
    caller: str
    error: str


class TaskMoved(msgspec.Struct, frozen=True):
    task: str
    operation: str
    state: str


class Delegated(msgspec.Struct, frozen=True):
    """Work was handed to workers as steps; the trace is the caller's, or a new one."""

    task: str
    actions: tuple[str, ...]
    trace: str
    span: str
    caller: str


class Loaded(msgspec.Struct, frozen=True):
    source: str
    collection: str
    added: int
    changed: int
    removed: int
    failed: int


class Audited(msgspec.Struct, frozen=True):
    """A line of the audit trail, told outside of the store too: there its digest can be compared."""

    seq: int
    what: str
    body: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Broke:
    """Something that should not happen did. The only observation that means a defect, or a fault of the machine."""

    where: str
    error: str
    cause: BaseException | None = field(default=None, compare=False, repr=False)  # logged at debug level


class Recovered(msgspec.Struct, frozen=True):
    """A part that broke works again."""

    where: str
    seconds: float  # that it did not


class Cancelled(msgspec.Struct, frozen=True):
    """The server stopped before these requests had ended."""

    requests: int


Observation: TypeAlias = (
    Asked | Queried | Called | Refused | TaskMoved | Delegated | Loaded | Audited | Broke | Recovered | Cancelled
)
Observe: TypeAlias = Callable[[Observation], None]


def nowhere(_: Observation) -> None:
    """For those who do not want to know."""


MAX_REASONS = 20  # of one incident, which are recorded


class Incident:
    """A fault of one part that may last: each of its reasons is recorded once, and its end."""

    def __init__(self, where: str, observe: Observe) -> None:
        self.observe = observe
        self._where = where
        self._began = 0.0
        self._reasons: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def reason(self) -> str:
        """The latest reason; empty while all is well."""
        return next(reversed(self._reasons), "")

    def report(self, reason: str, error: BaseException, detail: str = "") -> None:
        """Record a fault, unless it is known already. The detail is for the log alone."""
        with self._lock:
            is_known = reason in self._reasons or len(self._reasons) >= MAX_REASONS
            if not self._reasons:
                self._began = time.monotonic()
            if len(self._reasons) < MAX_REASONS:
                self._reasons.pop(reason, None)  # so that it is the latest
                self._reasons[reason] = None
        if not is_known:
            self.observe(Broke(self._where, f"{reason}: {detail}" if detail else reason, error))

    def resolve(self) -> None:
        with self._lock:
            is_over = bool(self._reasons)
            self._reasons.clear()
        if is_over:
            self.observe(Recovered(self._where, round(time.monotonic() - self._began, 3)))


LogLevel = Literal["info", "debug"]


class Log:
    """One JSON line for each observation; lines of so many seconds are written together.

    To make and write a line takes as long as to make a small answer. At debug level, failures have their traceback.
    """

    def __init__(self, stream: TextIO | None = None, seconds: float = 0.0, level: LogLevel = "info") -> None:
        self._stream = stream or sys.stderr
        self._seconds = seconds
        self._is_debug = level == "debug"
        self._waiting: list[tuple[float, Observation]] = []
        self._lock = threading.Lock()
        if seconds:
            atexit.register(self.flush)

    def __call__(self, seen: Observation) -> None:
        with self._lock:
            is_first = not self._waiting
            self._waiting.append((time.time(), seen))
        if not self._seconds:
            self.flush()
        elif is_first:
            later = threading.Timer(self._seconds, self.flush)
            later.daemon = True
            later.start()

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            self._stream.write("".join(_line(at, seen, self._is_debug) for at, seen in self._waiting))
            self._stream.flush()
            self._waiting.clear()


def _line(at: float, seen: Observation, is_debug: bool) -> str:
    said = msgspec.json.encode(_fields(seen, is_debug) if isinstance(seen, Broke | Called) else seen).decode()
    return f'{{"at":"{_shown(int(at * 1000))}","event":"{type(seen).__name__}",{said[1:]}\n'


def _fields(seen: Broke | Called, is_debug: bool) -> dict[str, Any]:
    shown = {each.name: getattr(seen, each.name) for each in fields(seen) if each.name != "cause"}
    if isinstance(seen, Broke):
        shown["error"] = redact_text(seen.error)
    if is_debug and seen.cause:
        shown["traceback"] = redact_text("".join(traceback.format_exception(seen.cause)))
    return shown


@lru_cache(maxsize=1)  # many lines are of the same millisecond
def _shown(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


MINUTES = 60  # that traffic is remembered
DOORS = ("ask", "query", "call")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SHOWN_BOUNDS = (*(str(float(each)) for each in _BOUNDS), "+Inf")


class Count:
    """How often something happened."""

    __slots__ = ("began", "times")

    def __init__(self) -> None:
        self.began = time.time()
        self.times = 0


class Tally:
    """How long something took: how often by the first bound that it did not pass, and in all."""

    __slots__ = ("began", "counts", "seconds")

    def __init__(self) -> None:
        self.began = time.time()
        self.counts = [0] * len(_SHOWN_BOUNDS)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.seconds += seconds


class Metrics(Collector):
    """Counters and durations for Prometheus. Labels are names from the catalog, never from a request.

    They are added up here, and made into samples when they are collected: to count must cost next to nothing.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._events: defaultdict[type[Observation], Count] = defaultdict(Count)
        self._calls: defaultdict[tuple[str, str], Count] = defaultdict(Count)
        self._seconds: defaultdict[str, Tally] = defaultdict(Tally)
        self.registry.register(self)

    def __call__(self, seen: Observation) -> None:
        with self._lock:
            self._events[type(seen)].times += 1
            match seen:
                case Asked(ms=ms):
                    self._seconds["ask"].add(ms / 1000)
                case Queried(ms=ms):
                    self._seconds["query"].add(ms / 1000)
                case Called(operation=operation, ms=ms, error=error):
                    self._seconds["call"].add(ms / 1000)
                    self._calls[operation, error].times += 1
                case Refused() | TaskMoved() | Delegated() | Loaded() | Audited() | Broke() | Recovered() | Cancelled():
                    pass

    def collect(self) -> list[Metric]:
        with self._lock:
            events = {(kind.__name__,): count for kind, count in self._events.items()}
            return [
                _counter("portico_events", "Observations by kind", ["event"], events),
                _counter("portico_calls", "Calls", ["operation", "error"], self._calls),
                _histogram("portico_seconds", "Time taken", "door", self._seconds),
            ]


class Pace(msgspec.Struct):
    """What one door had to do in a minute."""

    count: int = 0
    errors: int = 0
    ms: float = 0.0  # all of it together
    slowest: float = 0.0


class Minute(msgspec.Struct, frozen=True):
    at: datetime
    doors: dict[str, Pace]
    refused: int  # by the gate
    broke: int


class Traffic:
    """The last hour of this process, minute by minute, for people to look at. Minutes without anything are left out."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._minutes: deque[tuple[int, defaultdict[str, Pace]]] = deque(maxlen=MINUTES)

    def __call__(self, seen: Observation) -> None:
        match seen:
            case Asked(ms=ms):
                self._add("ask", ms)
            case Queried(ms=ms):
                self._add("query", ms)
            case Called(ms=ms, error=error):
                self._add("call", ms, failed=bool(error))
            case Refused():
                self._add("refused")
            case Broke():
                self._add("broke")
            case TaskMoved() | Delegated() | Loaded() | Audited() | Recovered() | Cancelled():
                pass

    def _add(self, what: str, ms: float = 0.0, *, failed: bool = False) -> None:
        minute = int(self._clock() // 60)
        with self._lock:
            if not self._minutes or self._minutes[-1][0] != minute:
                self._minutes.append((minute, defaultdict(Pace)))
            pace = self._minutes[-1][1][what]
            pace.count += 1
            pace.errors += failed
            pace.ms += ms
            pace.slowest = max(pace.slowest, ms)

    def minutes(self) -> list[Minute]:
        """The oldest first."""
        oldest = int(self._clock() // 60) - MINUTES
        with self._lock:
            return [_minute(number, paces) for number, paces in self._minutes if number > oldest]


def _minute(number: int, paces: Mapping[str, Pace]) -> Minute:
    doors = {name: msgspec.structs.replace(paces[name]) for name in DOORS if name in paces}
    refused, broke = (paces[name].count if name in paces else 0 for name in ("refused", "broke"))
    return Minute(datetime.fromtimestamp(number * 60, UTC), doors, refused, broke)


def _counter(name: str, help: str, labels: list[str], counts: Mapping[tuple[str, ...], Count]) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count.times, created=count.began)
    return family


def _histogram(name: str, help: str, label: str, tallies: Mapping[str, Tally]) -> Metric:
    family = HistogramMetricFamily(name, help, labels=[label])
    for value, tally in tallies.items():
        buckets = list(zip(_SHOWN_BOUNDS, accumulate(tally.counts), strict=True))
        family.add_metric([value], buckets, tally.seconds)
        family.add_sample(f"{name}_created", {label: value}, tally.began)
    return family


def both(*sinks: Observe) -> Observe:
    """One observer that tells several."""

    def tell(seen: Observation) -> None:
        for sink in sinks:
            sink(seen)

    return tell


class LibraryLog(logging.Handler):
    """Turns the log records of a library into observations.

    An exception is a fault. A warning is of something that any client can cause: at most one a second is observed.
    Other records tell what is observed elsewhere.
    """

    def __init__(self, where: str, observe: Observe) -> None:
        super().__init__(logging.WARNING)
        self._where = where
        self._observe = observe
        self._warned = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        if isinstance(cause, Exception):
            self._observe(Broke(self._where, type(cause).__name__, cause))
        elif record.levelno == logging.WARNING and time.monotonic() - self._warned >= 1:
            self._warned = time.monotonic()
            self._observe(Refused(self._where, "anonymous", record.getMessage()))


def quiet(library: str) -> None:
    """Keep what a library logs off the terminal, unless somebody has said where it goes. It is told in other ways."""
    log = logging.getLogger(library)
    if not log.hasHandlers():
        log.addHandler(logging.NullHandler())
