"""One door to every kind of source: what decides the kind, and what the options add."""

from pathlib import Path

import pytest

from portico.errors import BlockedAddress, SourceError
from portico.sources.registry import FORMATS, BadRecord, SourceOptions, open_source


def test_every_kind_of_unknown_thing_is_refused_with_a_list_of_formats(read, web, tmp_path: Path):
    (tmp_path / "a.xyz").write_text("plain words")
    (tmp_path / "a.xml").write_text("<svg/>")
    (tmp_path / "a.yaml").write_text("a: 1")
    strange = web.serve("/a", "plain words", "application/x-words")

    for source in (
        tmp_path / "a.xyz",
        tmp_path / "a.xml",
        tmp_path / "a.yaml",
        "gopher://x",
        "nope+http://x",
        strange,
    ):
        with pytest.raises(SourceError) as refusal:
            read(source)
        assert all(name in (refusal.value.hint or "") for name in FORMATS)


def test_an_unknown_format_is_refused(read, examples):
    with pytest.raises(SourceError, match="no source format 'excel'"):
        read(examples / "plain.json", format="excel")


def test_a_path_where_nothing_is_is_refused_before_anything_is_read(tmp_path: Path):
    for missing in ("nothing.json", "*.json"):
        with pytest.raises(SourceError, match="no file or folder"):
            open_source(str(tmp_path / missing), SourceOptions())


def test_the_format_wins_over_the_suffix(read, tmp_path: Path):
    (tmp_path / "a.txt").write_text('{"id": 1}\n{"id": 2}\n')

    assert [entry.id for entry in read(tmp_path / "a.txt", format="jsonl")] == ["1", "2"]


def test_a_glob_reads_its_files_in_order(read, examples):
    entries = read(examples / "p*s.[ct]sv")

    assert [entry.id for entry in entries] == ["a1", "a2", "a3", "b1", "b2"]


def test_a_file_url_is_a_path(read, examples):
    assert len(read(f"file://{examples}/products.jsonl")) == 3
    assert len(read(f"jsonl+file://{examples}/products.jsonl")) == 3


@pytest.mark.parametrize(
    ("example", "path", "content_type", "count"),
    [
        ("books.jsonld", "/books", "application/ld+json", 3),
        ("books.jsonld", "/books.jsonld", "text/plain", 3),
        ("products.jsonl", "/p", "application/x-ndjson", 3),
        ("products.jsonl", "/p.jsonl?day=1", "text/plain", 3),
        ("plain.json", "/plain", "application/json", 2),
        ("prices.csv", "/prices", "text/csv; charset=utf-8", 3),
        ("prices.tsv", "/prices.tsv", "application/octet-stream", 2),
        ("blog.atom", "/blog", "application/xml", 1),
        ("tours.openapi.yaml", "/api.yaml", "text/plain", 4),
        ("pages/visit.md", "/visit.md", "text/plain", 1),
    ],
)
def test_a_file_on_the_web_is_read_like_one_on_disk(read, web, examples, example, path, content_type, count):
    url = web.serve(path, (examples / example).read_bytes(), content_type)

    entries = read(url)

    assert len(entries) == count
    assert all(entry.where.startswith(url) for entry in entries)


def test_one_page_of_a_site_is_read_alone_when_asked_for(read, web):
    url = web.serve("/a", "<title>A</title><p>Text</p><a href='/b'>b</a>")

    [entry] = read(f"pages+{url}")

    assert entry.data == {
        "@type": "WebPage", "name": "A", "text": "Text\n\nb", "url": url, "position": 1,
        "isPartOf": {"@id": url},
    }  # fmt: skip
    assert web.requests == ["/a"]


def test_nothing_is_fetched_before_the_records_are_wanted(web):
    source = open_source(web.serve("/a.jsonl", "{}"), SourceOptions())

    assert source.url == f"{web.url}/a.jsonl"
    assert web.requests == []
    with pytest.raises(BlockedAddress):
        list(source.records())
    assert web.requests == []


def test_a_download_over_max_bytes_is_refused(read, web):
    with pytest.raises(SourceError, match="larger than 100 bytes"):
        read(web.serve("/a.jsonl", "{}\n" * 100), max_bytes=100)


def test_an_id_field_names_the_id_and_its_absence_is_reported(read, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "sku": "a"}\n{"id": 2}\n{"sku": 7}\n{"sku": true}\n')

    entries = read(path, id_field="sku")

    assert [entry.id for entry in entries if not isinstance(entry, BadRecord)] == ["a", "7"]
    assert entries[1] == BadRecord(f"{path}:2", "has no value for the id field 'sku'")


def test_a_type_is_given_to_records_that_have_none(read, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2, "@type": "Book"}\n')

    assert [entry.data["@type"] for entry in read(tmp_path / "a.jsonl", type="Product")] == [
        "Product",
        "Book",
    ]


def test_a_source_may_be_read_twice(examples):
    source = open_source(str(examples / "products.jsonl"), SourceOptions())

    assert list(source.records()) == list(source.records())
