"""The sources of a site file, while the site is served: how fresh each is, and loading one again."""

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
from portico.sources.freshness import Freshness, freshness, remember
from portico.store import Store
from portico.telemetry import Broke, Observe

TELL_SECONDS = 1.0  # between two notes of how far a load is
SILENT_SECONDS = 30.0  # without a note, after which nobody is loading any more


class SourceShown(msgspec.Struct, frozen=True, kw_only=True):
    """A [[source]] of the site file, for whoever runs the site."""

    number: int  # its place in the site file, from 1
    url: str  # without passwords
    collection: str  # empty where the source itself names it
    state: Literal["never", "loading", "loaded", "failed"] = "never"
    at: datetime | None = None  # when it was so
    items: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: int = 0
    seconds: float = 0.0
    share: float | None = None  # of it that has been read, where that is known
    error: str = ""


class Sources:
    """What the site is loaded from. Loads one source at a time."""

    def __init__(self, config: Config, store: Store, observe: Observe) -> None:
        self._config = config
        self._store = store
        self._observe = observe
        self._job: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def all(self) -> list[SourceShown]:
        return [await self._shown(number, said) for number, said in enumerate(self._config.source, 1)]

    async def reload(self, number: int) -> SourceShown:
        """Begin to load a source; how it goes is told by `all`."""
        if not 1 <= number <= len(self._config.source):
            raise NotFound(f"The site file has no source {number}", number=number)
        async with self._beginning:
            busy = next((each for each in await self.all() if each.state == "loading"), None)
            if busy:
                raise Conflict(f"{busy.url} is being loaded", number=busy.number, hint="Wait until that has ended.")
            said = self._config.source[number - 1]
            await remember(self._store.notes, said, Freshness(state="loading", at=datetime.now(UTC)))
            self._job = asyncio.create_task(self._load(said))
            self._job.add_done_callback(self._ended)
        return await self._shown(number, said)

    async def close(self) -> None:
        if self._job and not self._job.done():
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _load(self, said: SourceSettings) -> None:
        # Half a second to import, for sites that are loaded while they are served.
        ingest = await asyncio.to_thread(importlib.import_module, "portico.sources.ingest")
        latest = [ingest.Report(redact_url(said.url))]
        telling = asyncio.create_task(self._tell(said, ingest, latest))
        try:
            told = partial(latest.__setitem__, 0)
            report = await ingest.load_source(said, self._config, self._store, self._observe, told)
            fresh = ingest.freshness_of(report)
        except SiteError as error:
            fresh = Freshness(state="failed", at=datetime.now(UTC), error=error.message)
        finally:
            telling.cancel()
            await asyncio.wait([telling])
        await remember(self._store.notes, said, fresh)

    async def _tell(self, said: SourceSettings, ingest: ModuleType, latest: list[Any]) -> None:
        """Note how far it is, again and again."""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            with contextlib.suppress(SiteError):  # a store that is away for a moment misses a note
                await remember(self._store.notes, said, ingest.freshness_of(latest[0], "loading"))

    def _ended(self, job: asyncio.Task[None]) -> None:
        if not job.cancelled() and (error := job.exception()):
            self._observe(Broke("loading", repr(error), error))

    async def _shown(self, number: int, said: SourceSettings) -> SourceShown:
        about = SourceShown(number=number, url=redact_url(said.url), collection=said.collection)
        fresh = await freshness(self._store.notes, said)
        if fresh is None:
            return about
        shown = asdict(_current(fresh))
        del shown["source"]
        return replace(about, **shown)


def _current(fresh: Freshness) -> Freshness:
    """As it is now: a load that nothing is heard of was interrupted."""
    is_silent = datetime.now(UTC) - fresh.at > timedelta(seconds=SILENT_SECONDS)
    if fresh.state == "loading" and is_silent:
        return replace(fresh, state="failed", error="It was interrupted")
    return fresh
