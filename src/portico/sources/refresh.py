"""Reports how fresh each source of the site file is, and loads one again while the site is served."""

import asyncio
import contextlib
import importlib
from datetime import UTC, datetime, timedelta
from functools import partial
from types import ModuleType
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from portico.config import Config, SourceSettings
from portico.errors import Conflict, NotFound, SiteError
from portico.redaction import redact_url
from portico.sources.freshness import LoadStatus, load_status, save_status
from portico.store import Store
from portico.telemetry import Recorder, UnexpectedError

PROGRESS_SECONDS = 1.0  # between two saves of the progress of a load
SILENT_SECONDS = 30.0  # without progress, after which a load counts as interrupted


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A [[source]] of the site file and its last load, for operators."""

    number: int  # its place in the site file, from 1
    url: str  # without passwords
    collection: str  # empty where the source itself names it
    state: Literal["never", "loading", "loaded", "failed"] = "never"
    at: datetime | None = None  # when the state was saved
    items: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: int = 0
    seconds: float = 0.0
    share: float | None = None  # that has been read, if known
    error: str = ""


class SourceManager:
    """Describes and loads the sources of the site file, one at a time."""

    def __init__(self, config: Config, store: Store, record: Recorder) -> None:
        self._config = config
        self._store = store
        self._record = record
        self._job: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def all(self) -> list[SourceInfo]:
        return [await self._describe(number, settings) for number, settings in enumerate(self._config.source, 1)]

    async def reload(self, number: int) -> SourceInfo:
        """Start to load a source; `all` reports the progress."""
        if not 1 <= number <= len(self._config.source):
            raise NotFound(f"The site file has no source {number}", number=number)
        async with self._lock:
            busy = next((source for source in await self.all() if source.state == "loading"), None)
            if busy:
                raise Conflict(
                    f"{busy.url} is being loaded", number=busy.number, hint="Try again when it has finished."
                )
            settings = self._config.source[number - 1]
            await save_status(self._store.notes, settings, LoadStatus(state="loading", at=datetime.now(UTC)))
            self._job = asyncio.create_task(self._load(settings))
            self._job.add_done_callback(self._record_failure)
        return await self._describe(number, settings)

    async def close(self) -> None:
        if self._job and not self._job.done():
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _load(self, settings: SourceSettings) -> None:
        # Takes half a second to import: only for sites that load while they are served.
        ingest = await asyncio.to_thread(importlib.import_module, "portico.sources.ingest")
        latest = [ingest.LoadReport(redact_url(settings.url))]
        progress = asyncio.create_task(self._save_progress(settings, ingest, latest))
        try:
            on_progress = partial(latest.__setitem__, 0)
            report = await ingest.load_source(settings, self._config, self._store, self._record, on_progress)
            status = ingest.status_of(report)
        except SiteError as error:
            status = LoadStatus(state="failed", at=datetime.now(UTC), error=error.message)
        finally:
            progress.cancel()
            await asyncio.wait([progress])
        await save_status(self._store.notes, settings, status)

    async def _save_progress(self, settings: SourceSettings, ingest: ModuleType, latest: list[Any]) -> None:
        """Save the progress at regular intervals."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            with contextlib.suppress(SiteError):  # a store that is unavailable for a moment misses one
                await save_status(self._store.notes, settings, ingest.status_of(latest[0], "loading"))

    def _record_failure(self, job: asyncio.Task[None]) -> None:
        if not job.cancelled() and (error := job.exception()):
            self._record(UnexpectedError("loading", repr(error), error))

    async def _describe(self, number: int, settings: SourceSettings) -> SourceInfo:
        info = SourceInfo(number=number, url=redact_url(settings.url), collection=settings.collection)
        status = await load_status(self._store.notes, settings)
        if status is None:
            return info
        fields = asdict(_current(status))
        del fields["source"]
        return replace(info, **fields)


def _current(status: LoadStatus) -> LoadStatus:
    """Return the present status: a load without progress was interrupted."""
    is_silent = datetime.now(UTC) - status.at > timedelta(seconds=SILENT_SECONDS)
    if status.state == "loading" and is_silent:
        return replace(status, state="failed", error="It was interrupted")
    return status
