"""Finds the known word nearest to an unknown one. Knows no language and no question."""

from collections.abc import Mapping

MIN_LENGTH = 5  # letters of a word that may be a slip: shorter ones are near too many others
SUBSTITUTION_LENGTH = (
    7  # letters from which another letter in its place is a slip; below, it may well be another word: boots, books
)
TWO_SLIPS_LENGTH = 8  # letters of a word that two slips leave as it is meant


def find_nearest(word: str, vocabulary: Mapping[str, int]) -> str | None:
    """Return the most frequent known word within one slip of this one, or two slips of a long one.

    Words are without accents and capitals.
    """
    if len(word) < MIN_LENGTH or not word.isalpha():
        return None
    most = 2 if len(word) >= TWO_SLIPS_LENGTH else 1
    alike = [other for other in vocabulary if _may_be(word, other, most)]
    near = [(slips, -vocabulary[other], other) for other in alike if (slips := _slips(word, other)) <= most]
    return min(near)[2] if near else None


def _may_be(word: str, other: str, most: int) -> bool:
    """Return whether it is worth counting: people begin a word right."""
    if other[:1] != word[:1] or abs(len(other) - len(word)) > most or len(other) < MIN_LENGTH - 1:
        return False
    is_sure = len(word) >= SUBSTITUTION_LENGTH or len(other) != len(word) or sorted(other) == sorted(word)
    return is_sure and len(set(word).symmetric_difference(other)) <= 2 * most


def _slips(word: str, other: str) -> int:
    """Count the letters that are missing, extra, different or swapped."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(word, 1):
        above, before, row = before, row, [at]
        for to, other_letter in enumerate(other, 1):
            least = min(row[-1] + 1, before[to] + 1, before[to - 1] + (letter != other_letter))
            is_swapped = at > 1 < to and letter == other[to - 2] and word[at - 2] == other_letter
            row.append(min(least, above[to - 2] + 1) if is_swapped else least)
    return row[-1]
