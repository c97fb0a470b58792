"""Memories: what callers asked to be remembered. Stored only for callers with a name, deleted at their request.

Each user of a caller has memories of its own, and so has the caller itself.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from portico.catalog import Collection, Field, FieldType, whole_seconds
from portico.errors import UnknownItem
from portico.items import Item
from portico.query import MAX_LIMIT, And, Condition, Order, Query
from portico.requests import Caller, account_of
from portico.store import CollectionStore, ItemStore
from portico.store.records import Put, Remove

COLLECTION = "_memories"
MOST = 100  # of one owner; the oldest are deleted first
MOST_OF_USERS = 10_000  # of all users of one caller together; the oldest are deleted first
CHARACTERS = 1000
_FIELDS = ("caller", "account", "kind", "text", "at")


@dataclass(frozen=True, slots=True)
class Memory:
    id: str
    kind: str  # preference or question
    text: str
    at: datetime


class Memories:
    def __init__(self, collections: CollectionStore, items: ItemStore) -> None:
        self._collections = collections
        self._items = items

    async def of(self, caller: Caller, kind: str = "") -> list[Memory]:
        """Return the memories of a caller, newest first."""
        if caller.is_anonymous or COLLECTION not in self._collections.schema:
            return []
        own = Condition("caller", "eq", caller.owner)
        where = And((own, Condition("kind", "eq", kind))) if kind else own
        page = await self._items.find(Query(COLLECTION, where=where, order=(Order("at", descending=True),), limit=MOST))
        return [_memory(item) for item in page.items]

    async def keep(self, caller: Caller, kind: str, texts: Sequence[str]) -> None:
        """Store texts of a caller that is not anonymous. A text that is already stored is not stored twice."""
        stored = await self.of(caller)
        fresh = [text[:CHARACTERS] for text in dict.fromkeys(texts) if text.strip()]
        fresh = [text for text in fresh if not any(memory.kind == kind and memory.text == text for memory in stored)]
        if caller.is_anonymous or not fresh:
            return
        await self._declare_collection()
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        common = {"caller": caller.owner, "account": account_of(caller.owner), "kind": kind, "at": now}
        puts = [Put(secrets.token_hex(8), {**common, "text": text}, "") for text in fresh[:MOST]]
        spare = [memory.id for memory in stored[max(MOST - len(puts), 0) :]]
        await self._items.write(COLLECTION, [*puts, *(Remove(id) for id in spare)])
        if caller.user:
            await self._forget_oldest(caller)

    async def forget(self, caller: Caller, id: str = "") -> int:
        """Delete one or all memories of a caller; return how many."""
        stored = [memory for memory in await self.of(caller) if id in {"", memory.id}]
        if id and not stored:
            raise UnknownItem(f"There is no memory {id[:100]!r}", id=id)
        if stored:
            await self._items.write(COLLECTION, [Remove(memory.id) for memory in stored])
        return len(stored)

    async def forget_users(self, caller: Caller) -> int:
        """Delete the memories of all users of a caller, but not its own; return how many."""
        if caller.is_anonymous or COLLECTION not in self._collections.schema:
            return 0
        total = await self._items.count(COLLECTION, _of_users(caller))
        for start in range(0, total, MAX_LIMIT):  # bounded, even while more are being stored
            await self._remove_oldest(caller, min(total - start, MAX_LIMIT))
        return total

    async def _forget_oldest(self, caller: Caller) -> None:
        """Keep the users of a caller within their shared limit, since anything can be a user."""
        excess = await self._items.count(COLLECTION, _of_users(caller)) - MOST_OF_USERS
        if excess > 0:
            await self._remove_oldest(caller, min(excess, MAX_LIMIT))

    async def _remove_oldest(self, caller: Caller, count: int) -> None:
        where = _of_users(caller)
        page = await self._items.find(Query(COLLECTION, where=where, order=(Order("at"),), fields=("id",), limit=count))
        await self._items.write(COLLECTION, [Remove(item.id) for item in page.items])

    async def _declare_collection(self) -> None:
        collection = self._collections.schema.get(COLLECTION)
        if collection is None or not collection.fields.keys() >= set(_FIELDS):
            fields = {name: Field(name, FieldType.STRING, declared=True) for name in _FIELDS}
            await self._collections.declare(Collection(COLLECTION, fields, private=True))


def _of_users(caller: Caller) -> Condition:
    return Condition("account", "eq", caller.id)


def _memory(item: Item) -> Memory:
    return Memory(item.id, item.data["kind"], item.data["text"], whole_seconds(datetime.fromisoformat(item.data["at"])))
