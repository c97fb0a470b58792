"""Questions back through MCP: as a form that the client shows, while it waits or for a second request.

Answers come from the client. They say what somebody chose, and never that it was a person.
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

ROUND = "clarify"  # the name of the one thing asked for in a round
MAX_ROUNDS = 3  # forms during one call
FORM_SECONDS = 300.0  # that a call waits for one
LISTS_SINCE = "2025-11-25"  # the first revision whose forms can take several choices
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a form."""

    answers: Mapping[str, Any]
    declined: bool = False


def can_ask(context: Context) -> bool:
    """Whether the client shows forms, and a question reaches it."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return is_modern(context) or context.session.can_send_request


def is_modern(context: Context) -> bool:
    """Whether the client speaks a revision in which every request stands alone."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def form(answer: Mapping[str, Any], context: Context) -> types.ElicitRequestFormParams | None:
    """What an answer of NLWeb asks back, as a form.

    None if it asks nothing, if the client shows no forms, or if they have no field for one of the questions.
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
    shown: dict[str, Any] = {"title": question["text"]}
    if "default" in question:
        shown["default"] = question["default"]
    options = question.get("options")
    match question["type"]:
        case "boolean":
            return {"type": "boolean", **shown}
        case "number":
            return {"type": "number", **shown}
        case "multi_select" if options:
            if version < LISTS_SINCE:
                return None
            return {"type": "array", "items": {"type": "string", "enum": options}, **shown}
        case "single_select" if options:
            return {"type": "string", "enum": options, **shown}
        case _:
            return {"type": "string", **shown}


class Forms:
    """Forms that are shown while their call waits. So many for each caller: others find the questions in the result."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()  # by caller

    def has_room(self, caller: Caller) -> bool:
        return self._waiting[caller.rate_key] < self._most

    async def answered(self, context: Context, caller: Caller, wanted: types.ElicitRequestFormParams) -> Reply:
        """Ask while the call waits. A form that nobody answers in time is declined."""
        self._waiting[caller.rate_key] += 1
        try:
            async with asyncio.timeout(FORM_SECONDS):
                result = await context.session.elicit_form(
                    wanted.message, wanted.requested_schema, related_request_id=context.request_id
                )
        except TimeoutError:
            result = types.ElicitResult(action="cancel")
        finally:
            self._waiting[caller.rate_key] -= 1
            self._waiting += Counter()  # forgets those who wait for nothing
        return reply(result, wanted.requested_schema["properties"])


def asking(wanted: types.ElicitRequestFormParams, state: str) -> types.InputRequiredResult:
    """Ask for a second request that carries the answers, and the state as it is."""
    return types.InputRequiredResult(input_requests={ROUND: types.ElicitRequest(params=wanted)}, request_state=state)


def replied(params: types.CallToolRequestParams) -> Reply | None:
    """The answers that a second request carries."""
    given = (params.input_responses or {}).get(ROUND)
    return reply(given) if isinstance(given, types.ElicitResult) else None


def reply(result: types.ElicitResult, asked: Mapping[str, Any] | None = None) -> Reply:
    if result.action == "accept":
        return Reply(cast("dict[str, Any]", result.content or {}))
    # Nobody who declined has confirmed anything; every other question can be left open.
    return Reply({CONFIRM: False} if asked and CONFIRM in asked else {}, declined=True)
