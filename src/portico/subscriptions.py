"""Subscriptions: the changes of a collection as a numbered stream that a reader can leave and resume.

The store's feed is the buffer. Event N follows from the feed and the filter, so that only the start of a subscription
and, now and then, the number at a position of the feed are stored. Does not check what a caller may read.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from portico.query import Predicate, json_size, matcher, parse_filter
from portico.requests import Caller, Watch
from portico.store import NoteStore, Store

MAX_BEHIND = 10_000  # events that a reader may have missed and still resume
MARK_EVERY = 250  # changes of the feed, approximately
MAX_MARKS = 128  # of one subscription; beyond that, older ones are thinned out
FIRST_BATCH = 8  # changes in the first batch; the size of later ones depends on how large the changes are
BATCH = 200
BATCH_BYTES = 1 << 20
CHECK_SECONDS = 5.0  # how often a reader checks that it has not been replaced, and saves its marks
KEEP_SECONDS = 60.0  # how often it renews the subscription, if that lasts much longer
NEW_PER_MINUTE = 120  # for one caller: each is stored for a while, even if nobody reads it
WATCH_SECONDS = 15.0  # to wait for a change before the store is asked again
WATCH_FIRST_BATCH = 16  # changes
WATCH_BATCH = 500
MAX_ID = 255
MAX_NOTE = 1000
MAX_FILTER = 16_384  # bytes as JSON: it is stored for as long as the subscription


async def watch_changes(
    store: Store, catalog: Callable[[], Catalog], watch: Watch, page_bytes: int
) -> AsyncIterator[Change]:
    """Yield the changes of a collection as they happen. An update that leaves or enters the filter is shown too."""
    seq = await store.changes.head() if watch.since is None else watch.since
    batch = WATCH_FIRST_BATCH
    while True:
        changes = await store.changes.list_since(seq, batch, watch.collection)
        # Next, as many as fill a page, from how large these were.
        size = sum(json_size(change.item.data) for change in changes)
        batch = max(1, min(WATCH_BATCH, 4 * batch, page_bytes * len(changes) // size)) if size else batch
        matches = matcher(watch.where, catalog().collections[watch.collection])
        for change in changes:
            seq = change.seq
            if await asyncio.to_thread(_concerns, matches, change):
                yield change
        if not changes:
            head = await store.changes.wait(seq, WATCH_SECONDS)
            if not await store.changes.list_since(seq, 1, watch.collection):
                seq = max(seq, head)


def _concerns(matches: Predicate, change: Change) -> bool:
    """Return whether the item matches, or did before."""
    return change.is_readable and (matches(change.item) or (change.kind == "update" and matches(change.before)))


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A request to open a subscription, or to resume one after event `resume_after`.

    Without a filter, a new subscription has every change, and a resumed one keeps its filter.
    """

    id: str
    collection: str
    filter: Mapping[str, Any] | None = None  # as JSON, in the dialect of `query.parse_filter`
    resume_after: int | None = None
    note: str = ""  # the reader's own, returned when it resumes; "" leaves the stored one
    seconds: float = 600.0  # for which it can be resumed once nobody reads it
    heartbeat: float = 0.0  # seconds without an event until a Heartbeat; 0: never
    limit: int = 20  # subscriptions of one caller that may be open in this process


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One change as a subscriber sees it. Items that begin to match are created; those that stop are deleted."""

    number: int
    kind: ChangeKind
    item: Item  # the current one; for a delete, the last one
    patch: Patch  # of an update
    at: datetime


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing has changed for a while."""

    number: int  # of the newest event


class FeedMark(msgspec.Struct, frozen=True, array_like=True):
    """The number of events up to a position in the feed."""

    number: int
    position: int


class SubscriptionTerms(msgspec.Struct, frozen=True):
    """What is stored of a subscription besides its marks."""

    collection: str
    filter: dict[str, Any]
    note: str
    seconds: float
    began: int  # position in the feed
    birth: str  # distinguishes it from a later one with the same id
    process: str  # that opened it last and has its reader

    @property
    def refresh_seconds(self) -> float:
        return min(KEEP_SECONDS, self.seconds / 4)

    @property
    def expires(self) -> datetime:
        """When the subscription ends unless it is renewed. A renewal may be late by one refresh period."""
        return datetime.now(UTC) + timedelta(seconds=self.seconds + self.refresh_seconds)


