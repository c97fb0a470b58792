"""The commands `portico serve` and `portico demo`: run the server, and print where to find it."""

import asyncio
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from portico.cli.options import LogLevelOption, SiteOption, StoreOption, port_option
from portico.cli.sites import demo_config, load_all, load_config
from portico.cli.terminal import err
from portico.config import Config
from portico.redaction import redact_url

if TYPE_CHECKING:
    from portico.server.http import ServerInfo
    from portico.telemetry import LogLevel


def demo(
    port: Annotated[int, port_option("HTTP port; 0 for any free port.")] = 8000,
    nwp_port: Annotated[int, port_option("Port for native NWP; 0 for any free port.")] = 17433,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    workers: Annotated[int, typer.Option(min=1, help="Number of server processes.")] = 1,
    log_level: LogLevelOption = None,
) -> None:
    """Serve the sample site, a small town with recipes, shops and events.

    Updates .portico/demo.db, then serves it until you press Ctrl-C.

        portico demo --port 8100
    """
    _serve(demo_config(), host, port, nwp_port, workers, log_level, load=True)


def serve(
    site: SiteOption = None,
    store: StoreOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, port_option("HTTP port; 0 for any free port.", show_default=False)] = None,
    nwp_port: Annotated[
        int | None, port_option("Port for native NWP; 0 for any free port.", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of server processes.", show_default=False)] = None,
    load_first: Annotated[bool, typer.Option("--load", help="Load the sources of the site file first.")] = False,
    log_level: LogLevelOption = None,
) -> None:
    """Serve a site over every protocol until you press Ctrl-C.

    portico serve --site shop/portico.toml --load
    """
    _serve(load_config(site, store), host, port, nwp_port, workers, log_level, load=load_first)


def _serve(
    config: Config,
    host: str | None,
    port: int | None,
    nwp_port: int | None,
    workers: int | None,
    log_level: "LogLevel | None",
    *,
    load: bool,
) -> None:
    from portico.server.http import serve as run_server
    from portico.telemetry import JsonLog

    server = msgspec.structs.replace(
        config.server,
        host=host or config.server.host,
        port=config.server.port if port is None else port,
        nwp_port=config.server.nwp_port if nwp_port is None else nwp_port,
        workers=workers or config.server.workers,
        log_level=log_level or config.server.log_level,
    )
    config = msgspec.structs.replace(config, server=server)
    if load:
        err.print(f"Loading {config.site.name} into {redact_url(config.store_url)}", highlight=False)
        if err.is_terminal:  # a person reads progress, not a log
            from portico.cli.load_report import make_report, print_failures, print_report

            reports = asyncio.run(load_all(config, quiet=False))
            print_failures(reports)
            print_report(make_report(reports, config))
        else:
            asyncio.run(load_all(config, quiet=True, record=JsonLog(level=server.log_level)))
    run_server(config, partial(JsonLog, seconds=0.1, level=server.log_level), print_banner)


def print_banner(server: "ServerInfo") -> None:
    """Print where to find the site, once the server listens."""
    count = len(server.collections)
    print(f"\n{server.name} is running with {count} {'collection' if count == 1 else 'collections'}.\n")
    for example in server.examples:
        print(f"  {example.title:<22} {server.base}{example.path}")
        print(f"  {'':<22} {example.command.format(base=server.base)}\n")
    for title, address in server.native.items():
        print(f"  {title:<22} {address}\n")
    for name in server.collections[:1]:
        print(f"From another terminal:  {_command()} query {name} --limit 5")
    print("Stop with Ctrl-C.", flush=True)


def _command() -> str:
    """Return how to run this command from here: by name if it is on the path, else by its file."""
    program = Path(sys.argv[0])
    if program.name != "portico" or shutil.which("portico"):
        return "portico"
    return os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)
