"""Whether an agent may do what it asks: what the manifest demands, and what its certificate covers."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from portico.access.nip import allows_action, covers
from portico.config import Config, Server
from portico.errors import CapabilityMissing, OutOfScope, Unauthenticated, UntrustedIssuer
from portico.protocols.nwp.nodes import INVOKE, PREFIX, STREAM, Node
from portico.requests import Caller, Warrant
from portico.search.recent import Recent

if TYPE_CHECKING:
    from portico.protocols.nwp.service import Asking

KNOWN: Final = 1000  # scopes and nodes of which is known whether the one covers the other
SYNONYMS: Final = {INVOKE: "nwp:action", STREAM: "ncp:stream"}  # what else they are called in certificates


class Warrants:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._starts = _starts(config.server)
        self._known: Recent[bool] = Recent(KNOWN)

    def check(self, asking: "Asking", capability: str, action: str = "") -> None:
        """Raise unless the agent may. Nothing was looked up before, so a refusal tells nothing."""
        caller, nwp = asking.caller, self._config.nwp
        self.check_shown(caller)
        if caller.warrant is None:
            return
        held = caller.warrant.capabilities
        for needed in (capability, *nwp.capabilities):
            if needed not in held and SYNONYMS.get(needed) not in held:
                raise CapabilityMissing(f"The certificate lacks {needed}", capability=needed)
        if not self.covers(caller.warrant, asking.node):
            raise OutOfScope(
                f"The certificate does not cover the node {asking.node.name}",
                node=asking.node.name,
                address=f"{self._starts[0]}/{asking.node.name}",
                hint=f"It covers {', '.join(caller.warrant.nodes)[:200] or 'nothing'}.",
            )
        if action and not allows_action(caller.warrant.actions, action):
            raise OutOfScope(f"The certificate does not cover {action}", action=action)

    def check_shown(self, caller: Caller) -> None:
        """Raise if the agent has not shown what every request needs."""
        if self._config.nwp.auth == "nip-cert" and caller.warrant is None:
            raise UntrustedIssuer(
                "This node wants a certificate", hint="Show one in X-NWP-Ident, or as an IdentFrame after Hello."
            )
        if self._config.nwp.auth == "bearer" and caller.is_anonymous:
            raise Unauthenticated("This node wants a key", hint="Send it as a bearer token, or show a certificate.")

    def covers(self, warrant: Warrant, node: Node) -> bool:
        """By any of the addresses that a node has. That by which a caller called it is not believed."""
        key = warrant.nodes, node.name
        found = self._known.get(key)
        if found is None:
            exact = self._config.nwp.scope_check == "exact"
            found = any(covers(warrant.nodes, f"{start}/{node.name}", exact) for start in self._starts)
            self._known.put(key, found)
        return found

    @property
    def hosts(self) -> frozenset[str]:
        """What this site is called in addresses."""
        return frozenset(urlsplit(start).hostname or "" for start in self._starts)


def _starts(server: Server) -> tuple[str, ...]:
    """How the addresses of nodes begin. One without a port is there for scopes that are compared exactly."""
    here = ["localhost", "127.0.0.1", "::1", server.host, *server.hosts]
    known = [urlsplit(server.url).hostname or ""] if server.url else here
    hosts = [f"[{each}]" if ":" in each and not each.startswith("[") else each for each in dict.fromkeys(known)]
    native = [start for host in hosts for start in (f"nwp://{host}", f"nwp://{host}:{server.nwp_port}")]
    own = [server.url.rstrip("/")] if server.url else [f"http://{host}:{server.port}" for host in hosts]
    return (*native, *(f"{start}{PREFIX}" for start in own))
