"""The published types of the answers to `/ask` and `/await`. `render.py` builds them, and nothing here parses them.

Every object may have further members; clients ignore those that they do not know.
"""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from portico.ask.events import Constraint, ModelUsage, Question
from portico.protocols.nlweb.dialects import V54, V55, Format, NlwebDialect, ResponseType
from portico.protocols.nlweb.models import SessionContext
from portico.protocols.schemas import Schema, whole_schema


class AnswerItem(msgspec.Struct):
    type: str | list[Any] = msgspec.field(name="@type")
    name: str | None = None


class ContentText(msgspec.Struct):
    type: Literal["text"]
    text: str


class AnswerElicitation(msgspec.Struct):
    text: str
    questions: list[Question]


class AnswerPromise(msgspec.Struct):
    token: Annotated[str, Meta(description="For await")]
    estimated_time: Annotated[int | None, Meta(description="Seconds")] = None
    message: str | None = None
    progress: Annotated[float | None, Meta(description="0 to 1")] = None


class AnswerError(msgspec.Struct):
    code: str
    message: str
    retry_after: Annotated[int | None, Meta(description="Seconds")] = None


class Understanding(msgspec.Struct):
    collections: list[str]
    constraints: list[Constraint]


class AnswerMeta(msgspec.Struct):
    """The metadata of an answer."""

    response_type: ResponseType
    version: str
    session_context: Annotated[SessionContext | None, Meta(description="Send it back in meta")] = None
    response_format: Format | None = None
    request_id: str | int | None = None
    decontextualized_query: Annotated[str | None, Meta(description="The question so that it stands alone")] = None
    understood: Understanding | None = None
    ignored: Annotated[list[str] | None, Meta(description="What had no meaning here")] = None
    notes: list[str] | None = None
    processing_time_ms: int | None = None
    cost: ModelUsage | None = None


class NlwebAnswer(msgspec.Struct):
    """An answer of 0.55. The response type and the format decide which members it has."""

    meta: AnswerMeta = msgspec.field(name="_meta")
    results: list[AnswerItem] | None = None
    content: Annotated[list[ContentText] | None, Meta(description="Of chatgpt_app")] = None
    structured: Annotated[list[AnswerItem] | None, Meta(description="Of chatgpt_app")] = msgspec.field(
        name="structuredData", default=None
    )
    elicitation: AnswerElicitation | None = None
    promise: AnswerPromise | None = None
    error: AnswerError | None = None


class FlatMessage(msgspec.Struct):
    message: str


class FlatAnalysis(msgspec.Struct):
    decontextualized_query: str


class FlatElicitation(FlatMessage):
    questions: list[Question]


class FlatGenerated(msgspec.Struct):
    answer: str
    items: list[AnswerItem]


class FlatAnswer(msgspec.Struct):
    """An answer of the flat dialect: one member for each kind of message in a stream."""

    query_id: str
    results: list[AnswerItem]
    query_analysis: FlatAnalysis | None = None
    remember: FlatMessage | None = None
    ask_user: FlatElicitation | None = None
    intermediate_message: FlatMessage | None = None
    nlws: FlatGenerated | None = None
    summary: FlatMessage | None = None


def answer_schema() -> Schema:
    """Return the schema of an answer of a tool, in the version of its request.

    It ends at the second level, because a client pays for every word of a tool's schema.
    """
    return _cut(schema_with_types(V55, V54), 2)


def schema_with_types(*dialects: NlwebDialect) -> Schema:
    """Return the schema of an answer in any of these dialects, which name the response types differently."""
    schema = whole_schema(NlwebAnswer)
    meta = schema["properties"]["_meta"]
    types = [dialect.response_type(kind) for dialect in dialects for kind in get_args(ResponseType)]
    properties = {**meta["properties"], "response_type": {"enum": types}}
    return {**schema, "properties": {**schema["properties"], "_meta": {**meta, "properties": properties}}}


def _cut(schema: Schema, levels: int) -> Schema:
    if "properties" not in schema or not levels:
        return {name: value for name, value in schema.items() if name not in {"properties", "items", "required"}}
    inner = {name: _cut(part, levels - 1) for name, part in schema["properties"].items()}
    return {**schema, "properties": inner}
