"""The types of a chat request. `null` means absent, and unknown members are ignored. Nothing here says who calls."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from portico.conversations.transcripts import TranscriptTurn
from portico.errors import BadRequest

SNAKE = "session_state"  # as older front ends call it
CAMEL = "sessionState"
_IDS = frozenset({"sessionId", "userId"})
_HINT = 'As in {"messages": [{"role": "user", "content": "a warm soup"}]}.'


class ChatMessage(msgspec.Struct, frozen=True):
    role: Annotated[
        Literal["user", "assistant", "system"], Meta(description="What a system message says has no effect here")
    ]
    content: str
    context: dict[str, Any] | None = None


class OwnContext(msgspec.Struct, frozen=True):
    """Members that clients of this site may add."""

    answers: Annotated[dict[str, Any] | None, Meta(description="To what was asked back, by the id of a question")] = (
        None
    )
    state: Annotated[str | None, Meta(description="context.portico.state of the answer before")] = None
    collections: Annotated[list[str] | None, Meta(description="Where to look")] = None
    mode: Annotated[
        Literal["generate", "summarize", "list"] | None, Meta(description="How to answer; generate if nothing is said")
    ] = None


class RequestContext(msgspec.Struct, frozen=True):
    overrides: Annotated[dict[str, Any] | None, Meta(description="top, retrieval_mode, language and more")] = None
    portico: OwnContext | None = None
    session_id: str | None = msgspec.field(name="sessionId", default=None)
    user_id: str | None = msgspec.field(name="userId", default=None)


class ChatRequest(msgspec.Struct, frozen=True):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    context: RequestContext | None = None
    session: Annotated[Any, Meta(description="Any JSON; it comes back as it was sent")] = msgspec.field(
        name=CAMEL, default=None
    )
    stream: Annotated[bool | None, Meta(description="Answer as /chat/stream does")] = None

    @property
    def question(self) -> str:
        return self.messages[-1].content

    @property
    def request_context(self) -> RequestContext:
        return self.context or RequestContext()

    @property
    def portico(self) -> OwnContext:
        return self.request_context.portico or OwnContext()

    @property
    def history(self) -> tuple[TranscriptTurn, ...] | None:
        """The earlier turns as the client sent them; None if it sent none."""
        messages = [message for message in self.messages[:-1] if message.role != "system"]
        turns: list[tuple[str, list[str]]] = []
        for message in messages:
            if message.role == "user":
                turns.append((message.content, []))
            elif turns:
                turns[-1][1].append(message.content)
        return tuple(TranscriptTurn(question, "".join(answers)) for question, answers in turns) if messages else None

    @property
    def has_system(self) -> bool:
        return any(message.role == "system" for message in self.messages)


def read_request(raw: Any) -> tuple[ChatRequest, str]:
    """Return a request, and the member name of its session, which the answer uses too."""
    if not isinstance(raw, dict):
        raise BadRequest("A request is a JSON object", hint=_HINT)
    members = cast("dict[str, Any]", _without_nulls(raw))
    # Older front ends send null until they get a session, and look for it under their own name.
    name = SNAKE if SNAKE in raw and CAMEL not in members else CAMEL
    body = {**members, CAMEL: members.get(name)}
    try:
        request = msgspec.convert(body, ChatRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request cannot be read: {error}", hint=_HINT) from error
    if request.messages[-1].role != "user":
        raise BadRequest("The last message must have the role `user`", hint=_HINT)
    if not request.question.strip():
        raise BadRequest("The last message is empty", hint=_HINT)
    return request, name


def _without_nulls(raw: Any) -> Any:
    """Remove null members that belong to the protocol. A session may hold anything."""
    members = _present(cast("Mapping[str, Any]", raw))
    if isinstance(members.get("messages"), list):
        members["messages"] = [_message(message) for message in cast("list[Any]", members["messages"])]
    if isinstance(members.get("context"), dict):
        context = _present(members["context"])
        # Other clients use these names for ids of their own.
        context = {name: value for name, value in context.items() if name not in _IDS or isinstance(value, str)}
        own = context.get("portico")
        members["context"] = (
            {**context, "portico": _present(cast("dict[str, Any]", own))} if _is_object(own) else context
        )
    return members


def _message(raw: Any) -> Any:
    """Return a message for parsing. An assistant's message that only called a tool has no text."""
    if not _is_object(raw):
        return raw
    members = _present(raw)
    return {"content": "", **members} if members.get("role") == "assistant" else members


def _is_object(raw: Any) -> bool:
    return isinstance(raw, dict)


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
