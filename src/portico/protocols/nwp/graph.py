"""Passes a query on from a Complex node to the nodes it leads to, local and remote, and adds their answers as entries.
A node that fails becomes an error entry, never a failure of the whole.

Remote nodes are those in the configuration, at URLs that it allows. They receive the query and the remaining depth,
and nothing about the caller.
"""

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTP_PORT, HTTPS_PORT
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import msgspec
from cachetools import LRUCache

from portico.access.budget import TokenCost, count_cost, find_tokenizer
from portico.config import Server
from portico.errors import BadRequest, BudgetExceeded, Forbidden, SiteError, TimedOut, TooLarge, Unavailable
from portico.operations.webhooks import WebhookClient
from portico.protocols.nwp.encodings import encode_header_id
from portico.protocols.nwp.errors import GraphCycle, error_frame
from portico.protocols.nwp.frames import EncodingTier, FrameError, QueryFrame, decode_any, encode_value
from portico.protocols.nwp.nodes import PREFIX, Node
from portico.protocols.nwp.settings import NwpSettings
from portico.telemetry import Recorder, UnexpectedError

if TYPE_CHECKING:
    from portico.protocols.nwp.service import NodeService, NwpRequestContext

TIMEOUT_SECONDS: Final = 10.0  # for all nodes together
HOP_SECONDS: Final = 2.0  # less for each node that a query came through, so that the nodes before it still answer
MIN_TIMEOUT_SECONDS: Final = 1.0
MAX_ANSWER_BYTES: Final = 1 << 20  # of a remote node's response
MAX_TRACE: Final = 32  # ids and marks in the trace
MAX_TRACE_CHARACTERS: Final = 4096
ENTRY_TOKENS: Final = 80  # of an entry besides its records: URLs, a schema id, counts
EVENT_SOURCE: Final = "nwp graph"
FAULT_SECONDS: Final = 60.0  # until the same fault of a node is recorded again
MAX_FAULTS: Final = 256  # pairs of node and reason
MAX_NESTED: Final = 16  # levels of answers
MAX_CODE, MAX_MESSAGE = 64, 300  # characters of a remote node's error
DEFAULT_PORT: Final = Server().nwp_port
_PORTS: Final = {"http": HTTP_PORT, "https": HTTPS_PORT}

_MARK = re.compile(r"mark:[0-9a-f]{16}:")  # follows the id of a Portico node in a trace

Entry = dict[str, Any]


class RemoteNodeError(SiteError):
    """A remote node responded with an error; `code` in the details is its own code."""


@dataclass(frozen=True, slots=True)
class ChildNode:
    rel: str
    url: str  # as in manifests
    node: Node | None = None  # None if it is remote


@dataclass(frozen=True, slots=True)
class AnswerShare:
    """The part of the response that one node may use; None for no bound."""

    room: int | None  # bytes
    tokens: int | None


