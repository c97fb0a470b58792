"""What is read and kept by readers: which form they want, how long it holds, and whether they have it already."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from math import isfinite

from starlette.requests import Request
from starlette.responses import Response

from portico.config import Server
from portico.protocols.http import is_own_host

FRESH_SECONDS = 60  # that a document may be shown without asking again
MAX_ACCEPT = 2000  # characters of an Accept header that are read: finding its quotes costs their square
MAX_RANGES = 64  # of an Accept header that are read
VARY = ("accept", "x-nwp-agent")  # what decides at one address whether there is a page for people or a node of NWP

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_TAG = re.compile(r'(?:W/)?("[^"]*")')
_CREDENTIALS = ("authorization", "x-api-key")


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The media type that an Accept header likes best (RFC 9110 12.5.1); the first one if it likes none.

    What is named counts before what a wildcard lets through, and what is offered first before the rest.
    """
    ranges = _ranges(accept)
    ranked = [(*_liking(each, ranges), -place, each) for place, each in enumerate(offered)]
    quality, _, _, best = max(ranked)
    return best if quality > 0 else offered[0]


def _ranges(accept: str) -> dict[str, float]:
    """Media ranges and their quality. Without any, everything is as good."""
    found: dict[str, float] = {}
    for part in _QUOTED.sub("", accept[:MAX_ACCEPT]).lower().split(",")[:MAX_RANGES]:
        kind, *parameters = (each.strip() for each in part.split(";"))
        if "/" in kind:
            found[kind] = max(found.get(kind, 0.0), _quality(parameters))
    return found or {"*/*": 1.0}


def _quality(parameters: Sequence[str]) -> float:
    said = next((value for each in parameters if (value := each.removeprefix("q=")) != each), "1")
    try:
        quality = float(said)
    except ValueError:
        return 0.0
    return min(max(quality, 0.0), 1.0) if isfinite(quality) else 0.0


def _liking(kind: str, ranges: Mapping[str, float]) -> tuple[float, int]:
    """How much a media type is wanted, and how exactly it was named."""
    names = (kind, f"{kind.partition('/')[0]}/*", "*/*")
    return next(((ranges[name], 2 - rank) for rank, name in enumerate(names) if name in ranges), (0.0, 0))


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
    """A response that a reader may keep for so many seconds, or the news that what it keeps still holds.

    `server` is where addresses in it come from; None for a document that names none.
    """
    content = body.encode() if isinstance(body, str) else body
    etag = f'"{tag or tag_of(content)}"'
    is_named_by_host = server is not None and not server.url
    told = {
        "etag": etag,
        "cache-control": _caching(request, server, seconds),
        "vary": ", ".join([*vary, *(["host"] if is_named_by_host else []), *_CREDENTIALS]),
        "x-content-type-options": "nosniff",
        **(headers or {}),
    }
    if _is_known(etag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=told)
    return Response(content, headers=told, media_type=media_type)


def tag_of(content: bytes) -> str:
    """What tells two versions of a document apart."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _caching(request: Request, server: Server | None, seconds: int) -> str:
    """Who may keep it, and for how long."""
    # Without an address of its own the site goes by the name it was called. A stranger's name must reach nobody else.
    if server is not None and not server.url and not is_own_host(request, server):
        return "no-store"
    # What was shown to a name is for nobody else.
    if any(name in request.headers for name in _CREDENTIALS):
        return "private, no-cache"
    return f"public, max-age={seconds}" if seconds else "no-cache"


def _is_known(etag: str, known: str) -> bool:
    # RFC 9110 13.1.2: compared weakly.
    return known.strip() == "*" or etag in _TAG.findall(known)
