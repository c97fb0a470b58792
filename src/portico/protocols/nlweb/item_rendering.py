"""Items and actions as NLWeb shows them: one shape that satisfies every known client."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from portico.ask.events import Action, Did, Found
from portico.ask.outcomes import currency_of
from portico.ask.prose import shortened
from portico.config import ActionForm
from portico.items import Item
from portico.protocols.nlweb.dialects import FLAT, V54, V55, Dialect
from portico.web.addresses import absolute, is_own, item_path

Shown: TypeAlias = dict[str, Any]

MAX_FALLBACK = 300  # characters of a description that is made of another member
MAX_ANSWER = 1000  # of one that is the answer to a question
MAX_OWN_ACTIONS = 10  # of an item's own data
SCHEMA = "http://schema.org/"
_LINKS = frozenset({"image", "logo", "photo", "thumbnail", "sameAs", "mainEntityOfPage"})  # and what ends in url
_OURS = frozenset({"actions", "grounding", "score", "site", "schema_object"})  # in an answer these are for us to say


@dataclass(frozen=True, slots=True)
class Premises:
    """Where the site stands, as the world sees it."""

    base: str  # http://127.0.0.1:8000, without a slash at the end
    type_of: Callable[[str], str] = lambda _: ""  # a collection's name -> the schema.org type of its items
    forms: tuple[ActionForm, ...] = ("HTTP",)  # in which an action is offered
    widget: str = ""
    tool: str = ""  # of MCP that runs operations by name; empty if each is a tool of its own

    @property
    def host(self) -> str:
        return urlsplit(self.base).hostname or ""

    def absolute(self, url: Any) -> str | None:
        """A URL that a page may follow; None for anything but http and https."""
        return absolute(url, self.base)

    def is_own(self, url: str) -> bool:
        """Whether a URL leads to this site and nowhere else."""
        return is_own(url, self.base)


def linked_data(item: Item, type: str, id: str = "") -> Shown:
    """An item as JSON-LD, of the type of its collection if it says none. An id may be given that leads there."""
    data = {name: value for name, value in item.data.items() if name != "@id"}
    return {"@context": SCHEMA, "@id": id or item.id, "@type": type or "Thing", **data}


def shown_item(found: Found, premises: Premises, dialect: Dialect) -> Shown:
    item = found.item
    data = {name: value for name, value in clean(item.data, premises).items() if name not in _OURS}
    shown = {
        "@type": _type(data) or premises.type_of(item.collection) or "Thing",
        "@id": item.id,
        "url": _own_url(item, premises),
        "name": _name(item),
        "site": premises.host,
        "siteUrl": premises.base if dialect is FLAT else None,
        "score": found.score,
        "description": description(data),
        "schema_object": None if dialect is V55 else data,
        "grounding": _grounding(found, premises),
        "actions": list(_actions(found, premises)) or None,
    }
    whole = {**shown, **{name: value for name, value in data.items() if name not in shown}}
    return {name: value for name, value in whole.items() if value is not None}


def _type(data: Shown) -> Any:
    """What an item says it is. That it is a summary only the site says: clients take that for its own words."""
    said: Any = data.get("@type")
    return None if any(each in _SUMMARIES for each in several(said) if isinstance(each, str)) else said


_SUMMARIES = frozenset(each.summary for each in (V55, V54, FLAT))


def shown_deed(did: Did, premises: Premises) -> Shown:
    """An operation that was run, as an item of the answer."""
    shown: Shown = {"@type": "Action", "name": did.operation, "actionStatus": "CompletedActionStatus"}
    if did.about:
        shown["object"] = [_concerned(item, premises) for item in did.about]
    result = clean(did.result, premises)
    return shown if result is None else {**shown, "result": result}


def _concerned(item: Item, premises: Premises) -> Shown:
    """An item that a result names by its id: what it is called, and what its price is in."""
    kind = _type(dict(item.data)) or premises.type_of(item.collection) or "Thing"
    shown: Shown = {"@type": kind, "@id": item.id, "name": _name(item)}
    currency = currency_of([item])
    return {**shown, "priceCurrency": currency} if currency else shown


# Data


def clean(value: Any, premises: Premises) -> Any:
    """Data without nulls, with whole http(s) links, without actions of its own, with numbers that JSON readers know."""
    match value:
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return dict(_members(pairs, premises))
        case list() | tuple():
            return [clean(each, premises) for each in cast("list[Any]", value) if each is not None]
        case int() if not -(2**63) <= value < 2**64:
            return float(value)
        case _:
            return value


def _members(pairs: Any, premises: Premises) -> Iterator[tuple[str, Any]]:
    for name, value in pairs:
        if value is None or name == "potentialAction":
            continue
        shown = _link(value, premises) if _is_link(name) else clean(value, premises)
        if shown is not None:
            yield name, shown


def _is_link(name: str) -> bool:
    return name in _LINKS or name.lower().endswith("url")


def _link(value: Any, premises: Premises) -> Any:
    match value:
        case str():
            return premises.absolute(value)
        case list() | tuple():
            links = [_link(each, premises) for each in cast("list[Any]", value)]
            return [each for each in links if each is not None] or None
        case Mapping():
            return clean(value, premises)
        case _:
            return None


def _own_url(item: Item, premises: Premises) -> str:
    """Where an item says that it is; else its page on this site."""
    said = (premises.absolute(each) for each in several(item.data.get("url")))
    foreign = premises.absolute(item.id) if item.id.startswith(("http://", "https://")) else None
    return next(filter(None, (*said, foreign)), f"{premises.base}{item_path(item.ref)}")


def _name(item: Item) -> str:
    return next((text for key in ("name", "headline", "title") if (text := plain(item.data.get(key)))), item.id)


def plain(value: Any) -> str:
    """The first text in a value: itself, of a list, or of an object that has a text or a name."""
    match value:
        case str():
            return value.strip()
        case list() | tuple():
            return next((text for each in cast("list[Any]", value) if (text := plain(each))), "")
        case Mapping():
            inner = cast("Mapping[str, Any]", value)
            return next((text for key in ("@value", "text", "name") if (text := plain(inner.get(key)))), "")
        case _:
            return ""


def several(value: Any) -> list[Any]:
    """The values of a member that may hold one or a list."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def members(value: Any) -> Mapping[str, Any]:
    """The members of an object; of anything else there are none."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def description(data: Mapping[str, Any]) -> str | None:
    if said := plain(members(data.get("acceptedAnswer")).get("text")):
        return shortened(said, MAX_ANSWER)  # of a question its answer is worth showing
    if said := plain(data.get("description")):
        return said
    for name in ("text", "abstract", "articleBody", "acceptedAnswer"):
        if said := plain(data.get(name)):
            return shortened(said, MAX_FALLBACK)
    return None


def _grounding(found: Found, premises: Premises) -> Shown:
    relied = (found.item, *found.same)
    urls = [_own_url(each, premises) for each in relied]
    return {"source_urls": list(dict.fromkeys(urls)), "citations": [each.id for each in relied]}


# Actions


def _actions(found: Found, premises: Premises) -> Iterator[Shown]:
    for action in found.actions:
        for form in premises.forms:
            yield shown_action(action, form, premises)
    yield from _of_data(found.item, premises)


def shown_action(action: Action, form: ActionForm, premises: Premises) -> Shown:
    description = action.description
    if action.missing:
        description = f"{description} Needs also: {', '.join(action.missing)}.".strip()
    common = {
        "@context": SCHEMA,
        "@type": action.type,
        "name": action.operation,
        "description": description or action.operation,
        "protocol": form,
    }
    params = clean(action.params, premises)
    match form:
        case "HTTP":
            endpoint = f"{premises.base}/operations/{action.operation}"
            return {**common, "method": "POST", "endpoint": endpoint, "params": params}
        case "MCP":
            own = {"tool": action.operation, "arguments": params}
            by_name = {"tool": premises.tool, "arguments": {"operation": action.operation, "params": params}}
            return {**common, "server": f"{premises.base}/mcp", **(by_name if premises.tool else own)}
        case "A2A":
            # As version 1.0 writes it. Whoever sends it gives it an id.
            part = {"data": {"operation": action.operation, "params": params}, "mediaType": "application/json"}
            message = {"role": "ROLE_USER", "parts": [part]}
            return {**common, "agent_url": f"{premises.base}/a2a", "skill": action.operation, "message": message}


def _of_data(item: Item, premises: Premises) -> Iterator[Shown]:
    """What an item's own data offers. It may have been crawled: only this site's addresses, and never headers."""
    for each in several(item.data.get("potentialAction"))[:MAX_OWN_ACTIONS]:
        if shown := _own_action(members(each), premises):
            yield shown


def _is_a_face(endpoint: str) -> bool:
    """Whether this is where Portico itself is told to do things, however a browser gets there: no data leads there."""
    path = normpath(unquote(urlsplit(endpoint).path).replace("\\", "/"))
    return path.strip("/").partition("/")[0].lower() in _FACES


_FACES = frozenset({"ask", "await", "operations", "tasks", "mcp", "a2a", "nwp", "aql", "chat", "desk"})


def _own_action(data: Mapping[str, Any], premises: Premises) -> Shown | None:
    target = next(iter(several(data.get("target"))), None)
    entry = {"urlTemplate": target} if isinstance(target, str) else members(target)
    endpoint = premises.absolute(entry.get("urlTemplate") or entry.get("url"))
    if endpoint is None or not premises.is_own(endpoint) or _is_a_face(endpoint):
        return None
    kind = plain(data.get("@type")) or "Action"
    name = plain(data.get("name")) or kind
    return {
        "@context": SCHEMA,
        "@type": kind,
        "name": name,
        "description": plain(data.get("description")) or name,
        "protocol": "HTTP",
        "method": "GET",  # what data offers may be looked at, not done
        "endpoint": endpoint,
    }
