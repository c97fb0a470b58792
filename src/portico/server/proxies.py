"""Requests that a trusted proxy forwards: whose they are, and which address they were made to.

What any other peer says in X-Forwarded-* or Forwarded (RFC 7239) is not read.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from portico.network import HOST, TrustedNetworks, parse_address

FORWARDED = "portico.forwarded"  # in a scope: that its client is the visitor whom a trusted proxy names
SCHEMES = {"http": "ws", "https": "wss"}  # and the same of WebSockets

MAX_HOPS = 20  # that are read, from the end; a visitor may write any number of them
MAX_FORWARDED = 4096  # characters of Forwarded, which can be read from its beginning only

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

# RFC 7239 4: pairs of an element are separated by semicolons, elements by commas; either may stand in a quoted text.
_PAIR = re.compile(r'[ \t]*([\w!#$%&\'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s",;]*)[ \t]*(;|,|\Z)', re.ASCII)
_NODE = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}))(?::[\w.-]{1,40})?|([0-9A-Fa-f:.]{2,45})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hop:
    """A request as one proxy received it. A text is empty where the proxy does not say, or says nothing usable."""

    address: str
    scheme: str = ""
    host: str = ""


class ForwardedHeaders:
    """Puts the visitor's address and the scheme and host that were asked for in place of those of a trusted proxy."""

    def __init__(self, app: ASGIApp, trusted: TrustedNetworks) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._trusted and (client := scope.get("client")) and client[0] in self._trusted:
            hop = forwarded_request(scope["headers"], self._trusted)
            scope = _replace(scope, hop) if hop else scope
        await self._app(scope, receive, send)


def forwarded_request(headers: Headers, trusted: TrustedNetworks) -> Hop | None:
    """Return the request that reached the first trusted proxy, or None if the headers do not tell.

    Proxies append to these headers, so that they are believed from the end up to the first hop that is not trusted.
    Many proxies know one of the two kinds and pass on the other as the visitor sent it: if the kinds name different
    visitors, neither is believed.
    """
    visitors = [_visitor(chain, trusted) for chain in (_x_forwarded(headers), _forwarded(headers)) if chain]
    first = visitors[0] if visitors else None
    if first is None or any(visitor is None or visitor.address != first.address for visitor in visitors):
        return None
    return first


def _visitor(chain: Sequence[Hop], trusted: TrustedNetworks) -> Hop | None:
    """The last hop that is no trusted proxy, or the first of all; None where a proxy does not say an address."""
    for hop in reversed(chain):
        if not hop.address:
            return None
        if hop.address not in trusted:
            return hop
    return chain[0]


def _x_forwarded(headers: Headers) -> list[Hop]:
    addresses = [_address(text) for text in _listed(headers, b"x-forwarded-for")]
    schemes = [_scheme(text) for text in _listed(headers, b"x-forwarded-proto")]
    hosts = [_host(text) for text in _listed(headers, b"x-forwarded-host")]
    # A proxy either appends to all three, or replaces the last two by one value for the whole chain.
    ends = range(len(addresses), 0, -1)
    return [Hop(addresses[-end], _from_end(schemes, end), _from_end(hosts, end)) for end in ends]


def _from_end(values: Sequence[str], position: int) -> str:
    return values[-min(position, len(values))] if values else ""


def _listed(headers: Headers, name: bytes) -> list[str]:
    """The last elements of a header, over all its lines."""
    lines = [value.decode("latin-1") for key, value in headers if key == name]
    return ",".join(lines).rsplit(",", MAX_HOPS)[-MAX_HOPS:] if lines else []


def _forwarded(headers: Headers) -> list[Hop]:
    text = ",".join(value.decode("latin-1") for key, value in headers if key == b"forwarded")
    if len(text) > MAX_FORWARDED:
        return [Hop("")]
    hops: list[Hop] = []
    pairs: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:  # nobody knows where the next element begins
            return [Hop("")]
        pairs[match[1].lower()] = _unquote(match[2])
        if match[3] != ";":
            address, scheme, host = (pairs.get(name, "") for name in ("for", "proto", "host"))
            hops.append(Hop(_address(address), _scheme(scheme), _host(host)))
            pairs = {}
        position = match.end()
    return hops


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _address(text: str) -> str:
    """The address of a node, which may have a port (RFC 7239 6); empty if it is unknown or hidden."""
    match = _NODE.fullmatch(text.strip())
    address = parse_address(next(filter(None, match.groups()), "")) if match else None
    return str(address or "")


def _scheme(text: str) -> str:
    scheme = text.strip().lower()
    return scheme if scheme in SCHEMES else ""


def _host(text: str) -> str:
    host = text.strip()
    return host if HOST.fullmatch(host) else ""


def _replace(scope: Scope, hop: Hop) -> Scope:
    changed = {**scope, "client": (hop.address, 0), FORWARDED: True}
    if hop.scheme:
        changed["scheme"] = SCHEMES[hop.scheme] if scope["type"] == "websocket" else hop.scheme
    if hop.host:
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        changed["headers"] = [(b"host", hop.host.encode()), *others]
    return changed
