"""The facts of items: read from their data, written in a language, and compared. Knows no question.

Pure functions. What an item says is data: it is cleaned and shortened, never followed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any, TypeAlias, cast

from portico.ask.languages.loader import load_language
from portico.ask.languages.phrasebook import ComparisonPhrases, Pair, Phrases
from portico.ask.opening_hours import render_hours
from portico.ask.prose import plain_text, shorten
from portico.ask.understanding.fields import label_of
from portico.catalog import FieldType, comparable, instant, seconds
from portico.items import TITLES
from portico.presentation import repeated_fields
from portico.search.index.text import UNSEARCHED_FIELDS

MAX_READ = 400  # characters of a text that is to be short
MAX_NAME = 120
MAX_TEXTS = 3  # under one name
MAX_FURTHER = 8  # values that are no facts
MAX_VALUES = 20  # of a list that are looked at
MAX_AMOUNT = 1e12  # beyond it, a number is no price and no length of time

Data: TypeAlias = Mapping[str, Any]
Lead: TypeAlias = tuple[int, str]  # which of several is ahead, and how that is said

# Where running texts stand.
TEXT_FIELDS = (
    "acceptedAnswer", "description", "abstract", "text", "articleBody", "reviewBody", "recipeInstructions", "step",
    "itemListElement", "review", "mainEntity", "suggestedAnswer", "disambiguatingDescription", "summary", "content",
    "body", "transcript", "caption", "hasPart",
)  # fmt: skip
_PRICES = (
    "price", "offers.price", "offers.lowPrice|offers.highPrice", "offers.offers.price",
    "offers.priceSpecification.price", "estimatedCost", "estimatedCost.value",
)  # fmt: skip
_CURRENCIES = (
    "priceCurrency", "offers.priceCurrency", "offers.offers.priceCurrency", "offers.priceSpecification.priceCurrency",
    "estimatedCost.currency", "currenciesAccepted",
)  # fmt: skip
_TIMES = ("totalTime", "duration", "timeRequired", "cookTime", "performTime", "prepTime")
_RATINGS = ("aggregateRating.ratingValue", "ratingValue", "reviewRating.ratingValue", "starRating.ratingValue")
_PLACES = (
    "location.name", "location.address.addressLocality", "location", "address.streetAddress",
    "address.addressLocality", "jobLocation.address.addressLocality",
)  # fmt: skip
_HOURS = "openingHours"
_MAKERS = ("author.name", "author", "creator.name", "creator", "byArtist.name", "director.name", "director")
# What facts and texts are read from, and what is for programs.
_READ_FIELDS = frozenset(
    {path.partition(".")[0] for path in (*_PRICES, *_CURRENCIES, *_TIMES, *_RATINGS, *_PLACES, *_MAKERS, *TEXT_FIELDS)}
    | {"startDate", "servesCuisine", "recipeCuisine", "identifier", "sku", "gtin", "isbn", "wordCount", "geo"}
    | {"dateModified", "dateCreated", "potentialAction", "mainEntityOfPage"}
)


@dataclass(frozen=True, slots=True)
class PriceRange:
    low: float
    high: float
    currency: str


@dataclass(frozen=True, slots=True)
class FactType:
    """One kind of fact: how it is read from an item, said of one, and said of several."""

    cue: re.Pattern[str]  # words of a question that ask for it
    read: Callable[[Data], Any]  # None if the item does not say
    say: Callable[[Phrases, Any], str]
    span: Callable[[Phrases, Sequence[Any]], str] | None = None  # over different values; empty if they do not compare
    apart: Callable[[Phrases, Sequence[Any]], Lead | None] | None = None  # which of several values is ahead
    is_aside: bool = False  # said only where it is asked for


def relevant_facts(question: str = "") -> list[FactType]:
    return [fact for fact in FACTS if not fact.is_aside or fact.cue.search(question)]


def other_values(data: Data, phrases: Phrases) -> Iterator[tuple[str, str]]:
    """Yield what few words or a number say under names that nothing else was read from."""
    known = _READ_FIELDS | UNSEARCHED_FIELDS | repeated_fields(data) | set(TITLES)
    fresh = [name for name in data if name not in known]
    hours = phrases.join([render_hours(text, phrases.language) for text in _read_hours(data) or ()])
    values = ((name, hours if name == _HOURS else _render_short(data[name], phrases)) for name in fresh)
    return islice(((label_of(name), text) for name, text in values if text), MAX_FURTHER)


def _render_short(value: Any, phrases: Phrases) -> str:
    """Return a value in few words: texts, numbers, and things by their names; empty for all else."""
    parts = [_part(element, phrases) for element in _as_list(value)]
    between = " · " if any("," in part for part in parts) else ", "
    text = between.join(parts) if all(parts) else ""
    return text if len(text) <= MAX_READ else ""


def _part(value: Any, phrases: Phrases) -> str:
    match value:
        case bool():
            return ""
        case int() | float() if abs(value) < MAX_AMOUNT:
            return phrases.number(value)
        case str() if len(value) <= MAX_NAME and not value.startswith(("http:", "https:", "/")):
            if len(value) >= len("2026-01-31") and instant(value) is not None:
                return phrases.day(date.fromisoformat(value[:10]))
            return plain_text(value) if seconds(value) is None else ""
        case Mapping():
            return text_at(cast("Data", value), "name")
        case _:
            return ""


def values_at(value: Any, *paths: str) -> Iterator[Any]:
    """Yield what the paths lead to, in their order; lists on the way are gone through."""
    for path in paths:
        head, _, rest = path.partition(".")
        for element in _as_list(value):
            inner = cast("Data", element).get(head) if isinstance(element, Mapping) else None
            yield from values_at(inner, rest) if rest else _as_list(inner)


def _as_list(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return cast("list[Any]", value)[:MAX_VALUES] if isinstance(value, list) else (value,)


def _amount(value: Any) -> float | None:
    number = comparable(FieldType.NUMBER, value) if not isinstance(value, str) or len(value) < 20 else None
    return float(number) if number is not None and 0 <= number < MAX_AMOUNT else None


def price_of(data: Data) -> PriceRange | None:
    """Return what something costs, over all its offers; None if it does not say so in numbers."""
    if data.get("isAccessibleForFree") is True:
        return PriceRange(0, 0, "")
    for path in _PRICES:
        amounts = [amount for value in values_at(data, *path.split("|")) if (amount := _amount(value)) is not None]
        if amounts:
            return PriceRange(min(amounts), max(amounts), text_at(data, *_CURRENCIES))
    return None


def _say_price(phrases: Phrases, price: PriceRange) -> str:
    if price.high == 0:
        return phrases.free
    if price.low < price.high:
        return phrases.prices(phrases.money(price.low, price.currency), phrases.money(price.high, price.currency))
    return phrases.costs(phrases.money(price.low, price.currency))


def _span_prices(phrases: Phrases, prices: Sequence[PriceRange]) -> str:
    # What is free has no currency to compare.
    currencies = {price.currency for price in prices if price.high > 0}
    low, high = min(price.low for price in prices), max(price.high for price in prices)
    if len(currencies) != 1 or low == high:
        return ""
    currency = currencies.pop()
    return phrases.prices(phrases.money(low, currency), phrases.money(high, currency))


def _cheaper(phrases: Phrases, prices: Sequence[PriceRange]) -> Lead | None:
    currencies = {price.currency for price in prices if price.high > 0}
    if len(currencies) != 1 or any(price.low < price.high for price in prices):
        return None
    currency, lows = currencies.pop(), [price.low for price in prices]
    return _lead(
        _comparison(phrases).price,
        lows,
        lambda less: phrases.money(round(less, 2), currency),
    )


def _comparison(phrases: Phrases) -> ComparisonPhrases:
    return load_language(phrases.language).comparison_phrases


def _lead(pair: Pair, values: Sequence[float], say: Callable[[float], str] = str) -> Lead | None:
    """Return which has least, if only one has, and by how much if there are two."""
    least, (of_two, of_several) = min(values), pair
    if values.count(least) > 1:
        return None
    return values.index(least), of_two.format(say(max(values) - least)) if len(values) == 2 else of_several


def _read_time(data: Data) -> float | None:
    texts = (value for value in values_at(data, *_TIMES) if isinstance(value, str) and len(value) < 40)
    return next((length for text in texts if (length := seconds(text)) and length < MAX_AMOUNT), None)


def _span_times(phrases: Phrases, lengths: Sequence[float]) -> str:
    low, high = phrases.duration(min(lengths)), phrases.duration(max(lengths))
    return phrases.times(low, high) if low != high else ""


def _read_rating(data: Data) -> tuple[float, float] | None:
    """Return the rating, and the best there could be: 5, unless the item says otherwise."""
    value = next((n for raw in values_at(data, *_RATINGS) if (n := _amount(raw)) is not None), None)
    best = next((n for raw in values_at(data, "aggregateRating.bestRating") if (n := _amount(raw))), 5.0)
    return (value, best) if value is not None else None


def _say_rating(phrases: Phrases, rating: tuple[float, float]) -> str:
    value, best = (phrases.number(number) for number in rating)
    return phrases.rated(value) if best == "5" else phrases.rated_of(value, best)


def _span_ratings(phrases: Phrases, ratings: Sequence[tuple[float, float]]) -> str:
    low, high = (phrases.number(rating[0]) for rating in (min(ratings), max(ratings)))
    return phrases.ratings(low, high) if low != high and len({best for _, best in ratings}) == 1 else ""


def _read_day(data: Data) -> date | None:
    texts = (value for value in values_at(data, "startDate") if isinstance(value, str) and len(value) < 40)
    return next((date.fromisoformat(text[:10]) for text in texts if instant(text) is not None), None)


def _span_days(phrases: Phrases, days: Sequence[date]) -> str:
    first, last = min(days), max(days)
    return phrases.dates(phrases.day(first), phrases.day(last)) if first != last else ""


def text_at(data: Data, *paths: str) -> str:
    """Return the first text that one of the paths leads to."""
    texts = (plain_text(value[:MAX_READ]) for value in values_at(data, *paths) if isinstance(value, str))
    return shorten(next((text for text in texts if text), ""), MAX_NAME)


def _read_hours(data: Data) -> tuple[str, ...] | None:
    return texts_at(data, _HOURS) or None


def texts_at(data: Data, *paths: str) -> tuple[str, ...]:
    """Return all short texts that the first of the paths leads to which leads to any."""
    for path in paths:
        cleaned = [plain_text(value[:MAX_READ]) for value in values_at(data, path) if isinstance(value, str)]
        texts = tuple(shorten(text, MAX_NAME) for text in dict.fromkeys(cleaned) if text)
        if texts:
            return texts[:MAX_TEXTS]
    return ()


def _cue(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


FACTS = (
    FactType(
        _cue(
            r"\bopen(?:s|ing)?\b|\bclos(?:e|es|ed|ing)\b|\bgeöffnet|\boffen\b|\böffne|\böffnungszeit|\bschließ"
            r"|\babr(?:e|en|ir)\b|\babiert|\bhorario|\bcierra|\bcerrad|\bouvr|\bouvert|\bhoraire|\bferm(?:e|ent|é)"
            r"|مفتوح|ساعات العمل|يفتح|يغلق|营业|开门|关门|開いて|閉ま|営業"
        ),
        _read_hours,
        lambda phrases, texts: phrases.open(phrases.join([render_hours(text, phrases.language) for text in texts])),
        is_aside=True,
    ),
    FactType(
        _cue(
            r"\bwhen\b|\bearlier\b|\bsooner\b|\bdate|\bfrüher\b|\bwann\b|\bdatum|\bcuándo|\bfecha|\bquand\b"
            r"|时候|时间|日期|いつ|日付"
        ),
        _read_day,
        lambda phrases, day: phrases.on(phrases.day(day)),
        _span_days,
        lambda phrases, days: _lead(_comparison(phrases).day, [day.toordinal() for day in days]),
    ),
    FactType(
        _cue(r"\bwhere\b|\bplace|\bwo\b|\bort\b|\bdónde|\blugar|\boù\b|\blieu|哪里|哪儿|地点|どこ|場所"),
        lambda data: text_at(data, *_PLACES) or None,
        lambda phrases, place: phrases.at(place),
    ),
    FactType(
        _cue(
            r"\btime\b|\blong(?:er)?\b|\bshorter\b|\bquick|\bfast(?:er)?\b|\bslower\b|\bminutes?\b|\bhours?\b"
            r"|\bkürzer|\blänger|\bzeit|\blange\b|\bschnell|\bminuten|\bstunde"
            r"|\btiempo|\brápid|\bminutos|\bhoras?\b|\btemps\b|\brapide|\bvite\b|\bheures?\b|多久|时间|分钟|小时|快|時間|分|早"
        ),
        _read_time,
        lambda phrases, length: phrases.takes(phrases.duration(length)),
        _span_times,
        lambda phrases, lengths: _lead(_comparison(phrases).time, lengths, phrases.duration),
    ),
    FactType(
        _cue(
            r"\bcheap|\bcosts?\b|\bprice|\bexpensive|\bmuch\b|\bfree\b|[$£€¥]|\bkost|\bpreis|\bbillig|\bgünstig|\bteuer"
            r"|\bprecio|\bbarat|\bcuesta|\bcaro|\bgratis|\bprix|\bcoût|\bpas cher|\bgratuit"
            r"|便宜|价格|多少钱|免费|安い|値段|価格|無料"
        ),
        price_of,
        _say_price,
        _span_prices,
        _cheaper,
    ),
    FactType(
        _cue(
            r"\brat(?:ed|ing)|\bbest\b|\bbetter\b|\bgood\b|\bbewert|\bbesser|\bbeste|\bvalora|\bmejor|\bnoté|\bmeilleur"
            r"|评分|最好|評価|評判|人気"
        ),
        _read_rating,
        _say_rating,
        _span_ratings,
        lambda phrases, ratings: _lead(_comparison(phrases).rating, [-value / best for value, best in ratings]),
    ),
    FactType(
        _cue(r"\bcuisine|\bküche|\bcocina|菜系|料理"),
        lambda data: texts_at(data, "servesCuisine", "recipeCuisine") or None,
        lambda phrases, kinds: phrases.cuisine(phrases.join(kinds)),
    ),
    FactType(
        _cue(r"\bwho\b|\bauthor|\bwrote|\bwer\b|\bautor|\bquién|\bqui\b|\bauteur|谁|作者|誰|著者"),
        lambda data: texts_at(data, *_MAKERS) or None,
        lambda phrases, names: phrases.by(phrases.names(names)),
    ),
)
