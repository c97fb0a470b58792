"""Reads web pages and Markdown: one item for what a page is about, with its text; else passages of the text.

Never runs a page and never keeps its markup: texts hold no tags.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from portico.network import join_url, url_path
from portico.sources import jsonld, microdata
from portico.sources.boilerplate import find_boilerplate, is_notice
from portico.sources.entities import MAX_NODES, complete, find_subject, is_article, types_of
from portico.sources.frontmatter import InvalidFrontMatter, read_front_matter
from portico.sources.html import TooDeep, parse_html
from portico.sources.metadata import PageMetadata, web_address
from portico.sources.passages import Passage, PassageTitles, cut
from portico.sources.records import (
    BadRecord,
    Document,
    Doubt,
    Entry,
    Record,
    Remark,
    id_of,
    too_large,
)
from portico.sources.text import decode_page, read_text
from portico.sources.walk import TextBlock, iter_text_blocks
from portico.sources.web_paths import file_url, page_url

Fields = dict[str, Any]

_MAX_TEXT = 200_000  # characters of the text of one item
_MAX_PAGE_WORDS = 1000  # of a page that is one item; a longer one is cut into passages
_OWN_ITEM_WORDS = 25  # from which on the text beside the things of a page is an item too
_PAGE_FIELDS = ("description", "image", "author", "datePublished", "dateModified", "keywords", "inLanguage")
_LINKS = ("url", "image")
_FRAGMENT = "!$&'()*+,;=:@/?-._~%"
_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_HEADING_ID = re.compile(r"^(#{1,6} .{0,500}?)[ \t]*\{#([\w-]{1,100})\}[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*<!--(.*)-->\s*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A parsed page: `id` is its URL or its path, `fields` is its front matter."""

    tree: LexborHTMLParser
    id: str
    url: str | None = None  # where it is on the web
    where: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    slug: str = ""  # what the name of its file calls it
    notes: tuple[Entry, ...] = ()  # what the report should say of it
    is_generated: bool = False  # from Markdown: generators give each heading an id made of its text


def read_html(document: Document, encoding: str = "") -> Iterator[Entry]:
    raw = document.read()
    if raw is None:
        yield too_large(document.name)
        return
    text, notes = decode_page(raw, document.name, encoding)
    yield from notes
    if text.startswith("---"):
        yield from _read_with_front_matter(text, document, str)
        return
    try:
        tree = parse_html(text)
    except TooDeep as problem:
        yield BadRecord(document.name, str(problem))
    else:
        yield from records(HtmlPage(tree, document.url or document.name, file_url(document), document.name))


def read_markdown(document: Document, encoding: str = "") -> Iterator[Entry]:
    text, notes = read_text(document, encoding)
    yield from notes
    if text or not notes:
        yield from _read_with_front_matter(text, document, _render)


def _read_with_front_matter(text: str, document: Document, render: Callable[[str], str]) -> Iterator[Entry]:
    try:
        front = read_front_matter(text, document.path or document.name)
        if front.is_draft:
            yield Remark(document.name, "is a draft and was left out")
            return
        tree = parse_html(render(front.text))
    except TooDeep as problem:
        yield BadRecord(document.name, str(problem))
    except InvalidFrontMatter as problem:
        yield BadRecord(document.name, f"has front matter that cannot be read: {problem}")
    else:
        identity = _text(front.fields.get("@id")) or _text(front.fields.get("url")) or document.url or document.name
        address = page_url(document, front)
        fields = {name: value for name, value in front.fields.items() if name != "url"}
        yield from records(
            HtmlPage(tree, identity, address, document.name, fields, front.slug, is_generated=render is _render)
        )


def _render(text: str) -> str:
    return _MARKDOWN.render(_HEADING_ID.sub(r'\1 <a id="\2"></a>', text))


def parse_page(text: bytes, identity: str, url: str | None, where: str) -> HtmlPage:
    decoded, notes = decode_page(text, where)
    return HtmlPage(parse_html(decoded), identity, url, where, notes=tuple(notes))


def records(page: HtmlPage) -> Iterator[Entry]:
    """Yield the item of a page, or its several items: what it is about, with its text; else passages of its text."""
    linked, problems = _linked_data(page)
    yield from (*page.notes, *problems)
    try:
        embedded = list(microdata.items(page.tree, base_of(page)))
    except microdata.TooManyProperties as problem:
        yield BadRecord(page.where, str(problem))
        embedded = []
    head = PageMetadata(page.tree, base_of(page))
    subject = find_subject(linked, embedded, page.url or head.address())
    entities = subject.entities or list(filter(None, (head.product(),)))
    blocks = main_text(page.tree)
    if len(entities) == 1:
        yield from _single(entities[0], page, head, blocks)
    elif entities:
        yield from _several(entities, page, head, blocks)
    elif linked or embedded:
        yield from _page(subject.page, page, head, blocks)
    else:
        yield from _passages({}, page, head, blocks)


