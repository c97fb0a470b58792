"""The endpoints over HTTP: models, chat completions and responses."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from portico.access.identity import PREFIX, RequestCredentials, for_user
from portico.ask.events import Event
from portico.config import Config
from portico.conversations.dialogue import Dialogue, open_dialogue
from portico.protocols import Mounted, Services, request_segments
from portico.protocols.edge import EdgePolicy
from portico.protocols.http import (
    EventStream,
    base_of,
    caller_of,
    credentials_of,
    decode,
    is_from_elsewhere,
    read_body,
    sse,
    start_stream,
    while_connected,
)
from portico.protocols.openai import COMPLETIONS_PATH, MODELS_PATH, RESPONSES_PATH
from portico.protocols.openai.answers import AnswerText
from portico.protocols.openai.completions import Completion
from portico.protocols.openai.errors import HEADERS, InvalidParameter, UnknownModel, error_body, render_error
from portico.protocols.openai.requests import ConversationInput, collection_of, read_completion, read_response
from portico.protocols.openai.responses import ResponseBuilder
from portico.protocols.openai.settings import OpenaiSettings
from portico.protocols.problems import BROKEN
from portico.protocols.rendering import RenderContext
from portico.requests import Ask, Caller, Mode
from portico.site import Site

BROKEN_FRAME = sse({"error": error_body(BROKEN)})

Frames: TypeAlias = Callable[[AsyncIterator[Event]], AsyncGenerator[bytes]]
Collect: TypeAlias = Callable[[AsyncIterator[Event]], Coroutine[Any, Any, dict[str, Any]]]


def mount(services: Services) -> Mounted:
    if not services.config.section(OpenaiSettings).enabled:
        return Mounted()
    endpoint = OpenaiEndpoint(services.site, services.config)
    routes = [
        Route(MODELS_PATH, endpoint.list_models, methods=["GET"]),
        Route(f"{MODELS_PATH}/{{model:path}}", endpoint.get_model, methods=["GET"]),
        Route(COMPLETIONS_PATH, endpoint.complete, methods=["POST"]),
        Route(RESPONSES_PATH, endpoint.respond, methods=["POST"]),
    ]
    return Mounted(routes=routes, render_error=render_error, policy=EdgePolicy(credentials=_credentials_of))


def _credentials_of(connection: HTTPConnection) -> RequestCredentials:
    """Return the credentials of a request. Clients of this API always send a key, also to a site that needs none.

    A bearer that has neither the form of a key nor that of a token can give no rights, and counts as none.
    """
    credentials = credentials_of(connection)
    is_placeholder = not credentials.is_token and not credentials.bearer.startswith(PREFIX)
    return replace(credentials, bearer="") if is_placeholder else credentials


class OpenaiEndpoint:
    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._settings = config.section(OpenaiSettings)
        self._request_segments = request_segments(config)

    async def list_models(self, request: Request) -> Response:
        readable = set(self._site.access.readable(caller_of(request)))
        names = [item.name for item in self._site.catalog.public if item.name in readable]
        models = [self._model(name) for name in (self._settings.model, *(f"{self._settings.model}/{n}" for n in names))]
        return JSONResponse({"object": "list", "data": models}, headers=HEADERS)

    async def get_model(self, request: Request) -> Response:
        name = request.path_params["model"]
        collections = collection_of(name, self._site.catalog, self._settings)
        if not set(collections) <= set(self._site.access.readable(caller_of(request))):
            raise UnknownModel(f"There is no model {name[:100]!r}", param="model")
        return JSONResponse(self._model(name), headers=HEADERS)

    async def complete(self, request: Request) -> ASGIApp:
        body, prompt = read_completion(await self._read(request))
        caller = for_user(caller_of(request), body.user or "")
        ask = self._ask(request, prompt, collection_of(body.model, self._site.catalog, self._settings))
        has_usage = bool(body.stream_options and body.stream_options.include_usage)
        completion = Completion(AnswerText(self._context(request), prompt), body.model, has_usage)
        collect, frames = completion.collect, completion.frames
        return await self._answer(request, ask, caller, collect, frames if body.stream else None)

    async def respond(self, request: Request) -> ASGIApp:
        body, prompt = read_response(await self._read(request))
        caller = for_user(caller_of(request), body.user or "")
        dialogue = await self._open_dialogue(body.previous_response_id, caller)
        ask = self._ask(request, prompt, collection_of(body.model, self._site.catalog, self._settings))
        ask = dialogue.resume(replace(ask, may_clarify=True), has_previous=bool(prompt.previous))

        async def close(id: str, answer: AnswerText) -> None:
            if body.store is not False:
                token = dialogue.state_token(ask, answer.clarification)
                await self._site.notes.set(_note(id), token.encode(), caller)

        builder = ResponseBuilder(AnswerText(self._context(request), prompt), body, close)
        collect, frames = builder.collect, builder.frames
        return await self._answer(request, ask, caller, collect, frames if body.stream else None)

    async def _answer(
        self, request: Request, ask: Ask, caller: Caller, collect: Collect, frames: Frames | None
    ) -> ASGIApp:
        events = await while_connected(request.receive, start_stream(self._site.ask(ask, caller)))
        if frames:
            return EventStream(frames(events), (BROKEN_FRAME,), work=events, headers=HEADERS)
        async with aclosing(events):
            body = await while_connected(request.receive, collect(events))
        return Response(msgspec.json.encode(body, enc_hook=str), 200, HEADERS, "application/json")

    async def _read(self, request: Request) -> Any:
        limits = self._site.limits
        return decode(await read_body(request, limits.payload_bytes), limits)

    def _ask(self, request: Request, prompt: ConversationInput, collections: tuple[str, ...]) -> Ask:
        is_question = "?" in prompt.text or "？" in prompt.text or prompt.previous or self._config.ask.has_model
        mode: Mode = "generate" if is_question else "summarize"
        return Ask(
            prompt.text,
            collections,
            previous=prompt.previous,
            modes=frozenset({"list", mode}),
            # Only a response can be referred to by the answer to what it asks; in a completion one question is asked.
            may_clarify=not prompt.previous,
            # A page of another site could have made a browser send this, so it runs nothing.
            may_act=not is_from_elsewhere(request, self._config.server),
            key=request.headers.get("idempotency-key", ""),
        )

    async def _open_dialogue(self, response_id: str | None, caller: Caller) -> Dialogue:
        token = await self._site.notes.get(_note(response_id), caller) if response_id else None
        if response_id and token is None:
            raise InvalidParameter(
                f"There is no response {response_id[:80]!r} to continue",
                param="previous_response_id",
                hint="Responses are stored for an hour. Send the conversation as `input` instead.",
            )
        return open_dialogue(None, token.decode() if token else None, self._site, caller)

    def _context(self, request: Request) -> RenderContext:
        collections = self._site.catalog.collections
        return RenderContext(
            base_of(request, self._config.server),
            lambda name: collections[name].type if name in collections else "",
            request_segments=self._request_segments,
        )

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": 0, "owned_by": self._site.name}


def _note(response_id: str) -> str:
    return f"openai\n{response_id[:200]}"
