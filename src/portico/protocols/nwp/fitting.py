"""Fits records and changes into frames of a bounded size, and lists everything it leaves out. Does no I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import msgspec

from portico.access.budget import (
    TokenCost,
    TrimmedRecords,
    estimate_cost,
    find_identifying_fields,
    is_long_text,
    summary,
    trim_to,
)
from portico.catalog import ID
from portico.errors import TooLarge
from portico.protocols.nwp.frames import DiffFrame, EncodingTier, encode_value

FRAME_SIZE: Final = "frame_size"  # the reason in `trimmed`
MAX_NAMED: Final = 50  # fields that `trimmed` names; beyond that it gives their number
MAX_NAME: Final = 64  # characters of such a name
ENVELOPE: Final = 1024  # most bytes of a frame besides its records, without an inlined schema

Record = Mapping[str, Any]


def fit_records(
    records: Sequence[Record], room: int, tier: EncodingTier, keep: Collection[str] = (), last: Collection[str] = ()
) -> TrimmedRecords:
    """Trim records to `room` bytes, with the names of what they lack, in the order in which a budget trims them.

    Long titles and fields to `keep` become summaries before a field that was asked for goes; after that the title may
    go. The id and the fields to `keep` never do.
    """
    fixed = frozenset((ID, *keep))
    identifying = fixed | find_identifying_fields(records)
    values = ((field, value) for record in records for field, value in record.items())
    long = tuple(dict.fromkeys(field for field, value in values if field in identifying - {ID} and is_long_text(value)))
    summaries = [{field: _summarize(field, value, long) for field, value in record.items()} for record in records]
    trimmed = _fit(records, room, tier, identifying, last)
    if trimmed and not set(trimmed.dropped_fields) & set(last):
        return trimmed
    trimmed = _fit(summaries, room, tier, identifying, last, long) or _fit(summaries, room, tier, fixed, last, long)
    if trimmed is None:
        raise TooLarge(
            f"A frame has {max(room, 0)} bytes for records, too few for the id and the required fields of this one",
            limit=max(room, 0),
            hint="Send a larger `max_frame_payload` in the HelloFrame.",
        )
    return trimmed


def combine(before: TrimmedRecords, after: TrimmedRecords) -> TrimmedRecords:
    """Return records that were trimmed twice, with all that they lack."""
    summarized = (*before.summarized_fields, *after.summarized_fields)
    return replace(
        after,
        dropped_fields=before.dropped_fields + after.dropped_fields,
        summarized_fields=tuple(field for field in summarized if field not in after.dropped_fields),
        dropped_records=before.dropped_records + after.dropped_records,
    )


def fit_change(frame: DiffFrame, largest: int, tier: EncodingTier) -> DiffFrame:
    """Leave the largest values out of a change whose frame would have more than `largest` bytes.

    A value is left out whole: a reader applies the patch to its copy, which a summary would spoil.
    """
    room = largest - ENVELOPE
    match frame.patch:
        case [{"op": "add", "path": "", "value": dict()}]:
            record = cast("Record", frame.patch[0]["value"])
            members, dropped = _drop_largest(record, room, tier, find_identifying_fields([record]))
            patch = [{"op": "add", "path": "", "value": members}]
        case _:
            steps = {step["path"]: step for step in frame.patch}
            members, lost = _drop_largest(steps, room, tier)
            patch, dropped = list(members.values()), [_field_of(path) for path in lost]
    trimmed = {"reason": FRAME_SIZE, **name_fields("dropped_fields", list(dict.fromkeys(dropped)))}
    return msgspec.structs.replace(frame, patch=patch, trimmed=trimmed)


def name_fields(member: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a member of `trimmed` that names fields. A record may have more of them than a frame could list."""
    member_names = {member: [name[:MAX_NAME] for name in names[:MAX_NAMED]]}
    return member_names if len(names) <= MAX_NAMED else {**member_names, f"{member}_total": len(names)}


def describe_trimming(trimmed: TrimmedRecords, reason: str) -> dict[str, Any]:
    """Return the member `trimmed` of an answer: nothing is cut in silence (13.3)."""
    return {
        "reason": reason,
        **name_fields("dropped_fields", trimmed.dropped_fields),
        **name_fields("summarized_fields", trimmed.summarized_fields),
        "dropped_records": trimmed.dropped_records,
    }


def _fit(
    records: Sequence[Record],
    room: int,
    tier: EncodingTier,
    keep: Collection[str],
    last: Collection[str],
    summarized: tuple[str, ...] = (),
) -> TrimmedRecords | None:
    """Trim records of which some fields may be summaries already; None if that does not make them fit."""

    def measure(trimmed: TrimmedRecords) -> TokenCost | None:
        described = describe_trimming(_add_summaries(trimmed, summarized), FRAME_SIZE)
        if len(encode_value(trimmed.records, tier)) + len(encode_value(described, tier)) > room:
            return None
        return estimate_cost(len(encode_value(trimmed.records, EncodingTier.JSON)))

    trimmed = trim_to(records, measure, room, keep, last)
    return trimmed and _add_summaries(trimmed, summarized)


def _add_summaries(trimmed: TrimmedRecords, fields: Sequence[str]) -> TrimmedRecords:
    present = tuple(field for field in fields if field not in trimmed.dropped_fields)
    return replace(trimmed, summarized_fields=trimmed.summarized_fields + present)


def _summarize(field: str, value: Any, fields: Collection[str]) -> Any:
    return summary(value) if field in fields and is_long_text(value) else value


def _drop_largest(
    members: Record, room: int, tier: EncodingTier, identifying: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Keep the id, the fields that identify a record, and of the rest the smallest, in `room` bytes."""
    sizes = {name: len(encode_value({name: value}, tier)) for name, value in members.items()}
    largest = sorted(sizes, key=lambda name: (name == ID, name in identifying, -sizes[name]))
    left = room - len(encode_value(name_fields("dropped_fields", largest), tier))
    fitting_names = set[str]()
    for name in reversed(largest):
        if sizes[name] <= left:
            fitting_names.add(name)
            left -= sizes[name]
    if ID in members and ID not in fitting_names:
        raise TooLarge(
            f"A frame has {max(room, 0)} bytes for a change, too few for the id of its record",
            limit=max(room, 0),
            hint="Send a larger `max_frame_payload` in the HelloFrame.",
        )
    dropped = [name for name in largest if name not in fitting_names]
    return {name: value for name, value in members.items() if name in fitting_names}, dropped


def _field_of(path: str) -> str:
    """Return the field that a JSON Pointer leads into."""
    return path.removeprefix("/").partition("/")[0].replace("~1", "/").replace("~0", "~")
