"""The uncased BERT WordPiece tokenizer. Turns text into token ids; reads no file but its vocabulary.

Gives the ids of the reference `tokenizers` package, with one exception on purpose: a special token written
out in a text, such as "[SEP]", is text like any other.
"""

import re
import string
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from portico.errors import ConfigError

LONGEST_WORD = 100
"""Characters. A longer word is one unknown token, as in the reference."""

CACHED_WORDS = 50_000
LONGEST_CACHED = 40

# Narrower than str.split(): the reference deletes \v, \f, \x1c-\x1f and \x85 and joins what they separate.
WORDS = re.compile("[^ \t\n\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")

# The ideographs that BERT separates from their neighbours, unlike kana and Hangul. The reference begins
# one block at 2B920 where Unicode begins it at 2B820.
IDEOGRAPHS = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df"
    "\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f])"
)


class WordPiece:
    """Safe to share between threads: a lost update of its cache costs one more computation."""

    def __init__(self, vocabulary: Path) -> None:
        pieces = vocabulary.read_text(encoding="utf-8").split("\n")
        self._ids = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
        self.unknown, self.start, self.end, self.padding = (
            self._special(vocabulary, token) for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]")
        )
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` ids, with the special tokens at both ends. Read at most 100 characters for each id."""
        ids = [self.start]
        for match in WORDS.finditer(text[: limit * LONGEST_WORD]):
            ids.extend(self._word(match.group()))
            if len(ids) >= limit:
                break
        return [*ids[: limit - 1], self.end]

    def _word(self, word: str) -> tuple[int, ...]:
        cached = self._cache.get(word)
        if cached is not None:
            return cached
        ids = tuple(number for part in _parts(word) for number in self._pieces(part))
        if len(word) <= LONGEST_CACHED:
            if len(self._cache) >= CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _pieces(self, part: str) -> list[int]:
        """Split into the longest known pieces, from the left. With an unknown rest, the whole part is unknown."""
        if len(part) > LONGEST_WORD:
            return [self.unknown]
        ids: list[int] = []
        begin = 0
        while begin < len(part):
            mark = "##" if begin else ""
            for end in range(len(part), begin, -1):
                number = self._ids.get(mark + part[begin:end])
                if number is not None:
                    break
            else:
                return [self.unknown]
            ids.append(number)
            begin = end
        return ids

    def _special(self, vocabulary: Path, token: str) -> int:
        if token not in self._ids:
            raise ConfigError(
                f"{vocabulary} has no {token} token",
                hint="It must be the vocab.txt of an uncased BERT WordPiece model, one token a line.",
            )
        return self._ids[token]


def _parts(word: str) -> Iterator[str]:
    """Clean, separate ideographs, strip accents, lower, separate punctuation: the order of the reference."""
    if word.isascii() and word.isalnum():
        yield word.lower()
        return
    clean = "".join(c for c in word if c != "\ufffd" and unicodedata.category(c) not in {"Cc", "Cf", "Co"})
    spaced = IDEOGRAPHS.sub(r" \1 ", clean)
    bare = (char for char in unicodedata.normalize("NFD", spaced) if unicodedata.category(char) != "Mn")
    # One character at a time: lowering a whole word would give a final Greek sigma its other form.
    lowered = "".join(char.lower() for char in bare)
    yield from "".join(f" {char} " if _is_punctuation(char) else char for char in lowered).split(" ")


def _is_punctuation(char: str) -> bool:
    # BERT also counts the ASCII characters that Unicode calls symbols, such as "$" and "^".
    return char in string.punctuation or unicodedata.category(char).startswith("P")
