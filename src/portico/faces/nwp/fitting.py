"""Fits records and changes into frames of a bounded size. Lists everything it leaves out; asks nobody."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final, cast

import msgspec

from portico.budget import Trimmed, estimate, is_long, summary
from portico.catalog import ID
from portico.errors import TooLarge
from portico.faces.nwp.frames import DiffFrame, Tier, encode_value

FRAME_SIZE: Final = "frame_size"  # the reason in `trimmed`
MAX_NAMED: Final = 50  # fields that `trimmed` names; of more it says how many
MAX_NAME: Final = 64  # characters of such a name
ENVELOPE: Final = 1024  # bytes of a frame besides its records, at most, but for what it carries along

Record = Mapping[str, Any]


def fit_records(records: Sequence[Any], room: int, tier: Tier) -> Trimmed:
    """Keep the first records that take at most `room` bytes. One that is too large by itself is shortened.

    Long texts become summaries and other values go, the largest first; the id stays.
    """
    ends = accumulate(len(encode_value(record, tier)) + 1 for record in records)
    count = sum(end < room for end in ends)
    if count or not records:
        kept = list(records[:count])
        return _trimmed(kept, dropped_records=len(records) - count)
    shortened, dropped, summarized = _shorten(records[0], room - 2, tier)
    return _trimmed([shortened], dropped, summarized, len(records) - 1)


def joined(before: Trimmed, after: Trimmed) -> Trimmed:
    """Return records that were trimmed twice, with what they lack since either time."""
    return replace(
        after,
        dropped_fields=before.dropped_fields + after.dropped_fields,
        summarized_fields=before.summarized_fields + after.summarized_fields,
        dropped_records=before.dropped_records + after.dropped_records,
    )


def fit_change(frame: DiffFrame, largest: int, tier: Tier) -> DiffFrame:
    """Leave the largest values out of a change whose frame would have more than `largest` bytes.

    A value is left out whole: a reader applies the patch to its copy, which a summary would spoil.
    """
    room = largest - ENVELOPE
    match frame.patch:
        case [{"op": "add", "path": "", "value": dict()}]:
            kept, dropped = _without_largest(cast("Record", frame.patch[0]["value"]), room, tier)
            patch = [{"op": "add", "path": "", "value": kept}]
        case _:
            steps = {step["path"]: step for step in frame.patch}
            kept, lost = _without_largest(steps, room, tier)
            patch, dropped = list(kept.values()), [_field_of(path) for path in lost]
    trimmed = {"reason": FRAME_SIZE, **name_fields("dropped_fields", list(dict.fromkeys(dropped)))}
    return msgspec.structs.replace(frame, patch=patch, trimmed=trimmed)


def name_fields(member: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a member of `trimmed` that names fields. A record may have more of them than a frame could list."""
    named = {member: [name[:MAX_NAME] for name in names[:MAX_NAMED]]}
    return named if len(names) <= MAX_NAMED else {**named, f"{member}_total": len(names)}


def _trimmed(
    records: list[Any], dropped: Sequence[str] = (), summarized: Sequence[str] = (), dropped_records: int = 0
) -> Trimmed:
    cost = estimate(len(encode_value(records, Tier.JSON)))
    return Trimmed(records, cost, tuple(dropped), tuple(summarized), dropped_records)


def _shorten(record: Any, room: int, tier: Tier) -> tuple[Record, list[str], list[str]]:
    """Return a record that takes at most `room` bytes, the fields it lacks and those that are summaries."""
    if not isinstance(record, Mapping):
        raise _too_large(room)
    whole = cast("Record", record)
    summaries = {field: summary(value) for field, value in whole.items() if field != ID and is_long(value)}
    sizes = _sizes(whole, tier)
    room -= len(encode_value(name_fields("summarized_fields", list(summaries)), tier))
    excess, used = sum(sizes.values()) - room, dict[str, str]()
    for field in sorted(summaries, key=lambda field: -sizes[field]):
        if excess > 0:
            used[field] = summaries[field]
            excess -= sizes[field] - len(encode_value({field: used[field]}, tier))
    kept, dropped = _without_largest({**whole, **used}, room, tier)
    return kept, dropped, [field for field in used if field in kept]


def _without_largest(members: Record, room: int, tier: Tier) -> tuple[dict[str, Any], list[str]]:
    """Leave members out until the rest takes at most `room` bytes, the largest first. The id stays."""
    sizes = _sizes(members, tier)
    largest = sorted(sizes, key=lambda name: -sizes[name])
    named = len(encode_value(name_fields("dropped_fields", largest), tier))
    excess, dropped = sum(sizes.values()) + named - room, list[str]()
    for name in largest:
        if excess > 0 and name != ID:
            dropped.append(name)
            excess -= sizes[name]
    if excess > 0:
        raise _too_large(room)
    return {name: value for name, value in members.items() if name not in dropped}, dropped


def _sizes(members: Record, tier: Tier) -> dict[str, int]:
    """Return the bytes that each member takes, those around it included."""
    return {name: len(encode_value({name: value}, tier)) for name, value in members.items()}


def _field_of(path: str) -> str:
    """Return the field that a JSON Pointer leads into."""
    return path.removeprefix("/").partition("/")[0].replace("~1", "/").replace("~0", "~")


def _too_large(room: int) -> TooLarge:
    return TooLarge(
        f"Not even the id of the record fits the {max(room, 0)} bytes that a frame has for it",
        limit=max(room, 0),
        hint="Say a larger max_frame_payload in the HelloFrame.",
    )
