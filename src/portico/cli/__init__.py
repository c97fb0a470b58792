"""The command line: help that teaches, tables for people, JSON for programs, exit codes that mean something.

Exit codes: 0 done, 1 it failed, 2 wrong usage or site file, 3 not found, 4 refused, 5 conflict, 6 unavailable.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from portico import __version__
from portico.cli.approve import approve
from portico.cli.eval import evaluate
from portico.cli.keys import keys
from portico.cli.options import (
    JsonOption,
    KeyOption,
    SiteOption,
    StoreOption,
    caller_of,
    filled,
    missing,
    opened_store,
    port_option,
)
from portico.cli.terminal import Bar, err, out, plain, print_json, show_page, show_rows, show_table
from portico.config import Config, StoreSettings, check_sources, find_site_file, located, parse_config, read_config
from portico.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    Denied,
    InvalidQuery,
    NotFound,
    OperationFailed,
    RateLimited,
    SiteError,
    SourceError,
    Unavailable,
)
from portico.redaction import redact_text, redact_url

if TYPE_CHECKING:
    from portico.catalog import Operation
    from portico.cli.query import Server
    from portico.query import Aggregate, Page, Query
    from portico.requests import Call, Outcome, Task
    from portico.server.http import Opened
    from portico.sources.ingest import Report
    from portico.store.copying import Copied
    from portico.telemetry import LogLevel, Observe

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
    help="One entrance to a site's data and operations.\n\n"
    "Start with `portico demo`. Then write a portico.toml, `portico load` your data and `portico serve` it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(keys, name="keys")
app.command()(approve)
app.command("eval")(evaluate)

QUOTED = """Quote it for the shell: '{"price": {"$lt": 5}}'."""
Over = Literal["http", "mcp", "a2a"]
QueryOver = Literal["store", "nwp", "nwp-native"]
LogLevelOption = Annotated[
    Literal["info", "debug"] | None,
    typer.Option(help="debug logs failures with their traceback.", show_default=False),
]


def main() -> None:
    """The command `portico`."""
    try:
        app()
    except SiteError as error:
        _say_error(error)
        raise SystemExit(exit_code(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def exit_code(error: SiteError) -> int:
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def _say_error(error: SiteError) -> None:
    err.print(f"[bold red]Error:[/] {plain(error.message)}", highlight=False)
    if error.hint:
        err.print(f"[dim]{plain(error.hint)}[/]", highlight=False)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


# The site a command works on.


def _config(site: str | None, store: str | None) -> Config:
    """The site file that is meant, or the demo site where there is none."""
    import msgspec

    path = find_site_file(site)
    if path is None and store is None:
        err.print("[dim]No portico.toml here: this is the demo site.[/]", highlight=False)
        config = demo_config()
        if missing(config):
            _run(_load_all(config, quiet=True))
        return config
    config = read_config(path) if path else parse_config({})
    if store:
        settings = msgspec.structs.replace(config.store, url=located(store, "."))
        return msgspec.structs.replace(config, store=settings)
    return config


def demo_config() -> Config:
    """The sample site, with its store in the folder the command runs in."""
    import msgspec

    path = Path(__file__).parents[1] / "demo" / "portico.toml"
    store = StoreSettings(url=f"sqlite:///{Path('.portico', 'demo.db').absolute()}")
    return msgspec.structs.replace(read_config(path), store=store)


# Commands


@app.callback(invoke_without_command=True)
def _about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    if version:
        print(f"portico {__version__}")
        raise typer.Exit
    context.obj = _config


@app.command()
def demo(
    port: Annotated[int, port_option("HTTP port.")] = 8000,
    nwp_port: Annotated[int, port_option("Port of the native protocol.")] = 17433,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    workers: Annotated[int, typer.Option(min=1, help="Processes that serve as one.")] = 1,
    log_level: LogLevelOption = None,
) -> None:
    """Run the sample site: a small town with recipes, shops, events and things to do.

    Brings .portico/demo.db up to date and serves it until you press Ctrl-C.

        portico demo --port 8100
    """
    _serve(demo_config(), host, port, nwp_port, workers, log_level, load=True)


@app.command()
def serve(
    site: SiteOption = None,
    store: StoreOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, port_option("HTTP port.", show_default=False)] = None,
    nwp_port: Annotated[int | None, port_option("Port of the native protocol.", show_default=False)] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that serve as one.", show_default=False)] = None,
    load_first: Annotated[bool, typer.Option("--load", help="Load the site file's sources first.")] = False,
    log_level: LogLevelOption = None,
) -> None:
    """Serve a site until you press Ctrl-C.

    portico serve --site shop/portico.toml --load
    """
    _serve(_config(site, store), host, port, nwp_port, workers, log_level, load=load_first)


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
    import msgspec

    from portico.server.http import serve as run_server
    from portico.telemetry import Log

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
        if err.is_terminal:  # whoever sits there reads no log
            _show_reports(_run(_load_all(config, quiet=False)), as_json=False)
        else:
            _run(_load_all(config, quiet=True, observe=Log(level=server.log_level)))
    run_server(config, partial(Log, seconds=0.1, level=server.log_level), _announce)


def _announce(opened: "Opened") -> None:
    """Where to look, once the server listens."""
    from portico.protocols import FACES

    count = len(opened.collections)
    print(f"\n{opened.name} is open, with {count} {'collection' if count == 1 else 'collections'}.\n")
    for face in FACES:
        print(f"  {face.title:<22} {opened.base}{face.path}")
        print(f"  {'':<22} {face.example.format(base=opened.base)}\n")
    print(f"  {'NWP, natively':<22} {opened.native}\n")
    for name in opened.collections[:1]:
        print(f"From another terminal:  {_command()} query {name} --limit 5")
    print("Stop with Ctrl-C.", flush=True)


def _command() -> str:
    """This command as a shell finds it from here: by its name only if it is on the path."""
    called = Path(sys.argv[0])
    if called.name != "portico" or shutil.which("portico"):
        return "portico"
    return os.path.relpath(called) if called.is_relative_to(Path.cwd()) else str(called)


@app.command()
def load(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files, folders, URLs, databases.", show_default=False),
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option("--collection", "-c", help="Where the items go. Else named after the source.", show_default=False),
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    format: Annotated[
        str | None,
        typer.Option(help="Say the format instead of letting Portico find out.", show_default=False),
    ] = None,
    id_field: Annotated[str | None, typer.Option(help="The field that names an item.", show_default=False)] = None,
    table: Annotated[str | None, typer.Option(help="One table of a database.", show_default=False)] = None,
    type: Annotated[
        str | None, typer.Option(help="A schema.org type for records without one.", show_default=False)
    ] = None,
    max_pages: Annotated[int, typer.Option(help="Pages of a crawl.")] = 1000,
    delay: Annotated[float, typer.Option(help="Seconds between requests of a crawl.")] = 1.0,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host that may have a private address.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if any record was bad.")] = False,
    embed: Annotated[bool, typer.Option(help="Make vectors now; else a running server makes them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the store up to date with sources. Without SOURCE: all of the site file.

    Safe to repeat: what has not changed is left alone, what vanished from a source is forgotten.

        portico load products.csv --collection products --store sqlite:///shop.db

        portico load menu.jsonld feed+https://example.com/news.rss sitemap+https://example.com/sitemap.xml
    """
    from portico.sources.registry import SourceOptions

    config = _config(site, store)
    options = SourceOptions(
        format=format,
        id_field=id_field,
        table=table,
        type=type,
        max_pages=max_pages,
        delay=delay,
        allow_hosts=(*config.allow_hosts, *(allow_host or ())),
    )
    if sources:
        work = _load_some(config, sources, collection, options, quiet=as_json)
    else:
        work = _load_all(config, quiet=as_json)
    reports: list[Report] = _run(work)
    if embed:
        _run(_embed(config, quiet=as_json))
    _show_reports(reports, as_json)
    if strict and any(report.failed for report in reports):
        raise typer.Exit(1)


