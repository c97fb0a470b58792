"""The interface texts of pages: in the language of the page, or in English that is marked as English.

The mark lets screen readers pronounce the texts correctly on a page in a language without translations.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from portico.ask.languages.localization import phrases
from portico.ask.languages.phrasebook import HOUR, LENGTHS, MINUTE, Phrases, capitalize
from portico.ask.prose import shorten
from portico.ask.understanding.fields import words_of
from portico.web.vocabulary import NAMES, TEXTS

MAX_LABEL: Final = 60  # characters of the name of a field
_KINDS: Final = re.compile(r"^  kinds: \{\n(.*?)^  \},$", re.MULTILINE | re.DOTALL)
_KIND: Final = re.compile(r'(\w+): "([^"]+)"')
_ICONS: Final = re.compile(r"^const ICONS = \{\n(.*?)^\};$", re.MULTILINE | re.DOTALL)
_ICON: Final = re.compile(r'(\w+):\s*"([^"]+)"')

# Words that are shorter in a list of facts than in a sentence. Browsers use the same units.
_SHORT: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {"hour": "hr", "minute": "min", "free": "Free", "sold out": "Sold out"},
    "de": {"hour": "Std.", "minute": "Min.", "sold out": "Ausverkauft"},
    "es": {"hour": "h", "minute": "min", "sold out": "Agotado"},
    "fr": {"hour": "h", "minute": "min", "sold out": "Épuisé"},
    "ar": {"hour": "س", "minute": "د", "sold out": "نفد"},
    "ja": {"sold out": "売り切れ"},
    "zh": {"sold out": "售罄"},
}
STOCK: Final = {"InStock": "in stock", "OutOfStock": "sold out", "SoldOut": "sold out"}
_FROM_PHRASES: Final[Mapping[str, Callable[[Phrases], str]]] = {
    "hour": lambda phrases: phrases.script.units[LENGTHS.index(HOUR)][1],
    "minute": lambda phrases: phrases.script.units[LENGTHS.index(MINUTE)][1],
    "free": lambda phrases: phrases.free,
    "price": lambda phrases: phrases.word("price"),
    "in stock": lambda phrases: phrases.limits.in_stock,
}
_KNOWN: Final = frozenset([*STOCK, *(name for table in NAMES.values() for name in table)])


@dataclass(frozen=True, slots=True)
class Words:
    """The interface texts of one page."""

    language: str  # of the page, as a language tag
    phrases: Phrases

    @property
    def own_language(self) -> str:
        """The language of these texts."""
        return self.phrases.language if self.is_foreign else self.language

    @property
    def is_foreign(self) -> bool:
        """Whether these texts are in another language than the page."""
        return not self._is_in(self.phrases.language)

    @property
    def mark(self) -> str:
        """The `lang` attribute for an element with these texts, if they are not in the page's language."""
        return f' lang="{self.own_language}"' if self.is_foreign else ""

    @property
    def unmark(self) -> str:
        """The `lang` attribute for content in the page's language within such an element."""
        return f' lang="{escape(self.language)}"' if self.is_foreign else ""

    def text(self, name: str) -> str:
        """Return a text, escaped for an attribute."""
        return escape(TEXTS[self.phrases.language][name])

    def html(self, name: str, *values: str) -> str:
        """Return a text as HTML. The values are safe HTML."""
        return self.mark_html(self.text(name).format(*values))

    def mark_html(self, inner: str) -> str:
        """Mark HTML that is in the language of these texts."""
        return f"<bdi{self.mark}>{inner}</bdi>" if self.is_foreign else inner

    def count(self, name: str, number: int) -> str:
        return self.html(name, self.phrases.figure(number, 0))

    def label(self, name: str) -> str:
        """Return the translated name of a field or schema.org value as HTML; an unknown name stays as it is."""
        own = word(STOCK[name], self.phrases) if name in STOCK else NAMES[self.phrases.language].get(name)
        return f"<bdi{self.mark if name in _KNOWN else ''}>{escape(own or label(name))}</bdi>"

    def kind(self, name: str) -> str:
        """Return the translated name of a schema.org type as HTML."""
        own = _kinds(self.phrases.language).get(name)
        return f"<bdi{self._of_kind(name, own)}>{escape(own or label(name))}</bdi>"

    def _of_kind(self, name: str, own: str | None) -> str:
        # English has no table: its names are those of schema.org. Any other table shows which of them are known.
        is_english = not own and name in _kinds("de") and not self._is_in("en")
        return ' lang="en"' if is_english else ""

    def _is_in(self, language: str) -> bool:
        """Return whether the page is in this language, in any of its regions."""
        return self.language.partition("-")[0].lower() == language


def page_words(language: str) -> Words:
    """Return the interface texts for a page in a language."""
    return Words(language, phrases(language))


ENGLISH: Final = page_words("en")


def label(name: str) -> str:
    """Return the English name of a field or an operation: `totalTime` is Total time."""
    return capitalize(NAMES["en"].get(name) or shorten(words_of(name) or name, MAX_LABEL))


@cache
def _kinds(language: str) -> Mapping[str, str]:
    """Return the names of schema.org types from the script of the chat, which defines them."""
    script = files("portico.web") / "assets" / f"words-{language}.js"
    match = _KINDS.search(script.read_text("utf-8")) if script.is_file() else None
    return dict(_KIND.findall(match[1])) if match else {}


def word(name: str, phrases: Phrases) -> str:
    """Return a word for a list of facts, the same as in `assets/words.js`."""
    return _SHORT[phrases.language].get(name) or capitalize(_FROM_PHRASES[name](phrases))


def icon(name: str) -> str:
    """Render an icon, hidden from screen readers."""
    path = _drawings()[name]
    return f'<svg class="icon icon-{name}" viewBox="0 0 24 24" aria-hidden="true"><path d="{path}"/></svg>'


@cache
def _drawings() -> Mapping[str, str]:
    """Return the SVG paths of all icons from the script that defines them."""
    match = _ICONS.search((files("portico.web") / "assets" / "dom.js").read_text("utf-8"))
    return dict(_ICON.findall(match[1] if match else ""))
