"""Runs blocking work that a process need not wait for when it ends, however long a website keeps it waiting."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_detached(function: Callable[..., T], *args: Any) -> T:
    """Run a function on a thread of its own. If it is cancelled, the thread goes on and its result is dropped."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if finished.done():
            return
        if error is None:
            finished.set_result(result)  # type: ignore[arg-type]
        else:
            finished.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(function, *args)
        except BaseException as problem:  # noqa: BLE001 - raised where it is awaited
            error = problem
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="source", daemon=True).start()
    return await finished
