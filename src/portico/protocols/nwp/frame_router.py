"""Routes frames that name no node, as they come in native sessions, to the nodes that they are for."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from portico.protocols.nwp.actions import ActionService
from portico.protocols.nwp.errors import AnchorUnknown
from portico.protocols.nwp.feeds import Feeds
from portico.protocols.nwp.frames import ActionFrame, QueryFrame, SubscribeFrame, TaskFrame
from portico.protocols.nwp.nodes import GATEWAY, SITE, TASK_CANCEL, TASK_STATUS, Node
from portico.protocols.nwp.service import NodeService
from portico.requests import Caller

TASKS: Final = frozenset({TASK_STATUS, TASK_CANCEL})  # actions of every node that has any

RequestFrame: TypeAlias = QueryFrame | ActionFrame | TaskFrame | SubscribeFrame


class FrameRouter:
    """Finds the node that a frame is for: over HTTP the path names it, in a native session nothing does."""

    def __init__(self, service: NodeService, actions: ActionService, feeds: Feeds) -> None:
        self.service = service
        self.actions = actions
        self.feeds = feeds
        self._nodes: Mapping[str, Node] = {}
        self._by_anchor: Mapping[str, Node] = {}

    async def node(self, frame: RequestFrame, caller: Caller) -> Node:
        """Return the node of the schema or action that a frame refers to, or the site's node.

        Of several possible nodes it is one that the caller's certificate covers.
        """
        nodes = self.service.nodes.all
        match frame:
            case QueryFrame(anchor_ref=str() as anchor) | SubscribeFrame(anchor_ref=str() as anchor) if anchor:
                return self.current(anchor) or await self._find_superseded(anchor) or nodes[SITE]
            case ActionFrame():
                return self._find_covered(caller, lambda node: _has(node, frame.action_id))
            case SubscribeFrame():  # about a running stream
                return self._find_covered(caller, lambda node: node.type == "memory")
            case TaskFrame():
                return nodes[GATEWAY]
            case QueryFrame():
                return nodes[SITE]

    def _find_covered(self, caller: Caller, fits: Callable[[Node], bool]) -> Node:
        nodes = self.service.nodes.all
        if caller.warrant is None:
            return nodes[SITE]
        possible = (nodes[SITE], *(node for node in nodes.values() if fits(node)))
        return next(
            (candidate for candidate in possible if self.service.capabilities.covers(caller.warrant, candidate)),
            nodes[SITE],
        )

    def current(self, reference: str) -> Node | None:
        """Return the node whose records have this schema now."""
        nodes = self.service.nodes.all
        if nodes is not self._nodes:
            self._nodes = nodes
            self._by_anchor = {
                anchor.id: node
                for node in reversed(list(nodes.values()))  # of two with the same schema the first one counts
                if node.type == "memory"
                for anchor in node.collections.values()
            }
        return self._by_anchor.get(reference)

    async def _find_superseded(self, reference: str) -> Node | None:
        nodes = self.service.nodes.all
        if not nodes[SITE].collections:
            return None
        try:
            resolved = await self.service.anchors.resolve(nodes[SITE], reference, is_patient=True)
        except AnchorUnknown:
            return None
        return self.current(resolved.anchor.id)


def _has(node: Node, action: str) -> bool:
    return action in node.actions or (action in TASKS and bool(node.actions))
