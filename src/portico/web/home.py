"""The front page with the chat, the pages that list a collection, and the page that says that something went wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any

from portico.ask.suggestions import starters
from portico.catalog import Collection, Operation
from portico.query import Page
from portico.site import Site
from portico.web.addresses import collection_path
from portico.web.cards import card
from portico.web.item import Shelf, asking, collection_title, embedded, trail
from portico.web.style import ASSETS, doors, masthead, page, reading_page, skip
from portico.web.values import Surroundings
from portico.web.words import Words, words_of

FIRST = "words-first.js"  # chooses one of these before the page is seen
LANGUAGES = ("en", "de", "es", "fr", "ar")
# The script of the page, and those that it needs.
MODULES = (
    "chat-page.js", "dom.js", "chat.js", "words.js", "cards.js", "chat-turn.js", "chat-forms.js", "chat-wire.js",
    "chat-history.js",
)  # fmt: skip
WITHOUT_SCRIPTS = "To ask here, turn on scripts. Everything can be read without them."


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
    told = {**_told(site, shown), "chat": chat}
    body = f"""{skip("chat", "Skip to the question")}
{masthead(site.name)}
<main><div class="hero"><h1 dir="auto">{escape(site.name)}</h1>
<p class="lead" dir="auto">{escape(description or "One entrance to everything here, for people and agents.")}</p></div>
<div id="chat"><noscript><p class="note">{WITHOUT_SCRIPTS}</p></noscript></div>
<section class="shelves">{_shelves(shown, counts)}{_abilities(site.own_operations)}</section></main>
{doors()}
<script type="application/json" id="portico-data">{embedded(told)}</script>"""
    about = f'<meta name="description" content="{escape(description)}">' if description else ""
    first = f'<script src="{ASSETS}/{FIRST}" data-language="{escape(told["language"])}"></script>'
    return page(site.name, body, head=about + first, styles=["chat.css"], modules=MODULES, kind="bare home")


def _shelves(collections: Iterable[Collection], counts: Mapping[str, int]) -> str:
    shelves = "".join(_shelf(each, counts.get(each.name)) for each in collections)
    return f'<h2>Collections</h2><ul class="shelf-list">{shelves}</ul>' if shelves else ""


def _shelf(collection: Collection, count: int | None) -> str:
    title = escape(collection_title(collection))
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


def _told(site: Site, collections: Sequence[Collection]) -> dict[str, Any]:
    return {
        "site": site.name,
        "language": next((each.language for each in collections), "en"),
        "collections": [{"name": each.name, "title": collection_title(each)} for each in collections],
        "starters": {tag: starters(collections, tag) for tag in LANGUAGES},
    }


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a collection, and how many items there are in all, if that is known."""

    shelf: Shelf
    found: Page
    total: int | None
    is_first: bool
    previous: str = ""  # the cursor of the page before; without one that is the first page


def collection_page(listing: Listing) -> str:
    """Some items of a collection, with the way to those before and after them."""
    shelf, found, collection = listing.shelf, listing.found, listing.shelf.collection
    words = words_of(collection.language)
    around = Surroundings(shelf.base, words)
    canonical = f'<link rel="canonical" href="{escape(shelf.base + collection_path(collection.name))}">'
    cards = "".join(card(item, collection.type, around.within(item.data)) for item in found.items)
    body = [
        trail(("/", shelf.site), words=words),
        _heading(listing, words),
        f'<div class="cards">{cards}</div>' if cards else f'<p class="note">{words.said("nothing")}</p>',
        _turning(listing, words),
    ]
    return reading_page(
        f"{shelf.title} · {shelf.site}",
        shelf.site,
        "\n".join(filter(None, body)),
        places=shelf.places(words),
        head=canonical if listing.is_first else "",
        words=words,
    )


def _heading(listing: Listing, words: Words) -> str:
    said, total = listing.shelf.collection.description, listing.total
    about = f'<p class="lead" dir="auto">{escape(said)}</p>' if said and listing.is_first else ""
    number = "" if total is None else words.said("one item") if total == 1 else words.count("items", total)
    count = f'<p class="faint">{number}</p>' if number else ""
    ask = asking("about these", words, listing.shelf.collection.name) if listing.is_first else ""
    return f'<div class="heading"><div><h1 dir="auto">{escape(listing.shelf.title)}</h1>{about}{count}</div>{ask}</div>'


def _turning(listing: Listing, words: Words) -> str:
    """The way to the page before, and to the one after."""
    name, links = listing.shelf.collection.name, list[str]()
    if not listing.is_first:
        links.append(_turn("prev", collection_path(name, listing.previous), words.said("previous")))
    if listing.found.cursor:
        links.append(_turn("next", collection_path(name, listing.found.cursor), words.said("next")))
    named = f'{words.mark} aria-label="{words.text("pages")}"'
    return f'<nav class="turning row"{named}>{"".join(links)}</nav>' if links else ""


def _turn(rel: str, path: str, inner: str) -> str:
    return f'<a class="button" rel="{rel}" href="{escape(path)}">{inner}</a>'


# What a status means for a person, where nothing else is known of it.
_MEANINGS = {
    HTTPStatus.NOT_FOUND.phrase: "There is no page at this address. The chat leads to everything that is here.",
    HTTPStatus.METHOD_NOT_ALLOWED.phrase: "This address is there, but cannot be asked in this way.",
}


def problem_page(site: str, title: str, detail: str) -> str:
    """What went wrong, for a person, and where to go."""
    said = _MEANINGS.get(title, detail) if detail == title else detail
    main = f"""<div class="problem-page"><h1>{escape(title)}</h1><p class="lead" dir="auto">{escape(said)}</p>
<p class="row"><a class="button primary" href="/">Ask for it in the chat</a></p></div>"""
    return reading_page(f"{title} · {site}", site, main, head='<meta name="robots" content="noindex">')
