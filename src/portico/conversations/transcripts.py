"""Transcripts: conversations stored for their owners, who alone list, read and delete them. Knows no protocol."""

import contextlib
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import msgspec

from portico.catalog import Collection, Field, FieldType
from portico.errors import AlreadyExists, UnknownItem, VersionMismatch
from portico.items import Item, text_problem
from portico.query import MAX_LIMIT, Aggregate, Aggregation, And, Condition, Order, Query
from portico.requests import account_of
from portico.store import CollectionStore, ItemStore
from portico.store.records import Put, Remove

COLLECTION = "_conversations"
MAX_CONVERSATIONS = 200  # of one owner; the oldest are deleted first
MAX_BYTES = 20_000_000  # of one owner; the oldest are deleted first, but never the newest
VISITOR = "visitor:"  # prefix of owners with self-chosen names
MAX_OF_VISITORS = 1000  # of all visitors together, since one person can be many visitors
MAX_OF_USERS = 10_000  # of all users of one caller together, since anything can be a user
MAX_DELETED = 100  # at once
MAX_TURNS = 50  # of one conversation; the oldest are deleted first
MAX_CHARACTERS = 4000  # of a question or an answer
MAX_SOURCES = 50  # of an answer
MAX_TITLE = 80  # characters
REPEAT_WINDOW = timedelta(minutes=5)  # within which a repeated question counts as the same turn
ATTEMPTS = 20  # at a write that conflicts with others

_TEXTS = ("owner", "kind", "session", "tail", "title", "created", "updated")
_FIELDS = dict.fromkeys(_TEXTS, FieldType.STRING) | dict.fromkeys(("turns_told", "bytes"), FieldType.INTEGER)


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """A question and its answer."""

    question: str
    answer: str = ""
    at: str = ""  # empty for a turn known only from the client
    sources: tuple[str, ...] = ()
    state: str = ""  # what a protocol needs to continue after this turn


@dataclass(frozen=True, slots=True)
class StoredConversation:
    id: str
    title: str
    created: str
    updated: str
    turns: tuple[TranscriptTurn, ...] = ()
    session: str = ""  # digest of the client's id for it
    version: str = ""  # in the store; empty if it is not stored


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation without its turns."""

    id: str
    title: str
    created: str
    updated: str
    turns: int  # how many
    bytes: int


def turns_before(
    stored: Sequence[TranscriptTurn], client_turns: Sequence[TranscriptTurn] | None, question: str, now: datetime
) -> tuple[TranscriptTurn, ...]:
    """Return the turns before a question: those that the client sent, or else the stored ones.

    The last known one is not among them if this is the same question, sent again.
    """
    if client_turns is not None:
        first = _index_of_first(stored, client_turns, question)
        stored_by_index = dict(enumerate(stored, -first))
        return (
            *stored[: max(first, 0)],
            *(_prefer_stored(turn, stored_by_index.get(at)) for at, turn in enumerate(client_turns)),
        )
    last = stored[-1] if stored else None
    if (
        last
        and last.question == _truncate(question)
        and last.at
        and now - datetime.fromisoformat(last.at) < REPEAT_WINDOW
    ):
        return tuple(stored[:-1])
    return tuple(stored)


def was_answered(
    stored: Sequence[TranscriptTurn],
    client_turns: Sequence[TranscriptTurn] | None,
    question: str,
    turns: Sequence[TranscriptTurn],
) -> bool:
    """Return whether a question after these turns was answered before."""
    at = len(turns) + min(_index_of_first(stored, client_turns or (), question), 0)
    return at < len(stored) and stored[at].question == _truncate(question)


def _index_of_first(
    stored_turns: Sequence[TranscriptTurn], client_turns: Sequence[TranscriptTurn], question: str
) -> int:
    """Return the index of the first sent turn among the stored ones; negative if it comes before all of them.

    Clients send the last turns alone, and of a long conversation only the last are kept. Whatever else differs is as
    the client tells it.
    """
    questions, stored = [_truncate(turn.question) for turn in client_turns], [turn.question for turn in stored_turns]
    if not questions or not stored or questions[0] == stored[0]:
        return 0
    for end in (len(stored), len(stored) - 1):
        is_next = end == len(stored) or stored[end] == _truncate(question)
        if is_next and end > len(questions) and stored[end - len(questions) : end] == questions:
            return end - len(questions)
    return -questions.index(stored[0]) if len(stored) >= MAX_TURNS and stored[0] in questions else 0


def _prefer_stored(client_turn: TranscriptTurn, stored: TranscriptTurn | None) -> TranscriptTurn:
    """Return the stored turn if it is the one that was sent, or else the sent one."""
    return stored if stored and stored.question == _truncate(client_turn.question) else _truncate_turn(client_turn)


def _truncate(text: str) -> str:
    return text.replace("\x00", "")[:MAX_CHARACTERS]


def tail_of(turns: Sequence[TranscriptTurn]) -> str:
    """Return a digest of a conversation's stored questions, by which it is found without an id."""
    encoded = msgspec.json.encode([_truncate(turn.question) for turn in turns[-MAX_TURNS:]])
    return hashlib.blake2b(encoded, digest_size=12).hexdigest() if turns else ""


