"""Subscriptions and streams that can be ended: SubscribeFrames in, acknowledgements and DiffFrames out."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from math import inf
from typing import Any, Final, TypeAlias

from portico.errors import Conflict, FeedExpired, NotFound, RateLimited, SiteError, TakenOver, Unavailable
from portico.protocols.nwp.errors import (
    InvalidFrame,
    SubscribeFilterUnsupported,
    SubscriptionInterrupted,
    SubscriptionLimit,
    SubscriptionUnknown,
    UnknownNode,
    failure,
)
from portico.protocols.nwp.frames import CapsFrame, DiffFrame, ErrorFrame, StreamFrame, SubscribeFrame
from portico.protocols.nwp.nodes import QUERY
from portico.protocols.nwp.queries import record
from portico.protocols.nwp.service import Asking, Exchange
from portico.requests import Caller
from portico.subscriptions import Event, Following, Quiet, Subscribe

ACK_REF: Final = "nps:system:subscribe:ack"
HEARTBEAT_SECONDS: Final = 30
LONGEST_HEARTBEAT: Final = 3600
RECHECK_SECONDS: Final = 5.0  # how often it is looked at whether a subscriber's credentials still hold
TAKEN_OVER: Final = "taken_over"  # why a subscription ends that another connection reads now
ACTIONS: Final = ("subscribe", "unsubscribe", "ping")
IS_ID: Final = re.compile(r"[\w.:-]{1,64}\Z", re.ASCII)  # what a subscription can be called

Again: TypeAlias = Callable[[], Awaitable[Caller]]


class Feed:
    """A subscription that was opened: its acknowledgement, and then what happens. Ends with an error, or in silence."""

    def __init__(self, following: Following, anchor: str, again: Again | None) -> None:
        self.id = following.id
        self._following = following
        self.anchor = anchor  # of the records that it tells of
        self._again = again
        said = {"resumed": following.resumed, "effective_filter": dict(following.filter)}
        self.ack = acknowledged(following.id, "subscribed", following.last, **said)

    def __aiter__(self) -> AsyncIterator[DiffFrame | ErrorFrame]:
        return self._frames()

    async def aclose(self) -> None:
        """Stop reading. The subscription can be taken up again."""
        await self._following.events.aclose()

    async def _frames(self) -> AsyncGenerator[DiffFrame | ErrorFrame]:
        checked = time.monotonic()
        try:
            async for seen in self._following.events:
                if self._again and time.monotonic() - checked > RECHECK_SECONDS:
                    await self._again()
                    checked = time.monotonic()
                yield self._diff(seen)
        except Unavailable as error:
            yield failure(SubscriptionInterrupted(error.message, hint="Subscribe again with resume_from_seq."))
        except TakenOver as error:
            # To come back would take it from whoever has it now.
            yield failure(SubscriptionInterrupted(error.message, hint=error.hint, reason=TAKEN_OVER))
        except SiteError as error:
            yield failure(error)

    def _diff(self, seen: Event | Quiet) -> DiffFrame:
        if isinstance(seen, Quiet):
            return self._frame(seen.number, seen.number, [], "ping", datetime.now(UTC))
        return self._frame(seen.number, seen.number - 1, _patch(seen), seen.kind, seen.at, seen.item.id)

    def _frame(
        self, seq: int, base: int, patch: list[dict[str, Any]], kind: str, at: datetime, entity: str | None = None
    ) -> DiffFrame:
        return DiffFrame(
            anchor_ref=self.anchor,
            base_seq=base,
            patch=patch,
            entity_id=entity,
            stream_id=self.id,
            seq=seq,
            event_type=kind,
            timestamp=moment(at),
        )


class Feeds:
    """Opens subscriptions, and ends what a caller has running."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._site = exchange.site
        self._streams: dict[tuple[str, str], asyncio.Event] = {}

    async def open(self, frame: SubscribeFrame, asking: Asking, again: Again | None = None, quiet: float = inf) -> Feed:
        """Begin a subscription, or take one up after the last number that its reader has. There is nothing to tell for
        `quiet` seconds at most: then a heartbeat is, though a reader wants it seldom or never.
        """
        wanted, anchor = await self._understood(frame, asking, quiet)
        try:
            following = await self._site.follow(wanted, asking.caller)
        except RateLimited as error:
            if "retry_after" in error.details:
                raise
            raise SubscriptionLimit(error.message, hint=error.hint, **error.details) from error
        except Conflict as error:
            if isinstance(error, FeedExpired):
                raise
            raise FeedExpired(error.message, hint="Subscribe anew, under another stream_id.") from error
        return Feed(following, anchor, again)

    async def told(self, frame: SubscribeFrame, asking: Asking) -> CapsFrame:
        """What is said of a subscription or a stream that runs: that it has ended, or that it lives."""
        caller, id = asking.caller, frame.stream_id
        stream = self._streams.get((caller.rate_key, id))
        async with self._site.gate.charging(caller):
            self._check_told(frame, asking, is_stream=stream is not None)
        try:
            if frame.action == "ping":
                found = await self._site.standing(id, caller)
                return acknowledged(id, "alive", found.last, effective_filter=dict(found.filter))
            if stream:
                await self._site.gate.spend(caller)
                stream.set()
            else:
                await self._site.unfollow(id, caller)
            return acknowledged(id, "unsubscribed", 0)
        except NotFound as error:
            raise SubscriptionUnknown("There is no such stream", stream_id=id) from error

    def _check_told(self, frame: SubscribeFrame, asking: Asking, *, is_stream: bool) -> None:
        self._exchange.warrants.check(asking, QUERY)
        if frame.action not in ACTIONS:
            raise InvalidFrame(f"`action` must be one of {', '.join(ACTIONS)}, not {frame.action[:40]!r}")
        # A stream is ended here also on a node that has no subscriptions.
        if not is_stream:
            self._check_subscribes(asking)

    def _check_subscribes(self, asking: Asking) -> None:
        if not self._exchange.nodes.may(asking.node, "subscribe"):
            raise UnknownNode(f"{asking.node.name} is not subscribed to", node=asking.node.name)

    async def stopping(
        self, parts: AsyncGenerator[StreamFrame], asking: Asking, named: str | None = None
    ) -> AsyncGenerator[StreamFrame]:
        """A stream that its reader can end early, by the id of its request: its own or that which its frame has."""
        stop, seq = asyncio.Event(), 0
        keys = {(asking.caller.rate_key, id) for id in (asking.id, named) if id}
        self._streams |= dict.fromkeys(keys, stop)
        try:
            async for part in parts:
                yield part
                seq = part.seq + 1
                if stop.is_set() and not part.is_last:
                    yield StreamFrame(stream_id=asking.id, seq=seq, is_last=True, data=[])
                    return
        finally:
            for key in keys:
                if self._streams.get(key) is stop:
                    del self._streams[key]
            await parts.aclose()

    async def _understood(self, frame: SubscribeFrame, asking: Asking, quiet: float) -> tuple[Subscribe, str]:
        """What a frame subscribes to."""
        exchange, node, nwp = self._exchange, asking.node, self._exchange.config.nwp
        async with self._site.gate.charging(asking.caller):
            exchange.warrants.check(asking, QUERY)
            self._check_subscribes(asking)
            if frame.filter is not None and not exchange.nodes.may(node, "subscribe_filter"):
                raise SubscribeFilterUnsupported("This node tells of all changes or none")
            await exchange.anchors.publish(node)
            meant = await exchange.anchors.meant(node, frame.anchor_ref, is_patient=True)
            exchange.reading(node, meant.collection).where(frame.filter)
            wanted = Subscribe(
                _id(frame),
                meant.collection,
                frame.filter,
                frame.resume_from_seq,
                seconds=nwp.resume,
                heartbeat=_heartbeat(frame.heartbeat_interval, quiet),
                limit=nwp.subscriptions,
            )
            return wanted, meant.anchor.id


