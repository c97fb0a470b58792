"""Visits the pages of one site politely: robots.txt first, a pause between requests, one host only.

Honours `nofollow`, `noindex` and `X-Robots-Tag`; reads HTML only; stops at `max_pages`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from protego import Protego

from portico.errors import SourceError
from portico.sources import pages
from portico.sources.fetch import USER_AGENT, Answer, Fetcher
from portico.sources.html import TooDeep
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Document, Entry, SourceOptions
from portico.sources.sitemap import Listing, listings

Pause: TypeAlias = Callable[[float], None]

ROBOTS_BYTES = 500 * 1024  # RFC 9309, 2.5: at least this much is read
MAX_CRAWL_DELAY = 120.0
MAX_SITEMAPS = 500
_HTML = frozenset(("text/html", "application/xhtml+xml"))
_MAX_URL = 2000
# fmt: off
_NOT_PAGES = (
    ".jpg", ".jpeg", ".png", ".gif", ".webp", ".svg", ".ico", ".css", ".js", ".pdf", ".zip", ".gz", ".mp3",
    ".mp4", ".webm", ".woff", ".woff2", ".xml", ".rss", ".atom", ".json",
)
# fmt: on


def read_site(url: str, fetcher: Fetcher, options: SourceOptions, pause: Pause = time.sleep) -> Iterator[Entry]:
    """The pages reached from a start page by following links, nearest first."""
    start = canonical(url)
    visitor = Visitor(origin_of(start), fetcher, options, pause)
    waiting = deque([start])
    seen = {start}
    while waiting and visitor.has_room:
        visit = visitor.visit(waiting.popleft())
        if visitor.visits == 1:
            _check_start(visit, visitor, start)
        if isinstance(visit, BadRecord):
            yield visit
            continue
        yield from visitor.entries(visit)
        for link in visit.links:
            if link not in seen and len(seen) < 20 * options.max_pages + 1000 and visitor.is_inside(link):
                seen.add(link)
                waiting.append(link)


def read_sitemap(url: str, fetcher: Fetcher, options: SourceOptions, pause: Pause = time.sleep) -> Iterator[Entry]:
    """The pages that a sitemap on the web lists."""
    visitor = Visitor(origin_of(canonical(url)), fetcher, options, pause)
    return _listed(visitor, _fetched_listings(url, visitor))


def read_sitemap_file(
    document: Document, fetcher: Fetcher, options: SourceOptions, pause: Pause = time.sleep
) -> Iterator[Entry]:
    """The pages that a sitemap in a file lists; the first of them says which site it is."""
    document.file.seek(0)
    found = listings(iter(lambda: document.file.read(65536), b""), document.name)
    first = next(found, None)
    if first is None:
        return
    visitor = Visitor(origin_of(canonical(first.url)), fetcher, options, pause)
    yield from _listed(visitor, _expanded(first, visitor))
    for listing in found:
        yield from _listed(visitor, _expanded(listing, visitor))


@dataclass(frozen=True, slots=True)
class Visit:
    """A page that was fetched: what may be kept of it and where it leads."""

    page: pages.Page | None
    url: str
    links: tuple[str, ...]
    is_redirect: bool = False


class Visitor:
    """One guest of one site: knows its rules, keeps the pace, remembers what was given out."""

    def __init__(self, origin: str, fetcher: Fetcher, options: SourceOptions, pause: Pause) -> None:
        self._origin = origin
        self._fetcher = fetcher
        self._options = options
        self._pause = pause
        self._rules: Protego | None = None
        self._is_first_request = True
        self._given: set[str] = set()
        self.visits = 0
        self.sitemaps = 0

    @property
    def has_room(self) -> bool:
        return self.visits < self._options.max_pages

    def is_inside(self, url: str) -> bool:
        """Whether it may be a page of this site, which stays the same site over http and https."""
        return self._is_same_host(url) and not urlsplit(url).path.lower().endswith(_NOT_PAGES)

    def visit(self, url: str) -> Visit | BadRecord:
        self.visits += 1
        try:
            if not self._robots().can_fetch(url, USER_AGENT):
                return BadRecord(url, "is closed to us by robots.txt")
            self._wait()
            with self._fetcher.open(url, follow=False, max_bytes=MAX_RECORD_BYTES) as answer:
                return self._visited(answer)
        except SourceError as problem:
            if self._rules is None:
                raise
            return BadRecord(url, f"cannot be fetched: {problem.message}", is_gap=True)

    def entries(self, visit: Visit) -> Iterator[Entry]:
        """The records of a page, once: two addresses of the same page give one."""
        if visit.page is None or visit.url in self._given:
            return
        self._given.add(visit.url)
        yield from pages.records(visit.page)

    def sitemap(self, url: str) -> list[Listing]:
        self.sitemaps += 1
        self._robots()
        self._wait()
        # Read to the end before the pages are visited: the connection would not wait that long.
        with self._fetcher.open(url) as answer:
            answer.expect_ok()
            return list(islice(listings(answer.chunks, url), max(self._options.max_pages, MAX_SITEMAPS)))

    def _wait(self) -> None:
        asked = self._robots().crawl_delay(USER_AGENT) or 0.0
        if not self._is_first_request:
            self._pause(max(asked, self._options.delay))
        self._is_first_request = False

    def _robots(self) -> Protego:
        if self._rules is None:
            self._rules = self._fetch_robots()
        return self._rules

    def _fetch_robots(self) -> Protego:
        url = f"{self._origin}/robots.txt"
        with self._fetcher.open(url) as answer:
            # RFC 9309, 2.3.1: not there means no rules; a server in trouble means keep out.
            if answer.status >= 500 or answer.status == 429:
                raise SourceError(f"{url} answered {answer.status}, so nothing is fetched.", url=url)
            text = _at_most(answer.chunks, ROBOTS_BYTES) if answer.status == 200 else b""
        rules = Protego.parse(text.decode("utf-8", "replace"))
        asked = rules.crawl_delay(USER_AGENT) or 0.0
        if asked > MAX_CRAWL_DELAY:
            hint = "Ask its owner for an export or a feed."
            raise SourceError(f"{self._origin} wants {asked:g} seconds between requests.", hint=hint)
        return rules

    def _visited(self, answer: Answer) -> Visit | BadRecord:
        if answer.location:
            return Visit(None, answer.url, (canonical(answer.location),), is_redirect=True)
        if answer.status != 200:
            return BadRecord(answer.url, f"answered {answer.status}", is_gap=answer.status >= 500)
        if answer.content_type not in _HTML:
            return Visit(None, answer.url, ())
        try:
            page = pages.page_of(answer.read(), answer.url, answer.url, answer.url)
        except TooDeep as problem:
            return BadRecord(answer.url, str(problem))
        orders = _orders(page, answer.headers)
        address = self._canonical(page)
        links = () if orders & {"nofollow", "none"} else tuple(_links(page))
        kept = pages.Page(page.tree, address, address, answer.url)
        return Visit(None if orders & {"noindex", "none"} else kept, address, links)

    def _canonical(self, page: pages.Page) -> str:
        link = page.tree.css_first('link[rel="canonical"]')
        href = (link.attributes.get("href") or "") if link else ""
        address = _joined(pages.base_of(page), href.strip()) if href.strip() else ""
        return address if address and self._is_same_host(address) else page.id

    def _is_same_host(self, url: str) -> bool:
        return urlsplit(url).netloc == urlsplit(self._origin).netloc


def canonical(url: str) -> str:
    """The same text for the same page: no fragment, no default port, no campaign parameters."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as problem:
        raise SourceError(f"{url!r} is not a URL.", url=url) from problem
    host = (parts.hostname or "").rstrip(".")
    netloc = f"[{host}]" if ":" in host else host
    if port and (parts.scheme, port) not in (("http", 80), ("https", 443)):
        netloc += f":{port}"
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = [pair for pair in pairs if not pair[0].startswith("utm_")]
    query = parts.query if len(kept) == len(pairs) else urlencode(kept)
    return urlunsplit((parts.scheme.lower(), netloc, parts.path or "/", query, ""))


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _check_start(visit: Visit | BadRecord, visitor: Visitor, start: str) -> None:
    if isinstance(visit, BadRecord):
        raise SourceError(f"The start page {start} {visit.reason}.", url=start)
    if visit.is_redirect and not visitor.is_inside(visit.links[0]):
        hint = "If that is the site you mean, give that address."
        raise SourceError(f"The start page {start} redirects to {visit.links[0]}.", hint=hint, url=start)


