"""What callers asked to be remembered of them: kept only for those with a name, and forgotten when they say so.

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
MOST = 100  # for one owner; the oldest goes first
MOST_OF_USERS = 10_000  # for all users of one caller together; the oldest goes first
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
        """What is kept of a caller, the newest first."""
        if caller.is_anonymous or COLLECTION not in self._collections.schema:
            return []
        own = Condition("caller", "eq", caller.owner)
        where = And((own, Condition("kind", "eq", kind))) if kind else own
        page = await self._items.find(Query(COLLECTION, where=where, order=(Order("at", descending=True),), limit=MOST))
        return [_memory(item) for item in page.items]

    async def keep(self, caller: Caller, kind: str, texts: Sequence[str]) -> None:
        """Remember texts of a caller who has a name. One that is known already is not kept twice."""
        known = await self.of(caller)
        fresh = [text[:CHARACTERS] for text in dict.fromkeys(texts) if text.strip()]
        fresh = [text for text in fresh if not any(each.kind == kind and each.text == text for each in known)]
        if caller.is_anonymous or not fresh:
            return
        await self._declared()
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        common = {"caller": caller.owner, "account": account_of(caller.owner), "kind": kind, "at": now}
        puts = [Put(secrets.token_hex(8), {**common, "text": text}, "") for text in fresh[:MOST]]
        spare = [each.id for each in known[max(MOST - len(puts), 0) :]]
        await self._items.write(COLLECTION, [*puts, *(Remove(id) for id in spare)])
        if caller.user:
            await self._forget_oldest(caller)

    async def forget(self, caller: Caller, id: str = "") -> int:
        """Forget one thing, or everything, of a caller's own."""
        known = [each for each in await self.of(caller) if id in {"", each.id}]
        if id and not known:
            raise UnknownItem(f"There is no memory {id[:100]!r}", id=id)
        if known:
            await self._items.write(COLLECTION, [Remove(each.id) for each in known])
        return len(known)

    async def forget_users(self, caller: Caller) -> int:
        """Forget everything of all users of a caller, and return how much it was. What is the caller's own stays."""
        if caller.is_anonymous or COLLECTION not in self._collections.schema:
            return 0
        total = await self._items.count(COLLECTION, _of_users(caller))
        for start in range(0, total, MAX_LIMIT):  # bounded, also while others go on remembering
            await self._remove_oldest(caller, min(total - start, MAX_LIMIT))
        return total

    async def _forget_oldest(self, caller: Caller) -> None:
        """Keep the users of a caller within their bound: anything can be called a user."""
        excess = await self._items.count(COLLECTION, _of_users(caller)) - MOST_OF_USERS
        if excess > 0:
            await self._remove_oldest(caller, min(excess, MAX_LIMIT))

    async def _remove_oldest(self, caller: Caller, count: int) -> None:
        where = _of_users(caller)
        page = await self._items.find(Query(COLLECTION, where=where, order=(Order("at"),), fields=("id",), limit=count))
        await self._items.write(COLLECTION, [Remove(item.id) for item in page.items])

    async def _declared(self) -> None:
        known = self._collections.schema.get(COLLECTION)
        if known is None or not known.fields.keys() >= set(_FIELDS):
            fields = {name: Field(name, FieldType.STRING, declared=True) for name in _FIELDS}
            await self._collections.declare(Collection(COLLECTION, fields, private=True))


def _of_users(caller: Caller) -> Condition:
    return Condition("account", "eq", caller.id)


def _memory(item: Item) -> Memory:
    return Memory(item.id, item.data["kind"], item.data["text"], whole_seconds(datetime.fromisoformat(item.data["at"])))
