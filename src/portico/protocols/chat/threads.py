"""Finds the conversation of a turn. Those of named callers are stored; those of anonymous ones are kept for a day.

Earlier turns that the client sends count more than those of its session. A session is whatever JSON the client
sends: only a digest of it is stored, and it is sent back unchanged.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from portico.conversations.transcripts import (
    MAX_TURNS,
    StoredConversation,
    TranscriptTurn,
    new_conversation,
    tail_of,
    turns_before,
    was_answered,
)
from portico.errors import KeyInUse, UnknownItem
from portico.requests import Caller
from portico.site import Site

HOURS = 24.0  # that a session of a caller without a name is remembered, and a key of a turn
MAX_ANSWER = 200  # characters of an answer that are noted for them
AGAIN = timedelta(minutes=2)  # in which the same turn without a session is taken for the same
MINTED = "conversation"  # the member of a session that a client was given

_EMPTY: tuple[Any, ...] = (None, "", [], {})  # sessions that identify no client
_encoder = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class ChatThread:
    """A conversation before a turn is added."""

    conversation: StoredConversation
    owner: str  # whose conversations are stored; empty: only notes are kept
    session: Any  # to be sent back
    client_turns: tuple[TranscriptTurn, ...] | None  # earlier turns by the client's word
    turns: tuple[TranscriptTurn, ...]  # the turns before this one
    is_known: bool  # the session or the questions belong to a stored conversation
    is_repeated: bool  # this turn was answered before

    @property
    def state(self) -> str:
        return self.turns[-1].state if self.turns else ""

    @property
    def questions(self) -> tuple[str, ...]:
        return tuple(turn.question for turn in self.turns)

    def key(self, question: str) -> str:
        """Return the key by which a turn that is sent twice does its work once; empty if it cannot be recognised.

        A conversation stores only its last turns, so the turn before identifies this one better than a number.
        """
        place = self.turns[-1].at if self.turns and self.client_turns is None else len(self.turns)
        return _digest([self.conversation.session, place, question]) if self.conversation.session else ""


@dataclass(frozen=True, slots=True)
class ChatThreads:
    site: Site
    keeps: bool  # whether conversations of callers with a name are stored

    async def open(
        self,
        session: Any,
        client_turns: tuple[TranscriptTurn, ...] | None,
        question: str,
        caller: Caller,
        owner: str = "",
        key: str = "",
    ) -> ChatThread:
        """Return the conversation of a session, or of the questions that the client sent; else a new one.

        Simultaneous turns that begin one session, or have the same key, get the same conversation.
        """
        owner = owner or (caller.owner if self.keeps and not caller.is_anonymous else "")
        digest = "" if session in _EMPTY else _digest(session)
        stored = await self._find(session, client_turns, question, caller, owner)
        now = datetime.now(UTC)
        seed = [owner or caller.rate_key, digest, "" if digest else key]
        conversation = stored or new_conversation(digest, question, now, _digest(seed) if digest or key else "")
        minted = {MINTED: conversation.id}
        if not conversation.session and (owner or (client_turns is None and session is None)):
            conversation = replace(conversation, session=_digest(minted))
        if session is None and conversation.session == _digest(minted):
            session = minted
        turns = turns_before(conversation.turns, client_turns, question, now)
        is_repeated = was_answered(conversation.turns, client_turns, question, turns)
        return ChatThread(conversation, owner, session, client_turns, turns, stored is not None, is_repeated)

    async def close(self, thread: ChatThread, turn: TranscriptTurn, caller: Caller) -> None:
        """Store a turn. A turn that is sent again replaces the first."""
        if thread.owner:
            await self.site.transcripts.add(thread.owner, thread.conversation, thread.client_turns, turn)
        elif thread.conversation.session:
            # Other turns may have been answered meanwhile.
            stored = await self._load_note(thread.conversation.session, caller) or thread.conversation
            turns = turns_before(stored.turns, thread.client_turns, turn.question, datetime.now(UTC))
            kept_turns = (*turns, turn)[-MAX_TURNS:]
            short_turns = tuple(replace(turn, answer=turn.answer[:MAX_ANSWER], sources=()) for turn in kept_turns)
            grown = replace(stored, turns=short_turns)
            await self.site.notes.set(_note(grown.session), msgspec.json.encode(grown), caller, HOURS)

    async def claim_key(self, key: str, turn: Any, caller: Caller) -> str:
        """Reserve a client's idempotency key for a turn. The same turn may reserve it again."""
        short = _digest(key)
        if not await self.site.notes.claim(f"chat key\n{short}", _digest(turn), caller, HOURS):
            raise KeyInUse("This idempotency key was used for another turn", hint="Send a new one.")
        return short

    async def _find(
        self, session: Any, client_turns: tuple[TranscriptTurn, ...] | None, question: str, caller: Caller, owner: str
    ) -> StoredConversation | None:
        if session in _EMPTY:
            return await self._find_same_questions(client_turns, question, owner) if owner else None
        if owner:
            return await self._load_stored(session, owner)
        return await self._load_note(_digest(session), caller)

    async def _load_note(self, digest: str, caller: Caller) -> StoredConversation | None:
        """Return the conversation of an anonymous caller, if it is still kept."""
        noted = await self.site.notes.get(_note(digest), caller)
        return msgspec.json.decode(noted, type=StoredConversation) if noted else None

    async def _load_stored(self, session: Any, owner: str) -> StoredConversation | None:
        """Return the conversation of a session. Its id works as a session, too: front ends know it from their list."""
        transcripts = self.site.transcripts
        if conversation := await transcripts.find(owner, session=_digest(session)):
            return conversation
        id = cast("dict[str, Any]", session).get(MINTED) if isinstance(session, dict) else None
        with suppress(UnknownItem):
            return await transcripts.get(owner, id) if isinstance(id, str) else None

    async def _find_same_questions(
        self, client_turns: tuple[TranscriptTurn, ...] | None, question: str, owner: str
    ) -> StoredConversation | None:
        """Return the conversation of the same questions, for a client without sessions. It may have this turn."""
        again = await self._find_without_session(owner, (*(client_turns or ()), TranscriptTurn(question)))
        if again and not _is_recent(again.turns[-1]):
            again = None  # the same question later is a new turn
        if client_turns:
            return again or await self._find_without_session(owner, client_turns)
        return again if again and not turns_before(again.turns, None, question, datetime.now(UTC)) else None

    async def _find_without_session(self, owner: str, turns: tuple[TranscriptTurn, ...]) -> StoredConversation | None:
        """Return the conversation of these questions whose client sent no session."""
        conversation = await self.site.transcripts.find(owner, tail=tail_of(turns))
        return conversation if conversation and conversation.session == _digest({MINTED: conversation.id}) else None


def _is_recent(turn: TranscriptTurn) -> bool:
    """Return whether a client may have sent a turn again because it got no answer to the first."""
    return not turn.at or datetime.now(UTC) - datetime.fromisoformat(turn.at) < AGAIN


def _note(digest: str) -> str:
    return f"chat\n{digest}"


def _digest(value: Any) -> str:
    return hashlib.blake2b(_encoder.encode(value), digest_size=16).hexdigest()
