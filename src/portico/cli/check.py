"""The command `portico check`: looks for faults in a site file and its store."""

import asyncio

import typer

from portico.cli.options import JsonOption, SiteOption, StoreOption
from portico.cli.sites import load_config, site_options
from portico.cli.terminal import out, plain, print_json


def check(
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a site file and its store for problems, and show what is loaded. Exits with 1 if there are problems.

    portico check --site shop/portico.toml
    """
    from portico.cli.load_report import print_loaded, report_json
    from portico.cli.site_check import check_site, describe_loaded

    config = load_config(site, store)
    findings = asyncio.run(check_site(config))
    report = asyncio.run(describe_loaded(config))
    is_ok = all(finding.is_ok for finding in findings)
    if as_json:
        rows = [{"what": item.subject, "well": item.is_ok, "says": item.message} for item in findings]
        print_json({"well": is_ok, "findings": rows, **report_json(report)})
    else:
        for finding in findings:
            mark = "[green]✓[/]" if finding.is_ok else "[red]✗[/]"
            out.print(f"{mark} {plain(finding.subject)}: {plain(finding.message)}", highlight=False, soft_wrap=True)
        print_loaded(report, site_options(site, store))
    if not is_ok:
        raise typer.Exit(1)
