"""MCP-AQL as tools: one for each family of operations, one for all, or both. MCP serves them; results are envelopes."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from starlette.responses import Response

from portico.catalog import Kind
from portico.config import Config
from portico.protocols import ToolDescription, ToolOutput
from portico.protocols.aql.endpoint import FINISHED_PERCENT, AqlEndpoint, answer_malformed
from portico.protocols.aql.envelopes import INTERNAL
from portico.protocols.aql.requests import SCHEMA
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import AqlRequestContext
from portico.protocols.aql.surface import OperationRegistry, tools_of
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Recorder

SAFETY_INSTRUCTIONS = (
    "This server watches over what you do with all your tools. Begin with the operation execute_agent of {tool}. "
    "Before every action that has an effect, here or elsewhere, call record_execution_step with next_action_hint, one "
    "action at a time, and say in outcome how the step before went. Act only if autonomy.continue is true; if it is "
    "false, tell the person and wait. End with complete_execution or abort_execution."
)


class AqlToolSet:
    """Implements `ToolSet`. Cheap to make: the operations are read when the tools are first listed or called."""

    def __init__(self, site: Site, config: Config, record: Recorder) -> None:
        self._site = site
        self._config = config
        self._record = record
        self._settings = config.section(AqlSettings)
        self._families = tools_of(self._settings)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._families)

    @property
    def instructions(self) -> str:
        is_safety = self._settings.offers == "safety"
        return SAFETY_INSTRUCTIONS.format(tool=self._settings.single_tool) if is_safety else ""

    def list_tools(self, caller: Caller) -> list[ToolDescription]:
        descriptions = self._surface.tool_descriptions(caller) if self._families else {}
        return [
            ToolDescription(
                name, descriptions[name], SCHEMA, self._surface.kinds_of(family) if family else frozenset(Kind)
            )
            for name, family in self._families.items()
        ]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        caller: Caller,
        session: str,
        report: Callable[[float, str], Awaitable[None]],
    ) -> ToolOutput:
        await report(0.0, "Reading the request")
        context = AqlRequestContext(caller, session)
        envelope = await self._endpoint.answer(arguments, self._families[name], context, report)
        await report(FINISHED_PERCENT, "Completing")
        is_error = envelope.code == INTERNAL or (self._settings.errors and bool(envelope.code))
        return ToolOutput(envelope.json, is_error)

    def answer_malformed(self, body: bytes) -> Response | None:
        return answer_malformed(body, self._settings)

    @cached_property
    def _surface(self) -> OperationRegistry:
        return OperationRegistry(self._site, self._config)

    @cached_property
    def _endpoint(self) -> AqlEndpoint:
        return AqlEndpoint(self._surface, self._site, self._config, self._record)
