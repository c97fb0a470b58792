"""Loads a source into the store: assigns ids, writes in batches, deletes what is gone. Constant memory, repeatable."""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from portico.catalog import Collection
from portico.config import Config, SourceSettings, resolve_location
from portico.errors import SourceError
from portico.items import content_hash, problem_with
from portico.redaction import redact_url
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
from portico.sources.records import collection_for
from portico.sources.registry import (
    BadRecord,
    Doubt,
    Entry,
    Link,
    Record,
    Remark,
    Source,
    SourceOptions,
    is_database,
    open_source,
    source_place,
)
from portico.sources.reports import (
    MAX_DOUBTS,
    MAX_FAILURES,
    MAX_REMARKS,
    CollectionReport,
    FieldReport,
    LoadReport,
)
from portico.sources.revisions import Revision, RevisionCheck, settings_digest
from portico.sources.saved_reports import save_report
from portico.store import Store
from portico.store.records import Load, Put
from portico.telemetry import Recorder, SourceLoaded

BATCH_RECORDS = 500
BATCH_BYTES = 4_000_000
DISTINCTIVE = (
    "collection",
    "format",
    "id_field",
    "tables",
    "type",
)  # options of sources that read the same table or file


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

    Items that the store has under a former name of the source become its own, in the collections that it writes to
    and that `may_adopt` allows.
    """
    load = await store.loads.begin(source.url)

    async def prepare(name: str) -> None:
        await store.collections.declare(declared(name))
        for former in source.former_urls if may_adopt(name) else ():
            await store.loads.adopt(load, name, former)

    report, started = LoadReport(source.url, name=source.url), time.monotonic()
    touched: set[str] = set()
    links: set[Link] = set()
    entries = source.records()
    while batch := await run_detached(_next_batch, entries):
        links.update(entry for entry in batch if isinstance(entry, Link))
        report = await _store_batch(store, load, batch, collection, prepare, touched, report)
        report = replace(report, seconds=time.monotonic() - started, share=source.share())
        on_progress(report)
    if not touched:
        await prepare(collection)
    removed = 0 if report.has_gap else await store.loads.finish(load)
    for name in touched:
        await store.collections.optimize(name)
    await _store_links(store, links, collection)
    stored_as = "" if report.has_gap else source.url
    schema = await store.collections.refresh()
    report = replace(
        report,
        removed=removed,
        seconds=time.monotonic() - started,
        stored_as=stored_as,
        collections={name: _describe(schema[name]) for name in sorted(touched)},
    )
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
    report: LoadReport = LoadReport(source.url)
    known: dict[str, Collection] = {}
    items: dict[str, int] = {}
    entries = source.records()
    while batch := await run_detached(_next_batch, entries):
        for entry in batch:
            if isinstance(entry, BadRecord):
                report = _add_failure(report, entry)
            elif isinstance(entry, Record):
                name = entry.collection or collection
                known[name] = (known.get(name) or declared(name)).widen(entry.data)
                items[name] = items.get(name, 0) + 1
                report = replace(report, added=report.added + 1)
            else:
                report = _add_note(report, entry)
        report = replace(report, seconds=time.monotonic() - started, share=source.share())
        on_progress(report)
    collections = {name: msgspec.structs.replace(_describe(known[name]), items=items[name]) for name in sorted(known)}
    return replace(report, collections=collections)


async def _store_links(store: Store, links: Iterable[Link], collection: str) -> None:
    """Set the targets of the fields that hold ids of other items."""
    targets: dict[str, dict[str, str]] = {}
    for link in links:
        targets.setdefault(link.collection or collection, {})[link.field] = link.target
    if not targets:
        return
    schema = await store.collections.refresh()
    for name, by_field in targets.items():
        if name in schema:
            fields = schema[name].fields
            linked = {field: replace(fields[field], target=by_field[field]) for field in by_field if field in fields}
            await store.collections.declare(replace(schema[name], fields={**fields, **linked}))


def _next_batch(entries: Iterator[Entry]) -> list[Entry]:
    """A batch of records, limited in count and in size."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += _size(entry) if isinstance(entry, Record) else 0
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            break
    return batch


def _size(record: Record) -> int:
    try:
        return len(msgspec.json.encode(record.data))
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError):
        return 0  # not JSON: refused later


async def _store_batch(
    store: Store,
    load: Load,
    batch: Sequence[Entry],
    collection: str,
    prepare: Callable[[str], Awaitable[None]],
    touched: set[str],
    report: LoadReport,
) -> LoadReport:
    grouped: dict[str, list[tuple[Put, str]]] = {}
    bad: list[BadRecord] = []
    for entry in batch:
        if isinstance(entry, BadRecord):
            bad.append(entry)
            continue
        if not isinstance(entry, Record):
            report = _add_note(report, entry)
            continue
        put = Put(entry.id or f"sha:{content_hash(entry.data)}", entry.data)
        problem = problem_with(put.id, put.data)
        if problem:
            bad.append(BadRecord(entry.where, problem))
        else:
            grouped.setdefault(entry.collection or collection, []).append((put, entry.where))
    for name, puts in grouped.items():
        if name not in touched:
            touched.add(name)
            await prepare(name)
        result = await store.loads.put(load, name, [put for put, _ in puts])
        repeated = set(result.repeated)
        bad.extend(_repeats(puts, repeated))
        report = replace(
            report,
            added=report.added + result.added,
            changed=report.changed + result.changed,
            unchanged=report.unchanged + result.unchanged,
        )
    return replace(
        report,
        failed=report.failed + len(bad),
        failures=(*report.failures, *bad)[:MAX_FAILURES],
        has_gap=report.has_gap or any(item.is_gap for item in bad),
    )


def _add_failure(report: LoadReport, bad: BadRecord) -> LoadReport:
    failures = (*report.failures, bad)[:MAX_FAILURES]
    return replace(report, failed=report.failed + 1, failures=failures, has_gap=report.has_gap or bad.is_gap)


def _add_note(report: LoadReport, entry: Doubt | Remark | Link) -> LoadReport:
    match entry:
        case Doubt():
            doubts = (*report.doubts, entry)[:MAX_DOUBTS]
            return replace(report, doubts=doubts, doubt_count=report.doubt_count + 1)
        case Remark():
            return replace(report, remarks=(*report.remarks, entry)[:MAX_REMARKS])
        case Link():
            return report


def _describe(collection: Collection) -> CollectionReport:
    fields = {
        name: FieldReport(type=spec.type, role=spec.role, format=spec.format, unit=spec.unit)
        for name, spec in collection.fields.items()
    }
    return CollectionReport(fields=fields)


def _repeats(puts: Sequence[tuple[Put, str]], repeated: set[str]) -> Iterator[BadRecord]:
    """Report records whose id another record of the source has."""
    where = {put.id: where for put, where in puts}
    for id in sorted(repeated):
        yield BadRecord(where[id], f"another record of this source has the same id {id!r}")


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
) -> list[LoadReport]:
    """Bring the store up to date with every [[source]] of the site file.

    With `keep_going`, a source that cannot be read gives a report with an error instead of stopping the others. The
    only source of a site still raises.
    """
    reports: list[LoadReport] = []
    for settings in config.source:
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
