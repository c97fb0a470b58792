"""Reads RSS and Atom entries as schema.org Articles. Never lets feedparser fetch anything."""

import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import feedparser  # pyright: ignore[reportMissingTypeStubs]

from portico.errors import SourceError
from portico.sources.pages import text_of_html
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Document, Entry, Record
from portico.sources.xml import refuse_entities

_parse = cast("Callable[..., Mapping[str, Any]]", feedparser.parse)  # pyright: ignore[reportUnknownMemberType]

_MAILBOX = re.compile(r"[^\s@]+@\S+ \((.+)\)")


def read(document: Document) -> Iterator[Entry]:
    text = document.read()
    if text is None:
        raise SourceError(f"The feed {document.name} is larger than {MAX_RECORD_BYTES >> 20} MB.")
    refuse_entities(text, document.name)
    # A stream, not bytes: feedparser takes bytes for the name of a file to open.
    feed = _parse(io.BytesIO(text), sanitize_html=False, resolve_relative_uris=False)
    if not feed.get("version") and not feed["entries"]:
        raise SourceError(f"{document.name} is not an RSS or Atom feed.")
    for number, entry in enumerate(feed["entries"], 1):
        # A plain dictionary: feedparser's own invents fields that the feed does not have.
        yield _entry(dict(entry), document, f"{document.name}#{number}")


def _entry(entry: Mapping[str, Any], document: Document, where: str) -> Entry:
    title = text_of_html(str(entry.get("title") or ""))
    url = _web_address(entry.get("link"), document.url)
    summary = text_of_html(str(entry.get("summary") or ""))
    body = _body(entry)
    if not (title or summary or body):
        return BadRecord(where, "has neither a title nor a text")
    data = {
        "@type": "Article",
        "headline": title,
        "name": title,
        "description": summary or body,
        "articleBody": body if body != summary else "",
        "url": url,
        "datePublished": _instant(entry.get("published_parsed") or entry.get("updated_parsed")),
        "dateModified": _instant(entry.get("updated_parsed")),
        "author": _authors(entry),
        "keywords": [term for tag in entry.get("tags") or () if (term := tag.get("term"))],
        "image": _image(entry, document.url),
    }
    return Record({name: value for name, value in data.items() if value}, where, entry.get("id") or url or None)


def _body(entry: Mapping[str, Any]) -> str:
    return text_of_html("\n".join(str(part.get("value") or "") for part in entry.get("content") or ()))


def _instant(parsed: Any) -> str:
    """Return a time of feedparser, which is in UTC, as ISO text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", cast("time.struct_time", parsed)) if parsed else ""


def _authors(entry: Mapping[str, Any]) -> list[dict[str, str]] | dict[str, str]:
    # RSS 2.0 writes "name@host (Name)", which feedparser splits wrongly under long top-level domains.
    mailbox = _MAILBOX.fullmatch(str(entry.get("author") or "").strip())
    author_names = [author.get("name") for author in entry.get("authors") or ()]
    names = [mailbox[1]] if mailbox else [name for name in author_names if name]
    people = [{"@type": "Person", "name": str(name)} for name in names]
    return people[0] if len(people) == 1 else people


def _image(entry: Mapping[str, Any], base: str | None) -> str:
    media = [*(entry.get("media_thumbnail") or ()), *(entry.get("media_content") or ())]
    pictures = [one.get("url") for one in media if str(one.get("medium") or "image") == "image"]
    for link in entry.get("links") or ():
        if link.get("rel") == "enclosure" and str(link.get("type")).startswith("image/"):
            pictures.append(link.get("href"))
    return next((address for one in pictures if (address := _web_address(one, base))), "")


def _web_address(value: Any, base: str | None) -> str:
    """Return an http URL, or None: a feed must not pass on `javascript:` links."""
    address = urljoin(base or "", str(value or "").strip())
    return address if urlsplit(address).scheme in ("http", "https") else ""
