"""One replica of a site, as a program. Opens the site as the server does, and answers JSON lines until they end."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from portico.access.identity import RequestCredentials, local_operator, make_key
from portico.catalog import Danger
from portico.errors import SiteError
from portico.operations import tasks
from portico.operations.builtin import render_task
from portico.protocols import read_config
from portico.query import Order, Query
from portico.requests import Call, Caller, Task, Watch
from portico.server.assembly import Parts, open_site
from portico.sources.ingest import ingest
from portico.sources.registry import SourceOptions, open_source

MAX_LINE = 1_000_000


async def query(parts: Parts, caller: Caller, order: str = "", **said: Any) -> Any:
    page = await parts.site.query(Query(order=(Order(order),) if order else (), **said), caller)
    return {"ids": [item.id for item in page.items], "total": page.total, "cursor": page.cursor}


async def call(parts: Parts, caller: Caller, operation: str, key: str = "", **params: Any) -> Any:
    outcome = await parts.site.call(Call(operation, params, key=key), caller)
    return _shown(outcome) if isinstance(outcome, Task) else {"result": outcome.result, "repeated": outcome.repeated}


async def task(parts: Parts, caller: Caller, id: str) -> Any:
    return _shown(await parts.site.tasks.get(id, caller))


async def wait(parts: Parts, caller: Caller, id: str, seconds: float) -> Any:
    return _shown(await parts.site.tasks.wait(id, caller, seconds))


async def cancel(parts: Parts, caller: Caller, id: str) -> Any:
    return _shown(await parts.site.tasks.cancel(id, caller))


async def watch(parts: Parts, caller: Caller, collection: str, since: int | None, count: int) -> Any:
    """So many changes, from after a sequence number on."""
    seen: list[Any] = []
    async for change in parts.site.watch(Watch(collection, since=since), caller):
        seen.append([change.seq, change.kind, change.item.id])
        if len(seen) == count:
            break
    return seen


async def load(parts: Parts, _: Caller, path: str, collection: str) -> Any:
    source = open_source(path, SourceOptions())
    report = await ingest(parts.store, source, collection, declared=parts.config.collection)
    return {"added": report.added, "changed": report.changed, "removed": report.removed, "failed": report.failed}


async def head(parts: Parts, _: Caller) -> Any:
    return await parts.store.changes.head()


async def is_ready(parts: Parts, _: Caller) -> Any:
    return parts.index.is_ready


async def new_key(parts: Parts, _: Caller) -> Any:
    """A key that may do all that is safe."""
    token, key = make_key("somebody", ["*:*"], Danger.SAFE, 1)
    await parts.store.keys.add(key)
    return token


Answer = Callable[..., Awaitable[Any]]
ANSWERS: dict[str, Answer] = {
    each.__name__: each for each in (query, call, task, wait, cancel, watch, load, head, is_ready, new_key)
}


def _shown(task: Task) -> dict[str, Any]:
    return {**render_task(task), "attempts": task.attempts}


async def answer(parts: Parts, line: bytes) -> None:
    request = msgspec.json.decode(line)
    try:
        caller = local_operator()
        if request["credentials"]:
            caller = await parts.site.identity.caller(RequestCredentials(**request["credentials"]))
        said = {"answer": await ANSWERS[request["wanted"]](parts, caller, **request["given"])}
    except SiteError as error:
        said = {"error": type(error).__name__, "message": error.message, "details": error.details}
    sys.stdout.write(msgspec.json.encode({"number": request["number"], **said}).decode() + "\n")
    sys.stdout.flush()


async def main(site_file: str, lease: float) -> None:
    tasks.LEASE_SECONDS, tasks.RENEW_SECONDS = lease, lease / 5
    lines = asyncio.StreamReader(limit=MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with open_site(read_config(Path(site_file))) as parts, asyncio.TaskGroup() as answering:
        under_way = {answering.create_task(answer(parts, line)) async for line in lines}
        for each in under_way:
            each.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
