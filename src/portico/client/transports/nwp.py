"""A client for NWP 0.4, with asyncio: queries, streams, actions and subscriptions. Needs nothing of the server.

    async with NwpClient("http://127.0.0.1:8000", node="recipes") as recipes:
        async for record in recipes.records(filter={"prepTime": {"$lte": "PT10M"}}, order=["name"]): ...

What is said and understood is written here, once. A line takes frames to a node and back, over HTTP or natively.
"""

import asyncio
import hashlib
import ssl as tls
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, Literal, Self, TypeAlias, TypedDict, Unpack, cast

import httpx
import msgspec
import rfc8785

from portico.client import GROWTH, LARGEST, LONGEST_PAUSE, MOST_MISSED, TIMEOUT, BadAnswer, ClientError, NotReached
from portico.client.transports.nwp_lines import (
    Credentials,
    FeedExpired,
    HttpLine,
    Ident,
    Line,
    NwpError,
    address,
    certificate_of,
    http_client,
)
from portico.client.transports.nwp_native import NativeLine
from portico.protocols.nwp.frames import (
    ActionFrame,
    AnchorFrame,
    CapsFrame,
    DiffFrame,
    Frame,
    FrameError,
    OrderKey,
    QueryFrame,
    Reader,
    Records,
    StreamFrame,
    SubscribeFrame,
    Tier,
    VectorSearch,
    decode_as,
    row_type,
)

__all__ = [
    "Anchor",
    "Answer",
    "Change",
    "FeedExpired",
    "Ident",
    "Manifest",
    "NativeNwpClient",
    "Node",
    "NwpClient",
    "NwpError",
    "Part",
    "Task",
    "VectorSearch",
    "Wishes",
    "certificate_of",
]

HEARTBEAT: Final = 30.0  # seconds after which a silent subscription says that it lives
FIRST_PAUSE: Final = 0.1  # seconds; to take a subscription up for the first time there is none
NOT_MODIFIED: Final = 304
LEAVE_SECONDS: Final = 5.0  # to give one up that nobody reads any more
KEPT: Final = 64  # schemas
FINAL: Final = frozenset({"completed", "failed", "cancelled"})
STATUS, CANCEL = "system.task.status", "system.task.cancel"
_AWAY: Final = frozenset({"NPS-SERVER-UNAVAILABLE", "NPS-LIMIT-RATE"})  # what passes by itself

TierName: TypeAlias = Literal["msgpack", "json"]
Record: TypeAlias = Any
"""A mapping; with `rows`, an object that has the fields of the schema as attributes."""


# What comes back


@dataclass(frozen=True, slots=True)
class Anchor:
    """A schema and its name, which is its hash."""

    id: str
    schema: Mapping[str, Any]
    ttl: int = 3600  # seconds

    @property
    def fields(self) -> dict[str, str]:
        """The type of each field."""
        return {each["name"]: each["type"] for each in self.schema["fields"]}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a node says of itself. Everything is in `data`."""

    data: Mapping[str, Any]

    @property
    def version(self) -> str:
        return str(self.data.get("manifest_version", ""))

    @property
    def node_id(self) -> str:
        return str(self.data.get("node_id", ""))

    @property
    def node_type(self) -> str:
        return str(self.data.get("node_type", ""))

    @property
    def capabilities(self) -> Mapping[str, bool]:
        return self.data.get("capabilities", {})

    @property
    def anchors(self) -> Mapping[str, str]:
        """The ids of its schemas, by name."""
        return self.data.get("schema_anchors", {})


@dataclass(frozen=True, slots=True)
class Answer:
    """Records, and where to go on."""

    records: tuple[Record, ...]
    anchor: str  # the id of their schema
    next_cursor: str = ""
    tokens: int | None = None
    tokenizer: str = ""
    trimmed: Mapping[str, Any] | None = None  # what was left out to keep within the budget
    inline: Anchor | None = None  # the schema that holds, if the one that was known no longer does
    graph: tuple[Mapping[str, Any], ...] = ()
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the records of a stream, in their order."""

    seq: int
    records: tuple[Record, ...]
    is_last: bool
    total: int | None = None  # of the first part, if the node knows
    trimmed: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """An action that runs on. The result is there when it is completed, the error when it failed."""

    id: str
    status: str
    progress: float = 0.0  # 0 to 1
    result: Any = None
    error: Mapping[str, Any] | None = None
    estimated: float | None = None  # seconds
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_final(self) -> bool:
        return self.status in FINAL


