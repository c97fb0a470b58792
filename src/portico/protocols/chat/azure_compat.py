"""Addresses that older front ends of Azure samples expect, for sites that turn them on with chat.azure.

azure-search-openai-demo     GET /auth_setup, GET /config, GET /content/{citation}
serverless-chat-langchainjs  POST /api/chats/stream, GET /api/chats, GET and DELETE /api/chats/{id}

The second keeps conversations under an id that it makes up for its user: whoever knows it, reads them. So it has to be
long, and it never leads to what a caller with a name has.
"""

import hashlib
from collections.abc import Awaitable
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from portico.access.identity import for_user
from portico.config import Config
from portico.conversations.transcripts import VISITOR, Conversation
from portico.errors import BadRequest, SiteError
from portico.protocols.chat.conversations import check_origin
from portico.protocols.chat.errors import HEADERS, refusal
from portico.protocols.chat.slashes import Slashed
from portico.protocols.http import base_of
from portico.protocols.rest.operations import Endpoint, Who, answering, metered
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import item_path

CHATS = "/api/chats"
PLACES = ("/auth_setup", "/config", "/content", CHATS)
MIN_USER = 16  # characters of an id that nobody guesses

AUTH_SETUP: dict[str, Any] = {
    "useLogin": False,
    "requireAccessControl": False,
    "enableUnauthenticatedAccess": True,
    "msalConfig": {"auth": {"clientId": "", "authority": "", "redirectUri": "/", "postLogoutRedirectUri": "/"}},
    "loginRequest": {"scopes": []},
    "tokenRequest": {"scopes": []},
}
# Which settings its page offers: those that mean something here.
PAGE_SETUP: dict[str, Any] = {
    "showVectorOption": True,
    "showSemanticRankerOption": False,
    "showQueryRewritingOption": False,
    "showReasoningEffortOption": False,
    "streamingEnabled": True,
    "defaultReasoningEffort": "",
    "showUserUpload": False,
    "showLanguagePicker": False,
    "showSpeechInput": False,
    "showSpeechOutputBrowser": False,
    "showSpeechOutputAzure": False,
    "showChatHistoryBrowser": True,
    "showChatHistoryCosmos": False,
    "showGPT4VOptions": False,
    "showMultimodalOptions": False,
    "showAgenticRetrievalOption": False,
}


class Answer(Protocol):
    """Answers a turn of a conversation of this owner."""

    def __call__(self, request: Request, *, streams: bool, owner: str = "") -> Awaitable[ASGIApp]: ...


def owner_of(user: str | None, caller: Caller) -> str:
    """Whose conversations a user's id leads to; empty if that is for the caller's name to say, or it is too short."""
    if not user or not caller.is_anonymous or len(user) < MIN_USER:
        return ""
    return f"{VISITOR}{hashlib.blake2b(user.encode(), digest_size=16).hexdigest()}"


def routes(site: Site, config: Config, who: Who, answer: Answer) -> list[BaseRoute]:
    async def auth_setup(_: Request, __: Caller) -> Response:
        return _json(AUTH_SETUP)

    async def page_setup(_: Request, __: Caller) -> Response:
        return _json({**PAGE_SETUP, "showVectorOption": site.finds_by_meaning})

    async def content(request: Request, caller: Caller) -> Response:
        cited = _cited(request.path_params["citation"], base_of(request, config.server))
        found = await site.item(cited, caller)
        return RedirectResponse(item_path(found.ref), headers=HEADERS)

    async def chat(request: Request) -> ASGIApp:
        return await answer(request, streams=True)

    async def chats(request: Request, caller: Caller) -> Response:
        found = await site.transcripts.of(_owner(request, caller))
        return _json([{"id": each.id, "title": each.title} for each in found])

    async def messages(request: Request, caller: Caller) -> Response:
        found = await site.transcripts.get(_owner(request, caller), request.path_params["id"])
        return _json(_messages(found))

    async def deleted(request: Request, caller: Caller) -> Response:
        check_origin(request, config)
        await site.transcripts.delete(_owner(request, caller), request.path_params["id"])
        return Response(status_code=204)

    def refused(_: Request, error: SiteError) -> Response:
        return refusal(error, config.chat.errors)

    async def one(request: Request, caller: Caller) -> Response:
        return await (deleted if request.method == "DELETE" else messages)(request, caller)

    def at(path: str, endpoint: Endpoint, *methods: str) -> Slashed:
        return Slashed(path, answering(endpoint, site, refused, who), *(methods or ("GET",)))

    return [
        at("/auth_setup", metered(auth_setup, site)),
        at("/config", metered(page_setup, site)),
        # The id of an item may end with a slash of its own.
        Route("/content/{citation:path}", answering(content, site, refused, who), methods=["GET"]),
        Slashed(f"{CHATS}/stream", chat, "POST"),
        at(CHATS, metered(chats, site)),
        at(f"{CHATS}/{{id}}", metered(one, site), "GET", "DELETE"),
    ]


def _cited(citation: str, base: str) -> str:
    """The id of what is cited, by its address here or by itself. On its way a path may lose one of two slashes."""
    said, here = citation.replace("://", ":/", 1), f"{base}{item_path('')}".replace("://", ":/", 1)
    return said.removeprefix(here) if said.startswith(here) else citation


def _owner(request: Request, caller: Caller) -> str:
    user = request.query_params.get("userId")
    if not caller.is_anonymous:
        return for_user(caller, user or "").owner
    owner = owner_of(user, caller)
    if not owner:
        raise BadRequest(f"userId is missing, or shorter than {MIN_USER} characters")
    return owner


def _messages(found: Conversation) -> list[dict[str, str]]:
    pairs = [(("user", each.question), ("assistant", each.answer)) for each in found.turns]
    return [{"role": role, "content": content} for pair in pairs for role, content in pair]


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), 200, HEADERS, "application/json")
