"""The command `portico load`: brings the store up to date with files, feeds, sites and databases."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.cli.options import JsonOption, SiteOption, StoreOption
from portico.cli.sites import load_all, load_config, site_store
from portico.cli.terminal import ProgressBar, err, out, plain, print_json
from portico.config import Config, check_sources
from portico.redaction import redact_url

if TYPE_CHECKING:
    from portico.sources.reports import LoadReport


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
    format: Annotated[
        str | None,
        typer.Option(help="Format of the source. Default: detected.", show_default=False),
    ] = None,
    id_field: Annotated[
        str | None, typer.Option(help="Field that holds the ID of an item.", show_default=False)
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Publish this table or view of a database. Repeatable.", show_default=False),
    ] = None,
    all_tables: Annotated[
        bool, typer.Option("--all-tables", help="Publish all tables of a database, without views.")
    ] = False,
    group_by: Annotated[
        str | None,
        typer.Option(help="Make one item of consecutive rows with the same value of this field.", show_default=False),
    ] = None,
    type: Annotated[
        str | None, typer.Option(help="schema.org type of records that have none.", show_default=False)
    ] = None,
    max_pages: Annotated[int, typer.Option(help="Maximum number of pages to crawl.")] = 1000,
    delay: Annotated[float, typer.Option(help="Seconds between requests of a crawl.")] = 1.0,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Allow this host to have a private address.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option(help="Exit with 1 if any record is invalid.")] = False,
    embed: Annotated[bool, typer.Option(help="Compute vectors now, instead of leaving it to the server.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Load sources into the store. Without SOURCE, load all sources of the site file.

    Safe to repeat: unchanged items are left alone, and items that are gone from a source are removed.

        portico load products.csv --collection products --store sqlite:///shop.db

        portico load menu.jsonld feed+https://example.com/news.rss sitemap+https://example.com/sitemap.xml
    """
    from portico.sources.registry import SourceOptions

    config = load_config(site, store)
    options = SourceOptions(
        format=format,
        id_field=id_field,
        tables=tuple(table or ()),
        all_tables=all_tables,
        group_by=group_by or "",
        type=type,
        max_pages=max_pages,
        delay=delay,
        allow_hosts=(*config.allow_hosts, *(allow_host or ())),
    )
    if sources:
        work = _load_some(config, sources, collection, options, quiet=as_json)
    else:
        work = load_all(config, quiet=as_json)
    reports: list[LoadReport] = asyncio.run(work)
    if embed:
        asyncio.run(_embed(config, quiet=as_json))
    print_reports(reports, as_json)
    if strict and any(report.failed for report in reports):
        raise typer.Exit(1)


async def _load_some(
    config: Config, urls: Sequence[str], collection: str | None, options: Any, *, quiet: bool
) -> list["LoadReport"]:
    from portico.cli.tables import choose_tables
    from portico.sources.ingest import collection_for, ingest
    from portico.sources.registry import open_source

    check_sources(urls)
    chosen = [(url, source_options) for url in urls for source_options in choose_tables(url, options, collection)]
    async with site_store(config) as store:
        reports: list[LoadReport] = []
        for url, source_options in chosen:
            source = open_source(url, source_options)
            with ProgressBar(redact_url(url), quiet) as bar:
                name = collection or collection_for(url, source_options.table)
                report = await ingest(store, source, name, declared=config.collection, on_progress=bar.show_report)
                reports.append(replace(report, source=redact_url(url)))
        return reports


async def _embed(config: Config, *, quiet: bool) -> None:
    from portico.server.assembly import embed_everything

    with ProgressBar("vectors", quiet) as bar:
        await embed_everything(config, bar.update)


def print_reports(reports: "Sequence[LoadReport]", as_json: bool) -> None:
    for bad in (bad for report in reports for bad in report.failures):
        err.print(f"[yellow]{plain(bad.where)}[/]: {plain(bad.reason)}", highlight=False, soft_wrap=True)
    left_out = sum(report.failed - len(report.failures) for report in reports)
    if left_out:
        err.print(f"[yellow]… and {left_out} more invalid records[/]")
    for report in reports:
        if report.has_gap:
            says = "part of it could not be read, so no items were removed"
            err.print(f"[yellow]{plain(report.source)}[/]: {says}", highlight=False, soft_wrap=True)
    counts = ("added", "changed", "unchanged", "removed", "failed")
    total = {name: sum(getattr(report, name) for report in reports) for name in counts}
    if as_json:
        sources = [{"source": r.source, **{n: getattr(r, n) for n in counts}} for r in reports]
        failures = [{"where": b.where, "reason": b.reason} for r in reports for b in r.failures]
        print_json({**total, "sources": sources, "failures": failures})
        return
    for report in reports:
        says = ", ".join(f"{getattr(report, name):,} {name}" for name in counts)
        out.print(f"{plain(report.source)}: {says} in {report.seconds:.1f} s", highlight=False, soft_wrap=True)