class FeedScanner:
    """Reads the feed from a mark, batch by batch, and numbers the events of a subscription."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog], terms: SubscriptionTerms, mark: FeedMark) -> None:
        self._store = store
        self._catalog = catalog
        self._collection = terms.collection
        self._where = parse_filter(terms.filter)
        self._size = FIRST_BATCH
        self.mark = mark

    async def next(self, head: int) -> list[ChangeEvent]:
        """Return the events of the next batch; none if the feed has no more changes up to `head`."""
        try:
            return await self._next(head)
        except UnknownCollection as error:
            raise _expiry_error(f"The collection {self._collection!r} no longer exists", self.mark.number) from error

    async def _next(self, head: int) -> list[ChangeEvent]:
        number, position = self.mark.number, self.mark.position
        changes = await self._store.changes.list_since(position, self._size, self._collection)
        if not changes:
            self.mark = FeedMark(number, max(position, head))
            return []
        test = matcher(self._where, self._find_collection())
        events, size = await asyncio.to_thread(_to_events, test, changes, number)
        self._size = max(1, min(BATCH, 4 * self._size, BATCH_BYTES * len(changes) // size))
        self.mark = FeedMark(number + len(events), changes[-1].seq)
        return events

    def _find_collection(self) -> Collection:
        collection = self._catalog().collections.get(self._collection)
        if collection is None:
            raise UnknownCollection(f"There is no collection {self._collection!r}")
        return collection


class SubscriptionRecord:
    """One subscription in the store. Its marks hold whichever process wrote them."""

    def __init__(self, store: Store, scope: str, terms: SubscriptionTerms) -> None:
        self.store = store
        self.scope = scope
        self.terms = terms
        self.marks: tuple[FeedMark, ...] = (FeedMark(0, terms.began),)
        self._saved = self.marks

    @property
    def newest(self) -> int:
        return self.marks[-1].number

    @property
    def _marks_scope(self) -> str:
        return f"{self.scope}\n{self.terms.birth}"

    async def load(self) -> None:
        encoded = await self.store.notes.get(self._marks_scope)
        if encoded:
            self.marks = self._saved = msgspec.json.decode(encoded, type=tuple[FeedMark, ...])

    def add(self, mark: FeedMark) -> None:
        self.marks = add_mark(self.marks, mark)

    async def renew(self) -> None:
        """Store the subscription, and put off its end."""
        await self.store.notes.set(self.scope, msgspec.json.encode(self.terms), self.terms.expires)
        await self._write()

    async def save(self) -> None:
        if self.marks is not self._saved:
            await self._write()

    async def _write(self) -> None:
        marks = self.marks
        await self.store.notes.set(self._marks_scope, msgspec.json.encode(marks), self.terms.expires)
        self._saved = marks

    async def clear(self) -> None:
        await self.store.notes.delete(self.scope)
        await self.store.notes.delete(self._marks_scope)


class SubscriptionReader:
    """Iterates over the events of a subscription. Closing it ends the reading, not the subscription.

    It ends when the subscription is deleted, and raises TakenOver when another reader replaces it, or Unavailable
    when the server stops. Changes are read from the feed only as they are consumed.
    """

    def __init__(
        self,
        record: SubscriptionRecord,
        owner: str,
        scan: FeedScanner,
        waiting: Sequence[ChangeEvent],
        heartbeat: float,
        on_end: Callable[["SubscriptionReader"], None],
    ) -> None:
        self.record = record
        self.owner = owner
        self._on_end = on_end
        self._scan = scan
        self._events = deque(waiting)
        self._heartbeat = heartbeat or inf
        self._check_at = _clock() + self._check_interval
        self._renew_at = _clock() + record.terms.refresh_seconds
        self._is_over = False
        self._error: SiteError | None = None
        self._timeout: asyncio.Timeout | None = None
        self._writing = asyncio.Lock()

    @property
    def _check_interval(self) -> float:
        return min(CHECK_SECONDS, self.record.terms.refresh_seconds)

    def __aiter__(self) -> "SubscriptionReader":
        return self

    async def __anext__(self) -> ChangeEvent | Heartbeat:
        due = _clock() + self._heartbeat
        while not self._is_over:
            if self._events:
                return self._events.popleft()
            if _clock() >= due:
                return Heartbeat(self._scan.mark.number)
            await self._read_batch(due)
        raise self._error or StopAsyncIteration

    async def _read_batch(self, due: float) -> None:
        """Wait for changes, at most until the next check or `due`, and read a batch."""
        try:
            async with asyncio.timeout(None) as self._timeout:
                if _clock() >= self._check_at:
                    await self._check_ownership()
                position, wake = self._scan.mark.position, min(due, self._check_at)
                head = await self.record.store.changes.wait(position, max(wake - _clock(), 0.0))
                if head > position:
                    self._events.extend(await self._scan.next(head))
                    self.record.add(self._scan.mark)
        except TimeoutError:  # only `end` sets a time
            if not self._is_over:
                raise
        finally:
            self._timeout = None

    async def _check_ownership(self) -> None:
        """End if this is no longer the subscription's reader; otherwise save its marks."""
        terms, stored = self.record.terms, await _load_terms(self.record.store.notes, self.record.scope)
        if stored is None:
            self.end()
            return
        if (stored.birth, stored.process) != (terms.birth, terms.process):
            self.end(_takeover_error())
            return
        self._check_at = _clock() + self._check_interval
        await (self.renew() if _clock() >= self._renew_at else self.record.save())

    async def renew(self) -> None:
        """Renew the subscription, unless this reader has ended."""
        async with self._writing:
            if not self._is_over:
                await self.record.renew()
                self._renew_at = _clock() + self.record.terms.refresh_seconds

    def end(self, error: SiteError | None = None) -> None:
        """Produce no more events, not even for a consumer that is waiting for one."""
        if self._is_over:
            return
        self._is_over, self._error = True, error
        self._events.clear()
        self._on_end(self)
        if self._timeout:
            self._timeout.reschedule(_clock())

    async def stop(self, error: SiteError | None = None) -> None:
        """End, and wait until this reader has finished its last write to the subscription."""
        self.end(error)
        async with self._writing:
            pass

    async def aclose(self) -> None:
        if self._is_over:
            return
        self.end()
        with contextlib.suppress(Unavailable):  # then the next reader has to count from an older mark
            await self.record.save()


