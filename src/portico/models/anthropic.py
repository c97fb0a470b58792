"""The messages API of Anthropic. Structured output is requested as the input of a tool, which is never run."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import SplitResult

import msgspec
from msgspec import Meta

from portico.errors import Unavailable
from portico.models.language import LanguageModel, Prompt
from portico.models.service import (
    BROKEN,
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

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]

VERSION = "2023-06-01"
TOOL = "reply"


class MessagesOptions(ModelOptions, frozen=True, forbid_unknown_fields=True):
    """Options of `anthropic:`. The API supports structured output by a schema, but not any JSON object."""

    temperature: Annotated[float, Meta(ge=0, le=1)] | None = 0.0
    structured: Literal["schema", "none"] = "schema"


@dataclass(frozen=True, slots=True)
class MessagesDialect:
    model: str
    temperature: float | None

    def build_request(self, prompt: Prompt, structured: Structured) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": sendable(prompt.user)}],
            "max_tokens": prompt.max_tokens,
            "stream": True,
        }
        if system := instructions(prompt, structured):
            body["system"] = system
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return msgspec.json.encode(body | _tools(prompt, structured))

    def parse_event(self, data: bytes) -> ReplyEvent:
        match decode(data, _TypedEvent).type:
            case "message_start":
                return ReplyEvent(prompt_tokens=decode(data, _MessageStart).message.usage.input_tokens)
            case "content_block_delta":
                delta = decode(data, _BlockDelta).delta
                return ReplyEvent(delta.text + delta.partial_json)
            case "message_delta":
                return ReplyEvent(completion_tokens=decode(data, _MessageDelta).usage.output_tokens)
            case "message_stop":
                return ReplyEvent(is_complete=True, is_last=True)
            case "error":
                raise Unavailable(BROKEN)
            case _:  # the API tells clients to ignore unknown events
                return ReplyEvent()

    def parse_reply(self, data: bytes) -> ReplyEvent:
        if decode(data, _TypedEvent).type == "error":
            raise Unavailable(BROKEN)
        message = decode(data, _Message)
        text = "".join(_text(block) for block in message.content)
        return ReplyEvent(text, message.usage.input_tokens, message.usage.output_tokens, is_complete=True, is_last=True)


def open_model(url: SplitResult, secret: Secret, clock: Clock) -> LanguageModel:
    options = parse_options(url, MessagesOptions)
    endpoint, model = service_url(url, "messages")
    key = {"X-Api-Key": service_key(options.key_env, secret, "language model")} if options.key_env else {}
    headers = {"Anthropic-Version": VERSION, **key}
    return ServiceModel(model, MessagesDialect(model, options.temperature), endpoint, headers, options, clock)


def _tools(prompt: Prompt, structured: Structured) -> dict[str, Any]:
    if prompt.schema is None or structured == "none":
        return {}
    return {
        "tools": [{"name": TOOL, "description": "Gives the reply.", "input_schema": prompt.schema}],
        "tool_choice": {"type": "tool", "name": TOOL, "disable_parallel_tool_use": True},
    }


class _TypedEvent(msgspec.Struct, frozen=True):
    type: str


class _MessageUsage(msgspec.Struct, frozen=True):
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class _StartedMessage(msgspec.Struct, frozen=True):
    usage: _MessageUsage = _MessageUsage()


class _MessageStart(msgspec.Struct, frozen=True):
    message: _StartedMessage


class _Delta(msgspec.Struct, frozen=True):
    """A piece of text, of a tool's input, or of thinking, which has neither field."""

    text: str = ""
    partial_json: str = ""


class _BlockDelta(msgspec.Struct, frozen=True):
    delta: _Delta


class _MessageDelta(msgspec.Struct, frozen=True):
    usage: _MessageUsage = _MessageUsage()


class _Block(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    input: Any = None


class _Message(msgspec.Struct, frozen=True):
    content: list[_Block]
    usage: _MessageUsage = _MessageUsage()


def _text(block: _Block) -> str:
    return msgspec.json.encode(block.input).decode() if block.type == "tool_use" else block.text
