"""Whether an agent may do what it asks: what the manifest demands, and what its certificate covers."""

from typing import TYPE_CHECKING, Final

from portico.config import Config
from portico.errors import CapabilityMissing, OutOfScope, Unauthenticated, UntrustedIssuer
from portico.faces.nwp.nodes import INVOKE, PREFIX, Nodes
from portico.nip import allows_action, covers

if TYPE_CHECKING:
    from portico.faces.nwp.exchange import Asking

SYNONYMS: Final = {INVOKE: "nwp:action"}  # what the one is called in certificates


class Warrants:
    def __init__(self, config: Config, nodes: Nodes) -> None:
        self._config = config
        self._nodes = nodes

    def check(self, asking: "Asking", capability: str, action: str = "") -> None:
        """Raise unless the agent may. Nothing was looked up before, so a refusal tells nothing."""
        caller, nwp = asking.caller, self._config.nwp
        if nwp.auth == "nip-cert" and caller.warrant is None:
            raise UntrustedIssuer(
                "This node wants a certificate", hint="Show one in X-NWP-Ident, or as an IdentFrame after Hello."
            )
        if nwp.auth == "bearer" and caller.is_anonymous:
            raise Unauthenticated("This node wants a key", hint="Send it as a bearer token.")
        if caller.warrant is None:
            return
        held = caller.warrant.capabilities
        for needed in (capability, *nwp.capabilities):
            if needed not in held and SYNONYMS.get(needed) not in held:
                raise CapabilityMissing(f"The certificate lacks {needed}", capability=needed)
        if not self._is_covered(asking):
            raise OutOfScope(f"The certificate does not cover the node {asking.node.name}", node=asking.node.name)
        if action and not allows_action(caller.warrant.actions, action):
            raise OutOfScope(f"The certificate does not cover {action}", action=action)

    def _is_covered(self, asking: "Asking") -> bool:
        """By any of the addresses that a node has."""
        name, base, warrant = asking.node.name, asking.base, asking.caller.warrant
        own = self._nodes.url(name, base)
        portless = own.replace(f":{self._config.server.nwp_port}/", "/", 1)
        exact = self._config.nwp.scope_check == "exact"
        addresses = (own, portless, f"{base}{PREFIX}/{name}")
        return warrant is not None and any(covers(warrant.nodes, each, exact) for each in addresses)
