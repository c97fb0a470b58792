"""A seeded fault loop: a server is killed again and again while callers work, and nothing is lost, doubled or stuck.

Beside the kills, answers to COMMIT are dropped, calls time out and the disk is full for a while. Callers repeat calls
with a key until they know the outcome. Afterwards the store is compared with what the callers were told.

    make chaos KILLS=300 SEED=7
"""

import argparse
import asyncio
import contextlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from tests import databases
from tests.faults.conftest import opened
from tests.faults.proxy import Fate, Proxy
from tests.ports import free_port

from portico.access.identity import make_key
from portico.catalog import Collection, Danger
from portico.client import ClientError
from portico.client.transports.nwp import NwpClient
from portico.items import Item
from portico.store import Store
from portico.store.records import Put

WORKERS = 6
ACCOUNTS, BALANCE = 8, 1000
STEPS = 3  # of a task
START_SECONDS = 90.0
STARTS = 5  # before a server has to come up
SETTLE_SECONDS = 90.0  # in which everything has an outcome once the faults have ended
COLLECTIONS = ("accounts", "receipts", "marks", "parts")
SITE = """
operations = ["own.py"]
[search]
embedder = "none:"
[server]
port = {port}
nwp_port = 0
[store]
url = "{url}"
[limits]
keys_per_minute = 1000000
tasks_per_caller = 1000
"""
OWN = r'''
import asyncio
import os
import random

from portico import site
from portico.operations import tasks
from portico.operations import Context, operation

# What is left behind is taken up sooner.
tasks.LEASE_SECONDS, tasks.RENEW_SECONDS = 3.0, 0.5
site.LEASE_SECONDS, site.RENEW_SECONDS = 3.0, 0.5
PAUSES = (0.0, 0.0, 0.02, 0.1, 0.7)  # the last one takes too long


async def move(context: Context, call: str, source: str, target: str) -> None:
    """Take one from an account, give it to another, and write a receipt."""
    for id, change in ((source, -1), (target, 1)):
        account = await context.get("accounts", id)
        await context.put("accounts", id, {"balance": account.data["balance"] + change}, expect=account.version)
    await context.put("receipts", call, {"source": source, "target": target}, expect="")


@operation(kind="execute", danger="safe", transactional=True, timeout=0.5)
async def transfer(context: Context, call: str, source: str, target: str) -> str:
    await move(context, call, source, target)
    await asyncio.sleep(random.choice(PAUSES))
    return call


@operation(kind="execute", danger="safe", timeout=0.5)
async def notify(context: Context, call: str, source: str, target: str) -> str:
    """Sends a message as well, which nobody can take back."""
    await move(context, call, source, target)
    with open("messages", "a") as messages:
        messages.write(f"{call}\n")
        messages.flush()
        os.fsync(messages.fileno())
    await asyncio.sleep(random.choice(PAUSES))
    return call


async def build(context: Context, call: str, steps: int, pause: float, save: bool) -> int:
    for step in range(context.saved or 0, steps):
        for part in ("a", "b"):
            await context.put("parts", f"{call}-{step}-{part}", {"call": call}, expect="")
            await asyncio.sleep(pause)
        if save:
            await context.progress((step + 1) / steps, save=step + 1)
    return steps


@operation(kind="execute", danger="safe", long=True, attempts=1000)
async def build_on(context: Context, call: str, steps: int, pause: float) -> int:
    return await build(context, call, steps, pause, save=True)


@operation(kind="execute", danger="safe", long=True)
async def build_once(context: Context, call: str, steps: int, pause: float) -> int:
    return await build(context, call, steps, pause, save=False)
'''


@dataclass
class Report:
    """What the loop did, and what it found."""

    store: str
    seed: int
    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        kinds = {"lost": self.lost, "doubled": self.doubled, "stuck": self.stuck}
        return [f"{kind}: {what}" for kind, found in kinds.items() for what in found]

    def __str__(self) -> str:
        lines = [
            f"{self.store}: seed {self.seed}, {self.kills} kills in {self.seconds:.0f} s",
            f"  faults    {_counts(self.faults)}",
            f"  calls     {_counts(self.calls)}",
            f"  outcomes  {_counts(self.outcomes)}",
            f"  lost {len(self.lost)}, doubled {len(self.doubled)}, stuck {len(self.stuck)}",
            *(f"  {problem}" for problem in self.problems[:20]),
        ]
        return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))


