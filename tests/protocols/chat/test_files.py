"""Files that come with a question: read with their headers, under limits, answered from and cited by their names."""

import base64
import io
import threading
import time
import zlib
from typing import Any

import httpx
import msgspec
import pytest
from reportlab.pdfgen.canvas import Canvas
from tests.conformance.requirements import requirement
from tests.protocols.chat.talk import message
from tests.protocols.conftest import Inn, asking

from portico.conversations.attachments import read_files
from portico.conversations.file_reader import READERS
from portico.errors import BadRequest, RateLimited
from portico.requests import Caller, File
from portico.server.assembly import Parts

BOUNDARY = "---Part-1"
KEY = "The spare key hangs behind the blue boat."


def pdf(text: str) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file)
    canvas.drawString(72, 700, text)
    canvas.save()
    return file.getvalue()


def repetitive_pdf(pages: int, letters: int = 49_000) -> bytes:
    """A kilobyte that says a letter thousands of times, on each of its pages."""
    stream = zlib.compress(b"BT /F 12 Tf " + b"(a) Tj " * letters + b"ET")
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[" + b"3 0 R " * pages + b"]/Count %d>>" % pages,
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n" % len(stream) + stream + b"\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    file, places = b"%PDF-1.4\n", list[bytes]()
    for number, each in enumerate(objects, 1):
        places.append(b"%010d 00000 n \n" % len(file))
        file += b"%d 0 obj" % number + each + b"endobj\n"
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(places)
    return file + table + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(file)


def part(name: str, body: bytes, kind: str = "", filename: str = "", more: str = "") -> bytes:
    disposition = f"Content-Disposition: form-data; name={name}" + (f'; filename="{filename}"' if filename else "")
    type = (f"\r\nContent-Type: {kind}" if kind else "") + more
    return f"--{BOUNDARY}\r\n{disposition}{type}\r\n\r\n".encode() + body + b"\r\n"


def asked(question: str = "Where does the spare key hang?") -> bytes:
    return part("json", msgspec.json.encode({"messages": [message("user", question)]}), "application/json")


async def sent(client: httpx.AsyncClient, *parts: bytes, end: str = f"--{BOUNDARY}--\r\n") -> httpx.Response:
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    return await client.post("/chat", content=b"".join(parts) + end.encode(), headers=headers)


@requirement("chat:own:files", "chat:rule:multipart", "chat:shape:file-names")
@pytest.mark.parametrize(
    ("name", "body", "kind", "filename", "source"),
    [
        ('"messages[0].files[0]"', KEY.encode(), "text/plain", "", "file-1.txt"),
        ("files", f"# House\n\n{KEY}".encode(), "", "C:\\my notes.md", "my-notes.md"),
        ('"files[0]"', f"<p>Hello.</p><p>{KEY}</p><script>x</script>".encode(), "text/html", "a[1].html", "a-1-.html"),
        ('"messages[0].files[0]"', pdf(KEY), "application/octet-stream", "house.pdf", "house.pdf#page=1"),
        ("files", b"\r\n" + pdf(KEY), "application/pdf", "house.pdf", "house.pdf#page=1"),
        ("files", KEY.encode(), "application/octet-stream", "blob", "blob.txt"),
        ("files", KEY.encode(), "", "", "file-1.txt"),
    ],
)
async def test_a_file_is_answered_from_and_cited(
    client: httpx.AsyncClient, name: str, body: bytes, kind: str, filename: str, source: str
) -> None:
    answer = await sent(client, asked(), part(name, body, kind, filename))

    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert KEY in told["message"]["content"]
    assert f"[{source}]" in told["message"]["content"]
    points = told["context"]["data_points"]
    assert source in points["citations"]
    assert any(text.startswith(f"{source}: ") and KEY in text for text in points["text"])
    assert [each["title"] for each in told["context"]["thoughts"]].count("Files") == 1


