"""PDF documents, page by page."""

from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject
from reportlab.pdfgen.canvas import Canvas

from portico.sources.registry import BadRecord, Record


def test_each_page_of_a_pdf_is_a_record(read, examples):
    path = examples / "guide.pdf"
    made = {name: read(path)[0].data[name] for name in ("dateCreated", "dateModified")}

    assert read(path) == [
        Record(
            {
                "@type": "DigitalDocument",
                "name": f"Kettle guide – page {number}",
                "text": text,
                "pageStart": number,
                **made,
            },
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


def handbook(path: Path, pages: int, title: str = "Handbook", outline: bool = False, headings: bool = False) -> Path:
    canvas = Canvas(str(path))
    canvas.setTitle(title)
    canvas.setAuthor("Ada Moss")
    for number in range(1, pages + 1):
        if outline and number % 10 == 2:
            for title, level in ((f"Chapter {number // 10 + 1}", 0), (f"Task {number // 10 + 1}", 1), ("Later", 1)):
                canvas.bookmarkPage(f"{title} {number}")
                canvas.addOutlineEntry(title, f"{title} {number}", level)
        canvas.setFont("Helvetica", 8)
        canvas.drawString(72, 800, "Reef Society")
        if headings and number % 2:
            canvas.setFont("Helvetica-Bold", 20)
            canvas.drawString(72, 760, f"How to dive {number}")
        canvas.setFont("Helvetica", 11)
        for line in range(12):
            canvas.drawString(72, 700 - 14 * line, f"Line {line} explains what to do on page {number}.")
        canvas.showPage()
    canvas.save()
    return path


def test_the_pages_of_a_long_pdf_can_be_told_apart(read, tmp_path: Path):
    entries = read(handbook(tmp_path / "h.pdf", 300, outline=True))

    names = [entry.data["name"] for entry in entries]
    assert len(set(names)) == 300
    assert names[:3] == ["Handbook – page 1", "Handbook – Task 1, page 2", "Handbook – Later, page 3"]
    assert names[11] == "Handbook – Task 2, page 12"
    assert [entries[11].data["pageStart"], entries[11].data["headline"]] == [12, "Task 2"]
    assert entries[11].data["author"] == "Ada Moss"


def test_the_pages_of_a_pdf_lead_to_their_pages_on_the_web(read, tmp_path: Path):
    handbook(tmp_path / "h.pdf", 2)

    urls = [entry.data["url"] for entry in read(tmp_path, base_url="https://reef.example/docs")]

    assert urls == [f"https://reef.example/docs/h.pdf#page={number}" for number in (1, 2)]


def test_a_heading_in_large_letters_names_its_page(read, tmp_path: Path):
    names = [entry.data["name"] for entry in read(handbook(tmp_path / "h.pdf", 2, headings=True))]

    assert names == ["Handbook – How to dive 1, page 1", "Handbook – page 2"]


def test_the_printed_numbers_of_pages_are_in_their_names(read, tmp_path: Path):
    writer = PdfWriter(clone_from=PdfReader(handbook(tmp_path / "h.pdf", 4)))
    writer.set_page_label(0, 1, style="/r")
    writer.set_page_label(2, 3, style="/D", start=1)
    writer.write(tmp_path / "h.pdf")

    names = [entry.data["name"] for entry in read(tmp_path)]

    assert names == [f"Handbook – page {label}" for label in ("i", "ii", "1", "2")]


@pytest.mark.parametrize(("title", "name"), [("Microsoft Word - reef.docx", "reef"), ("untitled", "Reef guide")])
def test_the_title_that_a_program_made_up_is_not_used(read, tmp_path: Path, title, name):
    [entry] = read(handbook(tmp_path / "reef-guide.pdf", 1, title=title))

    assert entry.data["name"] == name


def test_an_outline_that_leads_in_circles_does_no_harm(read, tmp_path: Path):
    writer = PdfWriter(clone_from=PdfReader(handbook(tmp_path / "h.pdf", 2)))
    first = writer.add_outline_item("First", 0)
    first_object = first.get_object()
    first_object[NameObject("/Next")] = first
    first_object[NameObject("/First")] = first
    writer.write(tmp_path / "h.pdf")

    assert [entry.data["pageStart"] for entry in read(tmp_path)] == [1, 2]
