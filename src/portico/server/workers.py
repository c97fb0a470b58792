"""Runs one function in several processes: started together, replaced when they die, stopped together. Knows no HTTP.

The parent holds one end of a pipe, the lifeline, and sends nothing through it. Once that end is closed, on purpose or
because the parent was killed, every worker stops as if by SIGTERM.
"""

import contextlib
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from portico.errors import SiteError, Unavailable
from portico.telemetry import Recorder, UnexpectedError

SPAWN = multiprocessing.get_context("spawn")

# Seconds before a worker that died is replaced. The pause doubles as long as they die young.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
YOUNG = 10.0
STOP_SECONDS = 30.0  # for finishing what is open; one that takes longer is killed


@dataclass(frozen=True, slots=True)
class Work:
    """The call `function(*args, report_start)` that each worker makes. `report_start` sends a value to the parent.

    It crosses to another process: a function of a module, and arguments that can be pickled.
    """

    function: Callable[..., None]
    args: tuple[Any, ...]


class Workers:
    """The processes that do one work. Leaving the context stops them."""

    def __init__(self, count: int, work: Work, record: Recorder) -> None:
        self._count = count
        self._work = work
        self._record = record
        self._lifeline, self._hold = SPAWN.Pipe(duplex=False)
        self._workers: list[Worker] = []
        self._vacancies: list[Vacancy] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._hold.close()
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            worker.join(max(deadline - time.monotonic(), 0.0))
            if worker.is_alive:
                worker.kill()
                worker.join()
        self._lifeline.close()

    def run(self, started: Callable[[Any], None]) -> None:
        """Run until Ctrl-C or SIGTERM. Each worker must start once; those that die later are replaced."""
        for stop_signal in (signal.SIGINT, signal.SIGTERM):
            signal.signal(stop_signal, self._stop)
        # The first one creates what they share, such as a new store, and fails alone if the site cannot be opened.
        report = self._start(1)
        self._start(self._count - 1)
        if not self._is_stopping:
            started(report)
            self._supervise()

    @property
    def _is_stopping(self) -> bool:
        return self._lifeline.poll()  # nothing is ever sent, so it can be read at its end only

    def _stop(self, number: int, _frame: object) -> None:
        """Handle a signal to stop. A second Ctrl-C does not wait for open requests."""
        if self._hold.closed and number == signal.SIGINT:
            for worker in self._workers:
                worker.kill()
        self._hold.close()

    def _start(self, count: int) -> Any:
        """Start workers, and return what the last one of them reported at its start."""
        report: Any = None
        starting = [self._add() for _ in range(count)]
        while starting and not self._is_stopping:
            ready = wait([self._lifeline, *(worker.reports for worker in starting)])
            for worker in [worker for worker in starting if worker.reports in ready]:
                report = worker.wait_for_start()
                starting.remove(worker)
        return report

    def _add(self, pause: float = 0.0) -> "Worker":
        worker = Worker(self._work, self._lifeline, pause)
        self._workers.append(worker)
        return worker

    def _supervise(self) -> None:
        """Replace workers that die, until a signal stops this."""
        while not self._is_stopping:
            wait([self._lifeline, *(worker.sentinel for worker in self._workers)], self._seconds_until_due())
            if not self._is_stopping:
                self._remove_dead()
                self._fill()

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until a vacancy is to be filled, or None without one."""
        due = min((vacancy.due for vacancy in self._vacancies), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _remove_dead(self) -> None:
        for worker in [worker for worker in self._workers if not worker.is_alive]:
            self._workers.remove(worker)
            self._record(UnexpectedError(f"worker {worker.pid}", str(worker.exit_error())))
            self._vacate(worker.pause if worker.age < YOUNG else 0.0)
            worker.close()

    def _vacate(self, pause: float) -> None:
        """Leave a place empty, for longer than the last time."""
        longer = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
        self._vacancies.append(Vacancy(time.monotonic() + longer, longer))

    def _fill(self) -> None:
        for vacancy in [vacancy for vacancy in self._vacancies if vacancy.due <= time.monotonic()]:
            self._vacancies.remove(vacancy)
            try:
                self._add(vacancy.pause)
            except Unavailable as error:
                self._record(UnexpectedError("a new worker", str(error), error))
                self._vacate(vacancy.pause)


@dataclass(frozen=True, slots=True)
class Vacancy:
    """The place of a worker that died, to be filled when it is due."""

    due: float
    pause: float


class Worker:
    """One process, from its start to its end."""

    def __init__(self, work: Work, lifeline: Connection, pause: float) -> None:
        self.pause = pause  # how long its place was empty before
        self.reports, sender = SPAWN.Pipe(duplex=False)
        self._born = time.monotonic()
        self._process = SPAWN.Process(target=_run_worker, args=(work, lifeline, sender))
        try:
            with _block_interrupts():
                self._process.start()
        except OSError as error:
            raise Unavailable(f"A worker cannot be started: {error.strerror}") from error
        finally:
            sender.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def age(self) -> float:
        return time.monotonic() - self._born

    def wait_for_start(self) -> Any:
        """Return what it reports once it has started. Raises the reason if it cannot start."""
        try:
            report = self.reports.recv()
        except (EOFError, OSError):
            raise self.exit_error() from None
        if isinstance(report, SiteError):
            raise report
        return report

    def exit_error(self) -> SiteError:
        """Wait for its end, and return the reason: the error that it reported, or else its exit code."""
        self._process.join()
        with contextlib.suppress(EOFError, OSError):
            while self.reports.poll():
                report = self.reports.recv()
                if isinstance(report, SiteError):
                    return report
        return SiteError(f"A worker ended with exit code {self._process.exitcode}", hint="The log may say why.")

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        self._process.join(timeout)

    def close(self) -> None:
        self._process.close()
        self.reports.close()


@contextlib.contextmanager
def _block_interrupts() -> Generator[None]:
    """Keep Ctrl-C from a process that is started within: a terminal sends it to all, and the parent stops them."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # lets signals through when it starts, which must not happen in between
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_worker(work: Work, lifeline: Connection, reports: Connection) -> None:
    """Do the work in a process of its own, until the lifeline is closed."""

    def stop_with_parent() -> None:
        lifeline.poll(None)
        signal.raise_signal(signal.SIGTERM)

    def report(value: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # the parent may be gone
            reports.send(value)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    try:
        work.function(*work.args, report)
    except SiteError as error:
        report(error)
        raise SystemExit(1) from None
