"""PDF documents, page by page."""

from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from portico.sources.registry import BadRecord, Record


def test_each_page_of_a_pdf_is_a_record(read, examples):
    path = examples / "guide.pdf"

    assert read(path) == [
        Record(
            {"@type": "DigitalDocument", "name": "Kettle guide", "text": text, "pageStart": number},
            f"{path}#page={number}",
            f"{path}#page={number}",
        )
        for number, text in ((1, "Fill the kettle to the mark."), (2, "Descale it every month."))
    ]


def test_a_pdf_on_the_web_is_known_by_its_bytes(read, web, examples):
    url = web.serve("/guide", (examples / "guide.pdf").read_bytes(), "application/octet-stream")

    assert [entry.data["url"] for entry in read(url)] == [f"{url}#page=1", f"{url}#page=2"]


def test_an_encrypted_pdf_is_reported(read, tmp_path: Path, examples):
    writer = PdfWriter(clone_from=PdfReader(examples / "guide.pdf"))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(tmp_path / "a.pdf")

    assert read(tmp_path) == [BadRecord("a.pdf", "is encrypted")]


@pytest.mark.parametrize("keep", [0, 9, 300, 900])
def test_a_broken_pdf_is_reported(read, bad, tmp_path: Path, examples, keep):
    (tmp_path / "a.pdf").write_bytes((examples / "guide.pdf").read_bytes()[:keep])

    assert bad(read(tmp_path))


def test_a_page_without_text_is_reported(read, tmp_path: Path):
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(tmp_path / "a.pdf")

    assert read(tmp_path) == [BadRecord("a.pdf#page=1", "has no text; it may be a picture")]


def test_only_so_many_pages_are_read(read, examples):
    first, rest = read(examples / "guide.pdf", max_pages=1)

    assert first.data["pageStart"] == 1
    assert rest == BadRecord(str(examples / "guide.pdf"), "has 2 pages; `max_pages` stopped at 1")
