"""Endpoints that older front ends of Azure samples expect, for sites that turn them on with chat.azure.

azure-search-openai-demo     GET /auth_setup, GET /config, GET /content/{citation}
serverless-chat-langchainjs  POST /api/chats/stream, GET /api/chats, GET and DELETE /api/chats/{id}

The second stores conversations under an id that it makes up for its user, and everybody who knows the id can read
them. So the id has to be long, and it never leads to the conversations of a named caller.
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
from portico.conversations.transcripts import VISITOR, StoredConversation
from portico.errors import BadRequest, SiteError
from portico.protocols.chat import CHATS
from portico.protocols.chat.errors import HEADERS, refusal
from portico.protocols.chat.settings import ChatSettings
from portico.protocols.edge import check_origin
from portico.protocols.http import TrailingSlashRoute, base_of
from portico.protocols.problems import Endpoint, make_handler
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import item_path

MIN_USER = 16  # characters of an id that nobody guesses

AUTH_SETUP: dict[str, Any] = {
    "useLogin": False,
    "requireAccessControl": False,
    "enableUnauthenticatedAccess": True,
    "msalConfig": {"auth": {"clientId": "", "authority": "", "redirectUri": "/", "postLogoutRedirectUri": "/"}},
    "loginRequest": {"scopes": []},
    "tokenRequest": {"scopes": []},
}
# The settings that its page offers: those that have an effect here.
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


class TurnHandler(Protocol):
    """Answers a turn in a conversation of this owner."""

    def __call__(self, request: Request, *, streams: bool, owner: str = "") -> Awaitable[ASGIApp]: ...


def owner_of(user: str | None, caller: Caller) -> str:
    """Return the owner of a user id's conversations; empty if the caller has a name, or the id is too short."""
    if not user or not caller.is_anonymous or len(user) < MIN_USER:
        return ""
    return f"{VISITOR}{hashlib.blake2b(user.encode(), digest_size=16).hexdigest()}"


def routes(site: Site, config: Config, answer: TurnHandler) -> list[BaseRoute]:
    async def auth_setup(_: Request, __: Caller) -> Response:
        return _json(AUTH_SETUP)

    async def page_setup(_: Request, __: Caller) -> Response:
        return _json({**PAGE_SETUP, "showVectorOption": site.finds_by_meaning})

    async def content(request: Request, caller: Caller) -> Response:
        cited = _citation_id(request.path_params["citation"], base_of(request, config.server))
        item = await site.find_item(cited, caller)
        return RedirectResponse(item_path(item.ref), headers=HEADERS)

    async def chat(request: Request) -> ASGIApp:
        return await answer(request, streams=True)

    async def chats(request: Request, caller: Caller) -> Response:
        summaries = await site.transcripts.list_for(_owner(request, caller))
        return _json([{"id": summary.id, "title": summary.title} for summary in summaries])

    async def messages(request: Request, caller: Caller) -> Response:
        conversation = await site.transcripts.get(_owner(request, caller), request.path_params["id"])
        return _json(_messages(conversation))

    async def delete(request: Request, caller: Caller) -> Response:
        check_origin(request, config.server)
        await site.transcripts.delete(_owner(request, caller), request.path_params["id"])
        return Response(status_code=204)

    def render_error(_: Request, error: SiteError) -> Response:
        return refusal(error, config.section(ChatSettings).errors)

    async def one(request: Request, caller: Caller) -> Response:
        return await (delete if request.method == "DELETE" else messages)(request, caller)

    def at(path: str, endpoint: Endpoint, *methods: str) -> TrailingSlashRoute:
        return TrailingSlashRoute(path, make_handler(endpoint, render_error), *(methods or ("GET",)))

    return [
        at("/auth_setup", auth_setup),
        at("/config", page_setup),
        # The id of an item may end with a slash of its own.
        Route("/content/{citation:path}", make_handler(content, render_error), methods=["GET"]),
        TrailingSlashRoute(f"{CHATS}/stream", chat, "POST"),
        at(CHATS, chats),
        at(f"{CHATS}/{{id}}", one, "GET", "DELETE"),
    ]


def _citation_id(citation: str, base: str) -> str:
    """Return the id of a cited item, from an id or a URL of this site. A path may have lost one of two slashes."""
    path, here = citation.replace("://", ":/", 1), f"{base}{item_path('')}".replace("://", ":/", 1)
    return path.removeprefix(here) if path.startswith(here) else citation


def _owner(request: Request, caller: Caller) -> str:
    user = request.query_params.get("userId")
    if not caller.is_anonymous:
        return for_user(caller, user or "").owner
    owner = owner_of(user, caller)
    if not owner:
        raise BadRequest(f"userId is missing, or shorter than {MIN_USER} characters")
    return owner


def _messages(conversation: StoredConversation) -> list[dict[str, str]]:
    pairs = [(("user", turn.question), ("assistant", turn.answer)) for turn in conversation.turns]
    return [{"role": role, "content": content} for pair in pairs for role, content in pair]


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), 200, HEADERS, "application/json")
