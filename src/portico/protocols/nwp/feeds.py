"""Subscriptions, and streams that can be stopped: SubscribeFrames in, acknowledgements and DiffFrames out."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

from portico.errors import Conflict, FeedExpired, NotFound, RateLimited, SiteError, TakenOver, Unavailable
from portico.field_names import FieldNames
from portico.protocols.nwp.errors import (
    InvalidFrame,
    SubscribeFilterUnsupported,
    SubscriptionInterrupted,
    SubscriptionLimit,
    SubscriptionUnknown,
    UnknownNode,
    error_frame,
)
from portico.protocols.nwp.frames import CapsFrame, DiffFrame, ErrorFrame, StreamFrame, SubscribeFrame
from portico.protocols.nwp.nodes import QUERY
from portico.protocols.nwp.queries import publish_item, publish_patch, record
from portico.protocols.nwp.service import NodeService, NwpRequestContext
from portico.protocols.nwp.settings import NwpSettings
from portico.requests import Caller
from portico.subscriptions import ChangeEvent, Heartbeat, OpenSubscription, SubscribeRequest

ACK_REF: Final = "nps:system:subscribe:ack"
HEARTBEAT_SECONDS: Final = 30
LONGEST_HEARTBEAT: Final = 3600
RECHECK_SECONDS: Final = 5.0  # between checks whether a subscriber's credentials are still valid
TAKEN_OVER: Final = "taken_over"  # the reason when another connection resumes the subscription
ACTIONS: Final = ("subscribe", "unsubscribe", "ping")
STREAM_ID: Final = re.compile(r"[\w.:-]{1,64}\Z", re.ASCII)

CredentialsCheck: TypeAlias = Callable[[], Awaitable[Caller]]


class Feed:
    """An open subscription: its acknowledgement, then its changes. An error, if there is one, is the last frame."""

    def __init__(
        self,
        following: OpenSubscription,
        anchor: str,
        names: Callable[[], FieldNames],
        recheck: CredentialsCheck | None,
    ) -> None:
        self.id = following.id
        self._names = names  # of the fields of the changed records
        self._following = following
        self.anchor = anchor  # of the changed records
        self._recheck = recheck
        status = {"resumed": following.resumed, "effective_filter": dict(following.filter)}
        self.ack = acknowledge(following.id, "subscribed", following.last, **status)

    def __aiter__(self) -> AsyncIterator[DiffFrame | ErrorFrame]:
        return self._frames()

    async def aclose(self) -> None:
        """Stop reading. The subscription can be resumed later."""
        await self._following.events.aclose()

    async def _frames(self) -> AsyncGenerator[DiffFrame | ErrorFrame]:
        checked_at = time.monotonic()
        try:
            async for event in self._following.events:
                if self._recheck and time.monotonic() - checked_at > RECHECK_SECONDS:
                    await self._recheck()
                    checked_at = time.monotonic()
                yield self._diff(event)
        except Unavailable as error:
            yield error_frame(SubscriptionInterrupted(error.message, hint="Subscribe again with resume_from_seq."))
        except TakenOver as error:
            # Resuming would take it away from the connection that has it now.
            yield error_frame(SubscriptionInterrupted(error.message, hint=error.hint, reason=TAKEN_OVER))
        except SiteError as error:
            yield error_frame(error)

    def _diff(self, event: ChangeEvent | Heartbeat) -> DiffFrame:
        if isinstance(event, Heartbeat):
            return self._frame(event.number, event.number, [], "ping", datetime.now(UTC))
        return self._frame(
            event.number, event.number - 1, _patch(event, self._names()), event.kind, event.at, event.item.id
        )

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
            timestamp=format_time(at),
        )


class Feeds:
    """Opens subscriptions, and stops the streams and subscriptions of a caller."""

    def __init__(self, service: NodeService) -> None:
        self._service = service
        self._site = service.site
        self._streams: dict[tuple[str, str], asyncio.Event] = {}

    async def open(
        self,
        frame: SubscribeFrame,
        context: NwpRequestContext,
        recheck: CredentialsCheck | None = None,
        quiet: float = inf,
    ) -> Feed:
        """Open a subscription, or resume one after the last number that its reader has.

        Sends a heartbeat after `quiet` seconds of silence at most, even if the reader wants fewer or none.
        """
        subscription, anchor = await self._parse(frame, context, quiet)
        try:
            following = await self._site.follow(subscription, context.caller)
        except RateLimited as error:
            if "retry_after" in error.details:
                raise
            raise SubscriptionLimit(error.message, hint=error.hint, **error.details) from error
        except Conflict as error:
            if isinstance(error, FeedExpired):
                raise
            raise FeedExpired(error.message, hint="Subscribe anew, under another stream_id.") from error
        return Feed(following, anchor, partial(self._names, subscription.collection), recheck)

    def _names(self, collection: str) -> FieldNames:
        current = self._site.catalog.collections.get(collection)
        return current.names if current else FieldNames()

    async def manage(self, frame: SubscribeFrame, context: NwpRequestContext) -> CapsFrame:
        """Handle `unsubscribe` and `ping` for a running subscription or stream."""
        caller, id = context.caller, frame.stream_id
        stream = self._streams.get((caller.rate_key, id))
        self._check_manage(frame, context, is_stream=stream is not None)
        try:
            if frame.action == "ping":
                feed = await self._site.subscriptions.status(id, caller)
                return acknowledge(id, "alive", feed.last, effective_filter=dict(feed.filter))
            if stream:
                stream.set()
            else:
                await self._site.subscriptions.unfollow(id, caller)
            return acknowledge(id, "unsubscribed", 0)
        except NotFound as error:
            raise SubscriptionUnknown(f"There is no stream {id!r}", stream_id=id) from error

    def _check_manage(self, frame: SubscribeFrame, context: NwpRequestContext, *, is_stream: bool) -> None:
        self._service.capabilities.require(context, QUERY)
        if frame.action not in ACTIONS:
            raise InvalidFrame(f"`action` must be one of {', '.join(ACTIONS)}, not {frame.action[:40]!r}")
        # A stream can be stopped on a node without subscriptions too.
        if not is_stream:
            self._check_subscribes(context)

    def _check_subscribes(self, context: NwpRequestContext) -> None:
        if not self._service.nodes.may(context.node, "subscribe"):
            raise UnknownNode(f"The node {context.node.name} has no subscriptions", node=context.node.name)

    async def make_stoppable(
        self, parts: AsyncGenerator[StreamFrame], context: NwpRequestContext, frame_id: str | None = None
    ) -> AsyncGenerator[StreamFrame]:
        """Let the reader stop a stream early, by the id of the request or of its frame."""
        stop, seq = asyncio.Event(), 0
        keys = {(context.caller.rate_key, id) for id in (context.id, frame_id) if id}
        self._streams |= dict.fromkeys(keys, stop)
        try:
            async for part in parts:
                yield part
                seq = part.seq + 1
                if stop.is_set() and not part.is_last:
                    yield StreamFrame(stream_id=context.id, seq=seq, is_last=True, data=[])
                    return
        finally:
            for key in keys:
                if self._streams.get(key) is stop:
                    del self._streams[key]
            await parts.aclose()

    async def _parse(
        self, frame: SubscribeFrame, context: NwpRequestContext, quiet: float
    ) -> tuple[SubscribeRequest, str]:
        """Return the subscription that a frame asks for, and the id of its schema."""
        service, node, nwp = self._service, context.node, self._service.config.section(NwpSettings)
        service.capabilities.require(context, QUERY)
        self._check_subscribes(context)
        if frame.filter is not None and not service.nodes.may(node, "subscribe_filter"):
            raise SubscribeFilterUnsupported("This node does not filter subscriptions")
        await service.anchors.publish(node)
        resolved = await service.anchors.resolve(node, frame.anchor_ref, is_patient=True)
        service.parser(node, resolved.collection).where(frame.filter)
        subscription = SubscribeRequest(
            _stream_id(frame),
            resolved.collection,
            frame.filter,
            frame.resume_from_seq,
            seconds=nwp.resume,
            heartbeat=_heartbeat(frame.heartbeat_interval, quiet),
            limit=nwp.subscriptions,
        )
        return subscription, resolved.anchor.id


def acknowledge(id: str, state: str, last: int, **more: Any) -> CapsFrame:
    status_record: dict[str, Any] = {
        "stream_id": id,
        "status": state,
        "resumed": False,
        "last_seq": last,
        "effective_filter": {},
        **more,
    }
    return CapsFrame(anchor_ref=ACK_REF, count=1, data=[status_record])


def format_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _stream_id(frame: SubscribeFrame) -> str:
    if not STREAM_ID.match(frame.stream_id):
        raise InvalidFrame(
            f"`stream_id` must be 1 to 64 letters, digits, `-`, `_`, `.` or `:`, not {frame.stream_id[:80]!r}",
            member="stream_id",
            hint="Use a new UUID for each subscription.",
        )
    return frame.stream_id


def _heartbeat(requested: int | None, quiet: float) -> float:
    """Return the seconds between heartbeats; 0 for none."""
    seconds = HEARTBEAT_SECONDS if requested is None else min(requested, LONGEST_HEARTBEAT)
    longest = min(seconds or inf, quiet)
    return 0 if longest == inf else longest


def _patch(event: ChangeEvent, names: FieldNames) -> list[dict[str, Any]]:
    """Return the JSON Patch that turns the reader's copy of a record into the new one."""
    match event.kind:
        case "create":
            return [{"op": "add", "path": "", "value": record(publish_item(event.item, names))}]
        case "update":
            return publish_patch(event.patch, names)
        case "delete":
            return [{"op": "remove", "path": ""}]
