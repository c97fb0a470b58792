"""Renders what sources hold: as tables and sentences for people, as JSON for programs. Reads no source and no store."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table

from portico.ask.suggestions import example_questions
from portico.catalog import OPERATIONS, Collection, Field
from portico.cli.terminal import err, json_text, out, plain
from portico.config import Config
from portico.sources.reports import (
    CollectionReport,
    DoubtGroup,
    FieldReport,
    LoadReport,
    group_doubts,
    merge_collections,
)

MAX_FIELDS = 12  # of a collection, in a table
MAX_COLLECTIONS = 20  # of a source, as tables
MAX_GROUPS = 20  # of doubts, as lines
MAX_REMARKS = 20
MAX_NAME = 40  # characters of a field's name in a table
MAX_VALUE = 60  # characters of a value
QUESTIONS = "Questions to try"
COUNTS = ("added", "changed", "unchanged", "removed", "failed")


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of sources, of the collections that they fill, and what can be asked about these."""

    sources: Sequence[LoadReport]
    collections: Mapping[str, CollectionReport]
    questions: Sequence[str] = ()

    @property
    def is_lossless(self) -> bool:
        return all(source.is_lossless for source in self.sources)


def make_report(sources: Sequence[LoadReport], config: Config) -> Report:
    """Return the report of a load."""
    collections = {name: report for name, report in merge_collections(sources).items() if name != OPERATIONS}
    return Report(sources, collections, ask_about(collections, config))


def ask_about(collections: Mapping[str, CollectionReport], config: Config) -> tuple[str, ...]:
    """Return questions that the items of these collections answer."""
    described = ((_collection(name, report, config), report) for name, report in collections.items() if report.items)
    samples = [
        (collection, {name: spec.example for name, spec in report.fields.items()})
        for collection, report in described
        if not collection.private
    ]
    return example_questions(samples, config.site.language)


def _collection(name: str, report: CollectionReport, config: Config) -> Collection:
    """Return a collection as a load will leave it: what the site file says, with the fields of the data."""
    declared = config.collection(name)
    fields = {
        field: declared.fields.get(field) or Field(field, spec.type, format=spec.format, unit=spec.unit, role=spec.role)
        for field, spec in report.fields.items()
    }
    return replace(declared, fields={**fields, **declared.fields})


# JSON


def report_json(report: Report) -> dict[str, Any]:
    """Return the whole report. `portico load`, `load --dry-run` and `check` print it in the same shape."""
    return {
        **{name: sum(getattr(source, name) for source in report.sources) for name in COUNTS},
        "sources": [_source_json(source) for source in report.sources],
        "collections": {name: msgspec.to_builtins(collection) for name, collection in report.collections.items()},
        "doubts": [
            {"place": d.place, "field": d.field, "value": d.value, "reason": d.reason, "setting": d.setting}
            for source in report.sources
            for d in source.doubts
        ],
        "remarks": [asdict(remark) for source in report.sources for remark in source.remarks],
        "failures": [
            *({"where": source.source, "reason": source.error} for source in report.sources if source.error),
            *({"where": bad.where, "reason": bad.reason} for source in report.sources for bad in source.failures),
        ],
        "questions": list(report.questions),
    }


def _source_json(source: LoadReport) -> dict[str, Any]:
    return {
        "source": source.source,
        **{name: getattr(source, name) for name in COUNTS},
        "collections": list(source.collections),
        "doubts": source.doubt_count,
        **({"error": source.error} if source.error else {}),
    }


# For people


def print_failures(sources: Sequence[LoadReport]) -> None:
    """Print on standard error what could not be loaded, and why."""
    for source in sources:
        if source.error:
            _warn(f"{plain(source.source)}: {plain(source.error)}", "red")
        for bad in source.failures:
            _warn(f"[yellow]{plain(bad.where)}[/]: {plain(bad.reason)}")
    left_out = sum(source.failed - len(source.failures) for source in sources)
    if left_out > 0:
        _warn(f"… and {left_out:,} more invalid records")
    for source in sources:
        if source.has_gap:
            _warn(f"[yellow]{plain(source.source)}[/]: part of it could not be read, so no items were removed")


def _warn(text: str, style: str = "") -> None:
    err.print(text, style=style or None, highlight=False, soft_wrap=True)


def print_report(report: Report, options: Sequence[str] = (), *, is_dry: bool = False) -> None:
    """Print what a load made of each source, the doubts, what can be asked, and whether anything was lost.

    `options` are those by which another command finds the site.
    """
    for source in report.sources:
        _print_source(source, is_dry=is_dry)
    _print_notes(report, options, "Questions to try once it is loaded" if is_dry else QUESTIONS)
    _say(_last_line(report.sources, is_dry=is_dry), "green" if report.is_lossless else "yellow")


def _print_notes(report: Report, options: Sequence[str], title: str = QUESTIONS) -> None:
    """Print remarks, doubts and questions."""
    _print_list("Remarks", list(_remark_lines(report.sources)))
    _print_list("Doubts", list(_doubt_lines(report.sources)))
    _print_list(title, [_ask_command(question, options) for question in report.questions])


def _ask_command(question: str, options: Sequence[str]) -> str:
    is_plain = not any(character in question for character in '"$`\\!')
    return " ".join(["portico ask", f'"{question}"' if is_plain else shlex.quote(question), *map(shlex.quote, options)])


def print_loaded(report: Report, options: Sequence[str] = ()) -> None:
    """Print what the store holds, and what the last load of each source had to say."""
    if report.collections:
        out.print("[bold]Loaded[/]")
    _print_collections(report.collections)
    _print_list("Not loaded", [f"{bad.where}: {bad.reason}" for source in report.sources for bad in source.failures])
    _print_notes(report, options)


