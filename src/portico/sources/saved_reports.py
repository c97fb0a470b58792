"""Stores the report of the last load of each source, for `portico check` and the operators' desk. Bounded in size."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from portico.items import content_hash
from portico.sources.records import BadRecord, Doubt, Remark
from portico.sources.reports import CollectionReport, LoadReport
from portico.store import NoteStore

KEPT = timedelta(days=3650)
INDEX = "source-reports"  # the note that lists the sources
SCOPE = "source-report\n"  # the prefix of each report's note
MAX_SOURCES = 1000
MAX_FAILURES = 20
MAX_REMARKS = 20
MAX_TEXT = 300  # characters of a place, a value or a reason


class SavedReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a load that has ended. Its collections have no fields: those are in the store."""

    at: datetime
    report: LoadReport


async def save_report(notes: NoteStore, report: LoadReport) -> None:
    """Save the report of a source, in place of its last one."""
    saved = SavedReport(at=datetime.now(UTC).replace(microsecond=0), report=_bound(report))
    await notes.set(_note(report.name), msgspec.json.encode(saved), saved.at + KEPT)
    names = await _sources(notes)
    if report.name not in names:
        names = [*names, report.name][-MAX_SOURCES:]
        await notes.set(INDEX, msgspec.json.encode(names), saved.at + KEPT)


async def saved_report(notes: NoteStore, source: str) -> SavedReport | None:
    """Return the report of the last load of a source, by its name in the store."""
    stored = await notes.get(_note(source))
    return msgspec.json.decode(stored, type=SavedReport) if stored else None


async def saved_reports(notes: NoteStore) -> list[SavedReport]:
    """Return the reports of all sources that were ever loaded, in the order of their first load."""
    reports = [await saved_report(notes, source) for source in await _sources(notes)]
    return [report for report in reports if report]


async def _sources(notes: NoteStore) -> list[str]:
    stored = await notes.get(INDEX)
    return msgspec.json.decode(stored, type=list[str]) if stored else []


def _note(source: str) -> str:
    return f"{SCOPE}{content_hash({'source': source})}"


def _bound(report: LoadReport) -> LoadReport:
    return replace(
        report,
        failures=tuple(
            BadRecord(_cut(bad.where), _cut(bad.reason), bad.is_gap) for bad in report.failures[:MAX_FAILURES]
        ),
        collections={name: CollectionReport(items=part.items) for name, part in report.collections.items()},
        doubts=tuple(
            Doubt(_cut(d.place), _cut(d.reason), _cut(d.field), _cut(d.value), _cut(d.setting)) for d in report.doubts
        ),
        remarks=tuple(Remark(_cut(remark.place), _cut(remark.text)) for remark in report.remarks[:MAX_REMARKS]),
    )


def _cut(text: str) -> str:
    """Return the text, shortened and without what is no Unicode."""
    cut = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
    return cut.encode("utf-8", "replace").decode()