async def _load_some(
    config: Config, urls: Sequence[str], collection: str | None, options: Any, *, quiet: bool
) -> list["Report"]:
    from dataclasses import replace

    from portico.sources.ingest import collection_for, ingest
    from portico.sources.registry import open_source

    check_sources(urls)
    async with opened_store(config) as store:
        reports: list[Report] = []
        for url in urls:
            source = open_source(url, options)
            with Bar(redact_url(url), quiet) as bar:
                name = collection or collection_for(url)
                report = await ingest(store, source, name, declared=config.collection, told=bar.told)
                reports.append(replace(report, source=redact_url(url)))
        return reports


async def _load_all(config: Config, *, quiet: bool, observe: "Observe | None" = None) -> list["Report"]:
    from portico.sources.ingest import load_sources
    from portico.telemetry import nowhere

    async with opened_store(config) as store:
        with Bar(config.site.name, quiet) as bar:
            return await load_sources(config, store, observe or nowhere, bar.told)


async def _embed(config: Config, *, quiet: bool) -> None:
    from portico.server.assembly import embed_everything

    with Bar("vectors", quiet) as bar:
        await embed_everything(config, bar.share)


def _show_reports(reports: "Sequence[Report]", as_json: bool) -> None:
    for bad in (bad for report in reports for bad in report.failures):
        err.print(f"[yellow]{plain(bad.where)}[/]: {plain(bad.reason)}", highlight=False, soft_wrap=True)
    left_out = sum(report.failed - len(report.failures) for report in reports)
    if left_out:
        err.print(f"[yellow]… and {left_out} more bad records[/]")
    for report in reports:
        if report.has_gap:
            says = "part of it could not be read, so nothing was forgotten"
            err.print(f"[yellow]{plain(report.source)}[/]: {says}", highlight=False, soft_wrap=True)
    counts = ("added", "changed", "unchanged", "removed", "failed")
    total = {name: sum(getattr(report, name) for report in reports) for name in counts}
    if as_json:
        each = [{"source": r.source, **{n: getattr(r, n) for n in counts}} for r in reports]
        failures = [{"where": b.where, "reason": b.reason} for r in reports for b in r.failures]
        print_json({**total, "sources": each, "failures": failures})
        return
    for report in reports:
        says = ", ".join(f"{getattr(report, name):,} {name}" for name in counts)
        out.print(f"{plain(report.source)}: {says} in {report.seconds:.1f} s", highlight=False, soft_wrap=True)


