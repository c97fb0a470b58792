"""Source to store: give each record an id, write in batches, forget what vanished. Constant memory, safe to repeat."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from portico.catalog import Collection
from portico.config import Config, SourceSettings, located
from portico.items import content_hash, problem_with
from portico.redaction import redact_url
from portico.sources.freshness import Freshness, State, freshness, remember
from portico.sources.registry import (
    BadRecord,
    Entry,
    Record,
    Source,
    SourceOptions,
    is_database,
    open_source,
    source_place,
)
from portico.store import Store
from portico.store.records import Load, Put
from portico.telemetry import Loaded, Observe

BATCH_RECORDS = 500
BATCH_BYTES = 4_000_000
SHOWN_FAILURES = 100
DISTINCTIVE = ("collection", "format", "id_field", "type")  # options of sources that read the same table or file


@dataclass(frozen=True, slots=True)
class Report:
    """What a load did so far. `failures` holds the first hundred."""

    source: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    failures: tuple[BadRecord, ...] = field(default=())
    has_gap: bool = False  # part of the source could not be looked at, so nothing was forgotten
    seconds: float = 0.0
    share: float | None = None  # of the source that has been read, where that is known
    stored_as: str = ""  # the name of the source in the store, once all of it was read

    @property
    def read(self) -> int:
        return self.added + self.changed + self.unchanged + self.failed


Told = Callable[[Report], None]


async def ingest(
    store: Store,
    source: Source,
    collection: str,
    *,
    declared: Callable[[str], Collection] = Collection,
    told: Told = lambda _: None,
    may_adopt: Callable[[str], bool] = lambda _: True,
) -> Report:
    """Bring a collection up to date with a source. Killed halfway, a repeat ends with exactly the right items.

    Items that the store has under a former name of the source become its own, in the collections that it writes to
    and that `may_adopt` allows.
    """
    load = await store.loads.begin(source.url)

    async def prepare(name: str) -> None:
        await store.collections.declare(declared(name))
        for former in source.former_urls if may_adopt(name) else ():
            await store.loads.adopt(load, name, former)

    report, started = Report(source.url), time.monotonic()
    touched: set[str] = set()
    entries = source.records()
    while batch := await asyncio.to_thread(_next_batch, entries):
        report = await _take(store, load, batch, collection, prepare, touched, report)
        report = replace(report, seconds=time.monotonic() - started, share=source.share())
        told(report)
    if not touched:
        await prepare(collection)
    removed = 0 if report.has_gap else await store.loads.finish(load)
    for name in touched:
        await store.collections.optimize(name)
    stored_as = "" if report.has_gap else source.url
    report = replace(report, removed=removed, seconds=time.monotonic() - started, stored_as=stored_as)
    told(report)
    return report


def _next_batch(entries: Iterator[Entry]) -> list[Entry]:
    """Some records: as many as fit, in count and in size."""
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
        return 0  # not JSON: it is refused soon


async def _take(
    store: Store,
    load: Load,
    batch: Sequence[Entry],
    collection: str,
    prepare: Callable[[str], Awaitable[None]],
    touched: set[str],
    report: Report,
) -> Report:
    grouped: dict[str, list[tuple[Put, str]]] = {}
    bad: list[BadRecord] = []
    for entry in batch:
        if isinstance(entry, BadRecord):
            bad.append(entry)
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
        written = await store.loads.put(load, name, [put for put, _ in puts])
        repeated = set(written.repeated)
        bad.extend(_repeats(puts, repeated))
        report = replace(
            report,
            added=report.added + written.added,
            changed=report.changed + written.changed,
            unchanged=report.unchanged + written.unchanged,
        )
    return replace(
        report,
        failed=report.failed + len(bad),
        failures=(*report.failures, *bad)[:SHOWN_FAILURES],
        has_gap=report.has_gap or any(each.is_gap for each in bad),
    )


def _repeats(puts: Sequence[tuple[Put, str]], repeated: set[str]) -> Iterator[BadRecord]:
    """The last record with each repeated id: the one that came too late."""
    where = {put.id: where for put, where in puts}
    for id in sorted(repeated):
        yield BadRecord(where[id], f"another record of this source has the same id {id!r}")


def collection_for(url: str) -> str:
    """A name for the items of a source that was given none."""
    place = re.split(r"[?#]", redact_url(url))[0].rstrip("/")
    stem = Path(place).stem or "items"
    return re.sub(r"[^0-9A-Za-z_-]+", "_", stem).strip("_") or "items"


def described_source(said: SourceSettings, config: Config) -> Source:
    """A [[source]] of the site file."""
    return open_source(_location(said, config), _options(said, config, _distinction(said, config)))


def _location(said: SourceSettings, config: Config) -> str:
    return located(said.url, config.folder)


def _options(said: SourceSettings, config: Config, distinction: tuple[str, ...] = ()) -> SourceOptions:
    return SourceOptions(
        format=said.format,
        id_field=said.id_field,
        table=said.table,
        type=said.type,
        max_pages=said.max_pages,
        delay=said.delay,
        allow_hosts=tuple(config.allow_hosts),
        distinction=distinction,
    )


def _place(said: SourceSettings, config: Config) -> str:
    return source_place(_location(said, config), _options(said, config))


def _of_one_place(said: SourceSettings, config: Config) -> list[SourceSettings]:
    """Return the sources of the site file that read the same file or URL as this one, itself among them."""
    if len(config.source) < 2:
        return list(config.source)
    return [source for source in config.source if _place(source, config) == _place(said, config)]


def _distinction(said: SourceSettings, config: Config) -> tuple[str, ...]:
    """Return the options by which this source differs from others of the same URL and the same table."""
    alike = [source for source in _of_one_place(said, config) if source.table == said.table]
    names = [name for name in DISTINCTIVE if len({getattr(source, name) for source in alike}) > 1]
    return tuple(f"{name}={getattr(said, name) or ''}" for name in names)


async def _adoption_rule(said: SourceSettings, config: Config, store: Store) -> Callable[[str], bool]:
    """Return a test for collections: whether what they hold under a former name of this source can only be its own.

    A former name may be common to all sources of a URL. Each of them first takes over the items that it reads; the
    last one to be loaded under its present name also takes over the rest.
    """
    pending: list[SourceSettings] = []
    for source in _of_one_place(said, config):
        fresh = await freshness(store.notes, source)
        if source != said and not (fresh and fresh.source == described_source(source, config).url):
            pending.append(source)
    if any(
        source.table is None and is_database(_location(source, config), _options(source, config)) for source in pending
    ):
        return lambda _: False  # all tables: this source may have items in every collection
    shared = {source.collection or collection_for(source.url) for source in pending}
    return lambda collection: collection not in shared


async def load_sources(
    config: Config, store: Store, observe: Observe, told: Callable[[Report], None] = lambda _: None
) -> list[Report]:
    """Bring the store up to date with every [[source]] of the site file."""
    reports: list[Report] = []
    for each in config.source:
        reports.append(report := await load_source(each, config, store, observe, told))
        await remember(store.notes, each, freshness_of(report))
    return reports


async def load_source(said: SourceSettings, config: Config, store: Store, observe: Observe, told: Told) -> Report:
    """Bring the store up to date with one [[source]]."""
    source, name = described_source(said, config), said.collection or collection_for(said.url)
    may_adopt = await _adoption_rule(said, config, store)
    report = await ingest(store, source, name, declared=config.collection, told=told, may_adopt=may_adopt)
    observe(Loaded(redact_url(said.url), name, report.added, report.changed, report.removed, report.failed))
    return replace(report, source=redact_url(said.url))


def freshness_of(report: Report, state: State = "loaded") -> Freshness:
    """What is worth remembering of a load."""
    return Freshness(
        state=state,
        at=datetime.now(UTC),
        items=report.read - report.failed,
        added=report.added,
        changed=report.changed,
        removed=report.removed,
        failed=report.failed,
        seconds=round(report.seconds, 3),
        share=report.share,
        source=report.stored_as,
    )
