"""Checks that an agent's certificate has the required capabilities, and covers the node and the action."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cachetools import LRUCache

from portico.access.nip import allows_action, covers
from portico.config import Config, Server
from portico.errors import CapabilityMissing, OutOfScope, Unauthenticated, UntrustedIssuer
from portico.protocols.nwp.nodes import INVOKE, PREFIX, STREAM, Node
from portico.protocols.nwp.settings import NwpSettings
from portico.requests import Caller, Warrant

if TYPE_CHECKING:
    from portico.protocols.nwp.service import NwpRequestContext

SCOPE_CACHE_SIZE: Final = 1000  # pairs of scope and node
SYNONYMS: Final = {INVOKE: "nwp:action", STREAM: "ncp:stream"}  # other names for capabilities in certificates


class CapabilityChecker:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._prefixes = node_url_prefixes(config.server)
        self._scope_cache: LRUCache[object, bool] = LRUCache(SCOPE_CACHE_SIZE)

    def require(self, context: "NwpRequestContext", capability: str, action: str = "") -> None:
        """Raise unless the certificate grants the capability, and the action if there is one, on this node.

        Checked before any lookup, so that a refusal reveals nothing.
        """
        caller, nwp = context.caller, self._config.section(NwpSettings)
        self.require_credentials(caller)
        if caller.warrant is None:
            return
        granted = caller.warrant.capabilities
        for required in (capability, *nwp.capabilities):
            if required not in granted and SYNONYMS.get(required) not in granted:
                raise CapabilityMissing(f"The certificate lacks {required}", capability=required)
        if not self.covers(caller.warrant, context.node):
            raise OutOfScope(
                f"The certificate does not cover the node {context.node.name}",
                node=context.node.name,
                address=f"{self._prefixes[0]}/{context.node.name}",
                hint=f"It covers {', '.join(caller.warrant.nodes)[:200] or 'nothing'}.",
            )
        if action and not allows_action(caller.warrant.actions, action):
            raise OutOfScope(f"The certificate does not cover {action}", action=action)

    def require_credentials(self, caller: Caller) -> None:
        """Raise if the caller lacks the kind of credentials that every request needs."""
        if self._config.section(NwpSettings).auth == "nip-cert" and caller.warrant is None:
            raise UntrustedIssuer(
                "This node requires a client certificate",
                hint="Send it in the X-NWP-Ident header, or as an IdentFrame after Hello.",
            )
        if self._config.section(NwpSettings).auth == "bearer" and caller.is_anonymous:
            raise Unauthenticated(
                "This node requires an API key", hint="Send it as a bearer token, or present a certificate."
            )

    def covers(self, warrant: Warrant, node: Node) -> bool:
        """Return whether a certificate's scope covers a node, by any of the node's own URLs.

        The Host header of the request is not trusted.
        """
        key = warrant.nodes, node.name
        is_covered = self._scope_cache.get(key)
        if is_covered is None:
            exact = self._config.section(NwpSettings).scope_check == "exact"
            is_covered = any(covers(warrant.nodes, f"{prefix}/{node.name}", exact) for prefix in self._prefixes)
            self._scope_cache[key] = is_covered
        return is_covered

    @property
    def hosts(self) -> frozenset[str]:
        """The host names of this site."""
        return frozenset(urlsplit(prefix).hostname or "" for prefix in self._prefixes)


def node_url_prefixes(server: Server) -> tuple[str, ...]:
    """Return every URL prefix of this site's nodes. The ones without a port serve scopes that are compared exactly."""
    local_names = ["localhost", "127.0.0.1", "::1", server.host, *server.hosts]
    names = [urlsplit(server.url).hostname or ""] if server.url else local_names
    hosts = [f"[{name}]" if ":" in name and not name.startswith("[") else name for name in dict.fromkeys(names)]
    native = [start for host in hosts for start in (f"nwp://{host}", f"nwp://{host}:{server.nwp_port}")]
    http = [server.url.rstrip("/")] if server.url else [f"http://{host}:{server.port}" for host in hosts]
    return (*native, *(f"{start}{PREFIX}" for start in http))
