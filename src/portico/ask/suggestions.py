"""Suggested questions, to begin with and to follow up: ones that this site can answer, and always the same ones."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from math import floor, log10
from statistics import median_low
from typing import Any, cast

from portico.ask.events import Constraint
from portico.ask.facts import price_of
from portico.ask.languages.localization import best_language, phrases
from portico.ask.understanding.fields import words_of
from portico.catalog import Collection, FieldType, seconds

MAX_STARTERS = 5
MAX_FOLLOWUPS = 4  # questions to go on with
MAX_NARROWER = 2  # of these
MIN_PRICE, MAX_PRICE = 0.01, 1e9  # in a question
MAX_QUESTIONS = 3  # about collections that were loaded
MIN_ITEMS = 3  # items that can be told apart
MAX_NAME = 80  # characters of a name in a question
STEP = 5  # minutes

_DIETS = ("vegetarian", "vegan", "gluten free")

# What a collection can be asked by, as some of its fields show.
_SIGNS: Mapping[str, frozenset[str]] = {
    "duration": frozenset({"totalTime", "cookTime"}),
    "date": frozenset({"startDate"}),
    "price": frozenset({"price", "offers"}),
    "published": frozenset({"datePublished"}),
    "rating": frozenset({"aggregateRating", "aggregateRating.ratingValue"}),
}

# Fields whose values are common to several items.
_GROUPING = frozenset(
    {"category", "categories", "kind", "genre", "type", "product_type", "cuisine", "recipecuisine", "brand", "vendor",
     "artist", "author", "city", "town", "country", "region", "place", "department", "topic", "section"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SuggestionTemplates:
    """How a language asks. {} stands for a name, a number or a word. What is not read in it is not offered in it."""

    more: str
    like: str
    about: str
    first: Mapping[str, str] = field(default_factory=dict[str, str])  # by what a collection can be asked by
    narrower: Mapping[str, str] = field(default_factory=dict[str, str])
    below: str = ""  # what is asked for, and a price
    capitals: bool = False  # a title keeps its own within a sentence


TEMPLATES: Mapping[str, SuggestionTemplates] = {
    "en": SuggestionTemplates(
        "Tell me more about {}",
        "Something like {}",
        "What is there about {}?",
        {
            "duration": "{} under 30 minutes",
            "date": "Upcoming {}",
            "price": "Cheapest {}",
            "published": "Newest {}",
            "rating": "Best rated {}",
        },
        {
            "duration": "Under {} minutes",
            "price": "The cheapest",
            "rating": "The best rated",
            "published": "The newest",
            "diet": "Only {}",
        },
        "{} under {}",
    ),
    "de": SuggestionTemplates(
        "Erzähl mir mehr über {}",
        "Etwas wie {}",
        "Was gibt es zu {}?",
        {
            "duration": "{} unter 30 Minuten",
            "date": "{} demnächst",
            "price": "Günstigste {}",
            "published": "Neueste {}",
            "rating": "Bestbewertete {}",
        },
        {
            "duration": "Unter {} Minuten",
            "price": "Das günstigste",
            "rating": "Am besten bewertet",
            "published": "Das neueste",
            "diet": "Nur {}",
        },
        "{} unter {}",
        capitals=True,
    ),
    "es": SuggestionTemplates(
        "Cuéntame más de {}",
        "Algo como {}",
        "¿Qué hay sobre {}?",
        {
            "duration": "{} en menos de 30 minutos",
            "date": "{} próximamente",
            "price": "{} más baratos",
            "published": "{} más nuevos",
            "rating": "{} mejor valorados",
        },
        {
            "duration": "Menos de {} minutos",
            "price": "Lo más barato",
            "rating": "Lo mejor valorado",
            "published": "Lo más nuevo",
            "diet": "Solo {}",
        },
        "{} por menos de {}",
    ),
    "fr": SuggestionTemplates(
        "Dites-m’en plus sur {}",
        "Quelque chose comme {}",
        "Qu’y a-t-il sur {} ?",
        {
            "duration": "{} en moins de 30 minutes",
            "date": "{} prochainement",
            "price": "{} les moins chers",
            "published": "{} les plus récents",
            "rating": "{} les mieux notés",
        },
        {
            "duration": "Moins de {} minutes",
            "price": "Le moins cher",
            "rating": "Le mieux noté",
            "published": "Le plus récent",
            "diet": "Seulement {}",
        },
        "{} à moins de {}",
    ),
    "ar": SuggestionTemplates("أخبرني المزيد عن {}", "شيء مثل {}", "{}"),
    "ja": SuggestionTemplates("{}について詳しく教えて", "{}のようなもの", "{}について教えて"),
    "zh": SuggestionTemplates("详细介绍一下{}", "类似{}的", "有哪些{}？"),
}


def starters(collections: Iterable[Collection], language: str) -> tuple[str, ...]:
    """Return questions to begin with: one for each collection, each of another kind."""
    tag, used = best_language(language, tuple(TEMPLATES)), set[str]()
    ways, questions = TEMPLATES[tag], list[str]()
    for collection in islice(collections, MAX_STARTERS):
        signs = (sign for sign, fields in _SIGNS.items() if not fields.isdisjoint(collection.fields))
        sign = next((sign for sign in signs if sign in ways.first and sign not in used), "")
        used.add(sign)
        sentence, title = ways.first.get(sign, ways.about), _title_of(collection, tag)
        is_capital = ways.capitals or sentence.startswith("{}")
        questions.append(sentence.format((title[:1].upper() if is_capital else title[:1].lower()) + title[1:]))
    return tuple(questions)


def _title_of(collection: Collection, language: str) -> str:
    """Return what a collection is called: where that is only the word for what it holds, the word of the language."""
    title, kind, own = collection.title or collection.name, collection.type, phrases(collection.language)
    if not TEMPLATES[language].first or title.lower() != own.noun(kind, 2).lower():
        return title  # and what is not read in a language is better found by its own name
    return phrases(language).noun(kind, 2)


def example_questions(samples: Sequence[tuple[Collection, Mapping[str, Any]]], language: str) -> tuple[str, ...]:
    """Return questions about collections, each with values of its fields. The items with these values answer them."""
    tag = best_language(language, tuple(TEMPLATES))
    by_collection = [list(_questions_about(collection, values, tag)) for collection, values in samples]
    # Of each collection another kind of question, before a second one of any.
    turned = [
        questions[n % MAX_QUESTIONS :] + questions[: n % MAX_QUESTIONS] for n, questions in enumerate(by_collection)
    ]
    questions = chain.from_iterable(zip_longest(*turned, fillvalue=""))
    return tuple(islice(dict.fromkeys(question for question in questions if question), MAX_QUESTIONS))


def _questions_about(collection: Collection, values: Mapping[str, Any], tag: str) -> Iterator[str]:
    """Yield a question about a title, one about a number and one about a word of the examples."""
    ways = TEMPLATES[tag]
    texts = {name: value for name, value in values.items() if isinstance(value, str) and 0 < len(value) <= MAX_NAME}
    title = " ".join(texts.get(collection.field_for("title"), "").split())
    if title:
        yield ways.more.format(phrases(tag).name(title))
    kind = _title_of(collection, tag).replace("_", " ")
    price = values.get(collection.field_for("price"))
    if isinstance(price, int | float) and MIN_PRICE <= price <= MAX_PRICE and ways.below:
        yield ways.below.format(kind[:1].upper() + kind[1:], _round_up(price))
    word = next((texts[name] for name in _word_fields(collection) if _is_word(texts.get(name, ""))), "")
    if word:
        # In a language without templates for fields, words are found by themselves only.
        yield (ways.about if ways.first else "{}").format(" ".join(word.split()))


def _is_word(text: str) -> bool:
    """Return whether a value is one to ask about: not a sign, a number or a code such as GBP."""
    letters = [character for character in text if character.isalpha()]
    return len(letters) >= (3 if text.isascii() else 1) and not text.isupper()


def _word_fields(collection: Collection) -> list[str]:
    """Return the fields of texts whose values may be words to ask for, those that group items first."""
    taken = {collection.field_for(role) for role in ("title", "description", "image", "link")}
    fields = [spec for spec in collection.fields.values() if spec.type is FieldType.STRING and spec.name not in taken]
    names = [spec.name for spec in fields if not spec.format and not spec.target and spec.name[:1] not in "@_"]
    return sorted(names, key=lambda name: name.lower() not in _GROUPING)


def _round_up(price: float) -> str:
    """Return the next number above a price that a person would name: 50 above 39."""
    step = 10 ** floor(log10(price))
    above = next(factor * step for factor in (2, 5, 10, 20) if factor * step > price)
    return f"{above:g}" if above < 1_000_000 else f"{above:.0f}"


def followups(
    items: Sequence[Mapping[str, Any]], language: str, earlier: Iterable[str], constraints: Iterable[Constraint] = ()
) -> tuple[str, ...]:
    """Return a few questions that were not asked yet: about what was found, and by what sets it apart."""
    tag = best_language(language, tuple(TEMPLATES))
    lowered = {question.strip().lower() for question in earlier}
    fields = " ".join(constraint.field for constraint in constraints).lower()
    fresh = (question for question in _possible(items, tag, fields) if question.lower() not in lowered)
    return tuple(islice(dict.fromkeys(fresh), MAX_FOLLOWUPS))


def _possible(items: Sequence[Mapping[str, Any]], language: str, fields: str) -> Iterator[str]:
    ways = TEMPLATES[language]
    names = (" ".join(str(item.get("name", "")).split()) for item in items)
    quote = phrases(language).name  # a name may be a question of its own
    first, *others = list(dict.fromkeys(quote(name) for name in names if 0 < len(name) <= MAX_NAME)) or [""]
    yield from [ways.more.format(first)] if first else []
    yield from islice(_narrower(items, language, fields) if len(items) >= MIN_ITEMS else (), MAX_NARROWER)
    yield from [ways.like.format(first)] if first else []
    yield from (ways.more.format(name) for name in others)


def _narrower(items: Sequence[Mapping[str, Any]], language: str, fields: str) -> Iterator[str]:
    """Yield what sets items apart, unless that was said already."""
    ways = TEMPLATES[language].narrower
    times = [name for item in items if (name := seconds(str(item.get("totalTime", ""))[:40]))]
    if "duration" in ways and len(times) >= MIN_ITEMS and "totaltime" not in fields:
        steps = -(-median_low(times) // (60 * STEP))  # rounded up
        yield ways["duration"].format(round(steps * STEP))
    priced = sum(map(_has_price, items))
    if "price" in ways and priced > 1 and not any(word in fields for word in ("price", "cost")):
        yield ways["price"]
    if "rating" in ways and _count_with(items, "aggregateRating") > 1 and "rating" not in fields:
        yield ways["rating"]
    if "published" in ways and not priced and _count_with(items, "datePublished") > 1 and "date" not in fields:
        yield ways["published"]
    suitable = Counter(diet for item in items for diet in {*map(words_of, _texts(item.get("suitableForDiet")))})
    diet = next((name for name in _DIETS if 0 < suitable[name] < len(items)), "")
    if "diet" in ways and diet and "diet" not in fields:
        yield ways["diet"].format(phrases(language).word(diet))


def _count_with(items: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(1 for item in items if item.get(name))


def _texts(value: Any) -> list[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str) and len(text) <= MAX_NAME]


def _has_price(item: Mapping[str, Any]) -> bool:
    """Return whether an item can be cheaper than another: what is free cannot.

    An average is no price, but it compares.
    """
    price = price_of(item)
    return price.high > 0 if price else isinstance(item.get("averagePrice"), int | float)