class NodeGraph:
    def __init__(self, service: "NodeService", callbacks: WebhookClient, record: Recorder) -> None:
        self._service = service
        self._callbacks = callbacks
        self._faults = NodeFaults(record)

    def check_cycle(self, context: "NwpRequestContext") -> None:
        """Raise if the query has already passed through this node."""
        if context.trace and self._has_visited(context):
            raise GraphCycle("The query has already passed through this node", node=self._id(context))

    def _has_visited(self, context: "NwpRequestContext") -> bool:
        """Recognise this node in the trace by its mark, or by its id if no mark of another node follows it."""
        id, trace = self._id(context), context.trace
        follows = (*trace[1:], "")
        return self._mark(context) in trace or any(
            entry == id and not _MARK.match(following) for entry, following in zip(trace, follows, strict=True)
        )

    def traverse(self, frame: QueryFrame, context: "NwpRequestContext") -> "GraphTraversal | None":
        """Return the traversal that answers a query from other nodes; None if it stays on this one."""
        if context.node.type != "complex":
            return None
        # The first page already had the answers of other nodes.
        default = 0 if frame.cursor else self._service.config.section(NwpSettings).depth
        hops = default if context.depth is None else context.depth
        if not hops:
            return None
        trace = (*context.trace, self._id(context), self._mark(context))[-MAX_TRACE:]
        onward = msgspec.structs.replace(context, depth=hops - 1, trace=trace)
        question = msgspec.structs.replace(
            frame, anchor_ref=None, cursor=None, stream=None, depth=None, token_budget=None, request_id=None
        )
        return GraphTraversal(
            self._service, self._callbacks, question, onward, tuple(self._children(context)), self._faults
        )

    def _id(self, context: "NwpRequestContext") -> str:
        return self._service.nodes.id(context.node.name, context.base)

    def _mark(self, context: "NwpRequestContext") -> str:
        """Return what is unique to a node. Its id is not: it has no port, and a host may have several names."""
        return f"mark:{self._service.site.tokens.fingerprint}:{context.node.name}"

    def _children(self, context: "NwpRequestContext") -> Iterable[ChildNode]:
        nodes, nwp = self._service.nodes, self._service.config.section(NwpSettings)
        here = (nodes.all[name] for name in context.node.leads_to if name in nodes.all)
        yield from (ChildNode(node.name, nodes.url(node.name, context.base), node) for node in here)
        yield from (ChildNode(node.rel, node.url) for node in nwp.node)


class NodeFaults:
    """Records why remote nodes could not be reached, at most once a minute per node and reason."""

    def __init__(self, record: Recorder) -> None:
        self._record = record
        self._recorded: LRUCache[object, float] = LRUCache(MAX_FAULTS)

    def record(self, child: ChildNode, reason: str) -> None:
        key, now = (child.url, reason), time.monotonic()
        recorded = self._recorded.get(key)
        if reason and (recorded is None or now - recorded >= FAULT_SECONDS):
            self._recorded[key] = now
            self._record(UnexpectedError(EVENT_SOURCE, f"{urlsplit(child.url).hostname} was not reached: {reason}"))


@dataclass(frozen=True, slots=True)
class GraphResult:
    """The entries of the nodes that a query was passed to, and what they cost."""

    entries: list[Entry]
    cost: TokenCost
    dropped: tuple[str, ...] = ()  # rels of nodes without an entry, for want of budget


