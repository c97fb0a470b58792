"""Where pages stand, and which links they may follow. The one place that makes the address of an item."""

import re
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

COLLECTIONS = "/collections/"  # below it is a page for every collection
_READABLE = ":@,"  # characters that stand in a path as they are
_STEPS = frozenset({"", ".", ".."})  # between slashes: on the way these are merged or taken for steps upwards
_UNFIT = re.compile(r"\.{1,2}\Z|.*[\r\n]", re.DOTALL)  # ids that no path can carry


def item_path(ref: str) -> str:
    """The address of an item, from the root of the site. Reading it gives the ref again, whatever it holds.

    Slashes stay readable where they are only slashes. The few refs that no path can carry go in the query.
    """
    if _UNFIT.match(ref):
        return f"/items/?id={quote(ref, safe='')}"
    plain = _STEPS.isdisjoint(ref.split("/"))
    return f"/items/{quote(ref, safe=_READABLE + '/' if plain else _READABLE)}"


def collection_path(name: str, cursor: str = "") -> str:
    """The address of a page that lists a collection."""
    path = f"{COLLECTIONS}{quote(name, safe='')}"
    return f"{path}?{urlencode({'cursor': cursor})}" if cursor else path


def operation_path(name: str) -> str:
    """Where it is written what an operation takes and gives, for people."""
    return f"/docs#{operation_anchor(name)}"


def operation_anchor(name: str) -> str:
    return f"call_{name}"


def absolute(url: Any, base: str) -> str | None:
    """A URL that a page may follow; None for anything but http and https."""
    if not isinstance(url, str) or not url.strip():
        return None
    try:
        joined = urljoin(f"{base}/", url.strip())
        parts = urlsplit(joined)
    except ValueError:
        return None
    return joined if parts.scheme in {"http", "https"} and parts.hostname else None


def is_own(url: str, base: str) -> bool:
    """Whether a URL leads to this site and nowhere else."""
    own, other = urlsplit(base), urlsplit(url)
    return (other.scheme, other.netloc.lower()) == (own.scheme, own.netloc.lower())
