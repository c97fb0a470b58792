"""Stores the last load of each source of the site file, so that every process of a site reports the same."""

import secrets
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from portico.config import Config, SourceSettings
from portico.items import content_hash
from portico.redaction import redact_url
from portico.sources.records import collection_for
from portico.sources.revisions import Revision
from portico.store import NoteStore

KEPT_DAYS = 3650
SCOPE = "source\n"  # the prefix of each note
REQUEST_SCOPE = "source-request\n"
SILENT_SECONDS = 30.0  # without progress, after which a load counts as interrupted

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
    report: str = ""  # the name of its saved report
    started: datetime | None = None
    succeeded: datetime | None = None  # when a load last succeeded
    failures: int = 0  # in a row
    revision: Revision | None = None  # of the source, after a complete load
    is_unchanged: bool = False  # the source was not read, because it was as it had been
    request: str = ""  # the last request to load it that was followed

    @property
    def is_interrupted(self) -> bool:
        """Whether the load has made no progress for so long that its process must have ended."""
        return self.state == "loading" and datetime.now(UTC) - self.at > timedelta(seconds=SILENT_SECONDS)

    def settle(self) -> "LoadStatus":
        """Return the present status: a load that was interrupted has failed."""
        if not self.is_interrupted:
            return self
        return replace(self, state="failed", error="It was interrupted", failures=self.failures + 1)


def failed_status(before: LoadStatus | None, error: str) -> LoadStatus:
    """Return the status of a load that failed, of a source with this status before or during the load."""
    now = datetime.now(UTC)
    before = before or LoadStatus(state="failed", at=now)
    # Some of what is stored may be newer than the revision, so the next load reads all.
    return replace(before, state="failed", at=now, error=error, failures=before.failures + 1, revision=None)


async def save_status(notes: NoteStore, settings: SourceSettings, status: LoadStatus) -> None:
    await notes.set(f"{SCOPE}{identity_of(settings)}", msgspec.json.encode(status), status.at + _KEPT)


async def load_status(notes: NoteStore, settings: SourceSettings) -> LoadStatus | None:
    """Return the last status of a source; None if it was never loaded."""
    stored = await notes.get(f"{SCOPE}{identity_of(settings)}")
    return msgspec.json.decode(stored, type=LoadStatus) if stored else None


async def save_request(notes: NoteStore, settings: SourceSettings) -> None:
    """Request that a source is loaded. Requests until it begins to load are one."""
    await notes.set(f"{REQUEST_SCOPE}{identity_of(settings)}", secrets.token_hex(8).encode(), datetime.now(UTC) + _KEPT)


async def last_request(notes: NoteStore, settings: SourceSettings) -> str:
    """Return the last request to load a source; empty if there was none."""
    return (await notes.get(f"{REQUEST_SCOPE}{identity_of(settings)}") or b"").decode()


def identity_of(settings: SourceSettings) -> str:
    """Return what a source is called in the store's notes: the same for every password."""
    identity = {"url": redact_url(settings.url), "table": settings.table or "", "collection": settings.collection}
    return content_hash(identity)


def source_names(config: Config) -> list[str]:
    """Return a name for each source of the site file: its `name`, else its collection, with a number if it is taken."""
    names = [source.name or source.collection or collection_for(source.url, source.table) for source in config.source]
    counts, taken = Counter[str](), {source.name for source in config.source if source.name}
    for position, source in enumerate(config.source):
        plain = names[position]
        while not source.name and names[position] in taken:
            counts[plain] += 1
            names[position] = f"{plain}-{counts[plain] + 1}"
        taken.add(names[position])
    return names


_KEPT = timedelta(days=KEPT_DAYS)
