"""Renders the result of an operation for people: items by their names, and money with its currency. Reads only data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, cast

from portico.ask.facts import price_of
from portico.ask.languages.localization import Phrases
from portico.ask.understanding.fields import id_param_names, key_of, words_of
from portico.catalog import Collection
from portico.items import MAX_EXACT_INTEGER, TITLES, Item, title_of

MAX_VALUES = 200  # of a result that are looked at
MAX_DEPTH = 4
MAX_IDS = 20  # items of a result that are looked up
MAX_LISTED = 10
MAX_TEXT = 200  # characters of a value
SUMS = ("price", "total", "subtotal", "cost", "amount", "sum", "fee", "deposit", "balance", "charge")
_MONEY = frozenset(stem for word in SUMS for stem in key_of(word))
_CURRENCIES = ("priceCurrency", "currency")


def ids_in(result: Any, collections: Iterable[Collection]) -> dict[str, list[str]]:
    """Return what may be ids of items, by collection: under a name for one of its items, or beginning with its name."""
    candidates = list(collections)
    by_collection: dict[str, list[str]] = {}
    for name, text in islice(_texts(result, "", 0), MAX_VALUES):
        for collection in candidates:
            if text.startswith(f"{collection.name}/") or name in id_param_names(collection.one):
                by_collection.setdefault(collection.name, []).append(text)
    return {name: list(dict.fromkeys(ids))[:MAX_IDS] for name, ids in by_collection.items()}


def _texts(value: Any, name: str, depth: int) -> Iterator[tuple[str, str]]:
    match value:
        case str() if value and len(value) <= MAX_TEXT:
            yield name, value
        case Mapping() if depth < MAX_DEPTH:
            for key, inner in cast("Mapping[str, Any]", value).items():
                yield from _texts(inner, key, depth + 1)
        case list() | tuple() if depth < MAX_DEPTH:
            for element in cast("Sequence[Any]", value):
                yield from _texts(element, name, depth + 1)
        case _:
            pass


def currency_of(items: Iterable[Item]) -> str:
    """Return the currency that all the items have that say one; empty if they differ."""
    currencies = {price.currency for item in items if (price := price_of(item.data)) and price.currency}
    return currencies.pop() if len(currencies) == 1 else ""


def render_result(result: Any, about: Sequence[Item], phrases: Phrases) -> str:
    """Return the members of a result, with what they hold: an item that they name once is not named by its id, too."""
    names = {item.id: title_of(item.data) or item.id for item in about}
    return _render_value(result, names, currency_of(about), phrases, 0)


def _render_value(value: Any, names: Mapping[str, str], currency: str, phrases: Phrases, depth: int) -> str:
    match value:
        case Mapping():
            return _render_members(cast("Mapping[str, Any]", value), names, currency, phrases, depth)
        case list() | tuple():
            parts = (
                _render_value(element, names, currency, phrases, depth + 1) for element in cast("Sequence[Any]", value)
            )
            return "; ".join(islice((part for part in parts if part), MAX_LISTED)) if depth < MAX_DEPTH else ""
        case bool():
            return "✓" if value else "✗"
        case int() | float() if abs(value) <= MAX_EXACT_INTEGER:
            return phrases.number(value)
        case str():
            return names.get(value) or render_moment(value, phrases) or value[:MAX_TEXT]
        case _:
            return ""


def _render_members(
    value: Mapping[str, Any], names: Mapping[str, str], currency: str, phrases: Phrases, depth: int
) -> str:
    if depth >= MAX_DEPTH:
        return ""
    currency = next((code for key in _CURRENCIES if isinstance(code := value.get(key), str)), currency)
    texts: dict[str, str] = {}
    for key, inner in islice(value.items(), MAX_VALUES):
        is_money = bool(currency) and _is_amount(inner) and not _MONEY.isdisjoint(key_of(words_of(key))[-1:])
        text = (
            phrases.price_tag(inner, currency)
            if is_money
            else _render_value(inner, names, currency, phrases, depth + 1)
        )
        # A thing's name beside its id says it twice.
        if text and key not in _CURRENCIES and not key.startswith("@") and text not in texts.values():
            texts[key] = text
    # One of several is known by its name, and the rest is said of it.
    item_names = frozenset(names.values())
    first = next((key for key, text in texts.items() if text in item_names or key in TITLES), "") if depth else ""
    rest = ", ".join(f"{words_of(key)}: {text}" for key, text in texts.items() if key != first)
    return rest if not first else f"{texts[first]} ({rest})" if rest else texts[first]


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_EXACT_INTEGER


def render_moment(text: str, phrases: Phrases) -> str:
    """Return a day and an hour that a text is, by the clock of the place; empty for any other text."""
    if "T" not in text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return f"{phrases.day(moment.date())}, {moment:%H:%M}"
