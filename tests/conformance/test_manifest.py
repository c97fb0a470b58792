"""The manifests of requirements, the tests that name them and the page that shows them say the same."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.requirements import LEVELS, Naming, Requirement, manifests, namings, read_manifest
from tests.conformance.table import tables

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
WELL_FORMED = re.compile(r"[a-z][a-z0-9]*(:[a-z0-9]+(-[a-z0-9]+)*){2}")

REQUIREMENTS = [each for manifest in manifests() for each in manifest.requirements]
NAMED = {id for naming in namings() for id in naming.ids}


def test_every_requirement_that_a_test_names_is_in_a_manifest() -> None:
    assert sorted(NAMED - {each.id for each in REQUIREMENTS}) == []


def test_every_requirement_without_a_gap_is_shown_by_a_test() -> None:
    assert [each.id for each in REQUIREMENTS if not each.gap and each.id not in NAMED] == []


def test_what_a_test_shows_is_not_called_a_gap() -> None:
    assert [each.id for each in REQUIREMENTS if each.gap and each.id in NAMED] == []


def test_requirements_are_named_by_decorators_of_tests_only() -> None:
    assert [f"{naming.file}:{naming.line}" for naming in namings() if not naming.is_test or not naming.ids] == []


def test_ids_are_unique_over_all_manifests() -> None:
    counts = Counter(each.id for each in REQUIREMENTS)

    assert [id for id, count in counts.items() if count > 1] == []


def test_ids_are_well_formed_and_begin_with_a_specification() -> None:
    known = {key for manifest in manifests() for key in manifest.specifications}

    assert [
        each.id for each in REQUIREMENTS if not WELL_FORMED.fullmatch(each.id) or each.id.split(":")[0] not in known
    ] == []


def test_every_entry_says_where_it_stands_how_strong_it_is_and_what_it_asks() -> None:
    assert [
        each.id
        for each in REQUIREMENTS
        if each.level not in LEVELS or not each.section or not each.sentence.endswith((".", '".'))
    ] == []


def test_no_two_requirements_of_a_specification_ask_the_same() -> None:
    counts = Counter((each.id.split(":")[0], each.sentence) for each in REQUIREMENTS)

    assert [sentence for sentence, count in counts.items() if count > 1] == []


def test_the_page_shows_the_manifests_as_they_are() -> None:
    assert tables() in PAGE.read_text("utf-8"), "Put what `python -m tests.conformance.table` prints into the page"


# How the tests above find what they compare


def test_a_marker_counts_on_a_test_and_is_reported_anywhere_else(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        '@requirement("a:b:c", "a:b:d")\n'
        "async def test_it():\n"
        '    requirement("a:b:e")\n'
        "\n"
        "@pytest.mark.requirement(NAME)\n"
        "def helper(): ...\n"
    )

    assert list(namings(root=tmp_path)) == [
        Naming("test_one.py", 1, ("a:b:c", "a:b:d"), is_test=True),
        Naming("test_one.py", 5, ("<NAME>",), is_test=False),
        Naming("test_one.py", 3, ("a:b:e",), is_test=False),
    ]


def test_a_manifest_gives_its_entries_by_specification(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(
        'title = "One"\nspecifications = { a = "A 1", b = "B 2" }\n[requirements]\n'
        '"a:x:y" = { section = "1", level = "MUST", sentence = "It is." }\n'
        '"b:x:y" = { section = "2", level = "MAY", sentence = "It may.", gap = "Not yet." }\n'
    )

    manifest = read_manifest(path)

    assert manifest.title == "One"
    assert manifest.of("a") == (Requirement("a:x:y", "1", "MUST", "It is."),)
    assert manifest.of("b") == (Requirement("b:x:y", "2", "MAY", "It may.", "Not yet."),)


def test_an_entry_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(
        'title = "One"\nspecifications = {}\n[requirements]\n"a:x:y" = { section = "1", level = "MUST", says = "" }\n'
    )

    with pytest.raises(TypeError, match="says"):
        read_manifest(path)
