"""What discovery tells of A2A."""

from http import HTTPStatus
from typing import Final

from portico.protocols import Description, Interface, LlmsLink, OpenApi, Schema, Services
from portico.protocols.a2a.card import PATH as CARD_PATH
from portico.protocols.a2a.card import RPC_PATH
from portico.protocols.a2a.errors import CODES
from portico.protocols.openapi import (
    AGENTS,
    DOCUMENT,
    DOCUMENT_PROBLEMS,
    EVENT_STREAM,
    JSON,
    cacheable,
    content,
    operation,
    read_operation,
    reference,
    refusals,
    response,
    rpc_body,
)

CARD: Final = "application/a2a-agent-card+json"
_REFUSALS: Final = sorted({code.status for code in CODES.values() if code.status != HTTPStatus.OK})
_LINK: Final = (
    f"- [A2A]({{base}}{RPC_PATH}): send a message with the question. "
    f"The [agent card]({{base}}{CARD_PATH}) lists the skills."
)


def describe(_: Services) -> Description:
    return Description(
        openapi=_openapi,
        interfaces=(Interface(RPC_PATH, CARD_PATH, JSON, CARD),),
        links=(LlmsLink("Ask", _LINK, 2),),
        uncrawled=(RPC_PATH,),
    )


def _openapi(question: str) -> OpenApi:
    rpc = content(reference("schemas", "RpcResponse"), JSON)
    responses = {200: response("The response", {**rpc, **EVENT_STREAM}), **refusals(_REFUSALS, rpc)}
    message: Schema = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": question}]}
    body = rpc_body("message/send", {"message": message})
    post = operation("post_a2a", AGENTS, "A2A: a message to the agent", responses, requestBody=body)
    card = read_operation(CARD_PATH, "What the A2A agent can do", {**cacheable(DOCUMENT), **DOCUMENT_PROBLEMS})
    return OpenApi(paths={RPC_PATH: {"post": post}, **card})
