"""Server-sent events, decoded from the bytes of a response."""

import codecs
import re
from collections.abc import Iterator

_LINE_END = re.compile("\r\n|\r|\n")


class SseDecoder:
    """Decodes server-sent events from chunks of any size."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line: list[str] = []  # parts of an incomplete line
        self._after_return = False  # a line ended with CR; an LF that follows belongs to it
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Yield the name and the data of every event that this chunk completes."""
        text = self._decoder.decode(chunk)
        if not text:
            return
        if self._after_return:
            text = text.removeprefix("\n")
        self._after_return = text.endswith("\r") or (self._after_return and not text)
        *lines, rest = _LINE_END.split(text)
        for piece in lines:
            line = "".join((*self._line, piece))
            self._line.clear()
            yield from self._take(line)
        self._line.append(rest)

    def _take(self, line: str) -> Iterator[tuple[str, str]]:
        if not line:
            if self._data:
                yield self._event or "message", "\n".join(self._data)
            self._event, self._data = "", []
            return
        name, _, value = line.partition(":")
        match name:
            case "event":
                self._event = value.removeprefix(" ")
            case "data":
                self._data.append(value.removeprefix(" "))
            case _:  # comments, IDs and retry times are ignored
                pass
