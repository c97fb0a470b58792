"""Messages, parts and tasks: what a client's message wants, and answers as parts. Sends nothing, keeps nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf import json_format

from portico.ask.prose import shortened
from portico.errors import BadRequest, Unsupported
from portico.protocols.nlweb.errors import NoResults
from portico.protocols.nlweb.item_rendering import members, plain
from portico.protocols.nlweb.models import nested
from portico.protocols.nlweb.render import NOTHING, Told
from portico.requests import Call

TEXT, DATA = "text", "data"
MODES = {"text/plain": TEXT, "text": TEXT, "text/*": TEXT, "application/json": DATA, "application/*": DATA}
MAX_LINE = 200  # characters of what the text says of one item
MAX_WHOLE = 2**53 - 1  # up to here every whole number is a float of its own (RFC 8259, 6)
VERIFY = "verify_challenge"
MAX_RESULT = 2000  # characters of what the text says of an operation's result

Shown: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asking:
    """A question, as an NLWeb request."""

    raw: Shown


@dataclass(frozen=True, slots=True)
class Calling:
    """An operation, by its name."""

    call: Call


Wanted: TypeAlias = Asking | Calling


# What a message wants


def read(message: pb.Message, skill: str = "") -> Wanted:
    """What a message wants. Text is a question; a data part is a request, answers, or an operation with parameters."""
    text = "\n".join(part.text for part in message.parts if _kind(part) == TEXT).strip()
    given = [_data(part) for part in message.parts if _kind(part) == DATA]
    if len(given) > 1:
        raise BadRequest("A message has at most one data part", hint="Send several messages.")
    if not given:
        return Asking({"query": {"text": text}})
    return _read_data(given[0], text, skill)


def _read_data(data: Shown, text: str, skill: str) -> Wanted:
    match data:
        case {"query": str()}:
            return Asking(nested(data))
        case {"query": _}:
            return Asking(data)
        case {"operation": str(name)}:
            return _calling(Call(name, _object(data, "params"), key=_text(data, "key")))
        case {"answers": _}:
            return Asking({"query": {"text": text}, "context": {"answers": _object(data, "answers")}})
        case _ if skill and skill != "ask":
            return _calling(Call(skill, data))
        case _:
            raise BadRequest(
                "The data part is neither a question, nor answers, nor an operation",
                hint='Send {"query": {"text": "…"}}, {"answers": {…}} or {"operation": "…", "params": {…}}.',
            )


def _kind(part: pb.Part) -> str:
    kind = part.WhichOneof("content")
    if kind not in {TEXT, DATA}:
        raise ContentTypeNotSupportedError("This agent reads text and data parts; it takes no files")
    return cast("str", kind)


def _data(part: pb.Part) -> Shown:
    value = _whole_numbers(json_format.MessageToDict(part.data))
    if not isinstance(value, dict):
        raise BadRequest("A data part is a JSON object")
    return cast("Shown", value)


def _whole_numbers(value: Any) -> Any:
    """JSON as it was sent: protobuf has no whole numbers, so that 2 comes as 2.0."""
    match value:
        case dict():
            return {name: _whole_numbers(each) for name, each in cast("Shown", value).items()}
        case list():
            return [_whole_numbers(each) for each in cast("list[Any]", value)]
        case float() if value.is_integer() and abs(value) <= MAX_WHOLE:
            return int(value)
        case _:
            return value


def _calling(call: Call) -> Calling:
    if call.operation == VERIFY:
        # Messages are kept, and shown again as history.
        raise Unsupported("A code is not sent in a message", hint="Call it over /operations, /aql or MCP.")
    return Calling(call)


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
    """The skill that metadata name, if any."""
    found = (json_format.MessageToDict(each).get("skillId") for each in metadata)
    return next((each for each in found if isinstance(each, str)), "")


def accepted(modes: Iterable[str]) -> tuple[str, ...]:
    """The kinds of parts that a client takes; both if it does not say."""
    said = [mode.partition(";")[0].strip().lower() for mode in modes]
    if not said or "*/*" in said or "*" in said:
        return (TEXT, DATA)
    known = tuple(dict.fromkeys(MODES[mode] for mode in said if mode in MODES))
    if not known:
        raise ContentTypeNotSupportedError("This agent answers as text/plain and application/json")
    return known


# What is answered


def text_part(text: str) -> pb.Part:
    return pb.Part(text=text, media_type="text/plain")


def data_part(data: Mapping[str, Any]) -> pb.Part:
    part = pb.Part(media_type="application/json")
    json_format.ParseDict(msgspec.to_builtins(data, enc_hook=str), part.data)
    return part


def answer_parts(body: Shown, told: Told) -> list[pb.Part]:
    return [text_part(readable(told)), data_part(body)]


def question_parts(body: Shown) -> list[pb.Part]:
    return [text_part(_questions(body["elicitation"])), data_part(body)]


def promise_parts(body: Shown) -> list[pb.Part]:
    promise = members(body.get("promise"))
    return [text_part(str(promise.get("message") or "This takes a while")), data_part(body)]


def item_parts(index: int, item: Shown) -> list[pb.Part]:
    return [text_part(_line(item)), data_part({"index": index, "item": item})]


def readable(told: Told) -> str:
    """An answer for somebody who only reads."""
    if told.text:
        return told.text
    if isinstance(told.error, NoResults):
        return str(told.error)
    lines = [f"{number}. {_line(item)}" for number, item in enumerate(told.in_order, 1)]
    return "\n".join(lines) or NOTHING


def _line(item: Shown) -> str:
    name = str(item.get("name") or item.get("@id", ""))
    if "result" in item:
        return f"{name}: {shortened(msgspec.json.encode(item['result'], enc_hook=str).decode(), MAX_RESULT)}"
    says = shortened(plain(item.get("description")), MAX_LINE)
    url = f" <{item['url']}>" if item.get("url") else ""
    return f"{name}: {says}{url}" if says else f"{name}{url}"


def _questions(elicitation: Shown) -> str:
    lines = [str(elicitation["text"])]
    for each in elicitation["questions"]:
        options = f" ({', '.join(map(str, each['options']))})" if each.get("options") else ""
        lines.append(f"{each['text']}{options}")
    return "\n".join(dict.fromkeys(line for line in lines if line))
