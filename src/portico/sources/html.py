"""Parses HTML, unless that could take too long. Looks at tags only; reads no text.

At many a tag the parser looks through all open elements, so its time grows with the square of the depth. A
page with few tags cannot be deep, one with very many is refused, and between the two the depth is estimated.
"""

import re

from selectolax.lexbor import LexborHTMLParser

FEW_TAGS = 20_000  # all open at once, these take less than a second
MAX_TAGS = 100_000  # all open at once, these take some twenty seconds
MAX_OPEN_ELEMENTS = 512  # the limit of browsers

_START = re.compile(rb"<[a-z]", re.IGNORECASE)
_TAG = re.compile(rb"<(?:(!--)|(/?)([a-z][^\s/<>]*+)([^<>]*+))", re.IGNORECASE)
# What may hold tags that are none, and where it ends.
_RAW_ENDS = {
    b"!--": re.compile(rb"-->"),
    b"script": re.compile(rb"</script", re.IGNORECASE),
    b"style": re.compile(rb"</style", re.IGNORECASE),
}
# fmt: off
# Elements without an end, and those whose end may be left out because the next of them closes the last.
_UNCLOSED = frozenset((
    b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta", b"param", b"source",
    b"track", b"wbr", b"p", b"li", b"dt", b"dd", b"option", b"optgroup", b"tr", b"td", b"th", b"tbody",
    b"thead", b"tfoot", b"colgroup",
))
# fmt: on


class TooDeep(ValueError):
    """A page has more tags, or more open elements, than any real page."""


def parse_html(text: bytes | str) -> LexborHTMLParser:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    tags = sum(1 for _ in _START.finditer(raw))
    if tags > MAX_TAGS:
        raise TooDeep(f"has more than {MAX_TAGS} tags")
    if tags > FEW_TAGS and _depth(raw) > MAX_OPEN_ELEMENTS:
        raise TooDeep(f"has more than {MAX_OPEN_ELEMENTS} elements open at once")
    return LexborHTMLParser(text)


def _depth(text: bytes) -> int:
    """Estimate the most elements that are open at once."""
    deepest = depth = at = 0
    while tag := _TAG.search(text, at):
        at = tag.end()
        name = (tag[1] or tag[3]).lower()
        if name in _RAW_ENDS and not tag[2]:
            end = _RAW_ENDS[name].search(text, at)
            if end is None:
                break
            at = end.end()
        elif name in _UNCLOSED or tag[4].endswith(b"/"):
            continue
        else:
            depth = max(0, depth - 1) if tag[2] else depth + 1
            deepest = max(deepest, depth)
    return deepest
