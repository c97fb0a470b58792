"""Where a Complex node leads: its question goes on to other nodes, of this site and elsewhere, and what they say is
told beside its own answer. A node that fails is an entry that says so, never a failure of the whole.

Nodes elsewhere are those that the owner named, at addresses that the owner allowed. They are told the question and how
far it may still go, and nothing of who asks.
"""

import asyncio
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTP_PORT, HTTPS_PORT
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from portico.access.budget import Cost, cost, tokenizer
from portico.config import Server
from portico.errors import BadRequest, BudgetExceeded, Forbidden, SiteError, TimedOut, TooLarge, Unavailable
from portico.operations.webhooks import Callbacks
from portico.protocols.nwp.encodings import header_form
from portico.protocols.nwp.errors import GraphCycle, failure
from portico.protocols.nwp.frames import FrameError, QueryFrame, Tier, decode_any, encode_value
from portico.protocols.nwp.nodes import PREFIX, Node
from portico.search.recent import Recent
from portico.telemetry import Broke, Observe

if TYPE_CHECKING:
    from portico.protocols.nwp.service import Asking, Exchange

SECONDS: Final = 10.0  # for all nodes together
HOP_SECONDS: Final = 2.0  # less for each node that a question came through, so that those who wait for it hear of it
LEAST_SECONDS: Final = 1.0
MAX_BYTES: Final = 1 << 20  # of what a node elsewhere says
MAX_TRACE: Final = 32  # ids and marks that are passed on
MAX_TRACE_CHARACTERS: Final = 4096
ENTRY_TOKENS: Final = 80  # of an entry besides the records in it: addresses, a schema's id, counts
WHERE: Final = "nwp graph"
FAULT_SECONDS: Final = 60.0  # until the same fault of a node is recorded again
MAX_FAULTS: Final = 256  # nodes and reasons whose last record is remembered
MAX_NESTED: Final = 16  # answers in one another
MAX_CODE, MAX_MESSAGE = 64, 300  # characters of what a node elsewhere says went wrong
DEFAULT_PORT: Final = Server().nwp_port
_PORTS: Final = {"http": HTTP_PORT, "https": HTTPS_PORT}

_MARK = re.compile(r"mark:[0-9a-f]{16}:")  # behind the id of a node that has one

Entry = dict[str, Any]


class Said(SiteError):
    """What a node elsewhere said instead of an answer; `code` in the details is its own word for it."""


@dataclass(frozen=True, slots=True)
class Child:
    rel: str
    url: str  # as manifests tell it
    node: Node | None = None  # if it is of this site


@dataclass(frozen=True, slots=True)
class Share:
    """What one node may take of the answer; None: as much as it has to say."""

    room: int | None  # bytes
    tokens: int | None


class Graph:
    def __init__(self, exchange: "Exchange", callbacks: Callbacks, observe: Observe) -> None:
        self._exchange = exchange
        self._callbacks = callbacks
        self._faults = NodeFaults(observe)

    def check(self, asking: "Asking") -> None:
        """Refuse a question that has been here before."""
        if asking.trace and self._came_through(asking):
            raise GraphCycle("The question came through this node already", node=self._id(asking))

    def _came_through(self, asking: "Asking") -> bool:
        """By its mark, or by its id where no mark behind it says that it was another node of that id."""
        id, trace = self._id(asking), asking.trace
        follows = (*trace[1:], "")
        return self._mark(asking) in trace or any(
            each == id and not _MARK.match(behind) for each, behind in zip(trace, follows, strict=True)
        )

    def walk(self, frame: QueryFrame, asking: "Asking") -> "Walk | None":
        """The way into the graph that a question takes; None if it stays where it is."""
        if asking.node.type != "complex":
            return None
        # Whoever turns a page has what other nodes said.
        default = 0 if frame.cursor else self._exchange.config.nwp.depth
        hops = default if asking.depth is None else asking.depth
        if not hops:
            return None
        trace = (*asking.trace, self._id(asking), self._mark(asking))[-MAX_TRACE:]
        passed = msgspec.structs.replace(asking, depth=hops - 1, trace=trace)
        question = msgspec.structs.replace(
            frame, anchor_ref=None, cursor=None, stream=None, depth=None, token_budget=None, request_id=None
        )
        return Walk(self._exchange, self._callbacks, question, passed, tuple(self._children(asking)), self._faults)

    def _id(self, asking: "Asking") -> str:
        return self._exchange.nodes.id(asking.node.name, asking.base)

    def _mark(self, asking: "Asking") -> str:
        """What tells a node from all others. Its id does not: it has no port, and a host may have several names."""
        return f"mark:{self._exchange.site.fingerprint}:{asking.node.name}"

    def _children(self, asking: "Asking") -> Iterable[Child]:
        nodes, nwp = self._exchange.nodes, self._exchange.config.nwp
        here = (nodes.all[name] for name in asking.node.leads_to if name in nodes.all)
        yield from (Child(each.name, nodes.url(each.name, asking.base), each) for each in here)
        yield from (Child(each.rel, each.url) for each in nwp.node)


