"""The page of one item. All content is optional: a name is enough for a page."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import Any, cast

import msgspec

from portico.ask.events import Action
from portico.ask.prose import shorten
from portico.catalog import Collection, Role
from portico.items import Item, title_of
from portico.presentation import present
from portico.web.addresses import absolute, collection_path, is_own, item_path, operation_path
from portico.web.cards import card, facts, item_kind, item_name, item_summary, kind_line
from portico.web.pictures import OWN_PICTURES, PictureHosts, image_tag, picture, pictures
from portico.web.style import content_page
from portico.web.values import (
    MAX_ELEMENTS,
    MAX_MEMBERS,
    DisplayContext,
    definitions,
    isolate,
    more,
    one_line,
    paragraphs,
    render_list,
    render_value,
)
from portico.web.words import ENGLISH, Words, label, page_words

MAX_EMBEDDED = 250_000  # bytes of JSON-LD in the page; longer data is only linked
MAX_ACTIONS = 6
MAX_STEP = 60  # characters of a step of the breadcrumb
MAX_LEAD = 500  # characters of a description in the header
LONG = 300  # characters from which a text gets its own section
LONG_ELEMENT = 80  # and for an element of a list

FORMATS = {"jsonld": "application/ld+json", "json": "application/json"}  # formats of an item besides its page

# The order of the most important members. The rest follows in the order of the data.
_FIRST = (
    "price", "priceRange", "offers", "aggregateRating", "startDate", "endDate", "location", "totalTime", "author",
    "datePublished", "address", "openingHours", "openingHoursSpecification", "telephone",
)  # fmt: skip
_SECTIONS = (
    "articleBody",
    "text",
    "acceptedAnswer",
    "recipeIngredient",
    "recipeInstructions",
    "step",
    "itemListElement",
)
_IN_HEADER: frozenset[Role] = frozenset({"title", "given_name", "family_name", "image", "description"})
_UNTITLED = frozenset({"articleBody", "text", "description"})
_STEPS = frozenset({"recipeInstructions", "step"})
_HIDDEN = frozenset({"@context", "@id", "@type", "@graph", "image", "inLanguage", "potentialAction", "priceCurrency"})
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}\Z")
_SCRIPT_ENDS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class PageLocation:
    """Where a page belongs: the site, its base URL and the collection."""

    site: str
    base: str  # without a trailing slash
    collection: Collection
    collections: Sequence[Collection] = ()  # all that the caller may read
    hosts: PictureHosts = OWN_PICTURES

    @property
    def title(self) -> str:
        return collection_title(self.collection)

    def places(self, words: Words) -> str:
        """Render the menu of collections."""
        links = "".join(f"<li>{_place(collection, words)}</li>" for collection in self.collections)
        summary = f'<summary class="button quiet">{words.html("browse")}</summary>'
        return f'<details class="browse">{summary}<ul class="card">{links}</ul></details>' if links else ""


def _place(collection: Collection, words: Words) -> str:
    """Render a link to a collection within text in the language of `words`."""
    lang = "" if collection.language == words.own_language else f' lang="{escape(collection.language)}"'
    return f'<a{lang} href="{escape(collection_path(collection.name))}">{isolate(collection_title(collection))}</a>'


def collection_title(collection: Collection) -> str:
    return collection.title or label(collection.name)


@dataclass(frozen=True, slots=True)
class LinkingGroup:
    """The first items of a collection that link to an item through a field."""

    collection: Collection
    field: str
    items: Sequence[Item]
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class ItemExtras:
    """What a page shows besides its item: actions, items that are linked with it, and similar items."""

    actions: Sequence[Action] = ()
    near: Sequence[Item] = ()
    links: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])  # by field
    linking: Sequence[LinkingGroup] = ()


def item_page(item: Item, location: PageLocation, linked: Mapping[str, Any], extras: ItemExtras | None = None) -> str:
    """Return a page that shows all of an item, and embeds it as JSON-LD."""
    language = _language(item, location.collection)
    words = page_words(language)
    own = item
    item = present(own, location.collection)
    context = DisplayContext(location.base, words, hosts=location.hosts).within(item.data)
    beside_item = extras or ItemExtras()
    body = [
        trail(("/", location.site), (collection_path(location.collection.name), location.title), words=words),
        "<article>",
        _header(item, location, context, beside_item.actions),
        _body(_with_references(_body_data(own, item, location.collection), beside_item.links), context),
        "</article>",
        _linking(beside_item.linking, context),
        _near(beside_item.near, location, context),
        _forms(item, words),
    ]
    return content_page(
        f"{item_name(item)} · {one_line(location.site)}",
        location.site,
        "\n".join(filter(None, body)),
        places=location.places(words),
        head=_head(item, location, linked),
        words=words,
    )


def trail(*steps: tuple[str, str], words: Words = ENGLISH) -> str:
    """Render a breadcrumb from the front page to here."""
    links = "<span>›</span>".join(
        f'<a{words.unmark} href="{escape(path)}">{isolate(shorten(text, MAX_STEP))}</a>' for path, text in steps
    )
    return f'<nav class="trail"{words.mark} aria-label="{words.text("trail")}">{links}</nav>'


def _language(item: Item, collection: Collection) -> str:
    language = item.data.get("inLanguage")
    return language if isinstance(language, str) and _LANGUAGE.match(language) else collection.language


# The head


def _head(item: Item, location: PageLocation, linked: Mapping[str, Any]) -> str:
    address = f"{location.base}{item_path(item.ref)}"
    summary = item_summary(item)
    graph = {
        "og:title": item_name(item),
        "og:description": summary,
        "og:url": address,
        "og:site_name": one_line(location.site),
        "og:type": "website",
        "og:image": next(_preview_images(item.data, location.base), ""),
    }
    tags = [f'<link rel="canonical" href="{escape(address)}">']
    tags += [f'<meta name="description" content="{escape(summary)}">'] if summary else []
    tags += [f'<meta property="{name}" content="{escape(text)}">' for name, text in graph.items() if text]
    for name, kind in FORMATS.items():
        tags.append(f'<link rel="alternate" type="{kind}" href="{escape(format_path(item.ref, name))}">')
    encoded = script_json(linked)
    if len(encoded) <= MAX_EMBEDDED:
        tags.append(f'<script type="application/ld+json">{encoded}</script>')
    return "".join(tags)


def format_path(ref: str, name: str) -> str:
    """Return the path of an item in one format, for clients that send no Accept header."""
    path = item_path(ref)
    return f"{path}{'&' if '?' in path else '?'}format={name}"


def script_json(data: Any) -> str:
    """Return JSON for a script element. Characters that could end the element are escaped."""
    return _json(data).translate(_SCRIPT_ENDS)


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


# The body


def _header(item: Item, location: PageLocation, context: DisplayContext, actions: Sequence[Action]) -> str:
    """Render the header: type, name, facts, description, actions and picture."""
    data, kind = item.data, item_kind(item.data, location.collection.type)
    src = picture(data, location.base, location.hosts)
    image = image_tag(src, "picture", location.base, item_name(item)) if src else ""
    return (
        f'<header class="opening"><div>{kind_line(kind, "kind", context.words)}'
        f'<h1 dir="auto">{escape(item_name(item))}</h1>{facts(data, kind, context)}{_lead(data)}'
        f"{_actions(actions, context.words)}</div>{image}</header>"
    )


def _lead(data: Mapping[str, Any]) -> str:
    description = data.get("description")
    return (
        f'<div class="lead">{paragraphs(description)}</div>'
        if isinstance(description, str) and 0 < len(description) <= MAX_LEAD
        else ""
    )


def _actions(actions: Sequence[Action], words: Words) -> str:
    """Render links to the actions. Scripts open a form; without them, the links lead to the documentation."""
    links = "".join(map(_action, actions[:MAX_ACTIONS]))
    without = f'<noscript><p class="faint">{words.html("scripts")}</p></noscript>'
    return f'<div class="actions"><div class="row">{links}</div>{without}</div>' if links else ""


def _action(action: Action) -> str:
    attributes = f'data-operation="{escape(action.operation)}" data-params="{escape(_json(action.params))}"'
    path, title = escape(operation_path(action.operation)), escape(label(action.operation))
    return f'<a class="button primary" href="{path}" title="{escape(action.description)}" {attributes}>{title}</a>'


def ask_form(about: str, words: Words, collection: str = "") -> str:
    """Render a form that opens the chat with a question, within a collection if one is named."""
    within = f'<input type="hidden" name="collection" value="{escape(collection)}">' if collection else ""
    return (
        f'<form class="asking card" action="/" role="search"><label for="q">{words.html(about)}</label>'
        f'<div class="row"><input class="grow" id="q" name="q" dir="auto" required maxlength="1000" autocomplete="off">'
        f'{within}<button class="primary" type="submit">{words.html("ask")}</button></div></form>'
    )


def _with_references(data: Mapping[str, Any], links: Mapping[str, Sequence[Item]]) -> Mapping[str, Any]:
    """Return data in which the ids of linked items are references, with their names and addresses."""
    shown = dict(data)
    for name, items in links.items():
        if name not in data:
            continue
        references = [{"name": item_name(item), "url": item_path(item.ref)} for item in items]
        shown[name] = references if isinstance(data.get(name), list) else references[0]
    return shown


def _linking(groups: Sequence[LinkingGroup], context: DisplayContext) -> str:
    """Render the items that link here, with a heading for each collection; several of one say through which field."""
    names = [group.collection.name for group in groups]
    sections: list[str] = []
    for group in groups:
        title = _place(group.collection, context.words)
        if names.count(group.collection.name) > 1:
            title += f" · {context.words.label(group.field)}"
        cards = "".join(card(item, group.collection.type, context, level=3) for item in group.items)
        rest = '<p class="faint">…</p>' if group.has_more else ""
        sections.append(f'<section class="near"><h2>{title}</h2><div class="cards">{cards}</div>{rest}</section>')
    return "".join(sections)


def _near(items: Sequence[Item], location: PageLocation, context: DisplayContext) -> str:
    near = (present(item, location.collection) for item in items)
    cards = "".join(card(item, location.collection.type, context, level=3) for item in near)
    title = context.words.html("near", _place(location.collection, context.words))
    return f'<section class="near"><h2>{title}</h2><div class="cards">{cards}</div></section>' if cards else ""


def _body_data(own: Item, shown: Item, collection: Collection) -> Mapping[str, Any]:
    """Return the data of an item without what the header shows of it under the names of schema.org."""
    if shown is own:
        return own.data
    description = shown.data.get("description")
    is_lead = isinstance(description, str) and len(description) <= MAX_LEAD
    roles = _IN_HEADER if is_lead else _IN_HEADER - {"description"}
    header = {spec.steps[0] for role, spec in collection.by_role.items() if role in roles and len(spec.steps) == 1}
    rest = {name: value for name, value in own.data.items() if name not in header}
    return {**rest, "image": shown.data["image"]} if "image" in shown.data else rest


def _body(data: Mapping[str, Any], context: DisplayContext) -> str:
    """Render long content as sections and short facts beside them, below on a narrow page."""
    sections = ""
    for name in _section_names(data):
        if inner := _section_body(name, data[name], context):
            title = "" if name in _UNTITLED else f"<h2>{context.words.label(name)}</h2>"
            sections += f"<section>{title}{inner}</section>"
    details = "".join(_facts(data, context))
    spelled = f'<div class="sections">{sections or details}</div>' if sections or details else ""
    aside = f'<div class="aside">{details if sections else ""}{ask_form("about this", context.words)}</div>'
    return f'<div class="parts{" two" if spelled else ""}">{spelled}{aside}</div>'


def _preview_images(data: Mapping[str, Any], base: str) -> Iterator[str]:
    """Return pictures for link previews on other sites. The page itself loads only its own."""
    return (url for url in pictures(data, base) if url.startswith("https:") or is_own(url, base))


def _facts(data: Mapping[str, Any], context: DisplayContext) -> Iterator[str]:
    """Render the short members, the most important first."""
    sections = frozenset(_section_names(data))
    names = [name for name in data if name not in _HIDDEN | sections and not _is_said(name, data, context.base)]
    # The page links to a picture that it does not load.
    elsewhere = [] if picture(data, context.base, context.hosts) else list(islice(pictures(data, context.base), 1))
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    members = [*((name, data[name]) for name in names), *(("image", url) for url in elsewhere)]
    rows = definitions(members, context, len(members))
    if rows:
        yield f'<section class="facts card"><h2>{context.words.html("details")}</h2>{rows}</section>'


def _is_said(name: str, data: Mapping[str, Any], base: str) -> bool:
    """Return whether the page shows this member elsewhere: the name, the description, or its own URL."""
    value = data[name]
    match name:
        case "description":
            return isinstance(value, str)
        case "url":
            url = absolute(value, base)
            return url is not None and is_own(url, base) and url.removeprefix(base).startswith("/items/")
        case _:
            return isinstance(value, str) and value == title_of(data)


def _section_names(data: Mapping[str, Any]) -> list[str]:
    """Return the members that are too long for a line, well-known ones first."""
    title = title_of(data)
    long = [name for name, value in data.items() if name not in _HIDDEN and name != "description" and _is_long(value)]
    preferred = [name for name in _SECTIONS if data.get(name) and data[name] != title]
    description = data.get("description")
    first = ["description"] if isinstance(description, str) and len(description) > MAX_LEAD else []
    return list(dict.fromkeys([*first, *preferred, *long]))[:MAX_MEMBERS]


def _is_long(value: Any) -> bool:
    match value:
        case str():
            return len(value) > LONG
        case list():
            elements = cast("list[Any]", value)[:MAX_ELEMENTS]
            return any(isinstance(element, str) and len(element) > LONG_ELEMENT for element in elements)
        case _:
            return False


def _section_body(name: str, value: Any, context: DisplayContext) -> str:
    match value:
        case str():
            return paragraphs(value)
        case list():
            elements = cast("list[Any]", value)
            parts = [part for element in elements[:MAX_ELEMENTS] if (part := render_value(name, element, context))]
            rest = [more(len(elements) - MAX_ELEMENTS, context.words)] if len(elements) > MAX_ELEMENTS else []
            return render_list([*parts, *rest], "ol" if name in _STEPS else "ul") if parts else ""
        case Mapping() if set(cast("Mapping[str, Any]", value)) <= {"@type", "text"}:
            return paragraphs(str(cast("Mapping[str, Any]", value).get("text") or ""))
        case _:
            return render_value(name, value, context)


def _forms(item: Item, words: Words) -> str:
    links = (
        f'<a href="{escape(format_path(item.ref, name))}" type="{kind}">{kind}</a>' for name, kind in FORMATS.items()
    )
    return f'<p class="forms faint">{words.html("forms", *links)}</p>'
