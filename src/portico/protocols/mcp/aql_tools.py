"""MCP-AQL as tools of MCP: one for each family of operations, one for all of them, or both. Results are envelopes."""

import secrets
from collections.abc import Mapping
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.connection import Connection

from portico.catalog import Kind
from portico.config import Config
from portico.protocols.aql.endpoint import DONE, Endpoint
from portico.protocols.aql.envelopes import INTERNAL, Envelope
from portico.protocols.aql.requests import SCHEMA
from portico.protocols.aql.shapes import Asking
from portico.protocols.aql.surface import Surface, tools_of
from portico.protocols.mcp.elicitation import Context, is_modern
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Observe

WHOLE = 100.0  # percent
SESSION = "portico.aql"  # in the state of a connection: what its session is called


class AqlTools:
    """`is_local`: whether all requests come from one client, as over standard input."""

    def __init__(self, site: Site, config: Config, observe: Observe, *, is_local: bool = False) -> None:
        self._surface = Surface(site, config)
        self._endpoint = Endpoint(self._surface, site, config, observe)
        self._site = site
        self._tells_errors = config.aql.errors
        self._is_local = is_local
        self._families = tools_of(config.aql)

    # What there is

    def has(self, name: str) -> bool:
        return name in self._families

    def listed(self, caller: Caller) -> list[types.Tool]:
        described = self._surface.described(caller) if self._families else {}
        return [
            types.Tool(
                name=name,
                description=described[name],
                input_schema=SCHEMA,
                annotations=annotations(self._surface.kinds_of(family) if family else frozenset(Kind)),
            )
            for name, family in self._families.items()
        ]

    # What is called

    async def call(
        self, name: str, caller: Caller, arguments: Mapping[str, Any], context: Context
    ) -> types.CallToolResult:
        async def hear(percent: float, message: str) -> None:
            await context.session.report_progress(percent, WHOLE, message)

        await hear(0.0, "Reading the request")
        asking = Asking(caller, self._session(context))
        envelope = await self._endpoint.answer(arguments, self._families[name], asking, hear)
        await hear(DONE, "Completing")
        result = self._result(envelope)
        await hear(WHOLE, "Done")
        return result

    def _result(self, envelope: Envelope) -> types.CallToolResult:
        is_error = envelope.code == INTERNAL or (self._tells_errors and bool(envelope.code))
        return types.CallToolResult(
            content=[types.TextContent(text=envelope.encoded.decode())],
            structured_content=msgspec.json.decode(envelope.encoded),
            is_error=is_error,
        )

    def _session(self, context: Context) -> str:
        """What the session of a request is called: a label of the server's own. Empty where requests stand alone."""
        connection = _connection(context)
        if is_modern(context) or (connection.session_id is None and not self._is_local):
            return ""
        if SESSION not in connection.state:
            connection.state[SESSION] = secrets.token_hex(8)
            connection.exit_stack.push_async_callback(self._leave, connection)
        return connection.state[SESSION]

    async def _leave(self, connection: Connection) -> None:
        await self._site.guard.end_session(connection.state[SESSION])


def annotations(kinds: frozenset[Kind]) -> types.ToolAnnotations:
    """What may happen behind a tool, by the riskiest of what it offers."""
    return types.ToolAnnotations(
        read_only_hint=kinds == frozenset({Kind.READ}),
        destructive_hint=bool(kinds - {Kind.READ, Kind.CREATE}),
        open_world_hint=False,
    )


def _connection(context: Context) -> Connection:
    # The SDK keeps the way to a session's state and end to itself: a handler gets no connection, only this.
    return context.session._connection  # pyright: ignore[reportPrivateUsage]