class NodeFaults:
    """Records why remote nodes could not be reached, at most once a minute for each node and reason."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._recorded: Recent[float] = Recent(MAX_FAULTS)

    def record(self, child: Child, reason: str) -> None:
        key, now = (child.url, reason), time.monotonic()
        recorded = self._recorded.get(key)
        if reason and (recorded is None or now - recorded >= FAULT_SECONDS):
            self._recorded.put(key, now)
            self._observe(Broke(WHERE, f"{urlsplit(child.url).hostname} was not reached: {reason}"))


@dataclass(frozen=True, slots=True)
class GraphResult:
    """The entries of the nodes that a query was passed to, and what they cost."""

    entries: list[Entry]
    cost: Cost
    dropped: tuple[str, ...] = ()  # rels of nodes that the budget leaves no entry for


@dataclass(frozen=True, slots=True)
class Walk:
    """One question on its way to the nodes that a node leads to."""

    exchange: "Exchange"
    callbacks: Callbacks
    question: QueryFrame
    asking: "Asking"  # as it is passed on
    children: tuple[Child, ...]
    faults: "NodeFaults"

    @property
    def least(self) -> int:
        """Bytes that entries take at least: those that only say that there was no room."""
        return sum(self._size(_without_room(child)) for child in self.children)

    async def entries(self, spare: int | None, spent: int) -> "GraphResult":
        """What every node said, in order; all are asked at once. `spare` is how many bytes beyond the least there are
        for it, and `spent` what of the budget is gone.
        """
        if not self.children:
            return GraphResult([], Cost(0))
        left = None if self.asking.budget is None else max(self.asking.budget - spent, 0)
        tokens = None if left is None else left // len(self.children)
        share = Share(
            None if spare is None else max(spare // len(self.children), 1),
            None if tokens is None else max(tokens - ENTRY_TOKENS, tokens // 2),
        )
        found = await asyncio.gather(*(self._entry(child, share) for child in self.children))
        fitting = found if spare is None else self._fitting(found, spare)
        return await asyncio.to_thread(self._count_entries, fitting, left)

    def _count_entries(self, entries: list[Entry], left: int | None) -> "GraphResult":
        """Count the tokens of each entry. One that exceeds the budget becomes an error, or only a name in `dropped`."""
        counter = tokenizer(*self.asking.tokenizers)
        kept, encoded, dropped = list[Entry](), list[bytes](), list[str]()
        for child, entry in zip(self.children, entries, strict=True):
            without = _failed(child, BudgetExceeded("The budget has too little left for this node"))
            for form in (entry, without):
                more = [*encoded, self._json(form)]
                if left is None or cost(_list_of(more), counter).tokens <= left:
                    kept, encoded = [*kept, form], more
                    break
            else:
                dropped.append(child.rel)
        return GraphResult(kept, cost(_list_of(encoded), counter), tuple(dropped))

    def _json(self, entry: Entry) -> bytes:
        """Return an entry as compact JSON, which is what tokens are counted in whatever the tier."""
        encoded = encode_value(entry, self.asking.tier)
        return encoded if self.asking.tier == Tier.JSON else encode_value(decode_any(encoded, Tier.MSGPACK), Tier.JSON)

    def _fitting(self, found: list[Entry], spare: int) -> list[Entry]:
        """What one node does not need of its share the next may have."""
        left, kept = spare, list[Entry]()
        for child, entry in zip(self.children, found, strict=True):
            without = _without_room(child)
            more = self._size(entry) - self._size(without)
            kept.append(entry if more <= left else without)
            left -= more if more <= left else 0
        return kept

    def _size(self, entry: Entry) -> int:
        return len(encode_value(entry, self.asking.tier)) + 1

    async def _entry(self, child: Child, share: Share) -> Entry:
        try:
            if share.tokens == 0:
                raise BudgetExceeded("The budget is used up")
            async with asyncio.timeout(self._seconds):
                data = await (self._here(child.node, share) if child.node else self._elsewhere(child, share))
        except TimeoutError:
            return _failed(child, TimedOut("The node did not answer in time"))
        except SiteError as error:
            return _failed(child, error)
        return {"rel": child.rel, "node": child.url, "data": msgspec.Raw(data)}

    @property
    def _seconds(self) -> float:
        came_through = sum(not _MARK.match(each) for each in self.asking.trace) - 1
        return max(SECONDS - HOP_SECONDS * came_through, LEAST_SECONDS)

    async def _here(self, node: Node, share: Share) -> bytes:
        asking = msgspec.structs.replace(self.asking, node=node, largest=share.room, budget=share.tokens)
        answer = await self.exchange.query(self.question, asking)
        return encode_value(answer.frame, asking.tier)

    async def _elsewhere(self, child: Child, share: Share) -> bytes:
        if not is_allowed(child.url, self.exchange.config.nwp.allow_nodes):
            raise Forbidden("The address of this node is not allowed", hint="The operator decides which nodes are.")
        url, body = f"{address_of(child.url)}/query", encode_value(self.question, Tier.JSON)
        try:
            status, said = await self.callbacks.ask(url, body, self._headers(share), MAX_BYTES, self._seconds)
        except BadRequest as error:
            raise Forbidden("The address of this node is not allowed", hint=error.hint) from error
        except Unavailable as error:
            self.faults.record(child, str(error.details.get("reason", "")))
            raise
        try:
            return encode_value(_capsule(status, said), self.asking.tier)
        except (RecursionError, OverflowError, ValueError) as error:
            raise _nothing_of_use() from error

    def _headers(self, share: Share) -> dict[str, str]:
        """What a node elsewhere is told beside the question: never who asks, nor with what."""
        headers = {
            "Content-Type": "application/nwp-frame",
            "Accept": "application/nwp-capsule, application/json",
            "X-NWP-Depth": str(self.asking.depth),
            "X-NWP-Trace": ",".join(self.asking.trace)[-MAX_TRACE_CHARACTERS:],
            "X-NWP-Request-ID": header_form(self.asking.id),
        }
        if share.tokens is not None:
            headers["X-NWP-Budget"] = str(share.tokens)
        counter = tokenizer(*self.asking.tokenizers)
        return {**headers, "X-NWP-Tokenizer": counter.name} if counter else headers


def _list_of(encoded: list[bytes]) -> bytes:
    return b"[" + b",".join(encoded) + b"]"


def _failed(child: Child, error: SiteError) -> Entry:
    told = failure(error)
    code = str(error.details["code"]) if isinstance(error, Said) else told.error
    return {"rel": child.rel, "node": child.url, "error": {"code": code, "message": told.message[:MAX_MESSAGE]}}


def _without_room(child: Child) -> Entry:
    return _failed(child, TooLarge("The answer has no room for this node", hint="Ask it by itself."))


# What nodes elsewhere say


def _capsule(status: int, body: bytes) -> dict[str, Any]:
    """The answer of a node; raises what it said if that is none."""
    try:
        said = decode_any(body, Tier.JSON)
    except FrameError as error:
        raise _nothing_of_use() from error
    match said:
        case {"data": list()} if status == 200:
            return _plain(cast("dict[str, Any]", said), 0)
        case {"error": str() as code} if _is_code(code):
            message: Any = cast("dict[str, Any]", said).get("message")
            raise Said(message[:MAX_MESSAGE] if isinstance(message, str) else "The node refused", code=code)
        case _:
            raise _nothing_of_use()


def _is_code(said: str) -> bool:
    return len(said) <= MAX_CODE and said.isascii() and said.replace("-", "").isalnum() and said.isupper()


def _nothing_of_use() -> Unavailable:
    return Unavailable("What the node said is no answer")


def _plain(capsule: dict[str, Any], depth: int) -> dict[str, Any]:
    """An answer in which nodes are called `node`; some call them `node_url`. What is no graph is left out."""
    graph: Any = capsule.get("graph")
    others = {name: value for name, value in capsule.items() if name != "graph"}
    if not isinstance(graph, list) or depth >= MAX_NESTED:
        return others
    entries = [cast("dict[str, Any]", each) for each in cast("list[Any]", graph) if isinstance(each, dict)]
    return {**others, "graph": [_plain_entry(each, depth + 1) for each in entries]}


def _plain_entry(entry: dict[str, Any], depth: int) -> dict[str, Any]:
    named = {("node" if name == "node_url" else name): value for name, value in entry.items()}
    data: Any = named.get("data")
    return {**named, "data": _plain(cast("dict[str, Any]", data), depth)} if isinstance(data, dict) else named


# Addresses


def address_of(url: str) -> str:
    """Where a node is asked over HTTP: nwp:// is TLS on the same port, below /nwp."""
    parts = urlsplit(url)
    if parts.scheme != "nwp":
        return url.rstrip("/")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"https://{host}:{parts.port or DEFAULT_PORT}{PREFIX}{parts.path.rstrip('/')}"


def is_allowed(url: str, prefixes: Iterable[str]) -> bool:
    """Whether an address begins with one of these, host by host and step by step."""
    place = _place(url)
    allowed = filter(None, map(_place, prefixes))
    return place is not None and any(place.is_below(each) for each in allowed)


class _Place(NamedTuple):
    scheme: str
    host: str
    port: int
    steps: tuple[str, ...]

    def is_below(self, other: "_Place") -> bool:
        return self[:3] == other[:3] and self.steps[: len(other.steps)] == other.steps


def _place(url: str) -> _Place | None:
    """What an address points to; None if that could be read in two ways."""
    try:
        parts = urlsplit(address_of(url))
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    steps = tuple(filter(None, parts.path.split("/")))
    if not url.isascii() or not url.isprintable() or not _is_plain(parts) or not all(map(_is_step, steps)):
        return None
    return _Place(parts.scheme, (parts.hostname or "").rstrip("."), port, steps)


def _is_plain(parts: SplitResult) -> bool:
    return bool(parts.hostname) and "@" not in parts.netloc and not parts.query and not parts.fragment


def _is_step(step: str) -> bool:
    meant = unquote(step)
    return meant not in {".", ".."} and not set(meant) & set("/\\%")