@dataclass
class Answer:
    """What a caller was told: a result, an error by its type, or nothing because the connection broke."""

    result: Any = None
    error: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    is_lost: bool = False

    @property
    def is_definite(self) -> bool:
        """Whether it says for certain if the call was done."""
        return not self.is_lost and self.error != "OutcomeUnknown"


@dataclass
class Told:
    """A call, and what its caller knows in the end."""

    call: str
    operation: str
    key: str
    params: dict[str, Any]
    answer: Answer = field(default_factory=lambda: Answer(is_lost=True))
    is_over: bool = False


@dataclass
class Servers:
    """One server at a time, killed and started by a process that has everything imported."""

    folder: Path
    port: int
    pid: int = 0
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Servers":
        script = Path(__file__).with_name("prefork.py")
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, script],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process
        assert self._process.stdin
        self._process.communicate(timeout=30)

    async def restart(self) -> None:
        """Kill the server with SIGKILL, and start the next one."""
        process = self._process
        assert process
        assert process.stdin
        assert process.stdout
        process.stdin.write("next\n")
        process.stdin.flush()
        self.pid = int(await asyncio.to_thread(process.stdout.readline))

    @contextlib.contextmanager
    def full_disk(self) -> Any:
        """As long as this lasts, the server cannot write to any file."""
        with suppress(ProcessLookupError):
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Callers:
    """What callers do, and what they were told."""

    def __init__(self, url: str, token: str, seed: int, report: Report) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30.0, trust_env=False
        )
        self._seed = seed
        self._report = report
        self.told: list[Told] = []
        self.is_over = asyncio.Event()

    async def close(self) -> None:
        await self._http.aclose()

    async def is_up(self) -> bool:
        try:
            return (await self._http.get("/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    async def work(self, number: int) -> None:
        """One caller: calls one after the other, until it is over."""
        chance = random.Random(f"{self._seed}/{number}")
        count = 0
        while not self.is_over.is_set():
            count += 1
            await self._act(chance, f"c{number}-{count}")

    async def _act(self, chance: random.Random, call: str) -> None:
        source, target = chance.sample(range(ACCOUNTS), 2)
        move = {"call": call, "source": f"a{source}", "target": f"a{target}"}
        task = {"call": call, "steps": STEPS, "pause": chance.choice((0.0, 0.02, 0.1))}
        key = f"k-{call}" if chance.random() < 0.7 else ""
        operation = chance.choice(
            ("transfer", "transfer", "notify", "create_mark", "create_mark", "build_on", "build_once")
        )
        match operation:
            case "create_mark":
                # Without an id of its own, only the key keeps it from being made twice.
                params = {"input": {"call": call}} if key else {"id": call, "input": {"call": call}}
            case "build_on" | "build_once":
                params, key = task, f"k-{call}"
            case _:
                params = move
        told = Told(call, operation, key, params)
        self.told.append(told)
        self._report.calls[f"{operation}{' with a key' if key else ''}"] += 1
        await self.ask(told)

    async def ask(self, told: Told) -> None:
        """Make a call; with a key, until its outcome is known."""
        while True:
            told.answer = await self._post(told)
            answer = told.answer
            is_known = answer.result is not None or answer.error == "OutcomeUnknown"
            if is_known or not told.key:
                break
            await asyncio.sleep(0.1)
        if told.answer.result is not None and told.operation.startswith("build"):
            await self._wait(told)
        told.is_over = True

    async def _wait(self, told: Told) -> None:
        """Wait for the end of a task."""
        id = told.answer.result["id"]
        while True:
            with suppress(httpx.HTTPError, ValueError):
                found = await self._http.get(f"/tasks/{id}")
                task = found.json()["task"] if found.is_success else {"state": "unknown"}
                if task["state"] in {"completed", "failed", "cancelled"}:
                    told.answer = Answer(task)
                    return
            await asyncio.sleep(0.1)

    async def _post(self, told: Told) -> Answer:
        headers = {"Idempotency-Key": told.key} if told.key else {}
        try:
            response = await self._http.post(f"/operations/{told.operation}", json=told.params, headers=headers)
        except httpx.HTTPError:
            self._report.outcomes["no answer"] += 1
            return Answer(is_lost=True)
        if response.status_code == 202:
            self._report.outcomes["accepted"] += 1
            return Answer({"id": response.headers["location"].rpartition("/")[2]})
        body = response.json()
        if response.is_success:
            self._report.outcomes["done"] += 1
            return Answer(body["result"])
        error = str(body.get("type", "")).rpartition(":")[2]
        self._report.outcomes[error] += 1
        return Answer(None, error, body.get("details", {}))


@dataclass
class Subscriber:
    """Follows the marks, whatever happens to the server, and notes what it is told."""

    url: str
    token: str
    seen: list[str] = field(default_factory=list)

    async def follow(self) -> None:
        last: int | None = None
        while True:
            with suppress(ClientError):
                async with NwpClient(self.url, node="marks", key=self.token, timeout=5) as client:
                    feed = client.subscribe(stream_id="8d0d7ab2-9c52-4c5b-a9a8-1f7d62d0f9a1", heartbeat=5, after=last)
                    async with contextlib.aclosing(feed) as changes:
                        async for change in changes:
                            last = change.seq
                            self.seen.append(change.id)
            await asyncio.sleep(0.1)


class FullDatabase:
    """Lets PostgreSQL say that its disk is full, for everyone who appends a change."""

    def __init__(self, url: str) -> None:
        self._server, _, self._schema = url.partition("?schema=")

    async def _execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self._server)
        try:
            await connection.execute(f"SET search_path = {self._schema}; {sql}")
        finally:
            await connection.close()

    async def prepare(self) -> None:
        await self._execute(
            "CREATE TABLE disk (is_full boolean); INSERT INTO disk VALUES (false);"
            " CREATE FUNCTION check_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF (SELECT is_full FROM {self._schema}.disk) THEN"
            " RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END IF; RETURN NEW; END $$;"
            " CREATE TRIGGER full_disk BEFORE INSERT ON changes FOR EACH ROW EXECUTE FUNCTION check_disk();"
        )

    async def set_full(self, *, is_full: bool) -> None:
        await self._execute(f"UPDATE disk SET is_full = {str(is_full).lower()}")


async def run(url: str, folder: Path, kills: int, seed: int, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Kill the server so many times, and report what came of it."""
    is_postgres = url.startswith("postgres")
    report = Report("postgres" if is_postgres else "sqlite", seed)
    chance = random.Random(seed)
    token = await _prepare(url)
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        commits = random.Random(f"{seed}/commits")
        proxy = (
            await stack.enter_async_context(Proxy(url, lambda: _fate(commits, report)).running())
            if is_postgres
            else None
        )
        database = FullDatabase(url) if is_postgres else None
        if database:
            await database.prepare()
        port = free_port()
        (folder / "portico.toml").write_text(SITE.format(port=port, url=proxy.url if proxy else url))
        (folder / "own.py").write_text(OWN)
        servers = stack.enter_context(Servers(folder, port))
        callers = Callers(f"http://127.0.0.1:{port}", token, seed, report)
        stack.push_async_callback(callers.close)
        subscriber = Subscriber(f"http://127.0.0.1:{port}", token)
        await servers.restart()
        await _started(callers, servers, "the first start")
        following = asyncio.create_task(subscriber.follow())
        await asyncio.sleep(0.5)
        working = [asyncio.create_task(callers.work(number)) for number in range(WORKERS)]
        for number in range(kills):
            if chance.random() < 0.9:  # else it is killed while it starts
                await _started(callers, servers, "a start")
                await asyncio.sleep(chance.uniform(0.05, 0.6))
            if chance.random() < 0.3:
                await _fill_disk(servers, database, chance, report)
            await servers.restart()
            report.kills += 1
            if (number + 1) % 25 == 0:
                tell(f"{report.store}: {number + 1} kills, {len(callers.told)} calls")
        callers.is_over.set()
        commits.seed(0)
        report.stuck += await _stuck(working, callers)
        await _judge(url, folder, servers, callers, subscriber, report)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    report.seconds = time.monotonic() - started
    return report


async def _prepare(url: str) -> str:
    """An empty site with accounts, and a key for its callers."""
    token, key = make_key("chaos", ["*:*"], Danger.DANGEROUS, 1)
    async with opened(url) as store:
        for name in COLLECTIONS:
            await store.collections.declare(Collection(name))
        await store.items.write("accounts", [Put(f"a{n}", {"balance": BALANCE}) for n in range(ACCOUNTS)])
        await store.keys.add(key)
    return token


def _fate(chance: random.Random, report: Report) -> Fate:
    drawn = chance.random()
    fate: Fate = "lose the answer" if drawn < 0.04 else "lose the commit" if drawn < 0.06 else "pass"
    if fate != "pass":
        report.faults[fate] += 1
    return fate


async def _fill_disk(servers: Servers, database: FullDatabase | None, chance: random.Random, report: Report) -> None:
    report.faults["full disk"] += 1
    seconds = chance.uniform(0.05, 0.4)
    if database:
        await database.set_full(is_full=True)
        await asyncio.sleep(seconds)
        await database.set_full(is_full=False)
        return
    with servers.full_disk():
        await asyncio.sleep(seconds)


async def _started(callers: Callers, servers: Servers, what: str) -> None:
    """Wait for a server. One whose start was cut off from its database has ended, and is started again."""
    for _ in range(STARTS):
        try:
            return await _until(callers.is_up, START_SECONDS / STARTS, what)
        except AssertionError:
            await servers.restart()
    return await _until(callers.is_up, START_SECONDS, what)


async def _until(is_so: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not await is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} took longer than {seconds:g} seconds")
        await asyncio.sleep(0.02)


async def _stuck(working: list[asyncio.Task[None]], callers: Callers) -> list[str]:
    """The calls without an outcome, a while after the faults have ended."""
    _, pending = await asyncio.wait(working, timeout=SETTLE_SECONDS)
    for worker in pending:
        worker.cancel()
    results = await asyncio.gather(*working, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return [f"{told.operation} {told.call}: {told.answer}" for told in callers.told if not told.is_over]


# Judging


async def _judge(
    url: str, folder: Path, servers: Servers, callers: Callers, subscriber: Subscriber, report: Report
) -> None:
    await _started(callers, servers, "the last start")
    for told in callers.told:
        if told.answer.error == "OutcomeUnknown":
            await callers.ask(told)  # by now nobody runs it any more
    async with opened(url) as store:
        receipts, marks, parts, accounts = [
            await _items(store, name) for name in ("receipts", "marks", "parts", "accounts")
        ]
        feed = [change async for change in _feed(store)]
        report.stuck += await store.check()
    messages = Counter((folder / "messages").read_text().split()) if (folder / "messages").exists() else Counter()
    _judge_calls(callers.told, receipts, marks, messages, report)
    _judge_tasks(callers.told, parts, report)
    _judge_accounts(accounts, receipts, report)
    for name, items in (("receipts", receipts), ("marks", marks), ("parts", parts)):
        report.doubled += [f"{name}/{item.id} was written twice" for item in items.values() if item.version[:2] != "1-"]
    expected = [change.item.id for change in feed if change.item.collection == "marks"]
    with suppress(AssertionError):
        await _until(lambda: _is_true(len(subscriber.seen) >= len(expected)), 30, "the subscription")
    counts = Counter(subscriber.seen)
    report.doubled += [f"the subscription told of {id} {count} times" for id, count in counts.items() if count > 1]
    report.lost += [f"the subscription did not tell of {id}" for id in expected if id not in counts]
    if not report.problems and subscriber.seen != expected:
        report.lost.append("the subscription told in another order")


async def _is_true(value: bool) -> bool:
    return value


def _judge_calls(
    calls: list[Told], receipts: dict[str, Item], marks: dict[str, Item], messages: Counter[str], report: Report
) -> None:
    made = Counter(item.data["call"] for item in marks.values())
    for told in calls:
        if told.operation.startswith("build"):
            continue
        count = made[told.call] if told.operation == "create_mark" else int(told.call in receipts)
        name = f"{told.operation} {told.call} ({'key' if told.key else 'no key'})"
        if count > 1:
            report.doubled.append(f"{name} was done {count} times")
        if told.answer.result is not None and not count:
            report.lost.append(f"{name} was acknowledged")
        if told.answer.is_definite and told.answer.error and count:
            report.doubled.append(f"{name} was done, though its caller was told {told.answer.error}")
        if told.answer.error == "OutcomeUnknown" and told.key:
            report.outcomes["unknown in the end"] += 1
            if told.operation != "notify":
                report.stuck.append(f"{name} is unknown, though its writes are transactional")
            if count:
                report.lost.append(f"{name} was done, though its key says that it is unknown")
        if messages[told.call] > 1 and told.key:
            report.doubled.append(f"{name} sent {messages[told.call]} messages")
        if told.operation == "notify" and told.answer.result is not None and not messages[told.call]:
            report.lost.append(f"{name} sent no message")


def _judge_tasks(calls: list[Told], parts: dict[str, Item], report: Report) -> None:
    made = Counter(item.data["call"] for item in parts.values())
    for told in calls:
        if not told.operation.startswith("build") or not isinstance(told.answer.result, dict):
            continue
        state, count = told.answer.result["state"], made[told.call]
        report.outcomes[f"{told.operation} {state}"] += 1
        if state == "completed" and count != 2 * STEPS:
            report.lost.append(f"{told.operation} {told.call} has made {count} of {2 * STEPS} parts")
        if told.operation == "build_on" and state != "completed":
            report.lost.append(f"{told.operation} {told.call}: {told.answer.result['error']}")
        if told.operation == "build_once" and state == "failed" and count:
            report.doubled.append(f"{told.operation} {told.call} failed and has made {count} parts")


def _judge_accounts(accounts: dict[str, Item], receipts: dict[str, Item], report: Report) -> None:
    balances = Counter(dict.fromkeys(accounts, BALANCE))
    for receipt in receipts.values():
        balances[receipt.data["source"]] -= 1
        balances[receipt.data["target"]] += 1
    for id, account in accounts.items():
        if account.data["balance"] != balances[id]:
            report.lost.append(f"account {id} has {account.data['balance']}, and its receipts say {balances[id]}")


async def _items(store: Store, collection: str) -> dict[str, Item]:
    return {item.id: item async for batch in store.items.scan(collection) for item in batch}


async def _feed(store: Store) -> AsyncIterator[Any]:
    seq = 0
    while changes := await store.changes.list_since(seq):
        for change in changes:
            yield change
        seq = changes[-1].seq


# By hand


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a server again and again, and look for what was lost.")
    parser.add_argument("--kills", type=int, default=300, help="in all, on both stores together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    chosen = parser.parse_args()
    kinds = ("sqlite", "postgres") if chosen.store == "both" else (chosen.store,)
    reports: list[Report] = []
    for kind in kinds:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="portico-chaos-")))
            if kind == "postgres":
                url = stack.enter_context(databases.empty_schema(stack.enter_context(databases.postgres_server())))
            else:
                url = f"sqlite:///{folder}/site.db"
            reports.append(asyncio.run(run(url, folder, chosen.kills // len(kinds), chosen.seed, _tell)))
            _tell(str(reports[-1]))
    return 1 if any(report.problems for report in reports) else 0


def _tell(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program of its own


if __name__ == "__main__":
    sys.exit(main())
