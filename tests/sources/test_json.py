"""JSON, JSON Lines and JSON-LD files: what is read, what is refused, and how much memory it takes."""

import io
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.sources import scan
from portico.sources.registry import BadRecord, Record, SourceOptions, open_source


def test_the_nodes_of_a_graph_are_records_with_their_links_kept(read, examples):
    tidewater, salt_roads, mara = read(examples / "books.jsonld")

    assert tidewater.id == "https://books.example/tidewater"
    assert tidewater.data["author"]["@id"] == mara.id
    assert tidewater.data["author"]["name"] == "Mara Lind"
    assert salt_roads.data["author"] == {"@id": mara.id}
    assert [entry.where.rpartition(":")[2] for entry in (tidewater, salt_roads, mara)] == ["4", "14", "23"]


def test_every_line_of_a_jsonl_file_is_a_record(read, examples):
    assert [entry.id for entry in read(examples / "products.jsonl")] == ["kettle-1", "lamp-2", "rug-3"]


def test_an_object_around_an_array_gives_the_objects_of_the_array(read, examples):
    assert [entry.data["name"] for entry in read(examples / "plain.json")] == [
        "Harbour walk",
        "Old town tour",
    ]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('[{"id": "a"}, {"id": "b"}]', ["a", "b"]),
        ('{"id": "a", "tags": ["x"]}', ["a"]),
        ('{"id": "a", "offers": [{"price": 1}]}', ["a"]),
        ('{"@type": "ItemList", "@id": "a", "items": [{"id": "b"}]}', ["a"]),
        ('{"total": 2, "tours": [{"id": "a"}, {"id": "b"}]}', ["a", "b"]),
        ('{"title": "A JSON Feed", "items": [{"id": "a"}]}', ["a"]),
        ('{"status": "ok",\n "data": {"results": [{"id": "a"},\n {"id": "b"}]}}', ["a", "b"]),
        ('{"data": {"viewer": {"nodes": [{"id": "a"}, {"id": "b"}]}}}', ["a", "b"]),
        ('{"status": "ok", "data": {"title": "One", "parts": [{"id": "b"}]}}', [None]),
        ('{"id": "a", "data": {"results": [{"id": "b"}]}}', ["a"]),
        ('{"items": [], "total": 0}', []),
        ('{"id": "a"}\n{"id": "b"}\n', ["a", "b"]),
        ('{\n"id": "a"\n}\n{\n"id": "b"\n}\n', ["a", "b"]),
        ('[{"@graph": [{"@id": "a"}, {"@id": "b"}]}]', ["a", "b"]),
        ('{"url": "https://x.example/1"}', ["https://x.example/1"]),
        ('{"identifier": 17}', ["17"]),
        ('{"name": "nobody"}', [None]),
        ("\ufeff[]", []),
        ("", []),
    ],
)
def test_the_shape_of_a_json_file_says_what_its_records_are(read, tmp_path: Path, text, ids):
    (tmp_path / "a.json").write_text(text, "utf-8")

    assert [entry.id for entry in read(tmp_path / "a.json")] == ids


def test_a_bad_line_is_reported_with_its_number_and_the_rest_is_read(read, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": 1}\r\n\r\n{"id": 2,}\n"text"\n{"a": NaN}\n{"a": "\xff"}\n{"a": 1e999}\n{"id": 8}'
    )

    entries = read(path)

    assert [entry.where.rpartition(":")[2] for entry in entries] == ["1", "3", "4", "5", "6", "7", "8"]
    assert [isinstance(entry, Record) for entry in entries] == [True, *[False] * 5, True]
    assert entries[2] == BadRecord(f"{path}:4", "is a text, not an object")
    assert entries[4] == BadRecord(f"{path}:6", "is not UTF-8")


def test_a_bad_element_of_an_array_is_reported_with_the_line_it_starts_on(read, tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_bytes(b'[\n {"id": 1},\r\n 5,\n {"a": -Infinity},\n\n {"b": "\xff"},\n {"c": "]}\\"{["},\n [1]\n]')

    entries = read(path)

    assert [entry.where.rpartition(":")[2] for entry in entries] == ["2", "3", "4", "6", "7", "8"]
    assert [isinstance(entry, Record) for entry in entries] == [True, False, False, False, True, False]


def test_a_file_that_is_cut_off_gives_what_came_before(read, tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text('[{"id": 1},\n{"id": "2')

    assert read(path) == [
        Record({"id": 1}, f"{path}:1", "1"),
        BadRecord(f"{path}:2", "is cut off: a bracket or a quote never closes", is_gap=True),
    ]


@pytest.mark.parametrize("depth", [65, 500, 50_000])
def test_deep_json_is_refused_and_the_rest_is_read(read, good, bad, tmp_path: Path, depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    for name, text in (("a.json", f'[{deep},{{"id":2}}]'), ("a.jsonl", f'{deep}\n{{"id":2}}')):
        (tmp_path / name).write_text(text)
        entries = read(tmp_path / name)
        assert [entry.reason for entry in bad(entries)] == ["is nested deeper than 64"]
        assert [entry.id for entry in good(entries)] == ["2"]


def test_json_of_64_levels_is_read(read, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"a":' * 64 + "1" + "}" * 64)

    assert isinstance(read(tmp_path / "a.jsonl")[0], Record)


def test_a_huge_line_or_element_is_passed_over_in_bounded_memory(tmp_path: Path):
    huge = '{"a": "' + 'x\\"' * (20 << 20) + '"}'
    for name, text in (("a.json", f'[{huge},{{"id":2}}]'), ("a.jsonl", f'{huge}\n{{"id":2}}')):
        (tmp_path / name).write_text(text)
        tracemalloc.start()
        entries = list(open_source(str(tmp_path / name), SourceOptions()).records())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert entries[0] == BadRecord(f"{tmp_path / name}:1", "is larger than 16 MB")
        assert entries[1].id == "2"
        assert peak < 80 << 20


def test_a_large_array_is_streamed(tmp_path: Path):
    path = tmp_path / "a.jsonld"
    element = json.dumps({"@type": "Product", "name": "kettle " * 100})
    path.write_text('{"@context": "https://schema.org", "@graph": [' + ",\n".join([element] * 30_000) + "]}")
    assert path.stat().st_size > 20 << 20

    tracemalloc.start()
    count = sum(1 for _ in open_source(str(path), SourceOptions()).records())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 30_000
    assert peak < 4 << 20


class Trickle(io.BytesIO):
    """Gives a few bytes at a time, so that every token is cut somewhere."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(3)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{},:\n é\u2028'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\]', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(values, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_the_pieces_of_an_array_are_its_elements_however_the_file_is_cut(elements, indent, ascii_only):
    text = json.dumps(elements, indent=indent, ensure_ascii=ascii_only)

    pieces = list(scan.values(scan.Scanner(Trickle(text.encode()))))

    assert [json.loads(piece.text or b"") for piece in pieces] == elements
    assert all(piece.is_closed for piece in pieces)


@given(st.binary(max_size=60) | st.text('[]{}",:\\ 1a\n', max_size=60).map(str.encode))
def test_any_bytes_at_all_come_to_an_end(text):
    scan.outline(Trickle(text))
    list(scan.values(scan.Scanner(Trickle(text))))