def new_conversation(session: str, question: str, now: datetime, id: str = "") -> StoredConversation:
    """Return a new conversation. A given id lets parallel requests start the same one."""
    at = now.isoformat(timespec="microseconds")
    return StoredConversation(id or secrets.token_hex(12), " ".join(question.split())[:MAX_TITLE], at, at, (), session)


class Transcripts:
    def __init__(self, collections: CollectionStore, items: ItemStore) -> None:
        self._collections = collections
        self._items = items

    async def list_for(self, owner: str) -> list[ConversationSummary]:
        """Return the conversations of an owner, newest first."""
        if COLLECTION not in self._collections.schema:
            return []
        await self._declare_collection()
        # Grouped by their distinguishing fields, they are read from columns, and no turns are loaded.
        sums = Aggregate((Aggregation("sum", "turns_told", "turns_told"), Aggregation("sum", "bytes", "bytes")))
        aggregate = replace(sums, group_by=("id", "title", "created", "updated"))
        where, order = Condition("owner", "eq", owner), (Order("updated", descending=True),)
        page = await self._items.find(Query(COLLECTION, where=where, order=order, aggregate=aggregate, limit=MAX_LIMIT))
        return [_to_summary(row) for row in page.rows]

    async def get(self, owner: str, id: str) -> StoredConversation:
        item = await self._read_item(id)
        if item is None or item.data["owner"] != owner:
            raise UnknownItem("You have no conversation of that id", id=id[:100])
        return _to_conversation(item)

    async def find(self, owner: str, *, session: str = "", tail: str = "") -> StoredConversation | None:
        """Return the newest conversation of a session, or of exactly these questions."""
        condition = Condition("session", "eq", session) if session else Condition("tail", "eq", tail)
        conversations = (
            await self._find(And((Condition("owner", "eq", owner), condition)), 1) if session or tail else []
        )
        return conversations[0] if conversations else None

    async def add(
        self,
        owner: str,
        conversation: StoredConversation,
        client_turns: Sequence[TranscriptTurn] | None,
        turn: TranscriptTurn,
    ) -> StoredConversation:
        """Add a turn after those that were sent, or after the stored ones. A repeated turn replaces the first."""
        await self._declare_collection()
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(AlreadyExists, VersionMismatch):
                return await self._write(owner, conversation, client_turns, turn)
            conversation = await self.get(owner, conversation.id)  # raises if it was deleted meanwhile
        return await self._write(owner, conversation, client_turns, turn)

    async def _write(
        self,
        owner: str,
        conversation: StoredConversation,
        client_turns: Sequence[TranscriptTurn] | None,
        turn: TranscriptTurn,
    ) -> StoredConversation:
        now = datetime.now(UTC)
        turns = (*turns_before(conversation.turns, client_turns, turn.question, now), _truncate_turn(turn))[-MAX_TURNS:]
        extended = replace(conversation, turns=turns, updated=now.isoformat(timespec="microseconds"))
        await self._items.write(COLLECTION, [Put(extended.id, _to_data(owner, extended), conversation.version)])
        await self._trim_owner(owner)
        if not conversation.version:
            await self._trim_group(_group(owner))
        return extended

    async def delete(self, owner: str, id: str) -> None:
        await self.get(owner, id)
        await self._items.write(COLLECTION, [Remove(id)])

    async def _trim_owner(self, owner: str) -> None:
        summaries = await self.list_for(owner)
        sizes = accumulate(summary.bytes for summary in summaries)
        excess = [
            summary.id
            for at, (summary, size) in enumerate(zip(summaries, sizes, strict=True))
            if at and (at >= MAX_CONVERSATIONS or size > MAX_BYTES)
        ]
        if excess:
            await self._items.write(COLLECTION, [Remove(id) for id in excess])

    async def _trim_group(self, group: str) -> None:
        """Keep a group of owners within its shared limit."""
        if not group:
            return
        where = Condition("kind", "eq", group)
        most = MAX_OF_VISITORS if group == VISITOR else MAX_OF_USERS
        excess = await self._items.count(COLLECTION, where) - most
        if excess > 0:
            oldest = Query(
                COLLECTION, where=where, order=(Order("updated"),), fields=("id",), limit=min(excess, MAX_DELETED)
            )
            page = await self._items.find(oldest)
            await self._items.write(COLLECTION, [Remove(item.id) for item in page.items])

    async def _read_item(self, id: str) -> Item | None:
        is_here = COLLECTION in self._collections.schema and not text_problem(id)
        return await self._items.get(COLLECTION, id) if is_here else None

    async def _find(self, where: Condition | And, limit: int) -> list[StoredConversation]:
        if COLLECTION not in self._collections.schema:
            return []
        order = (Order("updated", descending=True),)
        page = await self._items.find(Query(COLLECTION, where=where, order=order, limit=limit))
        return [_to_conversation(item) for item in page.items]

    async def _declare_collection(self) -> None:
        collection = self._collections.schema.get(COLLECTION)
        if collection is None or not collection.fields.keys() >= _FIELDS.keys():
            fields = {name: Field(name, type, declared=True) for name, type in _FIELDS.items()}
            await self._collections.declare(Collection(COLLECTION, fields, private=True))


