"""Pages by cursor, on and back: which part of a list is wanted, and where the part that was found lies.

A cursor stands for an item in the order of one query; going back is the same query in the turned order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.catalog import ID
from portico.config import Aql
from portico.errors import InvalidParams
from portico.protocols.aql.complaints import concerning
from portico.protocols.aql.envelopes import quoted
from portico.protocols.aql.shapes import Asking, ParameterInfo, Warned
from portico.query import Order, Page, Query, turned
from portico.site import Site

PAGING = ("first", "after", "last", "before")
TRUNCATED = "VALIDATION_TRUNCATED_WARNING"
_APART = (("first", "last"), ("first", "before"), ("last", "after"))
_TOGETHER = (("after", "first"), ("before", "last"))


@dataclass(frozen=True, slots=True)
class Part:
    """So many items after a cursor, or so many before one."""

    size: int
    cursor: str = ""
    is_back: bool = False

    @property
    def param(self) -> str:
        """The parameter that its cursor came in."""
        return "before" if self.is_back else "after"


@dataclass(frozen=True, slots=True)
class Found:
    """A part of a list in its order, whichever way it was read."""

    page: Page
    info: dict[str, Any]


def parameters(settings: Aql, *, back: bool) -> tuple[ParameterInfo, ...]:
    """They have no published default and no maximum: the one would stand beside `last`, the other is no error."""
    size = f"{min(settings.page, settings.most)} without it, {settings.most} if more are wanted"
    forth = (
        ParameterInfo(name="first", type="integer", required=False, description=f"Items of a page; {size}", minimum=1),
        ParameterInfo(
            name="after", type="string", required=False, description="endCursor of the page before; needs `first`"
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
            name="before", type="string", required=False, description="startCursor of the page behind; needs `last`"
        ),
    )


def read_part(params: Mapping[str, Any], settings: Aql, operation: str) -> tuple[Part, tuple[Warned, ...]]:
    """The part that is wanted, no larger than the site allows."""
    given = {name: params[name] for name in PAGING if params.get(name) is not None}
    conflict = _conflict(given)
    if conflict:
        raise InvalidParams(
            f"Parameters of 'pagination' conflict: {conflict}",
            operation=operation,
            param="pagination",
            expected="first, first with after, last, or last with before",
            got=", ".join(given),
        )
    name = "last" if "last" in given else "first"
    wanted = given.get(name, min(settings.page, settings.most))
    size = min(wanted, settings.most)
    warned = (truncated(name, wanted, size, settings.most),) if size < wanted else ()
    return Part(size, given.get("after", given.get("before", "")), name == "last"), warned


def _conflict(given: Mapping[str, Any]) -> str:
    for one, other in _APART:
        if one in given and other in given:
            return f"'{one}' excludes '{other}'"
    for cursor, size in _TOGETHER:
        if cursor in given and size not in given:
            return f"'{cursor}' needs '{size}'"
    return next((f"'{each}' is empty" for each in ("after", "before") if given.get(each) == ""), "")


def truncated(field: str, original: int, kept: int, limit: int) -> Warned:
    return Warned(
        code=TRUNCATED,
        message=f"{quoted(field)} was cut from {original} to {kept}",
        details={"field": field, "original_count": original, "truncated_count": kept, "limit": limit},
    )


async def walked(site: Site, query: Query, part: Part, asking: Asking, operation: str) -> Found:
    """A part of what a query finds, with a cursor for each of its ends."""
    onward = (*query.order, Order(ID))
    ahead = replace(query, order=turned(onward) if part.is_back else onward, limit=part.size, cursor=part.cursor)
    with concerning(operation, part.param):
        page = await site.query(ahead, asking.caller)
    far = page.cursor or await _cursor_at(site, replace(ahead, order=turned(ahead.order), cursor=""), page, -1)
    near = far if len(page.items) < 2 else await _cursor_at(site, ahead, page, 0)
    more, passed = bool(page.cursor), bool(part.cursor)
    if part.is_back:
        return Found(replace(page, items=page.items[::-1]), _info(page, part, passed, more, far, near))
    return Found(page, _info(page, part, more, passed, near, far))


async def searched(site: Site, query: Query, part: Part, asking: Asking, operation: str) -> Found:
    """A part of what a search finds. What is ranked is read from its best on."""
    with concerning(operation, part.param):
        page = await site.query(replace(query, limit=part.size, cursor=part.cursor), asking.caller)
    return Found(page, _info(page, part, bool(page.cursor), bool(part.cursor), "", page.cursor))


async def _cursor_at(site: Site, query: Query, page: Page, number: int) -> str:
    """The cursor of the first item that a query finds, if it is this one of the page and not the only one."""
    if not page.items:
        return ""
    one = await site.beside(replace(query, count=False), 1)
    return one.cursor if one.items and one.items[0].id == page.items[number].id else ""


def _info(page: Page, part: Part, has_next: bool, has_previous: bool, start: str, end: str) -> dict[str, Any]:
    return {
        "hasNextPage": has_next,
        "hasPreviousPage": has_previous,
        **({"startCursor": start} if start else {}),
        **({"endCursor": end} if end else {}),
        **({} if page.total is None else {"totalCount": page.total}),
        "pageSize": part.size,
    }
