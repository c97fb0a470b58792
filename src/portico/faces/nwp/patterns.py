"""Patterns that NWP does not let through, though our engine would take no harm: the protocol names them (6.2)."""

import re

_QUANTIFIED = re.compile(r"[*+]|\{\d*,\d*\}")  # that repeat as often as there is something, or nearly so
_REFERENCE = re.compile(r"\\(?:[1-9]|g[<{]|k[<{'])|\(\?P=")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?")


def refers_back(pattern: str) -> bool:
    """Whether it matches again what it matched before."""
    return bool(_REFERENCE.search(re.sub(r"\\\\", "", pattern)))


def nests_quantifiers(pattern: str) -> bool:
    """Whether something that is repeated is repeated: (a+)+, (?:a*b)*, ((a{1,}))+."""
    repeats = [False]  # for each open group: whether it has a quantifier inside
    place = 0
    while place < len(pattern):
        match pattern[place]:
            case "\\":
                place += 2
            case "[":
                found = _CLASS.match(pattern, place)
                place = found.end() if found else place + 1
            case "(":
                repeats.append(False)
                place += 1
            case ")" if len(repeats) > 1:
                inside, place = repeats.pop(), place + 1
                outside = _QUANTIFIED.match(pattern, place)
                if inside and outside:
                    return True
                repeats[-1] = repeats[-1] or inside or outside is not None
                place = outside.end() if outside else place
            case _:
                quantified = _QUANTIFIED.match(pattern, place)
                repeats[-1] = repeats[-1] or quantified is not None
                place = quantified.end() if quantified else place + 1
    return False
