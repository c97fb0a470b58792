"""The command `portico copy`: copies a site to another store."""

import asyncio
import contextlib
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from portico.cli.options import JsonOption
from portico.cli.terminal import ProgressBar, err, print_json, show_table
from portico.config import resolve_location

if TYPE_CHECKING:
    from portico.store.copying import CopyProgress


def copy(
    origin: Annotated[str, typer.Argument(metavar="FROM", help="URL of the store to copy.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of an empty store.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a store to another one, and verify the copy.

    Includes versions, vectors, keys and tasks. Stop all servers first.
    Run the command again to continue a copy that was interrupted.

        portico copy sqlite:///site.db postgresql://me@localhost/shop
    """
    started = time.monotonic()
    copied: CopyProgress = asyncio.run(
        _copy(resolve_location(origin, "."), resolve_location(target, "."), quiet=as_json)
    )
    if as_json:
        print_json(asdict(copied))
        return
    show_table(
        [{"collection": name, "items": count} for name, count in copied.collections.items()], ["collection", "items"]
    )
    says = f"{copied.items:,} items copied, {copied.unchanged:,} already there, {copied.vectors:,} vectors"
    took = f"{copied.entries:,} keys and tasks, in {time.monotonic() - started:.1f} s"
    err.print(f"{says}, {took}. The stores are identical.", highlight=False)


async def _copy(origin: str, target: str, *, quiet: bool) -> "CopyProgress":
    from portico.query import MATCH_ALL
    from portico.store import open_store
    from portico.store.copying import copy_store

    async with contextlib.AsyncExitStack() as closing:
        here = await open_store(origin)
        closing.push_async_callback(here.close)
        there = await open_store(target)
        closing.push_async_callback(there.close)
        total = sum([await here.items.count(name, MATCH_ALL) for name in here.collections.schema])
        started = time.monotonic()
        with ProgressBar("copying", quiet) as bar:

            def show_progress(what: str, copied: "CopyProgress") -> None:
                done = copied.items + copied.unchanged
                bar.update(done, total, done / max(time.monotonic() - started, 1e-3), what)

            return await copy_store(here, there, show_progress)
