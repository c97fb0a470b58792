"""Patterns that NWP does not let through, though our engine would take no harm: the protocol names them (6.2)."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

_REFERENCE = re.compile(r"\\(?:[1-9]|g[<{]|k[<{'])|\(\?P=")
_PART = re.compile(
    r"""
      (?P<single> \\. | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]? )
    | (?P<open> \( (?:\?(?:P?<\w+>|[a-zA-Z-]*:))? )
    | (?P<close> \) )
    | (?P<choice> \| )
    | (?P<endless> [*+] | \{\d*,\} )
    | (?P<varying> \{\d*,\d+\} )
    | (?P<several> \{0*(?:[2-9]|[1-9]\d+)\} )
    | (?P<optional> \? )
    """,
    re.VERBOSE | re.DOTALL,
)


def refers_back(pattern: str) -> bool:
    """Whether it matches again what it matched before."""
    return bool(_REFERENCE.search(re.sub(r"\\\\", "", pattern)))


@dataclass(slots=True)
class _Group:
    """A group as far as it was read: what in it is repeated, and what it has to choose from."""

    begins: int  # where the choice that is being read does
    repeats: set[str] = field(default_factory=set[str])  # kinds of quantifiers
    choices: list[str] = field(default_factory=list[str])

    def choose(self, pattern: str, end: int) -> None:
        self.choices.append(pattern[self.begins : end])
        self.begins = end + 1

    def is_unsafe(self, quantifier: str) -> bool:
        """Whether it may not be repeated so."""
        if quantifier == "several":
            return "endless" in self.repeats
        return bool(self.repeats) or self._is_ambiguous

    @property
    def _is_ambiguous(self) -> bool:
        """Whether one choice begins like another, so that the same text can be read in two ways: a|aa, a|a?."""
        return any(later.startswith(earlier) for earlier, later in pairwise(sorted(self.choices)))


def nests_quantifiers(pattern: str) -> bool:
    """Whether something is repeated that is itself repeated, or can be read in two ways: (a+)+, (a+){9}, (a|aa)*."""
    groups, closed, end, repeated = [_Group(0)], _Group(0), -1, -1
    for part in _PART.finditer(pattern):
        match part.lastgroup:
            case "open":
                groups.append(_Group(part.end()))
            case "choice":
                groups[-1].choose(pattern, part.start())
            case "close" if len(groups) > 1:
                closed, end = groups.pop(), part.end()
                closed.choose(pattern, part.start())
                groups[-1].repeats |= closed.repeats
            case "endless" | "varying" | "several" as quantifier:
                if part.start() == end and closed.is_unsafe(quantifier):
                    return True
                groups[-1].repeats |= {quantifier} - {"several"}
                repeated = part.end()
            case "optional" if part.start() != repeated:  # else it says how eagerly
                groups[-1].repeats.add("varying")
            case _:
                pass
    return False
