"""A word that nothing here says, and the nearest one that something does. Knows no language and no question."""

from collections.abc import Mapping

SHORTEST = 5  # letters of a word that may be a slip: shorter ones are near too many others
SURE = 7  # letters from which another letter in its place is a slip; below, it may well be another word: boots, books
LONG = 8  # letters of a word that two slips leave as it is meant


def nearest(word: str, known: Mapping[str, int]) -> str | None:
    """The known word that one slip makes of this one, or two of a long one; of several the one that is said most.

    Words are without accents and capitals.
    """
    if len(word) < SHORTEST or not word.isalpha():
        return None
    most = 2 if len(word) >= LONG else 1
    alike = [other for other in known if _may_be(word, other, most)]
    near = [(slips, -known[other], other) for other in alike if (slips := _slips(word, other)) <= most]
    return min(near)[2] if near else None


def _may_be(word: str, other: str, most: int) -> bool:
    """Whether it is worth counting: people begin a word right."""
    if other[:1] != word[:1] or abs(len(other) - len(word)) > most or len(other) < SHORTEST - 1:
        return False
    is_sure = len(word) >= SURE or len(other) != len(word) or sorted(other) == sorted(word)
    return is_sure and len(set(word).symmetric_difference(other)) <= 2 * most


def _slips(word: str, other: str) -> int:
    """Letters too many, too few, of another kind, or two in each other's place."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(word, 1):
        above, before, row = before, row, [at]
        for to, wanted in enumerate(other, 1):
            least = min(row[-1] + 1, before[to] + 1, before[to - 1] + (letter != wanted))
            is_swapped = at > 1 < to and letter == other[to - 2] and word[at - 2] == wanted
            row.append(min(least, above[to - 2] + 1) if is_swapped else least)
    return row[-1]
