"""The state of a conversation between two requests: a signed token that the client carries. Nothing is stored here.

Every protocol uses it. The token holds the earlier questions, the question that waits for answers, and the answers.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from portico.access.signed_tokens import SignedTokens
from portico.ask.clarification import MAX_ANSWER_WORDS, is_an_answer, is_dismissal
from portico.ask.commands import CONFIRM, find_operation
from portico.ask.events import ClarificationEvent
from portico.ask.understanding.kinds import QUESTION_WORDS
from portico.ask.understanding.request_attributes import is_no, is_yes
from portico.catalog import Catalog
from portico.requests import Ask, Caller

SECONDS = 3600  # that a token is valid
MAX_TOKEN = 4096  # characters
MAX_PENDING = 1500  # bytes of a question that waits for answers
MAX_PREVIOUS = 5  # earlier questions
MAX_PREVIOUS_TEXT = 300  # characters of each
MAX_QUESTIONS = 10
MAX_QUESTION_ID = 100  # bytes
MAX_ANSWERS = 1000  # bytes
_ID = re.compile(r"[\w.:@/+=~-]{1,128}\Z")

InvalidPart: TypeAlias = Literal["conversation_id", "state_token"]


class DialogueSite(Protocol):
    """What a dialogue needs of the site."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def tokens(self) -> SignedTokens: ...