@dataclass(frozen=True, slots=True)
class Change:
    """A record came, went or is another now; `patch` (JSON Patch) says what to do to a copy of it."""

    seq: int
    kind: str  # create, update or delete
    id: str
    patch: tuple[Mapping[str, Any], ...]
    at: str
    anchor: str
    trimmed: Mapping[str, Any] | None = None  # what was left out of the patch, since no frame had room for it

    @property
    def record(self) -> Mapping[str, Any] | None:
        """The whole record, of one that came."""
        return self.patch[0].get("value") if self.kind == "create" and self.patch else None


# What is sent


class Wishes(TypedDict, total=False):
    """What a query can say."""

    filter: Mapping[str, Any]  # {"price": {"$lt": 20}}
    fields: Sequence[str]
    order: Sequence[str]  # "price", or "-price" for falling
    limit: int
    cursor: str
    aggregate: Mapping[str, Any]  # {"operations": [{"func": "COUNT", "alias": "n"}], "group_by": [], "having": {}}
    vector: VectorSearch
    budget: int  # tokens that an answer may cost
    tokenizer: str
    depth: int  # hops into the graph
    anchor: str  # the id of the schema that is known; else the one that this client knows
    auto_anchor: bool  # False: refuse a schema that no longer holds, in place of sending the new one along
    rows: bool  # records as objects that have the schema's fields as attributes, which are faster to read


def _query_frame(wishes: Wishes, anchor: str | None, *, stream: bool = False) -> QueryFrame:
    order = [OrderKey(each.removeprefix("-"), "DESC" if each.startswith("-") else "ASC") for each in _many(wishes)]
    return QueryFrame(
        anchor_ref=anchor,
        auto_anchor=wishes.get("auto_anchor"),
        stream=stream or None,
        aggregate=wishes.get("aggregate"),
        filter=wishes.get("filter"),
        fields=list(wishes.get("fields", ())) or None,
        limit=wishes.get("limit"),
        cursor=wishes.get("cursor") or None,
        order=order or None,
        vector_search=wishes.get("vector"),
        token_budget=wishes.get("budget"),
        tokenizer=wishes.get("tokenizer"),
        depth=wishes.get("depth"),
        request_id=str(uuid.uuid4()),
    )


def _many(wishes: Wishes) -> Sequence[str]:
    order = wishes.get("order", ())
    return (order,) if isinstance(order, str) else order


# Frames as they came


def answered(frame: Frame) -> CapsFrame:
    if not isinstance(frame, CapsFrame):
        raise BadAnswer(f"The answer is not NWP: a frame of type 0x{frame.TYPE:02X} is none")
    return frame


def _records(frame: CapsFrame | StreamFrame) -> tuple[Any, ...]:
    found: Any = frame.data
    if not isinstance(found, list | Records):
        raise BadAnswer("The answer is not NWP: its records are no list")
    try:
        return tuple(cast("Sequence[Any]", found))
    except FrameError as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error


def _first(frame: CapsFrame) -> Mapping[str, Any]:
    said = next(iter(_records(frame)), None)
    if not isinstance(said, dict):
        raise BadAnswer("The answer is not NWP: it says nothing")
    return cast("Mapping[str, Any]", said)


def trusted(frame: AnchorFrame) -> Anchor:
    """A schema whose name is its hash. Another one could stand for anything."""
    try:
        hashed = hashlib.sha256(rfc8785.dumps(frame.schema)).hexdigest()
        msgspec.convert(frame.schema, _Schema)
    except (rfc8785.CanonicalizationError, msgspec.ValidationError) as error:
        raise BadAnswer(f"The schema is none: {error}") from error
    if frame.anchor_id != f"sha256:{hashed}":
        raise BadAnswer(f"The schema is not the one that {frame.anchor_id[:80]!r} names")
    return Anchor(frame.anchor_id, frame.schema, frame.ttl)


class _Field(msgspec.Struct, frozen=True):
    name: str
    type: str


class _Schema(msgspec.Struct, frozen=True):
    fields: list[_Field]


