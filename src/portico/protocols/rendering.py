"""Items, actions, questions back and promises as JSON: one shape that satisfies every known client."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from posixpath import normpath
from typing import Any, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from portico.ask.events import Action, ClarificationEvent, ItemEvent, OperationEvent, Question
from portico.ask.outcomes import currency_of
from portico.ask.prose import shorten, strip_markup
from portico.items import Item
from portico.protocols import ActionCall, ActionForm, action_bindings
from portico.requests import Task
from portico.web.addresses import absolute, is_own, item_path

Json: TypeAlias = dict[str, Any]

MAX_FALLBACK = 300  # characters of a description that is made of another member
MAX_ANSWER = 1000  # of one that is the answer to a question
MAX_OWN_ACTIONS = 10  # of an item's own data
SCHEMA = "http://schema.org/"
NOTHING = "No results for this question"
_LINKS = frozenset({"image", "logo", "photo", "thumbnail", "sameAs", "mainEntityOfPage"})  # and what ends in url
_OURS = frozenset({"actions", "grounding", "score", "site", "schema_object"})  # members that only the site sets


@dataclass(frozen=True, slots=True)
class RenderContext:
    """What rendering needs to know of the site: its base URL, its types, and how actions are offered."""

    base_url: str  # http://127.0.0.1:8000, without a slash at the end
    type_of: Callable[[str], str] = lambda _: ""  # a collection's name -> the schema.org type of its items
    action_forms: tuple[ActionForm, ...] = ("HTTP",)  # in which an action is offered
    request_segments: frozenset[str] = frozenset()  # first segments of paths to which no item's own data may link
    widget: str = ""
    tool: str = ""  # of MCP that runs operations by name; empty if each is a tool of its own

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    def absolute(self, url: Any) -> str | None:
        """Return an absolute http or https URL; None for anything else."""
        return absolute(url, self.base_url)

    def is_own(self, url: str) -> bool:
        """Return whether a URL belongs to this site."""
        return is_own(url, self.base_url)

    def is_request(self, url: str) -> bool:
        """Return whether a URL of this site leads to an endpoint of a protocol, however it is written."""
        path = normpath(unquote(urlsplit(url).path).replace("\\", "/"))
        return path.strip("/").partition("/")[0].lower() in self.request_segments


def item_json_ld(item: Item, type: str, id: str = "") -> Json:
    """Return an item as JSON-LD. `type` is used if the item has none of its own; `id` replaces the item's."""
    data = {name: value for name, value in item.data.items() if name != "@id"}
    return {"@context": SCHEMA, "@id": id or item.id, "@type": type or "Thing", **data}


def render_item(
    result: ItemEvent, context: RenderContext, *, has_site_url: bool = False, has_source: bool = False
) -> Json:
    """Return an item of an answer. Earlier clients read the address of the site and the source of the item too."""
    item = result.item
    data = {name: value for name, value in clean(item.data, context).items() if name not in _OURS}
    sources = (item, *result.same)
    fields = {
        "@type": _type(data) or context.type_of(item.collection) or "Thing",
        "@id": item.id,
        "url": _own_url(item, context),
        "name": _name(item),
        "site": context.host,
        "siteUrl": context.base_url if has_site_url else None,
        "score": result.score,
        "description": description(data),
        "schema_object": data if has_source else None,
        "grounding": {
            "source_urls": list(dict.fromkeys(_own_url(source, context) for source in sources)),
            "citations": [source.id for source in sources],
        },
        "actions": list(_actions(result, context)) or None,
    }
    answer = {**fields, **{name: value for name, value in data.items() if name not in fields}}
    return {name: value for name, value in answer.items() if value is not None}


def _type(data: Json) -> Any:
    """Return the type of an item. Only the site may call something a summary: clients show that as its words."""
    type_names: Any = data.get("@type")
    return None if any(name in _SUMMARIES for name in as_list(type_names) if isinstance(name, str)) else type_names


_SUMMARIES = frozenset({"Summary", "SearchSummary"})  # in any dialect of NLWeb


def render_completed_action(did: OperationEvent, context: RenderContext) -> Json:
    """Return an operation that was run, as an item of the answer."""
    body: Json = {"@type": "Action", "name": did.operation, "actionStatus": "CompletedActionStatus"}
    if did.about:
        body["object"] = [_render_reference(item, context) for item in did.about]
    result = clean(did.result, context)
    return body if result is None else {**body, "result": result}


def _render_reference(item: Item, context: RenderContext) -> Json:
    """Return the name and the currency of an item that a result names by its id."""
    kind = _type(dict(item.data)) or context.type_of(item.collection) or "Thing"
    body: Json = {"@type": kind, "@id": item.id, "name": _name(item)}
    currency = currency_of([item])
    return {**body, "priceCurrency": currency} if currency else body


# Data


def clean(value: Any, context: RenderContext) -> Any:
    """Return data without nulls and actions, with absolute links, and with numbers that every JSON parser reads."""
    match value:
        case Mapping():
            pairs = cast("Mapping[str, Any]", value).items()
            return dict(_members(pairs, context))
        case list() | tuple():
            return [clean(element, context) for element in cast("list[Any]", value) if element is not None]
        case int() if not -(2**63) <= value < 2**64:
            return float(value)
        case _:
            return value


