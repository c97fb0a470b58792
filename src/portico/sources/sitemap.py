"""Lists the URLs in sitemaps, plain or compressed. Refuses entities, bombs and other documents."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from xml.parsers import expat

from portico.errors import SourceError
from portico.sources.fetch import inflate
from portico.sources.xml import local, safe_parser

MAX_SITEMAP_BYTES = 50 * 1024 * 1024  # sitemaps.org allows 50 MB, unpacked
_GZIP = b"\x1f\x8b"
_ROOTS = {"urlset": "url", "sitemapindex": "sitemap"}


@dataclass(frozen=True, slots=True)
class SitemapEntry:
    """A URL in a sitemap: of a page, or of another sitemap."""

    url: str
    is_sitemap: bool


def parse_sitemap(chunks: Iterable[bytes], name: str) -> Iterator[SitemapEntry]:
    """Yield the URLs of one sitemap."""
    parser = _SitemapParser(name)
    try:
        for chunk in _limit_size(_decompress(chunks), name):
            parser.feed(chunk)
            yield from parser.take_entries()
        parser.end()
    except (expat.ExpatError, zlib.error) as problem:
        raise SourceError(f"{name} is not a sitemap: {problem}", url=name) from problem


class _SitemapParser:
    """Handles the events of the parser and collects the text of <url><loc> and <sitemap><loc>."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._path: list[str] = []
        self._text: list[str] = []
        self._entries: list[SitemapEntry] = []
        self._parser = safe_parser(name)
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def feed(self, chunk: bytes) -> None:
        self._parser.Parse(chunk, False)

    def end(self) -> None:
        self._parser.Parse(b"", True)

    def take_entries(self) -> list[SitemapEntry]:
        entries, self._entries = self._entries, []
        return entries

    def _start(self, name: str, _: dict[str, str]) -> None:
        if not self._path and local(name) not in _ROOTS:
            raise SourceError(f"{self._name} is not a sitemap but <{local(name)}>.", url=self._name)
        if len(self._path) > 16:
            raise SourceError(f"{self._name} nests too deep for a sitemap.", url=self._name)
        self._path.append(local(name))
        self._text = []

    def _characters(self, text: str) -> None:
        if self._path[-1:] == ["loc"]:
            self._text.append(text)

    def _end(self, _: str) -> None:
        path = self._path
        if len(path) == 3 and path[2] == "loc" and path[1] == _ROOTS[path[0]]:
            self._entries.append(SitemapEntry("".join(self._text).strip(), path[0] == "sitemapindex"))
        path.pop()


def _decompress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = iter(chunks)
    first = next(rest, b"")
    whole = chain((first,), rest)
    yield from inflate(whole) if first.startswith(_GZIP) else whole


def _limit_size(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_SITEMAP_BYTES:
            raise SourceError(f"{name} unpacks to more than {MAX_SITEMAP_BYTES >> 20} MB.", url=name)
        yield chunk
