"""The command `portico query`: filters, searches, sorts and aggregates a collection, here or on a server."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from portico.cli.options import JsonOption, KeyOption, SiteOption, StoreOption, parse_json
from portico.cli.sites import caller_of, load_config, require_store
from portico.cli.terminal import show_page, show_rows
from portico.config import Config
from portico.errors import ConfigError, InvalidQuery

if TYPE_CHECKING:
    from portico.query import Aggregate, Page, Query

QueryOver = Literal["store", "nwp", "nwp-native"]


def query_collection(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    where: Annotated[
        str | None, typer.Option(help='Filter, as JSON: {"price": {"$lt": 20}}', show_default=False)
    ] = None,
    text: Annotated[
        str, typer.Option(help="Words to search for; the best matches come first.", show_default=False)
    ] = "",
    order: Annotated[
        list[str] | None,
        typer.Option(help="Field to sort by; -price or price:desc sorts in descending order.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of items, up to 1000.")] = 20,
    fields: Annotated[
        str | None, typer.Option(help="Return only these fields: name,offers.price", show_default=False)
    ] = None,
    cursor: Annotated[str, typer.Option(help="Continue after the previous page.", show_default=False)] = "",
    aggregate: Annotated[
        list[str] | None,
        typer.Option(
            help="count, sum, avg, min, max or count_distinct, as in 'avg(price) as mean'.", show_default=False
        ),
    ] = None,
    group_by: Annotated[list[str] | None, typer.Option(help="Field to group by.", show_default=False)] = None,
    having: Annotated[str | None, typer.Option(help="Filter for the groups, as JSON.", show_default=False)] = None,
    url: Annotated[str | None, typer.Option(help="Query a running server.", show_default=False)] = None,
    over: Annotated[
        QueryOver, typer.Option(help="Query the local store, or the collection's node at --url over NWP.")
    ] = "store",
    ident: Annotated[
        Path | None, typer.Option(help="Certificate file to authenticate with.", show_default=False)
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="PEM file of certificates to trust over TLS.", show_default=False)
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Filter, search, sort and aggregate the items of a collection.

    portico query products --where '{"price":{"$lt":20}}' --order price --limit 5

    portico query recipes --text "lemon soup" --where '{"totalTime":{"$lte":"PT30M"}}'

    portico query products --aggregate "count as n" --aggregate "avg(price) as mean" --group-by category
    --having '{"n":{"$gte":5}}' --order -n

    portico query recipes --limit 5 --over nwp --url http://127.0.0.1:8000
    """
    from portico.query import Query

    query = Query(
        collection,
        text=text,
        where=_filter(where),
        order=tuple(_order(sort_key) for sort_key in order or ()),
        fields=tuple(field.strip() for field in fields.split(",")) if fields else (),
        aggregate=_aggregate(aggregate, group_by, having),
        limit=limit,
        cursor=cursor,
        count=True,
    )
    if over != "store":
        from portico.cli.query_nwp import RemoteServer, query_server

        remote_page = asyncio.run(query_server(query, RemoteServer(over, url, api_key, ident, ca)))
        show_rows(remote_page.rows, query, as_json, total=remote_page.total, cursor=remote_page.cursor)
        return
    if url or ident or ca:
        address = "" if url else " --url http://127.0.0.1:8000"
        raise ConfigError("--url, --ident and --ca need a protocol", hint=f"Add --over nwp{address}.")
    page: Page = asyncio.run(_query(require_store(load_config(site, store)), query, api_key))
    show_page(page, query, as_json)


async def _query(config: Config, query: "Query", api_key: str | None) -> "Page":
    from portico.server.assembly import open_site, open_site_without_index

    site = open_site(config, background=False, serves=False) if query.text else open_site_without_index(config)
    async with site as parts:
        return await parts.site.query(query, await caller_of(parts, api_key))


def _filter(raw: str | None) -> Any:
    from portico.query import MATCH_ALL, parse_filter

    return MATCH_ALL if raw is None else parse_filter(parse_json(raw, "--where"))


def _order(raw: str) -> Any:
    from portico.query import Order

    name, _, direction = raw.partition(":")
    if direction.lower() not in {"", "asc", "desc"}:
        raise InvalidQuery(f"{raw!r} is not a sort order", hint="Write price, -price or price:desc.")
    return Order(name.removeprefix("-"), raw.startswith("-") or direction.lower() == "desc")


def _aggregate(raw: list[str] | None, group_by: list[str] | None, having: str | None) -> "Aggregate | None":
    from portico.query import MATCH_ALL, Aggregate, parse_aggregation, parse_filter

    if not raw and not group_by and not having:
        return None
    groups = tuple(name.strip() for names in group_by or () for name in names.split(","))
    operations = tuple(parse_aggregation(expression) for expression in raw or ("count as count",))
    row_filter = parse_filter(parse_json(having, "--having")) if having else MATCH_ALL
    return Aggregate(operations, groups, row_filter)
