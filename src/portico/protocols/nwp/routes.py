"""NWP mounted: routes for nodes over HTTP, and the native port.

Requests for nodes are routed before all others: they are many, and small. A page that shows what a node has is that
node, too, for clients that show a mark of NWP (2.2): the protocol claims those requests by their headers, so that the
edge admits them as its own, and routes them to the node. Nothing wraps the requests of other protocols.
"""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.errors import SiteError
from portico.protocols import Mounted, Services
from portico.protocols.documents import document
from portico.protocols.edge import PUBLIC
from portico.protocols.http import base_of
from portico.protocols.nwp import authority
from portico.protocols.nwp.actions import ActionService
from portico.protocols.nwp.callbacks import TaskCallbacks
from portico.protocols.nwp.delegation import delegation_recorder
from portico.protocols.nwp.feeds import Feeds
from portico.protocols.nwp.frame_router import FrameRouter
from portico.protocols.nwp.http import PREFIX, NodeApplication, edge_policy, is_for_node, is_node, node_of_page, refusal
from portico.protocols.nwp.native import NativePort
from portico.protocols.nwp.nodes import MANIFEST, SITE
from portico.protocols.nwp.service import NodeService
from portico.protocols.nwp.tls import load_tls
from portico.protocols.problems import Answer, make_handler
from portico.requests import Caller

WELL_KNOWN = "/.well-known/nwp"
PUBLIC_HEADERS = {"access-control-allow-origin": "*"}  # the same for all: pages elsewhere may read it


def mount(services: Services) -> Mounted:
    site, config, record = services.site, services.config, services.record
    service = NodeService(site, config, services.callbacks, record)
    actions = ActionService(service, services.callbacks, delegation_recorder(record))
    feeds = Feeds(service)
    nodes = NodeApplication(service, actions, feeds, config)
    callbacks: list[TaskCallbacks] = []

    def render_error(scope: Scope, error: Exception) -> ASGIApp:
        match error:
            case SiteError():
                return nodes.render_error(scope, error)
            case HTTPException():
                return refusal(scope, SiteError(error.detail))
            case _:
                return refusal(scope, SiteError("The server failed"))

    def listen(serve_http: Callable[[], asyncio.Protocol]) -> NativePort:
        router = FrameRouter(service, actions, feeds)
        return NativePort(router, config, serve_http, record, services.streams, tls=load_tls(config))

    def begin() -> None:
        callbacks.append(TaskCallbacks(site, services.callbacks, services.sign, config, record))

    async def close() -> None:
        await asyncio.gather(*(callback.close() for callback in callbacks))

    return Mounted(
        routes=[
            NodeRoute(nodes),
            Route(WELL_KNOWN, _manifest_endpoint(service, services), methods=["GET"]),
            *authority.routes(site, config, services.authority),
        ],
        render_error=render_error,
        policy=edge_policy(config),
        policies=dict.fromkeys((authority.AUTHORITY_PATH, "/v1/ca", "/v1/crl", "/v1/agents"), PUBLIC),
        claims=is_for_node,
        listen=listen,
        begin=begin,
        close=close,
    )


class NodeRoute(BaseRoute):
    """Routes requests for nodes: by path, and at pages of which the client wants the node."""

    def __init__(self, nodes: NodeApplication) -> None:
        self._nodes = nodes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not is_for_node(scope):
            return Match.NONE, {}
        path: str = scope["path"]
        return Match.FULL, {} if is_node(path) else {"path": f"{PREFIX}/{node_of_page(scope)}"}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._nodes(scope, receive, send)


def _manifest_endpoint(service: NodeService, services: Services) -> Answer:
    """Serve the manifest of the node that leads to all others, the same as at its own address."""
    server = services.config.server

    async def show(request: Request, _: Caller) -> Response:
        node = await service.nodes.get(SITE)
        await service.anchors.publish(node)
        manifest = service.nodes.manifest(node, base_of(request, server))
        body, tag = msgspec.json.encode(manifest), manifest["manifest_version"]
        return document(request, body, MANIFEST, PUBLIC_HEADERS, server=server, tag=tag)

    return make_handler(show)