def row_of(anchor: Anchor) -> type[msgspec.Struct]:
    """A type for the records of a schema, of which a query may want only some fields."""
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in anchor.fields.items()]
    return row_type({"fields": fields})


def _patch(said: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(said, list) or not all(isinstance(each, dict) for each in cast("list[Any]", said)):
        raise BadAnswer("The answer is not NWP: a patch is a list of objects")
    return tuple(cast("list[Mapping[str, Any]]", said))


def _number(said: Any) -> float:
    """A number that a node says; 0 if it says none."""
    if said is None:
        return 0.0
    if isinstance(said, bool) or not isinstance(said, int | float) or not isfinite(said):
        raise BadAnswer("The answer is not NWP: a number is none")
    return said


def _task(said: Mapping[str, Any]) -> Task:
    match said:
        case {"task_id": str() as id, "status": str() as status}:
            estimate = said.get("estimated_ms")
            return Task(
                id,
                status,
                _number(said.get("progress")),
                said.get("result"),
                said.get("error"),
                estimate / 1000 if isinstance(estimate, int) else None,
                said,
            )
        case _:
            raise BadAnswer("The answer is not NWP: a task has a task_id and a status")


class _Missed(ClientError):
    """A subscription has numbers between the last one and this."""


class _Feed:
    """What a subscription has told so far. Takes each change once, however often it is told."""

    def __init__(self, wanted: SubscribeFrame) -> None:
        self._wanted = wanted
        self._is_acknowledged = False
        self._missed = 0  # in a row
        self.seen = wanted.resume_from_seq  # the number of the last change; None before there is a subscription

    def frame(self) -> SubscribeFrame:
        """To begin it, or to take it up after the last change that came."""
        self._is_acknowledged = False
        return msgspec.structs.replace(self._wanted, resume_from_seq=self.seen)

    def take(self, frame: Frame) -> Change | None:
        match frame:
            case CapsFrame() if not self._is_acknowledged:
                self._is_acknowledged = True
                if self.seen is None:
                    self.seen = int(_number(_first(frame).get("last_seq")))
                return None
            case DiffFrame(seq=int() as seq) if self._is_acknowledged and self.seen is not None:
                return self._change(frame, seq, self.seen)
            case _:
                return None  # of a reader before this one

    def _change(self, frame: DiffFrame, seq: int, seen: int) -> Change | None:
        is_ping = frame.event_type in {"ping", "heartbeat"}
        if seq > seen + (not is_ping):
            raise _Missed(f"Changes {seen + 1} to {seq} are missing")
        self._missed = 0
        if is_ping or seq <= seen:
            return None
        self.seen = seq
        patch = _patch(frame.patch)
        told = frame.event_type or "update", frame.entity_id or "", patch, frame.timestamp or ""
        return Change(seq, *told, frame.anchor_ref, frame.trimmed)

    def may_go_on(self, error: ClientError) -> bool:
        is_taken = isinstance(error, NwpError) and error.details.get("reason") == "taken_over"
        return self.seen is not None and not is_taken and _passes(error) and self._missed < MOST_MISSED

    async def pause(self) -> None:
        await asyncio.sleep(min(FIRST_PAUSE * (2**self._missed - 1), LONGEST_PAUSE))
        self._missed += 1


# The clients


class Node:
    """A node of any server that speaks NWP 0.4, whatever the line to it."""

    def __init__(self, line: Line, timeout: float) -> None:
        self._line = line
        self._timeout = timeout
        self._known: Manifest | None = None
        self._tag = ""
        self._anchor: Anchor | None = None  # the schema of the node's records
        self._anchors: dict[str, Anchor] = {}
        self._readers: dict[str, Reader] = {}
        self._ended: set[str] = set()  # subscriptions that are given up while they are read

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._line.close()

    # What it says of itself

    async def manifest(self) -> Manifest:
        """The manifest. It is kept, and fetched again only if it has changed."""
        told = await self._line.get(".nwm", **({"if-none-match": self._tag} if self._known else {}))
        if self._known is None or told.status != NOT_MODIFIED:
            self._known = Manifest(_object(told.body))
            self._tag = told.tag or f'"{self._known.version}"'
        return self._known

    async def schema(self, anchor: str = "") -> Anchor:
        """The schema of the node's records, or another by its name or id. It is what its id says, or BadAnswer."""
        query = f"?{httpx.QueryParams({'anchor': anchor})}" if anchor else ""
        told = await self._line.get(f".schema{query}")
        try:
            found = self._kept(trusted(decode_as(AnchorFrame, told.body, Tier.JSON)))
        except FrameError as error:
            raise BadAnswer(f"The schema is none: {error}") from error
        if not anchor:
            self._anchor = found
        return found

    async def actions(self) -> Mapping[str, Mapping[str, Any]]:
        """What can be invoked, by id."""
        return _object((await self._line.get("actions")).body).get("actions", {})

    # Queries

    async def query(self, **wishes: Unpack[Wishes]) -> Answer:
        """One page. If the schema has changed since it was known, the new one is taken over."""
        anchor = await self._reference(wishes)
        reader = self._wanted_reader(wishes, anchor)
        asked = _query_frame(wishes, anchor and anchor.id)
        frame = answered(await self._line.ask("query", asked, self._timeout, reader))
        if anchor and reader:
            return self._answer(self._typed(frame, anchor, reader))
        answer = self._answer(frame)
        if not all(isinstance(each, dict) for each in answer.records):
            raise BadAnswer("The answer is not NWP: a record is no object")
        return answer

    async def pages(self, **wishes: Unpack[Wishes]) -> AsyncGenerator[Answer]:
        """All pages, one after the other."""
        while True:
            answer = await self.query(**wishes)
            yield answer
            if not answer.next_cursor:
                return
            if answer.next_cursor == wishes.get("cursor"):
                raise BadAnswer("The pages have no end")
            wishes["cursor"] = answer.next_cursor
            if answer.inline and "anchor" in wishes:
                wishes["anchor"] = answer.inline.id

    async def records(self, **wishes: Unpack[Wishes]) -> AsyncGenerator[Record]:
        """The records of all pages."""
        async with aclosing(self.pages(**wishes)) as pages:
            async for page in pages:
                for record in page.records:
                    yield record

    async def stream(self, **wishes: Unpack[Wishes]) -> AsyncGenerator[Part]:
        """All that a query finds, as it is found. Closing it ends the work of the node."""
        anchor = await self._reference(wishes)
        frame = _query_frame(wishes, anchor and anchor.id, stream=True)
        reader = self._wanted_reader(wishes, anchor)
        due = 0
        async with aclosing(self._line.frames("stream", frame, self._timeout, reader)) as frames:
            async for each in frames:
                part = _part(each, reader, due)
                yield part
                if part.is_last:
                    return
                due += 1
        raise NotReached("The stream broke off")

    async def _reference(self, wishes: Wishes) -> Anchor | None:
        """The schema that a query names. It is fetched only if something depends on it."""
        wanted = wishes.get("anchor")
        if wanted and wishes.get("rows"):
            return self._anchors.get(wanted) or await self.schema(wanted)
        if wanted:
            return Anchor(wanted, {})
        if self._anchor is None and (wishes.get("rows") or not self._line.is_addressed):
            return await self.schema()
        return self._anchor

    def _typed(self, frame: CapsFrame, anchor: Anchor, reader: Reader) -> CapsFrame:
        """The same with records of the type that their schema makes: the one that is known, or that came along."""
        if frame.anchor_ref != anchor.id and frame.inline_anchor:
            anchor = self._kept(trusted(frame.inline_anchor))
            reader = self._reader(anchor)
        if frame.anchor_ref != anchor.id:
            raise BadAnswer("The records are not as their schema says")
        return msgspec.structs.replace(frame, data=_read(reader, frame))

    def _wanted_reader(self, wishes: Wishes, anchor: Anchor | None) -> Reader | None:
        """Who reads the records of an answer, if they are wanted by their schema and it is known."""
        return self._reader(anchor) if anchor and wishes.get("rows") and not wishes.get("aggregate") else None

    def _reader(self, anchor: Anchor) -> Reader:
        known = self._readers.get(anchor.id)
        if known is None:  # a type is dear to make
            known = self._readers[anchor.id] = Reader(row_of(anchor), anchor.id)
        return known

    def _kept(self, anchor: Anchor) -> Anchor:
        if len(self._anchors) >= KEPT:
            self._anchors.clear()
            self._readers.clear()
        self._anchors[anchor.id] = anchor
        return anchor

    def _answer(self, frame: CapsFrame) -> Answer:
        inline = self._kept(trusted(frame.inline_anchor)) if frame.inline_anchor else None
        if inline and self._anchor:
            self._anchor = inline
        return Answer(
            _records(frame),
            frame.anchor_ref,
            frame.next_cursor or "",
            frame.token_est,
            frame.tokenizer_used or "",
            frame.trimmed,
            inline,
            tuple(frame.graph or ()),
            frame.request_id or "",
        )

    # Actions

    async def invoke(
        self,
        action: str,
        params: Mapping[str, Any] | None = None,
        *,
        run_async: bool = False,
        key: str = "",
        timeout: float | None = None,
        callback: str = "",
        priority: str = "",
    ) -> Answer | Task:
        """Do it: the result as records, or with `run_async` the task that was begun. A `key` lets it be repeated."""
        frame = ActionFrame(
            action_id=action,
            params=dict(params or {}),
            idempotency_key=key or None,
            timeout_ms=int(timeout * 1000) if timeout else None,
            is_async=run_async or None,
            callback_url=callback or None,
            priority=priority or None,
            request_id=str(uuid.uuid4()),
        )
        told = answered(await self._line.ask("invoke", frame, self._timeout + (timeout or 0.0)))
        return _task(_first(told)) if run_async else self._answer(told)

    async def task(self, id: str) -> Task:
        """How a task is getting on."""
        return _task(await self._system(STATUS, id))

    async def cancel(self, id: str) -> None:
        """Stop a task. Raises NwpError if it has ended already."""
        await self._system(CANCEL, id)

    async def wait(self, task: Task | str, told: Callable[[Task], None] | None = None, every: float = 0.5) -> Task:
        """Look again and again, with growing pauses from `every` seconds on, until a task has ended."""
        id, pause, missed = task if isinstance(task, str) else task.id, every, 0
        while True:
            try:
                found = await self.task(id)
                missed = 0
            except (NotReached, NwpError) as error:
                if not _passes(error) or missed >= MOST_MISSED:
                    raise
                missed += 1
            else:
                if found.is_final:
                    return found
                if told:
                    told(found)
            await asyncio.sleep(pause)
            pause = max(every, min(pause * GROWTH, LONGEST_PAUSE))

    async def _system(self, action: str, id: str) -> Mapping[str, Any]:
        frame = ActionFrame(action_id=action, params={"task_id": id}, request_id=str(uuid.uuid4()))
        return _first(answered(await self._line.ask("invoke", frame, self._timeout)))

    # Subscriptions

    async def subscribe(
        self,
        *,
        filter: Mapping[str, Any] | None = None,
        anchor: str = "",
        heartbeat: int | None = None,
        stream_id: str = "",
        after: int | None = None,
    ) -> AsyncGenerator[Change]:
        """Changes as they happen, each once. What breaks off or has a gap is taken up again where it was.

        With a `stream_id` of your own the subscription outlives this iterator, and `after` takes it up later on.
        """
        id = stream_id or str(uuid.uuid4())
        known = await self._reference({"anchor": anchor} if anchor else {})
        feed = _Feed(_subscribe(id, known, filter, heartbeat, after))
        patience = None if heartbeat == 0 else self._timeout + (heartbeat or HEARTBEAT)
        try:
            while id not in self._ended:
                try:
                    async with aclosing(self._changes(feed, patience)) as changes:
                        async for change in changes:
                            yield change
                except (NotReached, NwpError, _Missed) as error:
                    if not feed.may_go_on(error):
                        raise
                await feed.pause()
        finally:
            self._ended.discard(id)
            if not stream_id and feed.seen is not None:
                with suppress(ClientError):
                    await self._told("unsubscribe", id, LEAVE_SECONDS)

    async def _changes(self, feed: _Feed, patience: float | None) -> AsyncGenerator[Change]:
        async with aclosing(self._line.frames("subscribe", feed.frame(), patience)) as frames:
            async for each in frames:
                if change := feed.take(each):
                    yield change
        if feed.seen is None:
            raise BadAnswer("The answer is not NWP: the subscription was not acknowledged")

    async def unsubscribe(self, stream_id: str) -> None:
        """Give a subscription up. Whoever iterates over it here comes to its end."""
        self._ended.add(stream_id)
        await self._told("unsubscribe", stream_id, self._timeout)

    async def ping(self, stream_id: str) -> int:
        """The number of the newest change of a subscription; to ask for it keeps it alive."""
        return int(_number((await self._told("ping", stream_id, self._timeout)).get("last_seq")))

    async def _told(self, action: str, id: str, patience: float) -> Mapping[str, Any]:
        frame = SubscribeFrame(action=action, stream_id=id)
        return _first(answered(await self._line.ask("subscribe", frame, patience)))


def _subscribe(
    id: str, anchor: Anchor | None, filter: Mapping[str, Any] | None, heartbeat: int | None, after: int | None
) -> SubscribeFrame:
    return SubscribeFrame(
        action="subscribe",
        stream_id=id,
        anchor_ref=anchor and anchor.id,
        filter=filter,
        heartbeat_interval=heartbeat,
        resume_from_seq=after,
    )


def _passes(error: ClientError) -> bool:
    """Whether it may be well the next time."""
    return not isinstance(error, NwpError) or error.status in _AWAY


def _read(reader: Reader, frame: CapsFrame | StreamFrame) -> list[Any]:
    try:
        return reader.read(frame.data)
    except FrameError as error:
        raise BadAnswer(f"The records are not as their schema says: {error}") from error


def _part(frame: Frame, reader: Reader | None, due: int) -> Part:
    if not isinstance(frame, StreamFrame):
        raise BadAnswer(f"The answer is not NWP: a frame of type 0x{frame.TYPE:02X} is no part of a stream")
    if frame.error_code:
        raise NwpError("", frame.error_code, "The node broke the stream off")
    if frame.seq != due:
        raise BadAnswer(f"The stream has a gap: part {due} is missing")
    total = frame.estimated_total if frame.estimated_total is not None and frame.estimated_total >= 0 else None
    made = tuple(_read(reader, frame)) if reader else _records(frame)
    return Part(frame.seq, made, frame.is_last, total, frame.trimmed)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer is not NWP: {error}") from error


class NwpClient(Node):
    """A node over HTTP. The address is the node's, or that of its site, with the node's name or for the whole site."""

    def __init__(
        self,
        url: str,
        *,
        node: str = "",
        key: str = "",
        ident: Ident | None = None,
        agent: str = "",
        tier: TierName = "msgpack",
        framed: bool = True,
        ssl: tls.SSLContext | None = None,
        timeout: float = TIMEOUT,
        largest: int = LARGEST,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        credentials = Credentials(key, certificate_of(ident) if ident else None, agent)
        http = http_client(address(url, node), credentials, timeout, transport=transport, verify=ssl)
        super().__init__(HttpLine(http, Tier[tier.upper()], largest, framed=framed), timeout)


class NativeNwpClient(Node):
    """A node over a connection of its own, on which all that is asked runs side by side."""

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        node: str = "",
        ident: Ident | None = None,
        agent: str = "",
        tier: TierName = "msgpack",
        ssl: tls.SSLContext | None = None,
        timeout: float = TIMEOUT,
        largest: int = LARGEST,
    ) -> Self:
        """Open the connection to nwp://host:port, or nwp://host:port/node; over TLS with a context, or to nwps://."""
        if not url.startswith(("nwp://", "nwps://")):
            raise ValueError(f"{url!r} is not a native address: write nwp://127.0.0.1:17433")
        if ssl is None and url.startswith("nwps://"):
            ssl = httpx.create_ssl_context(trust_env=False)
        credentials, where = Credentials("", certificate_of(ident) if ident else None, agent), address(url, node)
        http = http_client(where.copy_with(scheme="https" if ssl else "http"), credentials, timeout, verify=ssl)
        line = NativeLine(
            where,
            credentials,
            HttpLine(http, Tier.JSON, largest),
            encodings=("json",) if tier == "json" else ("msgpack", "json"),
            largest=largest,
            timeout=timeout,
            tls=ssl,
        )
        try:
            await line.session()
        except BaseException:
            await http.aclose()
            raise
        return cls(line, timeout)