def base_of(page: HtmlPage) -> str:
    """Return the base of relative links."""
    declared = page.tree.css_first("base[href]")
    href = (declared.attributes.get("href") or "") if declared else ""
    return _join(page.url or "", href.strip())


def text_of_html(html: str) -> str:
    """Return the plain text of a fragment, with blank lines between paragraphs."""
    if "<" not in html and "&" not in html:
        return " ".join(html.split())
    try:
        root = parse_html(html).root
    except TooDeep:
        return ""
    return "\n\n".join(block.text for block in iter_text_blocks(root)) if root else ""


def passages(page: HtmlPage) -> Iterator[Entry]:
    """Yield the text of a page in passages, whatever data it holds."""
    head = PageMetadata(page.tree, base_of(page))
    yield from _passages({}, page, head, main_text(page.tree))


def _single(entity: Fields, page: HtmlPage, head: PageMetadata, blocks: list[TextBlock]) -> Iterator[Entry]:
    """Yield the one thing that a page is about, with the text of the page as its body."""
    title = _name(entity) or _title(page, head)
    data = complete(entity, [head.fields()])
    yield from _with_text(data, _text_of(blocks, title), page)
    yield _entity_record(data, page, head, title, _identity(entity, page) or page.id)


def _several(entities: list[Fields], page: HtmlPage, head: PageMetadata, blocks: list[TextBlock]) -> Iterator[Entry]:
    """Yield things of equal rank, each with the text below its name. What a page says beside them is an item too."""
    sections, rest = _sections(blocks, [_name(entity) for entity in entities])
    identities = set[str]()
    for number, entity in enumerate(entities):
        data = dict(entity)
        yield from _with_text(data, sections.get(number, ""), page)
        identity = _identity(entity, page) or f"{page.id}#{_slug(_name(entity)) or number + 1}"
        while identity in identities:
            identity = f"{identity}-{number + 1}"
        identities.add(identity)
        yield _entity_record(data, page, head, _name(entity), identity)
    if sum(len(block.text.split()) for block in rest) >= _OWN_ITEM_WORDS:
        yield from _page({}, page, head, rest)


def _page(fields: Fields, page: HtmlPage, head: PageMetadata, blocks: list[TextBlock]) -> Iterator[Entry]:
    """Yield a page that is about nothing but itself: as one item, if it is not long."""
    title = _title(page, head)
    text = _text_of(blocks, title)
    if len(text.split()) > _MAX_PAGE_WORDS:
        yield from _passages(fields, page, head, blocks)
        return
    data = {**_page_fields(fields, page, head), "name": title, "text": text, "url": _address(page, head)}
    if text or data.get("description"):
        yield Record(_filled(data), page.where, page.id)
    else:
        yield BadRecord(page.where, "has no text")


def _passages(fields: Fields, page: HtmlPage, head: PageMetadata, blocks: list[TextBlock]) -> Iterator[Entry]:
    title = _title(page, head)
    titles = PassageTitles(title)
    common = _page_fields(fields, page, head)
    # That of a head is about all of the page: in each passage it would outweigh its text.
    description = "" if "description" in page.fields else common.pop("description", "")
    parts = list(cut(blocks)) or ([Passage(description)] if description or page.fields else [])
    address = _address(page, head)
    for position, passage in enumerate(parts, 1):
        anchor = _anchor(passage, page) if passage.heading != title else ""
        data = {
            **common,
            "name": titles.name(passage) if len(parts) > 1 else title,
            "description": common.get("description") or (description if position == 1 else ""),
            "headline": passage.heading,
            "text": passage.text,
            "url": f"{address}#{quote(anchor, safe=_FRAGMENT)}" if address and anchor else address,
            "position": position,
            "isPartOf": {"@id": page.id},
        }
        yield Record(_filled(data), page.where, f"{page.id}#{position}")
    if not parts:
        yield BadRecord(page.where, "has no text")


def _anchor(passage: Passage, page: HtmlPage) -> str:
    if passage.anchor or not page.is_generated:
        return passage.anchor
    return re.sub(r"[^\w\- ]", "", passage.heading.lower()).replace(" ", "-")


def _entity_record(data: Fields, page: HtmlPage, head: PageMetadata, title: str, identity: str) -> Record:
    address, base = _address(page, head), base_of(page)
    named = data if "name" in data or not title else {**data, "name": title}
    links = {name: web_address(value, base) or value for name in _LINKS if isinstance(value := named.get(name), str)}
    return Record(_filled({**page.fields, "url": address, **named, **links}, keep=named), page.where, identity)