@app.command()
def query(
    collection: Annotated[str, typer.Argument(help="Which collection.")],
    where: Annotated[str | None, typer.Option(help='A filter: {"price": {"$lt": 20}}', show_default=False)] = None,
    text: Annotated[str, typer.Option(help="Words to search for, best first.", show_default=False)] = "",
    order: Annotated[
        list[str] | None,
        typer.Option(help="A field to sort by; -price or price:desc for falling.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many, up to 1000.")] = 20,
    fields: Annotated[str | None, typer.Option(help="Only these fields: name,offers.price", show_default=False)] = None,
    cursor: Annotated[str, typer.Option(help="Go on where the page before ended.", show_default=False)] = "",
    aggregate: Annotated[
        list[str] | None,
        typer.Option(help="count, sum, avg, min, max or count_distinct: 'avg(price) as mean'", show_default=False),
    ] = None,
    group_by: Annotated[list[str] | None, typer.Option(help="A field to group by.", show_default=False)] = None,
    having: Annotated[str | None, typer.Option(help="A filter over the grouped rows.", show_default=False)] = None,
    url: Annotated[str | None, typer.Option(help="Ask a server that is running.", show_default=False)] = None,
    over: Annotated[
        QueryOver, typer.Option(help="Ask as agents do: the node of the collection at --url, by NWP.")
    ] = "store",
    ident: Annotated[Path | None, typer.Option(help="Show this certificate to the server.", show_default=False)] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Trust servers by this file (PEM), over TLS.", show_default=False)
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look into a collection: filter, search, sort, count.

    portico query products --where '{"price":{"$lt":20}}' --order price --limit 5

    portico query recipes --text "lemon soup" --where '{"totalTime":{"$lte":"PT30M"}}'

    portico query products --aggregate "count as n" --aggregate "avg(price) as mean" --group-by category
    --having '{"n":{"$gte":5}}' --order -n

    portico query recipes --limit 5 --over nwp --url http://127.0.0.1:8000
    """
    from portico.query import Query

    asked = Query(
        collection,
        text=text,
        where=_filter(where),
        order=tuple(_order(each) for each in order or ()),
        fields=tuple(each.strip() for each in fields.split(",")) if fields else (),
        aggregate=_aggregate(aggregate, group_by, having),
        limit=limit,
        cursor=cursor,
        count=True,
    )
    if over != "store":
        from portico.cli.query import Server

        _query_there(asked, Server(over, url, api_key, ident, ca), as_json)
        return
    if url or ident or ca:
        address = "" if url else " --url http://127.0.0.1:8000"
        raise ConfigError("A server is asked over a protocol", hint=f"Add --over nwp{address}.")
    page: Page = _run(_query(filled(_config(site, store)), asked, api_key))
    show_page(page, asked, as_json)


async def _query(config: Config, asked: "Query", api_key: str | None) -> "Page":
    from portico.server.assembly import opened_site, opened_store_only

    opened = opened_site(config, background=False, serves=False) if asked.text else opened_store_only(config)
    async with opened as parts:
        return await parts.site.query(asked, await caller_of(parts, api_key))


def _query_there(asked: "Query", server: "Server", as_json: bool) -> None:
    from portico.cli.query import found_there

    found = _run(found_there(asked, server))
    show_rows(found.rows, asked, as_json, total=found.total, cursor=found.cursor)


def _filter(raw: str | None) -> Any:
    from portico.query import EVERYTHING, parse_filter

    return EVERYTHING if raw is None else parse_filter(_json(raw, "--where"))


def _json(raw: str, what: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise InvalidQuery(f"{what} is not JSON: {error}", hint=QUOTED) from None


def _order(raw: str) -> Any:
    from portico.query import Order

    name, _, direction = raw.partition(":")
    if direction.lower() not in {"", "asc", "desc"}:
        raise InvalidQuery(f"{raw!r} is not an order", hint="Write price, -price or price:desc.")
    return Order(name.removeprefix("-"), raw.startswith("-") or direction.lower() == "desc")


def _aggregate(raw: list[str] | None, group_by: list[str] | None, having: str | None) -> "Aggregate | None":
    from portico.query import EVERYTHING, Aggregate, parse_aggregation, parse_filter

    if not raw and not group_by and not having:
        return None
    groups = tuple(name.strip() for each in group_by or () for name in each.split(","))
    operations = tuple(parse_aggregation(each) for each in raw or ("count as count",))
    kept = parse_filter(_json(having, "--having")) if having else EVERYTHING
    return Aggregate(operations, groups, kept)


@app.command()
def ask(
    question: Annotated[
        str | None, typer.Argument(help="What you want to know; left out, you can ask on and on.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many items.")] = 10,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", "-c", help="Only here.", show_default=False)
    ] = None,
    summarize: Annotated[bool, typer.Option("--summarize", help="Add a summary.")] = False,
    generate: Annotated[bool, typer.Option("--generate", help="Add an answer in prose.")] = False,
    prev: Annotated[list[str] | None, typer.Option(help="A question before this one.", show_default=False)] = None,
    language: Annotated[str, typer.Option(help="Of the answer, as in de or pt-BR.", show_default=False)] = "",
    url: Annotated[str | None, typer.Option(help="Ask a server that is running.", show_default=False)] = None,
    over: Annotated[
        Over, typer.Option(help="Ask as agents do: the same answer, by MCP's tools or an A2A message.")
    ] = "http",
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the site in plain words; prints the best items of all collections.

    portico ask "vegetarian dinner under 30 minutes" --summarize

    portico ask "something quicker" --prev "vegetarian dinner" --url http://127.0.0.1:8000

    portico ask "a quiet pub" --url http://127.0.0.1:8000 --over mcp
    """
    from functools import partial

    from portico.cli.ask import asked_here, asked_there, converse
    from portico.client import Options

    wanted = {"summarize": summarize, "generate": generate}
    options = Options(
        limit=limit,
        site=",".join(collection or ()),
        modes=("list", *(mode for mode, is_wanted in wanted.items() if is_wanted)),
        previous=tuple(prev or ()),
        language=language,
    )
    if url:
        opening = asked_there(url, api_key, over)
    else:
        opening = asked_here(filled(_config(site, store)), collection or (), partial(caller_of, api_key=api_key), over)
    converse(opening, question, options, as_json=as_json)


@app.command()
def mcp(
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Act as the holder of this key.", show_default=False)
    ] = None,
) -> None:
    """Serve the site over MCP on standard input and output, for a client that starts it.

    The client acts as a caller without credentials, or as the holder of --api-key.

    portico mcp --site shop/portico.toml
    """
    _run(_mcp(_config(site, store), api_key))


