"""What holds a conversation together between requests: a sealed token that the client carries. Nothing is kept here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from portico.ask.clarification import MAX_ANSWER_WORDS, gives_up, is_an_answer
from portico.ask.commands import CONFIRM, wanted_operation
from portico.ask.events import Clarify
from portico.ask.understanding.kinds import ASKING
from portico.ask.understanding.request_attributes import is_no, is_yes
from portico.catalog import Catalog
from portico.protocols.nlweb.dialects import new_id
from portico.protocols.nlweb.models import Session, Wish
from portico.requests import Ask, Caller
from portico.site import Site

SECONDS = 3600
MAX_TOKEN = 4096  # characters of a token of ours
MAX_PENDING = 1500  # bytes of a question that waits for answers
MAX_PREVIOUS = 5
MAX_PREVIOUS_TEXT = 300  # characters of each
MAX_QUESTIONS = 10
MAX_QUESTION_ID = 100  # bytes
MAX_ANSWERS = 1000  # bytes
_CONVERSATION = re.compile(r"[\w.:@/+=~-]{1,128}\Z")


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a token says."""

    c: str  # the conversation
    p: list[str]  # questions before, oldest first
    q: str | None = None  # the question that waits for answers; empty if it was too long to carry
    r: int = 0  # how often it was asked back
    i: list[str] = []  # the ids of what was asked back
    a: dict[str, Any] = {}  # what was answered so far
    k: str = ""  # of this question: an answer that comes twice is acted on once


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    state: State | None
    catalog: Catalog
    ignored: tuple[str, ...] = ()

    def resumed(self, wish: Wish) -> Ask:
        """The question in the light of what was asked before."""
        ask, state = _unconfirmed(wish.ask, self.state), self.state
        if state is None:
            return ask
        previous = ask.previous if wish.has_previous else tuple(state.p)
        if state.q is None:
            return replace(ask, previous=previous, settled=state.a)
        answers = {**{name: ask.filters[name] for name in state.i if name in ask.filters}, **ask.answers}
        if answers:
            answers = {**state.a, **answers}
            filters = {name: value for name, value in ask.filters.items() if name not in answers}
            text = state.q or ask.text
            return replace(
                ask, text=text, filters=filters, answers=answers, previous=previous, rounds=state.r, key=state.k
            )
        if CONFIRM in state.i and (is_yes(ask.text) or is_no(ask.text)):
            answers = {**state.a, CONFIRM: ask.text}
            asked = state.q or ask.text
            return replace(ask, text=asked, answers=answers, previous=previous, rounds=state.r, key=state.k)
        if state.q and self._commands(state.q):
            return self._going_on(replace(ask, previous=previous), state, state.q)
        if state.q and _adds(ask.text) and not self._commands(ask.text):
            return replace(ask, text=f"{state.q}, {ask.text}", settled=state.a, previous=previous, rounds=state.r)
        if state.q and state.q not in previous[-1:]:
            previous = (*previous, state.q)
        return replace(ask, previous=previous, settled=state.a, rounds=state.r)

    def _commands(self, text: str) -> bool:
        return wanted_operation(text, self.catalog.operations.values(), lambda _: True) is not None

    def _going_on(self, ask: Ask, state: State, command: str) -> Ask:
        """What is said while a command waits: that it is not wanted any more, what it lacks, or something else."""
        if gives_up(ask.text):
            return replace(ask, text=command, answers={CONFIRM: False}, rounds=state.r, key=state.k)
        is_other = self._commands(ask.text) or not is_an_answer(ask.text, self.catalog.collections)
        if CONFIRM in state.i or is_other:
            return ask
        if len(state.i) == 1:
            answers = {**state.a, state.i[0]: ask.text}
            return replace(ask, text=command, answers=answers, rounds=state.r, key=state.k)
        return replace(ask, text=f"{command}, {ask.text}", answers=state.a, rounds=state.r)

    def context(self, ask: Ask, clarify: Clarify | None, site: Site, caller: Caller) -> dict[str, Any]:
        """The session context to send: with it the next question is one of this conversation."""
        asked = [ask.text] if clarify is None else []
        previous = [text[:MAX_PREVIOUS_TEXT] for text in (*ask.previous, *asked)][-MAX_PREVIOUS:]
        # What a command was told, and that it was meant, says nothing of the next one.
        is_done = clarify is None and self._commands(ask.text)
        answers = _bounded({**ask.settled, **({} if is_done else _kept(ask.answers))})
        state = State(self.id, previous, a=answers)
        if clarify is not None:
            key = ask.key or new_id("once")
            state = State(self.id, previous, _carried(ask.text), ask.rounds + 1, _ids(clarify), answers, key)
        return {"conversation_id": self.id, "state_token": _sealed(state, site, caller)}


def _unconfirmed(ask: Ask, state: State | None) -> Ask:
    """A question without a yes that nobody asked for: it counts only with the state that came with its question."""
    if CONFIRM not in ask.answers or (state is not None and CONFIRM in state.i):
        return ask
    return replace(ask, answers={name: value for name, value in ask.answers.items() if name != CONFIRM})


def _adds(text: str) -> bool:
    """Whether words only add to what was asked before, and ask nothing themselves."""
    said = text.split()
    return 0 < len(said) <= MAX_ANSWER_WORDS and "?" not in text and said[0].lower() not in ASKING


def conversation(session: Session, site: Site, caller: Caller) -> Conversation:
    """The conversation a request belongs to. A token that is not good is left aside, never an error."""
    given, token = session.conversation_id, session.state_token
    named = given if isinstance(given, str) and _CONVERSATION.match(given) else ""
    wrong_name = ("meta.session_context.conversation_id",) if given is not None and not named else ()
    state = _state(token, site, caller)
    if state is None or (named and state.c != named):
        wrong_token = ("meta.session_context.state_token",) if token is not None else ()
        return Conversation(named or new_id("conv"), None, site.catalog, (*wrong_name, *wrong_token))
    return Conversation(state.c, state, site.catalog, wrong_name)


def _state(token: Any, site: Site, caller: Caller) -> State | None:
    payload = site.unseal(token, caller) if isinstance(token, str) else None
    if payload is None:
        return None
    try:
        return msgspec.convert(payload, State)
    except msgspec.ValidationError:  # a token of ours, for something else
        return None


def _kept(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Answers that hold on: a yes is one to what it was asked for, and no more."""
    return {name: value for name, value in answers.items() if name != CONFIRM}


def _bounded(answers: dict[str, Any]) -> dict[str, Any]:
    """Answers as far as they are worth carrying."""
    return answers if len(msgspec.json.encode(answers)) <= MAX_ANSWERS else {}


def _carried(text: str) -> str:
    return text if len(text.encode()) <= MAX_PENDING else ""


def _ids(clarify: Clarify) -> list[str]:
    ids = [question.id for question in clarify.questions if len(question.id.encode()) <= MAX_QUESTION_ID]
    return ids[:MAX_QUESTIONS]


def _sealed(state: State, site: Site, caller: Caller) -> str:
    token = site.seal(msgspec.to_builtins(state), caller, SECONDS)
    if len(token) > MAX_TOKEN and state.p:
        return _sealed(msgspec.structs.replace(state, p=state.p[1:]), site, caller)
    return token
