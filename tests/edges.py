"""Routes behind the edge, without the rest of the server."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from portico.protocols.edge import EdgeMiddleware, EdgePolicy, EdgeRoute, RenderError
from portico.protocols.problems import problem
from portico.site import Site


def behind_edge(
    site: Site,
    routes: Sequence[BaseRoute],
    policy: EdgePolicy | None = None,
    render_error: RenderError = lambda _, error: problem(error),
) -> EdgeMiddleware:
    route = EdgeRoute(policy or EdgePolicy(), render_error)
    return EdgeMiddleware(Starlette(routes=routes), site, lambda _: route)
