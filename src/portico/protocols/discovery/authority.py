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
from portico.protocols.discovery import anybody, published
from portico.protocols.documents import FRESH_SECONDS, document, tag_of
from portico.protocols.http import base_of
from portico.protocols.rest.operations import refusal
from portico.requests import Caller
from portico.site import Site

AUTHORITY_PATH: Final = "/.well-known/nps-ca"
KEY_PATH: Final = "/v1/ca/cert"
REVOKED_PATH: Final = "/v1/crl"
VERIFY_PATH: Final = "/v1/agents/{nid}/verify"
OCSP_PATH: Final = "/v1/agents/{nid}"  # where those ask who know the ocsp_url of a manifest
MAX_NID: Final = 512  # characters that are looked at; no NID has so many
JSON: Final = "application/json"


class Authority(Protocol):
    """What makes certificates, as far as it can be asked."""

    nid: str
    public_key: str

    def document(self, base: str) -> dict[str, Any]: ...

    async def verify(self, nid: str) -> dict[str, Any]: ...

    async def revoked(self) -> dict[str, Any]: ...


Found: TypeAlias = Callable[[], Authority]


def routes(site: Site, config: Config, found: Found) -> list[BaseRoute]:
    """The addresses of this face. The authority is found when it is first asked for, on a thread: it takes a while."""

    async def introduce(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(found)
        said = authority.document(base_of(request, config.server))
        return _answer(request, said, server=config.server, seconds=FRESH_SECONDS)

    async def key(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(found)
        algorithm = authority.public_key.partition(":")[0]
        said = {"issuer": authority.nid, "public_key": authority.public_key, "algorithm": algorithm}
        return _answer(request, said, seconds=FRESH_SECONDS)

    async def revoked(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(found)
        said = await authority.revoked()
        # It is signed anew each time. Who has the same entries has the same list.
        return _answer(request, said, tag=tag_of(msgspec.json.encode(said["entries"])))

    async def verify(request: Request, _: Caller) -> Response:
        authority = await asyncio.to_thread(found)
        # What is no NID is looked for as any other name, and takes as long not to be found.
        return _answer(request, await authority.verify(request.path_params["nid"][:MAX_NID]))

    async def register(_: Request, __: Caller) -> Response:
        detail = "Certificates are made on the command line, with `portico keys agent`"
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, detail, {"allow": ""})

    asked = {AUTHORITY_PATH: introduce, KEY_PATH: key, REVOKED_PATH: revoked, VERIFY_PATH: verify, OCSP_PATH: verify}
    return [
        # Where agents would ask for one. No method at all is allowed there.
        Route("/v1/agents/register", published(register, site, anybody), methods=[]),
        *(Route(path, published(each, site, anybody), methods=["GET"]) for path, each in asked.items()),
    ]


def _answer(
    request: Request, said: Mapping[str, Any], *, server: Server | None = None, seconds: int = 0, tag: str = ""
) -> Response:
    body = msgspec.json.encode(said)
    return document(request, body, JSON, _HEADERS, server=server, seconds=seconds, tag=tag)


# Public, and the same for all: pages elsewhere may read it too.
_HEADERS: Final = {"access-control-allow-origin": "*"}
