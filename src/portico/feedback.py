"""What people say of answers: kept for whoever runs the site, and shown to nobody else."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from portico.calls import Caller
from portico.catalog import Collection, Field, FieldType
from portico.errors import RateLimited
from portico.items import Item
from portico.query import Order, Query
from portico.store import Put, Remove, Store

COLLECTION = "_feedback"
MOST = 10_000  # kept; the oldest go first
SPARE = 100  # that may be there too many before some are forgotten
PER_MINUTE = 20  # of one caller

Rating: TypeAlias = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Opinion:
    rating: Rating
    comment: str = ""
    question: str = ""
    answer: str = ""
    items: tuple[str, ...] = ()  # ids of what the answer showed
    conversation: str = ""
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    id: str
    at: str
    caller: str
    opinion: Opinion


class Feedback:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def give(self, opinion: Opinion, caller: Caller) -> Noted:
        """Keep an opinion. Who has many in a minute has to wait."""
        meter = await self._store.spend(f"feedback\n{caller.rate_key}", PER_MINUTE)
        if not meter.granted:
            raise RateLimited("That was much feedback at once", retry_after=60 / PER_MINUTE, hint="Wait a little.")
        await self._declared()
        noted = Noted(secrets.token_hex(8), datetime.now(UTC).isoformat(timespec="microseconds"), caller.id, opinion)
        told = {"at": noted.at, "caller": noted.caller, **msgspec.to_builtins(opinion)}
        await self._store.write(COLLECTION, [Put(noted.id, told, "")])
        await self._forget_oldest()
        return noted

    async def all(self, limit: int = 100) -> list[Noted]:
        """The newest opinions first."""
        if COLLECTION not in self._store.schema:
            return []
        page = await self._store.find(Query(COLLECTION, order=(Order("at", descending=True),), limit=min(limit, 1000)))
        return [_noted(item) for item in page.items]

    async def _forget_oldest(self) -> None:
        page = await self._store.find(
            Query(COLLECTION, order=(Order("at"),), fields=("id",), limit=2 * SPARE, count=True)
        )
        excess = (page.total or 0) - MOST
        if excess > SPARE:
            await self._store.write(COLLECTION, [Remove(each.id) for each in page.items[:excess]])

    async def _declared(self) -> None:
        if COLLECTION not in self._store.schema:
            fields = {name: Field(name, FieldType.STRING, declared=True) for name in ("at", "caller", "rating")}
            await self._store.declare(Collection(COLLECTION, fields, private=True))


def _noted(item: Item) -> Noted:
    data = item.data
    said = {name: value for name, value in data.items() if name not in {"at", "caller"}}
    return Noted(item.id, data["at"], data["caller"], msgspec.convert(said, Opinion))