def _fetched_listings(url: str, visitor: Visitor) -> Iterator[str | BadRecord]:
    """Pages of a sitemap and of those it lists. A broken sitemap among others does not stop the rest."""
    for listing in visitor.sitemap(url):
        yield from _expanded(listing, visitor)


def _expanded(listing: Listing, visitor: Visitor) -> Iterator[str | BadRecord]:
    """Sitemaps.org allows an index of sitemaps, but no index of indexes."""
    if not listing.is_sitemap:
        yield listing.url
        return
    if visitor.sitemaps > MAX_SITEMAPS:
        return
    try:
        for inner in visitor.sitemap(listing.url):
            yield BadRecord(inner.url, "is an index inside an index") if inner.is_sitemap else inner.url
    except SourceError as problem:
        yield BadRecord(listing.url, problem.message, is_gap=True)


def _listed(visitor: Visitor, found: Iterator[str | BadRecord]) -> Iterator[Entry]:
    for one in found:
        if not visitor.has_room:
            return
        if isinstance(one, BadRecord):
            yield one
            continue
        yield from _page_of_listing(visitor, one)


def _page_of_listing(visitor: Visitor, listed: str) -> Iterator[Entry]:
    try:
        url = canonical(listed)
    except SourceError as problem:
        yield BadRecord(listed, problem.message)
        return
    if not visitor.is_inside(url):
        yield BadRecord(url, "is not a page of this site")
        return
    visit = visitor.visit(url)
    if isinstance(visit, Visit) and visit.is_redirect and visitor.is_inside(visit.links[0]):
        visit = visitor.visit(visit.links[0])  # one redirect, as when a site moved to new paths
    if isinstance(visit, BadRecord):
        yield visit
    else:
        yield from visitor.entries(visit)


