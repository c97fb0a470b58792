"""Which field titles an item, shows it, prices it: by its name in many languages, and by what it holds."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from portico.catalog import FieldType
from portico.sources.role_names import match_name
from portico.sources.roles import FieldProfile, assign_roles

TITLES = ("A Night at the Opera", "The Dark Side of the Moon", "Kind of Blue")
NAMES = ("Maria", "Tunde", "Akiko")


def text(name: str, *examples: Any, format: str = "", distinct: float = 1.0, coverage: float = 1.0) -> FieldProfile:
    values = examples or TITLES
    length = sum(len(str(value)) for value in values) / len(values)
    return FieldProfile(name, FieldType.STRING, format, coverage, distinct, length, values)


def number(name: str, *examples: Any, format: str = "", kind: FieldType = FieldType.NUMBER) -> FieldProfile:
    return FieldProfile(name, kind, format, examples=examples or (1.5, 2.5))


def moment(name: str) -> FieldProfile:
    return FieldProfile(name, FieldType.TIMESTAMP, "date", examples=("2019-03-18", "2020-01-02"))


@pytest.mark.parametrize(
    "name",
    [
        "name", "NAME", "Title", "titel", "Titre", "nombre", "título", "TITOLO", "naam", "nazwa", "tytuł", "Название",
        "наименование", "名前", "タイトル", "商品名", "名称", "标题", "標題", "이름", "상품명",
        "الاسم", "عنوان", "Başlık", "İsim", "név",
        "όνομα", "שם", "नाम", "ชื่อ", "Recipe Name",
        "product_title", "productTitle", "PRODUCT-NAME", "Artikelbezeichnung",
        "Produktname", "TrackName", "Nom du produit", "Nombre del producto", "Название товара", "書籍タイトル",
        "title_en",
        "Name (de)", "Item Name 1",
    ],
)  # fmt: skip
def test_a_title_is_known_by_its_name_in_any_language(name: str) -> None:
    profiles = [text("remark", "Out of stock", "Sold in pairs", "By the metre"), text(name)]

    assert assign_roles(profiles)["title"] == name


@pytest.mark.parametrize(
    ("role", "name", "profile"),
    [
        ("description", "Beschreibung", text("Beschreibung", "A long and quiet record that nobody expected. " * 4)),
        ("description", "Body (HTML)", text("Body (HTML)", "<p>A record that nobody expected.</p>", format="html")),
        ("description", "説明", text("説明", "静かな港の町の話です。" * 5)),
        ("image", "Poster_Link", text("Poster_Link", "https://img.example/a.jpg", "https://img.example/b.jpg")),
        ("image", "Image Src", text("Image Src", "https://img.example/a?w=5", "https://img.example/b", format="url")),
        ("image", "Bild", text("Bild", "a.jpg", "b.png")),
        ("link", "Website", text("Website", "https://a.example", "https://b.example", format="url")),
        ("link", "permalink", text("permalink", "/2019/one", "/2019/two")),
        ("price", "Variant Price", number("Variant Price", format="money")),
        ("price", "Preis (EUR)", number("Preis (EUR)")),
        ("price", "UnitPrice", number("UnitPrice")),
        ("price", "prix unitaire", number("prix unitaire")),
        ("price", "価格", number("価格", kind=FieldType.INTEGER)),
        ("price", "цена", number("цена")),
        ("date", "Veröffentlicht", moment("Veröffentlicht")),
        ("date", "release_date", moment("release_date")),
        ("date", "Jahr", number("Jahr", 1999, 2004, format="year", kind=FieldType.INTEGER)),
        ("place", "City", text("City", "Lisbon", "Porto", distinct=0.2)),
        ("place", "住所", text("住所", "東京都港区", "大阪市北区")),
        ("place", "ciudad", text("ciudad", "Sevilla", "Lugo")),
    ],
)
def test_other_roles_are_known_by_name_and_kind(role: Any, name: str, profile: FieldProfile) -> None:
    assert assign_roles([text("name"), profile])[role] == name


def test_a_title_is_found_by_what_a_field_holds() -> None:
    profiles = [
        text("sku", "A-100", "A-200", "B-300"),
        text("colour", "red", "blue", "green", distinct=0.01),
        text("what", *TITLES),
        text("story", "It was a long way to the harbour, and nobody had told the captain of it. " * 3),
    ]

    roles = assign_roles(profiles)

    assert (roles["title"], roles["description"]) == ("what", "story")


@pytest.mark.parametrize(
    "profile",
    [
        text("name", "5f4dcc3b5aa765d61d8327deb882cf99", "098f6bcd4621d373cade4e832627b4f6"),
        text("title", "https://a.example/1", "https://a.example/2", format="url"),
        text("name", "ann@a.example", "bo@a.example", format="email"),
        text("title", "0001", "0002", "0003"),
        text("name", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", format="uuid"),
        number("name", 1, 2, kind=FieldType.INTEGER),
    ],
)
def test_no_hash_number_or_address_is_a_title(profile: FieldProfile) -> None:
    assert "title" not in assign_roles([profile])
    assert assign_roles([profile, text("what")])["title"] == "what"


def test_a_code_is_a_title_only_where_no_text_will_do() -> None:
    code = text("name", "AB-1", "AB-2", format="code")

    assert assign_roles([code])["title"] == "name"
    assert assign_roles([code, text("what")])["title"] == "what"


@pytest.mark.parametrize(
    ("collection", "profiles", "title"),
    [
        ("albums", [text("Artist Name", "Queen", "Queen", distinct=0.5), text("Album Title")], "Album Title"),
        ("products", [text("CategoryName", "Food", "Tea", distinct=0.1), text("ProductName")], "ProductName"),
        ("sales", [text("Region Name", "North", "South", distinct=0.01), text("memo")], "memo"),
        ("posts", [text("title"), text("name")], "name"),
        ("albums", [number("AlbumId", 1, 2, kind=FieldType.INTEGER), text("Title"), text("Label")], "Title"),
    ],
)
def test_of_several_names_the_one_of_the_thing_itself_is_the_title(
    collection: str, profiles: Sequence[FieldProfile], title: str
) -> None:
    assert assign_roles(profiles, collection)["title"] == title


@pytest.mark.parametrize(
    ("given", "family"),
    [("FirstName", "LastName"), ("vorname", "Nachname"), ("Prénom", "Nom"), ("Nombre", "Apellidos"), ("名", "姓"),
     ("Имя", "Фамилия"), ("voornaam", "achternaam")],
)  # fmt: skip
def test_people_are_called_by_both_their_names(given: str, family: str) -> None:
    jobs = text("Title", "Sales Manager", "IT Staff", "General Manager")

    roles = assign_roles([text(given, *NAMES), text(family, "Silva", "Okoro", "Mori"), jobs, text("Company")])

    assert (roles["given_name"], roles["family_name"]) == (given, family)
    assert "title" not in roles


def test_a_full_name_is_the_title_beside_its_parts() -> None:
    roles = assign_roles([text("first_name", *NAMES), text("last_name", *NAMES), text("full_name", "Maria Silva")])

    assert roles["title"] == "full_name"


def test_a_position_needs_both_numbers_within_the_globe() -> None:
    position = [number("Lat", 38.7, 41.1), number("Lng", -9.1, -8.6)]

    assert assign_roles(position) == {"latitude": "Lat", "longitude": "Lng"}
    assert assign_roles([number("lat", 487_000.0), number("lng", 5.0)]) == {}
    assert assign_roles(position[:1]) == {}


@pytest.mark.parametrize(
    ("role", "profile"),
    [
        ("price", number("Variant Compare At Price", format="money")),
        ("price", text("price", "cheap", "dear")),
        ("price", number("salary", format="money")),
        ("date", moment("Date of Birth")),
        ("place", text("E-mail address", "a@a.example", "b@b.example", format="email")),
        ("place", text("IP Address", "10.0.0.1", "10.0.0.2")),
        ("image", text("cover", "hardcover", "paperback", distinct=0.1)),
        ("image", text("Image Alt Text", "A boat.jpg", "A cat.jpg")),
        ("link", text("link", "yes", "no", distinct=0.1)),
        ("title", text("user_name", "anna_b", "tom77", distinct=0.01)),
        ("title", text("subtitle", "Vol. 1", "Vol. 2", distinct=0.01)),
    ],
)
def test_a_name_that_only_looks_like_a_role_is_none(role: Any, profile: FieldProfile) -> None:
    assert role not in assign_roles([profile])


def test_a_field_has_one_role() -> None:
    roles = assign_roles([text("name"), text("summary", "A long text of some use to a reader. " * 3), text("city")])

    assert len(set(roles.values())) == len(roles)


def test_an_empty_field_has_no_role() -> None:
    assert assign_roles([FieldProfile("name", FieldType.STRING, coverage=0.0)]) == {}


def _seconds(work: Callable[[], object]) -> float:
    """The least processor time of several runs: what the work itself takes, also on a busy machine."""
    times: list[float] = []
    for _ in range(9):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@pytest.mark.parametrize("name", ["a" * 1000, "A_" * 500, "\U000e0001" * 50, "名" * 1000, "aA" * 500, "." * 500])
def test_the_time_for_a_name_does_not_grow_with_its_length(name: str) -> None:
    short, long = [name] * 100, [name * 100] * 100

    assert _seconds(lambda: list(map(match_name, long))) < 20 * _seconds(lambda: list(map(match_name, short)))


def test_the_time_for_a_table_grows_with_its_fields_and_not_faster() -> None:
    profiles = [text(f"Measured Value Name {place}") for place in range(2000)]

    few, many = (_seconds(lambda size=size: assign_roles(profiles[:size], "measurements")) for size in (200, 2000))

    assert many < 40 * few


def test_the_link_is_the_page_for_people_not_that_of_an_api():
    api = text("url", "https://api.github.example/repos/acme/w/issues/1", format="url")
    page = text("html_url", "https://github.example/acme/w/issues/1", format="url")

    assert assign_roles([api, page])["link"] == "html_url"
    assert assign_roles([api])["link"] == "url"


def test_a_state_that_says_how_far_a_thing_is_is_no_place():
    assert "place" not in assign_roles([text("state", "open", "closed", distinct=0.1)])
    assert assign_roles([text("state", "Texas", "Ohio"), text("name")])["place"] == "state"


def test_a_sale_price_that_few_items_have_is_not_the_price():
    sale = FieldProfile("Sale price", FieldType.NUMBER, coverage=0.3, examples=(8.5, 16))
    regular = FieldProfile("Regular price", FieldType.NUMBER, coverage=0.9, examples=(10, 18))

    assert assign_roles([sale, regular])["price"] == "Regular price"
