"""Which conversation a turn belongs to. Callers with a name have theirs stored; of others notes are kept for a day.

What a client tells of earlier turns counts; else what is known of its session. A session is whatever JSON the client
sends: only a digest of it is kept, and it comes back as it was sent.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from portico.conversations.transcripts import TURNS, Conversation, Turn, before, begun, is_known, tail_of
from portico.errors import KeyInUse, UnknownItem
from portico.requests import Caller
from portico.site import Site

HOURS = 24.0  # that a session of a caller without a name is remembered, and a key of a turn
MAX_ANSWER = 200  # characters of an answer that are noted for them
AGAIN = timedelta(minutes=2)  # in which the same turn without a session is taken for the same
MINTED = "conversation"  # the member of a session that a client was given

_EMPTY: tuple[Any, ...] = (None, "", [], {})  # sessions that tell nobody from anybody else
_encoder = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation as a turn finds it."""

    conversation: Conversation
    owner: str  # whose conversations are stored; empty: only notes are kept
    session: Any  # to be sent back
    told: tuple[Turn, ...] | None  # earlier turns by the client's word
    turns: tuple[Turn, ...]  # the turns before this one
    is_known: bool  # the session that the client named, or its questions
    is_repeated: bool  # this turn was answered before

    @property
    def state(self) -> str:
        return self.turns[-1].state if self.turns else ""

    @property
    def questions(self) -> tuple[str, ...]:
        return tuple(each.question for each in self.turns)

    def key(self, question: str) -> str:
        """What makes a turn that is sent twice do its work once; empty if nothing tells that it is the same.

        A conversation counts its last turns alone, so the one before says better than a number which turn this is.
        """
        place = self.turns[-1].at if self.turns and self.told is None else len(self.turns)
        return _digest([self.conversation.session, place, question]) if self.conversation.session else ""


@dataclass(frozen=True, slots=True)
class Threads:
    site: Site
    keeps: bool  # whether conversations of callers with a name are stored

    async def open(
        self,
        session: Any,
        told: tuple[Turn, ...] | None,
        question: str,
        caller: Caller,
        owner: str = "",
        key: str = "",
    ) -> Thread:
        """The conversation of a session, or of the questions that were told; else a new one.

        Turns that begin one session, or have the same key, at the same time meet in one conversation.
        """
        owner = owner or (caller.owner if self.keeps and not caller.is_anonymous else "")
        digest = "" if session in _EMPTY else _digest(session)
        known = await self._known(session, told, question, caller, owner)
        now = datetime.now(UTC)
        seed = [owner or caller.rate_key, digest, "" if digest else key]
        conversation = known or begun(digest, question, now, _digest(seed) if digest or key else "")
        minted = {MINTED: conversation.id}
        if not conversation.session and (owner or (told is None and session is None)):
            conversation = replace(conversation, session=_digest(minted))
        if session is None and conversation.session == _digest(minted):
            session = minted
        turns = before(conversation.turns, told, question, now)
        is_repeated = is_known(conversation.turns, told, question, turns)
        return Thread(conversation, owner, session, told, turns, known is not None, is_repeated)

    async def close(self, thread: Thread, turn: Turn, caller: Caller) -> None:
        """Keep what was said. A turn that is told again takes the place of the first."""
        if thread.owner:
            await self.site.transcripts.add(thread.owner, thread.conversation, thread.told, turn)
        elif thread.conversation.session:
            # Others may have been answered meanwhile.
            known = await self._noted(thread.conversation.session, caller) or thread.conversation
            turns = before(known.turns, thread.told, turn.question, datetime.now(UTC))
            grown = replace(known, turns=_shortened((*turns, turn)[-TURNS:]))
            await self.site.put_away(_note(grown.session), msgspec.json.encode(grown), caller, HOURS)

    async def claimed(self, key: str, turn: Any, caller: Caller) -> str:
        """A client's key, taken for a turn, as it is known here. For the same turn it may be taken again."""
        short = _digest(key)
        if not await self.site.claim(f"chat key\n{short}", _digest(turn), caller, HOURS):
            raise KeyInUse("This idempotency key was used with another turn", hint="Send a new one.")
        return short

    async def _known(
        self, session: Any, told: tuple[Turn, ...] | None, question: str, caller: Caller, owner: str
    ) -> Conversation | None:
        if session in _EMPTY:
            return await self._alike(told, question, owner) if owner else None
        if owner:
            return await self._stored(session, owner)
        return await self._noted(_digest(session), caller)

    async def _noted(self, digest: str, caller: Caller) -> Conversation | None:
        """The conversation of a caller without a name, as far as it is remembered."""
        noted = await self.site.taken_out(_note(digest), caller)
        return msgspec.json.decode(noted, type=Conversation) if noted else None

    async def _stored(self, session: Any, owner: str) -> Conversation | None:
        """The conversation of a session. Its id is a session, too: front ends know it from their list."""
        transcripts = self.site.transcripts
        if known := await transcripts.known(owner, session=_digest(session)):
            return known
        id = cast("dict[str, Any]", session).get(MINTED) if isinstance(session, dict) else None
        with suppress(UnknownItem):
            return await transcripts.get(owner, id) if isinstance(id, str) else None

    async def _alike(self, told: tuple[Turn, ...] | None, question: str, owner: str) -> Conversation | None:
        """The conversation of the same questions, for a client that names no session. Perhaps it has this turn, too."""
        again = await self._unnamed(owner, (*(told or ()), Turn(question)))
        if again and not _is_recent(again.turns[-1]):
            again = None  # whoever asks the same later wants it again
        if told:
            return again or await self._unnamed(owner, told)
        return again if again and not before(again.turns, None, question, datetime.now(UTC)) else None

    async def _unnamed(self, owner: str, turns: tuple[Turn, ...]) -> Conversation | None:
        """A conversation of these questions, whose client has named no session."""
        found = await self.site.transcripts.known(owner, tail=tail_of(turns))
        return found if found and found.session == _digest({MINTED: found.id}) else None


def _shortened(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    return tuple(replace(each, answer=each.answer[:MAX_ANSWER], sources=()) for each in turns)


def _is_recent(turn: Turn) -> bool:
    """Whether a client may have sent a turn again because it heard nothing of the first."""
    return not turn.at or datetime.now(UTC) - datetime.fromisoformat(turn.at) < AGAIN


def _note(digest: str) -> str:
    return f"chat\n{digest}"


def _digest(value: Any) -> str:
    return hashlib.blake2b(_encoder.encode(value), digest_size=16).hexdigest()
