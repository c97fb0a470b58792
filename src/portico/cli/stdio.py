"""The command `portico mcp`: serves a site to one client over standard input and output."""

import asyncio
from typing import Annotated

import typer

from portico.cli.options import SiteOption, StoreOption
from portico.cli.sites import load_config
from portico.config import Config


def serve_stdio(
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Act as the holder of this API key.", show_default=False)
    ] = None,
) -> None:
    """Serve the site over MCP on standard input and output.

    For MCP clients that start their servers. Without --api-key, the client is anonymous.

    portico mcp --site shop/portico.toml
    """
    asyncio.run(_serve(load_config(site, store), api_key))


async def _serve(config: Config, api_key: str | None) -> None:
    from portico.access.identity import RequestCredentials
    from portico.protocols.mcp.server import serve_stdio as run_server
    from portico.server.assembly import open_site
    from portico.telemetry import JsonLog

    log = JsonLog(level=config.server.log_level)
    async with open_site(config, record=log, restarts=False) as parts:
        await parts.index.start()
        caller = await parts.site.identity.caller(RequestCredentials(api_key or ""))
        await run_server(parts.site, config, parts.record, caller)
