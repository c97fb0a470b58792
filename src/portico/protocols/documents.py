"""Responses that clients may cache: content negotiation, Cache-Control and ETags."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from portico.config import Server
from portico.protocols.http import is_own_host

FRESH_SECONDS = 60  # for which a client may use a document without asking again
MAX_ACCEPT = 2000  # characters of an Accept header that are read: finding its quotes takes quadratic time
MAX_RANGES = 64  # of an Accept header that are read
VARY = ("accept", "x-nwp-agent")  # decide at one URL between a page and a node of NWP

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_TAG = re.compile(r'(?:W/)?("[^"]*")')
_CREDENTIALS = ("authorization", "x-api-key")


def preferred_media_type(accept: str, media_types: Sequence[str]) -> str:
    """Return the media type that an Accept header prefers (RFC 9110 12.5.1); the first one if it accepts none.

    An exact match ranks before a wildcard, and an earlier media type before a later one.
    """
    ranges = _ranges(accept)

    def rank(kind: str) -> tuple[float, int]:
        """Return the quality of a media type, and how exactly a range names it."""
        names = (kind, f"{kind.partition('/')[0]}/*", "*/*")
        return next(((ranges[name], 2 - place) for place, name in enumerate(names) if name in ranges), (0.0, 0))

    ranked = [(*rank(kind), -place, kind) for place, kind in enumerate(media_types)]
    quality, _, _, best = max(ranked)
    return best if quality > 0 else media_types[0]


def _ranges(accept: str) -> dict[str, float]:
    """Return the media ranges and their quality; `*/*` if there are none."""
    ranges: dict[str, float] = {}
    for part in _QUOTED.sub("", accept[:MAX_ACCEPT]).lower().split(",")[:MAX_RANGES]:
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        if "/" in kind:
            ranges[kind] = max(ranges.get(kind, 0.0), _quality(parameters))
    return ranges or {"*/*": 1.0}


def _quality(parameters: Sequence[str]) -> float:
    quality_text = next((text[2:] for text in parameters if text.startswith("q=")), "1")
    try:
        quality = float(quality_text)
    except ValueError:
        return 0.0
    return min(max(quality, 0.0), 1.0) if isfinite(quality) else 0.0


def document(
    request: Request,
    body: str | bytes,
    media_type: str,
    headers: Mapping[str, str] | None = None,
    *,
    server: Server | None,
    seconds: int = FRESH_SECONDS,
    tag: str = "",
    vary: Sequence[str] = (),
) -> Response:
    """Return a response that a client may cache for `seconds`, or 304 if the client's copy is current.

    `server` is given if the document contains URLs of the site, else None.
    """
    content = body.encode() if isinstance(body, str) else body
    etag = f'"{tag or tag_of(content)}"'
    is_named_by_host = server is not None and not server.url
    all_headers = {
        "etag": etag,
        "cache-control": _cache_control(request, server, seconds),
        "vary": ", ".join([*vary, *(["host"] if is_named_by_host else []), *_CREDENTIALS]),
        "x-content-type-options": "nosniff",
        **(headers or {}),
    }
    if _is_known(etag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=all_headers)
    return Response(content, headers=all_headers, media_type=media_type)


def tag_of(content: bytes) -> str:
    """Return a hash of a document for its ETag."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _cache_control(request: Request, server: Server | None, seconds: int) -> str:
    # Without a configured URL the document contains the host of the request. A foreign one must not be cached.
    if server is not None and not server.url and not is_own_host(request, server):
        return "no-store"
    # Responses to callers with credentials are private.
    if any(name in request.headers for name in _CREDENTIALS):
        return "private, no-cache"
    return f"public, max-age={seconds}" if seconds else "no-cache"


def _is_known(etag: str, if_none_match: str) -> bool:
    # RFC 9110 13.1.2: compared weakly.
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)


def host_label(base: str) -> str:
    """Return the host of a base URL as a name that identifiers may contain."""
    return _NOT_IN_LABELS.sub("-", (urlsplit(base).hostname or "localhost").lower())


_NOT_IN_LABELS = re.compile(r"[^a-z0-9.-]+")
