"""The command `portico check`: looks for faults in a site file and its store."""

import asyncio

import typer

from portico.cli.options import JsonOption, SiteOption, StoreOption
from portico.cli.sites import load_config
from portico.cli.terminal import out, plain, print_json


def check(
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a site file and its store for problems. Exits with 1 if there are any.

    portico check --site shop/portico.toml
    """
    from portico.cli.site_check import check_site

    findings = asyncio.run(check_site(load_config(site, store)))
    is_ok = all(finding.is_ok for finding in findings)
    if as_json:
        rows = [{"what": item.subject, "well": item.is_ok, "says": item.message} for item in findings]
        print_json({"well": is_ok, "findings": rows})
    else:
        for finding in findings:
            mark = "[green]✓[/]" if finding.is_ok else "[red]✗[/]"
            out.print(f"{mark} {plain(finding.subject)}: {plain(finding.message)}", highlight=False, soft_wrap=True)
    if not is_ok:
        raise typer.Exit(1)
