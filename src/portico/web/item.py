"""The page of one item. Knows how to lay out what may be there; needs nothing but a name to be legible."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any, cast

import msgspec

from portico.ask.events import Action
from portico.ask.prose import shortened
from portico.catalog import Collection
from portico.items import Item, title_of
from portico.web.addresses import absolute, collection_path, is_own, item_path, operation_path
from portico.web.cards import card, facts, item_kind, item_name, item_summary, kind_line, picture, pictures
from portico.web.style import reading_page
from portico.web.values import (
    MAX_ELEMENTS,
    MAX_MEMBERS,
    Surroundings,
    definitions,
    isolated,
    listed,
    more,
    one_line,
    paragraphs,
    shown,
)
from portico.web.words import ENGLISH, Words, label, words_of

MAX_EMBEDDED = 250_000  # bytes of JSON-LD within the page; what is longer is linked only
MAX_ACTIONS = 6
MAX_STEP = 60  # characters of a step on the way to a page
MAX_LEAD = 500  # characters of a description that stands beside the name
LONG = 300  # characters from which a text has a section of its own
LONG_ELEMENT = 80  # and of an element of a list

FORMATS = {"jsonld": "application/ld+json", "json": "application/json"}  # that an item has besides its page

# What people look for first, in this order. The rest follows as it stands in the data.
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
_UNTITLED = frozenset({"articleBody", "text", "description"})
_STEPS = frozenset({"recipeInstructions", "step"})
_HIDDEN = frozenset({"@context", "@id", "@type", "@graph", "image", "inLanguage", "potentialAction", "priceCurrency"})
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}\Z")
_SCRIPT_ENDS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where an item stands: the site, its address, and the collection."""

    site: str
    base: str  # without a slash in the end
    collection: Collection
    collections: Sequence[Collection] = ()  # all that the caller may read

    @property
    def title(self) -> str:
        return collection_title(self.collection)

    def places(self, words: Words) -> str:
        """The way to every collection, folded up."""
        links = "".join(f"<li>{_place(each, words)}</li>" for each in self.collections)
        summary = f'<summary class="button quiet">{words.said("browse")}</summary>'
        return f'<details class="browse">{summary}<ul class="card">{links}</ul></details>' if links else ""


def _place(collection: Collection, words: Words) -> str:
    """The way to a collection, among these words."""
    lang = "" if collection.language == words.spoken else f' lang="{escape(collection.language)}"'
    return f'<a{lang} href="{escape(collection_path(collection.name))}">{isolated(collection_title(collection))}</a>'


def collection_title(collection: Collection) -> str:
    return collection.title or label(collection.name)


@dataclass(frozen=True, slots=True)
class Company:
    """What stands beside an item: what can be done with it, and some items next to it."""

    actions: Sequence[Action] = ()
    near: Sequence[Item] = ()


def item_page(item: Item, shelf: Shelf, linked: Mapping[str, Any], company: Company | None = None) -> str:
    """A page that shows all of an item, and holds it as JSON-LD for those who read that."""
    language = _language(item, shelf.collection)
    words = words_of(language)
    around = Surroundings(shelf.base, words).within(item.data)
    beside = company or Company()
    body = [
        trail(("/", shelf.site), (collection_path(shelf.collection.name), shelf.title), words=words),
        "<article>",
        _opening(item, shelf, around, beside.actions),
        _body(item.data, around),
        "</article>",
        _near(beside.near, shelf, around),
        _forms(item, words),
    ]
    return reading_page(
        f"{item_name(item)} · {one_line(shelf.site)}",
        shelf.site,
        "\n".join(filter(None, body)),
        places=shelf.places(words),
        head=_head(item, shelf, linked),
        words=words,
    )


def trail(*steps: tuple[str, str], words: Words = ENGLISH) -> str:
    """The way from the front of the site to here."""
    links = "<span>›</span>".join(
        f'<a{words.unmark} href="{escape(path)}">{isolated(shortened(text, MAX_STEP))}</a>' for path, text in steps
    )
    return f'<nav class="trail"{words.mark} aria-label="{words.text("trail")}">{links}</nav>'


