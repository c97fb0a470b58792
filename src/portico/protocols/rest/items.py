"""Items at their own URLs, and the pages that lead there. Read-only.

GET /items/{ref}         one item: a page for browsers, JSON-LD for programs, or plain JSON
GET /collections/{name}  the items of a collection, page by page
GET /                    the home page, where people ask

What the caller may not read does not exist. Errors are problem details, or a page for browsers.
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
from starlette.types import ASGIApp, Scope

from portico.ask.actions import ItemActions
from portico.catalog import ID, Collection
from portico.config import Config, Server
from portico.errors import SiteError, UnknownCollection
from portico.items import Item
from portico.presentation import present
from portico.protocols.documents import VARY, document, preferred_media_type, tag_of
from portico.protocols.http import base_of
from portico.protocols.links import describe_links, linked_items, linking_items
from portico.protocols.problems import make_handler, problem
from portico.protocols.rendering import item_json_ld
from portico.query import Condition, Order, Page, Query, reverse_order
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import COLLECTIONS, item_path
from portico.web.home import CollectionListing, collection_page, home_page, problem_page
from portico.web.item import FORMATS, ItemExtras, LinkingGroup, PageLocation, item_page
from portico.web.pictures import PictureHosts
from portico.web.style import APP_HEADERS, HEADERS, ITEM_HEADERS, headers_with

PAGE = 48  # items of a collection that are listed at once: whole rows, in one, two or three columns
NEAR = 3  # neighbours of an item
HTML = "text/html"
MEDIA_TYPES = (*FORMATS.values(), HTML)

Counts: TypeAlias = Callable[[], Mapping[str, int]]  # how many items each collection has


def routes(site: Site, config: Config, counts: Counts, chat: str) -> list[BaseRoute]:
    """Return the routes of this protocol."""

    hosts = PictureHosts(config.web.image_hosts)

    def make_location(request: Request, collection: Collection, caller: Caller) -> PageLocation:
        readable = [site.catalog.collections[name] for name in site.access.readable(caller)]
        return PageLocation(site.name, base_of(request, config.server), collection, readable, hosts)

    async def show(request: Request, caller: Caller) -> Response:
        # The few ids that no path can carry are in the query.
        item = await site.find_item(request.path_params["id"] or request.query_params.get("id", ""), caller)
        location = make_location(request, site.catalog.collections[item.collection], caller)
        links = await linked_items(site, item, caller)
        extras = (
            await _extras_of(site, item, location.collection, caller)
            if _negotiate_format(request) == HTML
            else ItemExtras()
        )
        return _render_item(request, item, location, config.server, replace(extras, links=links))

    async def browse(request: Request, caller: Caller) -> Response:
        collection = await _collection(site, request.path_params["name"], caller)
        query = Query(collection.name, order=(Order(ID),), limit=PAGE, cursor=request.query_params.get("cursor", ""))
        page = await site.query(query, caller)
        listing = CollectionListing(
            make_location(request, collection, caller),
            page,
            counts().get(collection.name),
            is_first=not query.cursor,
            previous=await _previous_cursor(site, query),
        )
        headers = headers_with(ITEM_HEADERS, hosts)
        return document(request, collection_page(listing), HTML, headers, server=config.server, vary=VARY)

    async def home(request: Request, caller: Caller) -> Response:
        readable = [site.catalog.collections[name] for name in site.access.readable(caller)]
        page = home_page(site, config.site.description, counts(), readable, chat, hosts)
        return document(request, page, HTML, headers_with(APP_HEADERS, hosts), server=None, vary=VARY)

    render_refusal = partial(_refusal, site.name)
    return [
        Route("/", make_handler(home, render_refusal), methods=["GET"]),
        Route(f"{COLLECTIONS}{{name}}", make_handler(browse, render_refusal), methods=["GET"]),
        Route("/items/{id:path}", make_handler(show, render_refusal), methods=["GET"]),
    ]


async def _extras_of(site: Site, item: Item, collection: Collection, caller: Caller) -> ItemExtras:
    """Return the actions of a caller on an item, and the items after it; after the last one come the first."""
    actions = ItemActions([collection], site.own_operations).of(
        item, lambda operation: site.access.may(operation, caller)
    )
    onward = Query(collection.name, order=(Order(ID),))
    after = await site.further_page(replace(onward, where=Condition(ID, "gt", item.id)), NEAR)
    first = await site.further_page(onward, NEAR) if len(after.items) < NEAR else Page()
    near = {operation.id: operation for operation in (*after.items, *first.items) if operation.id != item.id}
    linking = [
        LinkingGroup(group.collection, group.field, group.items, group.has_more)
        for group in await linking_items(site, item, caller)
    ]
    return ItemExtras(actions, tuple(near.values())[:NEAR], linking=linking)


async def _previous_cursor(site: Site, query: Query) -> str:
    """Return the cursor of the page before this one; empty if that is the first."""
    if not query.cursor:
        return ""
    return (await site.further_page(replace(query, order=reverse_order(query.order)), PAGE)).cursor


def _refusal(site: str, request: Request, error: SiteError) -> Response:
    detail = f"{error.message}. {error.hint or ''}".strip()
    return as_page(site, request, problem(error), detail)


def render_error(site: str, scope: Scope, error: SiteError) -> ASGIApp:
    """Return an error page if the client prefers pages, else problem details."""
    return problem(error) if scope["type"] == "websocket" else _refusal(site, Request(scope), error)


def as_page(site: str, request: Request, response: Response, detail: str) -> Response:
    """Return an error as a page, if the client prefers pages."""
    if _negotiate_format(request) != HTML:
        return response
    phrase = HTTPStatus(response.status_code).phrase
    headers = {name: response.headers[name] for name in _ERROR_HEADERS if name in response.headers}
    return HTMLResponse(
        problem_page(site, phrase, detail), response.status_code, {**HEADERS, **headers, "vary": "accept"}
    )


_ERROR_HEADERS = ("allow", "cache-control", "retry-after", "www-authenticate")


def _negotiate_format(request: Request) -> str:
    """Return the media type that a client prefers: by `format` in the query, else by its Accept header."""
    media_type = FORMATS.get(request.query_params.get("format", ""))
    return media_type or preferred_media_type(",".join(request.headers.getlist("accept")), MEDIA_TYPES)


def _render_item(request: Request, item: Item, location: PageLocation, server: Server, extras: ItemExtras) -> Response:
    kind = _negotiate_format(request)
    address = f"{location.base}{item_path(item.ref)}"
    linked = item_json_ld(present(item, location.collection), location.collection.type, address)
    headers = {"link": _links(address)}
    answer = partial(document, request, media_type=kind, server=server, vary=["accept"])
    match kind:
        case "text/html":
            return answer(
                item_page(item, location, linked, extras),
                headers={**headers, **headers_with(ITEM_HEADERS, location.hosts)},
            )
        case "application/json":
            links = describe_links(extras.links, {collection.name: collection for collection in location.collections})
            whole = {"id": item.id, "collection": item.collection, "version": item.version, "data": item.data}
            encoded = msgspec.json.encode({**whole, "links": links} if links else whole)
            # The titles of linked items change without this item.
            return answer(encoded, headers=headers, tag=f"{tag_of(encoded) if links else item.version}.json")
        case _:
            return answer(msgspec.json.encode(linked), headers=headers, tag=item.version)


def _links(address: str) -> str:
    others = (f'<{address}>; rel="alternate"; type="{kind}"' for kind in MEDIA_TYPES)
    return ", ".join([f'<{address}>; rel="canonical"', *others])


async def _collection(site: Site, name: str, caller: Caller) -> Collection:
    """Return a collection that the caller may read; to others it does not exist."""

    def find() -> Collection:
        if name not in site.access.readable(caller):
            raise UnknownCollection(f"There is no collection {name[:100]!r}", collection=name[:100])
        return site.catalog.collections[name]

    return await site.access.look_up(find)
