"""Reads the visible text of an HTML tree, block by block. Skips scripts, navigation and hidden parts."""

from collections.abc import Iterator
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

# fmt: off
SKIPPED = frozenset((
    "script", "style", "noscript", "template", "nav", "footer", "aside", "form", "button", "select", "svg",
    "math", "iframe", "object", "embed", "canvas", "dialog", "head",
))
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_BLOCKS = HEADINGS | frozenset((
    "address", "article", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "header", "hr", "html", "li", "main", "ol", "p", "pre", "section", "summary",
    "table", "tbody", "tfoot", "thead", "tr", "ul",
))
# fmt: on
_SPACED = frozenset(("br", "td", "th"))


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph, a list item, a heading."""

    text: str
    is_heading: bool = False


def iter_text_blocks(root: LexborNode | None) -> Iterator[TextBlock]:
    """Yield the blocks of text under a node, in order. Not recursive, for pages that are deeply nested."""
    words: list[str] = []
    headings = pre = 0
    for node, is_start in walk_nodes(root):
        tag = node.tag or ""
        if node.is_text_node:
            words.append(node.text_content or "")
            continue
        if tag in _BLOCKS:
            yield from _block(words, is_heading=headings > 0, is_preformatted=pre > 0)
            words = []
        elif tag in _SPACED:
            words.append("\n" if pre else " ")
        if tag in HEADINGS:
            headings += 1 if is_start else -1
        elif tag == "pre":
            pre += 1 if is_start else -1
    yield from _block(words, is_heading=False, is_preformatted=False)


def walk_nodes(root: LexborNode | None) -> Iterator[tuple[LexborNode, bool]]:
    """Yield every visible node in document order: (node, True) at its start, (node, False) at an element's end."""
    node = root
    depth = 0
    while node is not None:
        yield node, True
        inside = None if is_skipped(node) else node.first_child
        if inside is not None:
            node, depth = inside, depth + 1
            continue
        while node is not None:
            if node.is_element_node:
                yield node, False
            if depth == 0:
                return
            if node.next is not None:
                node = node.next
                break
            node, depth = node.parent, depth - 1


def is_skipped(node: LexborNode) -> bool:
    if not node.is_element_node:
        return False
    if node.tag in SKIPPED:
        return True
    attributes = node.attributes
    return "hidden" in attributes or attributes.get("aria-hidden") == "true"


def _block(words: list[str], *, is_heading: bool, is_preformatted: bool) -> Iterator[TextBlock]:
    joined = "".join(words)
    text = joined.strip("\n").rstrip() if is_preformatted else " ".join(joined.split())
    if text.strip():
        yield TextBlock(text, is_heading)
