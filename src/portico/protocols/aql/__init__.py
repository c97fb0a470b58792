"""MCP-AQL: all operations of a site behind a few endpoints that explain themselves, as tools of MCP and over HTTP.

`routes.py` and `tools.py` receive requests, `endpoint.py` runs them, and `surface.py` lists the operations.
`envelopes.py` has the forms of answers and errors.
"""

from typing import Final

from portico.config import Config
from portico.protocols import Example, Protocol
from portico.protocols.aql.settings import AqlSettings, read_environment


def _paths(config: Config) -> tuple[str, ...]:
    return () if config.section(AqlSettings).mode == "none" else ("/aql", "/aql/")


def _action_tool(config: Config) -> str | None:
    """Return the tool that has every operation, where the mode offers it."""
    settings = config.section(AqlSettings)
    return settings.single_tool if settings.has_single_tool else None


def _examples(config: Config) -> tuple[Example, ...]:
    command = """curl {base}/aql --json '{{"operation": "introspect", "query": "operations"}}'"""
    return (Example("MCP-AQL", "/aql", command, 5),) if _paths(config) else ()


PROTOCOL: Final = Protocol(
    name="aql",
    title="MCP-AQL",
    settings=AqlSettings,
    mount="portico.protocols.aql.routes:mount",
    describe="portico.protocols.aql.description:describe",
    paths=_paths,
    environment=read_environment,
    action_tool=_action_tool,
    tools="portico.protocols.aql.tools:AqlToolSet",
    examples=_examples,
)
