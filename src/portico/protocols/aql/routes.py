"""MCP-AQL over plain HTTP: the same requests and the same envelopes as over MCP.

POST /aql              any operation, or a batch
POST /aql/{endpoint}   those of one family, as in /aql/read

There are no sessions here: what an agent begins ends when it says so, or when it is silent for too long.
"""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.config import Config
from portico.errors import Forbidden, NotFound, SiteError, TooLarge
from portico.protocols.aql.endpoint import Endpoint
from portico.protocols.aql.envelopes import RATE_LIMIT, Envelope, Failure, failure, too_large, wrong_type
from portico.protocols.aql.shapes import Asking
from portico.protocols.aql.surface import Surface
from portico.protocols.http import BEARER, is_from_elsewhere, read_body
from portico.protocols.rest.operations import answering
from portico.requests import Caller
from portico.site import Site
from portico.telemetry import Observe

PATH = "/aql"
JSON = "application/json"


def routes(site: Site, config: Config, observe: Observe) -> list[BaseRoute]:
    if config.aql.mode == "none":
        return []
    surface = Surface(site, config)
    endpoint = Endpoint(surface, site, config, observe)

    async def answer(request: Request, caller: Caller) -> Response:
        async with site.gate.charging(caller):
            _check_page(request, config)
            family = _family(request, surface)
            body = await _body(request, config.aql.request_bytes)
        return _response(await endpoint.answer(body, family, Asking(caller)))

    told = answering(answer, site, _refused)
    return [Route(PATH, told, methods=["POST"]), Route(f"{PATH}/{{endpoint}}", told, methods=["POST"])]


def _check_page(request: Request, config: Config) -> None:
    if is_from_elsewhere(request, config.server):
        raise Forbidden("Pages of this origin may run nothing here", hint="The operator decides which origins may.")


def _family(request: Request, surface: Surface) -> str | None:
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


def _refused(_: Request, error: SiteError) -> Response:
    return _response(Envelope(failure(error)))


def _response(envelope: Envelope) -> Response:
    # What is said here is for one caller, and of this moment.
    headers = {"cache-control": "no-store", **_headers(envelope)}
    return Response(envelope.encoded, envelope.status, headers, JSON)


def _headers(envelope: Envelope) -> dict[str, str]:
    if envelope.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": BEARER}
    if envelope.code != RATE_LIMIT or not isinstance(envelope.body, Failure):
        return {}
    return {"retry-after": str(envelope.body.error.details.get("retry_after_seconds", 1))}
