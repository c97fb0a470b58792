"""MCP-AQL over plain HTTP: the same requests and the same envelopes as over MCP.

POST /aql              any operation, or a batch
POST /aql/{endpoint}   those of one family, as in /aql/read

There are no sessions here: what an agent begins ends when it says so, or when it is silent for too long.
"""

from functools import partial
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from portico.config import Config
from portico.errors import NotFound, SiteError, TooLarge
from portico.protocols import Mounted, Services
from portico.protocols.aql.endpoint import AqlEndpoint
from portico.protocols.aql.envelopes import RATE_LIMIT, Envelope, FailureResult, failure_result, too_large, wrong_type
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import AqlRequestContext
from portico.protocols.aql.surface import OperationRegistry
from portico.protocols.edge import EdgePolicy, check_origin
from portico.protocols.http import BEARER, read_body
from portico.protocols.problems import make_handler, refusal
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Recorder

PATH = "/aql"
JSON = "application/json"


def mount(services: Services) -> Mounted:
    config = services.config
    return Mounted(
        routes=routes(services.site, config, services.record), render_error=render_error, policy=edge_policy(config)
    )


def routes(site: Site, config: Config, record: Recorder) -> list[BaseRoute]:
    if config.section(AqlSettings).mode == "none":
        return []
    surface = OperationRegistry(site, config)
    endpoint = AqlEndpoint(surface, site, config, record)

    async def answer(request: Request, caller: Caller) -> Response:
        family = _family(request, surface)
        body = await _body(request, config.section(AqlSettings).request_bytes)
        return _response(await endpoint.answer(body, family, AqlRequestContext(caller)))

    handler = make_handler(answer, render_error)
    return [Route(PATH, handler, methods=["POST"]), Route(f"{PATH}/{{endpoint}}", handler, methods=["POST"])]


def edge_policy(config: Config) -> EdgePolicy:
    """Return how the edge admits requests of this protocol."""
    check = partial(check_origin, server=config.server)
    return EdgePolicy(check=check, max_body=config.section(AqlSettings).request_bytes)


def render_error(_: Request | Scope, error: Exception) -> Response:
    match error:
        case SiteError():
            return _response(Envelope(failure_result(error)))
        case HTTPException():
            return refusal(HTTPStatus(error.status_code), error.detail, error.headers)
        case _:
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "The server failed")


def _family(request: Request, surface: OperationRegistry) -> str | None:
    name = request.path_params.get("endpoint")
    if name is not None and name not in surface.families():
        raise NotFound("There is no such endpoint", collection="endpoint", id=name[:80])
    return name


async def _body(request: Request, most: int) -> bytes:
    # A page elsewhere can make a browser send any other kind without asking first.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise wrong_type("content-type", JSON, kind or "none")
    try:
        return await read_body(request, most)
    except TooLarge as error:
        raise too_large("request_size", most, error.details["actual"]) from error


def _response(envelope: Envelope) -> Response:
    # What is said here is for one caller, and of this moment.
    headers = {"cache-control": "no-store", **_headers(envelope)}
    return Response(envelope.json, envelope.status, headers, JSON)


def _headers(envelope: Envelope) -> dict[str, str]:
    if envelope.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": BEARER}
    if envelope.code != RATE_LIMIT or not isinstance(envelope.body, FailureResult):
        return {}
    return {"retry-after": str(envelope.body.error.details.get("retry_after_seconds", 1))}
