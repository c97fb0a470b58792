"""Cuts the text of a page into passages of about 200 words, each with the heading above it. Reads no markup."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from portico.sources.walk import TextBlock

MIN_WORDS, MAX_WORDS = 150, 250
_SMALL_SECTION = 60  # a section of fewer words shares its passage with the next
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
_MAX_HEADING = 200  # characters of a heading in a title


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a page. `parent` is the heading above its own."""

    text: str
    heading: str = ""
    parent: str = ""
    anchor: str = ""


class PassageTitles:
    """Names the passages of one page so that they can be told apart: "Guide – Installing", "Guide – Installing (2)"."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._counts: dict[str, int] = {}

    def name(self, passage: Passage) -> str:
        name = self._join(passage.heading)
        if name in self._counts and passage.parent and self._join(passage.parent, passage.heading) not in self._counts:
            name = self._join(passage.parent, passage.heading)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name} ({count})"

    def _join(self, *headings: str) -> str:
        others = [heading[:_MAX_HEADING] for heading in headings if heading and heading != self._title]
        return " – ".join([self._title, *others])


def cut(blocks: Iterable[TextBlock]) -> Iterator[Passage]:
    """Yield passages of about 150 to 250 words. Cuts at headings, else between paragraphs, else between sentences."""
    heading, parts, words = _Heading(), list[str](), 0
    path: list[TextBlock] = []
    for block in blocks:
        if block.level:
            path = [*(above for above in path if above.level < block.level), block]
        if block.level and words < _SMALL_SECTION and not parts:
            heading = _Heading.of(path)
            continue
        for piece in _pieces(block.text):
            size = len(piece.split())
            is_new_section = block.level and words >= _SMALL_SECTION
            if parts and (is_new_section or words + size > MAX_WORDS):
                yield heading.passage(parts)
                parts, words = [], 0
            if block.level and not parts:
                heading = _Heading.of(path)
                continue
            parts.append(piece)
            words += size
            if words >= MIN_WORDS and not block.level:
                yield heading.passage(parts)
                parts, words = [], 0
    if parts:
        yield heading.passage(parts)


@dataclass(frozen=True, slots=True)
class _Heading:
    text: str = ""
    parent: str = ""
    anchor: str = ""

    @classmethod
    def of(cls, path: list[TextBlock]) -> "_Heading":
        parent = path[-2].text if len(path) > 1 else ""
        return cls(path[-1].text, parent, path[-1].anchor)

    def passage(self, parts: list[str]) -> Passage:
        return Passage("\n\n".join(parts), self.text, self.parent, self.anchor)


def _pieces(text: str) -> Iterator[str]:
    """Split a long paragraph into parts of at most 250 words, between sentences where possible."""
    if len(text.split()) <= MAX_WORDS:
        yield text
        return
    part: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        words = sentence.split()
        if part and len(part) + len(words) > MAX_WORDS:
            yield " ".join(part)
            part = []
        part += words
        full = max(len(part) - 1, 0) // MAX_WORDS * MAX_WORDS
        for start in range(0, full, MAX_WORDS):
            yield " ".join(part[start : start + MAX_WORDS])
        part = part[full:]
    if part:
        yield " ".join(part)
