"""What OpenAPI says of the endpoints."""

from functools import partial
from typing import Any, Literal

import msgspec

from portico.protocols import Description, OpenApi, Schema, Services
from portico.protocols.openai import COMPLETIONS_PATH, MODELS_PATH, RESPONSES_PATH
from portico.protocols.openai.requests import CompletionRequest, ResponseRequest
from portico.protocols.openai.settings import OpenaiSettings
from portico.protocols.openapi import (
    EVENT_STREAM,
    JSON,
    QUESTIONS,
    TEXT,
    content,
    operation,
    parameter,
    reference,
    refusals,
    response,
)
from portico.protocols.problems import STATUSES
from portico.protocols.schemas import whole_schema

# In the schemas of types, null means absent; here the API always sends both members.
_NULLABLE: Schema = {"type": ["string", "null"]}
_ERROR: Schema = {
    "type": "object",
    "properties": {"message": TEXT, "type": TEXT, "param": _NULLABLE, "code": _NULLABLE},
    "required": ["message", "type", "param", "code"],
}
ERROR_SCHEMA: Schema = {"type": "object", "properties": {"error": _ERROR}, "required": ["error"]}


class Model(msgspec.Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(msgspec.Struct):
    object: Literal["list"]
    data: list[Model]


class OpenaiCompletion(msgspec.Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, int]
    portico: dict[str, Any]


class OpenaiResponse(msgspec.Struct):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed"]
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any]
    portico: dict[str, Any]


TYPES = (CompletionRequest, ResponseRequest, Model, ModelList, OpenaiCompletion, OpenaiResponse)


def describe(services: Services) -> Description:
    settings = services.config.section(OpenaiSettings)
    if not settings.enabled:
        return Description()
    return Description(openapi=partial(_openapi, settings.model))


def _openapi(model: str, question: str) -> OpenApi:
    completion = {"model": model, "messages": [{"role": "user", "content": question}]}
    name = parameter("model", "path", {**TEXT, "minLength": 1}, required=True)
    complete = _operation(
        "post_v1_chat_completions",
        "Create a chat completion (OpenAI)",
        "OpenaiCompletion",
        CompletionRequest,
        completion,
    )
    respond = _operation(
        "post_v1_responses",
        "Create a response (OpenAI)",
        "OpenaiResponse",
        ResponseRequest,
        {"model": model, "input": question},
    )
    return OpenApi(
        paths={
            MODELS_PATH: {"get": _operation("get_v1_models", "List the models", "ModelList")},
            f"{MODELS_PATH}/{{model}}": {
                "parameters": [name],
                "get": _operation("get_v1_model", "Get a model", "Model"),
            },
            COMPLETIONS_PATH: {"post": complete},
            RESPONSES_PATH: {"post": respond},
        },
        components={"schemas": {"OpenaiError": ERROR_SCHEMA, **{kind.__name__: whole_schema(kind) for kind in TYPES}}},
    )


def _operation(
    id: str, summary: str, answer: str, request: type[msgspec.Struct] | None = None, example: Any = None
) -> Schema:
    forms = content(reference("schemas", answer), JSON)
    more: Schema = {}
    if request:
        body = {"schema": reference("schemas", request.__name__), "example": example}
        more = {"requestBody": {"required": True, "content": {JSON: body}}}
        forms = {**forms, **EVENT_STREAM}
    statuses = sorted({status.value for status in STATUSES.values()})
    errors = refusals(statuses, content(reference("schemas", "OpenaiError"), JSON))
    return operation(id, QUESTIONS, summary, {200: response("The answer", forms), **errors}, **more)
