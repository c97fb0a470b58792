"""What an operation gave, as people read it: items by their names, and money with its currency. Reads data alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, cast

from portico.ask.facts import price_of
from portico.ask.languages.localization import Phrases
from portico.ask.understanding.fields import key_of, names_of_id, spoken
from portico.catalog import Collection
from portico.items import TITLES, Item, title_of

MAX_VALUES = 200  # of a result that are looked at
MAX_DEPTH = 4
MAX_IDS = 20  # items of a result that are looked up
MAX_LISTED = 10
MAX_TEXT = 200  # characters of a value
MAX_NUMBER = 2**53  # beyond it, floats are not exact
SUMS = ("price", "total", "subtotal", "cost", "amount", "sum", "fee", "deposit", "balance", "charge")
_MONEY = frozenset(stem for word in SUMS for stem in key_of(word))
_CURRENCIES = ("priceCurrency", "currency")


def ids_in(result: Any, collections: Iterable[Collection]) -> dict[str, list[str]]:
    """What may be ids of items, by collection: under a name for one of its items, or beginning with its name."""
    known = list(collections)
    found: dict[str, list[str]] = {}
    for name, text in islice(_texts(result, "", 0), MAX_VALUES):
        for each in known:
            if text.startswith(f"{each.name}/") or name in names_of_id(each.one):
                found.setdefault(each.name, []).append(text)
    return {name: list(dict.fromkeys(ids))[:MAX_IDS] for name, ids in found.items()}


def _texts(value: Any, name: str, depth: int) -> Iterator[tuple[str, str]]:
    match value:
        case str() if value and len(value) <= MAX_TEXT:
            yield name, value
        case Mapping() if depth < MAX_DEPTH:
            for key, inner in cast("Mapping[str, Any]", value).items():
                yield from _texts(inner, key, depth + 1)
        case list() | tuple() if depth < MAX_DEPTH:
            for each in cast("Sequence[Any]", value):
                yield from _texts(each, name, depth + 1)
        case _:
            pass


def currency_of(items: Iterable[Item]) -> str:
    """The currency that all the items have that say one; empty if they differ."""
    said = {price.currency for item in items if (price := price_of(item.data)) and price.currency}
    return said.pop() if len(said) == 1 else ""


def in_words(result: Any, about: Sequence[Item], phrases: Phrases) -> str:
    """The members of a result, with what they hold: an item that they name once is not named by its id, too."""
    names = {item.id: title_of(item.data) or item.id for item in about}
    return _said(result, names, currency_of(about), phrases, 0)


def _said(value: Any, names: Mapping[str, str], currency: str, phrases: Phrases, depth: int) -> str:
    match value:
        case Mapping():
            return _members(cast("Mapping[str, Any]", value), names, currency, phrases, depth)
        case list() | tuple():
            said = (_said(each, names, currency, phrases, depth + 1) for each in cast("Sequence[Any]", value))
            return "; ".join(islice((each for each in said if each), MAX_LISTED)) if depth < MAX_DEPTH else ""
        case bool():
            return "✓" if value else "✗"
        case int() | float() if abs(value) <= MAX_NUMBER:
            return phrases.number(value)
        case str():
            return names.get(value) or moment_in(value, phrases) or value[:MAX_TEXT]
        case _:
            return ""


def _members(value: Mapping[str, Any], names: Mapping[str, str], currency: str, phrases: Phrases, depth: int) -> str:
    if depth >= MAX_DEPTH:
        return ""
    currency = next((each for key in _CURRENCIES if isinstance(each := value.get(key), str)), currency)
    told: dict[str, str] = {}
    for key, inner in islice(value.items(), MAX_VALUES):
        is_money = bool(currency) and _is_amount(inner) and _is_sum(key)
        text = phrases.price_tag(inner, currency) if is_money else _said(inner, names, currency, phrases, depth + 1)
        # A thing's name beside its id says it twice.
        if text and key not in _CURRENCIES and not key.startswith("@") and text not in told.values():
            told[key] = text
    # One of several is known by its name, and the rest is said of it.
    called = frozenset(names.values())
    first = next((key for key, text in told.items() if text in called or key in TITLES), "") if depth else ""
    rest = ", ".join(f"{spoken(key)}: {text}" for key, text in told.items() if key != first)
    return rest if not first else f"{told[first]} ({rest})" if rest else told[first]


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def _is_sum(name: str) -> bool:
    """Whether a member holds money, by its name: `unit_price`, `totalCost`."""
    return not _MONEY.isdisjoint(key_of(spoken(name))[-1:])


def moment_in(text: str, phrases: Phrases) -> str:
    """A day and an hour that a text is, by the clock of the place; empty for any other text."""
    if "T" not in text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return f"{phrases.day(moment.date())}, {moment:%H:%M}"