def _members(pairs: Any, context: RenderContext) -> Iterator[tuple[str, Any]]:
    for name, value in pairs:
        if value is None or name == "potentialAction":
            continue
        is_link = name in _LINKS or name.lower().endswith("url")
        member = _link(value, context) if is_link else clean(value, context)
        if member is not None:
            yield name, member


def _link(value: Any, context: RenderContext) -> Any:
    match value:
        case str():
            return context.absolute(value)
        case list() | tuple():
            links = [_link(link, context) for link in cast("list[Any]", value)]
            return [link for link in links if link is not None] or None
        case Mapping():
            return clean(value, context)
        case _:
            return None


def _own_url(item: Item, context: RenderContext) -> str:
    """Return the URL that an item names itself; else that of its page on this site."""
    urls = (context.absolute(url) for url in as_list(item.data.get("url")))
    foreign = context.absolute(item.id) if item.id.startswith(("http://", "https://")) else None
    return next(filter(None, (*urls, foreign)), f"{context.base_url}{item_path(item.ref)}")


def _name(item: Item) -> str:
    return next((text for key in ("name", "headline", "title") if (text := plain(item.data.get(key)))), item.id)


def plain(value: Any) -> str:
    """Return the first text in a value: a string, the first one of a list, or the text or name of an object."""
    match value:
        case str():
            return value.strip()
        case list() | tuple():
            return next((text for element in cast("list[Any]", value) if (text := plain(element))), "")
        case Mapping():
            inner = cast("Mapping[str, Any]", value)
            return next((text for key in ("@value", "text", "name") if (text := plain(inner.get(key)))), "")
        case _:
            return ""


def as_list(value: Any) -> list[Any]:
    """Return the values of a member that may hold one or a list."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def members(value: Any) -> Mapping[str, Any]:
    """Return the members of an object; no members for anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def description(data: Mapping[str, Any]) -> str | None:
    """Return what an item is described by, without markup: descriptions of shops are often HTML."""
    if text := plain(members(data.get("acceptedAnswer")).get("text")):
        return shorten(text, MAX_ANSWER)  # a question is best described by its answer
    if text := plain(data.get("description")):
        return strip_markup(text).strip() if "<" in text else text
    for name in ("text", "abstract", "articleBody", "acceptedAnswer"):
        if text := plain(data.get(name)):
            return shorten(text, MAX_FALLBACK)
    return None


# Actions


def _actions(result: ItemEvent, context: RenderContext) -> Iterator[Json]:
    for action in result.actions:
        for form in context.action_forms:
            yield render_action(action, form, context)
    yield from _data_actions(result.item, context)


def render_action(action: Action, form: ActionForm, context: RenderContext) -> Json:
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
    call = ActionCall(context.base_url, action.operation, clean(action.params, context), context.tool)
    return {**common, **action_bindings()[form].describe(call)}


def _data_actions(item: Item, context: RenderContext) -> Iterator[Json]:
    """Yield the actions in an item's own data. It may have been crawled, so only URLs of this site count."""
    for action in as_list(item.data.get("potentialAction"))[:MAX_OWN_ACTIONS]:
        if rendered := _own_action(members(action), context):
            yield rendered


def _own_action(data: Mapping[str, Any], context: RenderContext) -> Json | None:
    target = next(iter(as_list(data.get("target"))), None)
    entry = {"urlTemplate": target} if isinstance(target, str) else members(target)
    endpoint = context.absolute(entry.get("urlTemplate") or entry.get("url"))
    if endpoint is None or not context.is_own(endpoint) or context.is_request(endpoint):
        return None
    kind = plain(data.get("@type")) or "Action"
    name = plain(data.get("name")) or kind
    return {
        "@context": SCHEMA,
        "@type": kind,
        "name": name,
        "description": plain(data.get("description")) or name,
        "protocol": "HTTP",
        "method": "GET",  # data may offer something to look at, not something to do
        "endpoint": endpoint,
    }


# Questions back and promises


def render_elicitation(clarify: ClarificationEvent) -> Json:
    return {"text": clarify.text, "questions": [_render_question(question) for question in clarify.questions]}


def _render_question(question: Question) -> Json:
    body: Json = {"id": question.id, "text": question.text, "type": question.type}
    if question.options:
        body["options"] = list(question.options)
    return body if question.default is None else {**body, "default": question.default}


def render_promise(task: Task, now: datetime) -> Json:
    body: Json = {"token": task.id}
    if task.estimate is not None:
        body["estimated_time"] = max(0, round(task.estimate - (now - task.created).total_seconds()))
    if task.message:
        body["message"] = task.message
    return {**body, "progress": round(task.progress, 4)}


def clarification_text(clarify: ClarificationEvent) -> str:
    """Return the questions as text, each with its options."""
    lines = [clarify.text]
    for question in clarify.questions:
        options = f" ({', '.join(question.options)})" if question.options else ""
        lines.append(f"{question.text}{options}")
    return "\n".join(dict.fromkeys(line for line in lines if line))
