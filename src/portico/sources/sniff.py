"""Detects the format of a document by suffix, content type or first bytes. Reads no records."""

import re
import zipfile
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from portico.errors import SourceError
from portico.network import url_path
from portico.sources import jsonld
from portico.sources.dialect import is_table
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
    ".docx": "docx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".parquet": "parquet",
    ".rst": "rst",
    ".ipynb": "ipynb",
    ".vcf": "vcf",
    ".vcard": "vcf",
    ".ics": "ics",
    ".ical": "ics",
    ".zip": "zip",
    ".gz": "gz",
    ".db": "sql",
    ".sqlite": "sql",
    ".sqlite3": "sql",
}
# A suffix that leaves much open (.xml, .yaml, these) is looked into first.
FALLBACKS = {".json": "json", ".jsonld": "json", ".geojson": "json", ".txt": "text", ".text": "text"}
CONTENT_TYPES = {
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/rss+xml": "feed",
    "application/atom+xml": "feed",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.apache.parquet": "parquet",
    "application/x-ipynb+json": "ipynb",
    "text/x-rst": "rst",
    "text/prs.fallenstein.rst": "rst",
    "text/vcard": "vcf",
    "text/x-vcard": "vcf",
    "text/calendar": "ics",
    "text/markdown": "markdown",
    "text/html": "html",
    "application/xhtml+xml": "html",
}
# What a content type stands for that servers also give for files of other kinds.
TYPE_FALLBACKS = {"text/plain": "text"}
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
# What an OpenAPI document may begin with: other JSON is not read to its end to find out.
_API_MEMBER = re.compile(
    rb'^(?:\xef\xbb\xbf)?\s*\{\s*"(?:openapi|swagger|info|jsonSchemaDialect|servers|paths|webhooks|components|security|tags'
    rb'|externalDocs|host|basePath|schemes|consumes|produces|definitions|parameters|responses|securityDefinitions|x-[^"]*)"'
)
_API_JSON = re.compile(rb'"(?:openapi|swagger)"\s*:\s*"[23]\.')
_API_YAML = re.compile(rb"""^["']?(?:openapi|swagger)["']?\s*:\s*["']?[23]\.""", re.MULTILINE)
_PATHS_YAML = re.compile(rb"""^["']?paths["']?\s*:""", re.MULTILINE)
_ZIP, _GZIP = b"PK\x03\x04", b"\x1f\x8b"
_MAGIC = {
    b"%PDF-": "pdf",
    b"SQLite format 3\x00": "sql",
    b"PAR1": "parquet",
    _GZIP: "gz",
}
# Parts that tell what a zip file is.
_PARTS = {"word/document.xml": "docx", "xl/workbook.xml": "xlsx"}
_BEGIN = {b"BEGIN:VCARD": "vcf", b"BEGIN:VCALENDAR": "ics"}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def by_name(name: str) -> str | None:
    """Return the format for the suffix of a path or URL, or None."""
    return SUFFIXES.get(suffix_of(name))


def suffix_of(name: str) -> str:
    path = url_path(name) if name.startswith(("http://", "https://")) else name
    return PurePosixPath(path.replace("\\", "/")).suffix.lower()


def by_content(document: Document) -> str | None:
    """Return the format of an open document, or None if it is unknown."""
    kind = CONTENT_TYPES.get(document.content_type)
    if kind is not None:
        return kind
    head = _head(document.file)
    if head.startswith(_ZIP):
        return _kind_of_zip(document.file)
    if head.startswith(_OLE):
        hint = "Save it as .xlsx or .docx."
        raise SourceError(f"{document.name} is a file of an old Office program, which is not read.", hint=hint)
    fallback = FALLBACKS.get(suffix_of(document.name)) or TYPE_FALLBACKS.get(document.content_type)
    kind = _by_bytes(head) or fallback
    if kind in (None, "json") and _describes_api(document, head):
        return "openapi"
    return "csv" if kind == "text" and is_table(head.decode("utf-8", "replace")) else kind


def _describes_api(document: Document, head: bytes) -> bool:
    """Whether a file is an OpenAPI document whose version comes late, as where keys are sorted, or one of Swagger."""
    is_json = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    if is_json and not _API_MEMBER.match(head):
        return False
    text = document.read() or b""
    document.file.seek(0)
    if not is_json:
        return bool(_API_YAML.search(text) and _PATHS_YAML.search(text))
    if not _API_JSON.search(text):
        return False
    try:
        value = jsonld.decode(text)
    except jsonld.InvalidJson:
        return False
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return isinstance(members.get("paths"), dict) and ("openapi" in members or "swagger" in members)


def packing(document: Document) -> str | None:
    """Return "gz" or "zip" for a packed file, whatever its name is."""
    head = _head(document.file)
    if head.startswith(_ZIP):
        return "zip"
    return "gz" if head.startswith(_GZIP) else None


def _head(file: BinaryIO) -> bytes:
    file.seek(0)
    head = file.read(_HEAD)
    file.seek(0)
    return head


def _kind_of_zip(file: BinaryIO) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        names = set[str]()
    file.seek(0)
    return next((kind for part, kind in _PARTS.items() if part in names), "zip")


def _by_bytes(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    magic = next((kind for mark, kind in _MAGIC.items() if head.startswith(mark)), None)
    if magic:
        return magic
    begin = next((kind for mark, kind in _BEGIN.items() if text[: len(mark)].upper() == mark), None)
    if begin:
        return begin
    if text[:1] in (b"{", b"["):
        return "openapi" if _OPENAPI_JSON.match(text) else "json"
    if text[:1] == b"<":
        return "html" if text[:14].lower() == b"<!doctype html" else ROOTS.get(root_name(text) or "")
    return "openapi" if _OPENAPI_YAML.search(head) else None
