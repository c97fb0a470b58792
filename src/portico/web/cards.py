"""An item in short: its name, its picture, and the facts that its kind is known by.

`assets/cards.js` shows the same of an item, in the same order. Everything in an item may be hostile.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any, Final, TypeAlias, cast

from portico.ask.facts import Price, price_of
from portico.ask.languages.phrasebook import Phrases
from portico.ask.prose import shortened
from portico.catalog import instant, seconds
from portico.items import Item, title_of
from portico.web.addresses import absolute, is_own, item_path
from portico.web.signs import STOCK, icon, word
from portico.web.values import MAX_ELEMENTS, Members, Surroundings, isolated, moment, one_line
from portico.web.words import Words

MAX_TITLE = 300
MAX_SUMMARY = 300
MAX_FACT = 80  # characters
MAX_SEVERAL = 3  # values of one fact
_DEPTH = 6  # of a value in which a text is looked for
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,10})?\Z")
_OFFSET = re.compile(r"(:\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)\Z")
_SAID = ("description", "abstract", "text", "articleBody")

Read: TypeAlias = Callable[[Members, Surroundings], str]  # what an item says of something, as HTML


def item_name(item: Item) -> str:
    """What an item is called on one line; its id if it has no name."""
    return shortened(one_line(title_of(item.data)) or one_line(item.id) or item.collection, MAX_TITLE)


def item_summary(item: Item) -> str:
    """One or two sentences of an item; empty if it has none."""
    said = (_members(item.data.get("acceptedAnswer")).get("text"), *map(item.data.get, _SAID))
    return next((shortened(one_line(each), MAX_SUMMARY) for each in said if isinstance(each, str) and each.strip()), "")


def item_kind(data: Members, type: str = "") -> str:
    """What kind of thing an item is, as schema.org calls it; what its collection says if the item does not."""
    return brief(_first(data.get("@type"))).rpartition("/")[2] or type or "Thing"


def kind_line(kind: str, style: str, words: Words) -> str:
    """The line that says what kind of thing an item is. That it is a thing need not be said."""
    return f'<p class="{style}">{words.kind(kind)}</p>' if kind != "Thing" else ""


def picture(data: Members, base: str) -> str:
    """The first picture that a page may load: of this site. What is elsewhere is not asked for."""
    return next((url for url in pictures(data, base) if is_own(url, base)), "")


def pictures(data: Members, base: str) -> Iterator[str]:
    """The addresses of all pictures of an item, here and elsewhere."""
    for name in ("image", "thumbnailUrl", "logo"):
        yield from filter(None, (absolute(each, base) for each in _addresses(data.get(name), 3)))


def _addresses(value: Any, depth: int) -> Iterator[Any]:
    match value:
        case str():
            yield value
        case list() if depth:
            for each in cast("list[Any]", value)[:MAX_ELEMENTS]:
                yield from _addresses(each, depth - 1)
        case Mapping() if depth:
            inner = cast("Members", value)
            yield from _addresses(inner.get("url") or inner.get("contentUrl") or inner.get("@id"), depth - 1)
        case _:
            pass


def card(item: Item, type: str, around: Surroundings, level: int = 2) -> str:
    """An item within a list, with the way to it, under headings above this level."""
    src, kind, summary = picture(item.data, around.base), item_kind(item.data, type), item_summary(item)
    image = f'<img class="item-picture" src="{escape(src)}" alt="" loading="lazy">' if src else ""
    long = " long" if kind == "Question" else ""
    about = f'<p class="item-text clamp{long}" dir="auto">{escape(summary)}</p>' if summary else ""
    link = f'<a href="{escape(item_path(item.ref))}">{isolated(item_name(item))}</a>'
    return (
        f'<article class="item{" pictured" if src else ""}">{image}<div class="item-body">'
        f"{kind_line(kind, 'item-kind', around.words)}"
        f'<h{level} class="item-name clamp">{link}</h{level}>'
        f"{about}{facts(item.data, kind, around)}</div></article>"
    )


# Facts


def facts(data: Members, kind: str, around: Surroundings) -> str:
    """What people look for first in a thing of its kind, as a list; empty if the item says nothing of it."""
    told = [(_FACTS[name], _FACTS[name].read(data, around)) for name in _shown(kind)]
    rows = "".join(f"<li{fact.style}>{icon(fact.icon) if fact.icon else ''}{said}</li>" for fact, said in told if said)
    return f'<ul class="item-facts">{rows}</ul>' if rows else ""


def brief(value: Any, most: int = MAX_FACT) -> str:
    """The beginning of the first text in a value, on one line."""
    return shortened(" ".join(_plain(value, _DEPTH).split()), most)


def _plain(value: Any, depth: int) -> str:
    match value:
        case str():
            return value
        case bool() | None:
            return ""
        case int() | float():
            return str(value)
        case list() if depth:
            texts = (_plain(each, depth - 1) for each in cast("list[Any]", value)[:20])
            return next(filter(None, texts), "")
        case Mapping() if depth:
            inner = cast("Members", value)
            return _plain(_either(inner, "@value", "text", "name"), depth - 1)
        case _:
            return ""


def _either(data: Members, *names: str) -> Any:
    """The first of some members that is there."""
    return next((data[name] for name in names if data.get(name) is not None), None)


def _first(value: Any) -> Any:
    return next(iter(cast("list[Any]", value)), None) if isinstance(value, list) else value


def _members(value: Any) -> Members:
    return cast("Members", value) if isinstance(value, Mapping) else {}


def _told(text: str) -> str:
    return isolated(text) if text else ""


def _worded(text: str, around: Surroundings) -> str:
    """What has words of ours in it."""
    return f"<bdi{around.words.mark}>{escape(text)}</bdi>" if text else ""


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


def _price(data: Members, around: Surroundings) -> str:
    if price := price_of(data):
        return _worded(_tag(price, around.phrases), around)
    offer = _members(_first(data.get("offers")))
    said = (offer.get("price"), data.get("price"), data.get("estimatedCost"), data.get("priceRange"))
    return _told(next(filter(None, (brief(each, 30) for each in said)), ""))


def _tag(price: Price, phrases: Phrases) -> str:
    """The least that something costs. Of what it is where nobody has said that is not guessed."""
    if price.low == 0:
        return word("free", phrases)
    written = phrases.price_tag(price.low, price.currency)
    return written if phrases.sign(price.currency) else f"{word('price', phrases)}: {written}"


def _rating(data: Members, around: Surroundings) -> str:
    rating = _members(data.get("aggregateRating"))
    value, count = _number(rating.get("ratingValue")), _number(_either(rating, "reviewCount", "ratingCount"))
    if value is None:
        return ""
    figure = around.phrases.figure
    shown = figure(value, 0 if round(value, 1) == round(value) else 1)
    return _told(shown if count is None else f"{shown} ({figure(count, 0)})")


def _duration(data: Members, around: Surroundings) -> str:
    said = _either(data, "totalTime", "duration", "timeRequired")
    length = seconds(said) if isinstance(said, str) and len(said) <= 40 and said.startswith("P") else None
    hours, minutes = divmod(int(length or 0) // 60, 60)
    phrases, space = around.phrases, around.phrases.script.space
    parts = [(hours, "hour"), (minutes, "minute")]
    told = (f"{phrases.figure(count, 0)}{space}{word(unit, phrases)}" for count, unit in parts if count)
    return _worded(space.join(told), around)


def _dated(name: str) -> Read:
    def read(data: Members, around: Surroundings) -> str:
        # The clock of the place where something happens, not of who reads of it.
        text = _OFFSET.sub(r"\1", brief(data.get(name), 40))
        return moment(text, around.words) if instant(text) is not None else _told(text)

    return read


def _place(data: Members, _: Surroundings) -> str:
    where = _first(data.get("location"))
    if where is None:
        return _told(_street(data.get("address")))
    inner = _members(where)
    return _told(brief(inner.get("name")) or _street(inner.get("address") or data.get("address")) or brief(where))


def _street(address: Any) -> str:
    found = _first(address)
    if not isinstance(found, Mapping):
        return brief(found)
    inner = _members(cast("Any", found))
    return ", ".join(filter(None, (brief(inner.get(name), 40) for name in ("streetAddress", "addressLocality"))))


def _stock(data: Members, around: Surroundings) -> str:
    said = _either(_members(_first(data.get("offers"))), "availability") or data.get("availability")
    name = STOCK.get(brief(said).rpartition("/")[2])
    return _worded(word(name, around.phrases), around) if name else ""


def _several(*names: str) -> Read:
    def read(data: Members, _: Surroundings) -> str:
        values = [each for name in names for each in _listed(data.get(name))][:MAX_SEVERAL]
        return _told(", ".join(filter(None, (brief(each, 30) for each in values))))

    return read


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _author(data: Members, _: Surroundings) -> str:
    return _told(brief(_either(data, "author", "creator")))


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that may be said of an item, with its sign."""

    read: Read
    icon: str = ""
    style: str = ""