def _print_source(source: LoadReport, *, is_dry: bool) -> None:
    if source.error and not source.read:
        return
    if is_dry:
        items = sum(collection.items for collection in source.collections.values())
        says = f"{_count(items, 'item')}, {source.failed:,} failed; read in {source.seconds:.1f} s"
    else:
        says = ", ".join(f"{getattr(source, name):,} {name}" for name in COUNTS) + f" in {source.seconds:.1f} s"
    _say(f"{source.source}: {says}")
    shown = {name: collection for name, collection in source.collections.items() if name != OPERATIONS}
    _print_collections(shown)


def _print_collections(collections: Mapping[str, CollectionReport]) -> None:
    for name, collection in islice(collections.items(), MAX_COLLECTIONS):
        _say(f"  {name}: {_count(collection.items, 'item')}")
        if collection.fields:
            out.print(Padding(_fields_table(collection), (0, 0, 0, 4)))
        if len(collection.fields) > MAX_FIELDS:
            _say(f"    … and {_count(len(collection.fields) - MAX_FIELDS, 'more field')}, see --json", "dim")
    if len(collections) > MAX_COLLECTIONS:
        _say(f"  … and {_count(len(collections) - MAX_COLLECTIONS, 'more collection')}, see --json", "dim")


def _fields_table(collection: CollectionReport) -> Table:
    rows = [
        [_cut(name, MAX_NAME), _type_label(spec), spec.role, _share(spec.coverage)]
        for name, spec in islice(_in_order(collection.fields), MAX_FIELDS)
    ]
    examples = [
        _cut(_one_line(spec.example), MAX_VALUE) for _, spec in islice(_in_order(collection.fields), MAX_FIELDS)
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(("field", "type", "role", "filled")):
        # The example alone gives way where there is no room.
        width = max(cell_len(title), *(cell_len(row[place]) for row in rows))
        table.add_column(title, justify="right" if title == "filled" else "left", no_wrap=True, min_width=width)
    table.add_column("example", no_wrap=True, overflow="ellipsis")
    for row, example in zip(rows, examples, strict=True):
        table.add_row(*map(plain, row), plain(example))
    return table


def _in_order(fields: Mapping[str, FieldReport]) -> list[tuple[str, FieldReport]]:
    """Return the fields; those of a wide table with a role first, so that it shows what matters."""
    is_wide = len(fields) > MAX_FIELDS
    return sorted(fields.items(), key=lambda entry: is_wide and not entry[1].role)


def _type_label(spec: FieldReport) -> str:
    return ", ".join(filter(None, (str(spec.type), spec.format, spec.unit)))


def _share(coverage: float) -> str:
    """Return a share in percent; 100 % and 0 % are exact."""
    if 0 < coverage < 0.01:
        return "<1%"
    return f"{int(coverage * 100 + (0.5 if coverage < 0.99 else 0))}%"


def _remark_lines(sources: Sequence[LoadReport]) -> Iterator[str]:
    remarks = [remark for source in sources for remark in source.remarks]
    for remark in remarks[:MAX_REMARKS]:
        yield f"{remark.place}: {remark.text}"
    if len(remarks) > MAX_REMARKS:
        yield f"… and {_count(len(remarks) - MAX_REMARKS, 'more remark')}, see --json"


def _doubt_lines(sources: Sequence[LoadReport]) -> Iterator[str]:
    groups = [group for source in sources for group in group_doubts(source.doubts)]
    for group in groups[:MAX_GROUPS]:
        yield _doubt_line(group)
        if group.first.setting:
            yield f"  Settle it with {group.first.setting}"
    rest = sum(source.doubt_count for source in sources) - sum(group.count for group in groups[:MAX_GROUPS])
    if rest > 0:
        yield f"… and {_count(rest, 'more doubt')}"


def _doubt_line(group: DoubtGroup) -> str:
    doubt, value = group.first, f'"{_cut(_one_line(group.first.value), MAX_VALUE)}"' if group.first.value else ""
    if group.count > 1:
        return f"{group.count:,} values of {doubt.field}, first at {doubt.place}: {_join(value, doubt.reason)}"
    if doubt.field:
        return f"{doubt.place}: {_join(doubt.field, value, doubt.reason)}"
    return f"{doubt.place}: {doubt.reason}{f' ({value})' if value else ''}"


def _join(*parts: str) -> str:
    return ": ".join(filter(None, parts))


def _last_line(sources: Sequence[LoadReport], *, is_dry: bool) -> str:
    """Return whether all is well, or what was lost."""
    failed = sum(source.failed for source in sources)
    doubts = sum(source.doubt_count for source in sources)
    were = "would not be" if is_dry else "was not" if failed == 1 else "were not"
    losses = [
        *([f"{_count(failed, 'record')} {were} loaded"] if failed else []),
        *([f"{_count(doubts, 'value')} {'is' if doubts == 1 else 'are'} in doubt"] if doubts else []),
        *(f"part of {source.source} could not be read" for source in sources if source.has_gap),
        *(f"{source.source} could not be read" for source in sources if source.error),
    ]
    dry = "Nothing was written. " if is_dry else ""
    if losses:
        return f"{dry}Not all is well: {', '.join(losses)}; see above."
    return f"{dry}All is well: every record {'can be' if is_dry else 'was'} loaded and every value understood."


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        out.print(f"[bold]{title}[/]")
    for line in lines:
        _say(f"  {line}")


def _say(text: str, style: str = "") -> None:
    out.print(plain(text), style=style or None, highlight=False, soft_wrap=True)


def _one_line(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json_text(value)
    return " ".join(text.split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
