"""A request with files: `multipart/form-data` with a part `json` and the files beside it, under limits.

Parts are read with their headers: clients leave file names out, and a form parser would take such files for text.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.utils import collapse_rfc2231_value

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser

from portico.errors import BadRequest, TooLarge
from portico.protocols.chat.settings import ChatSettings
from portico.requests import File
from portico.telemetry import silence_library

JSON_PART = "json"
MAX_BOUNDARY = 200
MAX_HEADERS = 20  # of a part
MAX_HEADER = 1000  # bytes
SPARE_PARTS = 5  # beside the files
_FILE = re.compile(r"messages\[(\d{1,4})\]\.files\[(\d{1,4})\]|files(?:\[(\d{0,4})\])?\Z")
_OF_NONE = -1  # the message of files that name none; those without any number come before them
_CHARSETS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "utf-8",
    "iso-8859-1": "latin-1",
    "latin-1": "latin-1",
    "latin1": "latin-1",
    "windows-1252": "cp1252",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
}


@dataclass(frozen=True, slots=True)
class MultipartForm:
    """A parsed request with files: its JSON, the files, and the number of messages that they refer to."""

    json: bytes
    files: tuple[File, ...] = ()
    messages: int = 0


@dataclass(slots=True)
class FormPart:
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

    @property
    def content(self) -> bytes:
        """The body without its transfer encoding; text as UTF-8."""
        body = _decode_transfer(bytes(self.body), self.headers.get("content-transfer-encoding", ""))
        charset = _parameter(self.type, "charset") if self.type.lower().startswith("text/") else ""
        return _as_utf8(body, charset) if charset else body

    def _parameter(self, name: str) -> str:
        return _parameter(self.headers.get("content-disposition", ""), name)


def read_multipart(body: bytes, content_type: str, chat: ChatSettings) -> MultipartForm:
    """Return the JSON of a request, and the files of its last message."""
    parts = _parts(body, _boundary(content_type), chat.files + SPARE_PARTS)
    json_parts = [part for part in parts if part.name == JSON_PART]
    if len(json_parts) != 1:
        raise BadRequest("A request with files must have exactly one part named `json`")
    places = _places([part for part in parts if part.name != JSON_PART])
    files = [places[place] for place in sorted(places)]
    if len(files) > chat.files:
        raise TooLarge(f"More than {chat.files} files came with the question", limit=chat.files)
    for part in files:
        if len(part.body) > chat.file_bytes:
            raise TooLarge(f"A file has more than {chat.file_bytes} bytes", limit=chat.file_bytes)
    messages = max([message for message, _ in places] + [_OF_NONE]) + 1
    return MultipartForm(json_parts[0].content, tuple(map(_file, files)), messages)


def _file(part: FormPart) -> File:
    """Return a file with its name. Clients give files without a name that of their part."""
    return File("" if part.filename == part.name else part.filename, part.type, part.content)


def _parameter(header: str, name: str) -> str:
    """Return a parameter of a header, quoted or not."""
    message = Message()
    message["content-type"] = header
    try:
        return collapse_rfc2231_value(message.get_param(name, "", header="content-type"))
    except (TypeError, ValueError, LookupError) as error:  # of pieces that do not fit, and codecs that are none
        raise BadRequest(f"The parameter {name} of a header cannot be read", hint="Send it in quotes.") from error


def _decode_transfer(body: bytes, packing: str) -> bytes:
    match packing.strip().lower():
        case "" | "7bit" | "8bit" | "binary":
            return body
        case "base64":
            try:
                return b64decode(b"".join(body.split()), validate=True)
            except binascii.Error as error:
                raise BadRequest("A part is not valid base64") from error
        case other:
            raise BadRequest(f"Parts packed as {other[:40]!r} are not read here", hint="Send them as they are.")


def _as_utf8(body: bytes, charset: str) -> bytes:
    codec = _CHARSETS.get(charset.strip().lower())
    if codec is None:
        names = ", ".join(_CHARSETS)
        raise BadRequest(f"Texts in {charset[:40]!r} are not read here", hint=f"Known are {names}.")
    if codec == "utf-8":
        return body
    try:
        return body.decode(codec).encode()
    except UnicodeError as error:
        raise BadRequest(f"A text is not valid {codec}") from error


def _places(parts: list[FormPart]) -> dict[tuple[int, int], FormPart]:
    """Return files by the indices in their names, as in messages[0].files[1], which must have no gaps."""
    places: dict[tuple[int, int], FormPart] = {}
    plain: list[FormPart] = []
    for part in parts:
        match = _FILE.fullmatch(part.name)
        if match is None:
            raise BadRequest(
                f"A part is named {part.name[:80]!r}", hint="Files are named messages[0].files[0] or files."
            )
        if match[1] is None and not match[3]:
            plain.append(part)
            continue
        place = (int(match[1]), int(match[2])) if match[1] else (_OF_NONE, int(match[3]))
        if place in places:
            raise BadRequest(f"Two parts are named {part.name[:80]!r}")
        places[place] = part
    _check_gaps(places)
    return {**{(_OF_NONE - 1, number): part for number, part in enumerate(plain)}, **places}


def _check_gaps(places: Mapping[tuple[int, int], FormPart]) -> None:
    for message in {message for message, _ in places}:
        numbers = sorted(number for owner, number in places if owner == message)
        if numbers != list(range(len(numbers))):
            raise BadRequest("The numbers of the files have a gap", hint="They count from 0.")


def _boundary(content_type: str) -> bytes:
    boundary = _parameter(content_type, "boundary").rstrip()
    if not boundary or len(boundary) > MAX_BOUNDARY:
        raise BadRequest("The request has no multipart boundary", hint="Name it in content-type.")
    return boundary.encode("latin-1", "replace")


def _parts(body: bytes, boundary: bytes, most: int) -> list[FormPart]:
    silence_library("python_multipart")
    reading = _MultipartReader(most)
    parser = MultipartParser(boundary, reading.callbacks())  # pyright: ignore[reportArgumentType]
    try:
        parser.write(body)
        parser.finalize()
    except MultipartParseError as error:
        raise BadRequest(f"The parts of the request cannot be read: {error}") from error
    if not reading.is_whole:
        raise BadRequest("The last part of the request is incomplete")
    return reading.parts


def _append_to(where: Callable[[], bytearray]) -> Callable[[bytes, int, int], None]:
    return lambda data, start, end: where().extend(data[start:end])


class _MultipartReader:
    """Collects the parts that a parser finds."""

    def __init__(self, most: int) -> None:
        self.parts: list[FormPart] = []
        self.is_whole = False
        self._most = most
        self._name = bytearray()
        self._value = bytearray()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": _append_to(lambda: self._name),
            "on_header_value": _append_to(lambda: self._value),
            "on_header_end": self._header,
            "on_part_data": _append_to(lambda: self.parts[-1].body),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) >= self._most:
            raise TooLarge(f"The request has more than {self._most} parts", limit=self._most)
        self.parts.append(FormPart())

    def _header(self) -> None:
        headers = self.parts[-1].headers
        if len(headers) >= MAX_HEADERS or len(self._name) + len(self._value) > MAX_HEADER:
            raise TooLarge("A part of the request has too many or too long headers", limit=MAX_HEADER)
        headers[self._name.decode("latin-1").strip().lower()] = self._value.decode("utf-8", "replace").strip()
        self._name.clear()
        self._value.clear()

    def _end(self) -> None:
        self.is_whole = True
