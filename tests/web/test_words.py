"""What the pages say: the same in every language, which comes only where it is spoken."""

import re

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser
from tests.protocols.conftest import asking

from portico.ask.languages.loader import LANGUAGES as SPOKEN
from portico.ask.languages.loader import load_language
from portico.ask.languages.localization import phrases
from portico.ask.outcomes import SUMS
from portico.server.assembly import Parts
from portico.web.assets import assets
from portico.web.home import FIRST, LANGUAGES, MODULES
from portico.web.style import page
from portico.web.vocabulary import NAMES, TEXTS
from portico.web.words import page_words, word

OTHERS = LANGUAGES[1:]
MOST = 145_000  # bytes of scripts and style sheets, in English


def written(name: str) -> str:
    return assets()[name].decode()


def table(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+): "([^"]*)"', text))


def english() -> dict[str, str]:
    found = re.search(r"^const ENGLISH = \{\n(.*?)^\};$", written("words.js"), re.MULTILINE | re.DOTALL)
    assert found
    return table(found[1])


def built_in(name: str) -> set[str]:
    """English that dom.js brings along."""
    found = re.search(rf"^const {name} = \{{(.*?)\}};$", written("dom.js"), re.MULTILINE | re.DOTALL)
    assert found
    return set(table(found[1]))


def test_every_language_has_every_word_and_the_same_blanks() -> None:
    said = {tag: table(written(f"words-{tag}.js")) for tag in OTHERS}

    assert len(english()) > 50
    assert {tag: said[tag].keys() for tag in OTHERS} == dict.fromkeys(OTHERS, said["de"].keys())
    assert {*english(), *built_in("FORM_WORDS"), *built_in("THEME_WORDS")} <= said["de"].keys()
    for name, text in english().items():
        blanks = sorted(re.findall(r"\{\w+\}", text))
        assert {tag: sorted(re.findall(r"\{\w+\}", said[tag][name])) for tag in OTHERS} == dict.fromkeys(OTHERS, blanks)


def test_pages_and_scripts_have_the_same_words_for_facts() -> None:
    said = {"en": english(), **{tag: table(written(f"words-{tag}.js")) for tag in OTHERS}}
    names = {"free": "free", "price": "price", "in stock": "inStock", "sold out": "soldOut"}

    for tag in LANGUAGES:
        assert {name: word(name, phrases(tag)) for name in names} == {name: said[tag][js] for name, js in names.items()}


def test_pages_have_every_word_in_every_language_that_facts_are_told_in() -> None:
    assert tuple(TEXTS) == tuple(NAMES)
    assert set(TEXTS) == set(SPOKEN) >= set(LANGUAGES)
    blanks = {name: text.count("{}") for name, text in TEXTS["en"].items()}
    assert {tag: {name: text.count("{}") for name, text in each.items()} for tag, each in TEXTS.items()} == (
        dict.fromkeys(TEXTS, blanks)
    )
    others = {tag: each.keys() for tag, each in NAMES.items() if tag != "en"}
    assert others == dict.fromkeys(others, NAMES["de"].keys() | NAMES["en"].keys())


def test_pages_and_scripts_have_the_same_words_for_asking_and_for_prices_and_kinds() -> None:
    said = {"en": english(), **{tag: table(written(f"words-{tag}.js")) for tag in OTHERS}}

    assert {tag: TEXTS[tag]["ask"] for tag in LANGUAGES} == {tag: said[tag]["ask"] for tag in LANGUAGES}
    assert {tag: label_of(tag, "price") for tag in SPOKEN} == {tag: word("price", phrases(tag)) for tag in SPOKEN}
    kinds = {tag: re.sub("<.*?>", "", page_words(tag).kind("CafeOrCoffeeShop")) for tag in OTHERS}
    assert kinds == {tag: said[tag]["CafeOrCoffeeShop"] for tag in OTHERS}


def test_pages_and_scripts_take_the_same_members_of_a_result_for_money() -> None:
    money = re.search(r"MONEY = /.*?\(\?:(.*?)\)", written("cards.js"))

    assert money
    assert money[1].split("|") == list(SUMS)


def label_of(language: str, name: str) -> str:
    return re.sub("<.*?>", "", page_words(language).label(name))


def test_the_languages_of_the_page_are_the_same_wherever_they_are_named() -> None:
    named = re.search(r"LANGUAGES = \{(.*?)\};", written("words.js"))
    first = re.search(r"\[([^]]*)\]\.includes", written(FIRST))
    assert named
    assert first

    assert tuple(table(named[1])) == LANGUAGES
    assert tuple(re.findall(r'"(\w\w)"', first[1])) == LANGUAGES
    assert {name for name in assets() if name.startswith("words-")} == {FIRST, *(f"words-{tag}.js" for tag in OTHERS)}


def test_pages_and_scripts_write_the_same_languages_from_right_to_left() -> None:
    named = re.search(r"RIGHT_TO_LEFT = new Set\(\[(.*?)\]\)", written("words.js"))
    assert named
    turned = re.findall(r'"(\w+)"', named[1])

    assert {tag for tag in (*turned, *LANGUAGES) if ' dir="rtl"' in page("", "", lang=tag)} == set(turned)
    assert re.findall(r'language === "(\w+)" \? "rtl"', written(FIRST)) == [tag for tag in LANGUAGES if tag in turned]


def listed(name: str) -> list[str]:
    found = re.search(rf"const {name} =\n(.*?);$", written("words.js"), re.MULTILINE | re.DOTALL)
    assert found
    return sorted("".join(re.findall(r'"([^"]*)"', found[1])).split("|"))


def test_the_page_knows_every_greeting_that_a_site_greets_back_its_thanks_and_farewells() -> None:
    small_talk = [load_language(language).small_talk for language in SPOKEN]

    assert listed("GREETINGS") == sorted(each for one in small_talk for each in one.greetings.split("|"))
    assert listed("THANKS") == sorted(each for one in small_talk for each in one.thanks.split("|"))
    assert listed("FAREWELLS") == sorted(each for one in small_talk for each in one.farewells.split("|"))


@pytest.fixture
async def home(parts: Parts) -> LexborHTMLParser:
    async with asking(parts) as client:
        answer: httpx.Response = await client.get("/")
    return LexborHTMLParser(answer.text)


async def test_a_page_in_english_loads_no_other_language_and_weighs_little(home: LexborHTMLParser) -> None:
    links = [each.attributes.get("src") or each.attributes["href"] or "" for each in home.css("link, script[src]")]
    names = {each.rpartition("/")[2] for each in links} - {"icon.svg"}

    assert names == {*MODULES, FIRST, "theme.js", "portico.css", "chat.css"}
    assert sum(len(assets()[name]) for name in names) < MOST
