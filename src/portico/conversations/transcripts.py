"""Conversations that are kept for their owners: only they list, read and delete them. Knows no protocol."""

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
MOST = 200  # of one owner; the oldest go first
MOST_BYTES = 20_000_000  # of one owner's; the oldest go first, but never the last one
VISITOR = "visitor:"  # how owners begin who have made up their names
MOST_OF_VISITORS = 1000  # of all visitors together, since everybody can be many of them
MOST_OF_USERS = 10_000  # of all users of one caller together, since anything can be called a user
SPARE = 100  # that are forgotten at once, at most
TURNS = 50  # of one conversation; the oldest go first
CHARACTERS = 4000  # of a question or an answer
SOURCES = 50  # of an answer
TITLE = 80  # characters
REPEATED = timedelta(minutes=5)  # within which the same question again is the same turn, sent again
ATTEMPTS = 20  # to write what others are writing too: each of them is in the way once

_TEXTS = ("owner", "kind", "session", "tail", "title", "created", "updated")
_FIELDS = dict.fromkeys(_TEXTS, FieldType.STRING) | dict.fromkeys(("turns_told", "bytes"), FieldType.INTEGER)


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and what was answered."""

    question: str
    answer: str = ""
    at: str = ""  # empty of a turn that only the caller told of
    sources: tuple[str, ...] = ()
    state: str = ""  # what a face needs to go on after this turn


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    title: str
    created: str
    updated: str
    turns: tuple[Turn, ...] = ()
    session: str = ""  # the digest of what the caller knows it by
    version: str = ""  # of what is stored; empty if nothing is


@dataclass(frozen=True, slots=True)
class Summary:
    """A conversation without what was said."""

    id: str
    title: str
    created: str
    updated: str
    turns: int  # how many
    bytes: int


def before(known: Sequence[Turn], told: Sequence[Turn] | None, question: str, now: datetime) -> tuple[Turn, ...]:
    """The turns that a question comes after: as told if anything was, else as known.

    The last known one is not among them if this is the same question, sent again.
    """
    if told is not None:
        first = _first(known, told, question)
        then = dict(enumerate(known, -first))
        return (*known[: max(first, 0)], *(_better(each, then.get(at)) for at, each in enumerate(told)))
    last = known[-1] if known else None
    if last and last.question == _kept(question) and last.at and now - datetime.fromisoformat(last.at) < REPEATED:
        return tuple(known[:-1])
    return tuple(known)


def is_known(known: Sequence[Turn], told: Sequence[Turn] | None, question: str, turns: Sequence[Turn]) -> bool:
    """Whether a question that comes after these turns was answered before."""
    at = len(turns) + min(_first(known, told or (), question), 0)
    return at < len(known) and known[at].question == _kept(question)


def _first(known: Sequence[Turn], told: Sequence[Turn], question: str) -> int:
    """Which known turn the first told one is. Below 0, so many told ones came before all that are known.

    Clients send the last turns alone, and of a long conversation only the last are kept. Whatever else differs is as
    the client tells it.
    """
    asked, stored = [_kept(each.question) for each in told], [each.question for each in known]
    if not asked or not stored or asked[0] == stored[0]:
        return 0
    for end in (len(stored), len(stored) - 1):
        is_next = end == len(stored) or stored[end] == _kept(question)
        if is_next and end > len(asked) and stored[end - len(asked) : end] == asked:
            return end - len(asked)
    return -asked.index(stored[0]) if len(stored) >= TURNS and stored[0] in asked else 0


def _better(told: Turn, known: Turn | None) -> Turn:
    """A turn as it is known, if it is the one that was told of."""
    return known if known and known.question == _kept(told.question) else _bounded(told)


def _kept(text: str) -> str:
    return text.replace("\x00", "")[:CHARACTERS]


def tail_of(turns: Sequence[Turn]) -> str:
    """A digest of the questions of a conversation that are kept, by which it is found again without a name."""
    asked = msgspec.json.encode([_kept(each.question) for each in turns[-TURNS:]])
    return hashlib.blake2b(asked, digest_size=12).hexdigest() if turns else ""


def begun(session: str, question: str, now: datetime, id: str = "") -> Conversation:
    """A new conversation; one of this id, for those who begin the same at the same time."""
    at = now.isoformat(timespec="microseconds")
    return Conversation(id or secrets.token_hex(12), " ".join(question.split())[:TITLE], at, at, (), session)


class Transcripts:
    def __init__(self, collections: CollectionStore, items: ItemStore) -> None:
        self._collections = collections
        self._items = items

    async def of(self, owner: str) -> list[Summary]:
        """The conversations of an owner, the newest first."""
        if COLLECTION not in self._collections.schema:
            return []
        await self._declared()
        # Grouped by all that tells them apart, they are read from columns: no turn is loaded.
        sums = Aggregate((Aggregation("sum", "turns_told", "turns_told"), Aggregation("sum", "bytes", "bytes")))
        aggregate = replace(sums, group_by=("id", "title", "created", "updated"))
        where, order = Condition("owner", "eq", owner), (Order("updated", descending=True),)
        page = await self._items.find(Query(COLLECTION, where=where, order=order, aggregate=aggregate, limit=MAX_LIMIT))
        return [_summary(row) for row in page.rows]

    async def get(self, owner: str, id: str) -> Conversation:
        found = await self._item(id)
        if found is None or found.data["owner"] != owner:
            raise UnknownItem("You have no conversation of that id", id=id[:100])
        return _conversation(found)

    async def known(self, owner: str, *, session: str = "", tail: str = "") -> Conversation | None:
        """The newest conversation of a session, or of exactly these questions."""
        wanted = Condition("session", "eq", session) if session else Condition("tail", "eq", tail)
        found = await self._found(And((Condition("owner", "eq", owner), wanted)), 1) if session or tail else []
        return found[0] if found else None

    async def add(
        self, owner: str, conversation: Conversation, told: Sequence[Turn] | None, turn: Turn
    ) -> Conversation:
        """Add a turn after what was told, or after what is stored. The same turn again replaces its first telling."""
        await self._declared()
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(AlreadyExists, VersionMismatch):
                return await self._write(owner, conversation, told, turn)
            conversation = await self.get(owner, conversation.id)  # what was deleted meanwhile stays so
        return await self._write(owner, conversation, told, turn)

    async def _write(
        self, owner: str, conversation: Conversation, told: Sequence[Turn] | None, turn: Turn
    ) -> Conversation:
        now = datetime.now(UTC)
        turns = (*before(conversation.turns, told, turn.question, now), _bounded(turn))[-TURNS:]
        grown = replace(conversation, turns=turns, updated=now.isoformat(timespec="microseconds"))
        await self._items.write(COLLECTION, [Put(grown.id, _data(owner, grown), conversation.version)])
        await self._forget_oldest(owner)
        if not conversation.version:
            await self._forget_oldest_of(_group(owner))
        return grown

    async def delete(self, owner: str, id: str) -> None:
        await self.get(owner, id)
        await self._items.write(COLLECTION, [Remove(id)])

    async def _forget_oldest(self, owner: str) -> None:
        kept = await self.of(owner)
        sizes = accumulate(each.bytes for each in kept)
        excess = [each.id for at, (each, size) in enumerate(zip(kept, sizes, strict=True)) if at and _is_much(at, size)]
        if excess:
            await self._items.write(COLLECTION, [Remove(id) for id in excess])

    async def _forget_oldest_of(self, group: str) -> None:
        """Keep owners that can be many within the bound that they share."""
        if not group:
            return
        theirs = Condition("kind", "eq", group)
        most = MOST_OF_VISITORS if group == VISITOR else MOST_OF_USERS
        excess = await self._items.count(COLLECTION, theirs) - most
        if excess > 0:
            oldest = Query(
                COLLECTION, where=theirs, order=(Order("updated"),), fields=("id",), limit=min(excess, SPARE)
            )
            page = await self._items.find(oldest)
            await self._items.write(COLLECTION, [Remove(each.id) for each in page.items])

    async def _item(self, id: str) -> Item | None:
        is_here = COLLECTION in self._collections.schema and not text_problem(id)
        return await self._items.get(COLLECTION, id) if is_here else None

    async def _found(self, where: Condition | And, limit: int) -> list[Conversation]:
        if COLLECTION not in self._collections.schema:
            return []
        order = (Order("updated", descending=True),)
        page = await self._items.find(Query(COLLECTION, where=where, order=order, limit=limit))
        return [_conversation(item) for item in page.items]

    async def _declared(self) -> None:
        known = self._collections.schema.get(COLLECTION)
        if known is None or not known.fields.keys() >= _FIELDS.keys():
            fields = {name: Field(name, type, declared=True) for name, type in _FIELDS.items()}
            await self._collections.declare(Collection(COLLECTION, fields, private=True))


def _group(owner: str) -> str:
    """The owners that one can be many of: visitors, or the users of a caller. Empty for a caller itself."""
    return VISITOR if owner.startswith(VISITOR) else account_of(owner)


def _is_much(at: int, size: int) -> bool:
    return at >= MOST or size > MOST_BYTES


def _bounded(turn: Turn) -> Turn:
    return replace(
        turn,
        question=_kept(turn.question),
        answer=_kept(turn.answer),
        sources=turn.sources[:SOURCES],
    )


def _data(owner: str, conversation: Conversation) -> dict[str, object]:
    told = msgspec.to_builtins(replace(conversation, version=""))
    kept = {name: value for name, value in told.items() if name not in {"id", "version"}}
    return {
        **kept,
        "owner": owner,
        "kind": _group(owner),
        "tail": tail_of(conversation.turns),
        "turns_told": len(conversation.turns),
        "bytes": len(msgspec.json.encode(kept)),
    }


def _summary(row: Mapping[str, Any]) -> Summary:
    told = {name: row[name] for name in ("id", "title", "created", "updated")}
    return Summary(**told, turns=int(row["turns_told"] or 0), bytes=int(row["bytes"] or 0))


def _conversation(item: Item) -> Conversation:
    return msgspec.convert({**item.data, "id": item.id, "version": item.version}, Conversation)
