"""Any value of an item as HTML. Everything is escaped, isolated from the text around it, and bounded."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias, cast

from portico.ask.languages.phrasebook import Phrases, capital
from portico.ask.opening_hours import hours
from portico.ask.prose import shortened
from portico.ask.understanding.fields import spoken
from portico.catalog import instant, seconds
from portico.items import IN_WORDS, MAX_ID, title_of, unseen
from portico.web.addresses import absolute, is_own, item_path
from portico.web.signs import word
from portico.web.words import Words, label

MAX_DEPTH = 6  # objects and lists within each other
MAX_MEMBERS = 100  # of an object
MAX_ELEMENTS = 50  # of a list
MAX_TEXT = 20_000  # characters
MAX_NAME = 300
MAX_URL = 2_000
MAX_INLINE = 40  # characters of texts that are listed on one line
MAX_LINK = 60  # characters of an address that are shown
FOREIGN = "nofollow noopener ugc"  # what data links to is not ours to recommend

_SCHEMA = re.compile(r"https?://schema\.org/(\w+)/?\Z")
_BLOCK = re.compile(
    r"</?(?:p|div|br|li|ul|ol|h[1-6]|tr|table|section|article|blockquote|pre|hr)\b[^<>]*>", re.IGNORECASE
)
_TAG = re.compile(r"<(?:/?[A-Za-z][^<>]*|!--[^<>]*--)>")
_UNSEEN = unseen(but=rf"\s{IN_WORDS}")
_SLUG = re.compile(r"[\w-]{1,128}/[a-z][a-z0-9-]{0,80}\Z")
_EMPTY_LINES = re.compile(r"\n\s*\n\s*")

Members: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a value is shown in: the site's address, the language, the currency, and how deep it lies."""

    base: str
    words: Words
    currency: str = ""  # of the prices of this object
    common: str = ""  # the currency that holds for the offers and prices within it, too
    depth: int = 0

    @property
    def phrases(self) -> Phrases:
        return self.words.phrases

    def within(self, data: Members) -> "Surroundings":
        """The surroundings of an object's members. Another thing within it has a currency of its own, or none."""
        common = _own_currency(data) or (self.common if _is_of_a_price(data) else "")
        return replace(self, currency=common or _offered_currency(data), common=common, depth=self.depth + 1)


def _own_currency(data: Members) -> str:
    said = (data.get("priceCurrency"), data.get("currency"))
    return next((each for each in said if isinstance(each, str)), "")


def _offered_currency(data: Members) -> str:
    """The currency of all offers of an object; empty if they have none, or several."""
    offers = data.get("offers")
    listed = cast("list[Any]", offers)[:MAX_ELEMENTS] if isinstance(offers, list) else [offers]
    found = {_own_currency(cast("Members", each)) for each in listed if isinstance(each, Mapping)}
    return found.pop() if len(found) == 1 else ""


def _is_of_a_price(data: Members) -> bool:
    """Whether an object says what something costs, and is no thing of its own."""
    kind = data.get("@type")
    return not isinstance(kind, str) or kind.endswith(("Offer", "Specification", "MonetaryAmount"))


def readable(text: str) -> str:
    """A text without the tags that pages leave in their data. It is not yet escaped."""
    if "<" in text and _TAG.search(text):
        text = html.unescape(_TAG.sub("", _BLOCK.sub("\n\n", text)))
    return _EMPTY_LINES.sub("\n\n", text.strip())


def one_line(text: str) -> str:
    """A text for titles and attributes, where nothing isolates it: without line breaks and what no eye sees."""
    return " ".join(_UNSEEN.sub("", readable(text)).split())


def isolated(text: str) -> str:
    return f"<bdi>{escape(text)}</bdi>"


def link(url: str, text: str, base: str) -> str:
    rel = "" if is_own(url, base) else f' rel="{FOREIGN}"'
    return f'<a href="{escape(url)}"{rel}>{isolated(text)}</a>'


def more(count: int, words: Words) -> str:
    return f'<span class="faint">{words.count("more", count)}</span>'


# Values


def shown(name: str, value: Any, around: Surroundings) -> str:
    """A value as HTML; empty if there is nothing to see."""
    match value:
        case None:
            return ""
        case bool():
            return around.words.marked(escape(capital(around.phrases.yes if value else around.phrases.no)))
        case int() | float():
            return _number(name, value, around)
        case str():
            return _text(name, value, around)
        case list() | tuple():
            return _list(name, cast("Sequence[Any]", value), around)
        case Mapping():
            return _object(name, cast("Members", value), around)
        case _:
            return ""


