"""The protocols of a site, mounted: which of them a request is for, and everything they serve together."""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.errors import ConfigError, RateLimited, SiteError
from portico.protocols import Mounted, NativeListener, Protocol, Services
from portico.protocols.edge import EdgePolicy, EdgeRoute


class Mounts:
    """Every protocol of a site, ready to serve.

    A request belongs to the protocol that claims it, else to the one whose path is the longest that fits. The protocol
    that serves `/` has all the rest.
    """

    def __init__(self, protocols: Sequence[Protocol], services: Services) -> None:
        self._mounted = {protocol.name: protocol.mounted(services) for protocol in protocols}
        self._claiming = [mounted for mounted in self._mounted.values() if mounted.claims]
        pages = [self._mounted[protocol.name] for protocol in protocols if "/" in protocol.documents]
        if not pages:
            raise ConfigError("No protocol serves `/`", hint="Mount one that does, such as the built-in one.")
        self._render_by_default = pages[0].render_error
        policies = {path: policy for mounted in self._mounted.values() for path, policy in mounted.policies.items()}
        self._rest = self._route_of(pages[0], EdgePolicy(below=policies))
        self._claimed = [(mounted.claims, self._route_of(mounted)) for mounted in self._claiming if mounted.claims]
        self._by_path: dict[str, EdgeRoute] = {}
        for protocol in protocols:
            mounted = self._mounted[protocol.name]
            route = self._rest if mounted is pages[0] else self._route_of(mounted)
            for path in protocol.paths(services.config):
                if self._by_path.setdefault(path, route) is not route:
                    raise ConfigError(f"Two protocols are mounted at {path}", hint="Give one of them another path.")

    def _route_of(self, mounted: Mounted, policy: EdgePolicy | None = None) -> EdgeRoute:
        render_error = mounted.render_error or self._render_by_default
        if not render_error:
            raise ConfigError("The protocol that serves `/` renders no errors", hint="Give it `render_error`.")
        return EdgeRoute(policy or mounted.policy or EdgePolicy(), render_error)

    @property
    def routes(self) -> list[BaseRoute]:
        """All routes. Those of protocols that claim requests at paths of others come first."""
        first = [route for mounted in self._claiming for route in mounted.routes]
        return [
            *first,
            *(route for mounted in self._mounted.values() for route in mounted.routes if not mounted.claims),
        ]

    def find(self, scope: Scope) -> EdgeRoute:
        """Return how a request is admitted, and how its errors are rendered."""
        for claims, route in self._claimed:
            if claims(scope):
                return route
        path: str = scope["path"]
        route = self._by_path.get(path)
        while route is None and path:
            path = path[: path.rfind("/", 0, -1) + 1]  # two slashes are two steps, as they are to the routes
            route = self._rest if path in {"", "/"} else self._by_path.get(path)
        return route or self._rest

    def listeners(self, serve_http: Callable[[], asyncio.Protocol]) -> dict[str, NativeListener]:
        """Return what serves the ports of protocols, by the protocol's name."""
        return {name: mounted.listen(serve_http) for name, mounted in self._mounted.items() if mounted.listen}

    def begin(self) -> None:
        """Start what goes on between requests."""
        for mounted in self._mounted.values():
            if mounted.begin:
                mounted.begin()

    def make_late(self) -> None:
        """Start to make the applications that are slow to make."""
        for mounted in self._mounted.values():
            for late in mounted.lazy_apps:
                late.start()

    async def close(self) -> None:
        for mounted in self._mounted.values():
            if mounted.close:
                await mounted.close()
        await asyncio.gather(*(late.close() for mounted in self._mounted.values() for late in mounted.lazy_apps))


def render_overload(mounts: Mounts, scope: Scope, error: SiteError) -> ASGIApp:
    """Return the response to a request that a busy server refuses, in the form of its protocol."""
    # Nobody is sent a page or a stream of events that have to be made first.
    plain = {**scope, "headers": [header for header in scope["headers"] if header[0] != b"accept"]}
    response = mounts.find(scope).render_error(plain, error)
    status = HTTPStatus.TOO_MANY_REQUESTS if isinstance(error, RateLimited) else HTTPStatus.SERVICE_UNAVAILABLE

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_status(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                message["status"] = status
                MutableHeaders(scope=message)["retry-after"] = str(error.details["retry_after"])
            await send(message)

        await response(plain, receive, send_with_status)

    return respond
