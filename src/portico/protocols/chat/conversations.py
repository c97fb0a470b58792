"""Stored conversations of callers with a key, and feedback of everybody.

GET          /chat/conversations        list conversations, newest first; of one user with ?userId=
GET, DELETE  /chat/conversations/{id}   one, as JSON or as Markdown (?format=markdown, or Accept: text/markdown)
POST         /chat/feedback             {"rating": "up" or "down", "comment": …, "conversation": …, "turn": …}
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from portico.access.identity import for_user
from portico.access.limits import check_text
from portico.config import Config
from portico.conversations.feedback import Opinion
from portico.conversations.transcripts import StoredConversation
from portico.errors import BadRequest, SiteError, Unauthenticated
from portico.items import IN_WORDS, invisible_pattern, problem_with
from portico.protocols import rendering
from portico.protocols.chat.errors import HEADERS, refusal
from portico.protocols.chat.settings import ChatSettings
from portico.protocols.documents import preferred_media_type
from portico.protocols.edge import check_origin
from portico.protocols.http import TrailingSlashRoute, decode, read_body
from portico.protocols.problems import Endpoint, make_handler
from portico.requests import Caller
from portico.site import Site

MAX_FEEDBACK = 64_000  # bytes of a request
MARKDOWN = "text/markdown"
_MARKUP = re.compile(r"[\\`*_\[\]<>#!|~&]")
_LISTED = re.compile(r"^(\d*)([-+.)=])")
_UNSEEN = invisible_pattern(except_for=IN_WORDS)


class FeedbackRequest(msgspec.Struct, frozen=True):
    rating: Literal["up", "down"]
    comment: Annotated[str, Meta(max_length=2000)] = ""
    question: Annotated[str, Meta(max_length=2000)] = ""
    answer: Annotated[str, Meta(max_length=8000)] = ""
    items: Annotated[list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=20, description="Their ids")] = []
    conversation: Annotated[str, Meta(max_length=200)] = ""
    turn: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    user_id: Annotated[str, Meta(description="Whom you ask for; with an API key")] = msgspec.field(
        name="userId", default=""
    )


class FeedbackNoted(msgspec.Struct, frozen=True):
    id: str
    at: str


class ConversationHeading(msgspec.Struct, frozen=True):
    id: str
    title: str
    created: str
    updated: str
    turns: Annotated[int, Meta(description="How many there are")]


class ConversationHeadings(msgspec.Struct, frozen=True):
    conversations: list[ConversationHeading]


class ShownTurn(msgspec.Struct, frozen=True):
    question: str
    answer: str
    at: str
    sources: list[str]


class ShownConversation(msgspec.Struct, frozen=True):
    id: str
    title: str
    created: str
    updated: str
    turns: list[ShownTurn]


def routes(site: Site, config: Config) -> list[BaseRoute]:
    async def list_conversations(request: Request, caller: Caller) -> Response:
        summaries = await site.transcripts.list_for(_owner(request, caller))
        headings = [
            ConversationHeading(item.id, item.title, item.created, item.updated, item.turns) for item in summaries
        ]
        return _json(ConversationHeadings(headings))

    async def show(request: Request, caller: Caller) -> Response:
        stored = await site.transcripts.get(_owner(request, caller), request.path_params["id"])
        if _wants_markdown(request):
            headers = {**HEADERS, "content-disposition": f'attachment; filename="conversation-{stored.id}.md"'}
            return Response(as_markdown(stored), 200, headers, MARKDOWN)
        return _json(conversation_body(stored))

    async def delete(request: Request, caller: Caller) -> Response:
        check_origin(request, config.server)
        await site.transcripts.delete(_owner(request, caller), request.path_params["id"])
        return Response(status_code=204)

    async def add_feedback(request: Request, caller: Caller) -> Response:
        check_origin(request, config.server)
        opinion, user = await _opinion(request, site)
        noted = await site.feedback.give(opinion, for_user(caller, user))
        return _json(FeedbackNoted(noted.id, noted.at), 201)

    def render_error(_: Request, error: SiteError) -> Response:
        return refusal(error, config.section(ChatSettings).errors)

    async def one(request: Request, caller: Caller) -> Response:
        return await (delete if request.method == "DELETE" else show)(request, caller)

    def at(path: str, endpoint: Endpoint, *methods: str) -> TrailingSlashRoute:
        answer = make_handler(endpoint, render_error)
        return TrailingSlashRoute(f"{config.section(ChatSettings).path}/{path}", answer, *methods)

    return [
        at("conversations", list_conversations, "GET"),
        at("conversations/{id}", one, "GET", "DELETE"),
        at("feedback", add_feedback, "POST"),
    ]


def _owner(request: Request, caller: Caller) -> str:
    if caller.is_anonymous:
        raise Unauthenticated(
            "Conversations are stored for callers with an API key only", hint="Send one as a bearer token or x-api-key."
        )
    return for_user(caller, request.query_params.get("userId", "")).owner


async def _opinion(request: Request, site: Site) -> tuple[Opinion, str]:
    """Return the feedback of a request, and the user it comes from."""
    raw = decode(await read_body(request, MAX_FEEDBACK), site.limits)
    members = {name: value for name, value in rendering.members(raw).items() if value is not None}
    try:
        feedback = msgspec.convert(members, FeedbackRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The feedback cannot be read: {error}", hint='As in {"rating": "up"}.') from error
    fields: dict[str, Any] = msgspec.to_builtins(feedback)
    user = fields.pop("userId")
    if problem := problem_with("feedback", fields):
        raise BadRequest(f"The feedback cannot be stored: {problem}")
    check_text(feedback.comment, site.limits)
    return msgspec.convert(fields, Opinion), user


def _wants_markdown(request: Request) -> bool:
    format = request.query_params.get("format")
    if format not in {None, "json", "markdown"}:
        raise BadRequest("`format` must be `json` or `markdown`")
    accept = ",".join(request.headers.getlist("accept"))
    media_types = ("application/json", MARKDOWN)
    return format == "markdown" or (format is None and preferred_media_type(accept, media_types) == MARKDOWN)


def conversation_body(stored: StoredConversation) -> ShownConversation:
    turns = [ShownTurn(turn.question, turn.answer, turn.at, list(turn.sources)) for turn in stored.turns]
    return ShownConversation(stored.id, stored.title, stored.created, stored.updated, turns)


def as_markdown(stored: StoredConversation) -> str:
    """Return a conversation as Markdown. Questions and answers are quoted as plain text."""
    parts = [f"# {_plain(' '.join(stored.title.split()))}", f"{stored.created} to {stored.updated}"]
    for turn in stored.turns:
        parts += ["**You:**", _quote(turn.question), "**Answer:**", _quote(turn.answer)]
        parts += ["Sources:", _quote("\n".join(turn.sources))] if turn.sources else []
    return "\n\n".join(parts) + "\n"


def _quote(text: str) -> str:
    return "\n".join(f"> {_plain(line.strip())}".rstrip() for line in text.splitlines())


def _plain(line: str) -> str:
    """Escape a line so that Markdown shows it unchanged: no markup, no lists, no invisible characters."""
    return _LISTED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", _UNSEEN.sub(" ", line)))


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, HEADERS, "application/json")
