"""Summaries and answers out of the items themselves: every sentence says what an item says, and names it.

Pure functions without a language model. What an item says is data: it is cleaned and quoted, never followed.
"""

import html
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any, TypeAlias, cast

from portico.ask.clues import is_factual
from portico.ask.contrast import Pair
from portico.ask.fields import called
from portico.ask.hours import hours
from portico.ask.kinds import ASIDE, ASKING, WHAT
from portico.ask.languages import CONTRASTS
from portico.ask.phrasebook import Phrases, capital
from portico.ask.sayings import folded
from portico.catalog import FieldType, comparable, instant, seconds, singular
from portico.index.text import SILENT, STEMMERS, Term, fold, stemmer, wanted, words
from portico.items import TITLES, Item, unseen

MAX_SENTENCE = 400  # characters; a longer one is cut at a word
MAX_NAME = 120
MAX_SAID = 4  # sentences of a summary or an answer
MAX_FACTS = 4  # of the best match
MAX_NAMED = 3  # further matches
MAX_TOLD = 1200  # characters of the texts of an item that is spoken of alone
MAX_FURTHER = 8  # of its other values
MAX_TERMS = 64  # words of a question
MAX_ITEMS = 10  # whose texts are read for an answer
MAX_CANDIDATES = 200  # sentences of an item
MAX_CHARACTERS = 20_000  # of an item
MAX_DEPTH = 8  # of objects and lists within each other
MAX_VALUES = 20  # of a list that are looked at
MAX_AMOUNT = 1e12  # beyond it, a number is no price and no length of time
ASKED = 0.7  # of a question's words that an answered question has to share
HALF = 0.5  # of them, for one that is found to be answered
WORTH = 0.6  # of the best sentence's score that another one needs
ALIKE = 0.8  # of the words of two sentences that make them one
TITLE_SHARE = 0.4  # of a word's weight for a sentence that has it only in its item's name
ABOUT_SHARE = 0.75  # of it, if the sentence opens an item that is named after what is asked for
RANK_LOSS = 0.08  # of the weight of each further item
LEAD = 0.1  # more for the first sentence of an item, less for each that follows

Data: TypeAlias = Mapping[str, Any]
Stems: TypeAlias = frozenset[str]
Lead: TypeAlias = tuple[int, str]  # which of several is ahead, and how that is said

_UNSEEN = unseen(but=r"\s", also=r"\ufffc\ufffd")  # also what stands for something that is no text
# What is not closed is hidden to its end, as in a browser; it also keeps the time linear.
_HIDDEN = re.compile(r"(?s:<!--(?:.*?-->|.*)|<(script|style)\b(?:.*?</\1[^<>]*>?|.*))", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:p|div|br|li|ul|ol|h[1-6]|tr|td|th|table|section|article|blockquote|pre|hr|dt|dd)\b[^<>]*>", re.IGNORECASE
)
_TAG = re.compile(r"<[A-Za-z/!?][^<>]*>")
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")

_BLANKS = re.compile(r"[^\S\n]+")
_BLOCKS = re.compile(r"\n[ \n]*\n|(?:\A|\n) ?(?:[-*•·–◦‣▪]|\d{1,3}[.)]|#{1,6}) | [•◦‣▪] ")
_END = re.compile(r"(?P<wide>[。！？｡]+[」』）”’]*)|(?P<mark>\.|[.!?…]{1,9})[\"'”’»)\]]{0,3}(?=\s)")
_OPENING = "\"'“‘«„([¿¡"
# A capital that stands alone, or letters each with a stop: J, e.g, z. B.
_INITIALS = re.compile(r"(?<![^\W_])(?:[^\W\d_a-zäöü]|(?:[^\W\d_]\. ?)+[^\W\d_])\Z")
_LETTER = re.compile(r"[^\W\d_]\.")
_DAY = re.compile(r"\d{1,2}")
_MONTH = re.compile(
    r"januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember", re.IGNORECASE
)
# Words that a full stop only shortens: always, and before a number.
_ABBREVIATIONS = frozenset({
    "dr", "mr", "mrs", "ms", "prof", "st", "mt", "rev", "sr", "sra", "srta", "jr", "vs", "approx", "cf", "ca", "bzw",
    "vgl", "evtl", "ggf", "inkl", "zzgl", "mme", "mlle", "p.ej",
})  # fmt: skip
_NUMBERED = frozenset({"no", "nos", "nr", "fig", "vol", "núm", "pág", "art", "tel", "p", "pp"})
_HALF_DAYS = frozenset({"a.m", "p.m"})

