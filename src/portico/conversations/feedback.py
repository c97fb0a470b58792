"""What people say of answers: kept for whoever runs the site, and shown to nobody else."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from portico.catalog import Collection, Field, FieldType
from portico.errors import RateLimited
from portico.items import IN_LINES, Item, unseen
from portico.query import EVERYTHING, MAX_LIMIT, Aggregate, Aggregation, And, Condition, Order, Query
from portico.requests import Caller
from portico.store import Store
from portico.store.records import Put, Remove

COLLECTION = "_feedback"
MOST = 10_000  # kept; the oldest go first
SPARE = 100  # that may be there too many before some are forgotten
PER_MINUTE = 20  # of one caller
PER_DAY = 100  # of one caller

_FIELDS = ("at", "caller", "giver", "rating")
_UNSEEN = unseen(but=IN_LINES)

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
    user: str = ""  # one of the caller's, as a digest


class Feedback:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def give(self, opinion: Opinion, caller: Caller) -> Noted:
        """Keep an opinion, without what no eye sees. Who has many in a minute, or in a day, has to wait."""
        meter = await self._store.meters.take(f"feedback\n{caller.rate_key}", PER_MINUTE)
        if not meter.granted:
            raise RateLimited("That was much feedback at once", retry_after=60 / PER_MINUTE, hint="Wait a little.")
        await self._declared()
        now, giver = datetime.now(UTC), self._giver(caller)
        await self._check_day(giver, now)
        noted = Noted(secrets.token_hex(8), _written(now), caller.id, _seen(opinion), caller.user)
        about = {"at": noted.at, "caller": noted.caller, "giver": giver, "user": noted.user}
        told = {**about, **msgspec.to_builtins(noted.opinion)}
        await self._store.items.write(COLLECTION, [Put(noted.id, told, "")])
        await self._make_room()
        return noted

    async def all(self, limit: int = 100) -> list[Noted]:
        """The newest opinions first."""
        if COLLECTION not in self._store.collections.schema:
            return []
        page = await self._store.items.find(
            Query(COLLECTION, order=(Order("at", descending=True),), limit=min(limit, 1000))
        )
        return [_noted(item) for item in page.items]

    def _giver(self, caller: Caller) -> str:
        """Who gives it, so that nobody learns an address from it."""
        key = hashlib.blake2b(self._store.secret).digest()
        return hashlib.blake2b(caller.rate_key.encode(), digest_size=12, key=key).hexdigest()

    async def _check_day(self, giver: str, now: datetime) -> None:
        lately = And((Condition("giver", "eq", giver), Condition("at", "gte", _written(now - timedelta(days=1)))))
        if await self._store.items.count(COLLECTION, lately) >= PER_DAY:
            raise RateLimited("That was much feedback for a day", retry_after=3600.0, hint="Come back tomorrow.")

    async def _make_room(self) -> None:
        """Of too many, the oldest go of whoever has given most: nobody can drive out what others say."""
        excess = await self._store.items.count(COLLECTION, EVERYTHING) - MOST
        if excess <= SPARE:
            return
        counted = Aggregate((Aggregation("count", "given"),), ("giver",))
        order = (Order("given", descending=True), Order("giver"))
        [most] = (await self._store.items.find(Query(COLLECTION, aggregate=counted, order=order, limit=1))).rows
        giver = most["giver"]  # None of those that came before givers were noted
        theirs = Condition("giver", "eq", giver) if giver else Condition("giver", "exists", False)
        limit = min(excess, most["given"], MAX_LIMIT)
        page = await self._store.items.find(
            Query(COLLECTION, where=theirs, order=(Order("at"),), fields=("id",), limit=limit)
        )
        await self._store.items.write(COLLECTION, [Remove(each.id) for each in page.items])

    async def _declared(self) -> None:
        known = self._store.collections.schema.get(COLLECTION)
        if known is None or not known.fields.keys() >= set(_FIELDS):
            fields = {name: Field(name, FieldType.STRING, declared=True) for name in _FIELDS}
            await self._store.collections.declare(Collection(COLLECTION, fields, private=True))


def _seen(opinion: Opinion) -> Opinion:
    return replace(
        opinion,
        comment=_UNSEEN.sub("", opinion.comment),
        question=_UNSEEN.sub("", opinion.question),
        answer=_UNSEEN.sub("", opinion.answer),
        items=tuple(_UNSEEN.sub("", each) for each in opinion.items),
        conversation=_UNSEEN.sub("", opinion.conversation),
    )


def _written(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def _noted(item: Item) -> Noted:
    data = item.data
    said = {name: value for name, value in data.items() if name not in {"at", "caller", "giver", "user"}}
    return Noted(item.id, data["at"], data["caller"], msgspec.convert(said, Opinion), data.get("user", ""))
