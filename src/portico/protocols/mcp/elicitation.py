"""Elicitation over MCP: a form that the client shows while the call waits, or before a second request.

Answers come from the client. They never prove that a person chose them.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from portico.ask.commands import CONFIRM
from portico.requests import Caller

ROUND = "clarify"  # name of the one request in a round
MAX_ROUNDS = 3  # forms during one call
FORM_SECONDS = 300.0  # that a call waits for one
LISTS_SINCE = "2025-11-25"  # the first revision whose forms can take several choices
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class FormReply:
    """The answer to a form."""

    answers: Mapping[str, Any]
    declined: bool = False


def can_ask(context: Context) -> bool:
    """Return whether the client shows forms, and a question can reach it."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return is_modern(context) or context.session.can_send_request


def is_modern(context: Context) -> bool:
    """Return whether the client speaks a revision without sessions."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(answer: Mapping[str, Any], context: Context) -> types.ElicitRequestFormParams | None:
    """Return the elicitation of an NLWeb answer as a form.

    None if there is none, if the client shows no forms, or if a form has no field for one of the questions.
    """
    elicitation = answer.get("elicitation")
    if elicitation is None or not can_ask(context):
        return None
    fields = {question["id"]: _field(question, context.protocol_version) for question in elicitation["questions"]}
    if not fields or None in fields.values():
        return None
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return types.ElicitRequestFormParams(message=elicitation["text"], requested_schema=schema)


def _field(question: Mapping[str, Any], version: str) -> dict[str, Any] | None:
    field: dict[str, Any] = {"title": question["text"]}
    if "default" in question:
        field["default"] = question["default"]
    options = question.get("options")
    match question["type"]:
        case "boolean":
            return {"type": "boolean", **field}
        case "number":
            return {"type": "number", **field}
        case "multi_select" if options:
            if version < LISTS_SINCE:
                return None
            return {"type": "array", "items": {"type": "string", "enum": options}, **field}
        case "single_select" if options:
            return {"type": "string", "enum": options, **field}
        case _:
            return {"type": "string", **field}


class Forms:
    """Counts the forms that are shown while a call waits. Beyond the limit, the questions are in the result."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()  # by caller

    def has_room(self, caller: Caller) -> bool:
        return self._waiting[caller.rate_key] < self._most

    async def ask(self, context: Context, caller: Caller, form: types.ElicitRequestFormParams) -> FormReply:
        """Show a form while the call waits. One that is not answered in time counts as declined."""
        self._waiting[caller.rate_key] += 1
        try:
            async with asyncio.timeout(FORM_SECONDS):
                result = await context.session.elicit_form(
                    form.message, form.requested_schema, related_request_id=context.request_id
                )
        except TimeoutError:
            result = types.ElicitResult(action="cancel")
        finally:
            self._waiting[caller.rate_key] -= 1
            self._waiting += Counter()  # drops counts of zero
        return parse_reply(result, form.requested_schema["properties"])


def reply_of(params: types.CallToolRequestParams) -> FormReply | None:
    """Return the answers that a second request carries."""
    response = (params.input_responses or {}).get(ROUND)
    return parse_reply(response) if isinstance(response, types.ElicitResult) else None


def parse_reply(result: types.ElicitResult, fields: Mapping[str, Any] | None = None) -> FormReply:
    if result.action == "accept":
        return FormReply(cast("dict[str, Any]", result.content or {}))
    # Declining confirms nothing; every other question may stay open.
    return FormReply({CONFIRM: False} if fields and CONFIRM in fields else {}, declined=True)
