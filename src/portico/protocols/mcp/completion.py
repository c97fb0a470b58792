"""What could stand in an address or a prompt: names of collections, and ids that begin as was typed."""

import mcp_types as types

from portico.catalog import ID
from portico.items import MAX_ID, text_problem
from portico.protocols.mcp import prompts, resources
from portico.query import And, Condition, Order, Query
from portico.requests import Caller
from portico.site import Site

MOST = 100  # values in one answer, as the protocol allows
LAST = "\U0010ffff"  # behind it comes no character


async def complete(site: Site, caller: Caller, params: types.CompleteRequestParams) -> types.CompleteResult:
    """For arguments of which nothing is known, nothing is proposed."""
    begun = params.argument.value
    known = (params.context.arguments if params.context else None) or {}
    match params.ref, params.argument.name:
        case types.ResourceTemplateReference(uri=resources.COLLECTION | resources.ITEM), "collection":
            return _names(site, caller, begun)
        case types.ResourceTemplateReference(uri=resources.ITEM), "id":
            return await _ids(site, caller, known.get("collection", ""), begun)
        case types.PromptReference(name=name), "collection" if prompts.takes_collection(name):
            return _names(site, caller, begun)
        case _:
            return _proposed([])


def _names(site: Site, caller: Caller, begun: str) -> types.CompleteResult:
    start = begun.casefold()
    return _proposed([name for name in sorted(site.gate.readable(caller)) if name.casefold().startswith(start)])


async def _ids(site: Site, caller: Caller, collection: str, begun: str) -> types.CompleteResult:
    if collection not in site.gate.readable(caller) or len(begun) > MAX_ID or text_problem(begun):
        return _proposed([])
    # A range and not a pattern, so that an index of ids answers it.
    where = And((Condition(ID, "gte", begun), Condition(ID, "lte", begun + LAST)))
    page = await site.query(Query(collection, where=where, order=(Order(ID),), fields=(ID,), limit=MOST), caller)
    more = bool(page.cursor)
    total = None if more else len(page.items)
    return types.CompleteResult(
        completion=types.Completion(values=[item.id for item in page.items], total=total, has_more=more)
    )


def _proposed(values: list[str]) -> types.CompleteResult:
    more = len(values) > MOST
    return types.CompleteResult(completion=types.Completion(values=values[:MOST], total=len(values), has_more=more))
