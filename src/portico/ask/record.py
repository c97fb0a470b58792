"""The events of an answer as plain JSON and back, for answers that are stored and delivered later."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from portico.ask.events import EndEvent, Event, InterpretationEvent, ItemEvent, OperationEvent, TextEvent

# The tags are part of stored tasks and of the results of the operation `ask`: they do not change with the classes.
RECORDED_TYPES: dict[str, type[Event]] = {
    "Understood": InterpretationEvent,
    "Found": ItemEvent,
    "Said": TextEvent,
    "Did": OperationEvent,
    "Finished": EndEvent,
}
_TAGS: dict[type[Event], str] = {kind: tag for tag, kind in RECORDED_TYPES.items()}


def record_events(events: Iterable[Event]) -> dict[str, Any]:
    """Return the events that make up a finished answer as JSON values, each with its tag."""
    return {
        "events": [
            {"event": _TAGS[type(event)], **msgspec.to_builtins(event)} for event in events if type(event) in _TAGS
        ]
    }


def load_events(record: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the events of a record, as they were when it was made."""
    events = cast("list[dict[str, Any]]", record["events"])
    return tuple(
        msgspec.convert(
            {name: value for name, value in event.items() if name != "event"}, RECORDED_TYPES[event["event"]]
        )
        for event in events
    )
