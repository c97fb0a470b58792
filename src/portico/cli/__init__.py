"""The command line: one module for each command, registered here.

Exit codes: 0 done, 1 it failed, 2 wrong usage or site file, 3 not found, 4 refused, 5 conflict, 6 unavailable.
"""

import os
import sys
from typing import Annotated

import typer

from portico import __version__
from portico.cli.approve import approve
from portico.cli.ask import ask
from portico.cli.call import call
from portico.cli.check import check
from portico.cli.copy import copy
from portico.cli.eval import evaluate
from portico.cli.keys import keys
from portico.cli.load import load
from portico.cli.query import query_collection
from portico.cli.serve import demo, serve
from portico.cli.stdio import serve_stdio
from portico.cli.terminal import err, plain
from portico.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    Denied,
    NotFound,
    RateLimited,
    SiteError,
    SourceError,
    Unavailable,
)

EXIT_CODES: dict[type[SiteError], int] = {
    SiteError: 1,
    BadRequest: 2,
    ConfigError: 2,
    NotFound: 3,
    Denied: 4,
    RateLimited: 4,
    Conflict: 5,
    Unavailable: 6,
    SourceError: 6,
}

app = typer.Typer(
    name="portico",
    help="Serve a site's data and operations to people and agents, over every protocol they use.\n\n"
    "Try `portico demo` first. For a site of your own, write a portico.toml, then run `portico load` and "
    "`portico serve`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
# In the order of the help.
app.command()(demo)
app.command()(serve)
app.command()(load)
app.command()(ask)
app.command("query")(query_collection)
app.command()(call)
app.command("mcp")(serve_stdio)
app.command()(approve)
app.add_typer(keys, name="keys")
app.command()(check)
app.command("eval")(evaluate)
app.command()(copy)


def main() -> None:
    """Run the command `portico`."""
    try:
        app()
    except SiteError as error:
        err.print(f"[bold red]Error:[/] {plain(error.message)}", highlight=False)
        if error.hint:
            err.print(f"[dim]{plain(error.hint)}[/]", highlight=False)
        raise SystemExit(exit_code(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def exit_code(error: SiteError) -> int:
    """Return the exit code of the nearest class that has one."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


@app.callback(invoke_without_command=True)
def _main_options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"portico {__version__}")
        raise typer.Exit
