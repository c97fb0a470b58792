"""What crawlers read: robots.txt, and sitemaps of all items that everybody may read.

Each collection is cut into sitemaps of some thousand items by their ids. Where one ends is found when it is first
read, and remembered: reading them in order costs no more than what they hold, and nothing is held in memory but the
ids they begin after. Items that come later fall into the sitemap that their id belongs to.
"""

import re
from collections.abc import AsyncIterator, Iterable
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
from portico.protocols.a2a.card import RPC_PATH as A2A_PATH
from portico.protocols.discovery import anybody, published
from portico.protocols.documents import document
from portico.protocols.http import base_of
from portico.protocols.mcp.routes import PATH as MCP_PATH
from portico.protocols.nlweb import routes as nlweb
from portico.protocols.rest import operations
from portico.protocols.rest.items import Counts
from portico.protocols.rest.operations import answering
from portico.query import MAX_LIMIT, And, Condition, Query
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import collection_path, item_path

SIZE = 5_000  # items of one sitemap; the protocol allows 50,000
CHANGED = "dateModified"
XML = "application/xml"
# Crawlers read; what asks, does or streams is not for them.
CLOSED = (*sorted(nlweb.PATHS), operations.PATH, operations.TASKS_PATH, MCP_PATH, A2A_PATH)

_NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
_NUMBER = re.compile(r"[1-9]\d{0,6}\Z", re.ASCII)
_DATED = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?\Z", re.ASCII)


class Boundaries:
    """Where the sitemaps of a collection begin, as far as that is known: each after the id before it."""

    def __init__(self) -> None:
        self._ends: list[str] = []

    @property
    def known(self) -> int:
        """How many sitemaps there are at least."""
        return len(self._ends) + 1

    def start(self, number: int) -> str:
        return self._ends[number - 2] if number > 1 else ""

    def end(self, number: int) -> str:
        """The last id of a sitemap; empty while nobody has read that far."""
        return self._ends[number - 1] if number < self.known else ""

    def set_end(self, number: int, id: str) -> None:
        """A sitemap ends here. What was thought to follow is found out again."""
        self._ends[number - 1 :] = [id]


class Sitemaps:
    """The sitemaps of a site, as anybody sees it."""

    def __init__(self, site: Site, size: int = SIZE) -> None:
        self._site = site
        self._size = size
        self._boundaries: dict[str, Boundaries] = {}

    def number(self, collection: str, count: int) -> int:
        """How many sitemaps a collection of so many items has."""
        return max(-(-count // self._size), self._of(collection).known, 1)

    async def items(self, collection: str, number: int, caller: Caller) -> list[Item]:
        """The items of one sitemap, with their ids and when they changed, if they say so."""
        boundaries = self._of(collection)
        # What lies before was not read by this process: where it ends is found out now, once.
        while boundaries.known < number:
            before = boundaries.known
            await self._read(collection, before, caller)
            if boundaries.known == before:
                raise NotFound(f"There is no sitemap {number} of {collection}")
        return await self._read(collection, number, caller)

    def _of(self, collection: str) -> Boundaries:
        return self._boundaries.setdefault(collection, Boundaries())

    async def _read(self, collection: str, number: int, caller: Caller) -> list[Item]:
        boundaries = self._of(collection)
        start, end = boundaries.start(number), boundaries.end(number)
        found: list[Item] = []
        async for item in self._between(collection, start, end, caller):
            if len(found) == (2 * self._size if end else self._size):
                # More follows: it ends here. If so much has come since it was cut, it is cut anew.
                boundaries.set_end(number, found[self._size - 1].id)
                return found[: self._size]
            found.append(item)
        return found

    async def _between(self, collection: str, start: str, end: str, caller: Caller) -> AsyncIterator[Item]:
        """Items behind an id and up to another, in the order of the ids."""
        fields = self._site.catalog.collections[collection].fields
        bounds = (*([Condition(ID, "gt", start)] if start else []), *([Condition(ID, "lte", end)] if end else []))
        named = (ID, CHANGED) if CHANGED in fields else (ID,)
        query = Query(collection, where=And(bounds), fields=named, limit=min(MAX_LIMIT, self._size + 1))
        async for page in self._site.pages(query, caller):
            for item in page.items:
                yield item


def routes(site: Site, config: Config, counts: Counts, size: int = SIZE) -> list[BaseRoute]:
    """The addresses of this face. What stands in a sitemap is the same for all callers: what anybody may read."""
    sitemaps = Sitemaps(site, size)

    async def robots(request: Request, _: Caller) -> Response:
        lines = ["User-agent: *", *(f"Disallow: {path}" for path in CLOSED)]
        text = "\n".join([*lines, "", f"Sitemap: {base_of(request, config.server)}/sitemap.xml", ""])
        return document(request, text, "text/plain", server=config.server)

    async def index(request: Request, caller: Caller) -> Response:
        base, known = base_of(request, config.server), counts()
        places = (
            f"{base}/sitemap-{quote(name)}-{number}.xml"
            for name in site.gate.readable(caller)
            for number in range(1, sitemaps.number(name, known.get(name, 0)) + 1)
        )
        entries = (_entry("sitemap", place) for place in places)
        return document(request, _xml("sitemapindex", entries), XML, server=config.server)

    async def sitemap(request: Request, caller: Caller) -> Response:
        base = base_of(request, config.server)
        name, number = await _named(site, request.path_params["name"], caller)
        items = await sitemaps.items(name, number, caller)
        first = [_entry("url", f"{base}{collection_path(name)}")] if number == 1 else []
        entries = (_entry("url", f"{base}{item_path(item.ref)}", _changed(item)) for item in items)
        return document(request, _xml("urlset", chain(first, entries)), XML, server=config.server)

    return [
        Route("/robots.txt", published(robots, site, anybody), methods=["GET"]),
        Route("/sitemap.xml", published(index, site, anybody), methods=["GET"]),
        # At the root: a sitemap may name only what lies below the folder that it is in.
        Route("/sitemap-{name}.xml", answering(sitemap, site, who=anybody), methods=["GET"]),
    ]


async def _named(site: Site, file: str, caller: Caller) -> tuple[str, int]:
    """The collection and the number in the name of a sitemap."""
    name, _, number = file.rpartition("-")
    if name in site.gate.readable(caller) and _NUMBER.match(number):
        return name, int(number)
    await site.gate.spend(caller)
    raise NotFound("There is no such sitemap", hint="/sitemap.xml names those there are.")


def _xml(root: str, entries: Iterable[str]) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{_NAMESPACE}">\n{"".join(entries)}</{root}>\n'


def _entry(kind: str, place: str, changed: str = "") -> str:
    since = f"<lastmod>{escape(changed)}</lastmod>" if changed else ""
    return f"<{kind}><loc>{escape(place)}</loc>{since}</{kind}>\n"


def _changed(item: Item) -> str:
    """When an item says that it last changed, if it says so as the protocol wants it: a day, or a time in its zone."""
    said = item.data.get(CHANGED)
    return said if isinstance(said, str) and _DATED.match(said) and instant(said) is not None else ""
