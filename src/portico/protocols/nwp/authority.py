"""The site's authority as others ask it (NIP): its key, whether a certificate is good, and which are revoked.

Tells everybody the same. Certificates are made and revoked on the command line alone: nothing here takes anything in.
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.config import Config, Server
from portico.protocols.documents import FRESH_SECONDS, document, tag_of
from portico.protocols.http import base_of
from portico.protocols.problems import make_handler, refusal
from portico.requests import Caller
from portico.site import Site

AUTHORITY_PATH: Final = "/.well-known/nps-ca"
KEY_PATH: Final = "/v1/ca/cert"
REVOKED_PATH: Final = "/v1/crl"
VERIFY_PATH: Final = "/v1/agents/{nid}/verify"
OCSP_PATH: Final = "/v1/agents/{nid}"  # the `ocsp_url` in manifests leads here
MAX_NID: Final = 512  # characters
JSON: Final = "application/json"


class Authority(Protocol):
    """The certificate authority of the site."""

    nid: str
    public_key: str

    def document(self, base: str) -> dict[str, Any]: ...

    async def verify(self, nid: str) -> dict[str, Any]: ...

    async def list_revoked(self) -> dict[str, Any]: ...


AuthorityLoader: TypeAlias = Callable[[], Authority]


def routes(site: Site, config: Config, find_authority: AuthorityLoader) -> list[BaseRoute]:
    """Return the routes. The authority is loaded on first use, in a thread, since that takes a while."""

    async def introduce(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(find_authority)
        info = authority.document(base_of(request, config.server))
        return _answer(request, info, server=config.server, seconds=FRESH_SECONDS)

    async def key(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(find_authority)
        algorithm = authority.public_key.partition(":")[0]
        info = {"issuer": authority.nid, "public_key": authority.public_key, "algorithm": algorithm}
        return _answer(request, info, seconds=FRESH_SECONDS)

    async def revoked(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(find_authority)
        crl = await authority.list_revoked()
        # The list is signed anew each time, so its tag depends on the entries alone.
        return _answer(request, crl, tag=tag_of(msgspec.json.encode(crl["entries"])))

    async def verify(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(find_authority)
        # An invalid NID is looked up like any other, so that it takes the same time.
        return _answer(request, await authority.verify(request.path_params["nid"][:MAX_NID]))

    async def register(_: Request, __: Caller) -> Response:
        detail = "Create certificates on the command line, with `portico keys agent`"
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, detail, {"allow": ""})

    handlers = {AUTHORITY_PATH: introduce, KEY_PATH: key, REVOKED_PATH: revoked, VERIFY_PATH: verify, OCSP_PATH: verify}
    return [
        # Agents would request a certificate here. No method is allowed.
        Route("/v1/agents/register", make_handler(register), methods=[]),
        *(Route(path, make_handler(handler), methods=["GET"]) for path, handler in handlers.items()),
    ]


def _answer(
    request: Request, content: Mapping[str, Any], *, server: Server | None = None, seconds: int = 0, tag: str = ""
) -> Response:
    body = msgspec.json.encode(content)
    return document(request, body, JSON, _HEADERS, server=server, seconds=seconds, tag=tag)


# Public, and the same for everybody: pages of other origins may read it too.
_HEADERS: Final = {"access-control-allow-origin": "*"}
