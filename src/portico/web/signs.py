"""The short words and the drawings that stand by the facts of an item: those that the scripts of pages have."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from portico.ask.languages.phrasebook import HOUR, LENGTHS, MINUTE, Phrases, capital

_ICONS: Final = re.compile(r"^const ICONS = \{\n(.*?)^\};$", re.MULTILINE | re.DOTALL)
_ICON: Final = re.compile(r'(\w+):\s*"([^"]+)"')

# What a language writes shorter by a fact than in a sentence, and what no sentence says. Browsers have the same units.
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
_SAID: Final[Mapping[str, Callable[[Phrases], str]]] = {
    "hour": lambda phrases: phrases.script.units[LENGTHS.index(HOUR)][1],
    "minute": lambda phrases: phrases.script.units[LENGTHS.index(MINUTE)][1],
    "free": lambda phrases: phrases.free,
    "price": lambda phrases: phrases.word("price"),
    "in stock": lambda phrases: phrases.limits.in_stock,
}


def word(name: str, phrases: Phrases) -> str:
    """A word that stands alone, as `assets/words.js` has it."""
    return _SHORT[phrases.language].get(name) or capital(_SAID[name](phrases))


def icon(name: str) -> str:
    """A drawing beside a text, hidden from screen readers."""
    path = _drawings()[name]
    return f'<svg class="icon icon-{name}" viewBox="0 0 24 24" aria-hidden="true"><path d="{path}"/></svg>'


@cache
def _drawings() -> Mapping[str, str]:
    """The paths of all icons, from the one place where they are drawn."""
    found = _ICONS.search((files("portico.web") / "assets" / "dom.js").read_text("utf-8"))
    return dict(_ICON.findall(found[1] if found else ""))