@dataclass(frozen=True, slots=True)
class GraphTraversal:
    """One query to the nodes that a node leads to."""

    service: "NodeService"
    callbacks: WebhookClient
    question: QueryFrame
    context: "NwpRequestContext"  # as it is passed on
    children: tuple[ChildNode, ...]
    faults: "NodeFaults"

    @property
    def least(self) -> int:
        """The bytes of the entries if each only says that there was no room for it."""
        return sum(self._size(_room_error_entry(child)) for child in self.children)

    async def fetch_entries(self, spare: int | None, spent: int) -> "GraphResult":
        """Query all nodes concurrently, and return their entries in order.

        `spare` is the number of bytes beyond `least`, and `spent` the tokens of the budget already used.
        """
        if not self.children:
            return GraphResult([], TokenCost(0))
        left = None if self.context.budget is None else max(self.context.budget - spent, 0)
        tokens = None if left is None else left // len(self.children)
        share = AnswerShare(
            None if spare is None else max(spare // len(self.children), 1),
            None if tokens is None else max(tokens - ENTRY_TOKENS, tokens // 2),
        )
        entries = await asyncio.gather(*(self._entry(child, share) for child in self.children))
        shortened = entries if spare is None else self._fit_entries(entries, spare)
        return await asyncio.to_thread(self._count_entries, shortened, left)

    def _count_entries(self, entries: list[Entry], left: int | None) -> "GraphResult":
        """Count the tokens of each entry. One over the budget becomes an error entry, or only a name in `dropped`."""
        counter = find_tokenizer(*self.context.tokenizers)
        kept_entries, encoded, dropped = list[Entry](), list[bytes](), list[str]()
        for child, entry in zip(self.children, entries, strict=True):
            without = _error_entry(child, BudgetExceeded("The token budget left is too small for this node"))
            for form in (entry, without):
                more = [*encoded, self._json(form)]
                if left is None or count_cost(_list_of(more), counter).tokens <= left:
                    kept_entries, encoded = [*kept_entries, form], more
                    break
            else:
                dropped.append(child.rel)
        return GraphResult(kept_entries, count_cost(_list_of(encoded), counter), tuple(dropped))

    def _json(self, entry: Entry) -> bytes:
        """Return an entry as compact JSON, which is what tokens are counted in whatever the tier."""
        encoded = encode_value(entry, self.context.tier)
        return (
            encoded
            if self.context.tier == EncodingTier.JSON
            else encode_value(decode_any(encoded, EncodingTier.MSGPACK), EncodingTier.JSON)
        )

    def _fit_entries(self, entries: list[Entry], spare: int) -> list[Entry]:
        """Replace entries that do not fit by error entries. Room that one node does not need goes to the next."""
        left, shortened = spare, list[Entry]()
        for child, entry in zip(self.children, entries, strict=True):
            without = _room_error_entry(child)
            more = self._size(entry) - self._size(without)
            shortened.append(entry if more <= left else without)
            left -= more if more <= left else 0
        return shortened

    def _size(self, entry: Entry) -> int:
        return len(encode_value(entry, self.context.tier)) + 1

    async def _entry(self, child: ChildNode, share: AnswerShare) -> Entry:
        try:
            if share.tokens == 0:
                raise BudgetExceeded("The token budget is used up")
            async with asyncio.timeout(self._timeout):
                data = await (self._query_local(child.node, share) if child.node else self._query_remote(child, share))
        except TimeoutError:
            return _error_entry(child, TimedOut("The node did not answer in time"))
        except SiteError as error:
            return _error_entry(child, error)
        return {"rel": child.rel, "node": child.url, "data": msgspec.Raw(data)}

    @property
    def _timeout(self) -> float:
        came_through = sum(not _MARK.match(entry) for entry in self.context.trace) - 1
        return max(TIMEOUT_SECONDS - HOP_SECONDS * came_through, MIN_TIMEOUT_SECONDS)

    async def _query_local(self, node: Node, share: AnswerShare) -> bytes:
        local_context = msgspec.structs.replace(self.context, node=node, largest=share.room, budget=share.tokens)
        answer = await self.service.query(self.question, local_context)
        return encode_value(answer.frame, local_context.tier)

    async def _query_remote(self, child: ChildNode, share: AnswerShare) -> bytes:
        if not is_allowed(child.url, self.service.config.section(NwpSettings).allow_nodes):
            raise Forbidden("The URL of this node is not allowed", hint="The operator can allow it.")
        url, body = f"{http_address_of(child.url)}/query", encode_value(self.question, EncodingTier.JSON)
        try:
            status, answer = await self.callbacks.ask(url, body, self._headers(share), MAX_ANSWER_BYTES, self._timeout)
        except BadRequest as error:
            raise Forbidden("The URL of this node is not allowed", hint=error.hint) from error
        except Unavailable as error:
            self.faults.record(child, str(error.details.get("reason", "")))
            raise
        try:
            return encode_value(_parse_answer(status, answer), self.context.tier)
        except (RecursionError, OverflowError, ValueError) as error:
            raise _invalid_answer() from error

    def _headers(self, share: AnswerShare) -> dict[str, str]:
        """Return the headers for a remote node: never the caller's identity or credentials."""
        headers = {
            "Content-Type": "application/nwp-frame",
            "Accept": "application/nwp-capsule, application/json",
            "X-NWP-Depth": str(self.context.depth),
            "X-NWP-Trace": ",".join(self.context.trace)[-MAX_TRACE_CHARACTERS:],
            "X-NWP-Request-ID": encode_header_id(self.context.id),
        }
        if share.tokens is not None:
            headers["X-NWP-Budget"] = str(share.tokens)
        counter = find_tokenizer(*self.context.tokenizers)
        return {**headers, "X-NWP-Tokenizer": counter.name} if counter else headers


def _list_of(encoded: list[bytes]) -> bytes:
    return b"[" + b",".join(encoded) + b"]"


def _error_entry(child: ChildNode, error: SiteError) -> Entry:
    frame = error_frame(error)
    code = str(error.details["code"]) if isinstance(error, RemoteNodeError) else frame.error
    return {"rel": child.rel, "node": child.url, "error": {"code": code, "message": frame.message[:MAX_MESSAGE]}}


def _room_error_entry(child: ChildNode) -> Entry:
    return _error_entry(child, TooLarge("The response has no room for this node", hint="Query it directly."))


# Responses of remote nodes


def _parse_answer(status: int, body: bytes) -> dict[str, Any]:
    """Return the capsule in a remote node's response. Raises its error, or Unavailable if it is neither."""
    try:
        answer = decode_any(body, EncodingTier.JSON)
    except FrameError as error:
        raise _invalid_answer() from error
    match answer:
        case {"data": list()} if status == 200:
            return _normalize_answer(cast("dict[str, Any]", answer), 0)
        case {"error": str() as code} if _is_code(code):
            message: Any = cast("dict[str, Any]", answer).get("message")
            raise RemoteNodeError(
                message[:MAX_MESSAGE] if isinstance(message, str) else "The node returned an error", code=code
            )
        case _:
            raise _invalid_answer()


def _is_code(code: str) -> bool:
    return len(code) <= MAX_CODE and code.isascii() and code.replace("-", "").isalnum() and code.isupper()


def _invalid_answer() -> Unavailable:
    return Unavailable("The node returned an invalid response")


def _normalize_answer(capsule: dict[str, Any], depth: int) -> dict[str, Any]:
    """Return an answer with `node` for what some nodes call `node_url`, and without an invalid `graph`."""
    graph: Any = capsule.get("graph")
    members = {name: value for name, value in capsule.items() if name != "graph"}
    if not isinstance(graph, list) or depth >= MAX_NESTED:
        return members
    entries = [cast("dict[str, Any]", entry) for entry in cast("list[Any]", graph) if isinstance(entry, dict)]
    return {**members, "graph": [_normalize_entry(entry, depth + 1) for entry in entries]}


def _normalize_entry(entry: dict[str, Any], depth: int) -> dict[str, Any]:
    members = {("node" if name == "node_url" else name): value for name, value in entry.items()}
    data: Any = members.get("data")
    return (
        {**members, "data": _normalize_answer(cast("dict[str, Any]", data), depth)}
        if isinstance(data, dict)
        else members
    )


# URLs


def http_address_of(url: str) -> str:
    """Return the HTTP URL of a node: nwp:// is TLS on the same port, below /nwp."""
    parts = urlsplit(url)
    if parts.scheme != "nwp":
        return url.rstrip("/")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"https://{host}:{parts.port or DEFAULT_PORT}{PREFIX}{parts.path.rstrip('/')}"


def is_allowed(url: str, prefixes: Iterable[str]) -> bool:
    """Return whether a URL lies below one of these, comparing host, port and whole path segments."""
    place = _parse_location(url)
    allowed = filter(None, map(_parse_location, prefixes))
    return place is not None and any(place.is_below(prefix) for prefix in allowed)


class NodeLocation(NamedTuple):
    scheme: str
    host: str
    port: int
    steps: tuple[str, ...]

    def is_below(self, other: "NodeLocation") -> bool:
        return self[:3] == other[:3] and self.steps[: len(other.steps)] == other.steps


def _parse_location(url: str) -> NodeLocation | None:
    """Parse a URL. None if it is ambiguous."""
    try:
        parts = urlsplit(http_address_of(url))
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    steps = tuple(filter(None, parts.path.split("/")))
    is_plain = bool(parts.hostname) and "@" not in parts.netloc and not parts.query and not parts.fragment
    if not url.isascii() or not url.isprintable() or not is_plain or not all(map(_is_step, steps)):
        return None
    return NodeLocation(parts.scheme, (parts.hostname or "").rstrip("."), port, steps)


def _is_step(step: str) -> bool:
    decoded = unquote(step)
    return decoded not in {".", ".."} and not set(decoded) & set("/\\%")
