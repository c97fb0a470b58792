"""From a request that was read to an answer under way: which conversation, which question, how it is wanted."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from portico.ask.events import Clarify, Event, Finished, Said
from portico.ask.small_talk import Heard, heard, reply
from portico.ask.suggestions import starters
from portico.ask.understanding.kinds import ASKING
from portico.config import Config
from portico.conversations.transcripts import Turn
from portico.errors import BadRequest, Conflict, NotFound, SiteError
from portico.items import Item
from portico.protocols.chat.errors import shown_error
from portico.protocols.chat.overrides import Overrides, read_overrides
from portico.protocols.chat.render import Manner, Telling, chunks, folded
from portico.protocols.chat.requests import ChatRequest
from portico.protocols.chat.threads import MINTED, Thread, Threads
from portico.protocols.http import Begun, begin
from portico.protocols.nlweb.dialects import Voice
from portico.protocols.nlweb.item_rendering import Premises
from portico.protocols.nlweb.models import Session, Wish
from portico.protocols.nlweb.sessions import Conversation, conversation
from portico.requests import Ask, Caller, File, Mode
from portico.site import Site

MAX_PREVIOUS = 20  # earlier questions that are looked at
MAX_EARLIER = 2000  # characters of one


@dataclass(frozen=True, slots=True)
class Received:
    """One request, and what its transport says of it."""

    request: ChatRequest
    session_name: str
    caller: Caller
    premises: Premises
    files: tuple[File, ...] = ()
    may_act: bool = True  # nobody but the caller can have sent it
    owner: str = ""  # whose conversations it belongs to, if not the caller's
    key: str = ""  # by which the client knows this turn again
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer whose first event is there."""

    telling: Telling
    events: Begun[Event]
    done: Callable[[], Awaitable[None]]
    refused: Callable[[SiteError], dict[str, Any]]

    async def chunks(self) -> AsyncGenerator[dict[str, Any]]:
        async with aclosing(self.events), aclosing(chunks(self.events, self.telling, self.done, self.refused)) as each:
            async for chunk in each:
                yield chunk

    async def whole(self) -> dict[str, Any]:
        async with aclosing(self.events):
            return await folded(self.events, self.telling, self.done)