def _group(owner: str) -> str:
    """Return the group of an owner that one person can be many of: visitors or a caller's users; otherwise empty."""
    return VISITOR if owner.startswith(VISITOR) else account_of(owner)


def _truncate_turn(turn: TranscriptTurn) -> TranscriptTurn:
    return replace(
        turn,
        question=_truncate(turn.question),
        answer=_truncate(turn.answer),
        sources=turn.sources[:MAX_SOURCES],
    )


def _to_data(owner: str, conversation: StoredConversation) -> dict[str, object]:
    values = msgspec.to_builtins(replace(conversation, version=""))
    fields = {name: value for name, value in values.items() if name not in {"id", "version"}}
    return {
        **fields,
        "owner": owner,
        "kind": _group(owner),
        "tail": tail_of(conversation.turns),
        "turns_told": len(conversation.turns),
        "bytes": len(msgspec.json.encode(fields)),
    }


def _to_summary(row: Mapping[str, Any]) -> ConversationSummary:
    values = {name: row[name] for name in ("id", "title", "created", "updated")}
    return ConversationSummary(**values, turns=int(row["turns_told"] or 0), bytes=int(row["bytes"] or 0))


def _to_conversation(item: Item) -> StoredConversation:
    return msgspec.convert({**item.data, "id": item.id, "version": item.version}, StoredConversation)
