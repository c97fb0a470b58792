"""Names of fields: which texts can be one, and the other names that find a field. Knows no collection and no protocol.

A field has up to three names. Its own is the key of the data, whatever its characters. Its alias has plain characters
only, for protocols that allow no others. Its normal form is what people type: no capitals, accents or punctuation.
"""

import hashlib
import re
import unicodedata
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from portico.errors import UnknownField
from portico.items import invisible_pattern, text_problem

MAX_NAME = 512  # characters of a field's name
MAX_PATH = 1024  # characters of a path such as offers.price
MAX_STEPS = 8  # of a path
MAX_ALIAS = 64  # characters
DIGEST = 8  # characters that tell apart names whose aliases would be the same
UNNAMED = "field"
RESERVED = frozenset({"id"})  # names that are not for fields

PLAIN = re.compile(r"[A-Za-z0-9_@:-][A-Za-z0-9_@$:-]{0,127}\Z")  # names that are their own alias
_NOT_IN_ALIAS = re.compile(r"[^a-z0-9]+")
_NOT_IN_NORMAL_FORM = re.compile(r"[\W_]+")
# Joiners and variation selectors belong to the words of some languages; marks of direction belong to no name.
_INVISIBLE = invisible_pattern(except_for=r"\u200c\u200d\ufe00-\ufe0f", also=r"\u2028\u2029")
_SPACES = re.compile(r"\s+")
_WORDS = re.compile(r"@?[\w\s-]+\Z")


def problem_with_name(name: str) -> str | None:
    """Say in a few words why a text cannot be the name of a field; None if it can."""
    if not name or name.isspace():
        return "it is empty"
    if len(name) > MAX_NAME:
        return f"it has {len(name)} characters; up to {MAX_NAME} are allowed"
    return "it contains invisible characters" if _INVISIBLE.search(name) else None


def clean_name(name: str) -> str:
    """Return the name of a field for any text: without what `problem_with_name` finds in it."""
    if problem_with_name(name) is None:
        return name
    spaced = re.sub(r"[\t\n\r\x0b\x0c\x85\u2028\u2029]+", " ", name[: 4 * MAX_NAME])
    cleaned = _SPACES.sub(" ", _INVISIBLE.sub("", spaced)).strip()
    if len(name) > MAX_NAME:
        cleaned = f"{cleaned[: MAX_NAME - DIGEST - 1]}_{_digest(name)}"
    return cleaned or UNNAMED


@lru_cache(maxsize=4096)
def normalize(name: str) -> str:
    """Return what spellings of one name have in common: `Région-Name ` and `region_name` are one.

    Empty for a name without letters and digits. The @ of JSON-LD's keywords stays: @type is not type.
    """
    words = _NOT_IN_NORMAL_FORM.sub("_", fold(name)).strip("_")
    return f"@{words}" if words and name.startswith("@") else words


@lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """Return a name without capitals, accents and spare spaces, and with its punctuation."""
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    letters = "".join(c for c in decomposed if not unicodedata.combining(c))
    return _SPACES.sub(" ", unicodedata.normalize("NFC", letters)).strip()


def alias_of(name: str) -> str:
    """Return a name of small letters, digits and underscores for a field. It depends on the field's own name alone."""
    words = normalize(name)
    plain = _NOT_IN_ALIAS.sub("_", words).strip("_")
    if not plain:
        return f"{UNNAMED}_{_digest(name)}"
    if plain[0].isdigit():
        plain = f"{UNNAMED}_{plain}"
    is_whole = words.isascii() and len(plain) <= MAX_ALIAS
    return plain if is_whole else f"{_shorten(plain)}_{_digest(name)}"


def _distinct(alias: str, name: str, taken: Container[str]) -> str:
    """Return the alias, or if it is taken, one that ends with a digest of the field's own name."""
    if alias not in taken:
        return alias
    short = f"{_shorten(alias)}_{_digest(name)}"
    return short if short not in taken else f"{_shorten(alias)}_{_digest(name, 4 * DIGEST)}"


def _shorten(alias: str) -> str:
    return alias[: MAX_ALIAS - DIGEST - 1].rstrip("_")


def _digest(name: str, length: int = DIGEST) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=length // 2).hexdigest()


@dataclass(frozen=True, slots=True)
class FieldNames:
    """All names of the fields of a collection.

    Aliases are assigned in the order in which the fields came, so that a later field changes none of them.
    """

    aliases: Mapping[str, str] = field(default_factory=dict[str, str])  # of the fields that have another one
    own_names: Mapping[str, str] = field(default_factory=dict[str, str])  # by those aliases
    folded: Mapping[str, str] = field(default_factory=dict[str, str])  # the first field of each spelling
    normal_forms: Mapping[str, str] = field(default_factory=dict[str, str])  # the first field of each

    def alias(self, own: str) -> str:
        """Return the alias of a field by its own name."""
        return self.aliases.get(own, own)

    def alias_path(self, path: str) -> str:
        """Return a path of own names as one that begins with an alias."""
        return _replace_head(path, self.aliases)

    def own_path(self, path: str) -> str:
        """Return a path that begins with an alias as one of own names; any other as it is."""
        return _replace_head(path, self.own_names)

    def find(self, name: str) -> str | None:
        """Return the own name of the field with this alias or, failing that, the same letters.

        Other punctuation than that of the field's own name is taken for another name: `Price (€)` is not `Price ($)`.
        """
        if len(name) > MAX_PATH:
            return None
        own = self.own_names.get(name) or self.folded.get(fold(name))
        return own or (self.normal_forms.get(normalize(name)) if _WORDS.match(name) else None)


def _replace_head(path: str, names: Mapping[str, str]) -> str:
    """Return a path with the longest beginning that is one of the names replaced."""
    head, rest = path, ""
    while names and head:
        if head in names:
            return names[head] + rest
        head = head.rpartition(".")[0]
        rest = path[len(head) :]
    return path


@lru_cache(maxsize=256)
def index_names(names: tuple[str, ...], plain: re.Pattern[str] = PLAIN) -> FieldNames:
    """Return the names of fields, given their own in order. Names that match `plain` are their own aliases."""
    taken = set(RESERVED)
    aliases: dict[str, str] = {}
    folded: dict[str, str] = {}
    normal_forms: dict[str, str] = {}
    for name in names:
        alias = _distinct(name if plain.match(name) else alias_of(name), name, taken)
        taken.add(alias)
        if alias != name:
            aliases[name] = alias
        words = normalize(name)
        if words and words not in RESERVED:
            folded.setdefault(fold(name), name)
            normal_forms.setdefault(words, name)
    return FieldNames(aliases, {alias: name for name, alias in aliases.items()}, folded, normal_forms)


@lru_cache(maxsize=1024)
def segments(path: str) -> tuple[str, ...]:
    """Split a path such as `offers.price`. Raise UnknownField for a text that cannot be a path."""
    if not is_path(path):
        shown = path[:MAX_PATH]
        raise UnknownField(
            f"{shown!r} is not a field name", field=shown, hint="Write the name of a field, with dots between levels."
        )
    return tuple(path.split("."))


def is_path(text: str) -> bool:
    """Whether every database can look up what a text leads to."""
    return len(text) <= MAX_PATH and text.count(".") < MAX_STEPS and all(text.split(".")) and not text_problem(text)
