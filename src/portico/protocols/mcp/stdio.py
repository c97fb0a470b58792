"""A site over standard input and output, for a client on the same machine that started it."""

from mcp.server.stdio import stdio_server

from portico.config import Config
from portico.protocols.mcp.server import made
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Observe


async def serve(site: Site, config: Config, observe: Observe, caller: Caller) -> None:
    """Answer this caller until its client closes the input."""
    server = made(site, config, observe, local=caller)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
