"""Whether a source is as it was when it was last loaded: by the validators of HTTP, or by times and sizes of files."""

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from portico import __version__
from portico.config import Config, SourceSettings
from portico.items import content_hash
from portico.redaction import redact_url

MAX_VALIDATOR = 500  # characters; a longer one is not kept
SETTLED_SECONDS = 2.0  # since a file was written: its time may not tell a later write in the same moment from that one
_SIDECARS = ("-wal", "-journal")  # where SQLite writes before it writes its file


class SourceUnchanged(Exception):
    """The source is as it was when it was last loaded, so nothing of it is read."""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """What a source was when it was read: its address and validators, or its files; and the settings it was read by."""

    settings: str = ""
    place: str = ""  # a digest of the address that answered, or of the files with their times and sizes
    etag: str = ""
    modified: str = ""


@dataclass(slots=True)
class RevisionCheck:
    """Compares a source with the revision that was loaded last, and keeps the one that is read now."""

    settings: str = ""
    known: Revision | None = None
    current: Revision | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.known and self.known.settings != self.settings:
            self.known = None

    def conditions(self) -> dict[str, str]:
        """Return the headers of a request that is answered with 304 if nothing has changed."""
        known = self.known or Revision()
        named = {"If-None-Match": known.etag, "If-Modified-Since": known.modified}
        return {name: value for name, value in named.items() if value}

    def confirm_response(self, url: str) -> None:
        """Handle a 304: raise SourceUnchanged if it comes from the address that answered before."""
        if self.known and self.known.place == _digest([url]):
            raise SourceUnchanged
        self.known = None

    def see_response(self, url: str, headers: Mapping[str, str]) -> None:
        etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
        if (not etag and not modified) or max(len(etag), len(modified)) > MAX_VALIDATOR:
            return
        self.current = Revision(settings=self.settings, place=_digest([url]), etag=etag, modified=modified)

    def see_files(self, paths: Iterable[Path]) -> None:
        """Raise SourceUnchanged if these files are those that were loaded last, with the same times and sizes."""
        states = list(_states(paths))
        revision = Revision(settings=self.settings, place=_digest([state for state, _ in states]))
        if revision == self.known:
            raise SourceUnchanged
        if all(changed < time.time() - SETTLED_SECONDS for _, changed in states):
            self.current = revision

    def forget(self) -> None:
        """Do not skip the source next time: it consists of more than what was checked."""
        self.current = None


def files_digest(paths: Iterable[Path]) -> str:
    """Return a digest of files by their names, times and sizes."""
    return _digest(state for state, _ in _states(paths))


def settings_digest(settings: SourceSettings, config: Config) -> str:
    """Return a digest of all that decides how a source is read. If it changes, the source is read again."""
    public = replace(settings, url=redact_url(settings.url), every="")
    parts = {"source": public, "collections": config.collections, "version": __version__}
    return content_hash(msgspec.to_builtins(parts))


def _states(paths: Iterable[Path]) -> Iterable[tuple[str, float]]:
    """Yield what tells one state of each file from others, and when it was last written."""
    for path in paths:
        for file in (path, *(path.with_name(path.name + suffix) for suffix in _SIDECARS)):
            try:
                status = file.stat()
            except OSError:
                continue
            yield f"{file}\n{status.st_mtime_ns}\n{status.st_size}\n{status.st_ino}", status.st_mtime


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