def _language(item: Item, collection: Collection) -> str:
    said = item.data.get("inLanguage")
    return said if isinstance(said, str) and _LANGUAGE.match(said) else collection.language


# The head


def _head(item: Item, shelf: Shelf, linked: Mapping[str, Any]) -> str:
    address = f"{shelf.base}{item_path(item.ref)}"
    summary = item_summary(item)
    graph = {
        "og:title": item_name(item),
        "og:description": summary,
        "og:url": address,
        "og:site_name": one_line(shelf.site),
        "og:type": "website",
        "og:image": next(_shared(item.data, shelf.base), ""),
    }
    tags = [f'<link rel="canonical" href="{escape(address)}">']
    tags += [f'<meta name="description" content="{escape(summary)}">'] if summary else []
    tags += [f'<meta property="{name}" content="{escape(text)}">' for name, text in graph.items() if text]
    return "".join([*tags, *_alternates(item), _embedded(linked)])


def _alternates(item: Item) -> Iterator[str]:
    for name, kind in FORMATS.items():
        yield f'<link rel="alternate" type="{kind}" href="{escape(formatted(item.ref, name))}">'


def formatted(ref: str, name: str) -> str:
    """The address of an item in one format, for those who cannot say what they accept."""
    path = item_path(ref)
    return f"{path}{'&' if '?' in path else '?'}format={name}"


def _embedded(linked: Mapping[str, Any]) -> str:
    """The item as JSON-LD; nothing if it is too long for a page."""
    encoded = embedded(linked)
    return "" if len(encoded) > MAX_EMBEDDED else f'<script type="application/ld+json">{encoded}</script>'


def embedded(data: Any) -> str:
    """JSON that nothing in it can break out of within a page: what could end a script is written as its number."""
    return _json(data).translate(_SCRIPT_ENDS)


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


# The body


def _opening(item: Item, shelf: Shelf, around: Surroundings, actions: Sequence[Action]) -> str:
    """What an item is, at a glance."""
    data, src, kind = item.data, picture(item.data, shelf.base), item_kind(item.data, shelf.collection.type)
    image = f'<img class="picture" src="{escape(src)}" alt="">' if src else ""
    return (
        f'<header class="opening"><div>{kind_line(kind, "kind", around.words)}'
        f'<h1 dir="auto">{escape(item_name(item))}</h1>{facts(data, kind, around)}{_lead(data)}'
        f"{_actions(actions, around.words)}</div>{image}</header>"
    )


def _lead(data: Mapping[str, Any]) -> str:
    said = data.get("description")
    return f'<div class="lead">{paragraphs(said)}</div>' if isinstance(said, str) and 0 < len(said) <= MAX_LEAD else ""


def _actions(actions: Sequence[Action], words: Words) -> str:
    """What can be done with an item. Scripts open a form; without them it is told how programs do it."""
    links = "".join(map(_action, actions[:MAX_ACTIONS]))
    without = f'<noscript><p class="faint">{words.said("scripts")}</p></noscript>'
    return f'<div class="actions"><div class="row">{links}</div>{without}</div>' if links else ""


def _action(action: Action) -> str:
    told = f'data-operation="{escape(action.operation)}" data-params="{escape(_json(action.params))}"'
    path, title = escape(operation_path(action.operation)), escape(label(action.operation))
    return f'<a class="button primary" href="{path}" title="{escape(action.description)}" {told}>{title}</a>'


def asking(about: str, words: Words, collection: str = "") -> str:
    """A place to ask about something. The chat answers, within a collection if one is named."""
    within = f'<input type="hidden" name="collection" value="{escape(collection)}">' if collection else ""
    return (
        f'<form class="asking card" action="/" role="search"><label for="q">{words.said(about)}</label>'
        f'<div class="row"><input class="grow" id="q" name="q" dir="auto" required maxlength="1000" autocomplete="off">'
        f'{within}<button class="primary" type="submit">{words.said("ask")}</button></div></form>'
    )


def _near(items: Sequence[Item], shelf: Shelf, around: Surroundings) -> str:
    cards = "".join(card(each, shelf.collection.type, around, level=3) for each in items)
    title = around.words.said("near", _place(shelf.collection, around.words))
    return f'<section class="near"><h2>{title}</h2><div class="cards">{cards}</div></section>' if cards else ""


