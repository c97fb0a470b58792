"""Items at the addresses that they name themselves, and the pages that lead there. Reads; changes nothing.

GET /items/{ref}         one item: a page for browsers, JSON-LD for programs, or plain JSON
GET /collections/{name}  what there is, a page of items at a time
GET /                    the front of the site, where people ask

What the caller may not read is not there. Errors are problem details, or a page for those who read pages.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from portico.ask.actions import Actions
from portico.catalog import ID, Collection
from portico.config import Config, Server
from portico.errors import SiteError, UnknownCollection
from portico.items import Item
from portico.protocols.documents import VARY, document, preferred
from portico.protocols.http import base_of
from portico.protocols.nlweb.item_rendering import linked_data
from portico.protocols.rest.operations import answering, metered, problem
from portico.query import Condition, Order, Page, Query, turned
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import COLLECTIONS, item_path
from portico.web.home import Listing, collection_page, home_page, problem_page
from portico.web.item import FORMATS, Company, Shelf, item_page
from portico.web.style import ASKING_HEADERS, HEADERS, ITEM_HEADERS

PAGE = 48  # items of a collection that are listed at once: whole rows, in one, two or three columns
NEAR = 3  # items beside one
HTML = "text/html"
OFFERED = (*FORMATS.values(), HTML)

Counts: TypeAlias = Callable[[], Mapping[str, int]]  # how many items each collection has


def routes(site: Site, config: Config, counts: Counts) -> list[BaseRoute]:
    """The addresses of this face."""

    def shelved(request: Request, collection: Collection, caller: Caller) -> Shelf:
        readable = [site.catalog.collections[name] for name in site.gate.readable(caller)]
        return Shelf(site.name, base_of(request, config.server), collection, readable)

    async def show(request: Request, caller: Caller) -> Response:
        # Of the few ids that no path can carry the query tells.
        item = await site.item(request.path_params["id"] or request.query_params.get("id", ""), caller)
        shelf = shelved(request, site.catalog.collections[item.collection], caller)
        company = await _company(site, item, shelf.collection, caller) if _wanted(request) == HTML else Company()
        return _item(request, item, shelf, config.server, company)

    async def browse(request: Request, caller: Caller) -> Response:
        collection = await _collection(site, request.path_params["name"], caller)
        query = Query(collection.name, order=(Order(ID),), limit=PAGE, cursor=request.query_params.get("cursor", ""))
        found = await site.query(query, caller)
        listing = Listing(
            shelved(request, collection, caller),
            found,
            counts().get(collection.name),
            is_first=not query.cursor,
            previous=await _before(site, query),
        )
        return document(request, collection_page(listing), HTML, ITEM_HEADERS, server=config.server, vary=VARY)

    async def home(request: Request, caller: Caller) -> Response:
        readable = [site.catalog.collections[name] for name in site.gate.readable(caller)]
        page = home_page(site, config.site.description, counts(), readable, config.chat.path)
        return document(request, page, HTML, ASKING_HEADERS, server=None, vary=VARY)

    refused = partial(_refusal, site.name)
    return [
        Route("/", answering(metered(home, site), site, refused), methods=["GET"]),
        Route(f"{COLLECTIONS}{{name}}", answering(browse, site, refused), methods=["GET"]),
        Route("/items/{id:path}", answering(show, site, refused), methods=["GET"]),
    ]


async def _company(site: Site, item: Item, collection: Collection, caller: Caller) -> Company:
    """What a caller may do with an item, and the items that come after it; after the last one come the first."""
    actions = Actions([collection], site.own_operations).of(item, lambda each: site.gate.may(each, caller))
    onward = Query(collection.name, order=(Order(ID),))
    after = await site.beside(replace(onward, where=Condition(ID, "gt", item.id)), NEAR)
    first = await site.beside(onward, NEAR) if len(after.items) < NEAR else Page()
    near = {each.id: each for each in (*after.items, *first.items) if each.id != item.id}
    return Company(actions, tuple(near.values())[:NEAR])


async def _before(site: Site, query: Query) -> str:
    """Where the page before this one begins: a page back from where this one does. Empty if that is the start."""
    if not query.cursor:
        return ""
    return (await site.beside(replace(query, order=turned(query.order)), PAGE)).cursor


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


def _item(request: Request, item: Item, shelf: Shelf, server: Server, company: Company) -> Response:
    kind = _wanted(request)
    address = f"{shelf.base}{item_path(item.ref)}"
    linked = linked_data(item, shelf.collection.type, address)
    headers = {"link": _links(address)}
    answer = partial(document, request, media_type=kind, server=server, vary=["accept"])
    match kind:
        case "text/html":
            return answer(item_page(item, shelf, linked, company), headers={**headers, **ITEM_HEADERS})
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
