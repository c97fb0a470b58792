"""What a site says in its own words: a language for every visitor, and options that are read back as meant."""

from dataclasses import fields
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.ask.languages.localization import LANGUAGES, Phrases, best_language, phrases, read_range

EVERY = [phrases(language) for language in LANGUAGES]
every_language = pytest.mark.parametrize("said", EVERY, ids=LANGUAGES)


@pytest.mark.parametrize(
    ("accept", "language"),
    [
        ("de", "de"),
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("DE_at", "de"),
        ("zh-Hans-CN", "zh"),
        ("zh-TW", "zh"),
        ("ja-JP-x-lvariant-JP", "ja"),
        ("nl, fr;q=0.4, es;q=0.7", "es"),
        ("fr;q=0, es;q=0.1", "es"),
        ("en;q=0.5,fr;q=0.5", "en"),
        (" fr ; q=0.3 , de;q=1.000", "de"),
        ("fr;q=2, de;q=high, es;q=0.1", "es"),
        ("pt-BR, *;q=0.5", "en"),
        ("*", "en"),
        ("", "en"),
        ("deutsch", "en"),
        ("🙂;;;q=,=,", "en"),
        ("x" * 10_000, "en"),
        ("xx," * 4_000 + "de", "en"),
    ],
)
def test_the_most_wanted_language_that_is_known_is_spoken(accept: str, language: str) -> None:
    assert phrases(accept).language == language


def test_a_longer_known_language_is_found_before_a_shorter_one() -> None:
    known = ("en", "zh", "zh-Hant", "sr-Latn")

    assert best_language("zh-hant-tw, zh;q=0.9", known) == "zh-Hant"
    assert best_language("zh-CN", known) == "zh"
    assert best_language("sr", known) == "en"  # RFC 4647 3.4: a lookup never lengthens what was asked for
    assert best_language("sr-Latn-a-ext", known) == "sr-Latn"
    assert best_language("de", ()) == ""


@given(st.text(max_size=300))
def test_any_accept_language_value_gets_an_answer(accept: str) -> None:
    assert phrases(accept).language in LANGUAGES


@every_language
def test_every_language_has_every_phrase(said: Phrases) -> None:
    english = phrases("en")
    texts = [field.name for field in fields(Phrases) if isinstance(getattr(said, field.name), str)]

    assert all(getattr(said, name).strip() for name in texts)
    assert said.nouns.keys() == english.nouns.keys()
    assert said.questions.keys() == english.questions.keys()
    assert len({said.yes, said.no, said.any, said.no_preference}) == 4
    if said is not english:
        same = [name for name in texts if getattr(said, name) == getattr(english, name) and name != "no"]
        assert same == []


@pytest.mark.parametrize(
    ("language", "one", "many"),
    [
        ("en", "1 recipe fits.", "12 recipes fit."),
        ("de", "1 Rezept passt.", "12 Rezepte passen."),
        ("es", "1 receta encaja.", "12 recetas encajan."),
        ("fr", "1 recette convient.", "12 recettes conviennent."),
        ("zh", "有1个食谱符合要求。", "有12个食谱符合要求。"),
        ("ja", "1件のレシピが見つかりました。", "12件のレシピが見つかりました。"),
    ],
)
def test_one_is_said_otherwise_than_many(language: str, one: str, many: str) -> None:
    said = phrases(language)

    assert said.fit(1, said.noun("Recipe", 1)) == one
    assert said.fit(12, said.noun("Recipe", 12)) == many


def test_things_without_a_word_of_their_own_are_results() -> None:
    assert [said.fit(3, said.noun("Starship", 3)) for said in EVERY] == [
        "3 results fit.",
        "3 Treffer passen.",
        "3 resultados encajan.",
        "3 résultats conviennent.",
        "有3条结果符合要求。",
        "3件が見つかりました。",
        "نتائج بحسب طلبك: 3.",
    ]


def test_nothing_found_names_what_was_looked_for_and_which_limits_were_understood() -> None:
    assert [said.nothing_for("tea") for said in EVERY] == [
        "I found nothing for “tea”.",
        "Zu „tea“ habe ich nichts gefunden.",
        "No he encontrado nada sobre «tea».",
        "Je n’ai rien trouvé pour «\u00a0tea\u00a0».",
        "没有找到与“tea”相关的内容。",
        "「tea」に合うものは見つかりませんでした。",
        "لم أجد شيئًا عن «tea».",
    ]
    english = phrases("en").nothing_within
    assert english(["vegan"]) == "I found nothing with this limit: vegan. It may help to leave it out."
    assert english(["vegan", "under 20 minutes"]) == (
        "I found nothing with these limits: vegan; under 20 minutes. It may help to leave one of them out."
    )
    for said in EVERY[1:]:
        one, two = said.nothing_within(["A"]), said.nothing_within(["A", "B"])
        assert ("B" in two, "A" in two, "B" in one, "A" in one) == (True, True, False, True)
        assert one != two.replace("B", "")