def _page_fields(fields: Fields, page: HtmlPage, head: PageMetadata) -> Fields:
    """Return what the page says of itself: in its front matter, in its linked data, in its head."""
    types = [name for name in types_of(fields) if name not in ("", "WebPage")]
    known = {name: fields[name] for name in _PAGE_FIELDS if fields.get(name)}
    if isinstance(known.get("image"), dict):
        known["image"] = known["image"].get("url") or known["image"].get("contentUrl") or ""
    language = known.get("inLanguage") or head.language
    own = {name: value for name, value in page.fields.items() if name not in ("@id", "id")}
    data = {**head.fields(), **known, "inLanguage": language, **own}
    if isinstance(image := data.get("image"), str):
        data["image"] = web_address(image, base_of(page)) or image
    return {"@type": types[0] if len(types) == 1 else "WebPage", **data}


def _with_text(data: Fields, text: str, page: HtmlPage) -> Iterator[Entry]:
    """Add the text of its page to a thing that has none."""
    if not text or any(data.get(name) for name in ("text", "articleBody", "reviewBody")):
        return
    data["articleBody" if is_article(data) else "text"] = text[:_MAX_TEXT]
    if len(text) > _MAX_TEXT:
        yield Doubt(page.where, f"the text is longer than {_MAX_TEXT:,} characters and was cut", value=text[:80])


def _sections(blocks: list[TextBlock], names: list[str]) -> tuple[dict[int, str], list[TextBlock]]:
    """Return the text below the name of each thing, by its number, and the blocks that are below none of them."""
    numbers = {_folded(name): number for number, name in reversed(list(enumerate(names))) if name}
    sections: dict[int, list[str]] = {}
    rest: list[TextBlock] = []
    current, level = None, 0
    for block in blocks:
        number = numbers.get(_folded(block.text))
        if number is not None and number not in sections:
            current, level = sections.setdefault(number, []), block.level
        elif current is None or (block.level and block.level <= (level or 6)):
            current = None
            rest.append(block)
        else:
            current.append(block.text)
    return {number: "\n\n".join(texts) for number, texts in sections.items()}, rest


def _text_of(blocks: list[TextBlock], title: str) -> str:
    return "\n\n".join(block.text for block in blocks if not (block.level and _folded(block.text) == _folded(title)))


def _identity(entity: Fields, page: HtmlPage) -> str:
    identity = id_of(entity)
    return _join(page.id, identity) if identity else ""


def _address(page: HtmlPage, head: PageMetadata) -> str:
    return page.url or head.address()


def _name(entity: Fields) -> str:
    return _one_line(_text(entity.get("name")) or _text(entity.get("headline")))


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name.casefold()).strip("-")[:80]


def _folded(text: str) -> str:
    return _one_line(text).casefold()


def _filled(data: Fields, keep: Fields | None = None) -> Fields:
    """Return the fields that have a value; those of `keep` also without one."""
    return {name: value for name, value in data.items() if value not in ("", None, [], {}) or (keep and name in keep)}


def main_text(tree: LexborHTMLParser) -> list[TextBlock]:
    """Return the text of a page without its menus, footers and the like."""
    root = _main_element(tree)
    return [block for block in iter_text_blocks(root, find_boilerplate(root)) if not is_notice(block.text)]


def _main_element(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the main content of a page."""
    for selector in ("main", "[role=main]", "article"):
        matches = tree.css(selector)
        if len(matches) == 1 and matches[0].text(strip=True):
            return matches[0]
    return tree.body or tree.root


def _title(page: HtmlPage, head: PageMetadata) -> str:
    return _text(page.fields.get("name")) or head.title() or _title_of_address(page.slug or page.id) or page.id


def _title_of_address(address: str) -> str:
    """Return the last part of an address or a path as a title: "Opening hours" for /visit/opening-hours.html."""
    path = url_path(address) if "://" in address else address
    parts = [part for part in re.split(r"[/\\]", unquote(path)) if part]
    stem = re.sub(r"\.\w{1,8}\Z", "", parts[-1]) if parts else ""
    if stem.lower() in ("index", "readme") and len(parts) > 1:
        stem = parts[-2]
    words = re.sub(r"[\s_+-]+", " ", stem).strip()
    return words[:1].upper() + words[1:] if re.search(r"[^\W\d_]", words) else ""


def _linked_data(page: HtmlPage) -> tuple[list[Fields], list[Entry]]:
    """Return the nodes of all JSON-LD of a page, and what cannot be read of it."""
    linked: list[Fields] = []
    problems: list[Entry] = []
    for number, script in enumerate(page.tree.css('script[type="application/ld+json"]'), 1):
        text = script.text()
        inside = _COMMENT.match(text)
        place = f"{page.where} (JSON-LD {number})"
        for entry in jsonld.entries((inside[1] if inside else text).strip().encode("utf-8", "replace"), place):
            if isinstance(entry, Record):
                linked.append(entry.data)
            elif isinstance(entry, BadRecord):
                problems.append(entry)
    if len(linked) > MAX_NODES:
        problems.append(Doubt(page.where, f"has {len(linked):,} JSON-LD nodes; the first {MAX_NODES:,} were read"))
    return linked[:MAX_NODES], problems


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base.partition("#")[0] + reference
    return join_url(base, reference) if base.startswith(("http://", "https://")) else reference or base


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
