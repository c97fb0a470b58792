"""Reads web pages and Markdown: JSON-LD if there is any, else microdata, else passages of plain text.

Never runs a page and never keeps its markup: passages hold no tags.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import yaml
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from portico.sources import jsonld, microdata
from portico.sources.html import TooDeep, parse_html
from portico.sources.plain import load_yaml, plain_object
from portico.sources.records import BadRecord, Document, Entry, Record, id_of, too_large
from portico.sources.walk import TextBlock, iter_text_blocks

MIN_WORDS, MAX_WORDS = 150, 250
_SMALL_SECTION = 60  # a section of fewer words shares its passage with the next
_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_FENCES = {"---": "yaml", "+++": "toml"}
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
# Common names in front matter, and their names in schema.org.
_FRONT_NAMES = {"title": "name", "date": "datePublished", "tags": "keywords", "summary": "description"}
_COMMENT = re.compile(r"^\s*<!--(.*)-->\s*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A parsed page: `id` is its URL or its path, `fields` is its front matter."""

    tree: LexborHTMLParser
    id: str
    url: str | None = None
    where: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])


def read_html(document: Document) -> Iterator[Entry]:
    text = document.read()
    if text is None:
        yield too_large(document.name)
        return
    try:
        page = parse_page(text, document.url or document.name, document.url, document.name)
    except TooDeep as problem:
        yield BadRecord(document.name, str(problem))
    else:
        yield from records(page)


def read_markdown(document: Document) -> Iterator[Entry]:
    text = document.read()
    if text is None:
        yield too_large(document.name)
        return
    try:
        fields, body = front_matter(text.decode("utf-8-sig"))
        tree = parse_html(_MARKDOWN.render(body))
    except UnicodeDecodeError:
        yield BadRecord(document.name, "is not UTF-8")
    except TooDeep as problem:
        yield BadRecord(document.name, str(problem))
    except (yaml.YAMLError, tomllib.TOMLDecodeError, InvalidFrontMatter) as problem:
        yield BadRecord(document.name, f"has front matter that cannot be read: {_one_line(str(problem))}")
    else:
        url = _text(fields.get("url")) or document.url
        identity = _text(fields.get("@id")) or url or document.name
        yield from records(HtmlPage(tree, identity, url, document.name, fields))


def parse_page(text: bytes, identity: str, url: str | None, where: str) -> HtmlPage:
    return HtmlPage(parse_html(text), identity, url, where)


def records(page: HtmlPage) -> Iterator[Entry]:
    embedded = list(_json_ld_entries(page))
    yield from (entry for entry in embedded if isinstance(entry, BadRecord))
    data: list[Entry] = [entry for entry in embedded if isinstance(entry, Record)] or list(_microdata(page))
    yield from data
    if not any(isinstance(entry, Record) for entry in data):
        yield from passages(page)


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


