"""What discovery tells of the AI Chat Protocol."""

from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from portico.protocols import Description, OpenApi, Schema, Services
from portico.protocols.chat import CHATS
from portico.protocols.chat.conversations import (
    MARKDOWN,
    ConversationHeadings,
    FeedbackNoted,
    FeedbackRequest,
    ShownConversation,
)
from portico.protocols.chat.errors import STATUSES
from portico.protocols.chat.requests import ChatRequest
from portico.protocols.chat.routes import LINES, MULTIPART, OTHER_LINES
from portico.protocols.chat.settings import ChatSettings
from portico.protocols.openapi import (
    DOCUMENT,
    ID,
    IDEMPOTENCY_KEY,
    JSON,
    QUESTIONS,
    TEXT,
    body,
    content,
    operation,
    parameter,
    reference,
    refusals,
    response,
)
from portico.protocols.schemas import whole_schema


class ChatAnswer(msgspec.Struct):
    role: Literal["assistant"]
    content: Annotated[str, Meta(description="Sources stand in square brackets")]


class ChatCompletion(msgspec.Struct):
    message: ChatAnswer
    context: Annotated[dict[str, Any] | None, Meta(description="data_points, thoughts, followup_questions and more")]
    session: Annotated[Any, Meta(description="As it was sent")] = msgspec.field(name="sessionState", default=None)


class ChatError(msgspec.Struct):
    error: Annotated[Any, Meta(description="A text; an object with code and message where chat.errors says so")]


# By the names under which they are published.
_SCHEMAS: Final = {
    "ChatCompletion": ChatCompletion,
    "ChatError": ChatError,
    "ChatRequest": ChatRequest,
    "FeedbackNoted": FeedbackNoted,
    "FeedbackRequest": FeedbackRequest,
    "Headings": ConversationHeadings,
    "ShownConversation": ShownConversation,
}


def describe(services: Services) -> Description:
    return Description(openapi=partial(_openapi, services.config.section(ChatSettings)))


def _openapi(settings: ChatSettings, question: str) -> OpenApi:
    paths = {**_paths(settings.path, question), **(_azure_paths() if settings.azure else {})}
    schemas = {name: whole_schema(kind) for name, kind in _SCHEMAS.items()}
    return OpenApi(paths=paths, components={"schemas": schemas})


def _paths(path: str, question: str) -> dict[str, Schema]:
    """Describe the AI Chat Protocol, and the conversations that are stored of it."""
    example = {"messages": [{"role": "user", "content": question}]}
    form = {"type": "object", "properties": {"json": reference("schemas", "ChatRequest")}, "required": ["json"]}
    request = {JSON: {"schema": reference("schemas", "ChatRequest"), "example": example}, MULTIPART: {"schema": form}}
    turn = {"requestBody": {"required": True, "content": request}, "parameters": [IDEMPOTENCY_KEY]}
    whole, lines = content(reference("schemas", "ChatCompletion"), JSON), content({}, LINES, OTHER_LINES)
    headings = content(reference("schemas", "Headings"), JSON)
    conversation = {**content(reference("schemas", "ShownConversation"), JSON), **content(TEXT, MARKDOWN)}
    format = parameter("format", "query", {"enum": ["json", "markdown"], "description": "Instead of what Accept says"})
    user = parameter("userId", "query", {**TEXT, "description": "One of your users"})
    noted = {201: response("Kept", content(reference("schemas", "FeedbackNoted"), JSON)), **_refusals()}
    summary = "Say what you think of an answer"
    return {
        path: {"post": _operation("post_chat", "Chat (AI Chat Protocol)", {**whole, **lines}, **turn)},
        f"{path}/stream": {"post": _operation("post_chat_stream", "Chat, in lines of JSON", lines, **turn)},
        f"{path}/conversations": {
            "get": _operation("get_conversations", "Stored conversations of yours", headings, parameters=[user])
        },
        f"{path}/conversations/{{id}}": {
            "parameters": [ID, user],
            "get": _operation("get_conversation", "A stored conversation", conversation, parameters=[format]),
            "delete": _operation("delete_conversation", "Delete a stored conversation", None),
        },
        f"{path}/feedback": {"post": operation("post_feedback", QUESTIONS, summary, noted, **body("FeedbackRequest"))},
    }


def _azure_paths() -> dict[str, Schema]:
    """Describe what older front ends of Azure samples expect."""
    user = parameter("userId", "query", {**TEXT, "minLength": 16})
    citation = parameter("citation", "path", {**TEXT, "minLength": 1}, required=True)
    redirect = {307: response("Where it is", location="Of the item"), **_refusals()}
    lines, turn = content({}, LINES, OTHER_LINES), {**body("ChatRequest"), "parameters": [IDEMPOTENCY_KEY]}
    return {
        "/auth_setup": {"get": _operation("get_auth_setup", "How to sign in: not at all", DOCUMENT)},
        "/config": {"get": _operation("get_page_setup", "What a page offers to set", DOCUMENT)},
        "/content/{citation}": {
            "parameters": [citation],
            "get": operation("get_content", QUESTIONS, "What a citation leads to", redirect),
        },
        f"{CHATS}/stream": {"post": _operation("post_chats_stream", "Chat, in lines of JSON", lines, **turn)},
        CHATS: {"get": _operation("get_chats", "Conversations of a user", content({}, JSON), parameters=[user])},
        f"{CHATS}/{{id}}": {
            "parameters": [ID],
            "get": _operation("get_chat", "Messages of a conversation", content({}, JSON), parameters=[user]),
            "delete": _operation("delete_chat", "Delete a conversation", None, parameters=[user]),
        },
    }


def _operation(id: str, summary: str, form: Schema | None, **more: Any) -> Schema:
    done = {200: response("The answer", form)} if form else {204: response("Done")}
    return operation(id, QUESTIONS, summary, {**done, **_refusals()}, **more)


def _refusals() -> dict[int, Schema]:
    statuses = sorted({status.value for status in STATUSES.values()})
    return refusals(statuses, content(reference("schemas", "ChatError"), JSON))
