"""Webhooks that have a source loaded again.

POST /hooks/sources/{name}   202 and the source; many calls before a load begins are one
GET  /hooks/sources/{name}   the source: its state, last attempt, last success and next load

For keys with the scope `approve`, and for senders that sign the body with the secret of the source
(X-Hub-Signature-256: sha256=…, the HMAC as GitHub and others send it). What a body says is ignored.
"""

from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.access.identity import APPROVE
from portico.access.limits import check_text
from portico.errors import Forbidden, SiteError, Unauthenticated
from portico.protocols.http import read_body
from portico.protocols.problems import make_handler
from portico.requests import Caller
from portico.site import Site
from portico.sources.refresh import SourceInfo, SourceManager

PATH: Final = "/hooks/sources"
SIGNATURE: Final = "x-hub-signature-256"
MAX_BODY: Final = 1 << 20


def routes(site: Site, sources: SourceManager) -> list[BaseRoute]:
    """Return the routes of this protocol."""

    async def request_load(request: Request, caller: Caller) -> Response:
        name = await authorize(request, caller)
        info = await sources.request(name)
        return _respond(info, HTTPStatus.ACCEPTED, location=f"{PATH}/{name}")

    async def show(request: Request, caller: Caller) -> Response:
        return _respond(await sources.find(await authorize(request, caller)), HTTPStatus.OK)

    async def authorize(request: Request, caller: Caller) -> str:
        """Return the name of the source. Raise before it is looked up unless the caller may have it loaded."""
        name: str = request.path_params["name"]
        check_text(name, site.limits)
        body = await read_body(request, min(MAX_BODY, site.limits.payload_bytes))
        signature = request.headers.get(SIGNATURE, "")
        if signature and sources.verify_signature(name, body, signature):
            return name
        if APPROVE in caller.scopes:
            await site.supervision.refuse_blocked(caller)
            return name
        raise _refusal(caller, is_signed=bool(signature))

    return [
        Route(f"{PATH}/{{name}}", make_handler(request_load), methods=["POST"]),
        Route(f"{PATH}/{{name}}", make_handler(show), methods=["GET"]),
    ]


def _refusal(caller: Caller, *, is_signed: bool) -> SiteError:
    if is_signed:
        return Unauthenticated("The signature is not valid", hint="Sign the body with the secret of the source.")
    if caller.is_anonymous:
        return Unauthenticated("A webhook requires an API key or a signature", hint="Send the key as a bearer token.")
    return Forbidden(f"This requires the scope `{APPROVE}`", scope=APPROVE)


def _respond(info: SourceInfo, status: HTTPStatus, **headers: str) -> Response:
    return Response(msgspec.json.encode(info), status, {"cache-control": "no-store", **headers}, "application/json")
