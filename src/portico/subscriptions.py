"""The changes of a collection as a numbered stream that a reader can leave and take up again where it was.

The store's feed is the buffer: event N follows from the feed and the filter, so that all that is kept of a subscription
is where it began and, now and then, which number a position in the feed had. Asks nobody whether a caller may.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import msgspec

from portico.catalog import Catalog, Collection
from portico.errors import (
    BadRequest,
    Conflict,
    FeedExpired,
    NotFound,
    RateLimited,
    SiteError,
    TakenOver,
    TooLarge,
    Unavailable,
    UnknownCollection,
)
from portico.items import Change, ChangeKind, Item, Patch, content_hash, text_problem
from portico.query import Test, matcher, parse_filter
from portico.requests import Caller
from portico.store import NoteStore, Store

MOST_BEHIND = 10_000  # events that a reader may have missed
MARK_EVERY = 250  # changes of the feed, about
MARKS = 128  # of one subscription; then the older ones are thinned out
FIRST_BATCH = 8  # changes that are read at first; how many more depends on how large they are
BATCH = 200
BATCH_BYTES = 1 << 20
LOOK_SECONDS = 5.0  # how often a reader sees whether it still is the one, and saves its marks
KEEP_SECONDS = 60.0  # how often it says that the subscription is alive, if it lasts much longer than that
BEGUN_PER_MINUTE = 120  # by one caller: each is kept for a while, also if nobody reads it
MAX_ID = 255
MAX_NOTE = 1000
MAX_FILTER = 16_384  # bytes of one as JSON: it is kept for as long as the subscription is, whoever began it


@dataclass(frozen=True, slots=True)
class Subscribe:
    """What a reader wants to follow; `resume_after` is the last number it has of a subscription that it took up before.

    Without a filter a new subscription has everything, and one that is taken up again has the filter it began with.
    """

    id: str
    collection: str
    filter: Mapping[str, Any] | None = None  # as JSON, in the dialect of `query.parse_filter`
    resume_after: int | None = None
    note: str = ""  # of the reader's own, to have it back; "" leaves the one that is kept
    seconds: float = 600.0  # for which it can be taken up again once nobody reads
    heartbeat: float = 0.0  # seconds without an event after which there is a Quiet; 0: never
    limit: int = 20  # subscriptions of one caller that may be open in this process


@dataclass(frozen=True, slots=True)
class Event:
    """One change as a subscriber sees it: what begins to match is created, what no longer matches is deleted."""

    number: int
    kind: ChangeKind
    item: Item  # as it is; of a delete, as it last was
    patch: Patch  # of an update
    at: datetime


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing has happened for a while."""

    number: int  # the newest there is


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """How many events there were up to a position in the feed."""

    number: int
    position: int


class Terms(msgspec.Struct, frozen=True):
    """What is kept of a subscription besides its marks."""

    collection: str
    filter: dict[str, Any]
    note: str
    seconds: float
    began: int  # position in the feed
    birth: str  # tells it from a later one of the same id
    process: str  # that opened it last: there is its reader

    @property
    def refresh(self) -> float:
        return min(KEEP_SECONDS, self.seconds / 4)

    @property
    def expires(self) -> datetime:
        """If this is the last sign of life. The next one may be late by as long as it takes to refresh."""
        return datetime.now(UTC) + timedelta(seconds=self.seconds + self.refresh)


