"""Item and Change, and what can be said of their data: merge, diff, hash. Knows no store."""

import hashlib
import re
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
        """What it is called on the whole site: an id belongs to one item of its collection alone."""
        is_whole = not self.collection or self.id.startswith((f"{self.collection}/", "http://", "https://"))
        return self.id if is_whole else f"{self.collection}/{self.id}"


@dataclass(frozen=True, slots=True)
class Change:
    """One write, in the order of the feed. A delete carries the item as it last was."""

    seq: int
    kind: ChangeKind
    item: Item
    patch: Patch
    at: datetime
    undo: Patch = ()  # what turns the item back into what it was, for an update
    is_readable: bool = True  # else its row is damaged: only number, collection and id are known

    @property
    def before(self) -> Item:
        """An updated item as it was."""
        return replace(self.item, data=patched(self.item.data, self.undo), version="")


def content_hash(data: Data) -> str:
    """The same for equal data whatever the order of keys."""
    return hashlib.blake2b(_encoder.encode(data), digest_size=12).hexdigest()


MAX_ID = 1024  # bytes of UTF-8: every database can index that many
_MAX_FLOAT = 1.7976931348623157e308


def problem_with(id: str, data: Data) -> str | None:
    """Why this cannot be kept as an item, in a few words; None if it can."""
    if not id or len(id) > MAX_ID:
        return f"the id has {len(id)} characters; 1 to {MAX_ID} are allowed"
    try:
        return _problem(id) or _length_problem(id) or _problem(data)
    except RecursionError:
        return "it is nested too deeply"


def _length_problem(id: str) -> str | None:
    size = len(id.encode())
    return f"the id has {size} bytes; 1 to {MAX_ID} are allowed" if size > MAX_ID else None


def _problem(value: Any) -> str | None:
    match value:
        case str():
            return text_problem(value)
        case None | bool():
            return None
        case int() | float():
            return None if abs(value) <= _MAX_FLOAT else "a number is not finite or too large"
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value).items()
            return next((said for key, each in pairs if (said := _key_problem(key) or _problem(each))), None)
        case list() | tuple():
            return next((said for each in cast("list[Any]", value) if (said := _problem(each))), None)
        case _:
            return f"a {type(value).__name__} is not JSON"


def _key_problem(key: Any) -> str | None:
    return text_problem(key) if isinstance(key, str) else "a key is not a text"


def text_problem(text: str) -> str | None:
    """Why a text cannot be kept; None if it can."""
    if text.isascii():
        return "it contains a NUL character" if "\0" in text else None
    if "\0" in text:
        return "it contains a NUL character"
    return "it contains half a surrogate pair" if any("\ud800" <= c <= "\udfff" for c in text) else None


# Controls, halves of surrogate pairs, and what Unicode calls ignorable: nothing is drawn for it, or it turns a text.
_UNSEEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Of these, what words and signs are written with: soft hyphens, joiners, marks of direction, variants.
IN_WORDS = r"\xad\u034f\u180b-\u180f\u200c-\u200f\ufe00-\ufe0f"
IN_LINES = rf"\t\n{IN_WORDS}"  # and what several lines are, and columns


def unseen(but: str = "", also: str = "") -> re.Pattern[str]:
    """A pattern of one character that no eye sees, or that turns the direction of a text.

    What is left out and what is added are written as within the brackets of a pattern.
    """
    return re.compile(f"[{_UNSEEN}{also}]" + (f"(?<![{but}])" if but else ""))


def version_of(revision: int, digest: str) -> str:
    return f"{revision}-{digest}"


def parts_of(version: str) -> tuple[int, str]:
    """The revision and the content hash that a version was made of."""
    revision, _, digest = version.partition("-")
    return int(revision), digest


def merge(old: Data, patch: Data) -> dict[str, Any]:
    """Objects merge key by key, everything else replaces, null removes (MCP-AQL 4.5.1)."""
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            kept = merged.get(key)
            base: Data = cast("Data", kept) if isinstance(kept, Mapping) else {}
            merged[key] = merge(base, cast("Data", value))
        else:
            merged[key] = value
    return merged


def diff(old: Data, new: Data) -> Patch:
    """The JSON Patch (RFC 6902) that turns old into new. Arrays are replaced whole."""
    return tuple(_differences(old, new, ""))


def patched(data: Data, patch: Patch) -> dict[str, Any]:
    """The data with a patch of `diff` applied."""
    result = dict(data)
    for step in patch:
        *path, last = (_unescape(part) for part in step["path"].split("/")[1:])
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
        elif _unlike(old[key], value):
            yield {"op": "replace", "path": where, "value": value}


def _unlike(a: Any, b: Any) -> bool:
    # 1 == 1.0 == True in Python, but they are different JSON.
    return type(a) is not type(b) or _encoder.encode(a) != _encoder.encode(b)


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def title_of(data: Mapping[str, Any]) -> str:
    """What an item is called; empty if it has no name."""
    return next((said for field in TITLES if isinstance(said := data.get(field), str) and said.strip()), "")


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
