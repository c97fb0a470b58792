"""A request with files: `multipart/form-data` with a part `json` and the files beside it, under limits.

Parts are read with their headers, since clients leave file names out: a form parser would make texts of such files.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser

from portico.calls import File
from portico.config import Chat
from portico.errors import BadRequest, TooLarge

JSON_PART = "json"
MAX_BOUNDARY = 200
MAX_HEADERS = 20  # of a part
MAX_HEADER = 1000  # bytes
SPARE_PARTS = 5  # beside the files
_FILE = re.compile(r"messages\[(\d{1,4})\]\.files\[(\d{1,4})\]|files(?:\[(\d{0,4})\])?\Z")


@dataclass(slots=True)
class Part:
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytearray = field(default_factory=bytearray)

    @property
    def name(self) -> str:
        return self._parameter("name")

    @property
    def filename(self) -> str:
        return self._parameter("filename")

    @property
    def type(self) -> str:
        return self.headers.get("content-type", "")

    def _parameter(self, name: str) -> str:
        """A parameter of the disposition. Names come in quotes and without."""
        said = Message()
        said["content-disposition"] = self.headers.get("content-disposition", "")
        found = said.get_param(name, "", header="content-disposition")
        return found if isinstance(found, str) else found[2] if found else ""


def read_multipart(body: bytes, content_type: str, chat: Chat) -> tuple[bytes, list[File]]:
    """The JSON of a request, and the files of its last message."""
    parts = _parts(body, _boundary(content_type), chat.files + SPARE_PARTS)
    said = [part for part in parts if part.name == JSON_PART]
    if len(said) != 1:
        raise BadRequest("A request with files has one part that is named json")
    files = _in_order([part for part in parts if part.name != JSON_PART])
    if len(files) > chat.files:
        raise TooLarge(f"More than {chat.files} files came with the question", limit=chat.files)
    for part in files:
        if len(part.body) > chat.file_bytes:
            raise TooLarge(f"A file has more than {chat.file_bytes} bytes", limit=chat.file_bytes)
    return bytes(said[0].body), [File(part.filename, part.type, bytes(part.body)) for part in files]


def _in_order(parts: list[Part]) -> list[Part]:
    """Files by the indices in their names, as in messages[0].files[1], which have no gaps."""
    places: dict[tuple[int, int], Part] = {}
    plain: list[Part] = []
    for part in parts:
        found = _FILE.fullmatch(part.name)
        if found is None:
            raise BadRequest(
                f"A part is named {part.name[:80]!r}", hint="Files are named messages[0].files[0] or files."
            )
        if found[1] is None and not found[3]:
            plain.append(part)
            continue
        place = (int(found[1]), int(found[2])) if found[1] else (-1, int(found[3]))
        if place in places:
            raise BadRequest(f"Two parts are named {part.name[:80]!r}")
        places[place] = part
    _check_gaps(places)
    return [*plain, *(places[place] for place in sorted(places))]


def _check_gaps(places: Mapping[tuple[int, int], Part]) -> None:
    for message in {message for message, _ in places}:
        numbers = sorted(number for owner, number in places if owner == message)
        if numbers != list(range(len(numbers))):
            raise BadRequest("The numbers of the files have a gap", hint="They count from 0.")


def _boundary(content_type: str) -> bytes:
    said = Message()
    said["content-type"] = content_type
    boundary = said.get_boundary("")
    if not boundary or len(boundary) > MAX_BOUNDARY:
        raise BadRequest("The parts of the request have no boundary", hint="Name it in content-type.")
    return boundary.encode("latin-1", "replace")


def _parts(body: bytes, boundary: bytes, most: int) -> list[Part]:
    reading = _Reading(most)
    parser = MultipartParser(boundary, reading.callbacks())  # pyright: ignore[reportArgumentType]
    try:
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise BadRequest(f"The parts of the request cannot be read: {error}") from error
    if not reading.is_whole:
        raise BadRequest("The last part of the request is not whole")
    return reading.parts


def _adding(where: Callable[[], bytearray]) -> Callable[[bytes, int, int], None]:
    return lambda data, start, end: where().extend(data[start:end])


class _Reading:
    """Parts as a parser finds them."""

    def __init__(self, most: int) -> None:
        self.parts: list[Part] = []
        self.is_whole = False
        self._most = most
        self._name = bytearray()
        self._value = bytearray()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": _adding(lambda: self._name),
            "on_header_value": _adding(lambda: self._value),
            "on_header_end": self._header,
            "on_part_data": _adding(lambda: self.parts[-1].body),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) >= self._most:
            raise TooLarge(f"The request has more than {self._most} parts", limit=self._most)
        self.parts.append(Part())

    def _header(self) -> None:
        headers = self.parts[-1].headers
        if len(headers) >= MAX_HEADERS or len(self._name) + len(self._value) > MAX_HEADER:
            raise TooLarge("A part of the request has too many or too long headers", limit=MAX_HEADER)
        headers[self._name.decode("latin-1").strip().lower()] = self._value.decode("utf-8", "replace").strip()
        self._name.clear()
        self._value.clear()

    def _end(self) -> None:
        self.is_whole = True