class Scan:
    """Reads the feed from a mark on, a batch at a time, and numbers what a subscription sees of it."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog], terms: Terms, mark: Mark) -> None:
        self._store = store
        self._catalog = catalog
        self._collection = terms.collection
        self._where = parse_filter(terms.filter)
        self._size = FIRST_BATCH
        self.mark = mark

    async def next(self, head: int) -> list[Event]:
        """The events of the next batch of changes; none if there are no more up to a head that was seen before."""
        try:
            return await self._next(head)
        except UnknownCollection as error:
            raise _expired(f"There is no collection {self._collection!r} any more", self.mark.number) from error

    async def _next(self, head: int) -> list[Event]:
        number, position = self.mark.number, self.mark.position
        changes = await self._store.changes.list_since(position, self._size, self._collection)
        if not changes:
            self.mark = Mark(number, max(position, head))
            return []
        test = matcher(self._where, self._shape())
        events, size = await asyncio.to_thread(_seen, test, changes, number)
        self._size = max(1, min(BATCH, 4 * self._size, BATCH_BYTES * len(changes) // size))
        self.mark = Mark(number + len(events), changes[-1].seq)
        return events

    def _shape(self) -> Collection:
        found = self._catalog().collections.get(self._collection)
        if found is None:
            raise UnknownCollection(f"There is no collection {self._collection!r}")
        return found


class Shelf:
    """Where one subscription is kept in the store. Its marks are true whoever wrote them."""

    def __init__(self, store: Store, scope: str, terms: Terms) -> None:
        self.store = store
        self.scope = scope
        self.terms = terms
        self.trail: tuple[Mark, ...] = (Mark(0, terms.began),)
        self._saved = self.trail

    @property
    def newest(self) -> int:
        return self.trail[-1].number

    @property
    def _marks(self) -> str:
        return f"{self.scope}\n{self.terms.birth}"

    async def load(self) -> None:
        marks = await self.store.notes.get(self._marks)
        if marks:
            self.trail = self._saved = msgspec.json.decode(marks, type=tuple[Mark, ...])

    def add(self, mark: Mark) -> None:
        self.trail = extended(self.trail, mark)

    async def keep(self) -> None:
        """A sign of life."""
        await self.store.notes.set(self.scope, msgspec.json.encode(self.terms), self.terms.expires)
        await self._write()

    async def save(self) -> None:
        if self.trail is not self._saved:
            await self._write()

    async def _write(self) -> None:
        trail = self.trail
        await self.store.notes.set(self._marks, msgspec.json.encode(trail), self.terms.expires)
        self._saved = trail

    async def clear(self) -> None:
        await self.store.notes.delete(self.scope)
        await self.store.notes.delete(self._marks)


class Reader:
    """The events of a subscription as one reader takes them. Closing it ends the reading, not the subscription.

    It ends when the subscription is given up, and raises TakenOver when another reader takes its place, or Unavailable
    when the server stops. What nobody takes is not read.
    """

    def __init__(
        self,
        shelf: Shelf,
        owner: str,
        scan: Scan,
        waiting: Sequence[Event],
        heartbeat: float,
        left: Callable[["Reader"], None],
    ) -> None:
        self.shelf = shelf
        self.owner = owner
        self._left = left
        self._scan = scan
        self._events = deque(waiting)
        self._heartbeat = heartbeat or inf
        self._look_at = _clock() + self._look_every
        self._keep_at = _clock() + shelf.terms.refresh
        self._over = False
        self._error: SiteError | None = None
        self._patience: asyncio.Timeout | None = None
        self._writing = asyncio.Lock()

    @property
    def _look_every(self) -> float:
        return min(LOOK_SECONDS, self.shelf.terms.refresh)

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Event | Quiet:
        due = _clock() + self._heartbeat
        while not self._over:
            if self._events:
                return self._events.popleft()
            if _clock() >= due:
                return Quiet(self._scan.mark.number)
            await self._read_on(due)
        raise self._error or StopAsyncIteration

    async def _read_on(self, due: float) -> None:
        """Wait for news until something else is to be done, and read a batch if there is any."""
        try:
            async with asyncio.timeout(None) as self._patience:
                if _clock() >= self._look_at:
                    await self._look()
                position, wake = self._scan.mark.position, min(due, self._look_at)
                head = await self.shelf.store.changes.wait(position, max(wake - _clock(), 0.0))
                if head > position:
                    self._events.extend(await self._scan.next(head))
                    self.shelf.add(self._scan.mark)
        except TimeoutError:  # only `end` sets a time
            if not self._over:
                raise
        finally:
            self._patience = None

    async def _look(self) -> None:
        """See whether this is still the subscription's reader, and save what it knows."""
        terms, kept = self.shelf.terms, await _terms(self.shelf.store.notes, self.shelf.scope)
        if kept is None:
            self.end()
            return
        if (kept.birth, kept.process) != (terms.birth, terms.process):
            self.end(_taken_over())
            return
        self._look_at = _clock() + self._look_every
        await (self.keep() if _clock() >= self._keep_at else self.shelf.save())

    async def keep(self) -> None:
        """Say that the subscription is alive, unless this is no longer its reader."""
        async with self._writing:
            if not self._over:
                await self.shelf.keep()
                self._keep_at = _clock() + self.shelf.terms.refresh

    def end(self, error: SiteError | None = None) -> None:
        """No more events from now on, whoever waits for one."""
        if self._over:
            return
        self._over, self._error = True, error
        self._events.clear()
        self._left(self)
        if self._patience:
            self._patience.reschedule(_clock())

    async def quit(self, error: SiteError | None = None) -> None:
        """End, and be sure that this reader says nothing more of the subscription."""
        self.end(error)
        async with self._writing:
            pass

    async def aclose(self) -> None:
        if self._over:
            return
        self.end()
        with contextlib.suppress(Unavailable):  # then the next reader has more to count
            await self.shelf.save()


