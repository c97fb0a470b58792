"""What is read out of the words of a question, on a Wednesday in November."""

from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.ask.understanding.parsers import (
    MAX_FINDINGS,
    DateRange,
    Exclusion,
    Finding,
    Flag,
    MakerMention,
    NearPlace,
    PlaceMention,
    Quantity,
    SortOrder,
    parse_question,
    parse_value,
)

TODAY = date(2026, 11, 18)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def span(text: str, words: str) -> tuple[int, int]:
    start = text.index(words)
    return start, start + len(words)


@pytest.mark.parametrize(
    ("text", "words", "kind", "op", "value", "upper", "unit", "noun"),
    [
        ("dinner under $20", "under $20", "price", "lt", 20.0, None, "USD", ""),
        ("wine for under £15 a bottle", "for under £15", "price", "lt", 15.0, None, "GBP", ""),
        ("at most twenty-five euros", "at most twenty-five euros", "price", "lte", 25.0, None, "EUR", ""),
        ("20 EUR or less", "20 EUR or less", "price", "lte", 20.0, None, "EUR", ""),
        ("CHF 20 max", "CHF 20 max", "price", "lte", 20.0, None, "CHF", ""),
        ("max. ¥500", "max. ¥500", "price", "lte", 500.0, None, "JPY", ""),
        ("less than 1,000.50 dollars", "less than 1,000.50 dollars", "price", "lt", 1000.5, None, "USD", ""),
        ("less than 1.000,50 dollars", "less than 1.000,50 dollars", "price", "lt", 1000.5, None, "USD", ""),
        ("below €19.99", "below €19.99", "price", "lt", 19.99, None, "EUR", ""),
        ("below €19,99", "below €19,99", "price", "lt", 19.99, None, "EUR", ""),
        ("over €1,000", "over €1,000", "price", "gt", 1000.0, None, "EUR", ""),
        ("jobs over $1.5k", "over $1.5k", "price", "gt", 1500.0, None, "USD", ""),
        ("cheaper than 20", "cheaper than 20", "price", "lt", 20.0, None, "", ""),
        ("what costs less than 20", "costs less than 20", "price", "lt", 20.0, None, "", ""),
        ("around £20", "around £20", "price", "between", 16.0, 24.0, "GBP", ""),
        ("between 10 and 20 euros", "between 10 and 20 euros", "price", "between", 10.0, 20.0, "EUR", ""),
        ("from 5 to 10 euros", "from 5 to 10 euros", "price", "between", 5.0, 10.0, "EUR", ""),
        ("$5-$10 wines", "$5-$10", "price", "between", 5.0, 10.0, "USD", ""),
        ("tours from £20", "from £20", "price", "gte", 20.0, None, "GBP", ""),
        ("a $20 gift", "$20", "price", "eq", 20.0, None, "USD", ""),
        ("soup in under 30 minutes", "in under 30 minutes", "duration", "lt", 30 * MINUTE, None, "s", ""),
        ("within 30 minutes", "within 30 minutes", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("ready in 30 minutes", "in 30 minutes", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("30 minutes or less", "30 minutes or less", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("up to 45min", "up to 45min", "duration", "lte", 45 * MINUTE, None, "s", ""),
        ("not more than 30 minutes", "not more than 30 minutes", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("no longer than an hour", "no longer than an hour", "duration", "lte", HOUR, None, "s", ""),
        ("I have 30 minutes", "I have 30 minutes", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("30-minute meals", "30-minute", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("30 minute meals", "30 minute", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("half an hour or less", "half an hour or less", "duration", "lte", HOUR / 2, None, "s", ""),
        ("under an hour and a half", "under an hour and a half", "duration", "lt", 1.5 * HOUR, None, "s", ""),
        ("under two and a half hours", "under two and a half hours", "duration", "lt", 2.5 * HOUR, None, "s", ""),
        ("under 1 hour 30 minutes", "under 1 hour 30 minutes", "duration", "lt", 1.5 * HOUR, None, "s", ""),
        ("under 1h30", "under 1h30", "duration", "lt", 1.5 * HOUR, None, "s", ""),
        ("more than two hours", "more than two hours", "duration", "gt", 2 * HOUR, None, "s", ""),
        ("about an hour", "about an hour", "duration", "between", 48 * MINUTE, 72 * MINUTE, "s", ""),
        ("20 to 40 minutes", "20 to 40 minutes", "duration", "between", 20 * MINUTE, 40 * MINUTE, "s", ""),
        ("between half an hour and an hour", "between half an hour and an hour",
         "duration", "between", HOUR / 2, HOUR, "s", ""),
        ("delivered in 3 days", "in 3 days", "duration", "lte", 3 * DAY, None, "s", ""),
        ("at least 4 stars", "at least 4 stars", "rating", "gte", 4.0, None, "", ""),
        ("4+ stars", "4+ stars", "rating", "gte", 4.0, None, "", ""),
        ("4.5 stars and up", "4.5 stars and up", "rating", "gte", 4.5, None, "", ""),
        ("rated above 4.5", "rated above 4.5", "rating", "gt", 4.5, None, "", ""),
        ("rated 4 out of 5", "rated 4 out of 5", "rating", "gte", 4.0, None, "", ""),
        ("four star hotels", "four star", "rating", "gte", 4.0, None, "", ""),
        ("5-star hotels", "5-star", "rating", "gte", 5.0, None, "", ""),
        ("cafes within 500 m", "within 500 m", "distance", "lte", 500.0, None, "m", ""),
        ("walks under 3 miles", "under 3 miles", "distance", "lt", 4828.032, None, "m", ""),
        ("less than 500 calories", "less than 500 calories", "count", "lt", 500.0, None, "", "calories"),
        ("under 400 kcal", "under 400 kcal", "count", "lt", 400.0, None, "kcal", "calories"),
        ("over 2000 calories", "over 2000 calories", "count", "gt", 2000.0, None, "", "calories"),
        ("under 300 pages", "under 300 pages", "count", "lt", 300.0, None, "", "pages"),
        ("at least 20 g protein", "at least 20 g protein", "count", "gte", 20.0, None, "g", "protein"),
        ("at least 20 grams of protein", "at least 20 grams of protein", "count", "gte", 20.0, None, "g", "protein"),
        ("at least 70% cocoa", "at least 70% cocoa", "count", "gte", 70.0, None, "%", "cocoa"),
        ("a flat with 2 or more bedrooms", "with 2 or more bedrooms", "count", "gte", 2.0, None, "", "bedrooms"),
        ("over 6 years old", "over 6 years old", "count", "gt", 6.0, None, "years", "age"),
        ("a tart for 6 people", "for 6 people", "count", "gte", 6.0, None, "", "people"),
        ("dinner for two", "for two", "count", "gte", 2.0, None, "", "people"),
        ("gifts under 20", "under 20", "number", "lt", 20.0, None, "", ""),
        ("no more than 20, please", "no more than 20", "number", "lte", 20.0, None, "", ""),
        ("less than 5 for me", "less than 5", "number", "lt", 5.0, None, "", ""),
        ("between 10 and 20", "between 10 and 20", "number", "between", 10.0, 20.0, "", ""),
    ],
)  # fmt: skip
def test_a_comparison_is_read_with_its_kind_and_unit(
    text: str, words: str, kind: str, op: str, value: float, upper: float | None, unit: str, noun: str
) -> None:
    assert parse_question(text, TODAY) == (Quantity(kind, op, value, upper, unit, noun, *span(text, words)),)


@pytest.mark.parametrize(
    ("language", "text", "kind", "op", "value", "upper", "unit", "noun"),
    [
        ("de", "unter 20 Euro", "price", "lt", 20.0, None, "EUR", ""),
        ("de", "weniger als 30 Minuten", "duration", "lt", 30 * MINUTE, None, "s", ""),
        ("de", "höchstens 1.500 €", "price", "lte", 1500.0, None, "EUR", ""),
        ("de", "mindestens vier Sterne", "rating", "gte", 4.0, None, "", ""),
        ("de", "über eine Stunde", "duration", "gt", HOUR, None, "s", ""),
        ("de", "zwischen 10 und 20 Euro", "price", "between", 10.0, 20.0, "EUR", ""),
        ("de", "bis zu 30 Minuten", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("de", "anderthalb Stunden oder weniger", "duration", "lte", 1.5 * HOUR, None, "s", ""),
        ("de", "weniger als 500 Kalorien", "count", "lt", 500.0, None, "", "calories"),
        ("de", "für 4 Personen", "count", "gte", 4.0, None, "", "people"),
        ("es", "menos de 20 euros", "price", "lt", 20.0, None, "EUR", ""),
        ("es", "más de dos horas", "duration", "gt", 2 * HOUR, None, "s", ""),
        ("es", "como máximo 30 minutos", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("es", "al menos 4 estrellas", "rating", "gte", 4.0, None, "", ""),
        ("es", "entre 10 y 20 euros", "price", "between", 10.0, 20.0, "EUR", ""),
        ("es", "menos de una hora y media", "duration", "lt", 1.5 * HOUR, None, "s", ""),
        ("es", "para 4 personas", "count", "gte", 4.0, None, "", "people"),
        ("fr", "moins de 20 euros", "price", "lt", 20.0, None, "EUR", ""),
        ("fr", "plus d'une heure", "duration", "gt", HOUR, None, "s", ""),
        ("fr", "au maximum 30 minutes", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("fr", "au moins quatre étoiles", "rating", "gte", 4.0, None, "", ""),
        ("fr", "entre 10 et 20 euros", "price", "between", 10.0, 20.0, "EUR", ""),
        ("fr", "moins d'une demi-heure", "duration", "lt", HOUR / 2, None, "s", ""),
        ("fr", "30 minutes ou moins", "duration", "lte", 30 * MINUTE, None, "s", ""),
        ("fr-CA", "environ 20 dollars", "price", "between", 16.0, 24.0, "USD", ""),
    ],
)
def test_comparisons_are_read_in_four_languages(
    language: str, text: str, kind: str, op: str, value: float, upper: float | None, unit: str, noun: str
) -> None:
    assert parse_question(text, TODAY, language) == (Quantity(kind, op, value, upper, unit, noun, 0, len(text)),)


def test_a_language_without_words_here_is_read_as_english() -> None:
    assert parse_question("under 20", TODAY, "xx") == parse_question("under 20", TODAY, "en")


@pytest.mark.parametrize(
    "text",
    [
        "top 10 movies",
        "100 years of solitude",
        "open 9-5",
        "two for one",
        "soup for a cold day",
        "may I bring my dog",
        "part 2",
    ],
)
def test_a_number_that_compares_nothing_is_left_to_search(text: str) -> None:
    assert parse_question(text, TODAY) == ()


def day(text: str) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None


@pytest.mark.parametrize(
    ("language", "text", "words", "start", "end"),
    [
        ("en", "concerts today", "today", "2026-11-18", "2026-11-19"),
        ("en", "concerts tonight", "tonight", "2026-11-18T17:00", "2026-11-19T04:00"),
        ("en", "concerts tomorrow", "tomorrow", "2026-11-19", "2026-11-20"),
        ("en", "events this weekend", "this weekend", "2026-11-21", "2026-11-23"),
        ("en", "events next weekend", "next weekend", "2026-11-28", "2026-11-30"),
        ("en", "this week", "this week", "2026-11-16", "2026-11-23"),
        ("en", "next week", "next week", "2026-11-23", "2026-11-30"),
        ("en", "this month", "this month", "2026-11-01", "2026-12-01"),
        ("en", "next month", "next month", "2026-12-01", "2027-01-01"),
        ("en", "last month", "last month", "2026-10-01", "2026-11-01"),
        ("en", "last year", "last year", "2025-01-01", "2026-01-01"),
        ("en", "upcoming talks", "upcoming", "2026-11-18", ""),
        ("en", "talks on Saturday", "on Saturday", "2026-11-21", "2026-11-22"),
        ("en", "talks Saturday", "Saturday", "2026-11-21", "2026-11-22"),
        ("en", "talks on Wednesday", "on Wednesday", "2026-11-18", "2026-11-19"),
        ("en", "Saturday night concerts", "Saturday night", "2026-11-21", "2026-11-22"),
        ("en", "next Friday", "next Friday", "2026-11-27", "2026-11-28"),
        ("en", "last Friday", "last Friday", "2026-11-13", "2026-11-14"),
        ("en", "in December", "in December", "2026-12-01", "2027-01-01"),
        ("en", "in November", "in November", "2026-11-01", "2026-12-01"),
        ("en", "in March", "in March", "2027-03-01", "2027-04-01"),
        ("en", "in December 2028", "in December 2028", "2028-12-01", "2029-01-01"),
        ("en", "5 December", "5 December", "2026-12-05", "2026-12-06"),
        ("en", "5 March", "5 March", "2027-03-05", "2027-03-06"),
        ("en", "29 February", "29 February", "2028-02-29", "2028-03-01"),
        ("en", "December 5th", "December 5th", "2026-12-05", "2026-12-06"),
        ("en", "December 5, 2027", "December 5, 2027", "2027-12-05", "2027-12-06"),
        ("en", "the 5th of December", "the 5th of December", "2026-12-05", "2026-12-06"),
        ("en", "on 2026-12-05", "on 2026-12-05", "2026-12-05", "2026-12-06"),
        ("en", "on 05.12.2026", "on 05.12.2026", "2026-12-05", "2026-12-06"),
        ("en", "films before 2000", "before 2000", "", "2000-01-01"),
        ("en", "films after 2020", "after 2020", "2021-01-01", ""),
        ("en", "films since 2019", "since 2019", "2019-01-01", ""),
        ("en", "films from 2019 onwards", "from 2019 onwards", "2019-01-01", ""),
        ("en", "films in 2021", "in 2021", "2021-01-01", "2022-01-01"),
        ("en", "films of the 1990s", "1990s", "1990-01-01", "2000-01-01"),
        ("en", "films between 1990 and 2000", "between 1990 and 2000", "1990-01-01", "2001-01-01"),
        ("en", "delivered by Friday", "by Friday", "", "2026-11-21"),
        ("en", "in the last 3 days", "in the last 3 days", "2026-11-15", "2026-11-19"),
        ("en", "in the next two weeks", "in the next two weeks", "2026-11-18", "2026-12-02"),
        ("en", "in the last 9 months", "in the last 9 months", "2026-02-18", "2026-11-19"),
        ("en", "between 5 and 8 December", "between 5 and 8 December", "2026-12-05", "2026-12-09"),
        ("en", "December 5-8", "December 5-8", "2026-12-05", "2026-12-09"),
        ("en", "from Monday to Wednesday", "from Monday to Wednesday", "2026-11-23", "2026-11-26"),
        ("en", "from December to February", "from December to February", "2026-12-01", "2027-03-01"),
        ("de", "Konzerte am Wochenende", "am Wochenende", "2026-11-21", "2026-11-23"),
        ("de", "am Samstag", "am Samstag", "2026-11-21", "2026-11-22"),
        ("de", "am 5. Dezember 2026", "am 5. Dezember 2026", "2026-12-05", "2026-12-06"),
        ("de", "vom 5. bis 8. Dezember", "vom 5. bis 8. Dezember", "2026-12-05", "2026-12-09"),
        ("de", "seit 2019", "seit 2019", "2019-01-01", ""),
        ("de", "in den nächsten zwei Wochen", "in den nächsten zwei Wochen", "2026-11-18", "2026-12-02"),
        ("es", "este fin de semana", "este fin de semana", "2026-11-21", "2026-11-23"),
        ("es", "el 5 de diciembre de 2027", "el 5 de diciembre de 2027", "2027-12-05", "2027-12-06"),
        ("es", "antes de 2000", "antes de 2000", "", "2000-01-01"),
        ("es", "en los últimos 3 días", "en los últimos 3 días", "2026-11-15", "2026-11-19"),
        ("fr", "ce week-end", "ce week-end", "2026-11-21", "2026-11-23"),
        ("fr", "aujourd’hui", "aujourd’hui", "2026-11-18", "2026-11-19"),
        ("fr", "samedi prochain", "samedi prochain", "2026-11-28", "2026-11-29"),
        ("fr", "le 5 décembre", "le 5 décembre", "2026-12-05", "2026-12-06"),
        ("fr", "les 3 derniers jours", "les 3 derniers jours", "2026-11-15", "2026-11-19"),
    ],
)
def test_a_time_is_read_as_an_interval(language: str, text: str, words: str, start: str, end: str) -> None:
    assert parse_question(text, TODAY, language) == (DateRange(day(start), day(end), words, *span(text, words)),)


def test_on_a_sunday_this_weekend_is_the_running_one() -> None:
    sunday = date(2026, 11, 22)
    assert parse_question("this weekend", sunday) == (
        DateRange(day("2026-11-21"), day("2026-11-23"), "this weekend", 0, 12),
    )


@pytest.mark.parametrize(
    "text", ["30 February", "Sunday roast", "when is Pancake Tuesday", "next day delivery", "2026-13-45", "1984"]
)
def test_what_only_looks_like_a_time_is_left_to_search(text: str) -> None:
    assert parse_question(text, TODAY) == ()


def test_a_time_beyond_the_calendar_is_no_time() -> None:
    assert parse_question("tomorrow", date.max) == ()
    assert parse_question("the last 999 years", date(500, 1, 1)) == ()


@pytest.mark.parametrize(
    ("language", "text", "words", "role", "descending"),
    [
        ("en", "the cheapest hotel", "cheapest", "price", False),
        ("en", "least expensive flights", "least expensive", "price", False),
        ("en", "hotels, lowest price", "lowest price", "price", False),
        ("en", "anything cheaper?", "cheaper", "price", False),
        ("en", "most expensive wine", "most expensive", "price", True),
        ("en", "quickest soup", "quickest", "duration", False),
        ("en", "shortest walk", "shortest", "duration", False),
        ("en", "longest film", "longest", "duration", True),
        ("en", "best rated cafes", "best rated", "rating", True),
        ("en", "top-rated cafes", "top-rated", "rating", True),
        ("en", "most popular cafes", "most popular", "rating", True),
        ("en", "worst rated cafes", "worst rated", "rating", False),
        ("en", "newest books", "newest", "date", True),
        ("en", "the most recent article", "most recent", "date", True),
        ("en", "oldest church", "oldest", "date", False),
        ("en", "the next concert", "next", "date", False),
        ("en", "nearest beach", "nearest", "distance", False),
        ("en", "lowest calorie dessert", "lowest calorie", "calories", False),
        ("en", "fewest calories", "fewest calories", "calories", False),
        ("en", "the book with the most pages", "most pages", "pages", True),
        ("en", "the town with the most lighthouses", "most lighthouses", "lighthouses", True),
        ("en", "highest protein meals", "highest protein", "protein", True),
        ("de", "das billigste Hotel", "billigste", "price", False),
        ("de", "die neuesten Bücher", "neuesten", "date", True),
        ("es", "el hotel más barato", "más barato", "price", False),
        ("es", "los mejor valorados", "mejor valorados", "rating", True),
        ("fr", "l'hôtel le moins cher", "moins cher", "price", False),
        ("fr", "restaurants pas chers avec terrasse", "pas chers", "price", False),
        ("fr", "un cadeau pas trop cher", "pas trop cher", "price", False),
        ("fr", "les mieux notés", "mieux notés", "rating", True),
    ],
)
def test_a_superlative_is_an_order(language: str, text: str, words: str, role: str, descending: bool) -> None:
    assert parse_question(text, TODAY, language) == (SortOrder(role, descending, *span(text, words)),)


@pytest.mark.parametrize(
    "text", ["best pasta", "the most beautiful beach", "at the latest", "most of the soups", "what is next?"]
)
def test_praise_and_talk_are_no_order(text: str) -> None:
    assert parse_question(text, TODAY) == ()


@pytest.mark.parametrize(
    ("language", "text", "parts"),
    [
        ("en", "pasta not chicken", {"not chicken": "chicken"}),
        ("en", "cake without any nuts", {"without any nuts": "nuts"}),
        ("en", "pizza, no onions", {"no onions": "onions"}),
        ("en", "everything except fish", {"except fish": "fish"}),
        ("en", "stew excluding beef", {"excluding beef": "beef"}),
        ("en", "curry but not spicy", {"but not spicy": "spicy"}),
        ("en", "I'm allergic to peanuts", {"I'm allergic to peanuts": "peanuts"}),
        ("en", "I don’t eat meat", {"I don’t eat meat": "meat"}),
        ("en", "I don't like mushrooms", {"I don't like mushrooms": "mushrooms"}),
        ("en", "anything but pizza", {"anything but pizza": "pizza"}),
        ("en", "without peanut butter please", {"without peanut butter": "peanut butter"}),
        ("en", "without nuts or dairy", {"without nuts": "nuts", "or dairy": "dairy"}),
        ("en", "without nuts, dairy and eggs", {"without nuts": "nuts", ", dairy": "dairy", "and eggs": "eggs"}),
        ("en", "no fish, no meat", {"no fish": "fish", "no meat": "meat"}),
        ("en", "no onions, quick dinner", {"no onions": "onions"}),
        ("en", "cheese, but nothing with nuts", {"nothing with nuts": "nuts"}),
        ("en", "can you find soups with no cream", {"with no cream": "cream"}),
        ("en", "is there a soup that is not spicy", {"not spicy": "spicy"}),
        ("en", "places that are not crowded", {"not crowded": "crowded"}),
        ("en", "hotels not in Rome", {"not in Rome": "Rome"}),
        ("de", "Kuchen ohne Nüsse oder Milch", {"ohne Nüsse": "Nüsse", "oder Milch": "Milch"}),
        ("de", "kein Fleisch", {"kein Fleisch": "Fleisch"}),
        ("de", "nicht scharf", {"nicht scharf": "scharf"}),
        ("es", "pastel sin nueces ni leche", {"sin nueces": "nueces", "ni leche": "leche"}),
        ("es", "no picante", {"no picante": "picante"}),
        ("fr", "gâteau sans noix", {"sans noix": "noix"}),
        ("fr", "je ne mange pas de viande", {"je ne mange pas de viande": "viande"}),
    ],
)
def test_an_exclusion_is_read_for_each_thing(language: str, text: str, parts: dict[str, str]) -> None:
    expected = tuple(Exclusion(words, *span(text, part)) for part, words in parts.items())
    assert parse_question(text, TODAY, language) == expected


@pytest.mark.parametrize(
    ("language", "text", "part", "words"),
    [
        ("en", "nut-free cookies", "nut-free", "nut"),
        ("en", "dairy free cake", "dairy free", "dairy"),
        ("en", "gluten-free bread", "gluten-free", "gluten"),
        ("en", "food free from soy", "free from soy", "soy"),
        ("de", "glutenfreies Brot", "glutenfreies", "gluten"),
    ],
)
def test_free_of_something_is_an_exclusion_that_items_may_say_themselves(
    language: str, text: str, part: str, words: str
) -> None:
    assert parse_question(text, TODAY, language) == (Exclusion(words, *span(text, part), free=True),)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "I have no idea"),
        ("en", "no matter what"),
        ("en", "not sure what to cook"),
        ("en", "why not"),
        ("en", "whether or not it rains"),
        ("en", "I do not know"),
        ("en", "no preference"),
        ("en", "why is there no swimming"),
        ("en", "is there no ferry?"),
        ("en", "are dogs not allowed"),
        ("en", "does the ferry not run"),
        ("en", "the rye that would not rise"),
        ("de", "warum gibt es kein Schwimmen"),
        ("es", "por qué no hay playa"),
        ("fr", "pourquoi pas"),
    ],
)
def test_talk_and_questions_of_facts_exclude_nothing(language: str, text: str) -> None:
    assert parse_question(text, TODAY, language) == ()


@pytest.mark.parametrize(
    ("language", "text", "part", "words", "metres"),
    [
        ("en", "cafes near the harbour", "near the harbour", "harbour", None),
        ("en", "close to the station", "close to the station", "station", None),
        ("en", "cafes around Old Town", "around Old Town", "Old Town", None),
        ("en", "next to the pier", "next to the pier", "pier", None),
        ("en", "a hotel by the sea", "by the sea", "sea", None),
        ("en", "within 2 km of the harbour", "within 2 km of the harbour", "harbour", 2000.0),
        ("en", "less than 1 mile from Merrow Pier", "less than 1 mile from Merrow Pier", "Merrow Pier", 1609.344),
        ("en", "within 500 m of me", "within 500 m of me", "", 500.0),
        ("en", "anything nearby?", "nearby", "", None),
        ("en", "cafes near me", "near me", "", None),
        ("de", "Cafés in der Nähe vom Hafen", "in der Nähe vom Hafen", "Hafen", None),
        ("es", "cafés cerca del puerto", "cerca del puerto", "puerto", None),
        ("fr", "cafés près du port", "près du port", "port", None),
    ],
)
def test_nearness_is_read_with_its_place(language: str, text: str, part: str, words: str, metres: float | None) -> None:
    assert parse_question(text, TODAY, language) == (NearPlace(words, *span(text, part), metres),)


@pytest.mark.parametrize(
    ("language", "text", "part", "words"),
    [
        ("en", "hotels in Rome", "in Rome", "Rome"),
        ("en", "what happened at the lighthouse?", "at the lighthouse", "lighthouse"),
        ("en", "cheese from Merrow", "from Merrow", "Merrow"),
        ("en", "museums in the Isle of Man", "in the Isle of Man", "Isle of Man"),
        ("en", "in New York City with a pool", "in New York City", "New York City"),
        ("de", "Hotels in Rom", "in Rom", "Rom"),
        ("es", "hoteles en Roma", "en Roma", "Roma"),
        ("fr", "hôtels à Rome", "à Rome", "Rome"),
    ],
)
def test_the_words_behind_a_preposition_may_be_a_place(language: str, text: str, part: str, words: str) -> None:
    assert parse_question(text, TODAY, language) == (PlaceMention(words, *span(text, part)),)


@pytest.mark.parametrize("text", ["walk-in closets", "in general", "from scratch", "at 8pm", "in it", "at"])
def test_a_preposition_without_a_place_is_left_alone(text: str) -> None:
    assert parse_question(text, TODAY) == ()


@pytest.mark.parametrize(
    ("language", "text", "part", "name", "value"),
    [
        ("en", "free concerts", "free", "free", True),
        ("en", "entry for free", "for free", "free", True),
        ("en", "free of charge", "free of charge", "free", True),
        ("en", "not free", "not free", "free", False),
        ("en", "shirts in stock", "in stock", "available", True),
        ("en", "available shirts", "available", "available", True),
        ("en", "cafes open now", "open now", "open", True),
        ("en", "wheelchair accessible museums", "wheelchair accessible", "accessible", True),
        ("en", "step-free museums", "step-free", "accessible", True),
        ("en", "things for kids", "for kids", "children", True),
        ("en", "family-friendly hotels", "family-friendly", "children", True),
        ("de", "kostenlose Konzerte", "kostenlose", "free", True),
        ("de", "barrierefrei", "barrierefrei", "accessible", True),
        ("es", "conciertos gratis", "gratis", "free", True),
        ("fr", "pour les enfants", "pour les enfants", "children", True),
    ],
)
def test_a_flag_is_read_as_a_claim(language: str, text: str, part: str, name: str, value: bool) -> None:
    assert parse_question(text, TODAY, language) == (Flag(name, value, *span(text, part)),)


@pytest.mark.parametrize("text", ["free range eggs", "free-range eggs", "feel free to ask", "hotels with free wifi"])
def test_free_with_another_meaning_is_no_flag(text: str) -> None:
    assert parse_question(text, TODAY) == ()


@pytest.mark.parametrize(
    ("language", "text", "part", "words"),
    [
        ("en", "books by Hester Quill", "by Hester Quill", "Hester Quill"),
        ("en", "novels written by J. K. Marsh", "written by J. K. Marsh", "J. K. Marsh"),
        ("en", "shoes from the brand Dunnock's", "from the brand Dunnock's", "Dunnock's"),
        ("de", "Bücher von Hester Quill", "von Hester Quill", "Hester Quill"),
        ("es", "libros escritos por Hester Quill", "escritos por Hester Quill", "Hester Quill"),
        ("fr", "livres écrits par Hester Quill", "écrits par Hester Quill", "Hester Quill"),
    ],
)
def test_a_maker_is_read_by_name(language: str, text: str, part: str, words: str) -> None:
    assert parse_question(text, TODAY, language) == (MakerMention(words, *span(text, part)),)


def test_a_question_with_many_wishes_is_read_in_order() -> None:
    text = "Quick dinner by Hester Quill under 30 minutes, gluten-free, without nuts for 4 people, cheapest first, \
near the harbour this weekend"
    assert parse_question(text, TODAY) == (
        MakerMention("Hester Quill", *span(text, "by Hester Quill")),
        Quantity("duration", "lt", 1800.0, None, "s", "", *span(text, "under 30 minutes")),
        Exclusion("gluten", *span(text, "gluten-free"), free=True),
        Exclusion("nuts", *span(text, "without nuts")),
        Quantity("count", "gte", 4.0, None, "", "people", *span(text, "for 4 people")),
        SortOrder("price", False, *span(text, "cheapest first")),
        NearPlace("harbour", *span(text, "near the harbour")),
        DateRange(day("2026-11-21"), day("2026-11-23"), "this weekend", *span(text, "this weekend")),
    )


@pytest.mark.parametrize(
    ("text", "kind", "op", "value", "upper", "unit"),
    [
        ("less than $20", "price", "lt", 20.0, None, "USD"),
        ("under 20 minutes", "duration", "lt", 20 * MINUTE, None, "s"),
        ("20-40 minutes", "duration", "between", 20 * MINUTE, 40 * MINUTE, "s"),
        ("20–40 min", "duration", "between", 20 * MINUTE, 40 * MINUTE, "s"),
        ("over an hour", "duration", "gt", HOUR, None, "s"),
        ("30 minutes", "duration", "eq", 30 * MINUTE, None, "s"),
        ("4 stars", "rating", "eq", 4.0, None, ""),
        ("4+", "number", "gte", 4.0, None, ""),
        ("<= 15", "number", "lte", 15.0, None, ""),
        ("<15", "number", "lt", 15.0, None, ""),
        (">= 15", "number", "gte", 15.0, None, ""),
        ("10..20", "number", "between", 10.0, 20.0, ""),
        ("10-20", "number", "between", 10.0, 20.0, ""),
        ("20", "number", "eq", 20.0, None, ""),
        ("2019", "number", "eq", 2019.0, None, ""),
        ("$20", "price", "eq", 20.0, None, "USD"),
    ],
)
def test_a_value_is_read_as_a_comparison(
    text: str, kind: str, op: str, value: float, upper: float | None, unit: str
) -> None:
    assert parse_value(text, TODAY) == (Quantity(kind, op, value, upper, unit, "", 0, len(text)),)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-12-05", "2026-12-05", "2026-12-06"),
        ("this weekend", "2026-11-21", "2026-11-23"),
        ("December", "2026-12-01", "2027-01-01"),
        ("Saturday", "2026-11-21", "2026-11-22"),
    ],
)
def test_a_value_is_read_as_a_time(text: str, start: str, end: str) -> None:
    assert parse_value(text, TODAY) == (DateRange(day(start), day(end), text, 0, len(text)),)


def test_a_value_that_only_has_a_number_in_it_is_not_read_as_that_number() -> None:
    assert parse_value("Route 66", TODAY) == ()


@pytest.mark.parametrize(
    "text", ["9" * 10_000, " " * 10_000, "1," * 5_000, "not " * 2_500, "a-" * 5_000, "a'" * 5_000, "." * 10_000]
)
def test_hostile_text_says_nothing(text: str) -> None:
    assert parse_question(text, TODAY) == ()


@pytest.mark.parametrize("text", ["under 20 " * 1_000, "without nuts, " * 1_000, "without nuts and " * 1_000])
def test_no_question_has_more_findings_than_the_bound(text: str) -> None:
    assert len(parse_question(text, TODAY)) == MAX_FINDINGS


FRAGMENTS = """
under over at least most between and or to from in on by near without no not free - -free , . 5 20 2026 $ € 1.000,50 1,5
four hour minutes stars km of the a half december saturday next last this weekend weeks days today cheapest nuts rome
unter ohne bis zwischen und uhr 5. dezember sin menos de una hora y media fin semana sans moins d' une demi heure + ..
<= % g people old kids children ’ ½ ² ¨ \u0301 İ ﬁ 茶
"""

phrases = st.lists(st.sampled_from(FRAGMENTS.split()), max_size=14).map(" ".join)
glued = st.lists(st.sampled_from(FRAGMENTS.split()), max_size=8).map("".join)


@settings(max_examples=400)
@given(
    text=st.one_of(phrases, glued, st.text(max_size=60)),
    today=st.dates(),
    language=st.sampled_from(("en", "de", "es", "fr", "", "pt-BR")),
    reader=st.sampled_from((parse_question, parse_value)),
)
def test_any_text_is_read_into_findings_in_order_that_lie_in_it(
    text: str, today: date, language: str, reader: Callable[[str, date, str], tuple[Finding, ...]]
) -> None:
    place = 0
    for finding in reader(text, today, language):
        assert place <= finding.start < finding.end <= len(text)
        place = finding.end
        match finding:
            case DateRange(start_at=datetime() as start, end_at=datetime() as end):
                assert start < end
            case Quantity(value=value, upper=float() as upper):
                assert value <= upper
            case Exclusion(words=words) | PlaceMention(words=words) | MakerMention(words=words):
                assert words in text
            case _:
                pass