_SPOKEN = (
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
_SAID = frozenset(
    {path.partition(".")[0] for path in (*_PRICES, *_CURRENCIES, *_TIMES, *_RATINGS, *_PLACES, *_MAKERS, *_SPOKEN)}
    | {"startDate", "servesCuisine", "recipeCuisine", "identifier", "sku", "gtin", "isbn", "wordCount", "geo"}
    | {"dateModified", "dateCreated", "potentialAction", "mainEntityOfPage"}
)
_WIDER = ("Event", "Article", "Restaurant", "Store", "Organization", "Course")
_TYPES = {
    "BlogPosting": "Article", "Report": "Article", "Festival": "Event", "BarOrPub": "Restaurant",
    "CafeOrCoffeeShop": "Restaurant", "Bakery": "Restaurant", "FoodEstablishment": "Restaurant", "Store": "Place",
    "City": "Place", "TouristAttraction": "Place", "LocalBusiness": "Place", "ProductGroup": "Product",
    "FAQPage": "Question", "LodgingBusiness": "Hotel", "Audiobook": "Book",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    cites: tuple[str, ...]  # refs of the items it relies on


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that somebody gave before, and the item that holds it."""

    item: Item
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Price:
    low: float
    high: float
    currency: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One kind of fact: how it is read from an item, said of one, and said of several."""

    asked: re.Pattern[str]  # words of a question that ask for it
    read: Callable[[Data], Any]  # None if the item does not say
    say: Callable[[Phrases, Any], str]
    span: Callable[[Phrases, Sequence[Any]], str] | None = None  # over different values; empty if they do not compare
    apart: Callable[[Phrases, Sequence[Any]], Lead | None] | None = None  # which of several values is ahead
    is_aside: bool = False  # said only where it is asked for


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence of an item that may answer, with the stems of its words."""

    text: str
    item: Item
    rank: int
    place: int
    stems: Stems
    title: Stems


def summarize(
    question: str,
    items: Sequence[Item],
    phrases: Phrases,
    total: int | None = None,
    *,
    is_counted: bool = True,
    kind: str = "",
) -> tuple[Sentence, ...]:
    """How many fit, if that is known; the best with its facts, the next by name, and the spans over all shown.

    The kind is that of all that fit, where these are more than the items.
    """
    if not items:
        return (Sentence(phrases.nothing, ()),)
    known = answered(question, items, phrases) if is_factual(question) else None
    if known:
        others = [item for item in items if item.ref != known.item.ref][:MAX_NAMED]
        return (*known.sentences, *_also(others, phrases))
    count = max(total or 0, len(items)) if is_counted else 0
    facts = _facts(question, items[0], phrases)
    replies = _replies(question, items[0], phrases)
    if count == 1:
        return (Sentence(phrases.only(phrases.name(_name(items[0])), facts), (items[0].ref,)), *replies)
    fit = phrases.fit(count, phrases.noun(kind or kind_of(items, phrases), count))
    said = [
        *([Sentence(fit, tuple(item.ref for item in items))] if is_counted else ()),
        Sentence(phrases.best(phrases.name(_name(items[0])), facts), (items[0].ref,)),
    ]
    return (*said, *replies, *_also(items[1 : 1 + MAX_NAMED], phrases), *_spans(items, phrases))


def _also(others: Sequence[Item], phrases: Phrases) -> Iterator[Sentence]:
    if others:
        names = phrases.names([_name(item) for item in others])
        yield Sentence(phrases.also(names), tuple(item.ref for item in others))


def answer(
    question: str,
    items: Sequence[Item],
    phrases: Phrases,
    total: int | None = None,
    *,
    is_counted: bool = True,
    kind: str = "",
) -> tuple[Sentence, ...]:
    """The sentences of the items that answer the question best, word for word; a summary if none speaks of it."""
    known = answered(question, items, phrases)
    if known:
        return known.sentences
    languages = _languages(items, phrases)
    terms = _terms(question, languages)
    fact = _asked_of_one(question, items, phrases)
    speaking = [item for item in items[:MAX_ITEMS] if not fact or item.ref in fact[0].cites]
    candidates = [each for rank, item in enumerate(speaking) for each in _candidates(item, rank, languages)]
    said = (*fact, *_best(terms, candidates)[: MAX_SAID - len(fact)])
    return said or summarize(question, items, phrases, total, is_counted=is_counted, kind=kind)


def _asked_of_one(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """The facts that a question asks of the one item that it names: "how long does the fish pie take"."""
    said = f" {_plainly(question)} "
    named = [(item, name) for item in items[:MAX_ITEMS] if (name := f" {_plainly(_name(item))} ") in said]
    longest = max((len(name) for _, name in named), default=0)
    if not is_factual(question) or [len(name) for _, name in named].count(longest) != 1:
        return ()
    item, name = next(pair for pair in named if len(pair[1]) == longest)
    asked = said.replace(name, " ")
    facts = [(fact, fact.read(item.data)) for fact in _FACTS if fact.asked.search(asked)]
    told = [fact.say(phrases, value) for fact, value in facts if value is not None]
    contrast = CONTRASTS[phrases.language]
    told_of = contrast.together([contrast.side(phrases.name(_name(item)), told)])
    return (Sentence(told_of, (item.ref,)),) if told else ()


def _plainly(text: str) -> str:
    return " ".join(words(text)).lower()


def compare(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """What sets items apart, by what was asked for if that can be said, and the facts they share or else have.

    Nothing, if none of them has any.
    """
    known = [(fact, [fact.read(item.data) for item in items]) for fact in _worth_saying(question)]
    shared = [(fact, values) for fact, values in known if all(value is not None for value in values)]
    shared.sort(key=lambda pair: not pair[0].asked.search(question))
    asked = [pair for pair in shared if pair[0].asked.search(question)] or shared
    leads = [lead for fact, values in asked if fact.apart and (lead := fact.apart(phrases, values))]
    ahead = [[said for place, said in leads if place == at] for at in range(len(items))]
    common = [[fact.say(phrases, values[at]) for fact, values in shared[:MAX_FACTS]] for at in range(len(items))]
    facts = [said or _facts(question, item, phrases) for item, said in zip(items, common, strict=True)]
    if not any(facts):
        return ()
    contrast, refs = CONTRASTS[phrases.language], tuple(item.ref for item in items)
    names = [phrases.name(_name(item)) for item in items]
    apart = [contrast.ahead(name, said) for name, said in zip(names, ahead, strict=True) if said]
    sides = [contrast.side(name, said) for name, said in zip(names, facts, strict=True)]
    return tuple(Sentence(contrast.together(parts), refs) for parts in (apart, sides) if parts)


def describe(item: Item, phrases: Phrases) -> tuple[Sentence, ...]:
    """What an item says of itself: its facts, its texts up to a length, and what else it holds in few words."""
    facts, told, more = _account(item, phrases)
    head = [_headed(item, facts, phrases)] if facts or not told else []
    return tuple(Sentence(text, (item.ref,)) for text in (*head, *_within(told, MAX_TOLD), *more))


def passage(question: str, item: Item, phrases: Phrases, most: int) -> str:
    """What an item says of itself in so many characters: its name and facts, and of its texts what matters most.

    All that an answer quotes or says of the item stands in it, as far as there is room.
    """
    facts, told, more = _account(item, phrases)
    said = [_headed(item, facts, phrases), *told, *more]
    if sum(map(len, said)) + len(said) > most:
        languages = _languages([item], phrases)
        terms = _terms(question, languages)
        shared = [sum(_shares(term, _stems(text, languages)) for term in terms) for text in said]
        said = _fitting(said, sorted(range(len(said)), key=lambda at: (at > 0, -shared[at], at)), most)
    return shortened(" ".join(said), most)


def _fitting(said: Sequence[str], order: Sequence[int], most: int) -> list[str]:
    """The first in this order that have room, as they follow each other; the very first in any case."""
    kept: set[int] = set()
    for at in order:
        if not kept or len(said[at]) < most:
            kept.add(at)
            most -= len(said[at]) + 1
    return [said[at] for at in sorted(kept)]


def _account(item: Item, phrases: Phrases) -> tuple[list[str], list[str], list[str]]:
    """The facts of an item, the sentences of its texts, and one of what else it holds if it holds more."""
    known = [fact for fact in _worth_saying() if fact.read(item.data) is not None]
    facts = [fact.say(phrases, fact.read(item.data)) for fact in known]
    told = _sentences_of(_spoken({name: item.data[name] for name in _SPOKEN if name in item.data}, 0))
    more = [phrases.limits.value.format(phrases.word(label), text) for label, text in _further(item.data, phrases)]
    return facts, told, [capital(CONTRASTS[phrases.language].together(more))] if more else []


def _headed(item: Item, facts: Sequence[str], phrases: Phrases) -> str:
    contrast, name = CONTRASTS[phrases.language], phrases.name(_name(item))
    return contrast.together([contrast.side(name, facts)]) if facts or name[-1:] not in "?!？！" else name


def recount(question: str, passages: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """What files say that came with a question, if none of its words but those that speak of files is in them."""
    languages = _languages(passages, phrases)
    terms = _terms(_OF_FILES.sub(" ", question), languages)
    told = [(text, item.ref) for item in passages for text in _sentences_of(_spoken(item.data, 0))]
    if any(_shares(term, _stems(text, languages)) for text, _ in told for term in terms):
        return ()
    kept = list(_within([text for text, _ in told], MAX_TOLD))
    return tuple(Sentence(text, (id,)) for text, id in told[: len(kept)])


def speaks_of_files(question: str) -> bool:
    return _FILES.search(question) is not None


_FILES = re.compile(
    r"\b(?:files?|documents?|attach\w*|upload\w*|pdfs?|datei(?:en)?|dokumente?s?|anhang\w*|anhäng\w*"
    r"|archivos?|documentos?|adjunt\w+|fichiers?|pi[eè]ces?\s+jointes?)\b|文件|文档|附件|ファイル|文書|添付|ملف|مستند|مرفق",
    re.IGNORECASE,
)
_OF_FILES = re.compile(
    rf"{_FILES.pattern}|\b(?:say|says|said|read|tell|contains?|summar\w+|sum\s+up|main|points?|content\w*|explain|mean"
    r"|inhalt\w*|steht|sagt|fasse?n?|zusammen\w*|resum\w+|résum\w+|dice|contiene|dit|contient)\b|总结|概括|要約|まとめ|لخص",
    re.IGNORECASE,
)


def _within(sentences: Sequence[str], most: int) -> Iterator[str]:
    """The first sentences that have room; the very first in any case."""
    for at, text in enumerate(sentences):
        most -= len(text)
        if at and most < 0:
            return
        yield text


def _further(data: Data, phrases: Phrases) -> Iterator[tuple[str, str]]:
    """What few words or a number say under names that nothing else was read from."""
    fresh = [name for name in data if name not in _SAID and name not in SILENT and name not in TITLES]
    found = ((called(name), text) for name in fresh if (text := _told_shortly(name, data, phrases)))
    return islice(found, MAX_FURTHER)


def _told_shortly(name: str, data: Data, phrases: Phrases) -> str:
    if name != _HOURS:
        return _shortly(data[name], phrases)
    return phrases.join([hours(each, phrases.language) for each in _hours(data) or ()])


def _shortly(value: Any, phrases: Phrases) -> str:
    """A value in few words: texts, numbers, and things by their names; empty for all else."""
    parts = [_part(each, phrases) for each in _listed(value)]
    between = " · " if any("," in part for part in parts) else ", "
    text = between.join(parts) if all(parts) else ""
    return text if len(text) <= MAX_SENTENCE else ""


def _part(value: Any, phrases: Phrases) -> str:
    match value:
        case bool():
            return ""
        case int() | float() if abs(value) < MAX_AMOUNT:
            return phrases.number(value)
        case str() if len(value) <= MAX_NAME and not value.startswith(("http:", "https:", "/")):
            return _dated(value, phrases) or (plain(value) if seconds(value) is None else "")
        case Mapping():
            return _text(cast("Data", value), "name")
        case _:
            return ""


def _dated(text: str, phrases: Phrases) -> str:
    is_day = len(text) >= len("2026-01-31") and instant(text) is not None
    return phrases.day(date.fromisoformat(text[:10])) if is_day else ""


def texts_at(data: Data, path: str) -> tuple[str, ...]:
    """The short texts that a path leads to."""
    return _texts(data, path) or ()


def plain(text: str) -> str:
    """A text without markup, control, zero-width and bidi characters, on one line."""
    return " ".join(_unmarked(text).split())


def _unmarked(text: str) -> str:
    """A text without tags and invisible characters; where a block ended there is an empty line."""
    # Invisible characters go first and last: they could hide a tag, and an entity could hide one of them.
    bare = html.unescape(_without_tags(_UNSEEN.sub("", text)))
    return _UNSEEN.sub("", _without_tags(bare))


def _without_tags(text: str) -> str:
    if "<" not in text:
        return text
    text = _BLOCK.sub("\n\n", _HIDDEN.sub(" ", text))
    # A tag may hide another: <scr<b>ipt>. Whoever nests more of them than this has no tag to lose.
    for _ in range(3):
        text, found = _TAG.subn("", text)
        if not found:
            return text
    return _TAG_START.sub(" ", text)


def shortened(text: str, most: int) -> str:
    """The beginning of a text, up to the end of a word where there is one."""
    if len(text) <= most:
        return text
    cut = text.rfind(" ", 0, most)
    return f"{text[: cut if cut > most // 2 else most - 1]}…"


def _name(item: Item) -> str:
    return (_text(item.data, *TITLES) or shortened(plain(item.id), MAX_NAME)).rstrip(".。")


def kind_of(items: Sequence[Item], phrases: Phrases) -> str:
    """The type that the items have in common, or that their collection is named after, if there is a word for it."""
    kinds = {_type(item.data) for item in items}
    named = {singular(item.collection.lower()).capitalize() for item in items}
    common = [*(kinds if len(kinds) == 1 else ()), *(named if len(named) == 1 else ())]
    return next((kind for kind in common if kind in phrases.nouns), "Thing")


def _type(data: Data) -> str:
    """The schema.org type, or a wider one that has a name in every language."""
    said = next(_values(data, "@type"), "")
    kind = said.rsplit("/", 1)[-1].rsplit(":", 1)[-1] if isinstance(said, str) else ""
    wider = next((wide for wide in _WIDER if kind.endswith(wide)), kind)
    return _TYPES.get(wider, wider)


def _facts(question: str, item: Item, phrases: Phrases) -> list[str]:
    """The facts of an item, those first that the question asks for."""
    known = [(fact, value) for fact in _worth_saying(question) if (value := fact.read(item.data)) is not None]
    known.sort(key=lambda pair: not pair[0].asked.search(question))
    return [fact.say(phrases, value) for fact, value in known[:MAX_FACTS]]


def _worth_saying(question: str = "") -> list[Fact]:
    return [fact for fact in _FACTS if not fact.is_aside or fact.asked.search(question)]


def _spans(items: Sequence[Item], phrases: Phrases) -> Iterator[Sentence]:
    """What most of the items say and say differently, from the least to the most."""
    parts: list[str] = []
    cited: dict[str, None] = {}
    for fact in _FACTS:
        known = {item.ref: value for item in items if fact.span and (value := fact.read(item.data)) is not None}
        said = fact.span(phrases, list(known.values())) if fact.span and len(known) > len(items) // 2 else ""
        if said:
            parts.append(said)
            cited.update(dict.fromkeys(known))
    if parts:
        yield Sentence(phrases.selection(parts), tuple(cited))


def _values(value: Any, *paths: str) -> Iterator[Any]:
    """What the paths lead to, in their order; lists on the way are gone through."""
    for path in paths:
        head, _, rest = path.partition(".")
        for each in _listed(value):
            inner = cast("Data", each).get(head) if isinstance(each, Mapping) else None
            yield from _values(inner, rest) if rest else _listed(inner)


def _listed(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return cast("list[Any]", value)[:MAX_VALUES] if isinstance(value, list) else (value,)


def _amount(value: Any) -> float | None:
    number = comparable(FieldType.NUMBER, value) if not isinstance(value, str) or len(value) < 20 else None
    return float(number) if number is not None and 0 <= number < MAX_AMOUNT else None


def price_of(data: Data) -> Price | None:
    """What something costs, over all its offers; None if it does not say so in numbers."""
    if data.get("isAccessibleForFree") is True:
        return Price(0, 0, "")
    for path in _PRICES:
        amounts = [amount for value in _values(data, *path.split("|")) if (amount := _amount(value)) is not None]
        if amounts:
            return Price(min(amounts), max(amounts), _text(data, *_CURRENCIES))
    return None


def _say_price(phrases: Phrases, price: Price) -> str:
    if price.high == 0:
        return phrases.free
    if price.low < price.high:
        return phrases.prices(phrases.money(price.low, price.currency), phrases.money(price.high, price.currency))
    return phrases.costs(phrases.money(price.low, price.currency))


def _span_prices(phrases: Phrases, prices: Sequence[Price]) -> str:
    # What is free has no currency to compare.
    currencies = {price.currency for price in prices if price.high > 0}
    low, high = min(price.low for price in prices), max(price.high for price in prices)
    if len(currencies) != 1 or low == high:
        return ""
    currency = currencies.pop()
    return phrases.prices(phrases.money(low, currency), phrases.money(high, currency))


def _cheaper(phrases: Phrases, prices: Sequence[Price]) -> Lead | None:
    currencies = {price.currency for price in prices if price.high > 0}
    if len(currencies) != 1 or any(price.low < price.high for price in prices):
        return None
    currency, lows = currencies.pop(), [price.low for price in prices]
    return _lead(CONTRASTS[phrases.language].price, lows, lambda less: phrases.money(round(less, 2), currency))


def _lead(pair: Pair, values: Sequence[float], say: Callable[[float], str] = str) -> Lead | None:
    """Which has least, if only one has, and by how much if there are two."""
    least, (of_two, of_several) = min(values), pair
    if values.count(least) > 1:
        return None
    return values.index(least), of_two.format(say(max(values) - least)) if len(values) == 2 else of_several


def _time(data: Data) -> float | None:
    said = (value for value in _values(data, *_TIMES) if isinstance(value, str) and len(value) < 40)
    return next((length for text in said if (length := seconds(text)) and length < MAX_AMOUNT), None)


def _say_time(phrases: Phrases, length: float) -> str:
    return phrases.takes(phrases.duration(length))


def _span_times(phrases: Phrases, lengths: Sequence[float]) -> str:
    low, high = phrases.duration(min(lengths)), phrases.duration(max(lengths))
    return phrases.times(low, high) if low != high else ""


def _shorter(phrases: Phrases, lengths: Sequence[float]) -> Lead | None:
    return _lead(CONTRASTS[phrases.language].time, lengths, phrases.duration)


def _rating(data: Data) -> tuple[float, float] | None:
    """The rating, and the best there could be: 5, unless the item says otherwise."""
    value = next((n for each in _values(data, *_RATINGS) if (n := _amount(each)) is not None), None)
    best = next((n for each in _values(data, "aggregateRating.bestRating") if (n := _amount(each))), 5.0)
    return (value, best) if value is not None else None


def _say_rating(phrases: Phrases, rating: tuple[float, float]) -> str:
    value, best = (phrases.number(each) for each in rating)
    return phrases.rated(value) if best == "5" else phrases.rated_of(value, best)


def _span_ratings(phrases: Phrases, ratings: Sequence[tuple[float, float]]) -> str:
    low, high = (phrases.number(each[0]) for each in (min(ratings), max(ratings)))
    return phrases.ratings(low, high) if low != high and len({best for _, best in ratings}) == 1 else ""


def _better(phrases: Phrases, ratings: Sequence[tuple[float, float]]) -> Lead | None:
    return _lead(CONTRASTS[phrases.language].rating, [-value / best for value, best in ratings])


def _day(data: Data) -> date | None:
    said = (value for value in _values(data, "startDate") if isinstance(value, str) and len(value) < 40)
    return next((date.fromisoformat(text[:10]) for text in said if instant(text) is not None), None)


def _say_day(phrases: Phrases, day: date) -> str:
    return phrases.on(phrases.day(day))


def _span_days(phrases: Phrases, days: Sequence[date]) -> str:
    first, last = min(days), max(days)
    return phrases.dates(phrases.day(first), phrases.day(last)) if first != last else ""


def _sooner(phrases: Phrases, days: Sequence[date]) -> Lead | None:
    return _lead(CONTRASTS[phrases.language].day, [day.toordinal() for day in days])


def _text(data: Data, *paths: str) -> str:
    """The first text that one of the paths leads to."""
    said = (plain(value[:MAX_SENTENCE]) for value in _values(data, *paths) if isinstance(value, str))
    return shortened(next((text for text in said if text), ""), MAX_NAME)


def _place(data: Data) -> str | None:
    return _text(data, *_PLACES) or None


def _maker(data: Data) -> tuple[str, ...] | None:
    return _texts(data, *_MAKERS)


def _cuisine(data: Data) -> tuple[str, ...] | None:
    return _texts(data, "servesCuisine", "recipeCuisine")


def _hours(data: Data) -> tuple[str, ...] | None:
    return _texts(data, _HOURS)


def _say_hours(phrases: Phrases, said: Sequence[str]) -> str:
    return phrases.open(phrases.join([hours(text, phrases.language) for text in said]))


def _texts(data: Data, *paths: str) -> tuple[str, ...] | None:
    """All short texts that the first of the paths leads to which leads to any."""
    for path in paths:
        said = [plain(value[:MAX_SENTENCE]) for value in _values(data, path) if isinstance(value, str)]
        found = tuple(shortened(text, MAX_NAME) for text in dict.fromkeys(said) if text)
        if found:
            return found[:MAX_NAMED]
    return None


def _languages(items: Sequence[Item], phrases: Phrases) -> tuple[str, ...]:
    """Those that the question and the items may be written in."""
    said = [item.data.get("inLanguage") for item in items[:MAX_ITEMS]]
    named = [language[:2].lower() for language in said if isinstance(language, str)]
    return tuple(dict.fromkeys([phrases.language, *(each for each in named if each in STEMMERS), "en"]))[:4]


def _stems(text: str, languages: tuple[str, ...]) -> Stems:
    found = set(words(text))
    return frozenset(stemmer(language)(word) for language in languages for word in found)


def _shares(term: Term, stems: Stems) -> bool:
    return not stems.isdisjoint(term.stems)


def answered(question: str, items: Sequence[Item], phrases: Phrases) -> Reply | None:
    """The accepted answer to a question that somebody asked before, if one of the items holds it."""
    languages = _languages(items, phrases)
    terms = _terms(question, languages)
    best, closest = None, 0.0
    for item in items[:MAX_ITEMS]:
        for asked in _questions(item.data):
            name = _text(asked, "name", "text")
            nearness = _nearness(terms, name, languages) if _asks_alike(question, name) else 0.0
            if nearness > closest and (said := _accepted(asked, item)):
                best, closest = Reply(item, said), nearness
    return best


def _terms(question: str, languages: tuple[str, ...]) -> Sequence[Term]:
    return wanted(question, languages).terms[:MAX_TERMS]


def _replies(question: str, item: Item, phrases: Phrases) -> tuple[Sentence, ...]:
    """What an item answers, if it is a question itself that has half of the words of the one that is asked."""
    languages = _languages([item], phrases)
    terms, name = _terms(question, languages), _text(item.data, *TITLES)
    shared = sum(_shares(term, _stems(name, languages)) for term in terms)
    # A mere yes would be one to what was asked.
    tells = _first_word(name) in ASIDE | WHAT
    is_near = shared > 0 and shared >= HALF * len(terms) and tells and _asks_alike(question, name)
    return _accepted(item.data, item) if is_near and "acceptedAnswer" in item.data else ()


def _asks_alike(question: str, other: str) -> bool:
    """Whether two questions may want the same: who asks where something is does not want to know when it opens."""
    mine, its = _first_word(question), _first_word(other)
    return mine == its or mine not in ASIDE or its not in _ASKING


_ASKING = folded(ASKING)


def _first_word(text: str) -> str:
    return fold(next(iter(words(text)), ""))


def _accepted(asked: Data, item: Item) -> tuple[Sentence, ...]:
    said = _sentences_of(_spoken(asked.get("acceptedAnswer"), 0))
    return tuple(Sentence(text, (item.ref,)) for text in said[:MAX_SAID])


def _questions(data: Data) -> Iterator[Data]:
    for each in (data, *_values(data, "mainEntity")):
        if isinstance(each, Mapping) and "acceptedAnswer" in each:
            yield cast("Data", each)


def _nearness(terms: Sequence[Term], asked: str, languages: tuple[str, ...]) -> float:
    """How much two questions have in common, from 0 to 2; 0 when it is too little."""
    stems = _stems(asked, languages)
    shared = sum(_shares(term, stems) for term in terms)
    if not shared or shared < ASKED * len(terms):
        return 0.0
    return shared / len(terms) + shared / len(wanted(asked, languages).terms)


def _candidates(item: Item, rank: int, languages: tuple[str, ...]) -> Iterator[Candidate]:
    title = _stems(_name(item), languages)
    for place, text in enumerate(_sentences_of(_spoken(item.data, 0))):
        yield Candidate(text, item, rank, place, _stems(text, languages), title)


def _spoken(value: Any, depth: int) -> Iterator[str]:
    """The running texts of an item. One that has none under the usual names speaks through all its fields."""
    match value:
        case str():
            yield value
        case list() if depth < MAX_DEPTH:
            for each in cast("list[Any]", value):
                yield from _spoken(each, depth + 1)
        case Mapping() if depth < MAX_DEPTH:
            data = cast("Data", value)
            named = [name for name in _SPOKEN if name in data]
            for name in named or [name for name in data if name not in SILENT and name not in TITLES]:
                yield from _spoken(data[name], depth + 1)
        case _:
            pass


def _sentences_of(texts: Iterator[str]) -> list[str]:
    """The sentences of an item's texts as far as they are read, each once. What asks does not answer."""
    left, found = MAX_CHARACTERS, dict[str, None]()
    for text in texts:
        for sentence in _split(_unmarked(text[:left])):
            if not sentence.endswith(("?", "？")) and len(words(sentence)) > 1:
                found[shortened(sentence, MAX_SENTENCE)] = None
        left -= max(len(text), 1)
        if left <= 0 or len(found) >= MAX_CANDIDATES:
            break
    return list(islice(found, MAX_CANDIDATES))


def _split(text: str) -> Iterator[str]:
    """The sentences of a text, each on one line. An empty line or a bullet ends one, too."""
    for block in _BLOCKS.split(_BLANKS.sub(" ", text)):
        line = " ".join(block.split())
        start = 0
        for end in _ends(line):
            yield line[start:end].strip()
            start = end
        if start < len(line):
            yield line[start:].strip()


def _ends(line: str) -> Iterator[int]:
    for found in _END.finditer(line):
        if found["wide"] or not _goes_on(line, found):
            yield found.end()


def _goes_on(line: str, found: re.Match[str]) -> bool:
    """Whether a full stop only ends an abbreviation, an initial or an ordinal."""
    after = line[found.end() : found.end() + 16].lstrip(f" {_OPENING}")
    if after[:1].islower():
        return True
    before = line[max(0, found.start() - 20) : found.start()]
    word = before.rsplit(" ", 1)[-1].lstrip(_OPENING).lower()
    if found["mark"] != "." or word in _HALF_DAYS:
        return False
    if after[:1].isdigit():
        return word in _NUMBERED or word in _ABBREVIATIONS
    if _DAY.fullmatch(word):
        return bool(_MONTH.match(after))
    return word in _ABBREVIATIONS or bool(_INITIALS.search(before) or (len(word) == 1 and _LETTER.match(after)))


def _best(terms: Sequence[Term], candidates: Sequence[Candidate]) -> tuple[Sentence, ...]:
    """The sentences with the rarest of the question's words; those of one item stay in their order."""
    weights = {term: _weight(term, candidates) for term in terms}
    scored = [(score, each) for each in candidates if (score := _score(each, weights)) > 0]
    scored.sort(key=lambda pair: -pair[0])
    chosen: list[Candidate] = []
    for score, each in scored:
        if len(chosen) == MAX_SAID or score < WORTH * scored[0][0]:
            break
        if not any(_alike(each, other) for other in chosen):
            chosen.append(each)
    ranks = list(dict.fromkeys(each.rank for each in chosen))
    chosen.sort(key=lambda each: (ranks.index(each.rank), each.place))
    return tuple(Sentence(each.text, (each.item.ref,)) for each in chosen)


def _weight(term: Term, candidates: Sequence[Candidate]) -> float:
    shared = sum(_shares(term, each.stems) for each in candidates)
    return math.log(1 + len(candidates) / max(shared, 1))


def _score(candidate: Candidate, weights: Mapping[Term, float]) -> float:
    own = {term for term in weights if _shares(term, candidate.stems)}
    named = {term for term in weights if _shares(term, candidate.title)}
    is_about = candidate.place == 0 and len(named) >= ASKED * len(weights)
    if not own and not is_about:
        return 0.0
    share = ABOUT_SHARE if is_about else TITLE_SHARE
    found = sum(weights[term] for term in own) + share * sum(weights[term] for term in named - own)
    return found * (1 + LEAD / (1 + candidate.place)) / (1 + RANK_LOSS * candidate.rank)


def _alike(a: Candidate, b: Candidate) -> bool:
    return len(a.stems & b.stems) >= ALIKE * len(a.stems | b.stems)


def _cue(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_FACTS = (
    Fact(
        _cue(
            r"\bopen(?:s|ing)?\b|\bclos(?:e|es|ed|ing)\b|\bgeöffnet|\boffen\b|\böffne|\böffnungszeit|\bschließ"
            r"|\babr(?:e|en|ir)\b|\babiert|\bhorario|\bcierra|\bcerrad|\bouvr|\bouvert|\bhoraire|\bferm(?:e|ent|é)"
            r"|مفتوح|ساعات العمل|يفتح|يغلق|营业|开门|关门|開いて|閉ま|営業"
        ),
        _hours,
        _say_hours,
        is_aside=True,
    ),
    Fact(
        _cue(
            r"\bwhen\b|\bearlier\b|\bsooner\b|\bdate|\bfrüher\b|\bwann\b|\bdatum|\bcuándo|\bfecha|\bquand\b"
            r"|时候|时间|日期|いつ|日付"
        ),
        _day,
        _say_day,
        _span_days,
        _sooner,
    ),
    Fact(
        _cue(r"\bwhere\b|\bplace|\bwo\b|\bort\b|\bdónde|\blugar|\boù\b|\blieu|哪里|哪儿|地点|どこ|場所"),
        _place,
        lambda phrases, place: phrases.at(place),
    ),
    Fact(
        _cue(
            r"\btime\b|\blong(?:er)?\b|\bshorter\b|\bquick|\bfast(?:er)?\b|\bslower\b|\bminutes?\b|\bhours?\b"
            r"|\bkürzer|\blänger|\bzeit|\blange\b|\bschnell|\bminuten|\bstunde"
            r"|\btiempo|\brápid|\bminutos|\bhoras?\b|\btemps\b|\brapide|\bvite\b|\bheures?\b|多久|时间|分钟|小时|快|時間|分|早"
        ),
        _time,
        _say_time,
        _span_times,
        _shorter,
    ),
    Fact(
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
    Fact(
        _cue(
            r"\brat(?:ed|ing)|\bbest\b|\bbetter\b|\bgood\b|\bbewert|\bbesser|\bbeste|\bvalora|\bmejor|\bnoté|\bmeilleur"
            r"|评分|最好|評価|評判|人気"
        ),
        _rating,
        _say_rating,
        _span_ratings,
        _better,
    ),
    Fact(
        _cue(r"\bcuisine|\bküche|\bcocina|菜系|料理"),
        _cuisine,
        lambda phrases, kinds: phrases.cuisine(phrases.join(kinds)),
    ),
    Fact(
        _cue(r"\bwho\b|\bauthor|\bwrote|\bwer\b|\bautor|\bquién|\bqui\b|\bauteur|谁|作者|誰|著者"),
        _maker,
        lambda phrases, names: phrases.by(phrases.names(names)),
    ),
)
