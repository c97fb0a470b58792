"""Feedback on answers: stored for the operator and shown to nobody else."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from portico.catalog import Collection, Field, FieldType
from portico.errors import RateLimited
from portico.items import IN_LINES, Item, invisible_pattern
from portico.query import MATCH_ALL, MAX_LIMIT, Aggregate, Aggregation, And, Condition, Order, Query
from portico.requests import Caller
from portico.store import Store
from portico.store.records import Put, Remove

COLLECTION = "_feedback"
MOST = 10_000  # stored; the oldest are deleted first
SPARE = 100  # above the limit until the oldest are deleted
PER_MINUTE = 20  # of one caller
PER_DAY = 100  # of one caller

_FIELDS = ("at", "caller", "giver", "rating")
_UNSEEN = invisible_pattern(except_for=IN_LINES)

Rating: TypeAlias = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Opinion:
    rating: Rating
    comment: str = ""
    question: str = ""
    answer: str = ""
    items: tuple[str, ...] = ()  # ids of the items in the answer
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
        """Store feedback without invisible characters. Limited per caller, per minute and per day."""
        meter = await self._store.meters.take(f"feedback\n{caller.rate_key}", PER_MINUTE)
        if not meter.granted:
            raise RateLimited(
                f"More than {PER_MINUTE} pieces of feedback in a minute",
                retry_after=60 / PER_MINUTE,
                hint="Wait a little.",
            )
        await self._declare_collection()
        now, giver = datetime.now(UTC), self._giver(caller)
        await self._check_day(giver, now)
        noted = Noted(secrets.token_hex(8), _render_values(now), caller.id, _strip_invisible(opinion), caller.user)
        about = {"at": noted.at, "caller": noted.caller, "giver": giver, "user": noted.user}
        values = {**about, **msgspec.to_builtins(noted.opinion)}
        await self._store.items.write(COLLECTION, [Put(noted.id, values, "")])
        await self._make_room()
        return noted

    async def all(self, limit: int = 100) -> list[Noted]:
        """Return feedback, newest first."""
        if COLLECTION not in self._store.collections.schema:
            return []
        page = await self._store.items.find(
            Query(COLLECTION, order=(Order("at", descending=True),), limit=min(limit, 1000))
        )
        return [_to_feedback(item) for item in page.items]

    def _giver(self, caller: Caller) -> str:
        """Return a digest of who gives feedback, which reveals no address."""
        key = hashlib.blake2b(self._store.secret).digest()
        return hashlib.blake2b(caller.rate_key.encode(), digest_size=12, key=key).hexdigest()

    async def _check_day(self, giver: str, now: datetime) -> None:
        lately = And((Condition("giver", "eq", giver), Condition("at", "gte", _render_values(now - timedelta(days=1)))))
        if await self._store.items.count(COLLECTION, lately) >= PER_DAY:
            raise RateLimited(
                f"More than {PER_DAY} pieces of feedback in a day", retry_after=3600.0, hint="Come back tomorrow."
            )

    async def _make_room(self) -> None:
        """Delete the oldest feedback of whoever gave most, so that nobody can displace that of others."""
        excess = await self._store.items.count(COLLECTION, MATCH_ALL) - MOST
        if excess <= SPARE:
            return
        aggregate = Aggregate((Aggregation("count", "given"),), ("giver",))
        order = (Order("given", descending=True), Order("giver"))
        [most] = (await self._store.items.find(Query(COLLECTION, aggregate=aggregate, order=order, limit=1))).rows
        giver = most["giver"]  # None for feedback from before givers were stored
        theirs = Condition("giver", "eq", giver) if giver else Condition("giver", "exists", False)
        limit = min(excess, most["given"], MAX_LIMIT)
        page = await self._store.items.find(
            Query(COLLECTION, where=theirs, order=(Order("at"),), fields=("id",), limit=limit)
        )
        await self._store.items.write(COLLECTION, [Remove(item.id) for item in page.items])

    async def _declare_collection(self) -> None:
        collection = self._store.collections.schema.get(COLLECTION)
        if collection is None or not collection.fields.keys() >= set(_FIELDS):
            fields = {name: Field(name, FieldType.STRING, declared=True) for name in _FIELDS}
            await self._store.collections.declare(Collection(COLLECTION, fields, private=True))


def _strip_invisible(opinion: Opinion) -> Opinion:
    return replace(
        opinion,
        comment=_UNSEEN.sub("", opinion.comment),
        question=_UNSEEN.sub("", opinion.question),
        answer=_UNSEEN.sub("", opinion.answer),
        items=tuple(_UNSEEN.sub("", item) for item in opinion.items),
        conversation=_UNSEEN.sub("", opinion.conversation),
    )


def _render_values(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def _to_feedback(item: Item) -> Noted:
    data = item.data
    values = {name: value for name, value in data.items() if name not in {"at", "caller", "giver", "user"}}
    return Noted(item.id, data["at"], data["caller"], msgspec.convert(values, Opinion), data.get("user", ""))
