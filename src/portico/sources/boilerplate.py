"""Finds the parts of a page that are not its text: menus, footers, cookie banners, lists of other pages.

Decides by names and roles of elements and by how much of their text is links. Never leaves out most of a page.
"""

import re
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

from portico.sources.walk import walk_nodes

MAX_SHARE = 0.5  # of the letters of a page that one part may have
MIN_KEPT = 0.25  # of the letters of a page: where less would be left, nothing is left out
_MANY_LINKS = 0.4  # of the letters of a part that is likely a menu
_MAX_NOTICE = 250

_ROLES = frozenset((
    "navigation", "banner", "contentinfo", "complementary", "search", "dialog", "alertdialog", "menu", "menubar",
    "toolbar", "tablist", "doc-toc",
))  # fmt: skip
_CONTENT = frozenset(("html", "body", "main", "h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "code", "tr"))
# Words that are the whole of an id or a class, or its parts between hyphens and underscores.
_CERTAIN = re.compile(
    r"cookie[-_]?(?:s[-_])?(?:banner|consent|notice|bar|law|popup|message|overlay|info|hint|layer|wall|disclaimer)"
    r"|(?:^|[-_])(?:gdpr|onetrust|cmplz|borlabs|usercentrics|cookiebot|breadcrumbs?|sharedaddy|relatedposts|navbox"
    r"|editsection|colophon|popup|advertisement|adsbygoogle|adslot|toc|comments?-(?:area|respond|form)|addtoany"
    r"|skip-(?:link|to-content)|screen-reader-text|visually-hidden|sr-only)(?:$|[-_])"
    r"|^ad-(?:slot|container|banner|wrapper|unit)|^cc-window|^cky-|^newsletter(?:$|[-_](?:popup|signup|form|box))"
    r"|^(?:message|post|user|forum)-signature|^(?:cart-drawer|announcement-bar|respond|comments|sidebar|widget-area)$"
    r"|(?:^|[-_])(?:left|right|site|page|blog|primary|secondary)[-_]?sidebar$"
    r"|^(?:(?:site|page|p|main|global|l|the|layout|section)[-_]?)?footer$|^footer-(?:bottom|area|widgets|wrapper|main)$"
    r"|^copyrights?$|^share-(?:buttons|links|bar)$|^social-(?:share|links|icons|media)$"
)
_LIKELY = re.compile(
    r"(?:^|[-_])(?:p-?nav|nav|navbar|navi|navigation|menu|(?:left|right|top|main|side)-?menu|header|topbar|masthead|sidebar"
    r"|side|secondary|widgets?|footer|bottom|related|recommend(?:ed|ations?)|more-stories|more|most-read|popular|recent"
    r"|archives?|tags?|categories|pagination|pager|share|social|links|contents|teasers?|promo)(?:$|[-_])"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NOTICE = re.compile(
    r"\A(?:©|\(c\) (?=\d)|copyright (?:©|\(c\)|\d))"
    r"|\b(?:all rights reserved|alle rechte vorbehalten|tous droits réservés|todos los derechos reservados)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Part:
    """The letters of an element, and those of its links; where it begins and ends among the nodes of its page."""

    start: int
    end: int = 0
    letters: int = 0
    linked: int = 0
    links: int = 0


def find_boilerplate(root: LexborNode | None) -> frozenset[int]:
    """Return the memory ids of the elements under a node that are not text of the page."""
    parts, candidates = _measure(root)
    total = parts[root.mem_id].letters if root is not None and root.mem_id in parts else 0
    omitted: set[int] = set()
    left_out = last_end = 0
    for node in candidates:
        part = parts[node.mem_id]
        is_inside = part.start < last_end
        if not is_inside and part.letters <= total * MAX_SHARE and _is_boilerplate(node, part):
            omitted.add(node.mem_id)
            left_out += part.letters
            last_end = part.end
    return frozenset(omitted) if total - left_out >= total * MIN_KEPT else frozenset()


def is_notice(text: str) -> bool:
    """Whether a short text is the copyright notice of a site."""
    return len(text) <= _MAX_NOTICE and _NOTICE.search(text) is not None


def _measure(root: LexborNode | None) -> tuple[dict[int, _Part], list[LexborNode]]:
    """Count the letters of all elements; return also those that may be boilerplate, the outer ones first."""
    parts: dict[int, _Part] = {}
    candidates: list[LexborNode] = []
    open_parts: list[_Part] = []
    links = 0
    for place, (node, is_start) in enumerate(walk_nodes(root), 1):
        if node.is_text_node:
            letters = len((node.text_content or "").strip())
            if open_parts:
                open_parts[-1].letters += letters
                open_parts[-1].linked += letters if links else 0
        elif is_start:
            part = parts[node.mem_id] = _Part(place)
            open_parts.append(part)
            links += node.tag == "a"
            if node.tag not in _CONTENT and _names(node):
                candidates.append(node)
        else:
            part = open_parts.pop()
            part.end = place
            links -= node.tag == "a"
            if open_parts:
                open_parts[-1].letters += part.letters
                open_parts[-1].linked += part.linked
                open_parts[-1].links += part.links + (node.tag == "a")
    return parts, candidates


def _is_boilerplate(node: LexborNode, part: _Part) -> bool:
    role, names = node.attributes.get("role") or "", _names(node)
    if role.lower() in _ROLES or any(_CERTAIN.search(name) for name in names):
        return True
    is_list = part.links > 1 and part.linked > part.letters * _MANY_LINKS
    return is_list and any(_LIKELY.search(name) for name in names)


def _names(node: LexborNode) -> list[str]:
    """Return the id and the classes of an element in small letters, and its role and tag where they count."""
    attributes = node.attributes
    text = f"{attributes.get('id') or ''} {attributes.get('class') or ''}"[:500]
    names = _CAMEL.sub("-", text).lower().replace("_", "-").split()
    if node.tag == "header":
        names.append("header")
    return names or ([f"role-{attributes['role']}"] if attributes.get("role") else [])
