"""Loads the sources of the site file while the site is served: when they are due, or on request. Reports how fresh they
are. One source is loaded at a time, by one process of all that serve the site.
"""

import asyncio
import contextlib
import hashlib
import hmac
import importlib
import secrets
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from types import ModuleType
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from portico.config import Config, SourceSettings, secret
from portico.errors import Conflict, NotFound, SiteError
from portico.redaction import redact_text, redact_url
from portico.sources.freshness import (
    LoadStatus,
    failed_status,
    identity_of,
    last_request,
    load_status,
    save_request,
    save_status,
    source_names,
)
from portico.sources.records import BadRecord
from portico.sources.reports import LoadReport, group_doubts
from portico.sources.revisions import Revision, SourceUnchanged
from portico.sources.saved_reports import saved_report
from portico.sources.schedule import Schedule, next_load, parse_schedule, retry_pause
from portico.store import Store
from portico.telemetry import Incident, Recorder, SourceFreshness, SourceRefreshed, UnexpectedError

PROGRESS_SECONDS = 1.0  # between two saves of the progress of a load
LOOK_SECONDS = 15.0  # at most between two looks at what is due, as other processes save it
BUSY_SECONDS = 1.0  # between two attempts while another process loads a source
LEASE_SECONDS = 30.0  # after which another process takes over from one that has died
RENEW_SECONDS = 5.0
CLOSE_SECONDS = 3.0  # for storing that a load was interrupted when a process closes
HANDOVERS, HANDOVER_SECONDS = 20, 0.05  # attempts to begin a load where none seems to be under way
ROLE = "sources"
MAX_DOUBTS = 10  # kinds of doubts of a source that operators are shown
MAX_BAD_RECORDS = 10


class SourceDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """Doubts of one kind about values of a field, by the first of them."""

    place: str
    field: str
    value: str
    reason: str
    setting: str  # that would settle it
    count: int


class SourceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A [[source]] of the site file and its last load, for operators."""

    number: int  # its place in the site file, from 1
    name: str  # in addresses and metrics
    url: str  # without passwords
    collection: str  # empty where the source itself names it
    every: str = ""  # when it is loaded again; empty: on request only
    state: Literal["never", "loading", "loaded", "failed"] = "never"
    at: datetime | None = None  # when the state was saved
    started: datetime | None = None  # the last attempt
    succeeded: datetime | None = None  # the last success
    due: datetime | None = None  # the next load, if it has a schedule
    failures: int = 0  # in a row
    items: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: int = 0
    seconds: float = 0.0
    share: float | None = None  # that has been read, if known
    is_unchanged: bool = False  # the last load found the source as it had been, and read nothing
    error: str = ""
    doubt_count: int = 0  # of the last load that read the source
    doubts: list[SourceDoubt] = []  # the first of them, by kind
    bad_records: list[BadRecord] = []  # the first of those that were not loaded


@dataclass(frozen=True, slots=True)
class ScheduledSource:
    """A source of the site file, and when it is loaded."""

    number: int
    name: str
    settings: SourceSettings
    schedule: Schedule | None

    def due(self, status: LoadStatus | None) -> datetime | None:
        """Return when it is to be loaded: at once if it never was, and None without a schedule or during a load."""
        if self.schedule is None or (status and status.state == "loading"):
            return None
        if status is None:
            return datetime.now(UTC)
        return next_load(self.schedule, status.at, status.failures, identity_of(self.settings))


class SourceManager:
    """Describes and loads the sources of the site file."""

    def __init__(self, config: Config, store: Store, record: Recorder) -> None:
        self._config = config
        self._store = store
        self._record = record
        self._owner = secrets.token_hex(8)
        self._sources = [
            ScheduledSource(number, name, settings, parse_schedule(settings.every) if settings.every else None)
            for number, (settings, name) in enumerate(zip(config.source, source_names(config), strict=True), 1)
        ]
        self._job: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._secrets: dict[str, bytes] = {}  # of webhooks, by the name of the source
        self._statuses: dict[str, LoadStatus] = {}  # as they were when this process looked last

    def open(self) -> None:
        """Begin to load sources when they are due or requested, until `close`."""
        self._secrets = {
            source.name: secret(source.settings.webhook_secret_env).encode()
            for source in self._sources
            if source.settings.webhook_secret_env
        }
        if self._sources:
            self._following = asyncio.create_task(self._follow())

    async def all(self) -> list[SourceInfo]:
        """Return every source with its last attempt, last success, error, next load and counts, for the desk."""
        return [await self._describe(source) for source in self._sources]

    async def reload(self, number: int) -> SourceInfo:
        """Start to load a source, changed or not; `all` reports the progress."""
        if not 1 <= number <= len(self._sources):
            raise NotFound(f"The site file has no source {number}", number=number)
        source = self._sources[number - 1]
        hint = "Try again when it has finished."
        for _ in range(HANDOVERS):
            if await self._begin(source):
                return await self._describe(source)
            busy = next((info for info in await self.all() if info.state == "loading"), None)
            if busy:
                raise Conflict(f"{busy.url} is being loaded", number=busy.number, hint=hint)
            await asyncio.sleep(HANDOVER_SECONDS)  # a load has just ended, and its lease is about to
        raise Conflict("Another process is loading a source", number=number, hint=hint)

    async def find(self, name: str) -> SourceInfo:
        return await self._describe(self._named(name))

    async def request(self, name: str) -> SourceInfo:
        """Have a source loaded as soon as no other is, by any process. Requests until then are one."""
        source = self._named(name)
        await save_request(self._store.notes, source.settings)
        self._wake.set()
        return await self._describe(source)

    def verify_signature(self, name: str, body: bytes, signature: str) -> bool:
        """Whether a body is signed with the secret of a source: `sha256=` and its HMAC."""
        key = self._secrets.get(name)
        expected = hmac.new(key or secrets.token_bytes(32), body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(f"sha256={expected}".encode(), signature.encode()) and key is not None

    def freshness(self) -> dict[str, SourceFreshness]:
        """Return how fresh each source was when this process looked last, by name."""
        return {
            name: SourceFreshness(status.succeeded.timestamp() if status.succeeded else None, status.items)
            for name, status in self._statuses.items()
        }

    def _named(self, name: str) -> ScheduledSource:
        source = next((source for source in self._sources if source.name == name), None)
        if source is None:
            raise NotFound(f"The site file has no source {name!r}", name=name)
        return source

    async def close(self) -> None:
        """Stop at once. A load that is interrupted is made up for by the next one."""
        tasks = [task for task in (self._following, self._job) if task and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self) -> None:
        """Load what is due, again and again. The one place that survives every error of a load."""
        incident = Incident("sources", self._record)
        while True:
            try:
                pause = await self._load_next()
                incident.resolve()
            except Exception as error:  # noqa: BLE001 - the schedule goes on, whatever has failed
                incident.report(error.message if isinstance(error, SiteError) else repr(error), error)
                pause = LOOK_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()

    async def _load_next(self) -> float:
        """Load the source that has been due for longest, if any. Return the seconds until the next look."""
        dues = [(due, source) for source in self._sources if (due := await self._due(source))]
        if not dues:
            return LOOK_SECONDS
        due, source = min(dues, key=lambda pair: (pair[0], pair[1].number))
        wait = (due - datetime.now(UTC)).total_seconds()
        if wait > 0:
            return min(wait, LOOK_SECONDS)
        if not await self._begin(source, only_if_due=True):
            return BUSY_SECONDS
        if self._job:
            await asyncio.wait([self._job])
        return 0

    async def _due(self, source: ScheduledSource) -> datetime | None:
        """Return when a source is to be loaded, by its schedule or because that was requested."""
        status = await load_status(self._store.notes, source.settings)
        if status:
            self._statuses[source.name] = status
        request = await last_request(self._store.notes, source.settings)
        is_interrupted = status is not None and status.is_interrupted
        status = status and status.settle()
        if request and (status is None or (request != status.request and status.state != "loading")):
            return datetime.min.replace(tzinfo=UTC)
        if is_interrupted and status and request:  # which was not followed to the end
            return status.at + retry_pause(status.failures)
        return source.due(status)

    async def _begin(self, source: ScheduledSource, *, only_if_due: bool = False) -> bool:
        """Begin to load a source. Return False if this or another process loads one, or it is no longer due."""
        async with self._lock:
            if self._job and not self._job.done():
                return False
            if not await self._store.roles.acquire(ROLE, self._owner, LEASE_SECONDS):
                return False
            due = await self._due(source) if only_if_due else None
            if only_if_due and (due is None or due > datetime.now(UTC)):
                await self._store.roles.acquire(ROLE, self._owner, 0)
                return False
            previous = await load_status(self._store.notes, source.settings)
            now = datetime.now(UTC)
            begun = LoadStatus(
                state="loading",
                at=now,
                started=now,
                succeeded=previous.succeeded if previous else None,
                failures=previous.settle().failures if previous else 0,
                items=previous.items if previous else 0,
                report=previous.report if previous else "",
                request=await last_request(self._store.notes, source.settings),
            )
            await save_status(self._store.notes, source.settings, begun)
            self._job = asyncio.create_task(
                self._load_and_save(source, begun, previous.revision if previous and only_if_due else None)
            )
            self._job.add_done_callback(self._record_failure)
        return True

    async def _load_and_save(self, source: ScheduledSource, begun: LoadStatus, known: Revision | None) -> None:
        """Load a source while this process has the lease, and save what became of it."""
        load = asyncio.create_task(self._load(source, begun, known))
        lease = asyncio.create_task(self._keep_lease())
        try:
            await asyncio.wait([load, lease], return_when=asyncio.FIRST_COMPLETED)
            if not load.done():  # another process has taken over, and saves what becomes of the source
                return
            status = load.result()
            await save_status(self._store.notes, source.settings, status)
            self._statuses[source.name] = status
            result = "unchanged" if status.is_unchanged else status.state
            self._record(SourceRefreshed(source.name, result, status.items, redact_text(status.error)))
        except asyncio.CancelledError:
            await _cancel(load, lease)
            await self._save_interruption(source, begun)
            raise
        finally:
            await _cancel(load, lease)
            with contextlib.suppress(SiteError):
                await self._store.roles.acquire(ROLE, self._owner, 0)

    async def _save_interruption(self, source: ScheduledSource, begun: LoadStatus) -> None:
        # Without its request, which is still to be followed.
        status = replace(failed_status(begun, "It was interrupted"), request="")
        with contextlib.suppress(SiteError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await save_status(self._store.notes, source.settings, status)

    async def _keep_lease(self) -> None:
        """Renew the lease until it is lost."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < LEASE_SECONDS:
            await asyncio.sleep(RENEW_SECONDS)
            with contextlib.suppress(SiteError):  # a store that is unavailable for a moment
                if not await self._store.roles.acquire(ROLE, self._owner, LEASE_SECONDS):
                    return
                renewed = time.monotonic()

    async def _load(self, source: ScheduledSource, begun: LoadStatus, known: Revision | None) -> LoadStatus:
        # Takes half a second to import: only for sites that load while they are served.
        ingest = await asyncio.to_thread(importlib.import_module, "portico.sources.ingest")
        settings = source.settings
        latest = [ingest.LoadReport(redact_url(settings.url))]
        progress = asyncio.create_task(self._save_progress(settings, begun, ingest, latest))
        try:
            on_progress = partial(latest.__setitem__, 0)
            report = await ingest.load_source(settings, self._config, self._store, self._record, on_progress, known)
            return replace(ingest.status_of(report), started=begun.started, request=begun.request)
        except SourceUnchanged:
            now = datetime.now(UTC)
            return replace(begun, state="loaded", at=now, succeeded=now, failures=0, revision=known, is_unchanged=True)
        except SiteError as error:
            return failed_status(begun, error.message)
        except Exception as error:  # noqa: BLE001 - a reader, or what it reads, may fail in any way
            self._record(UnexpectedError("loading", repr(error), error))
            return failed_status(begun, "It failed unexpectedly; see the log")
        finally:
            progress.cancel()
            await asyncio.wait([progress])

    async def _save_progress(
        self, settings: SourceSettings, begun: LoadStatus, ingest: ModuleType, latest: list[Any]
    ) -> None:
        """Save the progress at regular intervals."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            with contextlib.suppress(SiteError):  # a store that is unavailable for a moment misses one
                status = replace(
                    ingest.status_of(latest[0], "loading"),
                    started=begun.started,
                    succeeded=begun.succeeded,
                    failures=begun.failures,
                    request=begun.request,
                )
                await save_status(self._store.notes, settings, status)

    def _record_failure(self, job: asyncio.Task[None]) -> None:
        if not job.cancelled() and (error := job.exception()):
            self._record(UnexpectedError("loading", repr(error), error))

    async def _describe(self, source: ScheduledSource) -> SourceInfo:
        settings = source.settings
        status = await load_status(self._store.notes, settings)
        status = status and status.settle()
        info = SourceInfo(
            number=source.number,
            name=source.name,
            url=redact_url(settings.url),
            collection=settings.collection,
            every=settings.every,
            due=source.due(status),
        )
        if status is None:
            return info
        shared = (name for name in SourceInfo.__struct_fields__ if name in LoadStatus.__struct_fields__)
        info = replace(info, **{name: getattr(status, name) for name in shared})
        saved = await saved_report(self._store.notes, status.report) if status.report else None
        return _with_doubts(info, saved.report) if saved else info


def _with_doubts(info: SourceInfo, report: LoadReport) -> SourceInfo:
    return replace(
        info,
        doubt_count=report.doubt_count,
        doubts=[
            SourceDoubt(**asdict(group.first), count=group.count) for group in group_doubts(report.doubts)[:MAX_DOUBTS]
        ],
        bad_records=list(report.failures[:MAX_BAD_RECORDS]),
    )


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
