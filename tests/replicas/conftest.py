"""Two servers on one store, as processes that can be asked things and killed."""

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from portico import errors
from portico.operations.tasks import LEASE_SECONDS

PROGRAM = Path(__file__).parent / "replica.py"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PORTICO_SITE"}
CLOSE_SECONDS = 30
SITE = """
operations = ["own.py"]
[search]
embedder = "none:"
[store]
url = "{url}"
[limits]
concurrent_tasks = 1
tasks_per_caller = 3
anonymous_per_minute = 6
keys_per_minute = 1000
[anonymous]
scopes = ["ask", "read:*", "execute:*"]
[collections.berths]
[collections.tallies]
"""
OWN = '''
import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from portico.operations import Context, operation

HERE = Path(__file__).parent

def note(name: str, word: str) -> None:
    """One line of a file that all processes share."""
    with (HERE / name).open("a") as file:
        file.write(f"{word} {os.getpid()}\\n")

@contextmanager
def noted(name: str) -> Iterator[None]:
    """Notes how a piece of work began and how it ended, wherever it was stopped."""
    note(name, "begin")
    try:
        yield
    except asyncio.CancelledError:
        note(name, "cancelled")
        raise
    except BaseException:
        note(name, "failed")
        raise
    note(name, "end")

async def until_let_go(name: str) -> None:
    while not (HERE / f"{name}.go").exists():
        await asyncio.sleep(0.02)

@operation(kind="execute", danger="safe")
async def stamp(context: Context, name: str) -> str:
    """Notes that it was done, and by whom."""
    note(name, "stamped")
    return f"{name} {os.getpid()}"

@operation(kind="execute", danger="safe", long=True)
async def hold(context: Context, name: str) -> str:
    """Works until it is let go."""
    with noted(name):
        await until_let_go(name)
    return name

@operation(kind="execute", danger="safe", long=True, attempts=2)
async def tally(context: Context, name: str, count: int) -> list[str]:
    """Writes items one by one, stops half way until it is let go, and goes on from there if it is taken over."""
    done = list(context.saved or [])
    with noted(name):
        for number in range(len(done), count):
            if number == count // 2:
                await until_let_go(name)
            await context.put("tallies", f"{name}-{number}", {"by": os.getpid()})
            done.append(f"{name}-{number}")
            await context.progress(len(done) / count, f"{len(done)} of {count}", save=done)
    return done
'''


@dataclass
class Replica:
    """A process with the site open. Errors it answers with are raised here as what they are."""

    process: asyncio.subprocess.Process
    _numbers: itertools.count = field(default_factory=itertools.count)
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    async def __call__(self, wanted: str, credentials: dict[str, str] | None = None, /, **given: Any) -> Any:
        """Ask for something as the operator, or as whoever has these credentials."""
        number = next(self._numbers)
        self._listening = self._listening or asyncio.create_task(self._listen())
        if self._listening.done():
            raise ConnectionError("the replica has ended")
        self._waiting[number] = asyncio.get_running_loop().create_future()
        request = {"number": number, "wanted": wanted, "credentials": credentials, "given": given}
        self.process.stdin.write(msgspec.json.encode(request) + b"\n")
        said = await self._waiting[number]
        if "error" in said:
            raise getattr(errors, said["error"])(said["message"], **said["details"])
        return said["answer"]

    async def _listen(self) -> None:
        async for line in self.process.stdout:
            said = msgspec.json.decode(line)
            self._waiting.pop(said["number"]).set_result(said)
        for left in self._waiting.values():
            if not left.done():
                left.set_exception(ConnectionError("the replica has ended"))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        """As if its machine had lost power."""
        self.process.kill()
        await self.process.wait()

    async def close(self) -> int:
        """Ask it to end, and see that it does; its exit code."""
        self.process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                code = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            code = await self.process.wait()
        if self._listening:
            await self._listening
        return code


Begin = Callable[..., Awaitable[tuple[Replica, Replica]]]
Notes = Callable[[str], list[tuple[str, int]]]
LetGo = Callable[[str], None]


@asynccontextmanager
async def beginning(url: str, folder: Path) -> AsyncIterator[Begin]:
    """Starts two replicas of one site. At the end they close cleanly, unless they were killed."""
    (folder / "portico.toml").write_text(SITE.format(url=url))
    (folder / "own.py").write_text(OWN)
    replicas: list[Replica] = []

    async def one(lease: float) -> Replica:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            PROGRAM,
            folder / "portico.toml",
            str(lease),
            env=ENVIRONMENT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        replicas.append(Replica(process))
        return replicas[-1]

    async def two(lease: float = LEASE_SECONDS) -> tuple[Replica, Replica]:
        a, b = await one(lease), await one(lease)
        for replica in (a, b):
            await until(lambda replica=replica: replica("is_ready"), "a replica that is ready")
        return a, b

    yield two
    for replica in replicas:
        killed = replica.process.returncode is not None
        code = await replica.close()
        assert killed or code == 0, "a replica did not close cleanly"


async def until(happened: Callable[[], Awaitable[Any]], what: str, seconds: float = 120.0) -> Any:
    """Look again and again, but not for ever. What was seen when it had happened."""
    deadline = time.monotonic() + seconds
    while not (seen := await happened()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} seconds"
        await asyncio.sleep(0.02)
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the site of the replicas lies."""
    return tmp_path


@pytest.fixture
def notes(folder: Path) -> Notes:
    """What operations noted under a name: a word, and the process that said it."""

    def read(name: str) -> list[tuple[str, int]]:
        path = folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [(word, int(pid)) for word, pid in (line.split() for line in lines)]

    return read


@pytest.fixture
def let_go(folder: Path) -> LetGo:
    """Let the operations that wait under a name go on."""
    return lambda name: (folder / f"{name}.go").touch()
