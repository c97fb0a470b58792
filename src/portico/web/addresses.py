"""The paths of pages, and which links a page may contain. Only this module builds the path of an item."""

import re
from urllib.parse import quote, urlencode, urlsplit

from portico.network import absolute

__all__ = [
    "COLLECTIONS", "absolute", "collection_path", "is_own", "item_path", "operation_anchor", "operation_path",
]  # fmt: skip

COLLECTIONS = "/collections/"  # each collection has a page below it
_READABLE = ":@,"  # characters that need no escape in a path
_STEPS = frozenset({"", ".", ".."})  # segments that proxies and browsers would merge or resolve
_UNFIT = re.compile(r"\.{1,2}\Z|.*[\r\n]", re.DOTALL)  # IDs that cannot be a path


def item_path(ref: str) -> str:
    """Return the path of an item. Parsing it gives the same ref, whatever characters that contains.

    Slashes stay as they are where that is safe. The few refs that cannot be a path go into the query.
    """
    if _UNFIT.match(ref):
        return f"/items/?id={quote(ref, safe='')}"
    plain = _STEPS.isdisjoint(ref.split("/"))
    return f"/items/{quote(ref, safe=_READABLE + '/' if plain else _READABLE)}"


def collection_path(name: str, cursor: str = "") -> str:
    """Return the path of a page that lists a collection."""
    path = f"{COLLECTIONS}{quote(name, safe='')}"
    return f"{path}?{urlencode({'cursor': cursor})}" if cursor else path


def operation_path(name: str) -> str:
    """Return the path of the documentation of an operation."""
    return f"/docs#{operation_anchor(name)}"


def operation_anchor(name: str) -> str:
    return f"call_{name}"


def is_own(url: str, base: str) -> bool:
    """Return whether a URL belongs to this site."""
    own, other = urlsplit(base), urlsplit(url)
    return (other.scheme, other.netloc.lower()) == (own.scheme, own.netloc.lower())