def _links(page: pages.Page) -> Iterator[str]:
    base = pages.base_of(page)
    for link in page.tree.css("a[href]"):
        if "nofollow" in (link.attributes.get("rel") or "").lower().split():
            continue
        address = _joined(base, (link.attributes.get("href") or "").strip())
        if address:
            yield address


def _joined(base: str, href: str) -> str:
    """The absolute form of a link, or nothing when it leads nowhere that can be fetched."""
    try:
        address = canonical(urljoin(base, href))
    except (SourceError, ValueError):
        return ""
    return address if address.startswith(("http://", "https://")) and len(address) <= _MAX_URL else ""


def _orders(page: pages.Page, headers: Mapping[str, str]) -> set[str]:
    """What the page and its answer tell robots: noindex, nofollow, none."""
    said = [headers.get("x-robots-tag", "")]
    for name in ("robots", "portico"):
        said += [node.attributes.get("content") or "" for node in page.tree.css(f'meta[name="{name}" i]')]
    # "otherbot: noindex" is for somebody else, and does not match a bare word.
    return {word.strip().lower() for text in said for word in text.replace("portico:", "").split(",")}


def _at_most(chunks: Iterator[bytes], limit: int) -> bytes:
    text = bytearray()
    for chunk in chunks:
        text += chunk
        if len(text) >= limit:
            break
    return bytes(text[:limit])
