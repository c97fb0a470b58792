"""The chat completions API of OpenAI, which most local servers support too."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult

import msgspec
from msgspec import Meta

from portico.errors import Unavailable
from portico.models.language import LanguageModel, Prompt
from portico.models.service import (
    BROKEN,
    UNREADABLE,
    Clock,
    ModelOptions,
    ReplyEvent,
    ServiceModel,
    Structured,
    decode,
    instructions,
    sendable,
)
from portico.models.urls import Secret, parse_options, service_key, service_url

Limit: TypeAlias = Literal["max_tokens", "max_completion_tokens"]
Option = TypeVar("Option")
Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]

END = b"[DONE]"

LIMITS: dict[str, Limit] = {"api.openai.com": "max_completion_tokens"}
"""Newer models of OpenAI refuse the field that every other server knows."""


class ChatOptions(ModelOptions, frozen=True, forbid_unknown_fields=True):
    """Options of `openai:`. `limit` is the field that limits the tokens of the reply."""

    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class ChatDialect:
    model: str
    temperature: float | None
    limit: Limit

    def build_request(self, prompt: Prompt, structured: Structured) -> bytes:
        system = instructions(prompt, structured)
        messages = [{"role": "system", "content": system}] if system else []
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*messages, {"role": "user", "content": sendable(prompt.user)}],
            self.limit: prompt.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return msgspec.json.encode(body | _response_format(prompt, structured))

    def parse_event(self, data: bytes) -> ReplyEvent:
        if data == END:
            return ReplyEvent(is_complete=True, is_last=True)
        chunk = decode(data, _Chunk)
        choices = _require_choices(chunk.error, chunk.choices)
        part = choices[0] if choices else _ChunkChoice()  # the chunk with the usage has none
        return _reply_event(chunk.usage, part.delta.content, finished=part.finish_reason is not None)

    def parse_reply(self, data: bytes) -> ReplyEvent:
        answer = decode(data, _ChatCompletion)
        choices = _require_choices(answer.error, answer.choices or None)
        return _reply_event(answer.usage, choices[0].message.content, finished=True, last=True)


def open_model(url: SplitResult, secret: Secret, clock: Clock) -> LanguageModel:
    options = parse_options(url, ChatOptions)
    endpoint, model = service_url(url, "chat/completions")
    headers = (
        {"Authorization": f"Bearer {service_key(options.key_env, secret, 'language model')}"} if options.key_env else {}
    )
    limit = options.limit or LIMITS.get(endpoint.host, "max_tokens")
    return ServiceModel(model, ChatDialect(model, options.temperature, limit), endpoint, headers, options, clock)


def _response_format(prompt: Prompt, structured: Structured) -> dict[str, Any]:
    if prompt.schema is None or structured == "none":
        return {}
    if structured == "object":
        return {"response_format": {"type": "json_object"}}
    schema = {"name": "reply", "strict": True, "schema": prompt.schema}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


class _ChatUsage(msgspec.Struct, frozen=True):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class _ChatDelta(msgspec.Struct, frozen=True):
    content: str | None = None


class _ChunkChoice(msgspec.Struct, frozen=True):
    delta: _ChatDelta = _ChatDelta()
    finish_reason: str | None = None


class _ChatMessage(msgspec.Struct, frozen=True):
    content: str | None


class _Choice(msgspec.Struct, frozen=True):
    message: _ChatMessage


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_ChunkChoice] | None = None
    usage: _ChatUsage | None = None
    error: Any = None


class _ChatCompletion(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: _ChatUsage | None = None
    error: Any = None


def _require_choices(error: Any, choices: list[Option] | None) -> list[Option]:
    if error is not None:
        raise Unavailable(BROKEN)
    if choices is None:
        raise Unavailable(UNREADABLE)
    return choices


def _reply_event(usage: _ChatUsage | None, text: str | None, *, finished: bool, last: bool = False) -> ReplyEvent:
    counts = usage or _ChatUsage()
    return ReplyEvent(text or "", counts.prompt_tokens, counts.completion_tokens, finished, last)