@dataclass(frozen=True, slots=True)
class OpenSubscription:
    """A subscription that was opened. The caller closes its events."""

    id: str
    resumed: bool
    last: int  # the newest number at this moment; 0 for a new one
    filter: Mapping[str, Any]
    note: str
    events: SubscriptionReader


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """The state of a subscription, whether it is being read or not."""

    last: int  # the newest number
    filter: Mapping[str, Any]


class Subscriptions:
    """Opens, resumes and ends subscriptions. Only the caller that created a subscription can refer to it."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog]) -> None:
        self._store = store
        self._catalog = catalog
        self._process = secrets.token_hex(8)
        self._open: dict[str, SubscriptionReader] = {}
        self._closed = False

    async def follow(self, subscribe: SubscribeRequest, caller: Caller) -> OpenSubscription:
        """Open a subscription, or resume one right after an event. Raise FeedExpired if that is impossible."""
        check_request(subscribe)
        scope, after = _scope(subscribe.id, caller), subscribe.resume_after
        if after is None:
            await self._check_rate(caller)
        record = await (self._new(subscribe, scope) if after is None else self._load_stored(subscribe, scope, after))
        last, terms = record.newest, record.terms
        scan, waiting = await self._scan_from(record, after or 0)
        reader = SubscriptionReader(record, caller.rate_key, scan, waiting, subscribe.heartbeat, self._remove)
        await self._admit(reader, subscribe.limit)
        return OpenSubscription(subscribe.id, after is not None, last, terms.filter, terms.note, reader)

    async def unfollow(self, id: str, caller: Caller) -> None:
        """Delete a subscription. A reader in another process ends within seconds."""
        record = await self._load_own(id, caller)
        reader = self._open.get(record.scope)
        if reader:
            await reader.stop()
        await record.clear()

    async def status(self, id: str, caller: Caller) -> SubscriptionStatus:
        """Return the state of a subscription, and renew it."""
        record = await self._load_own(id, caller)
        reader = self._open.get(record.scope)
        if reader:
            return SubscriptionStatus(reader.record.newest, record.terms.filter)
        await self._catch_up(record)
        # Catching up takes a while. A deletion or takeover elsewhere in the meantime must not be undone.
        if await _load_terms(self._store.notes, record.scope) == record.terms:
            await record.renew()
        return SubscriptionStatus(record.newest, record.terms.filter)

    async def close(self) -> None:
        """End all readers because the server stops. Their marks are saved if the store is available."""
        self._closed = True
        readers = list(self._open.values())
        for reader in readers:
            reader.end(Unavailable("The server is stopping", hint="Resume the subscription in a moment."))
        with contextlib.suppress(Unavailable):
            await asyncio.gather(*(reader.record.save() for reader in readers))

    async def _check_rate(self, caller: Caller) -> None:
        """Limit new subscriptions. With their lifetime, that also bounds how many are stored."""
        meter = await self._store.meters.take(f"subscriptions\n{caller.rate_key}", NEW_PER_MINUTE)
        if not meter.granted:
            wait = (1 - meter.tokens) * 60 / NEW_PER_MINUTE
            raise RateLimited(
                f"More than {NEW_PER_MINUTE} new subscriptions in a minute",
                limit=NEW_PER_MINUTE,
                retry_after=round(wait, 2),
                hint="Resume an existing subscription, or wait a moment.",
            )

    async def _new(self, subscribe: SubscribeRequest, scope: str) -> SubscriptionRecord:
        terms = SubscriptionTerms(
            collection=subscribe.collection,
            filter=dict(subscribe.filter or {}),
            note=subscribe.note,
            seconds=subscribe.seconds,
            began=await self._store.changes.head(),
            birth=secrets.token_hex(8),
            process=self._process,
        )
        return SubscriptionRecord(self._store, scope, terms)

    async def _load_stored(self, subscribe: SubscribeRequest, scope: str, after: int) -> SubscriptionRecord:
        """Load a subscription and number the changes since it was last read."""
        stored = await _load_terms(self._store.notes, scope)
        if stored is None:
            raise _expiry_error("There is no subscription with this id, or it has expired", after)
        _check_unchanged(subscribe, stored)
        note = subscribe.note or stored.note
        terms = msgspec.structs.replace(stored, note=note, seconds=subscribe.seconds, process=self._process)
        record = SubscriptionRecord(self._store, scope, terms)
        await self._catch_up(record, after + MAX_BEHIND)
        if not record.newest - MAX_BEHIND <= after <= record.newest:
            raise _expiry_error(f"Event {after} is not among the newest {MAX_BEHIND}", after)
        return record

    async def _load_own(self, id: str, caller: Caller) -> SubscriptionRecord:
        scope = _scope(id, caller)
        terms = None if text_problem(id) else await _load_terms(self._store.notes, scope)
        if terms is None:
            raise NotFound("There is no such subscription", subscription=id[:MAX_ID])
        return SubscriptionRecord(self._store, scope, terms)

    async def _catch_up(self, record: SubscriptionRecord, most: float = inf) -> None:
        """Mark the feed up to its head, but not beyond event number `most`."""
        await record.load()
        head = await self._store.changes.head()
        scan = self._make_scanner(record, record.marks[-1])
        while scan.mark.position < head and scan.mark.number <= most:
            await scan.next(head)
            record.add(scan.mark)

    async def _scan_from(self, record: SubscriptionRecord, after: int) -> tuple[FeedScanner, list[ChangeEvent]]:
        """Return a scanner that has reached a number, and the events after it that it has already read."""
        start = next((mark for mark in reversed(record.marks) if mark.number <= after), None)
        if start is None:
            raise _expiry_error(f"The position of event {after} in the feed is no longer known", after)
        scan, head = self._make_scanner(record, start), record.marks[-1].position
        events = await scan.next(head)
        while scan.mark.number < after and scan.mark.position < head:
            events = await scan.next(head)
        if scan.mark.number < after:  # a field has changed its type, and with it which items match
            raise _expiry_error(f"Event {after} can no longer be identified", after)
        return scan, [event for event in events if event.number > after]

    def _make_scanner(self, record: SubscriptionRecord, mark: FeedMark) -> FeedScanner:
        return FeedScanner(self._store, self._catalog, record.terms, mark)

    async def _admit(self, reader: SubscriptionReader, limit: int) -> None:
        """Register a reader in place of an older one of the same subscription."""
        scope = reader.record.scope
        if self._closed:
            raise Unavailable("The server is stopping")
        if sum(open_reader.owner == reader.owner for name, open_reader in self._open.items() if name != scope) >= limit:
            raise RateLimited(f"{limit} subscriptions are already open", limit=limit, hint="Close one of them.")
        older, self._open[scope] = self._open.get(scope), reader
        try:
            if older:
                await older.stop(_takeover_error())
            await reader.renew()
        except BaseException:
            reader.end()
            raise

    def _remove(self, reader: SubscriptionReader) -> None:
        if self._open.get(reader.record.scope) is reader:
            del self._open[reader.record.scope]


def _takeover_error() -> TakenOver:
    return TakenOver("Another reader has taken over this subscription", hint="Open another one under a new id.")


def add_mark(trail: tuple[FeedMark, ...], mark: FeedMark) -> tuple[FeedMark, ...]:
    """Return the marks with another one added. It replaces the last one if that is close to the one before."""
    if mark.position <= trail[-1].position:
        return trail
    close = len(trail) > 1 and trail[-1].position - trail[-2].position < MARK_EVERY
    marks = (*(trail[:-1] if close else trail), mark)
    while len(marks) > 1 and marks[1].number <= mark.number - MAX_BEHIND:
        marks = marks[1:]
    return marks if len(marks) <= MAX_MARKS else (*marks[: MAX_MARKS // 2 : 2], *marks[MAX_MARKS // 2 :])


def _to_events(test: Predicate, changes: Sequence[Change], number: int) -> tuple[list[ChangeEvent], int]:
    """Return the events that a subscriber sees of some changes, numbered from `number` + 1, and their size in bytes."""
    matches = [(change.at, *match) for change in changes if (match := _match_change(test, change))]
    events = [
        ChangeEvent(event_number, kind, item, patch, at)
        for event_number, (at, kind, item, patch) in enumerate(matches, number + 1)
    ]
    return events, sum(len(msgspec.json.encode((change.item.data, change.patch))) for change in changes)


def _match_change(test: Predicate, change: Change) -> tuple[ChangeKind, Item, Patch] | None:
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


def check_request(subscribe: SubscribeRequest) -> None:
    if not 0 < len(subscribe.id) <= MAX_ID or text_problem(subscribe.id):
        raise BadRequest(f"The id of a subscription must have 1 to {MAX_ID} printable characters", limit=MAX_ID)
    if len(subscribe.note) > MAX_NOTE:
        raise BadRequest(f"`note` may have at most {MAX_NOTE} characters", limit=MAX_NOTE)
    if len(msgspec.json.encode(subscribe.filter)) > MAX_FILTER:
        raise TooLarge(f"The filter of a subscription may have at most {MAX_FILTER} bytes", limit=MAX_FILTER)
    if subscribe.resume_after is not None and subscribe.resume_after < 0:
        raise BadRequest("Event numbers start at 1", resume_after=subscribe.resume_after)


def _check_unchanged(subscribe: SubscribeRequest, stored: SubscriptionTerms) -> None:
    same = subscribe.filter is None or content_hash(subscribe.filter) == content_hash(stored.filter)
    if subscribe.collection != stored.collection or not same:
        raise Conflict(
            "This subscription was opened with another collection or filter",
            subscription=subscribe.id,
            hint="Open a new one under another id.",
        )


def _expiry_error(message: str, after: int) -> FeedExpired:
    return FeedExpired(message, after=after, hint="Read the items again and open a new subscription.")


def _scope(id: str, caller: Caller) -> str:
    return f"{caller.rate_key}\n\nsubscription\n{id}"


async def _load_terms(notes: NoteStore, scope: str) -> SubscriptionTerms | None:
    terms = await notes.get(scope)
    return msgspec.json.decode(terms, type=SubscriptionTerms) if terms else None


def _clock() -> float:
    return asyncio.get_running_loop().time()
