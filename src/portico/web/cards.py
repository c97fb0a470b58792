"""Cards: the name, the picture and the main facts of an item.

`assets/cards.js` renders the same facts in the same order. All content of an item is untrusted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any, Final, TypeAlias, cast

from portico.ask.facts import PriceRange, price_of
from portico.ask.languages.phrasebook import Phrases
from portico.ask.prose import shorten
from portico.catalog import instant, seconds
from portico.items import Item, title_of
from portico.web.addresses import item_path
from portico.web.pictures import image_tag, picture
from portico.web.values import DisplayContext, Members, isolate, moment, one_line
from portico.web.words import STOCK, Words, icon, word

MAX_TITLE = 300
MAX_SUMMARY = 300
MAX_FACT = 80  # characters
MAX_SEVERAL = 3  # values of one fact
_DEPTH = 6  # to which a value is searched for a text
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,10})?\Z")
_OFFSET = re.compile(r"(:\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)\Z")
_TEXT_FIELDS = ("description", "abstract", "text", "articleBody")

FactReader: TypeAlias = Callable[[Members, DisplayContext], str]  # renders one fact of an item as HTML


def item_name(item: Item) -> str:
    """Return the name of an item on one line, or its ID if it has none."""
    return shorten(one_line(title_of(item.data)) or one_line(item.id) or item.collection, MAX_TITLE)


def item_summary(item: Item) -> str:
    """Return a short description of an item; empty if it has none."""
    candidates = (_members(item.data.get("acceptedAnswer")).get("text"), *map(item.data.get, _TEXT_FIELDS))
    return next(
        (shorten(one_line(text), MAX_SUMMARY) for text in candidates if isinstance(text, str) and text.strip()), ""
    )


def item_kind(data: Members, type: str = "") -> str:
    """Return the schema.org type of an item, or the type of its collection if it has none."""
    return brief(_first(data.get("@type"))).rpartition("/")[2] or type or "Thing"


def kind_line(kind: str, style: str, words: Words) -> str:
    """Render the type of an item; empty for `Thing`."""
    return f'<p class="{style}">{words.kind(kind)}</p>' if kind != "Thing" else ""


def card(item: Item, type: str, context: DisplayContext, level: int = 2) -> str:
    """Render an item of a list with a link to its page. `level` is that of its heading."""
    src = picture(item.data, context.base, context.hosts)
    kind, summary = item_kind(item.data, type), item_summary(item)
    image = image_tag(src, "item-picture", context.base) if src else ""
    long = " long" if kind == "Question" else ""
    about = f'<p class="item-text clamp{long}" dir="auto">{escape(summary)}</p>' if summary else ""
    link = f'<a href="{escape(item_path(item.ref))}">{isolate(item_name(item))}</a>'
    return (
        f'<article class="item{" pictured" if src else ""}">{image}<div class="item-body">'
        f"{kind_line(kind, 'item-kind', context.words)}"
        f'<h{level} class="item-name clamp">{link}</h{level}>'
        f"{about}{facts(item.data, kind, context)}</div></article>"
    )


# Facts


def facts(data: Members, kind: str, context: DisplayContext) -> str:
    """Render the main facts of an item of this type as a list; empty if it has none of them."""
    entries = [(_FACTS[name], _FACTS[name].read(data, context)) for name in _fact_names(kind)]
    rows = "".join(
        f"<li{fact.style}>{icon(fact.icon) if fact.icon else ''}{html}</li>" for fact, html in entries if html
    )
    return f'<ul class="item-facts">{rows}</ul>' if rows else ""


def brief(value: Any, most: int = MAX_FACT) -> str:
    """Return the first text in a value on one line, shortened."""
    return shorten(" ".join(_plain(value, _DEPTH).split()), most)


def _plain(value: Any, depth: int) -> str:
    match value:
        case str():
            return value
        case bool() | None:
            return ""
        case int() | float():
            return str(value)
        case list() if depth:
            texts = (_plain(item, depth - 1) for item in cast("list[Any]", value)[:20])
            return next(filter(None, texts), "")
        case Mapping() if depth:
            inner = cast("Members", value)
            return _plain(_either(inner, "@value", "text", "name"), depth - 1)
        case _:
            return ""


def _either(data: Members, *names: str) -> Any:
    """Return the first of these members that is present."""
    return next((data[name] for name in names if data.get(name) is not None), None)


def _first(value: Any) -> Any:
    return next(iter(cast("list[Any]", value)), None) if isinstance(value, list) else value


def _members(value: Any) -> Members:
    return cast("Members", value) if isinstance(value, Mapping) else {}


def _isolate(text: str) -> str:
    return isolate(text) if text else ""


def _mark_words(text: str, context: DisplayContext) -> str:
    """Render a text in the language of the page's own words."""
    return f"<bdi{context.words.mark}>{escape(text)}</bdi>" if text else ""


def _number(value: Any) -> float | None:
    match value:
        case bool():
            return None
        case int() | float():
            return float(value) if isfinite(value) else None
        case str() if _NUMBER.match(value.strip()):
            return float(value)
        case _:
            return None


