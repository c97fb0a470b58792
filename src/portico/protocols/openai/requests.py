"""What clients send, as types: one question in its conversation. Members without an effect are named, not refused."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from portico.catalog import Catalog
from portico.errors import BadRequest
from portico.protocols.openai.errors import InvalidParameter, UnknownModel
from portico.protocols.openai.settings import OpenaiSettings

MAX_PREVIOUS = 20  # earlier questions that are read
MAX_PREVIOUS_TEXT = 2000  # characters of one
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_SYSTEM = frozenset({"system", "developer"})
_EXAMPLE = 'Send {"model": "portico", "messages": [{"role": "user", "content": "a warm soup"}]}.'


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class InputMessage(msgspec.Struct, frozen=True):
    """A message, or another entry of a conversation, such as the result of a tool."""

    role: str | None = None
    content: Any = None


class CompletionRequest(msgspec.Struct, frozen=True):
    """The body of `/v1/chat/completions`."""

    model: str
    messages: list[InputMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    user: str | None = None


class ResponseRequest(msgspec.Struct, frozen=True):
    """The body of `/v1/responses`."""

    model: str
    input: str | list[InputMessage]
    stream: bool | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    instructions: Any = None
    metadata: dict[str, str] | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationInput:
    """A question with what was asked before it."""

    text: str
    previous: tuple[str, ...] = ()  # earlier questions, oldest first
    full_text: str = ""  # every message, for the usage
    ignored: tuple[str, ...] = ()  # members of the request that have no effect here


def read_completion(body: Any) -> tuple[CompletionRequest, ConversationInput]:
    request = _convert(body, CompletionRequest)
    if request.n not in {None, 1}:
        raise InvalidParameter(f"`n` must be 1, not {request.n}", param="n")
    return request, _read_prompt(request.messages, "messages", _ignored_members(body, CompletionRequest))


def read_response(body: Any) -> tuple[ResponseRequest, ConversationInput]:
    request = _convert(body, ResponseRequest)
    if request.background:
        raise InvalidParameter("`background` must be false: nothing runs in the background here", param="background")
    messages = [InputMessage("user", request.input)] if isinstance(request.input, str) else request.input
    ignored = _ignored_members(body, ResponseRequest)
    return request, _read_prompt(messages, "input", (*ignored, *(("instructions",) if request.instructions else ())))


def collection_of(model: str, catalog: Catalog, settings: OpenaiSettings) -> tuple[str, ...]:
    """Return the collections that a model answers from; empty for the whole site."""
    name, _, collection = model.partition("/")
    names = {item.name for item in catalog.public}
    if name != settings.model or (collection and collection not in names) or model.endswith("/"):
        hint = f"`{settings.model}` is the whole site; GET /v1/models lists the others."
        raise UnknownModel(f"There is no model {model[:100]!r}", param="model", hint=hint)
    return (collection,) if collection else ()


def _convert(body: Any, kind: type[Any]) -> Any:
    if not isinstance(body, dict):
        raise BadRequest("The request must be a JSON object", hint=_EXAMPLE)
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        param = place.rstrip("`") or None
        where = f"`{param}`: " if param else ""
        raise InvalidParameter(f"{where}{reason}", param=param, hint=_EXAMPLE) from error


def _ignored_members(body: Mapping[str, Any], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the members that have a value and no effect."""
    members = kind.__struct_fields__
    return tuple(str(name)[:64] for name, value in body.items() if name not in members and value not in (None, [], {}))


def _read_prompt(messages: Sequence[InputMessage], param: str, ignored: Iterable[str]) -> ConversationInput:
    if not messages or messages[-1].role != "user":
        raise InvalidParameter(f"The last entry of `{param}` must have the role `user`", param=param, hint=_EXAMPLE)
    texts = [_text_of(message, f"{param}[{place}]") for place, message in enumerate(messages)]
    questions = [text for message, text in zip(messages, texts, strict=True) if message.role == "user" and text.strip()]
    if not texts[-1].strip():
        raise InvalidParameter(f"The last entry of `{param}` is empty", param=param, hint=_EXAMPLE)
    has_system = any(message.role in _SYSTEM for message in messages)
    return ConversationInput(
        questions[-1],
        tuple(text[:MAX_PREVIOUS_TEXT] for text in questions[:-1][-MAX_PREVIOUS:]),
        "\n".join(texts),
        (*ignored, *((f"{param}: system",) if has_system else ())),
    )


def _text_of(message: InputMessage, param: str) -> str:
    content: object = message.content
    match content:
        case None:
            return ""
        case str() as text:
            return text
        case list():
            parts = cast("list[Any]", content)
            return "\n".join(_part_text(part, message, param) for part in parts)
        case _:
            raise InvalidParameter(f"`{param}.content` must be a string or a list of parts", param=f"{param}.content")


def _part_text(part: Any, message: InputMessage, param: str) -> str:
    match part:
        case {"type": str(kind), "text": str(text)} if kind in _TEXT_PARTS:
            return text
        case _ if message.role != "user":
            return ""  # such as a refusal of an earlier answer
        case {"type": str(kind)}:
            problem = f"`{param}.content` has a part of the type {kind[:64]!r}; this site reads text only"
            raise InvalidParameter(problem, param=f"{param}.content")
        case _:
            raise InvalidParameter(f"`{param}.content` has a part without a type", param=f"{param}.content")
