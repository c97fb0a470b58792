"""Reads HTML microdata (itemscope, itemprop, itemref) as objects like JSON-LD. Resolves links, but follows none."""

from collections.abc import Iterator
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from portico.network import join_url
from portico.sources.records import MAX_DEPTH

MAX_PROPERTIES = 20_000  # of one page

# Where an element keeps its value (HTML, "Values: the values of a property").
_LINKS = {"a": "href", "area": "href", "link": "href", "object": "data"} | dict.fromkeys(
    ("audio", "embed", "iframe", "img", "source", "track", "video"), "src"
)
_VALUES = {"meta": "content", "data": "value", "meter": "value", "time": "datetime"}
_SCHEMA_ORG = (
    "http://schema.org/",
    "https://schema.org/",
    "http://www.schema.org/",
    "https://www.schema.org/",
)


class TooManyProperties(ValueError):
    """Items refer to each other too often."""


def items(tree: LexborHTMLParser, base: str) -> Iterator[dict[str, Any]]:
    """Yield the items of a page that are not the property of another."""
    parser = _MicrodataParser(tree, base)
    for node in tree.css("[itemscope]:not([itemprop])"):
        item = parser.item(node, frozenset())
        if len(item) > ("@type" in item):
            yield item


class _MicrodataParser:
    """Reads one page: knows its ids, and how many more properties it may have."""

    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        self._base = base
        self._left = MAX_PROPERTIES
        elements = tree.css("[id]") if tree.css_first("[itemref]") else []
        self._by_id = {node.attributes.get("id"): node for node in reversed(elements)}

    def item(self, node: LexborNode, around: frozenset[int]) -> dict[str, Any]:
        attributes = node.attributes
        item: dict[str, Any] = {}
        types = [_type(one) for one in (attributes.get("itemtype") or "").split()]
        if types:
            item["@type"] = types[0] if len(types) == 1 else types
        if attributes.get("itemid"):
            item["@id"] = join_url(self._base, attributes["itemid"] or "")
        inside = around | {node.mem_id}
        for owned in self._find_properties(node):
            self._left -= 1
            if self._left < 0:
                raise TooManyProperties(f"has more than {MAX_PROPERTIES} properties in its microdata")
            _add(item, owned, self._value(owned, inside))
        return item

    def _find_properties(self, node: LexborNode) -> Iterator[LexborNode]:
        """Yield the properties of the item at `node`: below it or referred to by it, but not below another item."""
        yield from _properties(node)
        for reference in dict.fromkeys((node.attributes.get("itemref") or "").split()):
            referred = self._by_id.get(reference)
            if referred is None or referred.mem_id == node.mem_id:
                continue
            if "itemprop" in referred.attributes:
                yield referred
            if "itemscope" not in referred.attributes:
                yield from _properties(referred)

    def _value(self, node: LexborNode, around: frozenset[int]) -> Any:
        attributes = node.attributes
        if "itemscope" in attributes:
            # An item may refer to itself through itemref.
            return None if node.mem_id in around or len(around) >= MAX_DEPTH else self.item(node, around)
        tag = node.tag or ""
        if "content" in attributes:  # schema.org allows it on every element, not on meta alone
            return (attributes["content"] or "").strip()
        if tag in _LINKS:
            return join_url(self._base, (attributes.get(_LINKS[tag]) or "").strip())
        text = attributes.get(_VALUES.get(tag, ""))
        return " ".join((text if text is not None else node.text()).split())


def _properties(root: LexborNode) -> Iterator[LexborNode]:
    stack = _children(root)
    while stack:
        node = stack.pop()
        attributes = node.attributes
        if "itemprop" in attributes:
            yield node
        if "itemscope" not in attributes:
            stack += _children(node)


def _children(node: LexborNode) -> list[LexborNode]:
    """Return the children, the last one first, for a stack."""
    return list(node.iter(include_text=False))[::-1]


def _add(item: dict[str, Any], node: LexborNode, value: Any) -> None:
    if value in (None, "", {}):
        return
    for name in (node.attributes.get("itemprop") or "").split():
        key = _type(name)
        if key not in item:
            item[key] = value
        elif isinstance(item[key], list):
            item[key].append(value)
        else:
            item[key] = [item[key], value]


def _type(name: str) -> str:
    for prefix in _SCHEMA_ORG:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name
