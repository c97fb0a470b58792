"""Loads a source into a store: decides types, writes in batches, deletes what is gone. Repeatable; constant memory."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from portico.catalog import Collection
from portico.config import Config, SourceSettings, resolve_location
from portico.errors import SourceError
from portico.items import content_hash
from portico.redaction import redact_url
from portico.sources.columns import Path
from portico.sources.detached import run_detached
from portico.sources.freshness import (
    LoadStatus,
    State,
    failed_status,
    last_request,
    load_status,
    save_status,
    source_names,
)
from portico.sources.plans import Plan, Settlement, describe, make_plan
from portico.sources.records import BadRecord, Doubt, Record, Source, SourceOptions, collection_for
from portico.sources.registry import is_database, open_source, source_place
from portico.sources.reports import MAX_DOUBTS, MAX_FAILURES, CollectionReport, LoadReport
from portico.sources.revisions import Revision, RevisionCheck, settings_digest
from portico.sources.saved_reports import save_report
from portico.sources.spool import Spool
from portico.sources.survey import BATCH_BYTES, BATCH_RECORDS, Survey, add_doubts, add_failure, add_remarks
from portico.store import Store
from portico.store.records import Load, Put
from portico.telemetry import Recorder, SourceLoaded

EARLY_SECONDS = 10.0  # after which the first records of a source without a known end are stored
READING = 0.5  # of the time of a load; the rest is writing
DISTINCTIVE = ("collection", "format", "id_field", "tables", "type")  # options of sources of the same table or file


ProgressCallback = Callable[[LoadReport], None]


async def ingest(
    store: Store,
    source: Source,
    collection: str,
    *,
    declared: Callable[[str], Collection] = Collection,
    on_progress: ProgressCallback = lambda _: None,
    may_adopt: Callable[[str], bool] = lambda _: True,
) -> LoadReport:
    """Bring a collection up to date with a source. If it is interrupted, a second load completes it.

    The types of fields are decided over the whole source. One whose end is not known, such as a crawl, is stored
    from time to time with the types that it shows by then, and once more at its end if they have changed.

    Items that the store has under a former name of the source become its own, in the collections that it writes to
    and that `may_adopt` allows.
    """
    load = await store.loads.begin(source.url)
    started = time.monotonic()
    with Spool() as spool:
        survey = Survey(source, collection, spool, LoadReport(source.url, name=source.url))
        writer = _Writer(store, load, survey, declared, may_adopt)

        def show(share: float | None) -> None:
            on_progress(replace(writer.report, seconds=time.monotonic() - started, share=share))

        early = started + EARLY_SECONDS
        while await run_detached(survey.read_batch):
            share = source.share()
            if share is None and time.monotonic() > early:
                await writer.write()
                early = time.monotonic() + 2 * (early - started)
            show(None if share is None else share * READING)
        await writer.write(lambda written: show(None if source.share() is None else READING + (1 - READING) * written))
        report = await writer.finish()
    report = replace(report, seconds=time.monotonic() - started, share=source.share())
    await save_report(store.notes, report)
    on_progress(report)
    return report


async def examine(
    source: Source,
    collection: str,
    *,
    declared: Callable[[str], Collection] = Collection,
    on_progress: ProgressCallback = lambda _: None,
) -> LoadReport:
    """Return what a load of a source into an empty store would report. Reads all of it and writes nothing."""
    started = time.monotonic()
    with Spool() as spool:
        survey = Survey(source, collection, spool, LoadReport(source.url))
        while await run_detached(survey.read_batch):
            on_progress(replace(survey.report, seconds=time.monotonic() - started, share=source.share()))
        report = await run_detached(_examine_records, survey, declared)
    report = replace(report, seconds=time.monotonic() - started, share=source.share())
    on_progress(report)
    return report


def _examine_records(survey: Survey, declared: Callable[[str], Collection]) -> LoadReport:
    plans = {name: make_plan(profile, declared(name)) for name, profile in survey.profiles.items()}
    report, repeats, position = survey.report, _Repeats(), 0
    while position < survey.spool.end:
        records, position = survey.spool.read(position, BATCH_RECORDS, BATCH_BYTES)
        report = _add_doubts(report, _convert(records, plans))
        for bad in repeats.find(records):
            report = add_failure(report, bad)
    added = repeats.close()
    total = sum(profile.items for profile in survey.profiles.values())
    collections: dict[str, CollectionReport] = {}
    for name, profile in sorted(survey.profiles.items()):
        collection = Settlement(plans[name], profile, survey.links.get(name, {})).settle(declared(name))
        collections[name] = describe(collection, profile, plans[name])
    report = _add_columns(report, survey, plans)
    unchanged = max(0, total - added - (report.failed - survey.report.failed))
    return replace(report, added=added, unchanged=unchanged, collections=collections)


class _Repeats:
    """Finds records whose id another record has, in a temporary database of the ids."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE seen (collection, id, digest, PRIMARY KEY (collection, id)) WITHOUT ROWID")

    def find(self, records: Sequence[Record]) -> Iterator[BadRecord]:
        for record in records:
            key = record.collection, record.id
            digest = content_hash(record.data)
            if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (*key, digest)).rowcount:
                continue
            known = self._db.execute("SELECT digest FROM seen WHERE collection = ? AND id = ?", key).fetchone()
            if known != (digest,):
                yield _repeat(record.where, cast("str", record.id))

    def close(self) -> int:
        """Return the number of different items, and delete the database."""
        (count,) = self._db.execute("SELECT count(*) FROM seen").fetchone()
        self._db.close()
        return count


