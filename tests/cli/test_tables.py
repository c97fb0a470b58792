"""Tables that belong together, from the command line to the answer."""

import os
import pty
import subprocess
from pathlib import Path

from tests.cli.conftest import ENVIRONMENT, SCRIPT, Portico
from tests.music_shop import make_sqlite
from tests.sources.test_variants import SHOP

STORE = ("--store", "sqlite:///s.db")


def answered(portico: Portico, question: str) -> set[str]:
    return {item["id"] for item in portico("ask", question, *STORE, "--json").json["items"]}


def test_a_music_shop_is_asked_over_its_foreign_keys(portico: Portico, tmp_path: Path) -> None:
    make_sqlite(tmp_path / "music.db")
    portico("load", "music.db", "--all-tables", *STORE)

    assert answered(portico, "albums by Queen") == {"6", "7", "8"}
    assert answered(portico, "tracks on Jagged Little Pill") == {"5", "6", "7"}
    assert answered(portico, "which artist made Let There Be Rock") == {"1"}


def test_a_product_export_is_asked_by_the_price_of_any_variant(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "products_export.csv").write_text(SHOP)
    loaded = portico("load", "products_export.csv", *STORE, "--json").json

    assert loaded["added"] == 3
    assert answered(portico, "under $50") == {"oak-bowl", "ash-spoon", "elm-board"}
    assert answered(portico, "under $40") == {"oak-bowl", "ash-spoon"}


def test_rows_are_grouped_by_the_option(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("Order,Item,Quantity\n1,Tea,2\n1,Cup,1\n2,Pot,1\n")

    assert portico("load", "orders.csv", "--group-by", "Order", *STORE, "--json").json["added"] == 2
    order = portico("call", "get_order", "id=1", *STORE).json
    assert [line["Item"] for line in order["variants"]] == ["Tea", "Cup"]


def test_on_a_terminal_the_command_asks_which_tables_to_publish(portico: Portico, tmp_path: Path) -> None:
    make_sqlite(tmp_path / "music.db")
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"Nothing\nalbum, Artist\n")

    done = subprocess.run(
        [SCRIPT, "load", "music.db", *STORE],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        cwd=tmp_path,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0
    assert len(portico("query", "Artist", *STORE, "--json").json["items"]) == 5
    assert len(portico("query", "Album", *STORE, "--json").json["items"]) == 8
    assert portico("query", "Customer", *STORE).code != 0
