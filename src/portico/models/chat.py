"""The chat completions API of OpenAI, which most local servers speak too."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult

import msgspec
from msgspec import Meta

from portico.errors import Unavailable
from portico.models.address import Secret, service_key, service_url
from portico.models.language import LanguageModel, Prompt
from portico.models.options import read_options
from portico.models.service import (
    BROKEN,
    UNREADABLE,
    Clock,
    Heard,
    ModelOptions,
    ServiceModel,
    Structured,
    decode,
    instructions,
    sendable,
)

Limit: TypeAlias = Literal["max_tokens", "max_completion_tokens"]
Option = TypeVar("Option")
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]

END = b"[DONE]"

LIMITS: dict[str, Limit] = {"api.openai.com": "max_completion_tokens"}
"""Newer models of OpenAI refuse the name that every other server knows."""


class ChatOptions(ModelOptions, frozen=True, forbid_unknown_fields=True):
    """Of `openai:`. `limit` is the field that bounds the reply's tokens."""

    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    model: str
    temperature: float | None
    limit: Limit

    def request(self, prompt: Prompt, structured: Structured) -> bytes:
        system = instructions(prompt, structured)
        messages = [{"role": "system", "content": system}] if system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*messages, {"role": "user", "content": sendable(prompt.user)}],
            self.limit: prompt.most,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return msgspec.json.encode(body | _response_format(prompt, structured))

    def event(self, data: bytes) -> Heard:
        if data == END:
            return Heard(finished=True, last=True)
        chunk = decode(data, _Chunk)
        part = next(iter(_checked(chunk.error, chunk.choices)), _Part())  # the chunk with the usage has none
        return _heard(chunk.usage, part.delta.content, finished=part.finish_reason is not None)

    def whole(self, data: bytes) -> Heard:
        answer = decode(data, _Answer)
        choices = _checked(answer.error, answer.choices or None)
        return _heard(answer.usage, choices[0].message.content, finished=True, last=True)


def open_model(url: SplitResult, secret: Secret, clock: Clock) -> LanguageModel:
    options = read_options(url, ChatOptions)
    endpoint, model = service_url(url, "chat/completions")
    headers = (
        {"Authorization": f"Bearer {service_key(options.key_env, secret, 'language model')}"} if options.key_env else {}
    )
    limit = options.limit or LIMITS.get(endpoint.host, "max_tokens")
    return ServiceModel(model, Chat(model, options.temperature, limit), endpoint, headers, options, clock)


def _response_format(prompt: Prompt, structured: Structured) -> dict[str, Any]:
    if prompt.schema is None or structured == "none":
        return {}
    if structured == "object":
        return {"response_format": {"type": "json_object"}}
    described = {"name": "reply", "strict": True, "schema": prompt.schema}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Part(msgspec.Struct, frozen=True):
    """A choice of a chunk."""

    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Part] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


def _checked(error: Any, choices: list[Option] | None) -> list[Option]:
    if error is not None:
        raise Unavailable(BROKEN)
    if choices is None:
        raise Unavailable(UNREADABLE)
    return choices


def _heard(usage: _Usage | None, text: str | None, *, finished: bool, last: bool = False) -> Heard:
    counted = usage or _Usage()
    return Heard(text or "", counted.prompt_tokens, counted.completion_tokens, finished, last)