def _number(name: str, value: float, around: Surroundings) -> str:
    if not isfinite(value) or abs(value) >= 1e15:
        return str(value)
    if _is_price(name):
        return _money(value, around)
    # A year, a postcode or a serial number is no amount: its digits stand together.
    return str(value) if isinstance(value, int) else escape(around.phrases.number(value))


def _money(value: float, around: Surroundings) -> str:
    """Without a currency a plain number: nobody's money is guessed."""
    if not value:
        return around.words.marked(escape(word("free", around.phrases)))
    return escape(around.phrases.money(value, around.currency))


def _is_price(name: str) -> bool:
    words = spoken(name).split()
    return bool({"price", "cost", "fee"} & set(words)) and "range" not in words


def _text(name: str, text: str, around: Surroundings) -> str:
    if not text.strip():
        return ""
    if term := _SCHEMA.match(text.strip()):
        return around.words.label(term[1])
    if written := _measured(name, text.strip(), around):
        return written
    if text.strip().startswith(("http://", "https://")) and (url := _followed(text, around.base)):
        return link(url, shortened(url, MAX_LINK), around.base)
    return paragraphs(text) if "\n" in text.strip() else isolated(shortened(readable(text), MAX_TEXT))


def _measured(name: str, text: str, around: Surroundings) -> str:
    """Times, lengths of time and prices as people write them; empty for any other text."""
    if len(text) > 40:
        return ""
    if text.startswith("P") and (length := seconds(text)) is not None:
        return around.words.marked(escape(around.phrases.duration(length)))
    if instant(text) is not None:
        return moment(text, around.words)
    if name == "openingHours":
        return around.words.marked(escape(hours(text, around.phrases.language))) if hours(text, "en") != text else ""
    if _is_price(name) and re.fullmatch(r"\d{1,12}(\.\d{1,4})?", text):
        return _money(float(text), around)
    return ""


def moment(text: str, words: Words) -> str:
    """A day, or a day and a time of it, that `instant` can read."""
    read = datetime.fromisoformat(text)
    clock = f", {read:%H:%M}" if len(text) > len("2026-01-01") else ""
    return f'<time{words.mark} datetime="{escape(text)}">{escape(words.phrases.day(read.date()))}{clock}</time>'


def paragraphs(text: str) -> str:
    """A long text, with its line breaks."""
    parts = shortened(readable(text), MAX_TEXT).split("\n\n")
    return "".join(f'<p class="text" dir="auto">{escape(part)}</p>' for part in parts if part.strip())


# Lists


def _list(name: str, values: Sequence[Any], around: Surroundings) -> str:
    inner = replace(around, depth=around.depth + 1)
    if inner.depth > MAX_DEPTH:
        return "…"
    if _is_vector(values):
        return f'<span class="faint">{around.words.count("numbers", len(values))}</span>'
    parts = [part for value in values[:MAX_ELEMENTS] if (part := shown(name, value, inner))]
    rest = [more(len(values) - MAX_ELEMENTS, around.words)] if len(values) > MAX_ELEMENTS else []
    if not parts:
        return ""
    if len(parts) == 1 and not rest:
        return parts[0]
    if all(_is_short(value) for value in values[:MAX_ELEMENTS]):
        return ", ".join(parts) + "".join(f" {each}" for each in rest)
    return listed([*parts, *rest])


def listed(parts: Sequence[str], tag: str = "ul") -> str:
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


def _object(name: str, data: Members, around: Surroundings) -> str:
    inner = around.within(data)
    kind = data.get("@type") or _IMPLIED.get(name)
    brief = _BRIEF.get(kind) if isinstance(kind, str) else None
    if brief and (said := brief(data, inner)):
        return said
    if _is_reference(data):
        return _reference(data, around)
    return "…" if inner.depth > MAX_DEPTH else definitions(data.items(), inner, len(data))


def definitions(members: Iterator[tuple[str, Any]] | Any, around: Surroundings, count: int) -> str:
    """Names and values in two columns."""
    few = islice(members, MAX_MEMBERS)
    pairs = [(name, shown(name, value, around)) for name, value in few if name not in {"@type", "priceCurrency"}]
    rows = [f"<dt>{around.words.label(name)}</dt><dd>{value}</dd>" for name, value in pairs if value]
    if count > MAX_MEMBERS:
        rows.append(f"<dt></dt><dd>{more(count - MAX_MEMBERS, around.words)}</dd>")
    return f"<dl>{''.join(rows)}</dl>" if rows else ""


