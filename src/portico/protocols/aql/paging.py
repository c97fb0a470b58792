"""Pagination by cursor, forward and backward: `first`, `after`, `last`, `before`, and the pageInfo of a page.

A cursor stands for an item in the order of one query; paging backward is the same query in reverse order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.catalog import ID
from portico.errors import InvalidParams
from portico.protocols.aql.envelopes import blame_param, quote
from portico.protocols.aql.settings import AqlSettings
from portico.protocols.aql.shapes import AqlRequestContext, OperationWarning, ParameterInfo
from portico.query import Order, Page, Query, reverse_order
from portico.site import Site

PAGING = ("first", "after", "last", "before")
TRUNCATED = "VALIDATION_TRUNCATED_WARNING"
_APART = (("first", "last"), ("first", "before"), ("last", "after"))
_TOGETHER = (("after", "first"), ("before", "last"))


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The size of a page, and the cursor that it comes after or before."""

    size: int
    cursor: str = ""
    is_backward: bool = False

    @property
    def param(self) -> str:
        """The parameter that holds the cursor."""
        return "before" if self.is_backward else "after"


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page in the order of the list, whichever way it was read."""

    page: Page
    info: dict[str, Any]


def page_params(settings: AqlSettings, *, back: bool) -> tuple[ParameterInfo, ...]:
    """Return the parameters, without a default (which would conflict with `last`) and a maximum (it is no error)."""
    size = f"{min(settings.page, settings.most)} by default, {settings.most} at most"
    forth = (
        ParameterInfo(name="first", type="integer", required=False, description=f"Items of a page; {size}", minimum=1),
        ParameterInfo(
            name="after", type="string", required=False, description="endCursor of the previous page; needs `first`"
        ),
    )
    if not back:
        return forth
    return (
        *forth,
        ParameterInfo(
            name="last", type="integer", required=False, description=f"Items of a page from the end; {size}", minimum=1
        ),
        ParameterInfo(
            name="before", type="string", required=False, description="startCursor of the next page; needs `last`"
        ),
    )


def parse_page_request(
    params: Mapping[str, Any], settings: AqlSettings, operation: str
) -> tuple[PageRequest, tuple[OperationWarning, ...]]:
    """Parse the paging parameters. A size beyond the site's maximum is reduced with a warning."""
    present = {name: params[name] for name in PAGING if params.get(name) is not None}
    conflict = _conflict(present)
    if conflict:
        raise InvalidParams(
            f"Parameters of 'pagination' conflict: {conflict}",
            operation=operation,
            param="pagination",
            expected="first, first with after, last, or last with before",
            got=", ".join(present),
        )
    name = "last" if "last" in present else "first"
    requested = present.get(name, min(settings.page, settings.most))
    size = min(requested, settings.most)
    warnings = (truncation_warning(name, requested, size, settings.most),) if size < requested else ()
    return PageRequest(size, present.get("after", present.get("before", "")), name == "last"), warnings


def _conflict(present: Mapping[str, Any]) -> str:
    for one, other in _APART:
        if one in present and other in present:
            return f"'{one}' excludes '{other}'"
    for cursor, size in _TOGETHER:
        if cursor in present and size not in present:
            return f"'{cursor}' needs '{size}'"
    return next((f"'{name}' is empty" for name in ("after", "before") if present.get(name) == ""), "")


def truncation_warning(field: str, original: int, count: int, limit: int) -> OperationWarning:
    return OperationWarning(
        code=TRUNCATED,
        message=f"{quote(field)} was reduced from {original} to {count}",
        details={"field": field, "original_count": original, "truncated_count": count, "limit": limit},
    )


async def fetch_page(
    site: Site, query: Query, part: PageRequest, context: AqlRequestContext, operation: str
) -> ResultPage:
    """Return a page of a query's items, with a cursor for each end."""
    onward = (*query.order, Order(ID))
    ahead = replace(
        query, order=reverse_order(onward) if part.is_backward else onward, limit=part.size, cursor=part.cursor
    )
    with blame_param(operation, part.param):
        page = await site.query(ahead, context.caller)
    far = page.cursor or await _cursor_at(site, replace(ahead, order=reverse_order(ahead.order), cursor=""), page, -1)
    near = far if len(page.items) < 2 else await _cursor_at(site, ahead, page, 0)
    more, passed = bool(page.cursor), bool(part.cursor)
    if part.is_backward:
        return ResultPage(replace(page, items=page.items[::-1]), _info(page, part, passed, more, far, near))
    return ResultPage(page, _info(page, part, more, passed, near, far))


async def fetch_search_page(
    site: Site, query: Query, part: PageRequest, context: AqlRequestContext, operation: str
) -> ResultPage:
    """Return a page of search results, best matches first."""
    with blame_param(operation, part.param):
        page = await site.query(replace(query, limit=part.size, cursor=part.cursor), context.caller)
    return ResultPage(page, _info(page, part, bool(page.cursor), bool(part.cursor), "", page.cursor))


async def _cursor_at(site: Site, query: Query, page: Page, number: int) -> str:
    """Return the cursor of a query's first item, if it is that item of the page and not the only one."""
    if not page.items:
        return ""
    one = await site.further_page(replace(query, count=False), 1)
    return one.cursor if one.items and one.items[0].id == page.items[number].id else ""


def _info(page: Page, part: PageRequest, has_next: bool, has_previous: bool, start: str, end: str) -> dict[str, Any]:
    return {
        "hasNextPage": has_next,
        "hasPreviousPage": has_previous,
        **({"startCursor": start} if start else {}),
        **({"endCursor": end} if end else {}),
        **({} if page.total is None else {"totalCount": page.total}),
        "pageSize": part.size,
    }