@pytest.mark.parametrize(
    "question",
    [
        "Summarize this file",
        "What does the attached document say?",
        "Hello",
        "Was steht in der Datei?",
        "概括一下这个文件",
    ],
)
async def test_who_asks_what_a_file_says_is_told(client: httpx.AsyncClient, question: str) -> None:
    text = "Ropes are counted on Mondays. Knots are not."

    answer = (await sent(client, asked(question), part("files", text.encode(), "text/plain", "ropes.txt"))).json()

    assert answer["message"]["content"] == f"{text} [ropes.txt]"


async def test_files_of_one_name_are_told_apart_and_a_name_shows_all_that_it_has(client: httpx.AsyncClient) -> None:
    files = [part("files", text, "text/plain", "blob") for text in (KEY.encode(), b"The boat is new.")]
    odd = part("files", b"The key is old.", "text/plain", "a\x07\u202e.txt")

    answer = await sent(client, asked(), *files, odd)

    assert sorted(answer.json()["context"]["data_points"]["citations"]) == ["2-blob.txt", "a-.txt", "blob.txt"]


async def test_of_a_long_file_the_passages_that_matter_are_kept(client: httpx.AsyncClient) -> None:
    filler = "\n\n".join(f"Paragraph {number} speaks of boats, nets and weather. " * 20 for number in range(60))

    answer = await sent(
        client, asked(), part("files", f"{filler}\n\n{KEY}\n\n{filler}".encode(), "text/plain", "log.txt")
    )

    assert KEY in answer.json()["message"]["content"]
    assert len(answer.json()["context"]["data_points"]["text"]) <= 18


@pytest.mark.parametrize(
    ("body", "kind", "more"),
    [
        (f"Süß. {KEY}".encode("latin-1"), "text/plain; charset=ISO-8859-1", ""),
        (f"Süß. {KEY}".encode("utf-16"), "text/plain; charset=utf-16", ""),
        (base64.encodebytes(f"Süß. {KEY}".encode()), "text/plain", "\r\nContent-Transfer-Encoding: Base64"),
    ],
)
async def test_a_text_is_read_as_its_headers_say(client: httpx.AsyncClient, body: bytes, kind: str, more: str) -> None:
    answer = await sent(client, asked(), part("files", body, kind, "a.txt", more))

    assert f"a.txt: Süß. {KEY}" in answer.json()["context"]["data_points"]["text"]


async def test_a_file_that_takes_long_is_given_up_at_the_deadline() -> None:
    file = File("a.pdf", "application/pdf", repetitive_pdf(pages=50))

    for seconds in (-1.0, 0.1):
        with pytest.raises(BadRequest, match="takes too long"):
            read_files([file] * 5, "a", time.monotonic() + seconds)


TEXT = part('"messages[0].files[0]"', b"Hello", "text/plain")