def _body(data: Mapping[str, Any], around: Surroundings) -> str:
    """What an item says stands before what is known of it; on a wide page beside it."""
    sections = "".join(_section(each, data[each], around) for each in _sectioned(data))
    details = "".join(_facts(data, around))
    spelled = f'<div class="sections">{sections or details}</div>' if sections or details else ""
    aside = f'<div class="aside">{details if sections else ""}{asking("about this", around.words)}</div>'
    return f'<div class="parts{" two" if spelled else ""}">{spelled}{aside}</div>'


def _shared(data: Mapping[str, Any], base: str) -> Iterator[str]:
    """Pictures that other sites may show beside a link to an item. The page itself loads none of elsewhere."""
    return (url for url in pictures(data, base) if url.startswith("https:") or is_own(url, base))


def _facts(data: Mapping[str, Any], around: Surroundings) -> Iterator[str]:
    """What fits in a line or two, the most wanted first."""
    sections = frozenset(_sectioned(data))
    names = [name for name in data if name not in _HIDDEN | sections and not _is_said(name, data, around.base)]
    # What the page does not load it leads to.
    elsewhere = [] if picture(data, around.base) else list(islice(pictures(data, around.base), 1))
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    members = [*((name, data[name]) for name in names), *(("image", url) for url in elsewhere)]
    found = definitions(members, around, len(members))
    if found:
        yield f'<section class="facts card"><h2>{around.words.said("details")}</h2>{found}</section>'


def _is_said(name: str, data: Mapping[str, Any], base: str) -> bool:
    """Whether the page says this elsewhere: the name, the description, and where the page itself is."""
    value = data[name]
    match name:
        case "description":
            return isinstance(value, str)
        case "url":
            url = absolute(value, base)
            return url is not None and is_own(url, base) and url.removeprefix(base).startswith("/items/")
        case _:
            return isinstance(value, str) and value == title_of(data)


def _sectioned(data: Mapping[str, Any]) -> list[str]:
    """Members that are too long for a line, the ones that people know first."""
    title = title_of(data)
    long = [name for name, value in data.items() if name not in _HIDDEN and name != "description" and _is_long(value)]
    known = [name for name in _SECTIONS if data.get(name) and data[name] != title]
    said = data.get("description")
    first = ["description"] if isinstance(said, str) and len(said) > MAX_LEAD else []
    return list(dict.fromkeys([*first, *known, *long]))[:MAX_MEMBERS]


def _is_long(value: Any) -> bool:
    match value:
        case str():
            return len(value) > LONG
        case list():
            elements = cast("list[Any]", value)[:MAX_ELEMENTS]
            return any(isinstance(each, str) and len(each) > LONG_ELEMENT for each in elements)
        case _:
            return False


def _section(name: str, value: Any, around: Surroundings) -> str:
    title = "" if name in _UNTITLED else f"<h2>{around.words.label(name)}</h2>"
    inner = _spelled(name, value, around)
    return f"<section>{title}{inner}</section>" if inner else ""


def _spelled(name: str, value: Any, around: Surroundings) -> str:
    match value:
        case str():
            return paragraphs(value)
        case list():
            elements = cast("list[Any]", value)
            parts = [part for each in elements[:MAX_ELEMENTS] if (part := shown(name, each, around))]
            rest = [more(len(elements) - MAX_ELEMENTS, around.words)] if len(elements) > MAX_ELEMENTS else []
            return listed([*parts, *rest], "ol" if name in _STEPS else "ul") if parts else ""
        case Mapping() if set(cast("Mapping[str, Any]", value)) <= {"@type", "text"}:
            return paragraphs(str(cast("Mapping[str, Any]", value).get("text") or ""))
        case _:
            return shown(name, value, around)


def _forms(item: Item, words: Words) -> str:
    links = (
        f'<a href="{escape(formatted(item.ref, name))}" type="{kind}">{kind}</a>' for name, kind in FORMATS.items()
    )
    return f'<p class="forms faint">{words.said("forms", *links)}</p>'
