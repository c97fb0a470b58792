"""The edge: who calls, what a request costs and how large it may be, settled once for every protocol.

Each HTTP request and each WebSocket that is opened passes here before its protocol sees it, also where its address does
not exist. In this order:

1. the protocol's own check of where the request comes from (host, origin), if it has one;
2. the caller, by its credentials; what is found is in the scope, where `caller_of` reads it;
3. the rate: one unit of the caller's allowance is taken, whatever becomes of the request. The first request that the
   protocol makes to the site uses that unit; each further one takes another (`Site.admit`). Wrong credentials and
   failed checks cost the address they come from;
4. the size: a body over the bound raises `TooLarge` where the protocol reads it.

What is refused here is rendered in the form of the protocol. Messages of a long-lived connection and the entries of a
batch go through `Site.admit` in the same way. Health checks and static files are free.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.access.identity import ASK, RequestCredentials
from portico.config import Config, Server
from portico.errors import Denied, Forbidden, SiteError, Unauthenticated
from portico.protocols import RenderError
from portico.protocols.http import (
    CALLER,
    address_of,
    body_too_large,
    credentials_of,
    is_from_elsewhere,
    is_own_host,
)
from portico.requests import Caller
from portico.site import Site


@dataclass(frozen=True, slots=True)
class EdgePolicy:
    """How the requests of a protocol are admitted. The defaults fit a protocol that has nothing of its own."""

    is_free: bool = False  # costs nothing, and nobody is asked for credentials
    check: Callable[[HTTPConnection], None] | None = None  # raises if the request may not come from where it does
    credentials: Callable[[HTTPConnection], RequestCredentials] = credentials_of
    anonymous_scope: str = ""  # that anonymous callers must have; others may come in without it
    max_body: int | None = None  # bytes; None: limits.payload_bytes
    below: Mapping[str, "EdgePolicy"] = field(default_factory=dict[str, "EdgePolicy"])  # other policies, by path

    def at(self, path: str) -> "EdgePolicy":
        """Return the policy of a path: that of the longest path in `below` which it equals or lies below, or this one.

        A path in `below` that ends in `*` stands for all that begin so.
        """
        if not self.below:
            return self
        names = (name for name in self.below if _is_below(path, name))
        return self.below.get(max(names, key=len, default=""), self)


def _is_below(path: str, name: str) -> bool:
    return path.startswith(name[:-1]) if name.endswith("*") else path == name or path.startswith(f"{name}/")


FREE = EdgePolicy(is_free=True)


def address_only(connection: HTTPConnection) -> RequestCredentials:
    """Return no credentials whatever was sent: for documents that are the same for all."""
    return RequestCredentials(address=address_of(connection))


PUBLIC = EdgePolicy(credentials=address_only)


@dataclass(frozen=True, slots=True)
class EdgeRoute:
    """What the edge needs to know of the protocol that a request is for."""

    policy: EdgePolicy
    render_error: RenderError


class WrongHost(Denied):
    """A request that was meant for another site."""


def check_origin(connection: HTTPConnection, server: Server) -> None:
    """Refuse what a browser sent for a page of another site that is not among `server.origins`."""
    if any(name == b"origin" for name, _ in connection.scope["headers"]) and is_from_elsewhere(connection, server):
        raise Forbidden("Pages of that origin may not ask here", hint="The operator can allow it.")


def sdk_policy(config: Config) -> EdgePolicy:
    """Return how the edge admits requests for an SDK's application, which any page of a browser could address."""

    def check(connection: HTTPConnection) -> None:
        # A foreign domain that was pointed at this server: its pages could send this request.
        if not is_own_host(connection, config.server):
            raise WrongHost("This is not a site of that name", hint="Its operator can add it to server.hosts.")
        check_origin(connection, config.server)

    return EdgePolicy(check=check, anonymous_scope=ASK)


class EdgeMiddleware:
    def __init__(self, app: ASGIApp, site: Site, route: Callable[[Scope], EdgeRoute]) -> None:
        self._app = app
        self._site = site
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        route = self._route(scope)
        policy = route.policy.at(scope["path"])
        if policy.is_free:
            await self._app(scope, receive, send)
            return
        try:
            # Code of this process may say in the scope who calls; a request cannot.
            caller = scope[CALLER] = scope.get(CALLER) or await self._authenticate(HTTPConnection(scope), policy)
            admission = await self._site.access.admit(caller)
        except SiteError as error:
            await route.render_error(scope, error)(scope, receive, send)
            return
        with admission:
            await self._app(scope, _bound(scope, receive, policy.max_body or self._site.limits.payload_bytes), send)

    async def _authenticate(self, connection: HTTPConnection, policy: EdgePolicy) -> Caller:
        try:
            if policy.check:
                policy.check(connection)
            credentials = policy.credentials(connection)
        except SiteError as error:
            await self._site.access.refuse("request", error, address_only(connection).address)
            raise
        caller = await self._site.access.authenticate(credentials)
        if policy.anonymous_scope and caller.is_anonymous and policy.anonymous_scope not in caller.scopes:
            error = Unauthenticated("This site requires credentials", hint="Send an API key, or a token it accepts.")
            await self._site.access.refuse("request", error, caller.address)
            raise error
        return caller


def _bound(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises once a body has more bytes than it may."""
    length = is_chunked = None
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            is_chunked = True
    # The server before reads no more than the length that was announced.
    if not is_chunked and (length is None or (length.isdigit() and int(length) <= limit)):
        return receive
    announced = int(length) if length and length.isdigit() else 0
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        if announced > limit:
            raise body_too_large(limit, announced)
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise body_too_large(limit, received)
        return message

    return receive_bounded