UNREADABLE: list[tuple[list[bytes], str]] = [
    ([asked(), part('"messages[0].files[1]"', b"Hello", "text/plain")], "gap"),
    ([asked(), TEXT, TEXT], "Two parts"),
    ([TEXT], "named `json`"),
    ([asked(), asked(), TEXT], "named `json`"),
    ([asked(), part("secret", b"Hello", "text/plain")], "named 'secret'"),
    ([asked(), part("files", b"\x89PNG\r\n", "image/png", "a.png")], "not read here"),
    ([asked(), part("files", b"no pdf", "application/pdf", "a.pdf")], "not the PDF that it claims to be"),
    ([asked(), part("files", b"\x89PNG\r\n", "", "blob")], "not read here"),
    ([asked(), part("files", b"PK\x00", "application/octet-stream", "a.docx")], "not read here"),
    ([asked(), part("files", b"%PDF-1.4 broken", "application/pdf", "a.pdf")], "not a readable PDF"),
    ([asked(), part("files", repetitive_pdf(1, letters=200_000), "", "a.pdf")], "cannot be read: Limit reached"),
    ([asked(), part("files", b" ", "text/plain", "a.txt")], "no text"),
    ([asked(), part("files", b"x" * 2_000_001, "text/plain", "a.txt")], "more than 2000000 bytes"),
    ([asked(), *[part("files", b"Hello", "text/plain")] * 6], "More than 5 files"),
    ([asked(), *[part("files", b"Hello", "text/plain")] * 11], "more than 10 parts"),
    ([part("json", b"{", "application/json"), TEXT], "not JSON"),
    ([asked(), part('"messages[7].files[0]"', b"Hello", "text/plain")], "message that does not exist"),
    ([asked(), part("files; filename*=utf-8''a; filename*0=b", b"Hello", "text/plain")], "of a header cannot be read"),
    ([asked(), part("files", b"Hello", "text/plain; charset=hex")], "Texts in 'hex'"),
    ([asked(), part("files", b"abc", "text/plain; charset=utf-16")], "not valid utf-16"),
    ([asked(), part("files", b"!", "text/plain", more="\r\nContent-Transfer-Encoding: base64")], "not valid base64"),
    ([asked(), part("files", b"!", "text/plain", more="\r\nContent-Transfer-Encoding: x-uu")], "packed as 'x-uu'"),
]


@requirement("chat:shape:file-gap")
async def test_what_cannot_be_read_is_400(client: httpx.AsyncClient) -> None:
    for form, why in UNREADABLE:
        refused = await sent(client, *form)

        assert refused.status_code == 400
        assert why in refused.json()["error"]


async def test_a_form_that_breaks_off_is_400(client: httpx.AsyncClient) -> None:
    for end in ("", "garbage", f"--{BOUNDARY}\r\n"):
        assert (await sent(client, asked(), TEXT, end=end)).status_code == 400


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("multipart/form-data", "no multipart boundary"),
        ("multipart/form-data; boundary*=idna''B%FF", "boundary"),
        ("multipart/form-data; boundary*=undefined''B", "boundary"),
        (f"multipart/form-dataX; boundary={BOUNDARY}", "not JSON"),
    ],
)
async def test_a_form_without_a_boundary_is_400(client: httpx.AsyncClient, kind: str, why: str) -> None:
    content = asked() + f"--{BOUNDARY}--\r\n".encode()

    refused = await client.post("/chat", content=content, headers={"content-type": kind})

    assert refused.status_code == 400
    assert why in refused.json()["error"]


async def test_a_site_may_read_no_files(inn: Inn) -> None:
    settings: dict[str, Any] = {"files": 0}
    async with inn(chat=settings) as parts, asking(parts) as http:
        assert (await sent(http, asked(), TEXT)).status_code == 400


class Endless(bytes):
    """A file that nobody gets to the end of before the door opens."""

    door = threading.Event()

    def find(self, *_: Any) -> int:
        self.door.wait()
        return -1


async def test_a_file_that_is_given_up_has_its_reader_until_it_ends(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.conversations.file_reader.READING_SECONDS", 0.01)
    monkeypatch.setattr("portico.conversations.file_reader.WAITING_SECONDS", 0.01)
    endless, short = [File("a.txt", "text/plain", Endless(b"Hello"))], [File("b.txt", "text/plain", b"Hello")]
    try:
        for _ in range(READERS):
            with pytest.raises(BadRequest, match="too long"):
                await parts.site.read_files(endless, "Who?", Caller())
        with pytest.raises(RateLimited):
            await parts.site.read_files(short, "Who?", Caller())
    finally:
        Endless.door.set()
    monkeypatch.setattr("portico.conversations.file_reader.READING_SECONDS", 60)
    monkeypatch.setattr("portico.conversations.file_reader.WAITING_SECONDS", 60)

    assert [each.id for each in await parts.site.read_files(short, "Who?", Caller())] == ["b.txt"]
