"""The front page with the chat, the pages of collections, and the error page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any

from portico.ask.suggestions import starters
from portico.catalog import Collection, Operation
from portico.presentation import present
from portico.query import Page
from portico.site import Site
from portico.web.addresses import collection_path
from portico.web.cards import card
from portico.web.item import PageLocation, ask_form, collection_title, script_json, trail
from portico.web.pictures import OWN_PICTURES, PictureHosts
from portico.web.style import ASSETS, content_page, footer, masthead, page, skip
from portico.web.values import DisplayContext
from portico.web.words import Words, page_words

FIRST = "words-first.js"  # chooses one of these before the page is rendered
LANGUAGES = ("en", "de", "es", "fr", "ar")
# The script of the page, then the modules that it imports.
MODULES = (
    "chat-page.js", "dom.js", "chat.js", "words.js", "cards.js", "chat-turn.js", "chat-forms.js", "chat-wire.js",
    "chat-history.js",
)  # fmt: skip
WITHOUT_SCRIPTS = "The chat needs JavaScript. Everything else works without it."


def home_page(
    site: Site,
    description: str,
    counts: Mapping[str, int],
    collections: Iterable[Collection] | None = None,
    chat: str = "/chat",
    hosts: PictureHosts = OWN_PICTURES,
) -> str:
    """Return the front page: the chat, the collections and the operations. By default, it shows the public ones.

    Without scripts, it still links to all collections.
    """
    visible = list(site.catalog.public if collections is None else collections)
    data: dict[str, Any] = {**_page_data(site, visible), "chat": chat, "images": list(hosts.names)}
    entries = "".join(_collection_entry(collection, counts.get(collection.name)) for collection in visible)
    collection_list = f'<h2>Collections</h2><ul class="shelf-list">{entries}</ul>' if entries else ""
    body = f"""{skip("chat", "Skip to the question")}
{masthead(site.name)}
<main><div class="hero"><h1 dir="auto">{escape(site.name)}</h1>
<p class="lead" dir="auto">{escape(description or "Data and operations of this site, for people and agents.")}</p></div>
<div id="chat"><noscript><p class="note">{WITHOUT_SCRIPTS}</p></noscript></div>
<section class="shelves">{collection_list}{_operation_table(site.own_operations)}</section></main>
{footer()}
<script type="application/json" id="portico-data">{script_json(data)}</script>"""
    about = f'<meta name="description" content="{escape(description)}">' if description else ""
    first = f'<script src="{ASSETS}/{FIRST}" data-language="{escape(data["language"])}"></script>'
    return page(site.name, body, head=about + first, styles=["chat.css"], modules=MODULES, kind="bare home")


def _collection_entry(collection: Collection, count: int | None) -> str:
    title = escape(collection_title(collection))
    about = escape(collection.description or collection.type)
    number = "" if count is None else f'<span class="number">{count:,}</span>'
    name = f'<a href="{escape(collection_path(collection.name))}"><bdi>{title}</bdi></a>'
    return f'<li>{number}{name}<p class="clamp" dir="auto">{about}</p></li>'


def _operation_table(operations: Iterable[Operation]) -> str:
    """Render a table of the site's own operations."""
    rows = "".join(
        f"<tr><td><code>{escape(operation.name)}</code></td><td>{escape(operation.summary)}</td></tr>"
        for operation in operations
    )
    table = f"<table><tr><th>Name</th><th>What it does</th></tr>{rows}</table>"
    return f'<details class="abilities"><summary>Operations</summary>{table}</details>' if rows else ""


# Data for the script of the chat


def _page_data(site: Site, collections: Sequence[Collection]) -> dict[str, Any]:
    return {
        "site": site.name,
        "language": next((collection.language for collection in collections), "en"),
        "collections": [{"name": collection.name, "title": collection_title(collection)} for collection in collections],
        "starters": {tag: starters(collections, tag) for tag in LANGUAGES},
    }


@dataclass(frozen=True, slots=True)
class CollectionListing:
    """A page of a collection, and the total number of items, if known."""

    location: PageLocation
    results: Page
    total: int | None
    is_first: bool
    previous: str = ""  # the cursor of the previous page; empty if that is the first one


def collection_page(listing: CollectionListing) -> str:
    """Return a page of items, with links to the previous and the next page."""
    location, results, collection = listing.location, listing.results, listing.location.collection
    words = page_words(collection.language)
    context = DisplayContext(location.base, words, hosts=location.hosts)
    items = [present(item, collection) for item in results.items]
    canonical = f'<link rel="canonical" href="{escape(location.base + collection_path(collection.name))}">'
    cards = "".join(card(item, collection.type, context.within(item.data)) for item in items)
    body = [
        trail(("/", location.site), words=words),
        _listing_header(listing, words),
        f'<div class="cards">{cards}</div>' if cards else f'<p class="note">{words.html("nothing")}</p>',
        _page_links(listing, words),
    ]
    return content_page(
        f"{location.title} · {location.site}",
        location.site,
        "\n".join(filter(None, body)),
        places=location.places(words),
        head=canonical if listing.is_first else "",
        words=words,
    )


def _listing_header(listing: CollectionListing, words: Words) -> str:
    description, total = listing.location.collection.description, listing.total
    about = f'<p class="lead" dir="auto">{escape(description)}</p>' if description and listing.is_first else ""
    number = "" if total is None else words.html("one item") if total == 1 else words.count("items", total)
    count = f'<p class="faint">{number}</p>' if number else ""
    ask = ask_form("about these", words, listing.location.collection.name) if listing.is_first else ""
    return (
        f'<div class="heading"><div><h1 dir="auto">{escape(listing.location.title)}</h1>{about}{count}</div>{ask}</div>'
    )


def _page_links(listing: CollectionListing, words: Words) -> str:
    """Render the links to the previous and the next page."""
    name, links = listing.location.collection.name, list[str]()
    if not listing.is_first:
        links.append(_page_link("prev", collection_path(name, listing.previous), words.html("previous")))
    if listing.results.cursor:
        links.append(_page_link("next", collection_path(name, listing.results.cursor), words.html("next")))
    attributes = f'{words.mark} aria-label="{words.text("pages")}"'
    return f'<nav class="turning row"{attributes}>{"".join(links)}</nav>' if links else ""


def _page_link(rel: str, path: str, inner: str) -> str:
    return f'<a class="button" rel="{rel}" href="{escape(path)}">{inner}</a>'


# Explanations for statuses that have no other detail.
_MEANINGS = {
    HTTPStatus.NOT_FOUND.phrase: "There is no page at this address. Use the chat to find what you are looking for.",
    HTTPStatus.METHOD_NOT_ALLOWED.phrase: "This address exists, but does not support this method.",
}


def problem_page(site: str, title: str, detail: str) -> str:
    """Return an error page."""
    text = _MEANINGS.get(title, detail) if detail == title else detail
    main = f"""<div class="problem-page"><h1>{escape(title)}</h1><p class="lead" dir="auto">{escape(text)}</p>
<p class="row"><a class="button primary" href="/">Go to the chat</a></p></div>"""
    return content_page(f"{title} · {site}", site, main, head='<meta name="robots" content="noindex">')
