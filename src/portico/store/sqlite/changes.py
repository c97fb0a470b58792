"""The feed of changes in SQLite. Changes of other processes are seen by polling."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

from portico.items import Change
from portico.store.encoding import to_micros
from portico.store.health import StoreHealth
from portico.store.planning import WritePlan
from portico.store.sqlite.collections import SqliteCollections
from portico.store.sqlite.engine import SqliteDatabase, SqliteEngine, fetch_value
from portico.store.tables import CHANGE_COLUMNS, Table, encode_text, feed_expired, read_changes

POLL_SECONDS = 0.25  # how late a change of another process may be seen


class SqliteChanges:
    """See `ChangeStore`."""

    def __init__(
        self, engine: SqliteEngine, collections: SqliteCollections, health: StoreHealth, keep_changes: int
    ) -> None:
        self._engine = engine
        self._collections = collections
        self._health = health
        self._keep_changes = keep_changes
        self._newest = 0
        self._has_new = asyncio.Event()

    def stamp(self) -> int | None:
        return self._engine.stamp()

    async def head(self) -> int:
        return await self._engine.read(_read_head)

    async def list_since(self, since: int, limit: int = 1000, collection: str | None = None) -> list[Change]:
        def work(db: SqliteDatabase) -> list[Change]:
            schema = self._collections.read_schema(db)
            newest = _read_head(db)
            oldest = fetch_value(db, "SELECT min(seq) FROM changes") or newest + 1
            if since < oldest - 1 or since > newest:
                raise feed_expired(since, oldest, newest)
            only = "" if collection is None else f"AND collection = {schema.table(collection).number}"
            rows = db.execute(
                f"SELECT {CHANGE_COLUMNS} FROM changes WHERE seq > ? {only} ORDER BY seq LIMIT ?",
                (since, limit),
            )
            return read_changes(schema.names, rows, self._health.report_row)

        return await self._engine.read(work)

    async def wait(self, seq: int, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while True:
            self._has_new.clear()
            head = await self.head()
            remaining = deadline - time.monotonic()
            if head > seq or remaining <= 0:
                return head
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(remaining, POLL_SECONDS)):
                    await self._has_new.wait()

    def append(self, db: SqliteDatabase, table: Table, plan: WritePlan) -> list[Change]:
        """Write the changes of a plan into the feed, in its transaction; they get their numbers here."""
        changes: list[Change] = []
        for change, raw in zip(plan.changes, plan.raws, strict=True):
            item, patch, undo = change.item, encode_text(change.patch), encode_text(change.undo)
            db.execute(
                "INSERT INTO changes (collection, id, kind, version, data, patch, undo, at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (table.number, item.id, change.kind, item.version, raw, patch, undo, to_micros(change.at)),
            )
            seq = db.last_insert_rowid()
            if seq % 1000 == 0:
                db.execute("DELETE FROM changes WHERE seq <= ?", (seq - self._keep_changes,))
            changes.append(replace(change, seq=seq))
        return changes

    def announce(self, changes: Sequence[Change]) -> None:
        """Wake the tasks of this process that wait for changes."""
        if changes and changes[-1].seq > self._newest:
            self._newest = changes[-1].seq
            self._has_new.set()

    async def advance(self, seq: int) -> None:
        def work(db: SqliteDatabase) -> None:
            if _read_head(db) < seq:
                db.execute("DELETE FROM sqlite_sequence WHERE name = 'changes'")
                db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('changes', ?)", (seq,))

        await self._engine.write(work)


def _read_head(db: SqliteDatabase) -> int:
    return fetch_value(db, "SELECT seq FROM sqlite_sequence WHERE name = 'changes'") or 0
