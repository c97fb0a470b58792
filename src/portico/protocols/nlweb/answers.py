"""What `/ask` and `/await` answer, as types to publish: `render.py` makes it, and nothing parses it here.

Every object may have further members: clients leave aside what they do not know.
"""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from portico.ask.events import Constraint, Cost, Question
from portico.protocols.nlweb.dialects import V54, V55, Dialect, Format, ResponseType
from portico.protocols.nlweb.models import Session
from portico.protocols.nlweb.schema import Schema, whole_schema


class Item(msgspec.Struct):
    type: str | list[Any] = msgspec.field(name="@type")
    name: str | None = None


class Text(msgspec.Struct):
    type: Literal["text"]
    text: str


class Elicitation(msgspec.Struct):
    text: str
    questions: list[Question]


class Promise(msgspec.Struct):
    token: Annotated[str, Meta(description="For await")]
    estimated_time: Annotated[int | None, Meta(description="Seconds")] = None
    message: str | None = None
    progress: Annotated[float | None, Meta(description="0 to 1")] = None


class Error(msgspec.Struct):
    code: str
    message: str
    retry_after: Annotated[int | None, Meta(description="Seconds")] = None


class Understanding(msgspec.Struct):
    collections: list[str]
    constraints: list[Constraint]


class AnswerMeta(msgspec.Struct):
    """What an answer tells of itself."""

    response_type: ResponseType
    version: str
    session_context: Annotated[Session | None, Meta(description="Send it back in meta")] = None
    response_format: Format | None = None
    request_id: str | int | None = None
    decontextualized_query: Annotated[str | None, Meta(description="The question so that it stands alone")] = None
    understood: Understanding | None = None
    ignored: Annotated[list[str] | None, Meta(description="What had no meaning here")] = None
    notes: list[str] | None = None
    processing_time_ms: int | None = None
    cost: Cost | None = None


class Answer(msgspec.Struct):
    """Of 0.55. Which members it has depends on the response type and format."""

    meta: AnswerMeta = msgspec.field(name="_meta")
    results: list[Item] | None = None
    content: Annotated[list[Text] | None, Meta(description="Of chatgpt_app")] = None
    structured: Annotated[list[Item] | None, Meta(description="Of chatgpt_app")] = msgspec.field(
        name="structuredData", default=None
    )
    elicitation: Elicitation | None = None
    promise: Promise | None = None
    error: Error | None = None


class Message(msgspec.Struct):
    message: str


class Analysis(msgspec.Struct):
    decontextualized_query: str


class Asked(Message):
    questions: list[Question]


class Generated(msgspec.Struct):
    answer: str
    items: list[Item]


class FlatAnswer(msgspec.Struct):
    """Of the flat dialect: one member for each kind of message that a stream has."""

    query_id: str
    results: list[Item]
    query_analysis: Analysis | None = None
    remember: Message | None = None
    ask_user: Asked | None = None
    intermediate_message: Message | None = None
    nlws: Generated | None = None
    summary: Message | None = None


def answer_schema() -> Schema:
    """An answer of a tool, in the version of its request.

    Cut down to the members of its members: a tool that publishes it pays for every word.
    """
    return _cut(_with_response_types(V55, V54), 2)


def earlier_schema() -> Schema:
    """An answer of 0.54: its response types begin with a capital."""
    return _with_response_types(V54)


def _with_response_types(*dialects: Dialect) -> Schema:
    """The schema of an answer in any of these dialects."""
    schema = whole_schema(Answer)
    meta = schema["properties"]["_meta"]
    types = [dialect.response_type(kind) for dialect in dialects for kind in get_args(ResponseType)]
    properties = {**meta["properties"], "response_type": {"enum": types}}
    return {**schema, "properties": {**schema["properties"], "_meta": {**meta, "properties": properties}}}


def _cut(schema: Schema, levels: int) -> Schema:
    if "properties" not in schema or not levels:
        return {name: value for name, value in schema.items() if name not in {"properties", "items", "required"}}
    inner = {name: _cut(each, levels - 1) for name, each in schema["properties"].items()}
    return {**schema, "properties": inner}
