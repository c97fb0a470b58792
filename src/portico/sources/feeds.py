"""Reads RSS and Atom entries as schema.org Articles. Never lets feedparser fetch anything."""

import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

import feedparser  # pyright: ignore[reportMissingTypeStubs]

from portico.errors import SourceError
from portico.sources.metadata import web_address
from portico.sources.pages import text_of_html
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Document, Doubt, Entry, Record, Remark
from portico.sources.xml import refuse_entities

_parse = cast("Callable[..., Mapping[str, Any]]", feedparser.parse)  # pyright: ignore[reportUnknownMemberType]

_PICTURE = re.compile(r"""<img\s[^<>]{0,1000}?\bsrc\s*=\s*["']([^"'<>\s]{1,2000})["']""", re.IGNORECASE)
_MAX_PICTURE_AT = 20_000  # characters of a text that are searched for a picture
_MAILBOX = re.compile(r"[^\s@]+@\S+ \((.+)\)")


def read(document: Document) -> Iterator[Entry]:
    text = document.read()
    if text is None:
        raise SourceError(f"The feed {document.name} is larger than {MAX_RECORD_BYTES >> 20} MB.")
    refuse_entities(text, document.name)
    # A stream, not bytes: feedparser takes bytes for the name of a file to open.
    try:
        feed = _parse(io.BytesIO(text), sanitize_html=False, resolve_relative_uris=False)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem:
        raise SourceError(f"{document.name} is not a readable feed: {problem}") from problem
    if not feed.get("version") and not feed["entries"]:
        raise SourceError(f"{document.name} is not an RSS or Atom feed.")
    base = _base(feed, document)
    records: dict[str, Record] = {}
    repeated = 0
    for number, item in enumerate(feed["entries"], 1):
        # A plain dictionary: feedparser's own invents fields that the feed does not have.
        plain = dict(item)
        place = f"{document.name}#{number}"
        yield from _doubts(plain, place)
        entry = _entry(plain, base, place)
        if isinstance(entry, BadRecord):
            yield entry
            continue
        key = entry.id or place
        repeated += key in records
        records[key] = _merged(records[key], entry) if key in records else entry
    yield from records.values()
    if repeated:
        yield Remark(document.name, f"entries that repeat the id of another were merged with it: {repeated:,}")


def _base(feed: Mapping[str, Any], document: Document) -> str:
    """Return the base of links that are still relative after `xml:base`, which feedparser applies."""
    if document.base_url:
        return f"{document.base_url.rstrip('/')}/"
    return _web_address(feed["feed"].get("link"), document.url or "") or document.url or ""


def _merged(first: Record, second: Record) -> Record:
    """Return one record of two with one id: the later version, completed by the other."""
    is_later = str(second.data.get("dateModified", "")) > str(first.data.get("dateModified", ""))
    older, newer = (first, second) if is_later else (second, first)
    return Record({**older.data, **newer.data}, first.where, first.id)


def _doubts(entry: Mapping[str, Any], where: str) -> Iterator[Doubt]:
    for name, field in (("published", "datePublished"), ("updated", "dateModified")):
        value = str(entry.get(name) or "").strip()
        if value and not entry.get(f"{name}_parsed"):
            yield Doubt(where, "is not a date that is known here", field, value[:80])


def _entry(entry: Mapping[str, Any], base: str, where: str) -> Record | BadRecord:
    title = text_of_html(str(entry.get("title") or ""))
    url = _web_address(entry.get("link"), base)
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
        "image": _image(entry, url or base),
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


def _image(entry: Mapping[str, Any], base: str) -> str:
    """Return the picture of an entry: that of its media or enclosures, else the first in its text."""
    media = [*(entry.get("media_thumbnail") or ()), *(entry.get("media_content") or ())]
    pictures = [one.get("url") for one in media if str(one.get("medium") or "image") == "image"]
    for link in entry.get("links") or ():
        if link.get("rel") == "enclosure" and str(link.get("type")).startswith("image/"):
            pictures.append(link.get("href"))
    parts = cast("list[Mapping[str, Any]]", [*(entry.get("content") or ()), entry.get("summary_detail") or {}])
    pictures.append(cast("Mapping[str, Any]", entry.get("image") or {}).get("href"))
    for part in parts:
        pictures += [match[1] for match in islice(_PICTURE.finditer(str(part.get("value") or "")[:_MAX_PICTURE_AT]), 1)]
    return next((address for one in pictures if (address := _web_address(one, base))), "")


def _web_address(value: Any, base: str) -> str:
    """Return an http URL, or an empty text: a feed must not pass on `javascript:` links."""
    return web_address(str(value or ""), base)