def test_lists_are_joined_as_people_say_them() -> None:
    assert [said.join(["A", "B", "C"]) for said in EVERY] == [
        "A, B and C",
        "A, B und C",
        "A, B y C",
        "A, B et C",
        "A、B和C",
        "A、BとC",
        "A\u200f، B\u200f و C",
    ]
    two = ["A and B", "A und B", "A y B", "A et B", "A和B", "AとB", "A\u200f و B"]
    assert [said.join(["A", "B"]) for said in EVERY] == two
    assert {said.join(["A"]) for said in EVERY} == {"A"}
    assert {said.join([]) for said in EVERY} == {""}


def test_the_spanish_and_changes_before_its_own_sound() -> None:
    spanish = phrases("es")

    assert spanish.join(["francesa", "italiana"]) == "francesa e italiana"
    assert spanish.join(["agua", "hielo"]) == "agua y hielo"
    assert spanish.join(["padres", "hijos"]) == "padres e hijos"


def test_names_that_could_be_misread_are_quoted() -> None:
    english = phrases("en")

    assert english.names(["Tea", "Salt"]) == "Tea and Salt"
    assert english.names(["Tea, black", "Salt"]) == "“Tea, black” and “Salt”"
    assert english.names(["Who is it?", "Salt"]) == "“Who is it?” and “Salt”"
    assert english.names(["Tea, black"]) == "Tea, black"
    assert english.name("Who is it?") == "“Who is it?”"
    assert [said.names(["a,b", "c"]) for said in EVERY[1:]] == [
        "„a,b“ und „c“",
        "«a,b» y «c»",
        "«\u00a0a,b\u00a0» et «\u00a0c\u00a0»",
        "“a,b”和“c”",
        "「a,b」と「c」",
        "\u200f«a,b»\u200f\u200f و \u200f«c»\u200f",
    ]


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (1500, ["25 minutes", "25 Minuten", "25 minutos", "25 minutes", "25分钟", "25分", "25 دقيقة"]),
        (60, ["1 minute", "1 Minute", "1 minuto", "1 minute", "1分钟", "1分", "1 دقيقة"]),
        (45, ["45 seconds", "45 Sekunden", "45 segundos", "45 secondes", "45秒", "45秒", "45 ثانية"]),
        (
            4200,
            [
                "1 hour 10 minutes",
                "1 Stunde 10 Minuten",
                "1 hora 10 minutos",
                "1 heure 10 minutes",
                "1小时10分钟",
                "1時間10分",
                "1 ساعة 10 دقيقة",
            ],
        ),
        (
            2 * 86_400 + 7200,
            [
                "2 days 2 hours",
                "2 Tage 2 Stunden",
                "2 días 2 horas",
                "2 jours 2 heures",
                "2天2小时",
                "2日2時間",
                "2 أيام 2 ساعة",
            ],
        ),
        (0, ["0 minutes", "0 Minuten", "0 minutos", "0 minutes", "0分钟", "0分", "0 دقيقة"]),
    ],
)
def test_lengths_of_time_are_written_for_people(seconds: float, written: list[str]) -> None:
    assert [said.duration(seconds) for said in EVERY] == written


def test_dates_are_written_as_people_write_them() -> None:
    assert [said.day(date(2026, 12, 5)) for said in EVERY] == [
        "5 December 2026",
        "5. Dezember 2026",
        "5 de diciembre de 2026",
        "5 décembre 2026",
        "2026年12月5日",
        "2026年12月5日",
        "5 ديسمبر 2026",
    ]
    assert phrases("fr").day(date(2027, 1, 1)) == "1er janvier 2027"
    assert phrases("de").day(date(2027, 3, 1)) == "1. März 2027"


@pytest.mark.parametrize(
    ("amount", "currency", "written"),
    [
        (12.5, "GBP", ["£12.50", "12,50 £", "12,50 £", "12,50 £", "£12.50", "£12.50", "12.50 £"]),
        (4.0, "eur", ["€4", "4 €", "4 €", "4 €", "€4", "€4", "4 €"]),
        (1200, "JPY", ["¥1200", "1200 ¥", "1200 ¥", "1200 ¥", "JP¥1200", "1200円", "1200 ¥"]),
        (
            12_000,
            "CNY",
            ["CN¥12,000", "12.000 CN¥", "12.000 CN¥", "12\u202f000 CN¥", "¥12,000", "CN¥12,000", "12,000 CN¥"],
        ),
        (9.9, "CHF", ["CHF 9.90", "9,90 CHF", "9,90 CHF", "9,90 CHF", "CHF 9.90", "CHF 9.90", "9.90 CHF"]),
        (0.2345, "$", ["$0.2345", "0,2345 $", "0,2345 $", "0,2345 $", "$0.2345", "$0.2345", "0.2345 $"]),
        (3, "", ["3"] * 7),
        (3, "<b>£</b>", ["3"] * 7),
    ],
)
def test_money_is_written_with_the_sign_of_its_currency(amount: float, currency: str, written: list[str]) -> None:
    assert [said.money(amount, currency) for said in EVERY] == written


