"""What a page says for itself, beside what its items say: in its own language, or in English that is marked as such.

Where a page is in a language without words here, screen readers are told what is English, and speak it so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from portico.ask.languages.localization import phrases
from portico.ask.languages.phrasebook import Phrases, capital
from portico.ask.prose import shortened
from portico.ask.understanding.fields import spoken
from portico.web.signs import STOCK, word
from portico.web.vocabulary import NAMES, SAID

MAX_LABEL: Final = 60  # characters of the name of a field
_KINDS: Final = re.compile(r"^  kinds: \{\n(.*?)^  \},$", re.MULTILINE | re.DOTALL)
_KIND: Final = re.compile(r'(\w+): "([^"]+)"')
_KNOWN: Final = frozenset([*STOCK, *(name for table in NAMES.values() for name in table)])


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one page."""

    language: str  # of the page, as it names it
    phrases: Phrases

    @property
    def spoken(self) -> str:
        """The language that these words are in."""
        return self.phrases.language if self.is_foreign else self.language

    @property
    def is_foreign(self) -> bool:
        """Whether these words are in another language than the page."""
        return not self._is_in(self.phrases.language)

    @property
    def mark(self) -> str:
        """For an element with an attribute in words: what language they are in, if that is not the page's."""
        return f' lang="{self.spoken}"' if self.is_foreign else ""

    @property
    def unmark(self) -> str:
        """For what stands within such an element and is in the language of the page."""
        return f' lang="{escape(self.language)}"' if self.is_foreign else ""

    def text(self, name: str) -> str:
        """Some words, for an attribute."""
        return escape(SAID[self.phrases.language][name])

    def said(self, name: str, *values: str) -> str:
        """Some words as HTML. The values are HTML that is safe already."""
        return self.marked(self.text(name).format(*values))

    def marked(self, inner: str) -> str:
        """HTML in the language of these words."""
        return f"<bdi{self.mark}>{inner}</bdi>" if self.is_foreign else inner

    def count(self, name: str, number: int) -> str:
        return self.said(name, self.phrases.figure(number, 0))

    def label(self, name: str) -> str:
        """What people call a field, or a value of schema.org, as HTML. A name that is nobody's is left as it is."""
        own = word(STOCK[name], self.phrases) if name in STOCK else NAMES[self.phrases.language].get(name)
        return f"<bdi{self.mark if name in _KNOWN else ''}>{escape(own or label(name))}</bdi>"

    def kind(self, name: str) -> str:
        """What people call things of a type of schema.org, as HTML."""
        own = _kinds(self.phrases.language).get(name)
        return f"<bdi{self._of_kind(name, own)}>{escape(own or label(name))}</bdi>"

    def _of_kind(self, name: str, own: str | None) -> str:
        # English needs no table: its own names are those of schema.org. Which of them are known any other table tells.
        is_english = not own and name in _kinds("de") and not self._is_in("en")
        return ' lang="en"' if is_english else ""

    def _is_in(self, language: str) -> bool:
        """Whether the page is in a language, whichever of its regions it names."""
        return self.language.partition("-")[0].lower() == language


def words_of(language: str) -> Words:
    """The words for a page in a language."""
    return Words(language, phrases(language))


ENGLISH: Final = words_of("en")


def label(name: str) -> str:
    """The name of a field or an operation in English: `totalTime` is Total time."""
    return capital(NAMES["en"].get(name) or shortened(spoken(name) or name, MAX_LABEL))


@cache
def _kinds(language: str) -> Mapping[str, str]:
    """What kinds of things are called, from the one place where that stands: the words of the chat."""
    script = files("portico.web") / "assets" / f"words-{language}.js"
    found = _KINDS.search(script.read_text("utf-8")) if script.is_file() else None
    return dict(_KIND.findall(found[1])) if found else {}
