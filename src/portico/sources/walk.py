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
_PERMALINKS = frozenset(("¶", "§", "#", "🔗", "\u200b", "Link to this heading"))  # links of a heading to itself
_SPACED = frozenset(("br", "td", "th"))


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph, a list item, a heading. `level` is that of a heading, from 1; `anchor` leads to it in its page."""

    text: str
    level: int = 0
    anchor: str = ""


def iter_text_blocks(root: LexborNode | None, omitted: frozenset[int] = frozenset()) -> Iterator[TextBlock]:
    """Yield the blocks of text under a node, in order, without elements of some memory ids.

    Not recursive, for pages that are deeply nested.
    """
    words: list[str] = []
    heading: LexborNode | None = None
    pre = 0
    for node, is_start in walk_nodes(root, omitted):
        tag = node.tag or ""
        if node.is_text_node:
            if heading is None or not _is_permalink(node):
                words.append(node.text_content or "")
            continue
        if tag in _BLOCKS:
            yield from _block(words, heading, is_preformatted=pre > 0)
            words = []
        elif tag in _SPACED:
            words.append("\n" if pre else " ")
        if tag in HEADINGS:
            heading = node if is_start else None
        elif tag == "pre":
            pre += 1 if is_start else -1
    yield from _block(words, None, is_preformatted=False)


def walk_nodes(root: LexborNode | None, omitted: frozenset[int] = frozenset()) -> Iterator[tuple[LexborNode, bool]]:
    """Yield every visible node in document order: (node, True) at its start, (node, False) at an element's end."""
    node = root
    depth = 0
    while node is not None:
        yield node, True
        inside = None if is_skipped(node) or node.mem_id in omitted else node.first_child
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


def anchor_of(heading: LexborNode) -> str:
    """Return the id that leads to a heading: its own, that of a link inside, or that of the section it begins."""
    own = heading.attributes.get("id")
    if own:
        return own
    link = heading.css_first("a[id], a[name]")
    if link is not None:
        return link.attributes.get("id") or link.attributes.get("name") or ""
    permalink = heading.css_first('a[href^="#"]')
    if permalink is not None:
        return (permalink.attributes.get("href") or "").removeprefix("#")
    section = heading.parent
    is_first = section is not None and next(iter(section.iter(include_text=False)), None) == heading
    return (section.attributes.get("id") or "") if section is not None and is_first else ""


def _is_permalink(text: LexborNode) -> bool:
    link = text.parent
    return link is not None and link.tag == "a" and (text.text_content or "").strip() in _PERMALINKS


def _block(words: list[str], heading: LexborNode | None, *, is_preformatted: bool) -> Iterator[TextBlock]:
    joined = "".join(words)
    text = joined.strip("\n").rstrip() if is_preformatted else " ".join(joined.split())
    if heading is None:
        if text.strip():
            yield TextBlock(text)
    elif text := text.strip():
        yield TextBlock(text, int((heading.tag or "h6")[1]), anchor_of(heading))