_FACTS: Final[Mapping[str, Fact]] = {
    "price": Fact(_price, style=' class="price"'),
    "rating": Fact(_rating, "star"),
    "duration": Fact(_duration, "clock"),
    "start": Fact(_dated("startDate"), "calendar"),
    "published": Fact(_dated("datePublished"), "calendar"),
    "place": Fact(_place, "place"),
    "author": Fact(_author, "person"),
    "cuisine": Fact(_several("servesCuisine", "recipeCuisine")),
    "genre": Fact(_several("genre", "articleSection", "category")),
    "stock": Fact(_stock),
}
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "Recipe": ("duration", "rating", "price", "cuisine"),
    "Product": ("price", "rating", "stock", "genre"),
    "Event": ("start", "place", "price"),
    "Restaurant": ("rating", "price", "cuisine", "place"),
    "Article": ("author", "published", "genre"),
    "Book": ("author", "rating", "price", "genre"),
    "Place": ("place", "rating", "price"),
    "Question": (),
}
_ALIKE: Final[Mapping[str, str]] = {
    "BarOrPub": "Restaurant",
    "CafeOrCoffeeShop": "Restaurant",
    "FoodEstablishment": "Restaurant",
    "NewsArticle": "Article",
    "BlogPosting": "Article",
    "FAQPage": "Question",
}
_ANY: Final = ("start", "duration", "price", "rating", "author", "place")


def _shown(kind: str) -> tuple[str, ...]:
    return _SHOWN.get(_ALIKE.get(kind, kind), _SHOWN["Event"] if kind.endswith("Event") else _ANY)
