"""Detects the format of a document by suffix, content type or first bytes. Reads no records."""

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from portico.sources.records import Document
from portico.sources.xml import root_name

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".rss": "feed",
    ".atom": "feed",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".pdf": "pdf",
    ".db": "sql",
    ".sqlite": "sql",
    ".sqlite3": "sql",
}
# A suffix that leaves much open (.xml, .yaml, these) is looked into first.
FALLBACKS = {".json": "json", ".jsonld": "json"}
CONTENT_TYPES = {
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/rss+xml": "feed",
    "application/atom+xml": "feed",
    "application/pdf": "pdf",
    "text/markdown": "markdown",
    "text/html": "html",
    "application/xhtml+xml": "html",
}
ROOTS = {
    "rss": "feed",
    "RDF": "feed",
    "feed": "feed",
    "urlset": "sitemap",
    "sitemapindex": "sitemap",
    "html": "html",
}
_HEAD = 64 * 1024
_OPENAPI_JSON = re.compile(rb'^\s*\{.{0,4000}?"openapi"\s*:\s*"3', re.DOTALL)
_OPENAPI_YAML = re.compile(rb"""^(?:\xef\xbb\xbf)?["']?openapi["']?\s*:\s*["']?3""", re.MULTILINE)
_GZIP = b"\x1f\x8b"


def by_name(name: str) -> str | None:
    """Return the format for the suffix of a path or URL, or None."""
    return SUFFIXES.get(suffix_of(name))


def suffix_of(name: str) -> str:
    path = urlsplit(name).path if name.startswith(("http://", "https://")) else name
    return PurePosixPath(path.replace("\\", "/")).suffix.lower()


def by_content(document: Document) -> str | None:
    """Return the format of an open document, or None if it is unknown."""
    kind = CONTENT_TYPES.get(document.content_type)
    if kind is not None:
        return kind
    document.file.seek(0)
    head = document.file.read(_HEAD)
    document.file.seek(0)
    return _by_bytes(head) or FALLBACKS.get(suffix_of(document.name))


def _by_bytes(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"SQLite format 3\x00"):
        return "sql"
    if head.startswith(_GZIP):
        return "sitemap"
    if text[:1] in (b"{", b"["):
        return "openapi" if _OPENAPI_JSON.match(text) else "json"
    if text[:1] == b"<":
        return "html" if text[:14].lower() == b"<!doctype html" else ROOTS.get(root_name(text) or "")
    return "openapi" if _OPENAPI_YAML.search(head) else None
