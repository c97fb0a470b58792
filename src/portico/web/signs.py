"""The short words and the drawings that stand by the facts of an item: those that the scripts of pages have."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

_ICONS: Final = re.compile(r"^const ICONS = \{\n(.*?)^\};$", re.MULTILINE | re.DOTALL)
_ICON: Final = re.compile(r'(\w+):\s*"([^"]+)"')

# As browsers and `assets/words.js` have them. Other languages are told in English.
_NAMES: Final = ("hour", "minute", "free", "price", "in stock", "sold out")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "en": ("hr", "min", "Free", "Price", "In stock", "Sold out"),
    "de": ("Std.", "Min.", "Kostenlos", "Preis", "Vorrätig", "Ausverkauft"),
    "es": ("h", "min", "Gratis", "Precio", "Disponible", "Agotado"),
    "fr": ("h", "min", "Gratuit", "Prix", "En stock", "Épuisé"),
}


def word(name: str, language: str) -> str:
    return _WORDS.get(language, _WORDS["en"])[_NAMES.index(name)]


def icon(name: str) -> str:
    """A drawing beside a text, hidden from screen readers."""
    path = _drawings()[name]
    return f'<svg class="icon icon-{name}" viewBox="0 0 24 24" aria-hidden="true"><path d="{path}"/></svg>'


@cache
def _drawings() -> Mapping[str, str]:
    """The paths of all icons, from the one place where they are drawn."""
    found = _ICONS.search((files("portico.web") / "assets" / "dom.js").read_text("utf-8"))
    return dict(_ICON.findall(found[1] if found else ""))
