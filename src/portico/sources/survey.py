"""Reads a source into a spool and learns what its columns are like. Writes to no store."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from portico.items import content_hash, problem_with
from portico.sources.columns import Profile
from portico.sources.names import check_names
from portico.sources.records import BadRecord, Doubt, Entry, Link, Record, Remark, Source
from portico.sources.reports import MAX_DOUBTS, MAX_FAILURES, MAX_REMARKS, LoadReport
from portico.sources.spool import Spool

BATCH_RECORDS = 500
BATCH_BYTES = 4_000_000
BATCH_SECONDS = 5.0
MAX_COLLECTIONS = 1000  # with columns of their own


@dataclass(slots=True)
class Survey:
    """A source as far as it has been read. `report` has what is not a record; its ids are those of the items."""

    source: Source
    collection: str  # of records that name none
    spool: Spool
    report: LoadReport
    profiles: dict[str, Profile] = field(default_factory=dict[str, Profile])
    links: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    places: dict[str, str] = field(default_factory=dict[str, str])  # of the first record of each collection
    _entries: Iterator[Entry] | None = None

    def read_batch(self) -> bool:
        """Read a batch, limited in count, size and time; return False at the end of the source."""
        if self._entries is None:
            self._entries = check_names(self.source.records(), self.collection)
        deadline = time.monotonic() + BATCH_SECONDS
        size = 0
        for number, entry in enumerate(self._entries, 1):
            if isinstance(entry, Record):
                size += self._add(entry)
            else:
                self.report = add_note(self.report, entry, self)
            if number >= BATCH_RECORDS or size >= BATCH_BYTES or time.monotonic() > deadline:
                self.spool.flush()
                return True
        self.spool.flush()
        return False

    def _add(self, record: Record) -> int:
        problem = problem_with(record.id or "-", record.data)
        if problem:
            self.report = add_failure(self.report, BadRecord(record.where, problem))
            return 0
        # Of the record as it was read: its id stays the same when the types of its fields do not.
        id = record.id or f"sha:{content_hash(record.data)}"
        name = record.collection or self.collection
        profile = self.profiles.get(name)
        if profile is None:
            profile = self.profiles[name] = Profile()
            self.places[name] = record.where
        profile.add(record.data)
        return self.spool.add(Record(record.data, record.where, id, name))


def add_failure(report: LoadReport, bad: BadRecord) -> LoadReport:
    failures = (*report.failures, bad)[:MAX_FAILURES]
    return replace(report, failed=report.failed + 1, failures=failures, has_gap=report.has_gap or bad.is_gap)


def add_doubts(report: LoadReport, doubts: list[Doubt], count: int) -> LoadReport:
    first = (*report.doubts, *doubts)[:MAX_DOUBTS]
    return replace(report, doubts=first, doubt_count=report.doubt_count + count)


def add_remarks(report: LoadReport, remarks: list[Remark]) -> LoadReport:
    return replace(report, remarks=(*report.remarks, *remarks)[:MAX_REMARKS])


def add_note(report: LoadReport, entry: BadRecord | Doubt | Remark | Link, survey: Survey) -> LoadReport:
    """Return a report with what a source says beside its records; remember its links."""
    match entry:
        case BadRecord():
            return add_failure(report, entry)
        case Doubt():
            return add_doubts(report, [entry], 1)
        case Remark():
            return add_remarks(report, [entry])
        case Link():
            survey.links.setdefault(entry.collection or survey.collection, {})[entry.field] = entry.target
            return report
