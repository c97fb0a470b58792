"""What a client sends, as types. `null` is absent, unknown members are left aside, and nothing in it says who asks."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from portico.conversations.transcripts import Turn
from portico.errors import BadRequest
from portico.protocols.nlweb.schema import Schema, whole_schema

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
    """What clients of this site may say besides."""

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
    def said(self) -> RequestContext:
        return self.context or RequestContext()

    @property
    def own(self) -> OwnContext:
        return self.said.portico or OwnContext()

    @property
    def history(self) -> tuple[Turn, ...] | None:
        """The turns before, as the client tells them; None if it tells of none."""
        talk = [each for each in self.messages[:-1] if each.role != "system"]
        turns: list[tuple[str, list[str]]] = []
        for each in talk:
            if each.role == "user":
                turns.append((each.content, []))
            elif turns:
                turns[-1][1].append(each.content)
        return tuple(Turn(question, "".join(answers)) for question, answers in turns) if talk else None

    @property
    def has_system(self) -> bool:
        return any(each.role == "system" for each in self.messages)


def read_request(raw: Any) -> tuple[ChatRequest, str]:
    """A request, and the name under which its session came and goes back."""
    if not isinstance(raw, dict):
        raise BadRequest("A request is a JSON object", hint=_HINT)
    said = cast("dict[str, Any]", _without_nulls(raw))
    # Older front ends send null until they were given a session, and look for it under their own name.
    name = SNAKE if SNAKE in raw and CAMEL not in said else CAMEL
    body = {**said, CAMEL: said.get(name)}
    try:
        request = msgspec.convert(body, ChatRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The request cannot be read: {error}", hint=_HINT) from error
    if request.messages[-1].role != "user":
        raise BadRequest("The last message is the one of the user", hint=_HINT)
    if not request.question.strip():
        raise BadRequest("The last message is empty", hint=_HINT)
    return request, name


def _without_nulls(raw: Any) -> Any:
    """Without members that are null, as far as they are the protocol's own: a session may hold what it likes."""
    said = _present(cast("Mapping[str, Any]", raw))
    if isinstance(said.get("messages"), list):
        said["messages"] = [_message(each) for each in cast("list[Any]", said["messages"])]
    if isinstance(said.get("context"), dict):
        context = _present(said["context"])
        # Other clients have ids of their own under these names.
        context = {name: value for name, value in context.items() if name not in _IDS or isinstance(value, str)}
        own = context.get("portico")
        said["context"] = {**context, "portico": _present(cast("dict[str, Any]", own))} if _is_object(own) else context
    return said


def _message(raw: Any) -> Any:
    """A message as it is read. Of an assistant that only called a tool there is no text."""
    if not _is_object(raw):
        return raw
    said = _present(raw)
    return {"content": "", **said} if said.get("role") == "assistant" else said


def _is_object(raw: Any) -> bool:
    return isinstance(raw, dict)


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def request_schema() -> Schema:
    return whole_schema(ChatRequest)
