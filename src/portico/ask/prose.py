"""Prose: stripped of markup, split into sentences, shortened. Knows no item."""

import html
import re
from collections.abc import Iterator

from portico.items import invisible_pattern

_UNSEEN = invisible_pattern(except_for=r"\s", also=r"\ufffc\ufffd")  # also what stands for something that is no text
# What is not closed is hidden to its end, as in a browser; it also keeps the time linear.
_HIDDEN = re.compile(r"(?s:<!--(?:.*?-->|.*)|<(script|style)\b(?:.*?</\1[^<>]*>?|.*))", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:p|div|br|li|ul|ol|h[1-6]|tr|td|th|table|section|article|blockquote|pre|hr|dt|dd)\b[^<>]*>", re.IGNORECASE
)
_TAG = re.compile(r"<[A-Za-z/!?][^<>]*>")
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")

_BLANKS = re.compile(r"[^\S\n]+")
_BLOCKS = re.compile(r"\n[ \n]*\n|(?:\A|\n) ?(?:[-*•·–◦‣▪]|\d{1,3}[.)]|#{1,6}) | [•◦‣▪] ")
_END = re.compile(r"(?P<wide>[。！？｡]+[」』）”’]*)|(?P<mark>\.|[.!?…]{1,9})[\"'”’»)\]]{0,3}(?=\s)")
_OPENING = "\"'“‘«„([¿¡"
# A capital that stands alone, or letters each with a stop: J, e.g, z. B.
_INITIALS = re.compile(r"(?<![^\W_])(?:[^\W\d_a-zäöü]|(?:[^\W\d_]\. ?)+[^\W\d_])\Z")
_LETTER = re.compile(r"[^\W\d_]\.")
_DAY = re.compile(r"\d{1,2}")
_MONTH = re.compile(
    r"januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember", re.IGNORECASE
)
# Words that a full stop only shortens: always, and before a number.
_ABBREVIATIONS = frozenset({
    "dr", "mr", "mrs", "ms", "prof", "st", "mt", "rev", "sr", "sra", "srta", "jr", "vs", "approx", "cf", "ca", "bzw",
    "vgl", "evtl", "ggf", "inkl", "zzgl", "mme", "mlle", "p.ej",
})  # fmt: skip
_NUMBERED = frozenset({"no", "nos", "nr", "fig", "vol", "núm", "pág", "art", "tel", "p", "pp"})
_HALF_DAYS = frozenset({"a.m", "p.m"})


def plain_text(text: str) -> str:
    """Return a text without markup, control, zero-width and bidi characters, on one line."""
    return " ".join(strip_markup(text).split())


def strip_markup(text: str) -> str:
    """Return a text without tags and invisible characters; where a block ended there is an empty line."""
    # Invisible characters go first and last: they could hide a tag, and an entity could hide one of them.
    bare = html.unescape(_without_tags(_UNSEEN.sub("", text)))
    return _UNSEEN.sub("", _without_tags(bare))


def _without_tags(text: str) -> str:
    if "<" not in text:
        return text
    text = _BLOCK.sub("\n\n", _HIDDEN.sub(" ", text))
    # A tag may hide another: <scr<b>ipt>. Whoever nests more of them than this has no tag to lose.
    for _ in range(3):
        text, count = _TAG.subn("", text)
        if not count:
            return text
    return _TAG_START.sub(" ", text)


def shorten(text: str, most: int) -> str:
    """Return the beginning of a text, up to the end of a word where there is one."""
    if len(text) <= most:
        return text
    cut = text.rfind(" ", 0, most)
    return f"{text[: cut if cut > most // 2 else most - 1]}…"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line. An empty line or a bullet ends one, too."""
    for block in _BLOCKS.split(_BLANKS.sub(" ", text)):
        line = " ".join(block.split())
        start = 0
        for end in _ends(line):
            yield line[start:end].strip()
            start = end
        if start < len(line):
            yield line[start:].strip()


def _ends(line: str) -> Iterator[int]:
    for match in _END.finditer(line):
        if match["wide"] or not _goes_on(line, match):
            yield match.end()


def _goes_on(line: str, match: re.Match[str]) -> bool:
    """Return whether a full stop only ends an abbreviation, an initial or an ordinal."""
    after = line[match.end() : match.end() + 16].lstrip(f" {_OPENING}")
    if after[:1].islower():
        return True
    before = line[max(0, match.start() - 20) : match.start()]
    word = before.rsplit(" ", 1)[-1].lstrip(_OPENING).lower()
    if match["mark"] != "." or word in _HALF_DAYS:
        return False
    if after[:1].isdigit():
        return word in _NUMBERED or word in _ABBREVIATIONS
    if _DAY.fullmatch(word):
        return bool(_MONTH.match(after))
    return word in _ABBREVIATIONS or bool(_INITIALS.search(before) or (len(word) == 1 and _LETTER.match(after)))
