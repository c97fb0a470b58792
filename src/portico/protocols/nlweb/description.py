"""What discovery tells of NLWeb."""

from http import HTTPStatus
from typing import Final

from portico.protocols import Description, Interface, LlmsLink, OpenApi, Schema, Services, Tag
from portico.protocols.nlweb.answers import FlatAnswer, NlwebAnswer, schema_with_types
from portico.protocols.nlweb.dialects import V54
from portico.protocols.nlweb.errors import CODES
from portico.protocols.nlweb.models import ask_schema, await_schema, flat_schema
from portico.protocols.nlweb.routes import FORM
from portico.protocols.openapi import (
    EVENT_STREAM,
    JSON,
    QUESTIONS,
    content,
    operation,
    parameter,
    reference,
    refusal_components,
    response,
)
from portico.protocols.schemas import whole_schema

_FAILURES: Final = sorted({code.status for code in CODES.values() if code.status != HTTPStatus.OK})
_LINK: Final = (
    "- [NLWeb over HTTP]({base}/ask): `curl {base}/ask -H 'content-type: application/json' "
    """-d '{{"query": {{"text": "your question"}}}}'`"""
)


def describe(_: Services) -> Description:
    return Description(
        openapi=_openapi,
        interfaces=(Interface("/ask", "/openapi.json"),),
        links=(LlmsLink("Ask", _LINK, 3),),
        uncrawled=("/ask", "/await"),
    )


def _openapi(question: str) -> OpenApi:
    failures = [reference("schemas", "Answer"), reference("schemas", "EarlierAnswer")]
    text = "Ask in plain words (NLWeb). The same requests go over WebSocket, at the same addresses."
    return OpenApi(
        tags=(Tag(QUESTIONS, text, 0),),
        paths=_paths(question),
        components={
            "schemas": {
                "AskRequest": ask_schema(),
                "FlatRequest": flat_schema(),
                "AwaitRequest": await_schema(),
                "EarlierAnswer": schema_with_types(V54),
                "Answer": whole_schema(NlwebAnswer),
                "FlatAnswer": whole_schema(FlatAnswer),
            },
            "responses": refusal_components("Failure", _FAILURES, content({"anyOf": failures}, JSON)),
        },
    )


def _paths(question: str) -> dict[str, Schema]:
    whole = content({"anyOf": [reference("schemas", name) for name in ("Answer", "EarlierAnswer", "FlatAnswer")]}, JSON)
    responses = {
        200: response("An answer, a question back, or a failure of what was asked", {**whole, **EVENT_STREAM}),
        202: response("A promise: look at it with /await", whole),
        **{status: reference("responses", f"Failure{status}") for status in _FAILURES},
    }
    request = {"anyOf": [reference("schemas", "AskRequest"), reference("schemas", "FlatRequest")]}
    body = {
        JSON: {"schema": request, "example": {"query": {"text": question}}},
        FORM: {"schema": reference("schemas", "FlatRequest"), "example": {"query": question, "streaming": False}},
    }
    checkin = {"schema": reference("schemas", "AwaitRequest"), "example": {"promise_token": "…", "action": "checkin"}}
    return {
        "/ask": {
            "post": operation(
                "post_ask",
                QUESTIONS,
                "Ask a question",
                responses,
                description="`prefer.streaming` chooses between one JSON object and events; else `Accept` does.",
                requestBody={"required": True, "content": body},
            ),
            "get": operation(
                "get_ask",
                QUESTIONS,
                "Ask a question in a URL",
                responses,
                description="Streams unless `streaming=false`. Parameters that are not listed are filters.",
                parameters=_url_parameters(question),
            ),
        },
        "/await": {
            "post": operation(
                "post_await",
                QUESTIONS,
                "Look at a promise, or cancel it",
                responses,
                requestBody={"required": True, "content": {JSON: checkin}},
            )
        },
    }


def _url_parameters(question: str) -> list[Schema]:
    schema = flat_schema()
    parameters = {
        name: parameter(name, "query", member, required=name in schema["required"])
        for name, member in schema["properties"].items()
    }
    parameters["query"]["example"] = question
    parameters["streaming"]["example"] = False
    return list(parameters.values())
