"""Renders any value of an item as HTML: escaped, isolated from the surrounding text, and bounded."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias, cast

from portico.ask.languages.phrasebook import Phrases, capitalize
from portico.ask.opening_hours import render_hours
from portico.ask.prose import shorten
from portico.ask.understanding.fields import words_of
from portico.catalog import instant, seconds
from portico.items import IN_WORDS, MAX_ID, invisible_pattern, title_of
from portico.web.addresses import absolute, is_own, item_path
from portico.web.pictures import OWN_PICTURES, PictureHosts
from portico.web.words import Words, label, word

MAX_DEPTH = 6  # of nested objects and lists
MAX_MEMBERS = 100  # of an object
MAX_ELEMENTS = 50  # of a list
MAX_TEXT = 20_000  # characters
MAX_NAME = 300
MAX_URL = 2_000
MAX_INLINE = 40  # characters of texts in a list on one line
MAX_LINK = 60  # characters of a URL that are shown
FOREIGN = "nofollow noopener ugc"  # the site does not endorse links in its data

_SCHEMA = re.compile(r"https?://schema\.org/(\w+)/?\Z")
_BLOCK = re.compile(
    r"</?(?:p|div|br|li|ul|ol|h[1-6]|tr|table|section|article|blockquote|pre|hr)\b[^<>]*>", re.IGNORECASE
)
_TAG = re.compile(r"<(?:/?[A-Za-z][^<>]*|!--[^<>]*--)>")
_UNSEEN = invisible_pattern(except_for=rf"\s{IN_WORDS}")
_SLUG = re.compile(r"[\w-]{1,128}/[a-z][a-z0-9-]{0,80}\Z")
_EMPTY_LINES = re.compile(r"\n\s*\n\s*")

Members: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DisplayContext:
    """The context of a value: the base URL, the language, the currency and the depth."""

    base: str
    words: Words
    currency: str = ""  # of the prices of this object
    common: str = ""  # the currency that nested offers and prices inherit
    depth: int = 0
    hosts: PictureHosts = OWN_PICTURES

    @property
    def phrases(self) -> Phrases:
        return self.words.phrases

    def within(self, data: Members) -> "DisplayContext":
        """Return the context for the members of an object. A nested thing does not inherit its currency."""
        common = _own_currency(data) or (self.common if _is_of_a_price(data) else "")
        return replace(self, currency=common or _currency_of_offers(data), common=common, depth=self.depth + 1)


def _own_currency(data: Members) -> str:
    currencies = (data.get("priceCurrency"), data.get("currency"))
    return next((currency for currency in currencies if isinstance(currency, str)), "")


def _currency_of_offers(data: Members) -> str:
    """Return the currency that all offers of an object share; empty if there is none."""
    offers = data.get("offers")
    offer_list = cast("list[Any]", offers)[:MAX_ELEMENTS] if isinstance(offers, list) else [offers]
    currencies = {_own_currency(cast("Members", offer)) for offer in offer_list if isinstance(offer, Mapping)}
    return currencies.pop() if len(currencies) == 1 else ""


def _is_of_a_price(data: Members) -> bool:
    """Return whether an object is a price, not a thing of its own."""
    kind = data.get("@type")
    return not isinstance(kind, str) or kind.endswith(("Offer", "Specification", "MonetaryAmount"))


def readable(text: str) -> str:
    """Remove HTML tags from a text. The result is not escaped."""
    if "<" in text and _TAG.search(text):
        text = html.unescape(_TAG.sub("", _BLOCK.sub("\n\n", text)))
    return _EMPTY_LINES.sub("\n\n", text.strip())


def one_line(text: str) -> str:
    """Return a text for titles and attributes: without line breaks and invisible characters."""
    return " ".join(_UNSEEN.sub("", readable(text)).split())


def isolate(text: str) -> str:
    return f"<bdi>{escape(text)}</bdi>"


def link(url: str, text: str, base: str) -> str:
    rel = "" if is_own(url, base) else f' rel="{FOREIGN}"'
    return f'<a href="{escape(url)}"{rel}>{isolate(text)}</a>'


def more(count: int, words: Words) -> str:
    return f'<span class="faint">{words.count("more", count)}</span>'


# Values


def render_value(name: str, value: Any, context: DisplayContext) -> str:
    """Render a value as HTML; empty if it has no content."""
    match value:
        case None:
            return ""
        case bool():
            return context.words.mark_html(escape(capitalize(context.phrases.yes if value else context.phrases.no)))
        case int() | float():
            return _number(name, value, context)
        case str():
            return _text(name, value, context)
        case list() | tuple():
            return _list(name, cast("Sequence[Any]", value), context)
        case Mapping():
            return _object(name, cast("Members", value), context)
        case _:
            return ""


def _number(name: str, value: float, context: DisplayContext) -> str:
    if not isfinite(value) or abs(value) >= 1e15:
        return str(value)
    if _is_price(name):
        return _money(value, context)
    # Integers have no separators: they may be years, postcodes or serial numbers.
    return str(value) if isinstance(value, int) else escape(context.phrases.number(value))


def _money(value: float, context: DisplayContext) -> str:
    """Format an amount; without a known currency, as a plain number."""
    if not value:
        return context.words.mark_html(escape(word("free", context.phrases)))
    return escape(context.phrases.money(value, context.currency))


def _is_price(name: str) -> bool:
    words = words_of(name).split()
    return bool({"price", "cost", "fee"} & set(words)) and "range" not in words


def _text(name: str, text: str, context: DisplayContext) -> str:
    if not text.strip():
        return ""
    if term := _SCHEMA.match(text.strip()):
        return context.words.label(term[1])
    if phrase := _format_measure(name, text.strip(), context):
        return phrase
    if text.strip().startswith(("http://", "https://")) and (url := _link_url(text, context.base)):
        return link(url, shorten(url, MAX_LINK), context.base)
    return paragraphs(text) if "\n" in text.strip() else isolate(shorten(readable(text), MAX_TEXT))


def _format_measure(name: str, text: str, context: DisplayContext) -> str:
    """Format times, durations, opening hours and prices; empty for any other text."""
    if len(text) > 40:
        return ""
    if text.startswith("P") and (length := seconds(text)) is not None:
        return context.words.mark_html(escape(context.phrases.duration(length)))
    if instant(text) is not None:
        return moment(text, context.words)
    if name == "openingHours":
        return (
            context.words.mark_html(escape(render_hours(text, context.phrases.language)))
            if render_hours(text, "en") != text
            else ""
        )
    if _is_price(name) and re.fullmatch(r"\d{1,12}(\.\d{1,4})?", text):
        return _money(float(text), context)
    return ""


def moment(text: str, words: Words) -> str:
    """Render a date or a date and time that `instant` can parse."""
    read = datetime.fromisoformat(text)
    clock = f", {read:%H:%M}" if len(text) > len("2026-01-01") else ""
    return f'<time{words.mark} datetime="{escape(text)}">{escape(words.phrases.day(read.date()))}{clock}</time>'


def paragraphs(text: str) -> str:
    """Render a long text as paragraphs."""
    parts = shorten(readable(text), MAX_TEXT).split("\n\n")
    return "".join(f'<p class="text" dir="auto">{escape(part)}</p>' for part in parts if part.strip())


# Lists


def _list(name: str, values: Sequence[Any], context: DisplayContext) -> str:
    inner = replace(context, depth=context.depth + 1)
    if inner.depth > MAX_DEPTH:
        return "…"
    if _is_vector(values):
        return f'<span class="faint">{context.words.count("numbers", len(values))}</span>'
    parts = [part for value in values[:MAX_ELEMENTS] if (part := render_value(name, value, inner))]
    rest = [more(len(values) - MAX_ELEMENTS, context.words)] if len(values) > MAX_ELEMENTS else []
    if not parts:
        return ""
    if len(parts) == 1 and not rest:
        return parts[0]
    if all(_is_short(value) for value in values[:MAX_ELEMENTS]):
        return ", ".join(parts) + "".join(f" {item}" for item in rest)
    return render_list([*parts, *rest])


def render_list(parts: Sequence[str], tag: str = "ul") -> str:
    return f"<{tag}>{''.join(f'<li>{part}</li>' for part in parts)}</{tag}>"


def _is_vector(values: Sequence[Any]) -> bool:
    return len(values) > MAX_ELEMENTS and all(type(value) in {int, float} for value in values)


def _is_short(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= MAX_INLINE and "\n" not in value
        case Mapping():
            return _is_reference(cast("Members", value))
        case list() | tuple():
            return False
        case _:
            return True


# Objects


def _object(name: str, data: Members, context: DisplayContext) -> str:
    inner = context.within(data)
    kind = data.get("@type") or _IMPLIED.get(name)
    brief = _BRIEF.get(kind) if isinstance(kind, str) else None
    if brief and (line := brief(data, inner)):
        return line
    if _is_reference(data):
        return _reference(data, context)
    return "…" if inner.depth > MAX_DEPTH else definitions(data.items(), inner, len(data))


def definitions(members: Iterator[tuple[str, Any]] | Any, context: DisplayContext, count: int) -> str:
    """Render names and values in two columns."""
    few = islice(members, MAX_MEMBERS)
    pairs = [
        (name, render_value(name, value, context)) for name, value in few if name not in {"@type", "priceCurrency"}
    ]
    rows = [f"<dt>{context.words.label(name)}</dt><dd>{value}</dd>" for name, value in pairs if value]
    if count > MAX_MEMBERS:
        rows.append(f"<dt></dt><dd>{more(count - MAX_MEMBERS, context.words)}</dd>")
    return f"<dl>{''.join(rows)}</dl>" if rows else ""


def _is_reference(data: Members) -> bool:
    """Return whether an object is only a reference: an ID, a name or a URL."""
    names = {name for name, value in data.items() if value not in (None, "", [])}
    return bool(names & {"@id", "name", "@value", "url"}) and names <= {
        "@id",
        "@type",
        "name",
        "url",
        "@value",
        "@language",
    }


def _reference(data: Members, context: DisplayContext) -> str:
    id, scalar = data.get("@id"), data.get("@value")
    if scalar is not None:
        return render_value("", scalar, context)
    url = _link_url(data.get("url"), context.base) or (_place_of(id, context.base) if isinstance(id, str) else None)
    name = title_of(data)
    if not name and isinstance(id, str):  # derive a name from an ID such as places/old-harbour
        name = label(id.rpartition("/")[2]) if _SLUG.match(id) else id
    name = name or url or ""
    text = shorten(one_line(name[:MAX_TEXT]), MAX_NAME)
    return link(url, text, context.base) if url else isolate(text)


def _place_of(id: str, base: str) -> str | None:
    """Return the URL of something with this ID: the ID if it is a URL, else a page of this site."""
    if id.startswith(("http://", "https://")):
        return _link_url(id, base)
    return None if not id or len(id) > MAX_ID or id.startswith("_:") else f"{base}{item_path(id)}"


def _link_url(url: Any, base: str) -> str | None:
    """Return the URL for a link, or None if it is too long or unsafe."""
    return absolute(url, base) if isinstance(url, str) and len(url) <= MAX_URL else None


# Objects with a short form


def _rating_text(data: Members, context: DisplayContext) -> str:
    value = render_value("", data.get("ratingValue"), context)
    if not value:
        return ""
    best = render_value("", data.get("bestRating"), context) or "5"
    count = data.get("reviewCount") or data.get("ratingCount")
    reviews = f' <span class="faint">({escape(context.phrases.number(count))})</span>' if isinstance(count, int) else ""
    return f"★ {value} / {best}{reviews}"


def _offer(data: Members, context: DisplayContext) -> str:
    names = {name for name, value in data.items() if value is not None}
    if not names <= {"@type", "priceCurrency", "url", *_OFFERED}:
        return ""
    return " · ".join(part for name in _OFFERED if (part := render_value(name, data.get(name), context)))


_OFFERED = ("price", "availability", "itemCondition", "seller")


def _address(data: Members, context: DisplayContext) -> str:
    names = ("streetAddress", "postOfficeBoxNumber", "addressLocality", "addressRegion", "postalCode", "addressCountry")
    return ", ".join(part for name in names if (part := render_value(name, data.get(name), context)))


def _coordinates(data: Members, context: DisplayContext) -> str:
    parts = [render_value(name, data.get(name), context) for name in ("latitude", "longitude")]
    return ", ".join(parts) if all(parts) else ""


def _quantity(data: Members, context: DisplayContext) -> str:
    unit = data.get("unitText") or data.get("unitCode")
    value = render_value("value", data.get("value"), context)
    return f"{value} {isolate(unit)}" if value and isinstance(unit, str) else value


def _sum_of_money(data: Members, context: DisplayContext) -> str:
    names = {name for name, value in data.items() if value is not None}
    return render_value("price", data.get("value"), context) if names <= {"@type", "value", "currency"} else ""


def _step(data: Members, context: DisplayContext) -> str:
    text = data.get("text") or title_of(data)
    return render_value("text", text, context) if isinstance(text, str) else ""


def _hours(data: Members, context: DisplayContext) -> str:
    days, opens, closes = (render_value(name, data.get(name), context) for name in ("dayOfWeek", "opens", "closes"))
    return f"{days} {opens}–{closes}".strip() if opens and closes else ""


_BRIEF: dict[str, Callable[[Members, DisplayContext], str]] = {
    "AggregateRating": _rating_text,
    "Rating": _rating_text,
    "Offer": _offer,
    "PostalAddress": _address,
    "GeoCoordinates": _coordinates,
    "QuantitativeValue": _quantity,
    "MonetaryAmount": _sum_of_money,
    "HowToStep": _step,
    "OpeningHoursSpecification": _hours,
}
# The types of members that have none.
_IMPLIED = {
    "aggregateRating": "AggregateRating",
    "offers": "Offer",
    "address": "PostalAddress",
    "geo": "GeoCoordinates",
    "estimatedCost": "MonetaryAmount",
    "openingHoursSpecification": "OpeningHoursSpecification",
}