def _price(data: Members, context: DisplayContext) -> str:
    if price := price_of(data):
        return _mark_words(_tag(price, context.phrases), context)
    offer = _members(_first(data.get("offers")))
    candidates = (offer.get("price"), data.get("price"), data.get("estimatedCost"), data.get("priceRange"))
    return _isolate(next(filter(None, (brief(candidate, 30) for candidate in candidates)), ""))


def _tag(price: PriceRange, phrases: Phrases) -> str:
    """Format the lowest price. Without a known currency, it is a plain number with a label."""
    if price.low == 0:
        return word("free", phrases)
    text = phrases.price_tag(price.low, price.currency)
    return text if phrases.sign(price.currency) else f"{word('price', phrases)}: {text}"


def _rating_text(data: Members, context: DisplayContext) -> str:
    rating = _members(data.get("aggregateRating"))
    value, count = _number(rating.get("ratingValue")), _number(_either(rating, "reviewCount", "ratingCount"))
    if value is None:
        return ""
    figure = context.phrases.figure
    text = figure(value, 0 if round(value, 1) == round(value) else 1)
    return _isolate(text if count is None else f"{text} ({figure(count, 0)})")


def _duration(data: Members, context: DisplayContext) -> str:
    value = _either(data, "totalTime", "duration", "timeRequired")
    length = seconds(value) if isinstance(value, str) and len(value) <= 40 and value.startswith("P") else None
    hours, minutes = divmod(int(length or 0) // 60, 60)
    phrases, space = context.phrases, context.phrases.script.space
    parts = [(hours, "hour"), (minutes, "minute")]
    texts = (f"{phrases.figure(count, 0)}{space}{word(unit, phrases)}" for count, unit in parts if count)
    return _mark_words(space.join(texts), context)


def _date_reader(name: str) -> FactReader:
    def read(data: Members, context: DisplayContext) -> str:
        # The local time of the event, not of the reader.
        text = _OFFSET.sub(r"\1", brief(data.get(name), 40))
        return moment(text, context.words) if instant(text) is not None else _isolate(text)

    return read


def _place(data: Members, _: DisplayContext) -> str:
    where = _first(data.get("location"))
    if where is None:
        return _isolate(_street(data.get("address")))
    inner = _members(where)
    return _isolate(brief(inner.get("name")) or _street(inner.get("address") or data.get("address")) or brief(where))


def _street(address: Any) -> str:
    first = _first(address)
    if not isinstance(first, Mapping):
        return brief(first)
    inner = _members(cast("Any", first))
    return ", ".join(filter(None, (brief(inner.get(name), 40) for name in ("streetAddress", "addressLocality"))))


def _stock(data: Members, context: DisplayContext) -> str:
    availability = _either(_members(_first(data.get("offers"))), "availability") or data.get("availability")
    name = STOCK.get(brief(availability).rpartition("/")[2])
    return _mark_words(word(name, context.phrases), context) if name else ""


def _several(*names: str) -> FactReader:
    def read(data: Members, _: DisplayContext) -> str:
        values = [value for name in names for value in _as_list(data.get(name))][:MAX_SEVERAL]
        return _isolate(", ".join(filter(None, (brief(value, 30) for value in values))))

    return read


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _author(data: Members, _: DisplayContext) -> str:
    return _isolate(brief(_either(data, "author", "creator")))


@dataclass(frozen=True, slots=True)
class CardFact:
    """A fact that an item may have, with its icon."""

    read: FactReader
    icon: str = ""
    style: str = ""


_FACTS: Final[Mapping[str, CardFact]] = {
    "price": CardFact(_price, style=' class="price"'),
    "rating": CardFact(_rating_text, "star"),
    "duration": CardFact(_duration, "clock"),
    "start": CardFact(_date_reader("startDate"), "calendar"),
    "published": CardFact(_date_reader("datePublished"), "calendar"),
    "place": CardFact(_place, "place"),
    "author": CardFact(_author, "person"),
    "cuisine": CardFact(_several("servesCuisine", "recipeCuisine")),
    "genre": CardFact(_several("genre", "articleSection", "category")),
    "stock": CardFact(_stock),
}
_FACT_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Recipe": ("duration", "rating", "price", "cuisine"),
    "Product": ("price", "rating", "stock", "genre"),
    "Event": ("start", "place", "price"),
    "Restaurant": ("rating", "price", "cuisine", "place"),
    "Article": ("author", "published", "genre"),
    "Book": ("author", "rating", "price", "genre"),
    "Place": ("place", "rating", "price"),
    "Question": (),
}
_SAME_FACTS: Final[Mapping[str, str]] = {
    "BarOrPub": "Restaurant",
    "CafeOrCoffeeShop": "Restaurant",
    "FoodEstablishment": "Restaurant",
    "NewsArticle": "Article",
    "BlogPosting": "Article",
    "FAQPage": "Question",
}
_DEFAULT_FACTS: Final = ("start", "duration", "price", "rating", "author", "place")


def _fact_names(kind: str) -> tuple[str, ...]:
    return _FACT_NAMES.get(
        _SAME_FACTS.get(kind, kind), _FACT_NAMES["Event"] if kind.endswith("Event") else _DEFAULT_FACTS
    )
