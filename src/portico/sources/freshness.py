"""Stores the last load of each source of the site file, so that every process of a site reports the same."""

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from portico.config import SourceSettings
from portico.items import content_hash
from portico.redaction import redact_url
from portico.store import NoteStore

KEPT_DAYS = 3650
SCOPE = "source\n"  # the prefix of each note

State: TypeAlias = Literal["loading", "loaded", "failed"]


class LoadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last load of a source, or the one in progress."""

    state: State
    at: datetime  # when this status was saved
    items: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: int = 0
    seconds: float = 0.0
    share: float | None = None  # that has been read, if known
    error: str = ""
    source: str = ""  # its name in the store, once it was loaded completely


async def save_status(notes: NoteStore, settings: SourceSettings, status: LoadStatus) -> None:
    await notes.set(_scope(settings), msgspec.json.encode(status), status.at + timedelta(days=KEPT_DAYS))


async def load_status(notes: NoteStore, settings: SourceSettings) -> LoadStatus | None:
    """Return the last status of a source; None if it was never loaded."""
    stored = await notes.get(_scope(settings))
    return msgspec.json.decode(stored, type=LoadStatus) if stored else None


def _scope(settings: SourceSettings) -> str:
    identity = {"url": redact_url(settings.url), "table": settings.table or "", "collection": settings.collection}
    return f"{SCOPE}{content_hash(identity)}"
