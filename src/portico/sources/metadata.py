"""Reads what the head of a page says of it: meta tags, OpenGraph, canonical address. Reads no text of the page."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser

MAX_VALUES = 50  # of one name: authors, keywords
_MAX_TITLE = 300
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SEPARATORS = re.compile(r"\s+[|–—·•»«:‹›/-]+\s+|\s*[|»]\s*|:\s+")
_NAMES = ("og:title", "twitter:title", "dc.title", "citation_title")
_DESCRIPTIONS = ("description", "og:description", "twitter:description", "dc.description")
_AUTHORS = ("author", "article:author", "citation_author", "dc.creator", "parsely-author", "sailthru.author")
_PUBLISHED = (
    "article:published_time", "og:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "dcterms.date",
    "citation_publication_date", "publish_date", "publication_date", "pubdate", "parsely-pub-date",
)  # fmt: skip
_MODIFIED = ("article:modified_time", "og:updated_time", "datemodified", "last-modified", "dcterms.modified")
_IMAGES = ("og:image:secure_url", "og:image", "og:image:url", "twitter:image", "twitter:image:src")
_KEYWORDS = ("keywords", "news_keywords", "article:tag")
_PRICES = ("product:price:amount", "og:price:amount")
_CURRENCIES = ("product:price:currency", "og:price:currency")


class PageMetadata:
    """The meta tags of a page by their names in small letters."""

    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        self._tree = tree
        self._base = base
        self._values: dict[str, list[str]] = {}
        for element in tree.css("meta[content]"):
            attributes = element.attributes
            content = " ".join((attributes.get("content") or "").split())
            name = attributes.get("property") or attributes.get("name") or attributes.get("itemprop") or ""
            values = self._values.setdefault(name.strip().lower(), [])
            if content and len(values) < MAX_VALUES:
                values.append(content)
        if not base:
            self._base = self.address()

    @property
    def description(self) -> str:
        return self._first(_DESCRIPTIONS)

    @property
    def language(self) -> str:
        root = self._tree.css_first("html[lang]")
        return ((root.attributes.get("lang") or "") if root else "").strip()

    def address(self) -> str:
        """Return the address that a page says is its own: its canonical link, else `og:url`."""
        link = self._tree.css_first('link[rel~="canonical" i][href]')
        canonical = web_address((link.attributes.get("href") or "") if link else "", self._base)
        return canonical or web_address(self._first(("og:url",)), self._base)

    def title(self) -> str:
        """Return the title of the page without the name of its site."""
        element = self._tree.css_first("head title")
        text = " ".join(element.text().split()) if element else ""
        headings = self._tree.css("h1")
        heading = " ".join(headings[0].text().split()) if headings else ""
        if not text:
            return (heading or self._first(_NAMES))[:_MAX_TITLE]
        for shorter in (heading, self._first(_NAMES)):
            if shorter and _is_title_in(shorter, text):
                return shorter[:_MAX_TITLE]
        return self._without_site(text)[:_MAX_TITLE]

    def fields(self) -> dict[str, Any]:
        """Return what the head says, by the names of schema.org."""
        authors = [name for name in self._all(_AUTHORS) if not web_address(name, "")]
        fields = {
            "description": self.description,
            "author": authors[0] if len(authors) == 1 else authors,
            "datePublished": self._date(_PUBLISHED),
            "dateModified": self._date(_MODIFIED),
            "keywords": list(self._keywords()),
            "image": web_address(self._first(_IMAGES), self._base),
        }
        return {name: value for name, value in fields.items() if value}

    def product(self) -> dict[str, Any]:
        """Return what OpenGraph says of a product; nothing if the page has none."""
        price, currency = self._first(_PRICES), self._first(_CURRENCIES)
        if not self._first(("og:type",)).lower().startswith(("product", "og:product")):
            return {}
        offer = {"@type": "Offer", "price": price, "priceCurrency": currency}
        brand = self._first(("product:brand", "og:brand"))
        product = {
            "@type": "Product",
            "name": self._first(_NAMES),
            "offers": {name: value for name, value in offer.items() if value} if price else {},
            "brand": {"@type": "Brand", "name": brand} if brand else {},
            "sku": self._first(("product:retailer_item_id",)),
        }
        return {name: value for name, value in product.items() if value}

    def _keywords(self) -> Iterator[str]:
        tags = self._all(("article:tag",))
        texts = tags or [part for text in self._all(_KEYWORDS) for part in text.split(",")]
        yield from dict.fromkeys(text.strip() for text in texts[:MAX_VALUES] if text.strip())

    def _without_site(self, title: str) -> str:
        site = self._first(("og:site_name", "application-name"))
        if site and title.casefold().endswith(site.casefold()):
            shorter = title[: -len(site)].rstrip().rstrip("|–—·•»«:‹›/-").rstrip()
            return shorter or title
        return title

    def _date(self, names: tuple[str, ...]) -> str:
        return next((value for name in names for value in self._values.get(name, ()) if _DATE.match(value)), "")

    def _first(self, names: tuple[str, ...]) -> str:
        return next((value for name in names for value in self._values.get(name, ())), "")

    def _all(self, names: tuple[str, ...]) -> list[str]:
        return next((values for name in names if (values := self._values.get(name))), list[str]())


def web_address(reference: str, base: str) -> str:
    """Return an absolute address on the web, or an empty text."""
    try:
        address = urljoin(base, reference.strip()) if reference.strip() else ""
        parts = urlsplit(address)
    except ValueError:
        return ""
    return address if parts.scheme in ("http", "https") and parts.netloc else ""


def _is_title_in(shorter: str, title: str) -> bool:
    return shorter.casefold() in [part.casefold() for part in (title, *_ends(title))]


def _ends(title: str) -> Iterator[str]:
    """Yield the parts of a title before and after each separator."""
    for match in _SEPARATORS.finditer(title[:1000]):
        yield title[: match.start()]
        yield title[match.end() :]
