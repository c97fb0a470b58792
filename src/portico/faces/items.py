"""Items at the addresses that they name themselves, and the pages that lead there. Reads; changes nothing.

GET /items/{id}          one item: a page for browsers, JSON-LD for programs, or plain JSON
GET /collections/{name}  what there is, a page of items at a time
GET /                    the front of the site, where people ask

What the caller may not read is not there. Errors are problem details, or a page for those who read pages.
"""

from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from portico.calls import Caller
from portico.catalog import Collection
from portico.config import Config, Server
from portico.errors import SiteError, UnknownCollection
from portico.faces.documents import document, preferred
from portico.faces.nlweb.shapes import linked_data
from portico.faces.operations import answering, metered, problem
from portico.faces.wire import base_of
from portico.items import Item
from portico.query import Query
from portico.site import Site
from portico.web.addresses import item_path
from portico.web.home import Listing, collection_page, home_page, problem_page
from portico.web.item import FORMATS, Shelf, item_page
from portico.web.style import ASKING_HEADERS, HEADERS

PAGE = 50  # items of a collection that are listed at once
HTML = "text/html"
OFFERED = (*FORMATS.values(), HTML)

Counts: TypeAlias = Callable[[], Mapping[str, int]]  # how many items each collection has


def routes(site: Site, config: Config, counts: Counts) -> list[BaseRoute]:
    """The addresses of this face."""

    async def show(request: Request, caller: Caller) -> Response:
        # Of the few ids that no path can carry the query tells.
        item = await site.item(request.path_params["id"] or request.query_params.get("id", ""), caller)
        shelf = Shelf(site.name, base_of(request, config.server), site.catalog.collections[item.collection])
        return _item(request, item, shelf, config.server)

    async def browse(request: Request, caller: Caller) -> Response:
        collection = await _collection(site, request.path_params["name"], caller)
        cursor = request.query_params.get("cursor", "")
        found = await site.query(Query(collection.name, limit=PAGE, cursor=cursor), caller)
        shelf = Shelf(site.name, base_of(request, config.server), collection)
        listing = Listing(shelf, found, counts().get(collection.name), is_first=not cursor)
        return document(request, collection_page(listing), HTML, HEADERS, server=config.server)

    async def home(request: Request, caller: Caller) -> Response:
        readable = [site.catalog.collections[name] for name in site.gate.readable(caller)]
        page = home_page(site, config.site.description, counts(), readable, config.chat.path)
        return document(request, page, HTML, ASKING_HEADERS, server=None)

    refused = partial(_refusal, site.name)
    return [
        Route("/", answering(metered(home, site), site, refused), methods=["GET"]),
        Route("/collections/{name}", answering(browse, site, refused), methods=["GET"]),
        Route("/items/{id:path}", answering(show, site, refused), methods=["GET"]),
    ]


def _refusal(site: str, request: Request, error: SiteError) -> Response:
    detail = f"{error.message}. {error.hint or ''}".strip()
    return as_page(site, request, problem(error), detail)


def as_page(site: str, request: Request, told: Response, detail: str) -> Response:
    """What went wrong, on a page for those who read pages."""
    if _wanted(request) != HTML:
        return told
    phrase = HTTPStatus(told.status_code).phrase
    kept = {name: told.headers[name] for name in _KEPT if name in told.headers}
    return HTMLResponse(problem_page(site, phrase, detail), told.status_code, {**HEADERS, **kept, "vary": "accept"})


_KEPT = ("allow", "cache-control", "retry-after", "www-authenticate")


def _wanted(request: Request) -> str:
    """The form that a reader asks for: by name in the address, else by what it accepts."""
    named = FORMATS.get(request.query_params.get("format", ""))
    return named or preferred(",".join(request.headers.getlist("accept")), OFFERED)


def _item(request: Request, item: Item, shelf: Shelf, server: Server) -> Response:
    kind = _wanted(request)
    address = f"{shelf.base}{item_path(item.id)}"
    linked = linked_data(item, shelf.collection.type, address)
    headers = {"link": _links(address)}
    answer = partial(document, request, media_type=kind, server=server, vary=["accept"])
    match kind:
        case "text/html":
            return answer(item_page(item, shelf, linked), headers={**headers, **HEADERS})
        case "application/json":
            whole = {"id": item.id, "collection": item.collection, "version": item.version, "data": item.data}
            return answer(msgspec.json.encode(whole), headers=headers, tag=f"{item.version}.json")
        case _:
            return answer(msgspec.json.encode(linked), headers=headers, tag=item.version)


def _links(address: str) -> str:
    others = (f'<{address}>; rel="alternate"; type="{kind}"' for kind in OFFERED)
    return ", ".join([f'<{address}>; rel="canonical"', *others])


async def _collection(site: Site, name: str, caller: Caller) -> Collection:
    """A collection that the caller may read; for anybody else it does not exist."""

    def readable() -> Collection:
        if name not in site.gate.readable(caller):
            raise UnknownCollection(f"There is no collection {name[:100]!r}", collection=name[:100])
        return site.catalog.collections[name]

    try:
        return await site.gate.settled(readable)
    except UnknownCollection:
        await site.gate.spend(caller)
        raise