def _is_reference(data: Members) -> bool:
    """Whether an object only names something: by its id, its name or its address."""
    told = {name for name, value in data.items() if value not in (None, "", [])}
    return bool(told & {"@id", "name", "@value", "url"}) and told <= {
        "@id",
        "@type",
        "name",
        "url",
        "@value",
        "@language",
    }


def _reference(data: Members, around: Surroundings) -> str:
    id, said = data.get("@id"), data.get("@value")
    if said is not None:
        return shown("", said, around)
    url = _followed(data.get("url"), around.base) or (_place_of(id, around.base) if isinstance(id, str) else None)
    name = title_of(data) or (_name_in(id) if isinstance(id, str) else "") or url or ""
    text = shortened(one_line(name[:MAX_TEXT]), MAX_NAME)
    return link(url, text, around.base) if url else isolated(text)


def _name_in(id: str) -> str:
    """What an id such as places/old-harbour calls its item; other ids are shown as they are."""
    return label(id.rpartition("/")[2]) if _SLUG.match(id) else id


def _place_of(id: str, base: str) -> str | None:
    """Where something of this id is described: at its own address if it has one, else on this site."""
    if id.startswith(("http://", "https://")):
        return _followed(id, base)
    return None if not id or len(id) > MAX_ID or id.startswith("_:") else f"{base}{item_path(id)}"


def _followed(url: Any, base: str) -> str | None:
    """An address that a link may have; None for one that no reader would take."""
    return absolute(url, base) if isinstance(url, str) and len(url) <= MAX_URL else None


# Objects that people write on one line


def _rating(data: Members, around: Surroundings) -> str:
    value = shown("", data.get("ratingValue"), around)
    if not value:
        return ""
    best = shown("", data.get("bestRating"), around) or "5"
    count = data.get("reviewCount") or data.get("ratingCount")
    told = f' <span class="faint">({escape(around.phrases.number(count))})</span>' if isinstance(count, int) else ""
    return f"★ {value} / {best}{told}"


def _offer(data: Members, around: Surroundings) -> str:
    told = {name for name, value in data.items() if value is not None}
    if not told <= {"@type", "priceCurrency", "url", *_OFFERED}:
        return ""
    return " · ".join(part for name in _OFFERED if (part := shown(name, data.get(name), around)))


_OFFERED = ("price", "availability", "itemCondition", "seller")


def _address(data: Members, around: Surroundings) -> str:
    names = ("streetAddress", "postOfficeBoxNumber", "addressLocality", "addressRegion", "postalCode", "addressCountry")
    return ", ".join(part for name in names if (part := shown(name, data.get(name), around)))


def _coordinates(data: Members, around: Surroundings) -> str:
    parts = [shown(name, data.get(name), around) for name in ("latitude", "longitude")]
    return ", ".join(parts) if all(parts) else ""


def _quantity(data: Members, around: Surroundings) -> str:
    unit = data.get("unitText") or data.get("unitCode")
    value = shown("value", data.get("value"), around)
    return f"{value} {isolated(unit)}" if value and isinstance(unit, str) else value


def _sum_of_money(data: Members, around: Surroundings) -> str:
    told = {name for name, value in data.items() if value is not None}
    return shown("price", data.get("value"), around) if told <= {"@type", "value", "currency"} else ""


def _step(data: Members, around: Surroundings) -> str:
    text = data.get("text") or title_of(data)
    return shown("text", text, around) if isinstance(text, str) else ""


def _hours(data: Members, around: Surroundings) -> str:
    days, opens, closes = (shown(name, data.get(name), around) for name in ("dayOfWeek", "opens", "closes"))
    return f"{days} {opens}–{closes}".strip() if opens and closes else ""


_BRIEF: dict[str, Callable[[Members, Surroundings], str]] = {
    "AggregateRating": _rating,
    "Rating": _rating,
    "Offer": _offer,
    "PostalAddress": _address,
    "GeoCoordinates": _coordinates,
    "QuantitativeValue": _quantity,
    "MonetaryAmount": _sum_of_money,
    "HowToStep": _step,
    "OpeningHoursSpecification": _hours,
}
# What a member holds that says no type.
_IMPLIED = {
    "aggregateRating": "AggregateRating",
    "offers": "Offer",
    "address": "PostalAddress",
    "geo": "GeoCoordinates",
    "estimatedCost": "MonetaryAmount",
    "openingHoursSpecification": "OpeningHoursSpecification",
}
