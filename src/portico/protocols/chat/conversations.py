"""Stored conversations of whoever asks with a key, and feedback of everybody.

GET          /chat/conversations        what there is, the newest first; of one user with ?userId=
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
from portico.conversations.transcripts import Conversation, Summary
from portico.errors import BadRequest, Forbidden, SiteError, Unauthenticated
from portico.items import IN_WORDS, problem_with, unseen
from portico.protocols.chat.errors import HEADERS, refusal
from portico.protocols.chat.slashes import Slashed
from portico.protocols.documents import preferred
from portico.protocols.http import decode, is_from_elsewhere, read_body
from portico.protocols.nlweb import item_rendering as shapes
from portico.protocols.rest.operations import Endpoint, Who, answering, metered
from portico.requests import Caller
from portico.site import Site

MAX_FEEDBACK = 64_000  # bytes of a request
MARKDOWN = "text/markdown"
_MARKUP = re.compile(r"[\\`*_\[\]<>#!|~&]")
_LISTED = re.compile(r"^(\d*)([-+.)=])")
_UNSEEN = unseen(but=IN_WORDS)


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


class Heading(msgspec.Struct, frozen=True):
    id: str
    title: str
    created: str
    updated: str
    turns: Annotated[int, Meta(description="How many there are")]


class Headings(msgspec.Struct, frozen=True):
    conversations: list[Heading]


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


def routes(site: Site, config: Config, who: Who) -> list[BaseRoute]:
    async def listed(request: Request, caller: Caller) -> Response:
        found = await site.transcripts.of(_owner(request, caller))
        return _json(Headings([heading(each) for each in found]))

    async def shown(request: Request, caller: Caller) -> Response:
        found = await site.transcripts.get(_owner(request, caller), request.path_params["id"])
        if _wants_markdown(request):
            told = {**HEADERS, "content-disposition": f'attachment; filename="conversation-{found.id}.md"'}
            return Response(as_markdown(found), 200, told, MARKDOWN)
        return _json(conversation(found))

    async def deleted(request: Request, caller: Caller) -> Response:
        check_origin(request, config)
        await site.transcripts.delete(_owner(request, caller), request.path_params["id"])
        return Response(status_code=204)

    async def given(request: Request, caller: Caller) -> Response:
        check_origin(request, config)
        opinion, user = await _opinion(request, site)
        noted = await site.feedback.give(opinion, for_user(caller, user))
        return _json(FeedbackNoted(noted.id, noted.at), 201)

    def refused(_: Request, error: SiteError) -> Response:
        return refusal(error, config.chat.errors)

    async def one(request: Request, caller: Caller) -> Response:
        return await (deleted if request.method == "DELETE" else shown)(request, caller)

    def at(path: str, endpoint: Endpoint, *methods: str) -> Slashed:
        answer = answering(metered(endpoint, site), site, refused, who)
        return Slashed(f"{config.chat.path}/{path}", answer, *methods)

    return [
        at("conversations", listed, "GET"),
        at("conversations/{id}", one, "GET", "DELETE"),
        at("feedback", given, "POST"),
    ]


def _owner(request: Request, caller: Caller) -> str:
    if caller.is_anonymous:
        raise Unauthenticated("Conversations are stored for callers with a name", hint="Send an API key.")
    return for_user(caller, request.query_params.get("userId", "")).owner


def check_origin(request: Request, config: Config) -> None:
    if is_from_elsewhere(request, config.server):
        raise Forbidden("Pages of that origin may change nothing here", hint="The operator decides which origins may.")


async def _opinion(request: Request, site: Site) -> tuple[Opinion, str]:
    """What a request says of an answer, and the user who says it."""
    raw = decode(await read_body(request, MAX_FEEDBACK), site.limits)
    members = {name: value for name, value in shapes.members(raw).items() if value is not None}
    try:
        said = msgspec.convert(members, FeedbackRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The feedback cannot be read: {error}", hint='As in {"rating": "up"}.') from error
    told: dict[str, Any] = msgspec.to_builtins(said)
    user = told.pop("userId")
    if problem := problem_with("feedback", told):
        raise BadRequest(f"The feedback cannot be kept: {problem}")
    check_text(said.comment, site.limits)
    return msgspec.convert(told, Opinion), user


def _wants_markdown(request: Request) -> bool:
    said = request.query_params.get("format")
    if said not in {None, "json", "markdown"}:
        raise BadRequest("A conversation is shown as json or markdown")
    return said == "markdown" or (said is None and _prefers_markdown(request))


def _prefers_markdown(request: Request) -> bool:
    return preferred(",".join(request.headers.getlist("accept")), ("application/json", MARKDOWN)) == MARKDOWN


def heading(found: Summary) -> Heading:
    return Heading(found.id, found.title, found.created, found.updated, found.turns)


def conversation(found: Conversation) -> ShownConversation:
    turns = [ShownTurn(each.question, each.answer, each.at, list(each.sources)) for each in found.turns]
    return ShownConversation(found.id, found.title, found.created, found.updated, turns)


def as_markdown(found: Conversation) -> str:
    """A conversation for people to keep. What was said stands in it as a quotation of plain text."""
    parts = [f"# {_plain(' '.join(found.title.split()))}", f"{found.created} to {found.updated}"]
    for each in found.turns:
        parts += ["**You:**", _quoted(each.question), "**Answer:**", _quoted(each.answer)]
        parts += ["Sources:", _quoted("\n".join(each.sources))] if each.sources else []
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {_plain(line.strip())}".rstrip() for line in text.splitlines())


def _plain(line: str) -> str:
    """A line that Markdown reads as it stands: neither markup, nor a list, nor anything that no eye sees."""
    return _LISTED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", _UNSEEN.sub(" ", line)))


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, HEADERS, "application/json")
