"""The page of one item. Knows how to lay out what may be there; needs nothing but a name to be legible."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, cast

import msgspec

from portico.ask.phrases import phrases
from portico.catalog import Collection
from portico.items import Item, title_of
from portico.web.addresses import absolute, collection_path, is_own, item_path
from portico.web.style import page
from portico.web.values import (
    MAX_ELEMENTS,
    MAX_MEMBERS,
    Surroundings,
    definitions,
    label,
    listed,
    more,
    one_line,
    paragraphs,
    shortened,
    shown,
)

MAX_TITLE = 300
MAX_META = 300
MAX_EMBEDDED = 250_000  # bytes of JSON-LD within the page; what is longer is linked only
LONG = 300  # characters from which a text has a section of its own
LONG_ELEMENT = 80  # and of an element of a list

FORMATS = {"jsonld": "application/ld+json", "json": "application/json"}  # that an item has besides its page

# What people look for first, in this order. The rest follows as it stands in the data.
_FIRST = (
    "price", "priceRange", "offers", "aggregateRating", "startDate", "endDate", "location", "totalTime", "author",
    "datePublished", "address", "openingHours", "openingHoursSpecification", "telephone",
)  # fmt: skip
_PROSE = ("articleBody", "text", "acceptedAnswer")  # what an item says stands before what is known of it
_SECTIONS = (*_PROSE, "recipeIngredient", "recipeInstructions", "step", "itemListElement")
_UNTITLED = frozenset({"articleBody", "text"})
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

    @property
    def title(self) -> str:
        return self.collection.title or label(self.collection.name)


def item_name(item: Item) -> str:
    """What an item is called on one line; its id if it has no name."""
    return shortened(one_line(title_of(item.data)) or one_line(item.id) or item.collection, MAX_TITLE)


def item_summary(item: Item) -> str:
    """One or two sentences of an item; empty if it has none."""
    data = item.data
    answer = data.get("acceptedAnswer")
    said = (
        cast("Mapping[str, Any]", answer).get("text") if isinstance(answer, Mapping) else None,
        *map(data.get, _SAID),
    )
    return next((shortened(one_line(each), MAX_META) for each in said if isinstance(each, str) and each.strip()), "")


_SAID = ("description", "abstract", "text", "articleBody")


def item_page(item: Item, shelf: Shelf, linked: Mapping[str, Any]) -> str:
    """A page that shows all of an item, and holds it as JSON-LD for those who read that."""
    language = _language(item, shelf.collection)
    around = Surroundings(shelf.base, phrases(language)).within(item.data)
    name, data, sections = item_name(item), item.data, _sectioned(item.data)
    body = [
        trail(("/", shelf.site), (collection_path(shelf.collection.name), shelf.title)),
        "<main>",
        _kind(data, shelf.collection),
        f'<h1 dir="auto">{escape(name)}</h1>',
        _picture(data, shelf.base),
        _lead(data),
        *(_section(each, data[each], around) for each in sections if each in _PROSE),
        *_facts(data, around),
        *(_section(each, data[each], around) for each in sections if each not in _PROSE),
        "</main>",
        _footer(item),
    ]
    return page(
        f"{name} · {one_line(shelf.site)}",
        "\n".join(filter(None, body)),
        head=_head(item, shelf, linked),
        lang=language,
    )


def trail(*steps: tuple[str, str]) -> str:
    """The way from the front of the site to here."""
    links = "<span>›</span>".join(f'<a href="{escape(path)}"><bdi>{escape(text)}</bdi></a>' for path, text in steps)
    return f'<nav class="trail" aria-label="Breadcrumb">{links}</nav>'


def _language(item: Item, collection: Collection) -> str:
    said = item.data.get("inLanguage")
    return said if isinstance(said, str) and _LANGUAGE.match(said) else collection.language


# The head


def _head(item: Item, shelf: Shelf, linked: Mapping[str, Any]) -> str:
    address = f"{shelf.base}{item_path(item.id)}"
    summary = item_summary(item)
    graph = {
        "og:title": item_name(item),
        "og:description": summary,
        "og:url": address,
        "og:site_name": one_line(shelf.site),
        "og:type": "website",
        "og:image": _image(item.data, shelf.base),
    }
    tags = [f'<link rel="canonical" href="{escape(address)}">']
    tags += [f'<meta name="description" content="{escape(summary)}">'] if summary else []
    tags += [f'<meta property="{name}" content="{escape(text)}">' for name, text in graph.items() if text]
    return "".join([*tags, *_alternates(item), _embedded(linked)])


def _alternates(item: Item) -> Iterator[str]:
    for name, kind in FORMATS.items():
        yield f'<link rel="alternate" type="{kind}" href="{escape(formatted(item.id, name))}">'


def formatted(id: str, name: str) -> str:
    """The address of an item in one format, for those who cannot say what they accept."""
    path = item_path(id)
    return f"{path}{'&' if '?' in path else '?'}format={name}"


def _embedded(linked: Mapping[str, Any]) -> str:
    """The item as JSON-LD; nothing if it is too long for a page."""
    encoded = embedded(linked)
    return "" if len(encoded) > MAX_EMBEDDED else f'<script type="application/ld+json">{encoded}</script>'


def embedded(data: Any) -> str:
    """JSON that nothing in it can break out of within a page: what could end a script is written as its number."""
    return msgspec.json.encode(data).decode().translate(_SCRIPT_ENDS)


# The body


def _kind(data: Mapping[str, Any], collection: Collection) -> str:
    said: Any = data.get("@type") or collection.type
    kinds = cast("list[Any]", said) if isinstance(said, list) else [said]
    named = next((each for each in kinds if isinstance(each, str) and each), "")
    return f'<p class="kind">{escape(label(named.rsplit("/", 1)[-1]))}</p>' if named else ""


def _image(data: Mapping[str, Any], base: str) -> str:
    """The first picture that a browser may load here: over https, or of this site."""
    found = (absolute(each, base) for each in _image_urls(data.get("image"), 3))
    return next((url for url in found if url and (url.startswith("https:") or is_own(url, base))), "")


def _image_urls(value: Any, depth: int) -> Iterator[Any]:
    match value:
        case str():
            yield value
        case list() if depth:
            for each in cast("list[Any]", value)[:MAX_ELEMENTS]:
                yield from _image_urls(each, depth - 1)
        case Mapping() if depth:
            inner = cast("Mapping[str, Any]", value)
            yield from _image_urls(inner.get("url") or inner.get("contentUrl") or inner.get("@id"), depth - 1)
        case _:
            pass


def _picture(data: Mapping[str, Any], base: str) -> str:
    url = _image(data, base)
    return f'<img class="picture" src="{escape(url)}" alt="" loading="lazy">' if url else ""


def _lead(data: Mapping[str, Any]) -> str:
    said = data.get("description")
    return f'<div class="lead">{paragraphs(said)}</div>' if isinstance(said, str) and said.strip() else ""


def _facts(data: Mapping[str, Any], around: Surroundings) -> Iterator[str]:
    """What fits in a line or two, the most wanted first."""
    sections = frozenset(_sectioned(data))
    names = [name for name in data if name not in _HIDDEN | sections and not _is_said(name, data, around.base)]
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    found = definitions(((name, data[name]) for name in names), around, len(names))
    if found:
        yield f'<div class="facts">{found}</div>'


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
    return list(dict.fromkeys([*known, *long]))[:MAX_MEMBERS]


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
    title = "" if name in _UNTITLED else f'<h2 dir="auto">{escape(label(name))}</h2>'
    inner = _spelled(name, value, around)
    return f"<section>{title}{inner}</section>" if inner else ""


def _spelled(name: str, value: Any, around: Surroundings) -> str:
    match value:
        case str():
            return paragraphs(value)
        case list():
            elements = cast("list[Any]", value)
            parts = [part for each in elements[:MAX_ELEMENTS] if (part := shown(name, each, around))]
            rest = [more(len(elements) - MAX_ELEMENTS)] if len(elements) > MAX_ELEMENTS else []
            return listed([*parts, *rest], "ol" if name in _STEPS else "ul") if parts else ""
        case Mapping() if set(cast("Mapping[str, Any]", value)) <= {"@type", "text"}:
            return paragraphs(str(cast("Mapping[str, Any]", value).get("text") or ""))
        case _:
            return shown(name, value, around)


def _footer(item: Item) -> str:
    links = (f'<a href="{escape(formatted(item.id, name))}" type="{kind}">{kind}</a>' for name, kind in FORMATS.items())
    return f"<footer>This item as {' '.join(links)}</footer>"
