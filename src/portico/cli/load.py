"""The command `portico load`: brings the store up to date with files, feeds, sites and databases."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.cli.options import JsonOption, SiteOption, StoreOption
from portico.cli.sites import load_all, load_config, load_one, site_options, site_store
from portico.cli.terminal import ProgressBar, print_json
from portico.cli.watch import WatchedSource, watched_place
from portico.cli.watch import watch as watch_files
from portico.config import Config, check_sources, resolve_location
from portico.errors import ConfigError, SourceError
from portico.redaction import redact_url

if TYPE_CHECKING:
    from portico.sources.records import Source, SourceOptions
    from portico.sources.reports import LoadReport

READING = "How sources are read"
TABLES = "Databases and tables"
CRAWLING = "Web sites"
REPORTING = "Report"
IN_MEMORY = "sqlite:///:memory:"


def load(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files, globs, folders, URLs or databases.", show_default=False),
    ] = None,
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", help="Target collection. Default: named after the source.", show_default=False
        ),
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    embed: Annotated[bool, typer.Option(help="Compute vectors now, instead of leaving it to the server.")] = False,
    format: Annotated[
        str | None,
        typer.Option(help="Format of the source. Default: detected.", show_default=False, rich_help_panel=READING),
    ] = None,
    encoding: Annotated[
        str,
        typer.Option(
            help="Encoding of text files, such as cp1252. Default: detected.",
            show_default=False,
            rich_help_panel=READING,
        ),
    ] = "",
    id_field: Annotated[
        str | None,
        typer.Option(help="Field that holds the ID of an item.", show_default=False, rich_help_panel=READING),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Publish this table or view of a database. Repeatable.",
            show_default=False,
            rich_help_panel=TABLES,
        ),
    ] = None,
    all_tables: Annotated[
        bool,
        typer.Option("--all-tables", help="Publish all tables of a database, without views.", rich_help_panel=TABLES),
    ] = False,
    group_by: Annotated[
        str | None,
        typer.Option(
            help="Make one item of consecutive rows with the same value of this field.",
            show_default=False,
            rich_help_panel=TABLES,
        ),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option(help="schema.org type of records that have none.", show_default=False, rich_help_panel=READING),
    ] = None,
    base_url: Annotated[
        str,
        typer.Option(
            help="Where the files of a folder, or the items of a table, are on the web.",
            show_default=False,
            rich_help_panel=READING,
        ),
    ] = "",
    max_pages: Annotated[int, typer.Option(help="Maximum number of pages to crawl.", rich_help_panel=CRAWLING)] = 1000,
    delay: Annotated[float, typer.Option(help="Seconds between requests of a crawl.", rich_help_panel=CRAWLING)] = 1.0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Allow this host to have a private address. Repeatable.", show_default=False, rich_help_panel=CRAWLING
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the report, and write nothing.", rich_help_panel=REPORTING)
    ] = False,
    strict: Annotated[
        bool, typer.Option(help="Exit with 1 if anything was lost or is in doubt.", rich_help_panel=REPORTING)
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Load files and folders again when they change, until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Load sources into the store. Without SOURCE, load all sources of the site file.

    Safe to repeat: unchanged items are left alone, and items that are gone from a source are removed.

        portico load products.csv --dry-run

        portico load products.csv --collection products --store sqlite:///shop.db

        portico load menu.jsonld feed+https://example.com/news.rss sitemap+https://example.com/sitemap.xml
    """
    from portico.cli.load_report import make_report, print_failures, print_report, report_json
    from portico.sources.registry import SourceOptions

    # A dry run of SOURCE opens no store, and needs no site.
    config = load_config(site, store or (IN_MEMORY if dry_run and sources else None), is_filled=not dry_run)
    options = SourceOptions(
        format=format,
        encoding=encoding,
        id_field=id_field,
        tables=tuple(table or ()),
        all_tables=all_tables,
        group_by=group_by or "",
        type=type,
        base_url=base_url,
        max_pages=max_pages,
        delay=delay,
        allow_hosts=(*config.allow_hosts, *(allow_host or ())),
    )
    if watch and dry_run:
        raise ConfigError("--watch cannot be combined with --dry-run", hint="Leave one of them out.")
    watched = _watched_sources(config, sources, collection, options) if watch else []
    states = [source.state() for source in watched]
    if dry_run:
        work = _examine(config, _chosen_sources(config, sources, collection, options), quiet=as_json)
    elif sources:
        work = _load_some(config, _chosen_sources(config, sources, collection, options), quiet=as_json)
    else:
        work = load_all(config, quiet=as_json, keep_going=True)
    reports: list[LoadReport] = asyncio.run(work)
    if embed and not dry_run:
        asyncio.run(_embed(config, quiet=as_json))
    report = make_report(reports, config)
    print_failures(reports)
    if as_json:
        print_json(report_json(report))
    else:
        print_report(report, site_options(site, store), is_dry=dry_run)
    if watch:
        watch_files(watched, states, as_json=as_json)
        return
    if any(report.error for report in reports) or (strict and not report.is_lossless):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _ChosenSource:
    """A source of the command line or of the site file, not opened yet."""

    url: str  # without passwords
    collection: str
    open: Callable[[], "Source"]


