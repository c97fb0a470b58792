"""The HTTP requests of nodes, and how they are answered: headers, status and body."""

import time
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from portico.access.budget import TokenCost
from portico.errors import SiteError
from portico.protocols.nwp.encodings import FrameEncoding, encode_header_id
from portico.protocols.nwp.errors import NodeMethodNotAllowed, code_of, error_frame
from portico.protocols.nwp.frames import EncodingTier, ErrorFrame, encode_value
from portico.protocols.nwp.nodes import Node
from portico.protocols.nwp.service import NodeResponse, NwpRequestContext
from portico.protocols.problems import error_headers
from portico.requests import Caller
from portico.site import Site

ERROR: Final = "application/nwp-error+json"
JSON: Final = "application/json"
PRIVATE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

Headers: TypeAlias = Mapping[str, str]


class NodeRequest(msgspec.Struct, frozen=True):
    """An HTTP request for a node."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    method: str
    name: str  # of the node
    path: str  # below the node, as in PATHS
    task: str  # the id of the task whose status is asked for; mostly empty
    id: str  # the caller's, or a new UUID
    base: str

    @property
    def http_request(self) -> Request:
        return Request(self.scope, self.receive)

    @property
    def address(self) -> str:
        return self.scope["client"][0] if self.scope.get("client") else ""

    def with_id(self, id: str | None) -> "NodeRequest":
        """Return the request with the id of its frame, unless a header has one, which goes first (9.3)."""
        return msgspec.structs.replace(self, id=id) if id and not self.headers.get("x-nwp-request-id") else self


class NodeResponder:
    """Sends the responses of nodes, with the headers that every one has."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def send_capsule(
        self, request: NodeRequest, answer: NodeResponse, context: NwpRequestContext, encoding: FrameEncoding
    ) -> None:
        body = encoding.body(answer.frame)
        fields = {
            "x-nwp-node-type": context.node.type,
            "x-nwp-schema": answer.frame.anchor_ref,
            **_cost_headers(answer.cost),
            **({"x-nwp-cached": "true"} if answer.is_cached else {}),
            "content-type": encoding.media_type,
            "content-length": str(len(body)),
            # Nobody caches responses to a POST; those to an identified caller say so all the same.
            **({} if context.caller.is_anonymous else PRIVATE),
            "x-nwp-request-id": encode_header_id(context.id),
        }
        headers = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
        headers += self._rate_headers(context.caller)
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        await request.send({"type": "http.response.body", "body": body})

    def common_headers(self, node: Node | None, caller: Caller | None, id: str) -> dict[str, str]:
        """Return the headers of every response."""
        headers = {"x-nwp-request-id": encode_header_id(id), **PRIVATE}
        if node:
            headers["x-nwp-node-type"] = node.type
        if caller:
            headers.update({name.decode(): value.decode() for name, value in self._rate_headers(caller)})
        return headers

    def _rate_headers(self, caller: Caller) -> list[tuple[bytes, bytes]]:
        """Return the headers with the rest of the caller's allowance."""
        left = self._site.access.quota(caller)
        return [
            (b"x-nwp-rate-limit", b"%d" % left.limit),
            (b"x-nwp-rate-remaining", b"%d" % left.remaining),
            (b"x-nwp-rate-reset", b"%d" % ceil(time.time() + left.reset)),
        ]

    async def send_error(
        self, request: NodeRequest, node: Node | None, caller: Caller | None, error: SiteError
    ) -> None:
        # Who could not be recognised is counted by the address.
        headers = self.common_headers(node, caller or self._site.access.anonymous_caller(request.address), request.id)
        status = HTTPStatus.METHOD_NOT_ALLOWED if isinstance(error, NodeMethodNotAllowed) else code_of(error).http
        headers.update(error_headers(error))
        if isinstance(error, NodeMethodNotAllowed):
            headers["allow"] = str(error.details["allow"])
        await self.send(request, status, encode_error(error_frame(error, request.id)), ERROR, headers)

    async def send(
        self, request: NodeRequest, status: HTTPStatus, body: bytes, kind: str, headers: Mapping[str, str]
    ) -> None:
        raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        raw_headers += [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        content = b"" if request.scope["method"] == "HEAD" else body
        await request.send({"type": "http.response.start", "status": status.value, "headers": raw_headers})
        await request.send({"type": "http.response.body", "body": content})

    async def send_json(self, request: NodeRequest, node: Node, caller: Caller, value: Any) -> None:
        headers = self.common_headers(node, caller, request.id)
        await self.send(request, HTTPStatus.OK, encode_value(value, EncodingTier.JSON), JSON, headers)


def _cost_headers(cost: TokenCost | None) -> dict[str, str]:
    """Return the headers with the tokens of a response, and how they were counted."""
    if cost is None:
        return {}
    headers = {"x-nwp-tokens": str(cost.tokens)}
    headers |= {} if cost.own is None else {"x-nwp-tokens-native": str(cost.own)}
    return {**headers, "x-nwp-tokenizer-used": cost.tokenizer} if cost.tokenizer else headers


def encode_error(error: ErrorFrame) -> bytes:
    """Encode an error as a body of its own (9.4), without the `frame` member."""
    members = msgspec.structs.asdict(error)
    return encode_value({name: value for name, value in members.items() if value is not None}, EncodingTier.JSON)
