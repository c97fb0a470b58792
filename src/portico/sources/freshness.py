"""How fresh a source of the site file is: kept in the store, so that every process of a site tells the same of it."""

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from portico.config import SourceSettings
from portico.items import content_hash
from portico.redaction import redact_url
from portico.store import NoteStore

KEPT_DAYS = 3650
SCOPE = "source\n"  # before the name of each note

State: TypeAlias = Literal["loading", "loaded", "failed"]


class Freshness(msgspec.Struct, frozen=True, kw_only=True):
    """How a source was last loaded, or how that is going."""

    state: State
    at: datetime  # when this was so
    items: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: int = 0
    seconds: float = 0.0
    share: float | None = None  # of it that has been read, where that is known
    error: str = ""
    source: str = ""  # its name in the store, once it was loaded to its end under that name


async def remember(notes: NoteStore, said: SourceSettings, fresh: Freshness) -> None:
    await notes.set(_scope(said), msgspec.json.encode(fresh), fresh.at + timedelta(days=KEPT_DAYS))


async def freshness(notes: NoteStore, said: SourceSettings) -> Freshness | None:
    """None for a source that was never loaded."""
    stored = await notes.get(_scope(said))
    return msgspec.json.decode(stored, type=Freshness) if stored else None


def _scope(said: SourceSettings) -> str:
    known = {"url": redact_url(said.url), "table": said.table or "", "collection": said.collection}
    return f"{SCOPE}{content_hash(known)}"
