"""The front page, the pages that list a collection, and the page that says that something went wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from portico.catalog import Collection
from portico.items import Item
from portico.query import Page
from portico.site import Site
from portico.web.addresses import collection_path, item_path
from portico.web.item import Shelf, item_name, item_summary, trail
from portico.web.style import page

# What tells of the site, and whom.
DOORS = {
    "/docs": "for people who program",
    "/openapi.json": "for programs",
    "/llms.txt": "for language models",
    "/nwp/site": "for agents that speak NWP",
    "/sitemap.xml": "for crawlers",
}


def home_page(
    site: Site, description: str, counts: Mapping[str, int], collections: Iterable[Collection] | None = None
) -> str:
    """What this site has and can do, for a person who followed a link here. Shows what all may read, by default."""
    shown = site.catalog.public if collections is None else collections
    rows = "".join(_collection_row(each, counts.get(each.name)) for each in shown)
    operations = "".join(
        f"<tr><td><code>{escape(each.name)}</code></td><td>{escape(each.summary)}</td></tr>"
        for each in site.own_operations
    )
    table = f"<h2>Operations</h2><table><tr><th>Name</th><th>What it does</th></tr>{operations}</table>"
    doors = "".join(f'<a href="{path}" title="{whom}">{path[1:]}</a>' for path, whom in DOORS.items())
    body = f"""<main><h1 dir="auto">{escape(site.name)}</h1>
<p class="lead" dir="auto">{escape(description or "One entrance to everything here, for people and agents.")}</p>
<h2>Collections</h2><table><tr><th>Name</th><th>What</th><th class="number">Items</th></tr>{rows}</table>
{table if operations else ""}</main>
<footer>{doors}</footer>"""
    return page(site.name, body)


def _collection_row(collection: Collection, count: int | None) -> str:
    title = escape(collection.title or collection.name)
    about = escape(collection.description or collection.type)
    number = "" if count is None else f"{count:,}"
    name = f'<a href="{escape(collection_path(collection.name))}"><bdi>{title}</bdi></a>'
    return f'<tr><td>{name}</td><td dir="auto">{about}</td><td class="number">{number}</td></tr>'


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
