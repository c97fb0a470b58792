"""Rows of one thing become one item: products with variants and pictures, orders with lines."""

from pathlib import Path
from weakref import WeakSet

import pytest

from portico.errors import SourceError
from portico.sources.records import Doubt, Remark
from portico.sources.registry import Record
from portico.sources.variants import MAX_ROWS, group_rows

SHOP = """\
Handle,Title,Body (HTML),Vendor,Tags,Option1 Name,Option1 Value,Variant SKU,Variant Grams,Variant Inventory Policy,\
Variant Price,Variant Compare At Price,Image Src,Image Position,Image Alt Text,Status
oak-bowl,Oak Bowl,<p>Turned by hand.</p>,Lathe & Co,"wood, kitchen",Size,Small,OB-S,300,deny,38.00,,\
https://cdn.example/oak-1.jpg,1,Front,active
oak-bowl,,,,,,Medium,OB-M,500,deny,52.00,60.00,https://cdn.example/oak-2.jpg,2,,
oak-bowl,,,,,,Large,OB-L,900,deny,74.00,,,,,
oak-bowl,,,,,,,,,,,,https://cdn.example/oak-3.jpg,3,Side,
ash-spoon,Ash Spoon,<p>For porridge.</p>,Lathe & Co,wood,Title,Default Title,AS-1,40,deny,9.50,,\
https://cdn.example/spoon.jpg,1,,active
elm-board,Elm Board,<p>Oiled.</p>,Sawmill,wood,Size,Long,EB-L,1200,deny,64.00,,,,,draft
elm-board,,,,,,Short,EB-S,800,deny,49.99,,,,,
"""

ORDERS = """\
Order,Customer,Product,Quantity,Price
#1001,Ann,Tea,1,4.50
#1001,Ann,Cup,2,12.00
#1002,Bo,Tea,3,4.50
#1003,Cy,Pot,1,30.00
"""


def records(entries) -> dict[str, dict]:
    return {entry.id: entry.data for entry in entries if isinstance(entry, Record)}