class DialogueState(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={
        "conversation": "c",
        "previous": "p",
        "question": "q",
        "rounds": "r",
        "question_ids": "i",
        "answers": "a",
        "key": "k",
    },
):
    """The contents of a token. Its names are short because clients send it with every request."""

    conversation: str
    previous: list[str]  # oldest first
    question: str | None = None  # waits for answers; empty if it was too long to carry
    rounds: int = 0  # how often the question was asked back
    question_ids: list[str] = []
    answers: dict[str, Any] = {}
    key: str = ""  # idempotency key of the pending question


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation as one request of a caller finds it."""

    id: str
    state: DialogueState | None
    site: DialogueSite
    caller: Caller
    invalid: tuple[InvalidPart, ...] = ()  # what the client sent and is ignored

    @property
    def pending_question(self) -> str | None:
        return self.state.question if self.state else None

    def resume(self, ask: Ask, *, has_previous: bool) -> Ask:
        """Return the question as it is meant after the earlier ones.

        `has_previous` says that the client named the earlier questions itself; they replace those of the token.
        """
        ask, state = _drop_unprompted_confirmation(ask, self.state), self.state
        if state is None:
            return ask
        previous = ask.previous if has_previous else tuple(state.previous)
        if state.question is None:
            return replace(ask, previous=previous, settled=state.answers)
        answers = {**{name: ask.filters[name] for name in state.question_ids if name in ask.filters}, **ask.answers}
        pending = state.question or ask.text
        if answers:
            filters = {name: value for name, value in ask.filters.items() if name not in answers}
            return _answer(replace(ask, filters=filters, previous=previous), state, pending, answers)
        if CONFIRM in state.question_ids and (is_yes(ask.text) or is_no(ask.text)):
            return _answer(replace(ask, previous=previous), state, pending, {CONFIRM: ask.text})
        if state.question and self._is_command(state.question):
            return self._continue_command(replace(ask, previous=previous), state, state.question)
        if state.question and _is_addition(ask.text) and not self._is_command(ask.text):
            text = f"{state.question}, {ask.text}"
            return replace(ask, text=text, settled=state.answers, previous=previous, rounds=state.rounds)
        if state.question and state.question not in previous[-1:]:
            previous = (*previous, state.question)
        return replace(ask, previous=previous, settled=state.answers, rounds=state.rounds)

    def state_token(self, ask: Ask, clarify: ClarificationEvent | None) -> str:
        """Return the token with which the next question belongs to this conversation."""
        questions = [ask.text] if clarify is None else []
        previous = [text[:MAX_PREVIOUS_TEXT] for text in (*ask.previous, *questions)][-MAX_PREVIOUS:]
        # The answers to a command that was run say nothing about the next one.
        is_done = clarify is None and self._is_command(ask.text)
        # A confirmation holds for the command that it was asked for, and for no other.
        lasting = {} if is_done else {name: value for name, value in ask.answers.items() if name != CONFIRM}
        answers = {**ask.settled, **lasting}
        if len(msgspec.json.encode(answers)) > MAX_ANSWERS:
            answers = {}
        state = DialogueState(self.id, previous, answers=answers)
        if clarify is not None:
            question = ask.text if len(ask.text.encode()) <= MAX_PENDING else ""
            key = ask.key or f"once_{secrets.token_hex(12)}"
            ids = [item.id for item in clarify.questions if len(item.id.encode()) <= MAX_QUESTION_ID]
            state = DialogueState(self.id, previous, question, ask.rounds + 1, ids[:MAX_QUESTIONS], answers, key)
        return self._seal(state)

    def _seal(self, state: DialogueState) -> str:
        token = self.site.tokens.seal(msgspec.to_builtins(state), self.caller, SECONDS)
        if len(token) > MAX_TOKEN and state.previous:
            return self._seal(msgspec.structs.replace(state, previous=state.previous[1:]))
        return token

    def _is_command(self, text: str) -> bool:
        return find_operation(text, self.site.catalog.operations.values(), lambda _: True) is not None

    def _continue_command(self, ask: Ask, state: DialogueState, command: str) -> Ask:
        """Return what a message means while a command waits: a dismissal, a missing value, or another question."""
        if is_dismissal(ask.text):
            return replace(ask, text=command, answers={CONFIRM: False}, rounds=state.rounds, key=state.key)
        is_other = self._is_command(ask.text) or not is_an_answer(ask.text, self.site.catalog.collections)
        if CONFIRM in state.question_ids or is_other:
            return ask
        if len(state.question_ids) == 1:
            return _answer(ask, state, command, {state.question_ids[0]: ask.text})
        return replace(ask, text=f"{command}, {ask.text}", answers=state.answers, rounds=state.rounds)


def open_dialogue(conversation_id: Any, token: Any, site: DialogueSite, caller: Caller) -> Dialogue:
    """Return the conversation that a request belongs to. An id or token that is not valid is ignored, not refused."""
    id = conversation_id if isinstance(conversation_id, str) and _ID.match(conversation_id) else ""
    invalid: list[InvalidPart] = ["conversation_id"] if conversation_id is not None and not id else []
    state = _read_state(token, site, caller)
    if state is not None and (not id or state.conversation == id):
        return Dialogue(state.conversation, state, site, caller, tuple(invalid))
    if token is not None:
        invalid.append("state_token")
    return Dialogue(id or f"conv_{secrets.token_hex(12)}", None, site, caller, tuple(invalid))


def _read_state(token: Any, site: DialogueSite, caller: Caller) -> DialogueState | None:
    payload = site.tokens.unseal(token, caller) if isinstance(token, str) else None
    if payload is None:
        return None
    try:
        return msgspec.convert(payload, DialogueState)
    except msgspec.ValidationError:  # a token of this site for another purpose
        return None


def _answer(ask: Ask, state: DialogueState, question: str, answers: Mapping[str, Any]) -> Ask:
    """Return the pending question with these answers added to the earlier ones."""
    answers = {**state.answers, **answers}
    return replace(ask, text=question, answers=answers, rounds=state.rounds, key=state.key)


def _drop_unprompted_confirmation(ask: Ask, state: DialogueState | None) -> Ask:
    """Remove a confirmation that was not asked for: it counts only with the state that came with its question."""
    if CONFIRM not in ask.answers or (state is not None and CONFIRM in state.question_ids):
        return ask
    return replace(ask, answers={name: value for name, value in ask.answers.items() if name != CONFIRM})


def _is_addition(text: str) -> bool:
    """Return whether a text only adds to the question before it, and asks nothing itself."""
    words = text.split()
    return 0 < len(words) <= MAX_ANSWER_WORDS and "?" not in text and words[0].lower() not in QUESTION_WORDS
