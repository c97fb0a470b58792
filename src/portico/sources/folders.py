"""Reads the files of a folder or an archive, each by its kind. Never reads a file silently not at all.

Documents fill the collection of the source. A table fills a collection of its own, named after its file. Of a Jekyll
site it reads the pages and the posts, not the templates and not what was built of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, cast

import yaml

from portico.errors import SourceError
from portico.sources import sniff
from portico.sources.plain import load_yaml
from portico.sources.records import BadRecord, Document, Entry, Record, Remark, collection_name

DOCUMENTS = frozenset(("markdown", "html", "pdf", "text", "docx", "rst", "ipynb"))
_PAGES = frozenset(("markdown", "html"))
TABLES = frozenset(("csv", "tsv", "json", "jsonl", "xlsx", "parquet", "vcf", "ics"))
# What else a folder may hold, and why it is not read.
_ALONE = {
    "sql": "is a database; load it as a source of its own",
    "openapi": "describes operations; load it as a source of its own",
    "sitemap": "lists pages of the web; load it as a source of its own",
    "zip": "is an archive inside; unpack it, or load it as a source of its own",
}
# Files of tools, whose suffix says something else.
_TOOLS = frozenset((
    "package.json", "package-lock.json", "composer.json", "composer.lock", "tsconfig.json", "jsconfig.json",
    "manifest.json", "renovate.json", "vercel.json", "lerna.json", "requirements.txt", "robots.txt", "humans.txt",
))  # fmt: skip
TOOL_FOLDERS = frozenset(("node_modules", "__pycache__"))
_MAX_SUFFIXES = 8
_SITE_SETTINGS = frozenset(("_config.yml", "_config.yaml"))
# Folders of a Jekyll site without content.
_SITE_FOLDERS = frozenset(("_layouts", "_includes", "_site", "_sass", "_plugins", "vendor"))
_MAX_SETTINGS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a folder or an archive. `name` is its path inside."""

    name: str
    open: Callable[[], AbstractContextManager[Document]]


Read = Callable[[Document, str], Iterator[Entry]]  # reads a document of a kind


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the members of one folder are read."""

    read: Read
    wanted: str | None
    has_pages: bool
    names_tables: bool
    permalink: str = ""

    def wants(self, kind: str) -> bool:
        match self.wanted:
            case None:
                # The feed of a site repeats its pages.
                return kind != "feed" or not self.has_pages
            case "pages":
                return kind in DOCUMENTS
            case "jsonld":
                return kind == "json"
            case wanted:
                return kind == wanted


def read_members(
    members: list[Member], place: str, read: Read, wanted: str | None = None, *, names_tables: bool = True
) -> Iterator[Entry]:
    """Yield what the members hold, and at the end how many of them were not read.

    With `names_tables`, a table fills a collection of its own.
    """
    has_pages = any(sniff.by_name(member.name) in _PAGES for member in members)
    reading = _Reading(read, wanted, has_pages, names_tables, _permalink(members))
    contents = _contents(members)
    skipped: list[str] = []
    for member in contents:
        try:
            yield from _read_member(member, reading, skipped)
        except SourceError as problem:
            yield BadRecord(member.name, problem.message, is_gap=True)
    if skipped:
        yield Remark(place, f"{_count(skipped, 'file')} of other kinds not read: {_suffixes(skipped)}")
    if templates := len(members) - len(contents):
        yield Remark(place, f"{templates:,} templates and built files of the Jekyll site not read")


def _contents(members: list[Member]) -> list[Member]:
    """Return the members without the templates of a Jekyll site and what was built of them."""
    if not any(member.name in _SITE_SETTINGS or "_posts" in PurePosixPath(member.name).parts for member in members):
        return members
    return [member for member in members if PurePosixPath(member.name).parts[0] not in _SITE_FOLDERS]


def _permalink(members: list[Member]) -> str:
    """Return the pattern of the addresses of posts, which the settings of a Jekyll site may give."""
    settings = next((member for member in members if member.name in _SITE_SETTINGS), None)
    if settings is None:
        return ""
    with settings.open() as document:
        text = document.file.read(_MAX_SETTINGS)
    try:
        value: Any = load_yaml(text.decode("utf-8", "replace"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return ""
    pattern = cast("dict[str, Any]", value).get("permalink") if isinstance(value, dict) else None
    return pattern if isinstance(pattern, str) else ""


def is_tool(name: str) -> bool:
    return PurePosixPath(name).name.lower() in _TOOLS


def _read_member(member: Member, reading: _Reading, skipped: list[str]) -> Iterator[Entry]:
    if is_tool(member.name):
        skipped.append(member.name)
        return
    with member.open() as opened:
        document = replace(opened, path=opened.name, permalink=reading.permalink)
        kind = sniff.by_name(document.name) or sniff.by_content(document)
        if kind in _ALONE:
            yield Remark(member.name, _ALONE[kind])
        elif kind is None or not reading.wants(kind):
            skipped.append(member.name)
        elif kind in TABLES and reading.names_tables:
            name = collection_name(PurePosixPath(document.name).stem)
            yield from _own_collection(reading.read(document, kind), name)
        else:
            yield from reading.read(document, kind)


def _own_collection(entries: Iterable[Entry], name: str) -> Iterator[Entry]:
    """Yield entries whose collection is named after their file, and after the sheet if there are several."""
    for entry in entries:
        if isinstance(entry, Record):
            yield replace(entry, collection=f"{name}_{entry.collection}" if entry.collection else name)
        else:
            yield entry


def _suffixes(names: list[str]) -> str:
    counts = Counter(PurePosixPath(name).suffix.lower() or PurePosixPath(name).name for name in names)
    texts = [f"{count} {suffix}" for suffix, count in counts.most_common(_MAX_SUFFIXES)]
    return ", ".join([*texts, "…"] if len(counts) > _MAX_SUFFIXES else texts)


def _count(names: list[str], noun: str) -> str:
    return f"1 {noun}" if len(names) == 1 else f"{len(names):,} {noun}s"
