"""Reads files that come with questions, a few at once, each on a thread and within a bounded time."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from portico.errors import BadRequest, RateLimited
from portico.items import Item
from portico.requests import File

READERS = 2  # at once
READING_SECONDS = 15.0
WAITING_SECONDS = 5.0  # for a reader that is free


class FileReader:
    def __init__(self) -> None:
        self._free = asyncio.Semaphore(READERS)
        self._executor = ThreadPoolExecutor(READERS, thread_name_prefix="read-files")

    async def read(self, files: Sequence[File], question: str) -> tuple[Item, ...]:
        """Return the passages of files that fit a question."""
        await self._wait_for_reader()
        work = asyncio.get_running_loop().run_in_executor(self._executor, _read_files, files, question)
        # A thread cannot be stopped: it has its place until it ends, also if nobody waits for it any longer.
        work.add_done_callback(lambda _: self._free.release())
        try:
            async with asyncio.timeout(READING_SECONDS):
                return await asyncio.shield(work)
        except TimeoutError as error:
            raise BadRequest("It takes too long to read these files", hint="Send smaller ones.") from error

    async def _wait_for_reader(self) -> None:
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            busy = "Too many files are being read at the moment"
            raise RateLimited(busy, retry_after=READING_SECONDS, hint="Try again in a while.") from error


def _read_files(files: Sequence[File], question: str) -> tuple[Item, ...]:
    # Takes a third of a second to import, for those who send files.
    return import_module("portico.conversations.attachments").read_files(files, question)