def _chosen_sources(
    config: Config, urls: Sequence[str] | None, collection: str | None, options: "SourceOptions"
) -> list[_ChosenSource]:
    """Return the sources of the command line, or those of the site file if it names none."""
    from portico.cli.tables import choose_tables
    from portico.sources.ingest import default_collection, open_configured_source
    from portico.sources.records import collection_for
    from portico.sources.registry import open_source

    if not urls:
        return [
            _ChosenSource(
                redact_url(settings.url),
                default_collection(settings),
                partial(open_configured_source, settings, config),
            )
            for settings in config.source
        ]
    check_sources(urls)
    return [
        _ChosenSource(
            redact_url(url), collection or collection_for(url, chosen.table), partial(open_source, url, chosen)
        )
        for url in urls
        for chosen in choose_tables(url, options, collection)
    ]


def _watched_sources(
    config: Config, urls: Sequence[str] | None, collection: str | None, options: "SourceOptions"
) -> list[WatchedSource]:
    """Return the sources of the command line, or of the site file, as files to watch."""

    def reload(url: str) -> "Coroutine[Any, Any, Sequence[LoadReport]]":
        return _load_some(config, _chosen_sources(config, [url], collection, options), quiet=True)

    if urls:
        return [WatchedSource(url, watched_place(url, options), partial(reload, url)) for url in urls]
    places = [watched_place(resolve_location(settings.url, config.folder), options) for settings in config.source]
    return [
        WatchedSource(settings.url, place, partial(load_one, config, settings))
        for settings, place in zip(config.source, places, strict=True)
    ]


async def _load_some(config: Config, sources: Sequence[_ChosenSource], *, quiet: bool) -> list["LoadReport"]:
    from portico.sources.ingest import ingest

    async with site_store(config) as store:
        return await _report_on(sources, partial(ingest, store, declared=config.collection), quiet=quiet)


async def _examine(config: Config, sources: Sequence[_ChosenSource], *, quiet: bool) -> list["LoadReport"]:
    from portico.sources.ingest import examine

    return await _report_on(sources, partial(examine, declared=config.collection), quiet=quiet)


async def _report_on(
    sources: Sequence[_ChosenSource], run: "Callable[..., Awaitable[LoadReport]]", *, quiet: bool
) -> list["LoadReport"]:
    """Return the report of each source. One that cannot be read does not stop the others, unless it is the only one."""
    from portico.sources.reports import LoadReport

    reports: list[LoadReport] = []
    for source in sources:
        with ProgressBar(source.url, quiet) as bar:
            try:
                report = await run(source.open(), source.collection, on_progress=bar.show_report)
            except SourceError as error:
                if len(sources) == 1:
                    raise
                report = LoadReport(source.url, error=str(error))
            reports.append(replace(report, source=source.url))
    return reports


async def _embed(config: Config, *, quiet: bool) -> None:
    from portico.server.assembly import embed_everything

    with ProgressBar("vectors", quiet) as bar:
        await embed_everything(config, bar.update)