class InvalidFrontMatter(ValueError):
    """Front matter that is not a table of fields."""


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields between the fences, and the text after them."""
    first, _, rest = text.partition("\n")
    language = _FENCES.get(first.strip())
    if language is None:
        return {}, text
    closing = re.compile(rf"^{re.escape(first.strip())}[ \t]*\r?$", re.MULTILINE).search(rest)
    if closing is None:
        return {}, text  # a rule, not a fence
    head = rest[: closing.start()]
    fields: Any = load_yaml(head) if language == "yaml" else tomllib.loads(head.replace("\r\n", "\n"))
    if fields is not None and not isinstance(fields, dict):
        raise InvalidFrontMatter("it is not a table of fields")
    return plain_object(cast("dict[Any, Any]", fields or {})), rest[closing.end() :]


def passages(page: HtmlPage) -> Iterator[Entry]:
    title = _title(page)
    count = 0
    for count, (heading, text) in enumerate(_split(iter_text_blocks(_main_element(page.tree))), 1):
        yield _passage(page, title, heading, text, count)
    description = _meta(page.tree, "description")
    if not count and (description or page.fields):
        yield _passage(page, title, "", description, 1)
    elif not count:
        yield BadRecord(page.where, "has no text")


def _passage(page: HtmlPage, title: str, heading: str, text: str, position: int) -> Record:
    language = page.tree.css_first("html[lang]")
    data = {
        "@type": "WebPage",
        "name": title,
        "inLanguage": (language.attributes.get("lang") or "") if language else "",
        **{_FRONT_NAMES.get(name, name): value for name, value in page.fields.items() if name not in ("@id", "id")},
        "headline": heading,
        "text": text,
        "url": page.url,
        "position": position,
        "isPartOf": {"@id": page.id},
    }
    return Record({name: value for name, value in data.items() if value}, page.where, f"{page.id}#{position}")


def _split(blocks: Iterator[TextBlock]) -> Iterator[tuple[str, str]]:
    """Yield passages of about 150 to 250 words, each with the heading above it."""
    heading, parts, words = "", list[str](), 0
    for block in blocks:
        if block.is_heading and words < _SMALL_SECTION and not parts:
            heading = block.text
            continue
        for piece in _pieces(block.text):
            size = len(piece.split())
            is_new_section = block.is_heading and words >= _SMALL_SECTION
            if parts and (is_new_section or words + size > MAX_WORDS):
                yield heading, "\n\n".join(parts)
                parts, words = [], 0
            if block.is_heading and not parts:
                heading = block.text
                continue
            parts.append(piece)
            words += size
            if words >= MIN_WORDS and not block.is_heading:
                yield heading, "\n\n".join(parts)
                parts, words = [], 0
    if parts:
        yield heading, "\n\n".join(parts)


def _pieces(text: str) -> Iterator[str]:
    """Split a long paragraph into parts of at most 250 words, between sentences where possible."""
    if len(text.split()) <= MAX_WORDS:
        yield text
        return
    part: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        words = sentence.split()
        if part and len(part) + len(words) > MAX_WORDS:
            yield " ".join(part)
            part = []
        part += words
        while len(part) > MAX_WORDS:
            yield " ".join(part[:MAX_WORDS])
            part = part[MAX_WORDS:]
    if part:
        yield " ".join(part)


def _main_element(tree: LexborHTMLParser) -> LexborNode | None:
    """Return the main content of a page."""
    for selector in ("main", "[role=main]", "article"):
        matches = tree.css(selector)
        if len(matches) == 1 and matches[0].text(strip=True):
            return matches[0]
    return tree.body or tree.root


def _title(page: HtmlPage) -> str:
    name = _text(page.fields.get("name")) or _text(page.fields.get("title"))
    if name:
        return name
    for selector in ("head title", "h1"):
        element = page.tree.css_first(selector)
        if element and (text := _one_line(element.text())):
            return text
    return _meta(page.tree, "og:title") or page.id


def _meta(tree: LexborHTMLParser, name: str) -> str:
    for attribute in ("name", "property"):
        element = tree.css_first(f'meta[{attribute}="{name}"]')
        if element and (content := element.attributes.get("content")):
            return _one_line(content)
    return ""


def _json_ld_entries(page: HtmlPage) -> Iterator[Entry]:
    for number, script in enumerate(page.tree.css('script[type="application/ld+json"]'), 1):
        text = script.text()
        inside = _COMMENT.match(text)
        for entry in jsonld.entries(
            (inside[1] if inside else text).strip().encode(), f"{page.where} (JSON-LD {number})"
        ):
            yield _add_page_context(entry, page) if isinstance(entry, Record) else entry


def _microdata(page: HtmlPage) -> Iterator[Entry]:
    try:
        for item in microdata.items(page.tree, base_of(page)):
            yield _add_page_context(Record(item, page.where, id_of(item)), page)
    except microdata.TooManyProperties as problem:
        yield BadRecord(page.where, str(problem))


def _add_page_context(record: Record, page: HtmlPage) -> Record:
    """Return a record with an absolute id, the URL of its page and the fields of the front matter."""
    data = {**page.fields, **record.data}
    if page.url and "url" not in data:
        data["url"] = page.url
    identity = record.id and (_join(page.url or page.id, record.id))
    return Record(data, page.where, identity or None)


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base.partition("#")[0] + reference
    return urljoin(base, reference) if urlsplit(base).scheme in ("http", "https") else reference or base


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
