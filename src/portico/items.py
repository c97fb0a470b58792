"""Items and changes, and functions of their data: merge, diff, hash, validation. Knows no store."""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

import msgspec

Data: TypeAlias = Mapping[str, Any]
ChangeKind: TypeAlias = Literal["create", "update", "delete"]
Patch: TypeAlias = tuple[dict[str, Any], ...]

_encoder = msgspec.json.Encoder(order="sorted")

TITLES = ("name", "headline", "title", "alternateName")  # fields that name an item, the first that it has


@dataclass(frozen=True, slots=True)
class Item:
    """One schema.org object. The version is its etag: it changes with every write that changes the data."""

    id: str
    collection: str
    data: Data
    version: str = ""

    @property
    def ref(self) -> str:
        """The name of the item on the whole site: its id is unique only in its collection."""
        is_whole = not self.collection or self.id.startswith((f"{self.collection}/", "http://", "https://"))
        return self.id if is_whole else f"{self.collection}/{self.id}"


@dataclass(frozen=True, slots=True)
class Change:
    """One write, in the order of the feed. A delete holds the last version of the item."""

    seq: int
    kind: ChangeKind
    item: Item
    patch: Patch
    at: datetime
    undo: Patch = ()  # of an update: the patch that restores the former data
    is_readable: bool = True  # False if its row is damaged: only number, collection and id are known

    @property
    def before(self) -> Item:
        """The item before an update."""
        return replace(self.item, data=apply_patch(self.item.data, self.undo), version="")


def content_hash(data: Data) -> str:
    """Return a hash of the data that does not depend on the order of keys."""
    return hashlib.blake2b(_encoder.encode(data), digest_size=12).hexdigest()


MAX_ID = 1024  # bytes of UTF-8: every database can index that many
MAX_NUMBER = sys.float_info.max  # beyond it, no float can hold a number
MAX_EXACT_INTEGER = 2**53 - 1  # up to here a float holds every integer exactly (RFC 8259, 6)


def problem_with(id: str, data: Data) -> str | None:
    """Say in a few words why this is not a valid item; None if it is."""
    if not id or len(id) > MAX_ID:
        return f"the id has {len(id)} characters; 1 to {MAX_ID} are allowed"
    try:
        problem = _problem(id) or _problem(data)
    except RecursionError:
        return "it is nested too deeply"
    if problem is None and (size := len(id.encode())) > MAX_ID:
        return f"the id has {size} bytes; 1 to {MAX_ID} are allowed"
    return problem


def _problem(value: Any) -> str | None:
    match value:
        case str():
            return text_problem(value)
        case None | bool():
            return None
        case int() | float():
            return None if abs(value) <= MAX_NUMBER else "a number is not finite or too large"
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value).items()
            if not all(isinstance(key, str) for key, _ in pairs):
                return "a key is not a text"
            return next((problem for key, inner in pairs if (problem := text_problem(key) or _problem(inner))), None)
        case list() | tuple():
            return next((problem for inner in cast("list[Any]", value) if (problem := _problem(inner))), None)
        case _:
            return f"a {type(value).__name__} is not JSON"


def text_problem(text: str) -> str | None:
    """Say why a text cannot be stored; None if it can."""
    if text.isascii():
        return "it contains a NUL character" if "\0" in text else None
    if "\0" in text:
        return "it contains a NUL character"
    return "it contains half a surrogate pair" if any("\ud800" <= c <= "\udfff" for c in text) else None


# Controls, halves of surrogate pairs, and ignorable characters: they are invisible, or change the direction of a text.
_INVISIBLE = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Those that occur in ordinary words: soft hyphens, joiners, marks of direction, variation selectors.
IN_WORDS = r"\xad\u034f\u180b-\u180f\u200c-\u200f\ufe00-\ufe0f"
IN_LINES = rf"\t\n{IN_WORDS}"  # also tabs and line breaks


def invisible_pattern(except_for: str = "", also: str = "") -> re.Pattern[str]:
    """Return a pattern for one character that is invisible, or that changes the direction of a text.

    `except_for` and `also` are written as within the brackets of a pattern.
    """
    return re.compile(f"[{_INVISIBLE}{also}]" + (f"(?<![{except_for}])" if except_for else ""))


def version_of(revision: int, digest: str) -> str:
    return f"{revision}-{digest}"


def parts_of(version: str) -> tuple[int, str]:
    """Split a version into its revision and its content hash."""
    revision, _, digest = version.partition("-")
    return int(revision), digest


def merge(old: Data, patch: Data) -> dict[str, Any]:
    """Merge objects key by key; null removes a key, any other value replaces the old one (MCP-AQL 4.5.1)."""
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            existing = merged.get(key)
            base: Data = cast("Data", existing) if isinstance(existing, Mapping) else {}
            merged[key] = merge(base, cast("Data", value))
        else:
            merged[key] = value
    return merged


def diff(old: Data, new: Data) -> Patch:
    """Return the JSON Patch (RFC 6902) that turns old into new. Arrays are replaced whole."""
    return tuple(_differences(old, new, ""))


def apply_patch(data: Data, patch: Patch) -> dict[str, Any]:
    """Return the data with a patch of `diff` applied."""
    result = dict(data)
    for step in patch:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        target = result
        for part in path:
            target[part] = dict(target[part])
            target = target[part]
        if step["op"] == "remove":
            del target[last]
        else:
            target[last] = step["value"]
    return result


def _differences(old: Data, new: Data, path: str) -> Iterator[dict[str, Any]]:
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
    for key, value in new.items():
        where = f"{path}/{_escape(key)}"
        if key not in old:
            yield {"op": "add", "path": where, "value": value}
        elif isinstance(value, Mapping) and isinstance(old[key], Mapping):
            yield from _differences(cast("Data", old[key]), cast("Data", value), where)
        elif _differs(old[key], value):
            yield {"op": "replace", "path": where, "value": value}


def _differs(a: Any, b: Any) -> bool:
    # 1 == 1.0 == True in Python, but they are different JSON.
    return type(a) is not type(b) or _encoder.encode(a) != _encoder.encode(b)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def title_of(data: Mapping[str, Any]) -> str:
    """Return the name of an item; empty if it has none."""
    return next((title for field in TITLES if isinstance(title := data.get(field), str) and title.strip()), "")


def type_name(value: Any) -> str:
    """Return the type of a JSON value, as JSON Schema calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"
