"""The front page with the chat, the pages that list a collection, and the page that says that something went wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from portico.catalog import Collection, Operation
from portico.items import Item
from portico.query import Page
from portico.site import Site
from portico.web.addresses import collection_path, item_path
from portico.web.item import Shelf, embedded, item_name, item_summary, trail
from portico.web.style import page
from portico.web.values import label

# What tells of the site: what it is called, and for whom it is.
DOORS: Mapping[str, tuple[str, str]] = {
    "/docs": ("Interface", "for people who program"),
    "/openapi.json": ("OpenAPI", "for programs"),
    "/inspect": ("Inspector", "one question in every protocol"),
    "/llms.txt": ("llms.txt", "for language models"),
    "/nwp/site": ("NWP", "for agents that speak NWP"),
    "/sitemap.xml": ("Sitemap", "for crawlers"),
}
# The script of the page, and those that it needs.
MODULES = (
    "chat-page.js", "dom.js", "chat.js", "words.js", "cards.js", "chat-turn.js", "chat-forms.js", "chat-wire.js",
    "chat-history.js",
)  # fmt: skip


def home_page(
    site: Site,
    description: str,
    counts: Mapping[str, int],
    collections: Iterable[Collection] | None = None,
    chat: str = "/chat",
) -> str:
    """Where people ask, and what this site has and can do. Shows what all may read, by default.

    Without scripts it is a page to be read, with the way to everything.
    """
    shown = list(site.catalog.public if collections is None else collections)
    told = {**_told(site, shown, counts), "chat": chat}
    doors = "".join(f'<a href="{path}" title="{whom}">{name}</a>' for path, (name, whom) in DOORS.items())
    body = f"""<a class="skip" href="#chat">Skip to the question</a>
<header class="masthead"><a class="brand" href="/"><bdi>{escape(site.name)}</bdi></a><div id="tools"></div></header>
<main><div class="hero"><h1 dir="auto">{escape(site.name)}</h1>
<p class="lead" dir="auto">{escape(description or "One entrance to everything here, for people and agents.")}</p></div>
<div id="chat"></div>
<section class="shelves">{_shelves(shown, counts)}{_abilities(site.own_operations)}</section></main>
<footer>{doors}</footer>
<script type="application/json" id="portico-data">{embedded(told)}</script>"""
    about = f'<meta name="description" content="{escape(description)}">' if description else ""
    return page(site.name, body, head=about, styles=["chat.css"], modules=MODULES, kind="bare home")


def _shelves(collections: Iterable[Collection], counts: Mapping[str, int]) -> str:
    shelves = "".join(_shelf(each, counts.get(each.name)) for each in collections)
    return f'<h2>Collections</h2><ul class="shelf-list">{shelves}</ul>' if shelves else ""


def _shelf(collection: Collection, count: int | None) -> str:
    title = escape(collection.title or collection.name)
    about = escape(collection.description or collection.type)
    number = "" if count is None else f'<span class="number">{count:,}</span>'
    name = f'<a href="{escape(collection_path(collection.name))}"><bdi>{title}</bdi></a>'
    return f'<li>{number}{name}<p class="clamp" dir="auto">{about}</p></li>'


def _abilities(operations: Iterable[Operation]) -> str:
    """What only this site does."""
    rows = "".join(
        f"<tr><td><code>{escape(each.name)}</code></td><td>{escape(each.summary)}</td></tr>" for each in operations
    )
    table = f"<table><tr><th>Name</th><th>What it does</th></tr>{rows}</table>"
    return f'<details class="abilities"><summary>What can be done here</summary>{table}</details>' if rows else ""


# What the chat knows of the site


def _told(site: Site, collections: Sequence[Collection], counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "site": site.name,
        "language": next((each.language for each in collections), "en"),
        "collections": [
            {
                "name": each.name,
                "title": each.title or label(each.name),
                "count": counts.get(each.name),
                "hints": [hint for hint, fields in _HINTS.items() if not fields.isdisjoint(each.fields)],
            }
            for each in collections
        ],
    }


# What a collection can be asked by, as some of its fields show. The first that fits makes a question to begin with.
_HINTS: Mapping[str, frozenset[str]] = {
    "duration": frozenset({"totalTime", "cookTime"}),
    "date": frozenset({"startDate"}),
    "price": frozenset({"price", "offers"}),
    "published": frozenset({"datePublished"}),
    "rating": frozenset({"aggregateRating", "aggregateRating.ratingValue"}),
}


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a collection, and how many items there are in all, if that is known."""

    shelf: Shelf
    found: Page
    total: int | None
    is_first: bool


def collection_page(listing: Listing) -> str:
    """Some items of a collection, with the way to the next ones."""
    shelf, found = listing.shelf, listing.found
    name = shelf.collection.name
    head = f'<link rel="canonical" href="{escape(shelf.base + collection_path(name))}">' if listing.is_first else ""
    about = f'<p class="lead" dir="auto">{escape(shelf.collection.description)}</p>' if listing.is_first else ""
    total = "" if listing.total is None else f'<p class="faint">{listing.total:,} items</p>'
    rows = "".join(_item_row(item) for item in found.items) or "<li>Nothing yet.</li>"
    start = "" if listing.is_first else f'<a rel="first" href="{escape(collection_path(name))}">From the beginning</a>'
    following = f'<a rel="next" href="{escape(collection_path(name, found.cursor))}">More</a>' if found.cursor else ""
    body = f"""{trail(("/", shelf.site))}<main><h1 dir="auto">{escape(shelf.title)}</h1>{about}{total}
<ul class="list">{rows}</ul></main><footer>{start}{following}</footer>"""
    return page(f"{shelf.title} · {shelf.site}", body, head=head, lang=shelf.collection.language)


def _item_row(item: Item) -> str:
    summary = item_summary(item)
    about = f'<p dir="auto">{escape(summary)}</p>' if summary else ""
    return f'<li><a href="{escape(item_path(item.id))}"><bdi>{escape(item_name(item))}</bdi></a>{about}</li>'


def problem_page(site: str, title: str, detail: str) -> str:
    """What went wrong, for a person."""
    body = f"""{trail(("/", site))}<main><h1>{escape(title)}</h1><p dir="auto">{escape(detail)}</p></main>"""
    return page(f"{title} · {site}", body, head='<meta name="robots" content="noindex">')
