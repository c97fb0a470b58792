"""Which tables of a database a load publishes: those of the options, or those that a person names on the terminal."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from portico.cli.terminal import err, plain
from portico.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from portico.sources.records import SourceOptions
    from portico.sources.schema import TableInfo

ALL = "all"


def choose_tables(url: str, options: "SourceOptions", collection: str | None = None) -> "list[SourceOptions]":
    """Return the options for each source that a URL stands for: several if several tables of a database are named.

    Without a terminal and without a choice, reading the database fails with a list of its tables.
    """
    from portico.sources.registry import is_database, list_tables

    if not is_database(url, options) or options.all_tables:
        return [options]
    names = options.tables
    if not names and sys.stdin.isatty() and err.is_terminal:
        tables = list_tables(url, options)
        names = _ask(tables) if tables else ()
        if names == (ALL,):
            return [replace(options, all_tables=True)]
    if len(names) > 1 and collection:
        raise BadRequest(
            "`--collection` names one collection, and each table is loaded into its own",
            hint="Load the tables one by one, or leave `--collection` out.",
        )
    return [replace(options, table=name, tables=()) for name in dict.fromkeys(names)] or [options]


def _ask(tables: "Sequence[TableInfo]") -> tuple[str, ...]:
    """Ask until the answer names tables or `all`."""
    err.print("Tables are private until you name those to publish:")
    for table in tables:
        err.print(f"  {plain(table.name)}  [dim]{table.size}[/]", highlight=False)
    known = {table.name.casefold(): table.name for table in tables}
    while True:
        answer = typer.prompt(f"Tables to publish, separated by commas, or {ALL}", err=True)
        words = [word.strip().casefold() for word in answer.split(",") if word.strip()]
        if words == [ALL] and ALL not in known:
            return (ALL,)
        unknown = [word for word in words if word not in known]
        if words and not unknown:
            return tuple(known[word] for word in words)
        err.print(f"[yellow]There is no table {plain(', '.join(unknown))!r}.[/]", highlight=False)
