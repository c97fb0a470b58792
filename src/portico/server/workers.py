"""One work in several processes: started together, replaced when they die, ended together. Knows no HTTP.

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
    """A call of `function(*args, started)`, where `started` tells the parent that the work has begun.

    It is made in another process: a function of a module, and arguments that can be pickled.
    """

    function: Callable[..., None]
    args: tuple[Any, ...]


class Workers:
    """The processes that do one work. Leaving ends them."""

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
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._stop)
        # The first makes what they share, such as a new store, and finds what is wrong with a site once for all.
        begun = self._start(1)
        self._start(self._count - 1)
        if not self._is_stopping:
            started(begun)
            self._keep()

    @property
    def _is_stopping(self) -> bool:
        return self._lifeline.poll()  # nothing is ever sent, so it can be read at its end only

    def _stop(self, number: int, _frame: object) -> None:
        """Told to stop. A second Ctrl-C does not wait for open requests."""
        if self._hold.closed and number == signal.SIGINT:
            for worker in self._workers:
                worker.kill()
        self._hold.close()

    def _start(self, count: int) -> Any:
        """What a worker said when it had begun."""
        begun: Any = None
        starting = [self._add() for _ in range(count)]
        while starting and not self._is_stopping:
            ready = wait([self._lifeline, *(worker.words for worker in starting)])
            for worker in [each for each in starting if each.words in ready]:
                begun = worker.begun()
                starting.remove(worker)
        return begun

    def _add(self, pause: float = 0.0) -> "Worker":
        worker = Worker(self._work, self._lifeline, pause)
        self._workers.append(worker)
        return worker

    def _keep(self) -> None:
        """Keep the number of workers until told to stop."""
        while not self._is_stopping:
            wait([self._lifeline, *(worker.sentinel for worker in self._workers)], self._patience())
            if not self._is_stopping:
                self._bury()
                self._fill()

    def _patience(self) -> float | None:
        """Seconds until a vacancy is to be filled."""
        due = min((vacancy.due for vacancy in self._vacancies), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _bury(self) -> None:
        for worker in [each for each in self._workers if not each.is_alive]:
            self._workers.remove(worker)
            self._record(UnexpectedError(f"worker {worker.pid}", str(worker.ended())))
            self._vacate(worker.pause if worker.age < YOUNG else 0.0)
            worker.close()

    def _vacate(self, pause: float) -> None:
        """Leave a place empty for longer than the last time."""
        longer = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
        self._vacancies.append(Vacancy(time.monotonic() + longer, longer))

    def _fill(self) -> None:
        for vacancy in [each for each in self._vacancies if each.due <= time.monotonic()]:
            self._vacancies.remove(vacancy)
            try:
                self._add(vacancy.pause)
            except Unavailable as error:
                self._record(UnexpectedError("a new worker", str(error), error))
                self._vacate(vacancy.pause)


@dataclass(frozen=True, slots=True)
class Vacancy:
    """A place to fill."""

    due: float
    pause: float


class Worker:
    """One process, from its start to its end."""

    def __init__(self, work: Work, lifeline: Connection, pause: float) -> None:
        self.pause = pause  # how long its place was empty before
        self.words, mouth = SPAWN.Pipe(duplex=False)
        self._born = time.monotonic()
        self._process = SPAWN.Process(target=_do, args=(work, lifeline, mouth))
        try:
            with _interrupts_held():
                self._process.start()
        except OSError as error:
            raise Unavailable(f"A worker cannot be started: {error.strerror}") from error
        finally:
            mouth.close()

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

    def begun(self) -> Any:
        """What it said when it had begun. Raises why it could not; waits for the one or the other."""
        try:
            said = self.words.recv()
        except (EOFError, OSError):
            raise self.ended() from None
        if isinstance(said, SiteError):
            raise said
        return said

    def ended(self) -> SiteError:
        """Why it ended: its last words, or else its exit code."""
        self._process.join()
        with contextlib.suppress(EOFError, OSError):
            while self.words.poll():
                said = self.words.recv()
                if isinstance(said, SiteError):
                    return said
        return SiteError(f"A worker ended with exit code {self._process.exitcode}", hint="The log may say why.")

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        self._process.join(timeout)

    def close(self) -> None:
        self._process.close()
        self.words.close()


@contextlib.contextmanager
def _interrupts_held() -> Generator[None]:
    """A process that is started meanwhile never sees Ctrl-C. A terminal sends it to all; their parent ends workers."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # lets signals through when it starts, which must not happen in between
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _do(work: Work, lifeline: Connection, mouth: Connection) -> None:
    """The life of a worker."""
    threading.Thread(target=_heed, args=(lifeline,), daemon=True).start()

    def say(what: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # a parent that is gone need not know
            mouth.send(what)

    try:
        work.function(*work.args, say)
    except SiteError as error:
        say(error)
        raise SystemExit(1) from None


def _heed(lifeline: Connection) -> None:
    lifeline.poll(None)
    signal.raise_signal(signal.SIGTERM)
