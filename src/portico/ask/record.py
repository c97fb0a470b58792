"""The events of an answer as plain JSON and back, for answers that are given later."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from portico.ask.events import Did, Event, Finished, Found, Said, Understood

KEPT: dict[str, type[Event]] = {kind.__name__: kind for kind in (Understood, Found, Said, Did, Finished)}


def recorded(events: Iterable[Event]) -> dict[str, Any]:
    """What is worth keeping of an answer that came to its end."""
    kept = [event for event in events if type(event).__name__ in KEPT]
    return {"events": [{"event": type(each).__name__, **msgspec.to_builtins(each)} for each in kept]}


def replayed(record: Mapping[str, Any]) -> tuple[Event, ...]:
    """The events as they were."""
    kept = cast("list[dict[str, Any]]", record["events"])
    return tuple(msgspec.convert({k: v for k, v in each.items() if k != "event"}, KEPT[each["event"]]) for each in kept)