@dataclass(frozen=True, slots=True)
class Following:
    """A subscription that was opened. Whoever has it closes its events."""

    id: str
    resumed: bool
    last: int  # the newest number there is at this moment; 0 for a new one
    filter: Mapping[str, Any]
    note: str
    events: Reader


@dataclass(frozen=True, slots=True)
class Standing:
    """How a subscription stands, whether somebody reads it or not."""

    last: int  # the newest number there is
    filter: Mapping[str, Any]


class Subscriptions:
    """Opens, takes up and ends subscriptions. Each belongs to the caller that began it: nobody else can name it."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog]) -> None:
        self._store = store
        self._catalog = catalog
        self._process = secrets.token_hex(8)
        self._open: dict[str, Reader] = {}
        self._closed = False

    async def follow(self, subscribe: Subscribe, caller: Caller) -> Following:
        """Begin a subscription, or take one up again right after a number; FeedExpired if that cannot be done."""
        _check(subscribe)
        scope, after = _scope(subscribe.id, caller), subscribe.resume_after
        if after is None:
            await self._spend(caller)
        shelf = await (self._new(subscribe, scope) if after is None else self._found(subscribe, scope, after))
        last, terms = shelf.newest, shelf.terms
        scan, waiting = await self._from(shelf, after or 0)
        reader = Reader(shelf, caller.rate_key, scan, waiting, subscribe.heartbeat, self._forget)
        await self._admit(reader, subscribe.limit)
        return Following(subscribe.id, after is not None, last, terms.filter, terms.note, reader)

    async def unfollow(self, id: str, caller: Caller) -> None:
        """Give a subscription up. A reader in another process ends within seconds."""
        shelf = await self._known(id, caller)
        reader = self._open.get(shelf.scope)
        if reader:
            await reader.quit()
        await shelf.clear()

    async def standing(self, id: str, caller: Caller) -> Standing:
        """How a subscription stands; to ask for it is a sign of life."""
        shelf = await self._known(id, caller)
        reader = self._open.get(shelf.scope)
        if reader:
            return Standing(reader.shelf.newest, shelf.terms.filter)
        await self._count(shelf)
        # To count takes a while. What was given up or taken up elsewhere meanwhile must not be undone.
        if await _terms(self._store.notes, shelf.scope) == shelf.terms:
            await shelf.keep()
        return Standing(shelf.newest, shelf.terms.filter)

    async def close(self) -> None:
        """End all readers, for the server stops. What they know is saved while there is a store."""
        self._closed = True
        readers = list(self._open.values())
        for reader in readers:
            reader.end(Unavailable("The server is stopping", hint="Take the subscription up again in a moment."))
        with contextlib.suppress(Unavailable):
            await asyncio.gather(*(reader.shelf.save() for reader in readers))

    async def _spend(self, caller: Caller) -> None:
        """Count a new subscription. How many there are is bounded by how many begin and how long they are kept."""
        meter = await self._store.meters.take(f"subscriptions\n{caller.rate_key}", BEGUN_PER_MINUTE)
        if not meter.granted:
            wait = (1 - meter.tokens) * 60 / BEGUN_PER_MINUTE
            raise RateLimited(
                f"More than {BEGUN_PER_MINUTE} new subscriptions in a minute",
                limit=BEGUN_PER_MINUTE,
                retry_after=round(wait, 2),
                hint="Take up again what was begun, or wait a moment.",
            )

    async def _new(self, subscribe: Subscribe, scope: str) -> Shelf:
        terms = Terms(
            collection=subscribe.collection,
            filter=dict(subscribe.filter or {}),
            note=subscribe.note,
            seconds=subscribe.seconds,
            began=await self._store.changes.head(),
            birth=secrets.token_hex(8),
            process=self._process,
        )
        return Shelf(self._store, scope, terms)

    async def _found(self, subscribe: Subscribe, scope: str, after: int) -> Shelf:
        """A subscription as it was kept, with everything counted that has happened since."""
        kept = await _terms(self._store.notes, scope)
        if kept is None:
            raise _expired("There is no subscription of this id, or no longer", after)
        _check_same(subscribe, kept)
        note = subscribe.note or kept.note
        terms = msgspec.structs.replace(kept, note=note, seconds=subscribe.seconds, process=self._process)
        shelf = Shelf(self._store, scope, terms)
        await self._count(shelf, after + MOST_BEHIND)
        if not shelf.newest - MOST_BEHIND <= after <= shelf.newest:
            raise _expired(f"Event {after} is not one of the newest {MOST_BEHIND}", after)
        return shelf

    async def _known(self, id: str, caller: Caller) -> Shelf:
        scope = _scope(id, caller)
        terms = None if text_problem(id) else await _terms(self._store.notes, scope)
        if terms is None:
            raise NotFound("There is no such subscription", subscription=id[:MAX_ID])
        return Shelf(self._store, scope, terms)

    async def _count(self, shelf: Shelf, most: float = inf) -> None:
        """Mark what has happened up to now; no further than a number that is too many."""
        await shelf.load()
        head = await self._store.changes.head()
        scan = self._scan(shelf, shelf.trail[-1])
        while scan.mark.position < head and scan.mark.number <= most:
            await scan.next(head)
            shelf.add(scan.mark)

    async def _from(self, shelf: Shelf, after: int) -> tuple[Scan, list[Event]]:
        """A scan that has reached a number, and the events after it that it has read already."""
        start = next((mark for mark in reversed(shelf.trail) if mark.number <= after), None)
        if start is None:
            raise _expired(f"Where event {after} was is no longer known", after)
        scan, head = self._scan(shelf, start), shelf.trail[-1].position
        events = await scan.next(head)
        while scan.mark.number < after and scan.mark.position < head:
            events = await scan.next(head)
        if scan.mark.number < after:  # a field has changed its type, and with it what matches
            raise _expired(f"Event {after} cannot be told from others any more", after)
        return scan, [event for event in events if event.number > after]

    def _scan(self, shelf: Shelf, mark: Mark) -> Scan:
        return Scan(self._store, self._catalog, shelf.terms, mark)

    async def _admit(self, reader: Reader, limit: int) -> None:
        """Let a reader in, in place of an older one of the same subscription."""
        scope = reader.shelf.scope
        if self._closed:
            raise Unavailable("The server is stopping")
        if sum(each.owner == reader.owner for name, each in self._open.items() if name != scope) >= limit:
            raise RateLimited(f"{limit} subscriptions are already open", limit=limit, hint="Close one of them.")
        older, self._open[scope] = self._open.get(scope), reader
        try:
            if older:
                await older.quit(_taken_over())
            await reader.keep()
        except BaseException:
            reader.end()
            raise

    def _forget(self, reader: Reader) -> None:
        if self._open.get(reader.shelf.scope) is reader:
            del self._open[reader.shelf.scope]


def _taken_over() -> TakenOver:
    return TakenOver("The subscription is read elsewhere now", hint="Begin one of your own, under another id.")


def extended(trail: tuple[Mark, ...], mark: Mark) -> tuple[Mark, ...]:
    """The marks with a further one. Where they lie close together, the one before the last is enough."""
    if mark.position <= trail[-1].position:
        return trail
    close = len(trail) > 1 and trail[-1].position - trail[-2].position < MARK_EVERY
    marks = (*(trail[:-1] if close else trail), mark)
    while len(marks) > 1 and marks[1].number <= mark.number - MOST_BEHIND:
        marks = marks[1:]
    return marks if len(marks) <= MARKS else (*marks[: MARKS // 2 : 2], *marks[MARKS // 2 :])


def _seen(test: Test, changes: Sequence[Change], number: int) -> tuple[list[Event], int]:
    """What a subscriber sees of changes, numbered on from a number; and how many bytes they are."""
    seen = [(change.at, *said) for change in changes if (said := _as_seen(test, change))]
    events = [Event(each, kind, item, patch, at) for each, (at, kind, item, patch) in enumerate(seen, number + 1)]
    return events, sum(len(msgspec.json.encode((change.item.data, change.patch))) for change in changes)


def _as_seen(test: Test, change: Change) -> tuple[ChangeKind, Item, Patch] | None:
    if not change.is_readable:
        return None
    matches = test(change.item)
    if change.kind != "update":
        return (change.kind, change.item, ()) if matches else None
    before = change.before
    match test(before), matches:
        case True, True:
            return "update", change.item, change.patch
        case False, True:
            return "create", change.item, ()
        case True, False:
            return "delete", before, ()
        case _:
            return None


def _check(subscribe: Subscribe) -> None:
    if not 0 < len(subscribe.id) <= MAX_ID or text_problem(subscribe.id):
        raise BadRequest(f"The id of a subscription has 1 to {MAX_ID} ordinary characters", limit=MAX_ID)
    if len(subscribe.note) > MAX_NOTE:
        raise BadRequest(f"A note has at most {MAX_NOTE} characters", limit=MAX_NOTE)
    if len(msgspec.json.encode(subscribe.filter)) > MAX_FILTER:
        raise TooLarge(f"The filter of a subscription has at most {MAX_FILTER} bytes", limit=MAX_FILTER)
    if subscribe.resume_after is not None and subscribe.resume_after < 0:
        raise BadRequest("Events are numbered from 1", resume_after=subscribe.resume_after)


def _check_same(subscribe: Subscribe, kept: Terms) -> None:
    same = subscribe.filter is None or content_hash(subscribe.filter) == content_hash(kept.filter)
    if subscribe.collection != kept.collection or not same:
        raise Conflict(
            "This subscription began with another collection or filter",
            subscription=subscribe.id,
            hint="Begin a new one under another id.",
        )


def _expired(message: str, after: int) -> FeedExpired:
    return FeedExpired(message, after=after, hint="Read the items anew and begin a new subscription.")


def _scope(id: str, caller: Caller) -> str:
    return f"{caller.rate_key}\n\nsubscription\n{id}"


async def _terms(notes: NoteStore, scope: str) -> Terms | None:
    terms = await notes.get(scope)
    return msgspec.json.decode(terms, type=Terms) if terms else None


def _clock() -> float:
    return asyncio.get_running_loop().time()
