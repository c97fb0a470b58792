"""The feed of changes in PostgreSQL. Processes are notified of each other's changes."""

import time
from dataclasses import replace

from portico.items import Change
from portico.store.encoding import to_micros
from portico.store.health import StoreHealth
from portico.store.planning import WritePlan
from portico.store.postgres.collections import PostgresCollections
from portico.store.postgres.engine import PostgresConnection, PostgresEngine
from portico.store.postgres.ledger import POLL_SECONDS
from portico.store.tables import CHANGE_COLUMNS, Table, encode_text, feed_expired, read_changes

MAX_SEQ = 2**63 - 1
LISTENING_SECONDS = 5.0  # between looks at the feed while notifications arrive


class PostgresChanges:
    """See `ChangeStore`."""

    def __init__(
        self, engine: PostgresEngine, collections: PostgresCollections, health: StoreHealth, keep_changes: int
    ) -> None:
        self._engine = engine
        self._collections = collections
        self._health = health
        self._keep_changes = keep_changes

    def stamp(self) -> int | None:
        return None

    async def head(self) -> int:
        return (await self._engine.fetch("SELECT seq FROM feed"))[0][0]

    async def list_since(self, since: int, limit: int = 1000, collection: str | None = None) -> list[Change]:
        only = None
        since = max(min(since, MAX_SEQ), -1)
        if collection is not None:
            table = self._collections.known.tables.get(collection) or await self._collections.table(collection)
            only = table.number
        rows = await self._engine.fetch(
            "SELECT f.seq, (SELECT min(seq) FROM changes), c.* FROM feed f LEFT JOIN LATERAL"
            f" (SELECT {CHANGE_COLUMNS} FROM changes"
            " WHERE seq > $1 AND ($3::int IS NULL OR collection = $3) ORDER BY seq LIMIT $2) c ON true",
            *(since, limit, only),
        )
        newest, oldest = rows[0][0], rows[0][1] or rows[0][0] + 1
        if since < oldest - 1 or since > newest:
            raise feed_expired(since, oldest, newest)
        changes = [row[2:] for row in rows if row[2] is not None]
        if any(row[1] not in self._collections.known.names for row in changes):
            await self._collections.read_current()
        return read_changes(self._collections.known.names, changes, self._health.report_row)

    async def wait(self, seq: int, timeout: float) -> int:
        engine = self._engine
        engine.listen()
        deadline = time.monotonic() + timeout
        while True:
            count = engine.changes.count
            head = await self.head()
            remaining = deadline - time.monotonic()
            if head > seq or remaining <= 0:
                return head
            await engine.changes.wait(count, min(remaining, LISTENING_SECONDS if engine.is_listening else POLL_SECONDS))

    async def append(self, db: PostgresConnection, table: Table, plan: WritePlan) -> list[Change]:
        """Number the changes of a plan and write them into the feed, in its transaction."""
        count = len(plan.changes)
        if not count:
            return []
        last = await db.fetchval(
            "WITH numbered AS (UPDATE feed SET seq = seq + $2::bigint RETURNING seq, pg_notify($3, 'changes')),"
            " added AS (INSERT INTO changes"
            " SELECT numbered.seq - $2::bigint + n, $1::int, id, kind, version, data, patch, undo, $4::bigint"
            " FROM numbered, unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])"
            " WITH ORDINALITY AS c(id, kind, version, data, patch, undo, n)) SELECT seq FROM numbered",
            table.number,
            count,
            self._engine.channel,
            to_micros(plan.at),
            [change.item.id for change in plan.changes],
            [change.kind for change in plan.changes],
            [change.item.version for change in plan.changes],
            plan.raws,
            [encode_text(change.patch) for change in plan.changes],
            [encode_text(change.undo) for change in plan.changes],
        )
        if last // 1000 > (last - count) // 1000:
            await db.execute("DELETE FROM changes WHERE seq <= $1", last - self._keep_changes)
        return [replace(change, seq=last - count + i) for i, change in enumerate(plan.changes, 1)]

    async def advance(self, seq: int) -> None:
        await self._engine.change("UPDATE feed SET seq = greatest(seq, $1)", seq)