def acknowledged(id: str, status: str, last: int, **more: Any) -> CapsFrame:
    said: dict[str, Any] = {
        "stream_id": id,
        "status": status,
        "resumed": False,
        "last_seq": last,
        "effective_filter": {},
        **more,
    }
    return CapsFrame(anchor_ref=ACK_REF, count=1, data=[said])


def moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _id(frame: SubscribeFrame) -> str:
    if not IS_ID.match(frame.stream_id):
        raise InvalidFrame(
            f"`stream_id` must be 1 to 64 letters, digits, `-`, `_`, `.` or `:`, not {frame.stream_id[:80]!r}",
            member="stream_id",
            hint="Make a UUID for each subscription.",
        )
    return frame.stream_id


def _heartbeat(said: int | None, quiet: float) -> float:
    """Seconds between heartbeats; 0: there are none."""
    seconds = HEARTBEAT_SECONDS if said is None else min(said, LONGEST_HEARTBEAT)
    longest = min(seconds or inf, quiet)
    return 0 if longest == inf else longest


def _patch(event: Event) -> list[dict[str, Any]]:
    """What a reader has to do to its copy of the record."""
    match event.kind:
        case "create":
            return [{"op": "add", "path": "", "value": record(event.item)}]
        case "update":
            return list(event.patch)
        case "delete":
            return [{"op": "remove", "path": ""}]
