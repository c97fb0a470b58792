"""Tells where the files of a folder are on the web: below the `base_url` of their source. Fetches nothing."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import quote

from portico.sources.frontmatter import FrontMatter
from portico.sources.metadata import web_address
from portico.sources.records import Document

# Patterns of Jekyll by their names; the first is its default.
_PATTERNS = {
    "date": "/:categories/:year/:month/:day/:title.html",
    "pretty": "/:categories/:year/:month/:day/:title/",
    "ordinal": "/:categories/:year/:y_day/:title.html",
    "none": "/:categories/:title.html",
}
_INDEXES = frozenset(("index", "readme"))
_MARKDOWN = frozenset((".md", ".markdown"))
_PATH = "/!$&'()*+,;=:@~%"
_PLACEHOLDER = re.compile(r":([a-z_]+)")


def file_url(document: Document) -> str | None:
    """Return the address of a file on the web: its own, or its place below the base; None if neither is known."""
    if document.url or not document.base_url:
        return document.url
    path = PurePosixPath((document.path or PurePosixPath(document.name).name).replace("\\", "/"))
    if path.suffix.lower() in {*_MARKDOWN, ".html", ".htm"} and path.stem.lower() in _INDEXES:
        return _below(document.base_url, "" if path.parent == PurePosixPath() else f"{path.parent}/")
    # Hosts of Markdown serve a page without its suffix, and with or without a slash at the end.
    return _below(document.base_url, str(path.with_suffix("") if path.suffix.lower() in _MARKDOWN else path))


def page_url(document: Document, front: FrontMatter) -> str | None:
    """Return the address of a page that a site generator makes of a file."""
    own = front.fields.get("url")
    if isinstance(own, str) and own:
        return web_address(own, document.base_url) or own
    if document.url or not document.base_url:
        return document.url
    permalink = front.settings.get("permalink")
    pattern = permalink if isinstance(permalink, str) else document.permalink
    if front.is_post or (isinstance(permalink, str) and permalink):
        pattern = pattern or "date"
        return _below(document.base_url, _expand(_PATTERNS.get(pattern, pattern), front).lstrip("/"))
    return file_url(document)


def _expand(pattern: str, front: FrontMatter) -> str:
    date = str(front.fields.get("datePublished") or "")[:10]
    year, month, day = [*date.split("-"), "", "", ""][:3]
    slug = front.fields.get("slug")
    values: Mapping[str, str] = {
        "year": year,
        "short_year": year[2:],
        "month": month,
        "i_month": month.lstrip("0"),
        "day": day,
        "i_day": day.lstrip("0"),
        "title": slug if isinstance(slug, str) and slug else front.slug,
        "slug": slug if isinstance(slug, str) and slug else front.slug,
        "categories": "/".join(_texts(front.fields.get("categories"))).lower().replace(" ", "-"),
        "output_ext": ".html",
    }
    return re.sub("/{2,}", "/", _PLACEHOLDER.sub(lambda match: values.get(match[1], ""), pattern[:1000]))


def _texts(value: Any) -> Sequence[str]:
    return [one for one in cast("list[Any]", value) if isinstance(one, str)] if isinstance(value, list) else []


def _below(base_url: str, path: str) -> str:
    return f"{base_url.rstrip('/')}/{quote(path, safe=_PATH)}"
