"""Terminal output: tables, progress and JSON. Untrusted text is made harmless first."""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from portico.items import IN_LINES, invisible_pattern

if TYPE_CHECKING:
    from portico.query import Page, Query
    from portico.sources.reports import LoadReport

out = Console(soft_wrap=False)
err = Console(stderr=True)


def plain(text: object) -> str:
    """Return untrusted text without markup and control sequences."""
    from rich.markup import escape

    return escape(_UNSEEN.sub("\ufffd", str(text)))


_UNSEEN = invisible_pattern(except_for=IN_LINES)


def print_json(value: Any) -> None:
    sys.stdout.write(json_text(value, 2) + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON in which every invisible character is escaped."""
    return _UNSEEN.sub(_escape_match, json.dumps(value, ensure_ascii=False, indent=indent))


def _escape_match(match: re.Match[str]) -> str:
    """Escape a character as JSON does: one beyond U+FFFF as a surrogate pair."""
    halves = match[0].encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{half}" for half in halves)


class ProgressBar:
    """A progress bar on standard error: the share done, the rate and the time left."""

    def __init__(self, title: str, quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]:>9,} {task.fields[unit]}"),
            TextColumn("{task.fields[rate]:>7,.0f}/s"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=err, disable=quiet or not err.is_terminal, transient=True)
        self._task = self._bar.add_task(plain(title[-40:]), total=None, count=0, unit="records", rate=0.0)

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show_report(self, report: "LoadReport") -> None:
        total = report.read / report.share if report.share else None
        rate = report.read / report.seconds if report.seconds else 0.0
        self._bar.update(self._task, completed=report.read, total=total, count=report.read, rate=rate)

    def update(self, done: int, total: int, rate: float, what: str | None = None) -> None:
        self._bar.update(self._task, completed=done, total=total, count=done, unit="items", rate=rate)
        if what is not None:
            self._bar.update(self._task, description=plain(what[-40:]))


def show_table(
    rows: Sequence[Mapping[str, Any]], names: Iterable[str], whole: Collection[str] = frozenset({"id"})
) -> None:
    """Print rows as a table. Columns of `whole`, such as IDs that people copy, do not wrap unless they are long."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = list(names)
    for name in columns:
        numeric = rows and all(isinstance(_at(row, name), int | float) for row in rows)
        is_whole = name in whole and all(len(str(_at(row, name))) <= out.width // 2 for row in rows)
        table.add_column(plain(name), justify="right" if numeric else "left", overflow="fold", no_wrap=is_whole)
    for row in rows:
        table.add_row(*(_cell(_at(row, name)) for name in columns))
    out.print(table)


def _at(row: Mapping[str, Any], name: str) -> Any:
    from portico.catalog import scalar_at

    return row[name] if name in row else scalar_at(row, name)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return plain(value if len(value) <= 80 else value[:79] + "…")
        case float():
            return f"{value:g}" if abs(value) < 1e6 else f"{value:,.2f}"
        case bool() | int():
            return str(value)
        case _:
            return _cell(json.dumps(value, ensure_ascii=False))


def show_page(page: "Page", query: "Query", as_json: bool) -> None:
    from portico.operations import render_page

    rows: Sequence[Mapping[str, Any]] = page.rows if query.aggregate else render_page(page).items
    show_rows(rows, query, as_json, total=page.total, cursor=page.cursor, notes=page.notes)


def show_rows(
    rows: Sequence[Mapping[str, Any]],
    query: "Query",
    as_json: bool,
    *,
    total: int | None,
    cursor: str,
    notes: Sequence[str] = (),
) -> None:
    """Print the result of a query, local or remote."""
    if as_json:
        key = "rows" if query.aggregate else "items"
        print_json({key: list(rows), "total": total, "cursor": cursor or None, "notes": list(notes)})
        return
    show_table(rows, list(rows[0]) if query.aggregate and rows else _columns(rows, query))
    count = f"{len(rows)} of {total}" if total is not None else str(len(rows))
    err.print(f"[dim]{count}[/]", highlight=False)
    for note in notes:
        err.print(f"[yellow]{plain(note)}[/]", highlight=False, soft_wrap=True)
    if cursor:
        err.print(f"[dim]More: --cursor {plain(cursor)}[/]", highlight=False, soft_wrap=True)


def _columns(rows: Sequence[Mapping[str, Any]], query: "Query") -> list[str]:
    """Return the columns to show: the ID, a title and the fields that the query names."""
    from portico.field_names import alias_of, index_names
    from portico.query import conditions

    known = dict.fromkeys(name for row in rows for name in row)
    names = index_names(tuple(known))

    def shown(name: str) -> str:
        """Return the name that a field has in the rows, if they have it."""
        other = names.find(name) or alias_of(name)
        return other if name not in known and other in known else name

    if query.fields:
        return ["id", *(shown(name) for name in query.fields if name != "id")]
    titles = [name for name in ("name", "headline", "title") if any(name in row for row in rows)][:1]
    fields = [shown(name) for name in (*(c.field for c in conditions(query.where)), *(o.field for o in query.order))]
    score = ["_score"] if query.text else []
    return list(dict.fromkeys(["id", *titles, *fields, *score]))
