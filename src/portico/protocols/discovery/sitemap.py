"""robots.txt, and sitemaps of all items that anonymous callers may read.

Each collection is split by id into sitemaps of some thousand items. The end of a sitemap is determined when it is first
read, and only that id is kept in memory, so reading sitemaps in order never reads an item twice. A new item falls into
the sitemap of its id.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import chain
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.catalog import ID, instant
from portico.config import Config
from portico.errors import NotFound
from portico.items import Item
from portico.protocols.documents import document
from portico.protocols.http import base_of
from portico.protocols.problems import make_handler
from portico.query import MAX_LIMIT, And, Condition, Query
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import collection_path, item_path

SIZE = 5_000  # items of one sitemap; the protocol allows 50,000
CHANGED = "dateModified"
XML = "application/xml"

_NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
_NUMBER = re.compile(r"[1-9]\d{0,6}\Z", re.ASCII)
_DATED = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?\Z", re.ASCII)


class Boundaries:
    """The boundaries between the sitemaps of a collection, as far as they have been read. Each begins after an id."""

    def __init__(self) -> None:
        self._ends: list[str] = []

    @property
    def count(self) -> int:
        """The number of sitemaps, as far as they have been read."""
        return len(self._ends) + 1

    def start(self, number: int) -> str:
        return self._ends[number - 2] if number > 1 else ""

    def end(self, number: int) -> str:
        """Return the last id of a sitemap; empty if it has not been read."""
        return self._ends[number - 1] if number < self.count else ""

    def set_end(self, number: int, id: str) -> None:
        """Set the last id of a sitemap, and forget the boundaries after it."""
        self._ends[number - 1 :] = [id]


class Sitemaps:
    """The sitemaps of a site, for anonymous callers."""

    def __init__(self, site: Site, size: int = SIZE) -> None:
        self._site = site
        self._size = size
        self._boundaries: dict[str, Boundaries] = {}

    def number(self, collection: str, count: int) -> int:
        """Return the number of sitemaps of a collection with `count` items."""
        return max(-(-count // self._size), self._of(collection).count, 1)

    async def items(self, collection: str, number: int, caller: Caller) -> list[Item]:
        """Return the items of one sitemap, each with its id and its `dateModified`."""
        boundaries = self._of(collection)
        # This process has not read the sitemaps before: find where they end, once.
        while boundaries.count < number:
            before = boundaries.count
            await self._read(collection, before, caller)
            if boundaries.count == before:
                raise NotFound(f"There is no sitemap {number} of {collection}")
        return await self._read(collection, number, caller)

    def _of(self, collection: str) -> Boundaries:
        return self._boundaries.setdefault(collection, Boundaries())

    async def _read(self, collection: str, number: int, caller: Caller) -> list[Item]:
        boundaries = self._of(collection)
        start, end = boundaries.start(number), boundaries.end(number)
        items: list[Item] = []
        async for item in self._between(collection, start, end, caller):
            if len(items) == (2 * self._size if end else self._size):
                # More items follow, so it ends here. One that has grown to twice its size is split again.
                boundaries.set_end(number, items[self._size - 1].id)
                return items[: self._size]
            items.append(item)
        return items

    async def _between(self, collection: str, start: str, end: str, caller: Caller) -> AsyncIterator[Item]:
        """Yield the items after `start` up to `end`, ordered by id."""
        fields = self._site.catalog.collections[collection].fields
        bounds = (*([Condition(ID, "gt", start)] if start else []), *([Condition(ID, "lte", end)] if end else []))
        fields_read = (ID, CHANGED) if CHANGED in fields else (ID,)
        query = Query(collection, where=And(bounds), fields=fields_read, limit=min(MAX_LIMIT, self._size + 1))
        async for page in self._site.pages(query, caller):
            for item in page.items:
                yield item


def routes(
    site: Site, config: Config, counts: Callable[[], Mapping[str, int]], uncrawled: Sequence[str] = (), size: int = SIZE
) -> list[BaseRoute]:
    """Serve robots.txt and sitemaps. `uncrawled` are paths that crawlers should not visit."""
    sitemaps = Sitemaps(site, size)

    async def robots(request: Request, _: Caller) -> Response:
        lines = ["User-agent: *", *(f"Disallow: {path}" for path in uncrawled)]
        text = "\n".join([*lines, "", f"Sitemap: {base_of(request, config.server)}/sitemap.xml", ""])
        return document(request, text, "text/plain", server=config.server)

    async def index(request: Request, caller: Caller) -> Response:
        base, item_counts = base_of(request, config.server), counts()
        places = (
            f"{base}/sitemap-{quote(name)}-{number}.xml"
            for name in site.access.readable(caller)
            for number in range(1, sitemaps.number(name, item_counts.get(name, 0)) + 1)
        )
        entries = (_entry("sitemap", place) for place in places)
        return document(request, _xml("sitemapindex", entries), XML, server=config.server)

    async def sitemap(request: Request, caller: Caller) -> Response:
        base = base_of(request, config.server)
        name, number = await _parse_name(site, request.path_params["name"], caller)
        items = await sitemaps.items(name, number, caller)
        first = [_entry("url", f"{base}{collection_path(name)}")] if number == 1 else []
        entries = (_entry("url", f"{base}{item_path(item.ref)}", _last_change(item)) for item in items)
        return document(request, _xml("urlset", chain(first, entries)), XML, server=config.server)

    return [
        Route("/robots.txt", make_handler(robots), methods=["GET"]),
        Route("/sitemap.xml", make_handler(index), methods=["GET"]),
        # At the root, since a sitemap may list only URLs below its own folder.
        Route("/sitemap-{name}.xml", make_handler(sitemap), methods=["GET"]),
    ]


async def _parse_name(site: Site, file: str, caller: Caller) -> tuple[str, int]:
    """Return the collection and the number in the name of a sitemap."""
    name, _, number = file.rpartition("-")
    if name in site.access.readable(caller) and _NUMBER.match(number):
        return name, int(number)
    raise NotFound("There is no such sitemap", hint="`/sitemap.xml` lists all sitemaps.")


def _xml(root: str, entries: Iterable[str]) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{_NAMESPACE}">\n{"".join(entries)}</{root}>\n'


def _entry(kind: str, place: str, changed: str = "") -> str:
    since = f"<lastmod>{escape(changed)}</lastmod>" if changed else ""
    return f"<{kind}><loc>{escape(place)}</loc>{since}</{kind}>\n"


def _last_change(item: Item) -> str:
    """Return the `dateModified` of an item if it is valid in a sitemap: a date, or a time with its zone."""
    changed = item.data.get(CHANGED)
    return changed if isinstance(changed, str) and _DATED.match(changed) and instant(changed) is not None else ""
