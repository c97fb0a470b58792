"""From a request that was read to an answer under way, wherever it came in: HTTP and WebSocket both ask here."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from portico.access.identity import for_user, names_user
from portico.ask.events import Clarify, Event, Said
from portico.config import ActionForm, Config
from portico.protocols.http import Begun, base_of, begin
from portico.protocols.nlweb.dialects import FLAT, V54, Voice
from portico.protocols.nlweb.errors import Whole
from portico.protocols.nlweb.item_rendering import Premises
from portico.protocols.nlweb.models import Checkin, Session, Wish, check_text, read_ask, read_await
from portico.protocols.nlweb.render import Frame, Hear, Manner, Rendering, folded, rendering, streamed
from portico.protocols.nlweb.sessions import Conversation, conversation
from portico.requests import Ask, Caller
from portico.site import Site


@dataclass(frozen=True, slots=True)
class Received:
    """One request, and what its transport says of it."""

    raw: Any
    voice: Voice
    caller: Caller
    premises: Premises
    since: float  # of time.perf_counter
    accept: str = ""
    language: str = ""
    may_act: bool = True  # nobody but the caller can have sent it
    may_clarify: bool = True  # the caller has not declined to say more

    @property
    def wants_events(self) -> bool:
        return "text/event-stream" in self.accept and "json" not in self.accept


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer whose first event is there."""

    rendering: Rendering
    events: Begun[Event]
    streams: bool

    async def frames(self) -> AsyncGenerator[Frame]:
        async with aclosing(self.events), aclosing(streamed(self.events, self.rendering)) as frames:
            async for frame in frames:
                yield frame

    async def whole(self, hear: Hear | None = None) -> Whole:
        """The answer as one object. Who wants to hear the events on the way is told each."""
        async with aclosing(self.events):
            return await folded(self.events, self.rendering, hear)


@dataclass(frozen=True, slots=True)
class Desk:
    site: Site
    config: Config

    async def ask(self, got: Received) -> Answering:
        wish = await self.site.unless_refused(self._wish(got), got.caller)
        got = self._for(got, wish)
        talk = conversation(wish.session, self.site, got.caller)
        ask = talk.resumed(wish)
        check_text(ask.text)
        streams = self._streams(wish, got)
        ask = replace(
            ask,
            filters=_elsewhere(ask.filters, got.premises.base),
            may_clarify=got.may_clarify and ask.may_clarify and self._may_clarify(wish, ask, streams),
            may_act=got.may_act and ask.may_act,
        )
        answer = rendering(self._manner(wish, ask, talk, got))
        return Answering(answer, await begin(self.site.ask(ask, got.caller)), streams)

    async def _wish(self, got: Received) -> Wish:
        return read_ask(got.raw, got.voice, self.config.ask, got.language)

    async def _look(self, got: Received) -> Checkin:
        return read_await(got.raw, got.voice)

    async def awaited(self, got: Received) -> Answering:
        look = await self.site.unless_refused(self._look(got), got.caller)
        got = self._for(got, look)
        events = await self.site.awaited(look.token, got.caller, cancel=look.cancel)
        streams = got.wants_events if look.streaming is None else look.streaming
        manner = Manner(
            got.voice,
            got.premises,
            _now,
            _milliseconds_since(got.since),
            lambda _: _echoed(look.session),
            look.format,
            frozenset({"summarize"} if any(isinstance(event, Said) for event in events) else {"list"}),
            growing=look.growing,
        )
        return Answering(rendering(manner), await begin(_each(events)), streams)

    def premises(self, connection: HTTPConnection | None, binding: ActionForm | None = None) -> Premises:
        """Where the site stands for a caller. Over a binding that has a form of actions, they are offered in it."""
        collections, config = self.site.catalog.collections, self.config
        return Premises(
            base_of(connection, config.server),
            lambda name: collections[name].type if name in collections else "",
            self._served((binding,) if binding else config.nlweb.actions),
            config.nlweb.widget,
            "" if self._has_own_tools else config.aql.single_tool,
        )

    def _for(self, got: Received, asked: Wish | Checkin) -> Received:
        """The request for the user that it names, with actions in the forms that it prefers."""
        forms = self._served(asked.action_forms) or got.premises.forms
        return replace(got, caller=for_user(got.caller, asked.user), premises=replace(got.premises, forms=forms))

    def _served(self, forms: Iterable[ActionForm]) -> tuple[ActionForm, ...]:
        """The forms in which operations can be called. Where no tool of MCP runs them, HTTP does."""
        has_tools = self._has_own_tools or self.config.aql.has_single_tool
        return tuple(dict.fromkeys("HTTP" if form == "MCP" and not has_tools else form for form in forms))

    @property
    def _has_own_tools(self) -> bool:
        return self.config.mcp.operations != "none"

    def _streams(self, wish: Wish, got: Received) -> bool:
        # 7.2: what the request says decides, before what its headers say.
        if wish.streaming is not None:
            return wish.streaming
        return got.wants_events or got.voice.dialect.streams

    def _may_clarify(self, wish: Wish, ask: Ask, streams: bool) -> bool:
        if wish.voice.dialect is FLAT:
            # It has no place for how often somebody was asked back: once, at the beginning of a conversation.
            return not ask.previous
        is_search_page = wish.voice.dialect is V54 and streams and wish.format == "conversational_search"
        return self.config.nlweb.clarify_lists or not is_search_page

    def _manner(self, wish: Wish, ask: Ask, talk: Conversation, got: Received) -> Manner:
        def session(clarify: Clarify | None) -> dict[str, Any]:
            return talk.context(ask, clarify, self.site, got.caller)

        return Manner(
            wish.voice,
            got.premises,
            _now,
            _milliseconds_since(got.since),
            session,
            wish.format,
            ask.modes,
            (
                *wish.ignored,
                *talk.ignored,
                *(("meta.user",) if got.caller.is_anonymous and names_user(wish.user) else ()),
            ),
            "" if got.caller.is_anonymous else wish.remembers,
            self.config.nlweb.dual_frames,
            wish.growing,
        )


def _elsewhere(filters: Mapping[str, Any], base: str) -> Mapping[str, Any]:
    """The filters without a site that is this one: clients name the address they ask at."""
    said = filters.get("site")
    host = urlsplit(base).netloc
    if not isinstance(said, str) or host not in {said, said.partition("://")[2].partition("/")[0]}:
        return filters
    return {name: value for name, value in filters.items() if name != "site"}


def _now() -> datetime:
    return datetime.now(UTC)


def _milliseconds_since(started: float) -> Callable[[], int]:
    return lambda: round((time.perf_counter() - started) * 1000)


def _echoed(session: Session) -> dict[str, Any] | None:
    """A session as it came: looking at a promise does not move a conversation on."""
    given = {"conversation_id": session.conversation_id, "state_token": session.state_token}
    return {name: value for name, value in given.items() if isinstance(value, str)} or None


async def _each(events: tuple[Event, ...]) -> AsyncGenerator[Event]:
    for event in events:
        yield event
