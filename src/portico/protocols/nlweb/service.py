"""Answers the requests of NLWeb, whatever carries them: HTTP, WebSocket, MCP or A2A."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from portico.access.identity import for_user, names_user
from portico.ask.events import ClarificationEvent, Event, TextEvent
from portico.config import Config
from portico.conversations.dialogue import Dialogue, open_dialogue
from portico.protocols import ActionForm, action_forms, action_tool, request_segments
from portico.protocols.http import StartedStream, base_of, start_stream
from portico.protocols.nlweb.dialects import FLAT, V54, ClientInfo
from portico.protocols.nlweb.errors import JsonAnswer
from portico.protocols.nlweb.models import AskRequest, AwaitRequest, SessionContext, check_text, parse_ask, parse_await
from portico.protocols.nlweb.render import (
    AnswerFrame,
    EventListener,
    Renderer,
    RenderOptions,
    collect_answer,
    make_renderer,
    stream_frames,
)
from portico.protocols.nlweb.settings import NlwebSettings
from portico.protocols.rendering import RenderContext
from portico.requests import Ask, Caller
from portico.site import Site


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """A request as its transport delivers it."""

    raw: Any
    client: ClientInfo
    caller: Caller
    context: RenderContext
    since: float  # of time.perf_counter
    accept: str = ""
    language: str = ""
    may_act: bool = True  # nobody but the caller can have sent it
    may_clarify: bool = True  # the caller has not declined to say more

    @property
    def wants_events(self) -> bool:
        return "text/event-stream" in self.accept and "json" not in self.accept


@dataclass(frozen=True, slots=True)
class AnswerStream:
    """An answer whose first event has arrived."""

    renderer: Renderer
    events: StartedStream[Event]
    streams: bool

    async def frames(self) -> AsyncGenerator[AnswerFrame]:
        async with aclosing(self.events), aclosing(stream_frames(self.events, self.renderer)) as frames:
            async for frame in frames:
                yield frame

    async def collect(self, listener: EventListener | None = None) -> JsonAnswer:
        """Return the answer as one object. A listener is called with every event on the way."""
        async with aclosing(self.events):
            return await collect_answer(self.events, self.renderer, listener)


@dataclass(frozen=True, slots=True)
class NlwebService:
    site: Site
    config: Config

    async def ask(self, request: IncomingRequest) -> AnswerStream:
        parsed = parse_ask(request.raw, request.client, self.config.ask, request.language)
        request = self._for_user(request, parsed)
        dialogue = open_dialogue(parsed.session.conversation_id, parsed.session.state_token, self.site, request.caller)
        ask = dialogue.resume(parsed.ask, has_previous=parsed.has_previous)
        check_text(ask.text)
        streams = self._streams(parsed, request)
        ask = replace(
            ask,
            filters=_without_own_site(ask.filters, request.context.base_url),
            may_clarify=request.may_clarify and ask.may_clarify and self._may_clarify(parsed, ask, streams),
            may_act=request.may_act and ask.may_act,
        )
        answer = make_renderer(self._render_options(parsed, ask, dialogue, request))
        return AnswerStream(answer, await start_stream(self.site.ask(ask, request.caller)), streams)

    async def check_promise(self, request: IncomingRequest) -> AnswerStream:
        parsed = parse_await(request.raw, request.client)
        request = self._for_user(request, parsed)
        events = await self.site.task_events(parsed.token, request.caller, cancel=parsed.cancel)
        streams = request.wants_events if parsed.streaming is None else parsed.streaming
        options = RenderOptions(
            request.client,
            request.context,
            _now,
            _milliseconds_since(request.since),
            lambda _: _echo_session(parsed.session),
            parsed.format,
            frozenset({"summarize"} if any(isinstance(event, TextEvent) for event in events) else {"list"}),
            streams_text=parsed.streams_text,
        )
        return AnswerStream(make_renderer(options), await start_stream(_iterate(events)), streams)

    def render_context(self, connection: HTTPConnection | None, binding: ActionForm | None = None) -> RenderContext:
        """Return what rendering needs to know of the site. A binding may have a form of actions of its own."""
        collections, config = self.site.catalog.collections, self.config
        return RenderContext(
            base_of(connection, config.server),
            lambda name: collections[name].type if name in collections else "",
            self._filter_forms((binding,) if binding else action_forms(config)),
            request_segments(config),
            config.section(NlwebSettings).widget,
            action_tool(config) or "",
        )

    def _for_user(self, request: IncomingRequest, parsed: AskRequest | AwaitRequest) -> IncomingRequest:
        """Return the request for the user that it names, with actions in the forms that it prefers."""
        forms = self._filter_forms(parsed.action_forms) or request.context.action_forms
        return replace(
            request, caller=for_user(request.caller, parsed.user), context=replace(request.context, action_forms=forms)
        )

    def _filter_forms(self, forms: Iterable[ActionForm]) -> tuple[ActionForm, ...]:
        """Return the forms in which operations can be called. HTTP takes the place of MCP if no tool runs them."""
        has_tools = action_tool(self.config) is not None
        return tuple(dict.fromkeys("HTTP" if form == "MCP" and not has_tools else form for form in forms))

    def _streams(self, parsed: AskRequest, request: IncomingRequest) -> bool:
        # 7.2: what the request says decides, before what its headers say.
        if parsed.streaming is not None:
            return parsed.streaming
        return request.wants_events or request.client.dialect.streams

    def _may_clarify(self, parsed: AskRequest, ask: Ask, streams: bool) -> bool:
        if parsed.client.dialect is FLAT:
            # This dialect cannot carry how often the caller was asked back, so ask once, in the first turn.
            return not ask.previous
        is_search_page = parsed.client.dialect is V54 and streams and parsed.format == "conversational_search"
        return self.config.section(NlwebSettings).clarify_lists or not is_search_page

    def _render_options(
        self, parsed: AskRequest, ask: Ask, dialogue: Dialogue, request: IncomingRequest
    ) -> RenderOptions:
        def session(clarify: ClarificationEvent | None) -> dict[str, Any]:
            return {"conversation_id": dialogue.id, "state_token": dialogue.state_token(ask, clarify)}

        return RenderOptions(
            parsed.client,
            request.context,
            _now,
            _milliseconds_since(request.since),
            session,
            parsed.format,
            ask.modes,
            (
                *parsed.ignored,
                *(f"meta.session_context.{name}" for name in dialogue.invalid),
                *(("meta.user",) if request.caller.is_anonymous and names_user(parsed.user) else ()),
            ),
            "" if request.caller.is_anonymous else parsed.memory_text,
            self.config.section(NlwebSettings).dual_frames,
            parsed.streams_text,
        )


def _without_own_site(filters: Mapping[str, Any], base: str) -> Mapping[str, Any]:
    """Remove a filter `site` that names this site: clients send the address they ask at."""
    site_name = filters.get("site")
    host = urlsplit(base).netloc
    if not isinstance(site_name, str) or host not in {site_name, site_name.partition("://")[2].partition("/")[0]}:
        return filters
    return {name: value for name, value in filters.items() if name != "site"}


def _now() -> datetime:
    return datetime.now(UTC)


def _milliseconds_since(started: float) -> Callable[[], int]:
    return lambda: round((time.perf_counter() - started) * 1000)


def _echo_session(session: SessionContext) -> dict[str, Any] | None:
    """Return the session as it was sent: checking a promise does not change a conversation."""
    members = {"conversation_id": session.conversation_id, "state_token": session.state_token}
    return {name: value for name, value in members.items() if isinstance(value, str)} or None


async def _iterate(events: tuple[Event, ...]) -> AsyncGenerator[Event]:
    for event in events:
        yield event