@dataclass(slots=True)
class _Odd:
    """The values of a batch that do not fit: the first doubts, and how many there are."""

    doubts: list[Doubt] = field(default_factory=list[Doubt])
    count: int = 0


def _convert(records: Sequence[Record], plans: Mapping[str, Plan]) -> _Odd:
    """Convert records in place; return the doubts about their values."""
    odd = _Odd()
    for record in records:
        plan = plans[cast("str", record.collection)]

        def report(path: Path, value: Any, plan: Plan = plan, place: str = record.where) -> None:
            odd.count += 1
            if len(odd.doubts) < MAX_DOUBTS:
                odd.doubts.append(plan.doubt(path, value, place))

        plan.apply(record.data, report)
    return odd


def _add_doubts(report: LoadReport, odd: _Odd) -> LoadReport:
    return add_doubts(report, odd.doubts, odd.count) if odd.count else report


def _add_columns(report: LoadReport, survey: Survey, plans: Mapping[str, Plan]) -> LoadReport:
    """Return a report with what there is to say of whole columns."""
    for name, plan in sorted(plans.items()):
        doubts = plan.doubts(survey.places[name])
        report = add_doubts(report, doubts, len(doubts))
        report = add_remarks(report, plan.remarks(survey.places[name]))
    return report


class _Writer:
    """Stores the records of a survey, with the types that its columns have by then."""

    def __init__(
        self,
        store: Store,
        load: Load,
        survey: Survey,
        declared: Callable[[str], Collection],
        may_adopt: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._load = load
        self._survey = survey
        self._declared = declared
        self._may_adopt = may_adopt
        self._plans: dict[str, Plan] = {}
        self._position = 0  # in the spool
        self._odd = LoadReport("")  # doubts about values, and items that repeat others
        self._counts = LoadReport("")
        self._has_old = False  # records that were stored with types that have changed since

    @property
    def report(self) -> LoadReport:
        """The report of what has been read and stored so far."""
        read, counts, odd = self._survey.report, self._counts, self._odd
        report = replace(read, added=counts.added, changed=counts.changed, unchanged=counts.unchanged)
        report = add_doubts(report, list(odd.doubts), odd.doubt_count)
        failures = (*report.failures, *odd.failures)[:MAX_FAILURES]
        return replace(report, failed=read.failed + odd.failed, failures=failures)

    async def write(self, show: Callable[[float], None] = lambda _: None) -> None:
        """Store the records that have been read since the last time."""
        await self._settle()
        await self._write_rest(show)

    async def finish(self) -> LoadReport:
        """Store records again whose types have changed, and remove what the source no longer has."""
        if self._has_old:
            await self._write_again()
        for name in self._survey.profiles or [self._survey.collection]:
            if name not in self._plans:
                await self._prepare(name)
        report = self.report
        removed = 0 if report.has_gap else await self._store.loads.finish(self._load)
        for name in self._plans:
            await self._store.collections.optimize(name)
        schema = await self._store.collections.refresh()
        profiles = self._survey.profiles
        return replace(
            _add_columns(report, self._survey, self._plans),
            removed=removed,
            stored_as="" if report.has_gap else self._survey.source.url,
            collections={
                name: describe(schema[name], profiles[name], plan) for name, plan in sorted(self._plans.items())
            },
        )

    async def _prepare(self, name: str) -> None:
        await self._store.collections.declare(self._declared(name))
        for former in self._survey.source.former_urls if self._may_adopt(name) else ():
            await self._store.loads.adopt(self._load, name, former)

    async def _settle(self) -> None:
        """Decide the types of all columns, and give them to the fields of the store."""
        for name, profile in list(self._survey.profiles.items()):
            plan = make_plan(profile, self._declared(name))
            before = self._plans.get(name)
            if before is None:
                await self._prepare(name)
            elif before.conversions != plan.conversions:
                self._has_old = True
            self._plans[name] = plan
            is_shared = await self._store.loads.is_shared(self._load, name)
            settlement = Settlement(plan, profile, self._survey.links.get(name, {}), is_shared=is_shared)
            await self._store.collections.settle(name, settlement.settle)

    async def _write_rest(self, show: Callable[[float], None] = lambda _: None) -> None:
        spool = self._survey.spool
        while self._position < spool.end:
            records, self._position = await asyncio.to_thread(spool.read, self._position, BATCH_RECORDS, BATCH_BYTES)
            self._odd = _add_doubts(self._odd, _convert(records, self._plans))
            await self._put(records)
            show(self._position / spool.end)

    async def _put(self, records: Sequence[Record]) -> None:
        grouped: dict[str, list[tuple[Put, str]]] = {}
        for record in records:
            put = Put(cast("str", record.id), record.data)
            grouped.setdefault(cast("str", record.collection), []).append((put, record.where))
        for name, puts in grouped.items():
            result = await self._store.loads.put(self._load, name, [put for put, _ in puts])
            counts = self._counts
            self._counts = replace(
                counts,
                added=counts.added + result.added,
                changed=counts.changed + result.changed,
                unchanged=counts.unchanged + result.unchanged,
            )
            where = {put.id: where for put, where in puts}
            for id in sorted(result.repeated):
                self._odd = add_failure(self._odd, _repeat(where[id], id))

    async def _write_again(self) -> None:
        """Store all records with their final types, in a run of its own: an item is put once in a run."""
        for name in self._plans:
            await self._store.loads.put(self._load, name, [])  # refused if another load has begun
        self._load = await self._store.loads.begin(self._survey.source.url)
        before, self._counts = self._counts, LoadReport("")
        self._odd, self._position = LoadReport(""), 0
        await self._write_rest()
        # Items that this load added are no changes, whatever types they had for a while.
        again = self._counts
        changed = min(max(before.changed, again.changed - before.added), before.changed + before.unchanged)
        unchanged = again.changed + again.unchanged - before.added - changed
        self._counts = replace(again, added=before.added + again.added, changed=changed, unchanged=max(0, unchanged))


def _repeat(where: str, id: str) -> BadRecord:
    """Report a record whose id another record of the source has."""
    return BadRecord(where, f"another record of this source has the same id {id!r}")


def default_collection(settings: SourceSettings) -> str:
    """Return the collection of a source: the one that it names, or one named after its table or its URL."""
    return settings.collection or collection_for(settings.url, settings.table)


def open_configured_source(settings: SourceSettings, config: Config, check: RevisionCheck | None = None) -> Source:
    """Open a [[source]] of the site file."""
    options = _options(settings, config, _distinction(settings, config))
    return open_source(_location(settings, config), options, check=check)


def _location(settings: SourceSettings, config: Config) -> str:
    return resolve_location(settings.url, config.folder)


def _options(settings: SourceSettings, config: Config, distinction: tuple[str, ...] = ()) -> SourceOptions:
    auth = settings.auth
    return SourceOptions(
        auth_source=source_names(config)[config.source.index(settings)] if auth and settings in config.source else "",
        auth_parameter=auth.parameter if auth else ("", ""),
        format=settings.format,
        encoding=settings.encoding,
        id_field=settings.id_field,
        table=settings.table,
        tables=settings.tables,
        all_tables=settings.all_tables,
        collections=_collections_of_tables(settings, config),
        type=settings.type,
        base_url=settings.base_url,
        group_by=settings.group_by,
        max_pages=settings.max_pages,
        delay=settings.delay,
        allow_hosts=tuple(config.allow_hosts),
        distinction=distinction,
    )


def _collections_of_tables(settings: SourceSettings, config: Config) -> dict[str, str]:
    """Return the collections of tables that other sources read from the same URL; none for ids that are not keys."""
    siblings = [source for source in config.source if source.url == settings.url and source.table]
    return {source.table: "" if source.id_field else default_collection(source) for source in siblings if source.table}


def _place(settings: SourceSettings, config: Config) -> str:
    return source_place(_location(settings, config), _options(settings, config))


def _sources_at_same_place(settings: SourceSettings, config: Config) -> list[SourceSettings]:
    """Return the sources of the site file that read the same file or URL as this one, itself among them."""
    if len(config.source) < 2:
        return list(config.source)
    return [source for source in config.source if _place(source, config) == _place(settings, config)]


def _distinction(settings: SourceSettings, config: Config) -> tuple[str, ...]:
    """Return the options by which this source differs from others of the same URL and the same table."""
    alike = [source for source in _sources_at_same_place(settings, config) if source.table == settings.table]
    names = [name for name in DISTINCTIVE if len({getattr(source, name) for source in alike}) > 1]
    return tuple(f"{name}={_text_of(getattr(settings, name))}" for name in names)


def _text_of(option: str | tuple[str, ...] | None) -> str:
    return ",".join(option) if isinstance(option, tuple) else option or ""


async def _adoption_rule(settings: SourceSettings, config: Config, store: Store) -> Callable[[str], bool]:
    """Return a test for collections: whether what they hold under a former name of this source can only be its own.

    A former name may be common to all sources of a URL. Each of them first takes over the items that it reads; the
    last one to be loaded under its present name also takes over the rest.
    """
    pending: list[SourceSettings] = []
    for source in _sources_at_same_place(settings, config):
        status = await load_status(store.notes, source)
        if source != settings and not (status and status.source == open_configured_source(source, config).url):
            pending.append(source)
    if any(
        source.table is None and is_database(_location(source, config), _options(source, config)) for source in pending
    ):
        return lambda _: False  # all tables: this source may have items in every collection
    shared = {default_collection(source) for source in pending}
    return lambda collection: collection not in shared


async def load_sources(
    config: Config,
    store: Store,
    record: Recorder,
    on_progress: ProgressCallback = lambda _: None,
    *,
    keep_going: bool = False,
    only: SourceSettings | None = None,
) -> list[LoadReport]:
    """Bring the store up to date with every [[source]] of the site file, or with only one of them.

    With `keep_going`, a source that cannot be read gives a report with an error instead of stopping the others. The
    only source of a site still raises.
    """
    reports: list[LoadReport] = []
    for settings in [only] if only else config.source:
        request = await last_request(store.notes, settings)  # made before the load, which answers it
        try:
            report = await load_source(settings, config, store, record, on_progress)
            status = status_of(report)
        except SourceError as error:
            if not keep_going or len(config.source) == 1:
                raise
            report = LoadReport(redact_url(settings.url), error=str(error))
            status = failed_status(await load_status(store.notes, settings), error.message)
        reports.append(report)
        await save_status(store.notes, settings, msgspec.structs.replace(status, request=request))
    return reports


async def load_source(
    settings: SourceSettings,
    config: Config,
    store: Store,
    record: Recorder,
    on_progress: ProgressCallback,
    known: Revision | None = None,
) -> LoadReport:
    """Bring the store up to date with one [[source]]. Raise SourceUnchanged if it still is what is known of it."""
    check = RevisionCheck(settings_digest(settings, config), known)
    source, name = open_configured_source(settings, config, check), default_collection(settings)
    may_adopt = await _adoption_rule(settings, config, store)
    report = await ingest(store, source, name, declared=config.collection, on_progress=on_progress, may_adopt=may_adopt)
    record(SourceLoaded(redact_url(settings.url), name, report.added, report.changed, report.removed, report.failed))
    return replace(report, source=redact_url(settings.url), revision=None if report.has_gap else check.current)


def status_of(report: LoadReport, state: State = "loaded") -> LoadStatus:
    """Return the status of a load, to be stored."""
    now = datetime.now(UTC)
    return LoadStatus(
        state=state,
        at=now,
        started=now - timedelta(seconds=report.seconds),
        succeeded=now if state == "loaded" else None,
        items=report.read - report.failed,
        added=report.added,
        changed=report.changed,
        removed=report.removed,
        failed=report.failed,
        seconds=round(report.seconds, 3),
        share=report.share,
        source=report.stored_as,
        revision=report.revision,
        report=report.name,
    )