def test_a_price_tag_has_cents_wherever_its_currency_has_them() -> None:
    tags = [(1300, "EUR"), (1200, "jpy"), (1234.5, ""), (5, "points")]

    assert [phrases("en").price_tag(*tag) for tag in tags] == ["€1,300.00", "¥1,200", "1,234.50", "5"]
    assert [phrases("de").price_tag(*tag) for tag in tags] == ["1.300,00 €", "1.200 ¥", "1.234,50", "5"]


def test_facets_that_are_known_are_asked_for_in_whole_sentences_and_others_by_their_label() -> None:
    assert [said.question("people", "guests") for said in EVERY] == [
        "For how many people?",
        "Für wie viele Personen?",
        "¿Para cuántas personas?",
        "Pour combien de personnes\u00a0?",
        "一共几个人？",
        "何名様ですか？",
        "لكم شخصًا؟",
    ]
    assert [said.question("", "format") for said in EVERY] == [
        "Which format?",
        "Format: Was darf es sein?",
        "¿Qué format?",
        "Format\u00a0: que souhaitez-vous\u00a0?",
        "想要什么样的format？",
        "formatはどれがよいですか？",
        "format: ماذا تريد؟",
    ]


def test_ranges_of_time_are_offered_in_simple_words() -> None:
    assert [
        [said.time_range(None, 1200), said.time_range(1200, 2400), said.time_range(2400, None)] for said in EVERY
    ] == [
        ["under 20 minutes", "20-40 minutes", "over 40 minutes"],
        ["unter 20 Minuten", "20-40 Minuten", "über 40 Minuten"],
        ["menos de 20 minutos", "20-40 minutos", "más de 40 minutos"],
        ["moins de 20 minutes", "20-40 minutes", "plus de 40 minutes"],
        ["20分钟以内", "20～40分钟", "40分钟以上"],
        ["20分以内", "20～40分", "40分以上"],
        ["أقل من 20 دقيقة", "20-40 دقيقة", "أكثر من 40 دقيقة"],
    ]
    assert phrases("en").time_range(2700, 7200) == "45-120 minutes"
    assert phrases("de").time_range(3600, None) == "über 1 Stunde"


def test_ranges_of_prices_are_offered_in_simple_words() -> None:
    offered = [
        [said.price_range(None, 10, "GBP"), said.price_range(10, 25, "GBP"), said.price_range(25, None, "GBP")]
        for said in EVERY
    ]

    assert offered == [
        ["up to £10", "£10-£25", "over £25"],
        ["bis 10 £", "10-25 £", "über 25 £"],
        ["hasta 10 £", "10-25 £", "más de 25 £"],
        ["jusqu'à 10 £", "10-25 £", "plus de 25 £"],
        ["£10以内", "£10～£25", "£25以上"],
        ["£10以下", "£10～£25", "£25以上"],
        ["حتى 10 £", "10-25 £", "أكثر من 25 £"],
    ]


limits = st.one_of(
    st.tuples(st.none(), st.integers(1, 10**6)),
    st.tuples(st.integers(0, 10**6), st.none()),
    st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)),
)


@given(st.sampled_from(LANGUAGES), limits)
def test_every_range_of_time_is_read_back(language: str, limit: tuple[int | None, int | None]) -> None:
    assert read_range(phrases(language).time_range(*limit)) == limit


@given(
    st.sampled_from(LANGUAGES),
    limits,
    st.sampled_from(["", "GBP", "EUR", "USD", "JPY", "CNY", "BRL", "CHF", "₱", "XYZ"]),
)
def test_every_range_of_prices_is_read_back(language: str, limit: tuple[int | None, int | None], currency: str) -> None:
    low, high = (None if cents is None else cents / 100 for cents in limit)

    assert read_range(phrases(language).price_range(low, high, currency)) == (low, high)


@pytest.mark.parametrize(
    "text", ["", "any", "20 minutes", "£10", "vegan", "10-", "-5", "under", "under 5-10 minutes", "9" * 10_000]
)
def test_what_is_no_range_is_not_read(text: str) -> None:
    assert read_range(text) is None


@every_language
def test_a_range_without_limits_is_any(said: Phrases) -> None:
    assert said.time_range(None, None) == said.price_range(None, None, "EUR") == said.any
    assert read_range(said.any) is None


@every_language
def test_what_was_understood_is_said_in_every_language(said: Phrases) -> None:
    english, limits = phrases("en").limits, said.limits

    assert limits.compares.keys() == english.compares.keys()
    names = [field.name for field in fields(limits) if isinstance(getattr(limits, field.name), str)]
    blanks = {name: (getattr(limits, name).count("{"), getattr(english, name).count("{")) for name in names}
    assert [name for name, (own, wanted) in blanks.items() if own != wanted] == []
    if said.language != "en":
        assert limits.words.keys() == phrases("de").limits.words.keys()
        assert (said.word("total time") != "total time", said.word("tide")) == (True, "tide")
