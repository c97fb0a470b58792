"""Tracks the faults of a store, and tries it until it works again. Knows no database."""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from portico.errors import Unavailable
from portico.telemetry import Incident, Recorder, UnexpectedError, discard

PROBE = "probe"  # the blob that is saved to test whether the store can be written to
PROBE_BYTES = 64 * 1024
PROBE_SECONDS = 2.0  # between two probes of a store that failed
PROBE_SHARE = 10  # times the length of a probe: the least time between two, as probing a large store takes long
MAX_PLACES = 1000  # of unreadable rows, recorded once each


class StoreFault(Unavailable):
    """The database cannot be used: the disk is full, or it is damaged or deleted. The store itself records it."""

    def __init__(self, message: str, *, hint: str | None = None, is_damage: bool = False, **details: Any) -> None:
        super().__init__(message, hint=hint, **details)
        self.is_damage = is_damage  # only reading the whole store shows whether it was repaired


class UnreadableRow(Unavailable):
    """A row of the database is damaged: no version of Portico wrote it so."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} cannot be read: its stored data is damaged",
            hint="Load or write it again. `portico check` lists all such items.",
        )
        self.place = place


class StoreHealth:
    """Records when a store begins to fail and when it works again.

    That one read or write succeeds does not end a fault: others may still fail. A fault is over once a blob can be
    saved, and after damage once reading the whole store finds none.
    """

    def __init__(
        self, save_blob: Callable[[str, bytes], Awaitable[None]], find_damage: Callable[[], Awaitable[list[str]]]
    ) -> None:
        self._save_blob = save_blob
        self._find_damage = find_damage
        self._incident = Incident("store", discard)
        self._is_damaged = False
        self._places: set[str] = set()
        self._recovering: asyncio.Task[None] | None = None

    @property
    def reason(self) -> str:
        """Why the store cannot be used, without paths and secrets; empty while it can."""
        return self._incident.reason

    def record_to(self, record: Recorder) -> None:
        self._incident.record = record

    def report(self, fault: StoreFault | UnreadableRow) -> None:
        """Record a fault. Called in the event loop."""
        if isinstance(fault, UnreadableRow):
            self.report_row(fault)
            return
        cause = fault.__cause__
        self._incident.report(fault.message, fault, f"{type(cause).__name__}: {cause}" if cause else "")
        self._is_damaged = self._is_damaged or fault.is_damage
        if self._recovering is None:
            self._recovering = asyncio.create_task(self._recover())

    def report_row(self, error: UnreadableRow) -> None:
        """Record a row that cannot be read, once. Called in any thread."""
        if error.place not in self._places and len(self._places) < MAX_PLACES:
            self._places.add(error.place)
            cause = error.__cause__
            self._incident.record(UnexpectedError(error.place, f"{type(cause).__name__}: {cause}", error))

    async def close(self) -> None:
        if self._recovering:
            self._recovering.cancel()
            await asyncio.wait([self._recovering])

    async def _recover(self) -> None:
        """Probe the store until it works."""
        pause = PROBE_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            with contextlib.suppress(Exception):  # the fault was recorded where it occurred
                if await self._is_well():
                    break
            pause = max(PROBE_SECONDS, PROBE_SHARE * (time.monotonic() - began))
        self._recovering = None
        self._is_damaged = False
        self._incident.resolve()

    async def _is_well(self) -> bool:
        await self._save_blob(PROBE, os.urandom(PROBE_BYTES))
        await self._save_blob(PROBE, b"")
        return not self._is_damaged or not await self._find_damage()
