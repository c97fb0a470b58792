"""Answers a chat request: finds its conversation, asks the site, and keeps the turn."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

from portico.ask.events import ClarificationEvent, Event
from portico.ask.small_talk import SmallTalk, parse_small_talk
from portico.ask.suggestions import starters
from portico.ask.understanding.kinds import QUESTION_WORDS
from portico.config import Config
from portico.conversations.dialogue import Dialogue, open_dialogue
from portico.conversations.transcripts import TranscriptTurn
from portico.errors import BadRequest, Conflict, NotFound, SiteError
from portico.items import Item
from portico.protocols.chat.errors import error_body
from portico.protocols.chat.overrides import Overrides, read_overrides
from portico.protocols.chat.render import ChatRenderer, ChatRenderOptions, chunks, collect_answer
from portico.protocols.chat.requests import ChatRequest
from portico.protocols.chat.settings import ChatSettings
from portico.protocols.chat.threads import MINTED, ChatThread, ChatThreads
from portico.protocols.http import StartedStream, start_stream
from portico.protocols.rendering import RenderContext
from portico.requests import Ask, Caller, File, Mode
from portico.site import Site

MAX_PREVIOUS = 20  # earlier questions that are looked at
MAX_EARLIER = 2000  # characters of one


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request as its transport delivers it."""

    request: ChatRequest
    session_name: str
    caller: Caller
    context: RenderContext
    files: tuple[File, ...] = ()
    may_act: bool = True  # nobody but the caller can have sent it
    owner: str = ""  # whose conversations it belongs to, if not the caller's
    key: str = ""  # by which the client knows this turn again
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatStream:
    """An answer whose first event has arrived."""

    renderer: ChatRenderer
    events: StartedStream[Event]
    done: Callable[[], Awaitable[None]]
    render_error: Callable[[SiteError], dict[str, Any]]

    async def chunks(self) -> AsyncGenerator[dict[str, Any]]:
        async with (
            aclosing(self.events),
            aclosing(chunks(self.events, self.renderer, self.done, self.render_error)) as pieces,
        ):
            async for chunk in pieces:
                yield chunk

    async def collect(self) -> dict[str, Any]:
        async with aclosing(self.events):
            return await collect_answer(self.events, self.renderer, self.done)


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A question in its conversation, before it is asked."""

    ask: Ask
    thread: ChatThread
    dialogue: Dialogue
    overrides: Overrides
    small_talk: SmallTalk
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatService:
    site: Site
    config: Config

    async def begin(self, request: TurnRequest) -> ChatStream:
        plan = await self._plan(request)
        events, starters = self._events(plan, request.caller)
        renderer = ChatRenderer(self._render_options(plan, request, starters))

        async def done() -> None:
            clarify = renderer.state.clarify
            state = plan.dialogue.state_token(plan.ask, clarify)
            at = datetime.now(UTC).isoformat(timespec="microseconds")
            turn = TranscriptTurn(request.request.question, renderer.text, at, tuple(renderer.points.citations), state)
            # The answer stands even if its conversation was deleted meanwhile, or too many requests write to it.
            with suppress(Conflict, NotFound):
                await self._threads.close(plan.thread, turn, request.caller)

        def render_error(error: SiteError) -> dict[str, Any]:
            return error_body(error, self.config.section(ChatSettings).errors)

        return ChatStream(renderer, await start_stream(events), done, render_error)

    @property
    def _threads(self) -> ChatThreads:
        return ChatThreads(self.site, self.config.section(ChatSettings).keep)

    async def _plan(self, turn: TurnRequest) -> PlannedTurn:
        request, caller = turn.request, turn.caller
        overrides = self._overrides(request, caller)
        collections = self._collections(request, overrides, caller)
        key = await self._threads.claim_key(turn.key, _turn(turn), caller) if turn.key else ""
        small_talk = parse_small_talk(request.question)
        session = (
            {MINTED: request.request_context.session_id} if request.request_context.session_id else request.session
        )
        thread = await self._threads.open(session, request.history, request.question, caller, turn.owner, key)
        token = request.portico.state or thread.state
        dialogue = open_dialogue(None, token or None, self.site, caller)
        passages = await self._passages(turn)
        ask = Ask(
            request.question,
            collections,
            previous=_previous(thread, dialogue),
            answers=request.portico.answers or {},
            modes=self._modes(request, small_talk.question),
            limit=overrides.top,
            language=overrides.language,
            # A client that cannot send the state back is asked once, in the first turn.
            may_clarify=not passages and (not thread.turns or bool(token)),
            may_act=turn.may_act,
            retrieval=overrides.retrieval,
            attached=passages,
        )
        ask = dialogue.resume(ask, has_previous=bool(thread.turns))
        if not ask.key:
            ask = replace(ask, key=key or thread.key(request.question))
        ignored = ("messages: system",) if request.has_system else ()
        return PlannedTurn(ask, thread, dialogue, overrides, small_talk, (*turn.ignored, *ignored))

    async def _passages(self, request: TurnRequest) -> tuple[Item, ...]:
        if not request.files:
            return ()
        return await self.site.read_files(request.files, request.request.question, request.caller)

    def _overrides(self, request: ChatRequest, caller: Caller) -> Overrides:
        readable = frozenset(self.site.access.readable(caller))
        raw, has_vectors = request.request_context.overrides or {}, self.site.finds_by_meaning
        return read_overrides(raw, self.config.ask, has_vectors=has_vectors, collections=readable)

    def _modes(self, request: ChatRequest, question: str) -> frozenset[Mode]:
        """Return the modes: a question is answered; without a model, other texts have their results summarised."""
        first = question.split(maxsplit=1)[:1]
        asks = "?" in question or "？" in question or any(word.lower() in QUESTION_WORDS for word in first)
        answers = asks or self.config.ask.has_model or bool(request.history)
        mode: Mode = request.portico.mode or ("generate" if answers else "summarize")
        return frozenset({"list", mode})

    def _collections(self, request: ChatRequest, overrides: Overrides, caller: Caller) -> tuple[str, ...]:
        names = tuple(request.portico.collections or overrides.collections)
        if not overrides.without:
            return names
        left = tuple(name for name in names or self.site.access.readable(caller) if name != overrides.without)
        if not left:
            raise BadRequest("`context.overrides.exclude_category` excludes every collection")
        return left

    def _events(self, plan: PlannedTurn, caller: Caller) -> tuple[AsyncGenerator[Event], tuple[str, ...]]:
        """Return the events of the answer, and suggestions of how to begin if the question is only a greeting."""
        events, small_talk = cast("AsyncGenerator[Event]", self.site.ask(plan.ask, caller)), plan.small_talk
        is_question = bool(small_talk.question or plan.ask.answers or plan.ask.attached)
        if is_question or small_talk.is_thanks or small_talk.is_farewell:
            return events, ()
        return events, starters(self.site.catalog.public, plan.overrides.language or small_talk.language)

    def _render_options(self, plan: PlannedTurn, turn: TurnRequest, starters: tuple[str, ...]) -> ChatRenderOptions:
        thread, request = plan.thread, turn.request

        def state(clarify: ClarificationEvent | None) -> str:
            return plan.dialogue.state_token(plan.ask, clarify)

        return ChatRenderOptions(
            request.question,
            plan.ask,
            plan.overrides,
            turn.context,
            _thread_body(thread),
            len(request.messages),
            plan.ignored,
            starters,
            thread.questions,
            state,
            request.session if request.session is not None else thread.session,
            turn.session_name,
            request.request_context.session_id or (thread.conversation.id if request.request_context.user_id else ""),
        )


def _turn(request: TurnRequest) -> list[Any]:
    """Return what identifies a turn. Its session is not part of it."""
    files = [(file.name, file.type, hashlib.blake2b(file.body).hexdigest()) for file in request.files]
    return [request.request.messages, request.request.context, files]


def _previous(thread: ChatThread, dialogue: Dialogue) -> tuple[str, ...]:
    """Return the earlier questions without the one that waits for answers."""
    previous = tuple(question[:MAX_EARLIER] for question in thread.questions[-MAX_PREVIOUS:])
    pending = dialogue.pending_question
    return previous[:-1] if pending and previous[-1:] == (pending,) else previous


def _thread_body(thread: ChatThread) -> dict[str, Any]:
    session = "known" if thread.is_known else "new"
    body = {"id": thread.conversation.id, "session": session, "turn": len(thread.turns) + 1}
    if thread.is_repeated:
        body["repeated"] = True
    return {**body, "stored": bool(thread.owner)}
