"""Settings of NWP."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from portico.config import AgentTrust

Capability: TypeAlias = Literal["query", "stream_query", "aggregate", "subscribe", "subscribe_filter", "vector_search"]


class NodeReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[[nwp.node]]: a node elsewhere that the site's complex node leads to."""

    rel: str  # what it is to this site, as in suppliers
    url: str  # as in https://shop.example/nwp/products


class NwpSettings(AgentTrust, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[nwp]"""

    auth: Literal["none", "bearer", "nip-cert"] = "none"  # what agents must show; none: as much as anonymous callers
    capabilities: tuple[str, ...] = ()  # that every agent must hold, besides what its request needs
    scope_check: Literal["prefix", "exact"] = "prefix"  # how a certificate's scope is compared with a node's address
    without: tuple[Capability, ...] = ()  # what nodes shall not do
    lenient: bool = False  # read {"f": 1} in a filter as {"f": {"$eq": 1}}
    min_version: str = ""  # the oldest NPS version that agents may speak, as in 0.3
    depth: Annotated[int, Meta(ge=0, le=5)] = 0  # hops into the graph that a query makes when it does not say
    node: list[NodeReference] = []  # noqa: RUF012 - msgspec copies it; nodes elsewhere
    allow_nodes: tuple[str, ...] = ()  # how addresses of such nodes may begin
    streams: Annotated[int, Meta(ge=1)] = 32  # of one agent, at once
    subscriptions: Annotated[int, Meta(ge=1)] = 20  # of one agent, at once
    resume: Annotated[float, Meta(gt=0)] = 600.0  # seconds that a lost subscription can be taken up again
    tls_certificate: str = ""  # a file in PEM, for TLS on the native port
    tls_key: str = ""
    callback_secret: str = ""  # names an environment variable: callbacks are signed with its value