async def _mcp(config: Config, api_key: str | None) -> None:
    from portico.access.identity import Credentials
    from portico.protocols.mcp.stdio import serve as run_server
    from portico.server.assembly import opened_site
    from portico.telemetry import Log

    log = Log(level=config.server.log_level)
    async with opened_site(config, observe=log, restarts=False) as parts:
        await parts.index.start()
        caller = await parts.site.identity.caller(Credentials(api_key or ""))
        await run_server(parts.site, config, parts.observe, caller)


@app.command()
def call(
    operation: Annotated[
        str | None, typer.Argument(help="Which operation; without one, all are listed.", show_default=False)
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Parameters, or one JSON object.", show_default=False),
    ] = None,
    later: Annotated[bool, typer.Option(help="Start it as a task and return; a running server does the work.")] = False,
    key: Annotated[str, typer.Option(help="An idempotency key: repeat safely within a day.", show_default=False)] = "",
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Run an operation of the site.

    portico call get_recipe id=recipes/lemon-barley-soup

    portico call book_table '{"restaurant": "restaurants/kelp", "people": 2, "time": "2026-12-05T19:00"}'
    """
    from portico.operations import LOG_HINT
    from portico.requests import Call

    config = _config(site, store)
    if operation is None:
        _run(_list_operations(config, as_json))
        return
    wanted = Call(operation, run="later" if later else "auto", key=key)
    level = log_level or config.server.log_level
    try:
        outcome: Outcome | Task = _run(
            _call(config, wanted, params or [], api_key, _failure_printer(level), quiet=as_json)
        )
    except OperationFailed as error:
        if error.hint == LOG_HINT:  # a command has no log
            error.hint = None if level == "debug" else "Add --log-level debug to see the traceback."
        raise
    _show_outcome(outcome)


async def _list_operations(config: Config, as_json: bool) -> None:
    from portico.operations import schema_of
    from portico.server.assembly import opened_store_only

    async with opened_store_only(config) as parts:
        operations = sorted(parts.site.catalog.operations.values(), key=lambda each: each.name)
        rows = [
            {"operation": o.name, "kind": o.kind.value, "danger": o.danger.name.lower(), "does": o.summary}
            for o in operations
        ]
        if as_json:
            print_json([{**row, "params": schema_of(o.params)} for row, o in zip(rows, operations, strict=True)])
        else:
            show_table(rows, ["operation", "kind", "danger", "does"])


def _params(raw: list[str], operation: "Operation") -> dict[str, Any]:
    if len(raw) == 1 and raw[0].lstrip().startswith("{"):
        return cast("dict[str, Any]", _json(raw[0], "The parameter object"))
    params: dict[str, Any] = {}
    for each in raw:
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidQuery(f"{each!r} is not a parameter", hint="Write name=value, or one JSON object.")
        params[name] = _value(value, name, operation)
    return params


def _value(raw: str, name: str, operation: "Operation") -> Any:
    """A text where the operation wants a text; else JSON where it is JSON."""
    from portico.operations import schema_of

    schema = schema_of(operation.params)
    target = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if target.get("properties", {}).get(name, {}).get("type") == "string":
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _failure_printer(level: "LogLevel") -> "Observe":
    """Return an observer that prints unexpected failures: a command has no log that would show them."""
    import traceback

    from portico.telemetry import Broke, Observation

    def show(event: Observation) -> None:
        if not isinstance(event, Broke):
            return
        err.print(f"[bold red]{plain(event.where)}:[/] {plain(redact_text(event.error))}", highlight=False)
        if event.cause and level == "debug":
            shown = redact_text("".join(traceback.format_exception(event.cause)))
            err.print(plain(shown), highlight=False, soft_wrap=True)

    return show


async def _call(
    config: Config, wanted: "Call", params: list[str], api_key: str | None, observe: "Observe", *, quiet: bool
) -> Any:
    from dataclasses import replace

    from portico.requests import Task
    from portico.server.assembly import opened_site

    wait = wanted.run != "later"
    async with opened_site(config, observe=observe, background=wait, serves=False) as parts:
        caller = await caller_of(parts, api_key)
        given = _params(params, parts.site.catalog.operation(wanted.operation))
        outcome = await parts.site.call(replace(wanted, params=given), caller)
        if not wait or not isinstance(outcome, Task):
            return outcome
        with Bar(wanted.operation, quiet) as bar:
            while not outcome.state.is_final:
                outcome = await parts.site.tasks.wait(outcome.id, caller, 0.3)
                bar.share(round(outcome.progress * 100), 100, 0.0)
        return outcome


def _show_outcome(outcome: "Outcome | Task") -> None:
    from portico.requests import Task, TaskState
    from portico.site import shown_task

    if not isinstance(outcome, Task):
        print_json(outcome.result)
        return
    if outcome.state == TaskState.COMPLETED:
        print_json(outcome.result)
        return
    print_json(shown_task(outcome))
    if outcome.state.is_final:
        raise typer.Exit(1)


@app.command()
def check(
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look over a site file and its store, and say in plain words what is wrong.

    portico check --site shop/portico.toml
    """
    from portico.cli.check import look_over

    findings = _run(look_over(_config(site, store)))
    wrong = [each for each in findings if not each.is_well]
    if as_json:
        print_json(
            {
                "well": not wrong,
                "findings": [{"what": f.what, "well": f.is_well, "says": f.says} for f in findings],
            }
        )
    else:
        for each in findings:
            mark = "[green]✓[/]" if each.is_well else "[red]✗[/]"
            out.print(f"{mark} {plain(each.what)}: {plain(each.says)}", highlight=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


@app.command()
def copy(
    origin: Annotated[str, typer.Argument(metavar="FROM", help="The URL of the store to copy.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL of an empty store.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a site to another store, and verify that both hold the same.

    Items keep their versions; vectors, keys and tasks come along. Stop the servers first.
    A copy that was interrupted goes on when it is run again.

        portico copy sqlite:///site.db postgresql://me@localhost/shop
    """
    started = time.monotonic()
    copied: Copied = _run(_copy(located(origin, "."), located(target, "."), quiet=as_json))
    if as_json:
        print_json(asdict(copied))
        return
    show_table(
        [{"collection": name, "items": count} for name, count in copied.collections.items()], ["collection", "items"]
    )
    says = f"{copied.items:,} items copied, {copied.unchanged:,} were there, {copied.vectors:,} vectors"
    took = f"{copied.entries:,} keys and tasks, in {time.monotonic() - started:.1f} s"
    err.print(f"{says}, {took}. Both stores hold the same.", highlight=False)


async def _copy(origin: str, target: str, *, quiet: bool) -> "Copied":
    from portico.query import EVERYTHING
    from portico.store import open_store
    from portico.store.copying import copy_store

    async with contextlib.AsyncExitStack() as closing:
        here = await open_store(origin)
        closing.push_async_callback(here.close)
        there = await open_store(target)
        closing.push_async_callback(there.close)
        total = sum([await here.items.count(name, EVERYTHING) for name in here.collections.schema])
        started = time.monotonic()
        with Bar("copying", quiet) as bar:

            def told(what: str, copied: "Copied") -> None:
                done = copied.items + copied.unchanged
                bar.share(done, total, done / max(time.monotonic() - started, 1e-3), what)

            return await copy_store(here, there, told)
