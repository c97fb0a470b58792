"""Crawls the pages of one site: reads robots.txt first, pauses between requests, stays on one host.

Honours `nofollow`, `noindex` and `X-Robots-Tag`; reads HTML only; stops at `max_pages`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from protego import Protego

from portico.errors import SourceError
from portico.sources import pages
from portico.sources.fetch import USER_AGENT, Fetcher, FetchResponse
from portico.sources.html import TooDeep
from portico.sources.records import MAX_RECORD_BYTES, BadRecord, Document, Entry, SourceOptions
from portico.sources.sitemap import SitemapEntry, parse_sitemap

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
    """Yield the pages that can be reached from a start page by links, nearest first."""
    start = canonical(url)
    crawler = SiteCrawler(origin_of(start), fetcher, options, pause)
    queue = deque([start])
    queued = {start}
    while queue and crawler.has_room:
        visit = crawler.visit(queue.popleft())
        if crawler.visits == 1:
            _check_start(visit, crawler, start)
        if isinstance(visit, BadRecord):
            yield visit
            continue
        yield from crawler.entries(visit)
        for link in visit.links:
            if link not in queued and len(queued) < 20 * options.max_pages + 1000 and crawler.is_inside(link):
                queued.add(link)
                queue.append(link)


def read_sitemap(url: str, fetcher: Fetcher, options: SourceOptions, pause: Pause = time.sleep) -> Iterator[Entry]:
    """Yield the pages that a sitemap on the web lists."""
    crawler = SiteCrawler(origin_of(canonical(url)), fetcher, options, pause)
    # A broken sitemap among others does not stop the rest.
    urls = (item for entry in crawler.sitemap(url) for item in _expand_listing(entry, crawler))
    yield from _crawl_listed(crawler, urls)


def read_sitemap_file(
    document: Document, fetcher: Fetcher, options: SourceOptions, pause: Pause = time.sleep
) -> Iterator[Entry]:
    """Yield the pages that a sitemap in a file lists. The first page decides which site is crawled."""
    document.file.seek(0)
    entries = parse_sitemap(iter(lambda: document.file.read(65536), b""), document.name)
    first = next(entries, None)
    if first is None:
        return
    crawler = SiteCrawler(origin_of(canonical(first.url)), fetcher, options, pause)
    yield from _crawl_listed(crawler, _expand_listing(first, crawler))
    for listing in entries:
        yield from _crawl_listed(crawler, _expand_listing(listing, crawler))


@dataclass(frozen=True, slots=True)
class CrawledPage:
    """A page that was fetched: its content, if it may be indexed, and its links."""

    page: pages.HtmlPage | None
    url: str
    links: tuple[str, ...]
    is_redirect: bool = False


class SiteCrawler:
    """Crawls one site: follows its robots.txt, waits between requests, yields each page once."""

    def __init__(self, origin: str, fetcher: Fetcher, options: SourceOptions, pause: Pause) -> None:
        self._origin = origin
        self._fetcher = fetcher
        self._options = options
        self._pause = pause
        self._rules: Protego | None = None
        self._is_first_request = True
        self._yielded_urls: set[str] = set()
        self.visits = 0
        self.sitemaps = 0

    @property
    def has_room(self) -> bool:
        return self.visits < self._options.max_pages

    def is_inside(self, url: str) -> bool:
        """Whether a URL may be a page of this site, over http or https."""
        return self._is_same_host(url) and not urlsplit(url).path.lower().endswith(_NOT_PAGES)

    def visit(self, url: str) -> CrawledPage | BadRecord:
        self.visits += 1
        try:
            if not self._robots().can_fetch(url, USER_AGENT):
                return BadRecord(url, "is disallowed by robots.txt")
            self._wait()
            with self._fetcher.open(url, follow=False, max_bytes=MAX_RECORD_BYTES) as answer:
                return self._read_response(answer)
        except SourceError as problem:
            if self._rules is None:
                raise
            return BadRecord(url, f"cannot be fetched: {problem.message}", is_gap=True)

    def entries(self, visit: CrawledPage) -> Iterator[Entry]:
        """Yield the records of a page, once even if it has several addresses."""
        if visit.page is None or visit.url in self._yielded_urls:
            return
        self._yielded_urls.add(visit.url)
        yield from pages.records(visit.page)

    def sitemap(self, url: str) -> list[SitemapEntry]:
        self.sitemaps += 1
        self._robots()
        self._wait()
        # Read to the end before pages are visited: the connection would time out meanwhile.
        with self._fetcher.open(url) as answer:
            answer.raise_for_status()
            return list(islice(parse_sitemap(answer.chunks, url), max(self._options.max_pages, MAX_SITEMAPS)))

    def _wait(self) -> None:
        crawl_delay = self._robots().crawl_delay(USER_AGENT) or 0.0
        if not self._is_first_request:
            self._pause(max(crawl_delay, self._options.delay))
        self._is_first_request = False

    def _robots(self) -> Protego:
        if self._rules is None:
            self._rules = self._fetch_robots()
        return self._rules

    def _fetch_robots(self) -> Protego:
        url = f"{self._origin}/robots.txt"
        with self._fetcher.open(url) as answer:
            # RFC 9309, 2.3.1: without the file there are no rules; after a server error nothing may be fetched.
            if answer.status >= 500 or answer.status == 429:
                raise SourceError(f"{url} returned status {answer.status}, so no page may be fetched.", url=url)
            text = _at_most(answer.chunks, ROBOTS_BYTES) if answer.status == 200 else b""
        rules = Protego.parse(text.decode("utf-8", "replace"))
        crawl_delay = rules.crawl_delay(USER_AGENT) or 0.0
        if crawl_delay > MAX_CRAWL_DELAY:
            hint = "Ask its owner for an export or a feed."
            raise SourceError(f"{self._origin} requires {crawl_delay:g} seconds between requests.", hint=hint)
        return rules

    def _read_response(self, answer: FetchResponse) -> CrawledPage | BadRecord:
        if answer.location:
            return CrawledPage(None, answer.url, (canonical(answer.location),), is_redirect=True)
        if answer.status != 200:
            return BadRecord(answer.url, f"returned status {answer.status}", is_gap=answer.status >= 500)
        if answer.content_type not in _HTML:
            return CrawledPage(None, answer.url, ())
        try:
            page = pages.parse_page(answer.read(), answer.url, answer.url, answer.url)
        except TooDeep as problem:
            return BadRecord(answer.url, str(problem))
        directives = _robots_directives(page, answer.headers)
        address = self._canonical(page)
        links = () if directives & {"nofollow", "none"} else tuple(_links(page))
        indexed = replace(page, id=address, url=address)
        return CrawledPage(None if directives & {"noindex", "none"} else indexed, address, links)

    def _canonical(self, page: pages.HtmlPage) -> str:
        link = page.tree.css_first('link[rel="canonical"]')
        href = (link.attributes.get("href") or "") if link else ""
        address = _absolute_url(pages.base_of(page), href.strip()) if href.strip() else ""
        return address if address and self._is_same_host(address) else page.id

    def _is_same_host(self, url: str) -> bool:
        return urlsplit(url).netloc == urlsplit(self._origin).netloc


def canonical(url: str) -> str:
    """Normalize the URL of a page: no fragment, no default port, no campaign parameters."""
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
    params = [pair for pair in pairs if not pair[0].startswith("utm_")]
    query = parts.query if len(params) == len(pairs) else urlencode(params)
    return urlunsplit((parts.scheme.lower(), netloc, parts.path or "/", query, ""))


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _check_start(visit: CrawledPage | BadRecord, crawler: SiteCrawler, start: str) -> None:
    if isinstance(visit, BadRecord):
        raise SourceError(f"The start page {start} {visit.reason}.", url=start)
    if visit.is_redirect and not crawler.is_inside(visit.links[0]):
        hint = "If that is the site you mean, give that address."
        raise SourceError(f"The start page {start} redirects to {visit.links[0]}.", hint=hint, url=start)


def _expand_listing(listing: SitemapEntry, crawler: SiteCrawler) -> Iterator[str | BadRecord]:
    """Yield the URLs of a sitemap, or of the sitemaps of an index. Sitemaps.org allows no index of indexes."""
    if not listing.is_sitemap:
        yield listing.url
        return
    if crawler.sitemaps > MAX_SITEMAPS:
        return
    try:
        for inner in crawler.sitemap(listing.url):
            yield BadRecord(inner.url, "is an index inside an index") if inner.is_sitemap else inner.url
    except SourceError as problem:
        yield BadRecord(listing.url, problem.message, is_gap=True)


def _crawl_listed(crawler: SiteCrawler, listings: Iterator[str | BadRecord]) -> Iterator[Entry]:
    for one in listings:
        if not crawler.has_room:
            return
        if isinstance(one, BadRecord):
            yield one
            continue
        yield from _crawl_page(crawler, one)


def _crawl_page(crawler: SiteCrawler, listed_url: str) -> Iterator[Entry]:
    try:
        url = canonical(listed_url)
    except SourceError as problem:
        yield BadRecord(listed_url, problem.message)
        return
    if not crawler.is_inside(url):
        yield BadRecord(url, "is not a page of this site")
        return
    visit = crawler.visit(url)
    if isinstance(visit, CrawledPage) and visit.is_redirect and crawler.is_inside(visit.links[0]):
        visit = crawler.visit(visit.links[0])  # one redirect, for a site that moved to new paths
    if isinstance(visit, BadRecord):
        yield visit
    else:
        yield from crawler.entries(visit)


def _links(page: pages.HtmlPage) -> Iterator[str]:
    base = pages.base_of(page)
    for link in page.tree.css("a[href]"):
        if "nofollow" in (link.attributes.get("rel") or "").lower().split():
            continue
        address = _absolute_url(base, (link.attributes.get("href") or "").strip())
        if address:
            yield address


def _absolute_url(base: str, href: str) -> str:
    """Return the absolute form of a link, or nothing if it cannot be fetched."""
    try:
        address = canonical(urljoin(base, href))
    except (SourceError, ValueError):
        return ""
    return address if address.startswith(("http://", "https://")) and len(address) <= _MAX_URL else ""


def _robots_directives(page: pages.HtmlPage, headers: Mapping[str, str]) -> set[str]:
    """Return what the page and its headers tell robots: noindex, nofollow, none."""
    contents = [headers.get("x-robots-tag", "")]
    for name in ("robots", "portico"):
        contents += [node.attributes.get("content") or "" for node in page.tree.css(f'meta[name="{name}" i]')]
    # "otherbot: noindex" is for another crawler, and does not match a bare word.
    return {word.strip().lower() for text in contents for word in text.replace("portico:", "").split(",")}


def _at_most(chunks: Iterator[bytes], limit: int) -> bytes:
    text = bytearray()
    for chunk in chunks:
        text += chunk
        if len(text) >= limit:
            break
    return bytes(text[:limit])
