"""Parses the messages of clients, and renders answers as parts. Sends and stores nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf import json_format

from portico.ask.prose import shorten
from portico.errors import BadRequest, Unsupported
from portico.items import MAX_EXACT_INTEGER
from portico.protocols.nlweb.errors import NoResults
from portico.protocols.nlweb.models import nest_flat_request
from portico.protocols.nlweb.render import AnswerAccumulator
from portico.protocols.rendering import NOTHING, members, plain
from portico.requests import Call

TEXT, DATA = "text", "data"
MODES = {"text/plain": TEXT, "text": TEXT, "text/*": TEXT, "application/json": DATA, "application/*": DATA}
MAX_LINE = 200  # characters of the description of an item
VERIFY = "verify_challenge"
MAX_RESULT = 2000  # characters of an operation's result

Shown: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AskMessage:
    """A question, as an NLWeb request."""

    raw: Shown


@dataclass(frozen=True, slots=True)
class CallMessage:
    """An operation, by its name."""

    call: Call


MessageIntent: TypeAlias = AskMessage | CallMessage


# Parsing


def parse_message(message: pb.Message, skill: str = "") -> MessageIntent:
    """Parse a message. Text is a question; a data part is a request, answers, or an operation with parameters."""
    text = "\n".join(part.text for part in message.parts if _kind(part) == TEXT).strip()
    data_parts = [_data(part) for part in message.parts if _kind(part) == DATA]
    if len(data_parts) > 1:
        raise BadRequest("A message may have at most one data part", hint="Send several messages.")
    if not data_parts:
        return AskMessage({"query": {"text": text}})
    return _read_data(data_parts[0], text, skill)


def _read_data(data: Shown, text: str, skill: str) -> MessageIntent:
    match data:
        case {"query": str()}:
            return AskMessage(nest_flat_request(data))
        case {"query": _}:
            return AskMessage(data)
        case {"operation": str(name)}:
            return _call_message(Call(name, _object(data, "params"), key=_text(data, "key")))
        case {"answers": _}:
            return AskMessage({"query": {"text": text}, "context": {"answers": _object(data, "answers")}})
        case _ if skill and skill != "ask":
            return _call_message(Call(skill, data))
        case _:
            raise BadRequest(
                "The data part must be a question, answers or an operation",
                hint='Send {"query": {"text": "…"}}, {"answers": {…}} or {"operation": "…", "params": {…}}.',
            )


def _kind(part: pb.Part) -> str:
    kind = part.WhichOneof("content")
    if kind not in {TEXT, DATA}:
        raise ContentTypeNotSupportedError("This agent accepts text and data parts, but no files")
    return cast("str", kind)


def _data(part: pb.Part) -> Shown:
    value = _whole_numbers(json_format.MessageToDict(part.data))
    if not isinstance(value, dict):
        raise BadRequest("A data part must be a JSON object")
    return cast("Shown", value)


def _whole_numbers(value: Any) -> Any:
    """Return JSON as it was sent: protobuf has no integers, so 2 arrives as 2.0."""
    match value:
        case dict():
            return {name: _whole_numbers(element) for name, element in cast("Shown", value).items()}
        case list():
            return [_whole_numbers(element) for element in cast("list[Any]", value)]
        case float() if value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
            return int(value)
        case _:
            return value


def _call_message(call: Call) -> CallMessage:
    if call.operation == VERIFY:
        # Messages are stored, and returned as history.
        raise Unsupported(
            "A verification code must not be sent in a message", hint="Call it over /operations, /aql or MCP."
        )
    return CallMessage(call)


def _object(data: Shown, name: str) -> Shown:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object")
    return cast("Shown", value)


def _text(data: Shown, name: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text")
    return value


def skill_of(*metadata: Any) -> str:
    """Return the skill that the metadata names, if any."""
    skills = (json_format.MessageToDict(entry).get("skillId") for entry in metadata)
    return next((entry for entry in skills if isinstance(entry, str)), "")


def parse_modes(modes: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of parts that a client accepts; both if it does not say."""
    names = [mode.partition(";")[0].strip().lower() for mode in modes]
    if not names or "*/*" in names or "*" in names:
        return (TEXT, DATA)
    kinds = tuple(dict.fromkeys(MODES[mode] for mode in names if mode in MODES))
    if not kinds:
        raise ContentTypeNotSupportedError("This agent answers as text/plain and application/json")
    return kinds


# Rendering


def text_part(text: str) -> pb.Part:
    return pb.Part(text=text, media_type="text/plain")


def data_part(data: Mapping[str, Any]) -> pb.Part:
    part = pb.Part(media_type="application/json")
    json_format.ParseDict(msgspec.to_builtins(data, enc_hook=str), part.data)
    return part


def promise_parts(body: Shown) -> list[pb.Part]:
    promise = members(body.get("promise"))
    return [text_part(str(promise.get("message") or "This takes a while")), data_part(body)]


def answer_text(answer: AnswerAccumulator) -> str:
    """Return an answer as text."""
    if answer.text:
        return answer.text
    if isinstance(answer.error, NoResults):
        return str(answer.error)
    lines = [f"{number}. {item_line(item)}" for number, item in enumerate(answer.in_order, 1)]
    return "\n".join(lines) or NOTHING


def item_line(item: Shown) -> str:
    name = str(item.get("name") or item.get("@id", ""))
    if "result" in item:
        return f"{name}: {shorten(msgspec.json.encode(item['result'], enc_hook=str).decode(), MAX_RESULT)}"
    says = shorten(plain(item.get("description")), MAX_LINE)
    url = f" <{item['url']}>" if item.get("url") else ""
    return f"{name}: {says}{url}" if says else f"{name}{url}"


def elicitation_text(elicitation: Shown) -> str:
    lines = [str(elicitation["text"])]
    for question in elicitation["questions"]:
        options = f" ({', '.join(map(str, question['options']))})" if question.get("options") else ""
        lines.append(f"{question['text']}{options}")
    return "\n".join(dict.fromkeys(line for line in lines if line))
