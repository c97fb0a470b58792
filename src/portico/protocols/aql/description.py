"""What discovery tells of MCP-AQL."""

from typing import Final

from portico.protocols import Description, OpenApi, Schema, Services
from portico.protocols.aql.envelopes import STATUSES
from portico.protocols.aql.requests import SCHEMA
from portico.protocols.aql.routes import PATH
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.openapi import AGENTS, DOCUMENT, JSON, TEXT, operation, parameter, refusals, response

_REFUSALS: Final = sorted({status.value for status in STATUSES.values()} | {401})


def describe(services: Services) -> Description:
    is_off = services.config.section(AqlSettings).mode == "none"
    return Description() if is_off else Description(openapi=_openapi)


def _openapi(_: str) -> OpenApi:
    responses = {200: response("The result of the operation", DOCUMENT), **refusals(_REFUSALS, DOCUMENT)}
    example: Schema = {"operation": "introspect", "params": {"query": "operations"}}
    body = {"required": True, "content": {JSON: {"schema": SCHEMA, "example": example}}}
    family = parameter("endpoint", "path", {**TEXT, "minLength": 1}, required=True)
    summary = "MCP-AQL: operations of one family"
    return OpenApi(
        paths={
            PATH: {"post": operation("post_aql", AGENTS, "MCP-AQL: any operation", responses, requestBody=body)},
            f"{PATH}/{{endpoint}}": {
                "parameters": [family],
                "post": operation("post_aql_endpoint", AGENTS, summary, responses, requestBody=body),
            },
        }
    )
