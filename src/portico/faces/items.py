"""Items at the addresses that they name themselves: GET /items/{id} gives one as JSON-LD."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.calls import Caller
from portico.catalog import ID
from portico.errors import SiteError, UnknownItem
from portico.faces.operations import problem
from portico.faces.wire import caller_of
from portico.items import Item
from portico.query import Condition, Query
from portico.site import Site


def routes(site: Site) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        try:
            item = await _found(site, request.path_params["id"], await caller_of(request, site))
        except SiteError as error:
            return problem(error)
        headers = {"etag": f'"{item.version}"', "x-content-type-options": "nosniff"}
        body = msgspec.json.encode({"@id": item.id, **item.data})
        return Response(body, headers=headers, media_type="application/ld+json")

    return [Route("/items/{id:path}", show, methods=["GET"])]


async def _found(site: Site, id: str, caller: Caller) -> Item:
    """The item of this id in a collection that the caller may read. One that its id begins with is looked at first."""
    names = sorted(site.gate.readable(caller), key=lambda name: not id.startswith(f"{name}/"))
    for name in names:
        page = await site.query(Query(name, where=Condition(ID, "eq", id), limit=1), caller)
        if page.items:
            return page.items[0]
    raise UnknownItem(f"There is no item {id[:100]!r}", id=id[:100])
