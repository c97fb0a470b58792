"""The messages API of Anthropic. A reply of some shape is asked for as the input of a tool, which nobody runs."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import SplitResult

import msgspec
from msgspec import Meta

from portico.errors import Unavailable
from portico.models.address import Secret, service_key, service_url
from portico.models.language import LanguageModel, Prompt
from portico.models.options import read_options
from portico.models.service import (
    BROKEN,
    Clock,
    Heard,
    ModelOptions,
    ServiceModel,
    Structured,
    decode,
    instructions,
    sendable,
)

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]

VERSION = "2023-06-01"
TOOL = "reply"


class MessagesOptions(ModelOptions, frozen=True, forbid_unknown_fields=True):
    """Of `anthropic:`. The API has a way to ask for a schema, and none for just any object."""

    temperature: Annotated[float, Meta(ge=0, le=1)] | None = 0.0
    structured: Literal["schema", "none"] = "schema"


@dataclass(frozen=True, slots=True)
class Messages:
    model: str
    temperature: float | None

    def request(self, prompt: Prompt, structured: Structured) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": sendable(prompt.user)}],
            "max_tokens": prompt.most,
            "stream": True,
        }
        if system := instructions(prompt, structured):
            body["system"] = system
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return msgspec.json.encode(body | _tools(prompt, structured))

    def event(self, data: bytes) -> Heard:
        match decode(data, _Typed).type:
            case "message_start":
                return Heard(prompt_tokens=decode(data, _Start).message.usage.input_tokens)
            case "content_block_delta":
                delta = decode(data, _BlockDelta).delta
                return Heard(delta.text + delta.partial_json)
            case "message_delta":
                return Heard(completion_tokens=decode(data, _MessageDelta).usage.output_tokens)
            case "message_stop":
                return Heard(finished=True, last=True)
            case "error":
                raise Unavailable(BROKEN)
            case _:  # the API asks its clients to pass over events they do not know
                return Heard()

    def whole(self, data: bytes) -> Heard:
        if decode(data, _Typed).type == "error":
            raise Unavailable(BROKEN)
        message = decode(data, _Message)
        text = "".join(_text(block) for block in message.content)
        return Heard(text, message.usage.input_tokens, message.usage.output_tokens, finished=True, last=True)


def open_model(url: SplitResult, secret: Secret, clock: Clock) -> LanguageModel:
    options = read_options(url, MessagesOptions)
    endpoint, model = service_url(url, "messages")
    key = {"X-Api-Key": service_key(options.key_env, secret, "language model")} if options.key_env else {}
    headers = {"Anthropic-Version": VERSION, **key}
    return ServiceModel(model, Messages(model, options.temperature), endpoint, headers, options, clock)


def _tools(prompt: Prompt, structured: Structured) -> dict[str, Any]:
    if prompt.schema is None or structured == "none":
        return {}
    return {
        "tools": [{"name": TOOL, "description": "Gives the reply.", "input_schema": prompt.schema}],
        "tool_choice": {"type": "tool", "name": TOOL, "disable_parallel_tool_use": True},
    }


class _Typed(msgspec.Struct, frozen=True):
    type: str


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class _Started(msgspec.Struct, frozen=True):
    usage: _Usage = _Usage()


class _Start(msgspec.Struct, frozen=True):
    message: _Started


class _Delta(msgspec.Struct, frozen=True):
    """Of text, of a tool's input, or of thinking, which has neither field."""

    text: str = ""
    partial_json: str = ""


class _BlockDelta(msgspec.Struct, frozen=True):
    delta: _Delta


class _MessageDelta(msgspec.Struct, frozen=True):
    usage: _Usage = _Usage()


class _Block(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    input: Any = None


class _Message(msgspec.Struct, frozen=True):
    content: list[_Block]
    usage: _Usage = _Usage()


def _text(block: _Block) -> str:
    return msgspec.json.encode(block.input).decode() if block.type == "tool_use" else block.text