@pytest.fixture
def table(tmp_path: Path):
    def write(text: str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def number(value) -> float:
    return float(value)


def test_a_product_export_is_grouped_without_a_setting(read, table):
    products = records(read(table(SHOP)))

    assert list(products) == ["oak-bowl", "ash-spoon", "elm-board"]
    bowl = products["oak-bowl"]
    assert (bowl["Title"], bowl["Vendor"], bowl["Option1 Name"]) == ("Oak Bowl", "Lathe & Co", "Size")
    assert bowl["Variant Inventory Policy"] == "deny"  # the same for all of its variants
    assert [variant["Option1 Value"] for variant in bowl["variants"]] == ["Small", "Medium", "Large"]
    assert [variant["Variant SKU"] for variant in bowl["variants"]] == ["OB-S", "OB-M", "OB-L"]
    assert ["Variant Compare At Price" in variant for variant in bowl["variants"]] == [False, True, False]
    assert bowl["Image Src"] == [f"https://cdn.example/oak-{n}.jpg" for n in (1, 2, 3)]
    assert bowl["Image Alt Text"] == ["Front", "Side"]


def test_a_row_with_nothing_but_a_picture_is_no_variant(read, table):
    products = records(read(table(SHOP)))

    assert {id: len(product["variants"]) for id, product in products.items()} == {
        "oak-bowl": 3,
        "ash-spoon": 1,
        "elm-board": 2,
    }


def test_the_price_on_top_is_the_lowest_of_the_variants(read, table):
    products = records(read(table(SHOP)))

    prices = {id: number(product["Variant Price"]) for id, product in products.items()}
    assert prices == {"oak-bowl": 38.0, "ash-spoon": 9.5, "elm-board": 49.99}
    assert [number(v["Variant Price"]) for v in products["elm-board"]["variants"]] == [64.0, 49.99]


@pytest.mark.parametrize(
    ("prices", "lowest"),
    [
        (["1.299,00 €", "349,00 €", "89,50 €", "1.050,00 €"], ["349,00 €", "89,50 €"]),
        (["1.299 €", "950 €", "1.150 €", "1.050 €"], ["950 €", "1.050 €"]),
        (["$1,299", "$950", "$1,150", "$1,050"], ["$950", "$1,050"]),
        (["1 299,00", "349,00", "89,50", "1 050,00"], ["349,00", "89,50"]),
    ],
)
def test_the_lowest_price_is_found_however_prices_are_written(read, table, prices, lowest):
    oak_a, oak_b, elm_a, elm_b = (f'"{price}"' for price in prices)
    rows = f"Handle,Title,Size,Price\noak,Oak,S,{oak_a}\noak,,L,{oak_b}\nelm,Elm,S,{elm_a}\nelm,,L,{elm_b}\n"

    products = records(read(table(rows)))

    assert [product["Price"] for product in products.values()] == lowest


def test_a_field_that_all_rows_share_does_not_gather_them_in_memory():
    class Cell(str):
        """A text that can be observed."""

    alive: WeakSet[Cell] = WeakSet()
    counts: list[int] = []

    def rows():
        for number in range(10 * MAX_ROWS):
            cell = Cell(number)
            alive.add(cell)
            counts.append(len(alive))
            yield Record({"shop": "Harbour", "sku": cell}, f"t.csv:{number + 2}")

    entries = list(group_rows(rows(), "shop"))

    assert max(counts) <= 2 * MAX_ROWS
    [doubt] = [entry for entry in entries if isinstance(entry, Doubt)]
    assert doubt.reason == "has 20,000 rows; those after the first 2,000 were left out"


def test_grouping_is_remarked_in_the_report(read, table):
    remarks = [entry.text for entry in read(table(SHOP)) if isinstance(entry, Remark)]

    assert "7 rows with the same Handle were made 3 items" in remarks


def test_a_table_of_one_row_per_item_stays_as_it_is(read, table):
    rows = "country,city,note\nFrance,Lyon,silk\nFrance,Nice,\nSpain,Leon,lions\nSpain,Vigo,fish\nItaly,Bari,\n"

    cities = [entry.data["city"] for entry in read(table(rows)) if isinstance(entry, Record)]

    assert cities == ["Lyon", "Nice", "Leon", "Vigo", "Bari"]


def test_a_key_that_comes_back_later_is_not_taken_for_rows_of_one_item(read, table):
    rows = "kind,label,n\na,A,1\na,,2\nb,B,3\nb,,4\na,C,5\n"

    assert len([e for e in read(table(rows)) if isinstance(e, Record)]) == 5


def test_rows_are_grouped_by_a_field_that_is_named(read, table):
    orders = records(read(table(ORDERS), group_by="Order"))

    assert list(orders) == ["#1001", "#1002", "#1003"]
    assert orders["#1001"]["Customer"] == "Ann"
    assert [line["Product"] for line in orders["#1001"]["variants"]] == ["Tea", "Cup"]
    assert [number(line["Quantity"]) for line in orders["#1001"]["variants"]] == [1, 2]
    assert orders["#1002"]["variants"][0]["Product"] == "Tea"
    assert number(orders["#1001"]["Price"]) == 4.5


def test_rows_without_the_named_field_continue_the_item_above(read, table):
    orders = records(read(table("Order,Item\n1,Tea\n,Cup\n2,Pot\n"), group_by="Order"))

    assert [line["Item"] for line in orders["1"]["variants"]] == ["Tea", "Cup"]
    assert len(orders) == 2


def test_a_field_that_no_row_has_is_an_error(read, table):
    with pytest.raises(SourceError, match="No row has a field 'Sku'"):
        read(table(ORDERS), group_by="Sku")


def test_the_rows_of_one_item_are_bounded(read, table):
    text = "Order,Item\n" + "".join(f"1,Item {n}\n" for n in range(2100)) + "2,Tea\n"

    entries = read(table(text), group_by="Order")

    assert [e.field for e in entries if isinstance(e, Doubt)] == ["Order"]
    assert len(records(entries)["1"]["variants"]) == 2000