@dataclass(frozen=True, slots=True)
class Plan:
    """A question in its conversation, before it is asked."""

    ask: Ask
    thread: Thread
    talk: Conversation
    overrides: Overrides
    courtesy: Heard
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counter:
    site: Site
    config: Config

    async def begin(self, got: Received) -> Answering:
        plan = await self._plan(got)
        events, starters = self._events(plan, got.caller)
        telling = Telling(self._manner(plan, got, starters))

        async def done() -> None:
            clarify = telling.told.clarify
            state = plan.talk.context(plan.ask, clarify, self.site, got.caller)["state_token"]
            at = datetime.now(UTC).isoformat(timespec="microseconds")
            turn = Turn(got.request.question, telling.text, at, tuple(telling.points.citations), state)
            # The answer was given, even if its conversation was deleted meanwhile or too many write to it at once.
            with suppress(Conflict, NotFound):
                await self._threads.close(plan.thread, turn, got.caller)

        def refused(error: SiteError) -> dict[str, Any]:
            return shown_error(error, self.config.chat.errors)

        return Answering(telling, await begin(events), done, refused)

    @property
    def _threads(self) -> Threads:
        return Threads(self.site, self.config.chat.keep)

    async def _plan(self, got: Received) -> Plan:
        request, caller = got.request, got.caller
        async with self.site.gate.charging(caller):
            overrides = self._overrides(request, caller)
            collections = self._collections(request, overrides, caller)
            key = await self._threads.claimed(got.key, _turn(got), caller) if got.key else ""
        courtesy = heard(request.question)
        session = {MINTED: request.said.session_id} if request.said.session_id else request.session
        thread = await self._threads.open(session, request.history, request.question, caller, got.owner, key)
        token = request.own.state or thread.state
        talk = conversation(Session(None, token or None), self.site, caller)
        passages = await self._passages(got)
        ask = Ask(
            courtesy.question or request.question,
            collections,
            previous=_previous(thread, talk),
            answers=request.own.answers or {},
            modes=self._modes(request, courtesy.question),
            limit=overrides.top,
            language=overrides.language,
            # Who cannot bring back what was asked is asked once, at the beginning.
            may_clarify=not passages and (not thread.turns or bool(token)),
            may_act=got.may_act,
            retrieval=overrides.retrieval,
            attached=passages,
        )
        wish = Wish(Voice(), ask, "conversational_search", None, Session(), bool(thread.turns))
        ask = talk.resumed(wish)
        if not ask.key:
            ask = replace(ask, key=key or thread.key(request.question))
        ignored = ("messages: system",) if request.has_system else ()
        return Plan(ask, thread, talk, overrides, courtesy, (*got.ignored, *ignored))

    async def _passages(self, got: Received) -> tuple[Item, ...]:
        if not got.files:
            return ()
        # To read files is work of its own, which is to be paid for before it is done.
        await self.site.gate.spend(got.caller)
        return await self.site.read(got.files, got.request.question)

    def _overrides(self, request: ChatRequest, caller: Caller) -> Overrides:
        known = frozenset(self.site.gate.readable(caller))
        said, has_vectors = request.said.overrides or {}, self.site.finds_by_meaning
        return read_overrides(said, self.config.ask, has_vectors=has_vectors, known=known)

    def _modes(self, request: ChatRequest, question: str) -> frozenset[Mode]:
        """What asks something is answered; without a model, what only names something has the results summed up."""
        first = question.split(maxsplit=1)[:1]
        asks = "?" in question or "？" in question or any(word.lower() in ASKING for word in first)
        answers = asks or self.config.ask.has_model or bool(request.history)
        wanted: Mode = request.own.mode or ("generate" if answers else "summarize")
        return frozenset({"list", wanted})

    def _collections(self, request: ChatRequest, overrides: Overrides, caller: Caller) -> tuple[str, ...]:
        wanted = tuple(request.own.collections or overrides.collections)
        if not overrides.without:
            return wanted
        left = tuple(each for each in wanted or self.site.gate.readable(caller) if each != overrides.without)
        if not left:
            raise BadRequest("context.overrides.exclude_category leaves nothing to look in")
        return left

    def _events(self, plan: Plan, caller: Caller) -> tuple[AsyncGenerator[Event], tuple[str, ...]]:
        """What answers, and what to ask next where that does not depend on the answer."""
        if plan.courtesy.question or plan.ask.answers or plan.ask.attached:
            return cast("AsyncGenerator[Event]", self.site.ask(plan.ask, caller)), ()
        names = [each.title or each.name for each in self.site.catalog.public]
        told, language = plan.courtesy, plan.overrides.language
        is_leaving = told.is_thanks or told.is_farewell
        first = () if is_leaving else starters(self.site.catalog.public, language or told.language)
        return self._greeted(plan.ask, reply(told, names, language), caller), first

    async def _greeted(self, ask: Ask, text: str, caller: Caller) -> AsyncGenerator[Event]:
        await self.site.gate.admit(ask, caller)
        yield Said(text)
        yield Finished(0)

    def _manner(self, plan: Plan, got: Received, starters: tuple[str, ...]) -> Manner:
        thread, request = plan.thread, got.request

        def state(clarify: Clarify | None) -> str:
            return plan.talk.context(plan.ask, clarify, self.site, got.caller)["state_token"]

        return Manner(
            request.question,
            plan.ask,
            plan.overrides,
            got.premises,
            _shown_thread(thread),
            len(request.messages),
            plan.ignored,
            starters,
            thread.questions,
            state,
            request.session if request.session is not None else thread.session,
            got.session_name,
            request.said.session_id or (thread.conversation.id if request.said.user_id else ""),
        )


def _turn(got: Received) -> list[Any]:
    """What makes a turn another one: its session does not."""
    files = [(each.name, each.type, hashlib.blake2b(each.body).hexdigest()) for each in got.files]
    return [got.request.messages, got.request.context, files]


def _previous(thread: Thread, talk: Conversation) -> tuple[str, ...]:
    """Earlier questions without what was only a courtesy, and without the one that waits for answers."""
    asked = [heard(each).question[:MAX_EARLIER] for each in thread.questions[-MAX_PREVIOUS:]]
    previous = tuple(each for each in asked if each.strip())
    pending = talk.state.q if talk.state else None
    return previous[:-1] if pending and previous[-1:] == (pending,) else previous


def _shown_thread(thread: Thread) -> dict[str, Any]:
    session = "known" if thread.is_known else "new"
    told = {"id": thread.conversation.id, "session": session, "turn": len(thread.turns) + 1}
    if thread.is_repeated:
        told["repeated"] = True
    return {**told, "stored": bool(thread.owner)}
