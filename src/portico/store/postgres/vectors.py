"""Vectors in PostgreSQL: stored by pgvector, numbered as they become visible, searched exactly or by graph."""

import hashlib
from collections.abc import Sequence

import numpy as np

from portico.catalog import Field
from portico.query import Filter, NearVector
from portico.store.nearest import wrong_length
from portico.store.postgres.dialect import DIALECT
from portico.store.postgres.engine import PostgresConnection
from portico.store.sql import Statement
from portico.store.tables import StoredRow, Table

GRAPH_FROM = 250_000  # vectors, before a graph of them is useful: fewer are searched in each process
GRAPH_SIZE = 2000  # numbers of a vector: more cannot be put into a graph
MAX_SIZE = 16_000  # numbers of a vector: more cannot be stored
MOST = 20_000  # that are equally near, before some are left out
ROUNDING = 1e-5  # more than the database's distances can be wrong by
SPARE = 32  # candidates beyond those wanted: the database rounds distances in its own way
_DISTANCES = {"cosine": "<=>", "euclidean": "<->", "dot_product": "<#>"}

REPLACE = (
    "ON CONFLICT (collection, field, id) DO UPDATE SET seq = excluded.seq, model = excluded.model,"
    " digest = excluded.digest, vector = excluded.vector"
)


async def number_vectors(db: PostgresConnection, count: int) -> int:
    """Reserve numbers for vectors until the transaction ends; return the one before the first."""
    return await db.fetchval("UPDATE vector_feed SET seq = seq + $1 RETURNING seq - $1", count)


async def put_field_vectors(db: PostgresConnection, table: Table, field: Field, rows: Sequence[StoredRow]) -> None:
    """Store the vectors in the data of these items, and delete the stored ones of items that have none."""
    values = {row.item.id: field.vector(row.item.data) for row in rows}
    vectors = {id: vector for id, vector in values.items() if vector is not None and len(vector) <= MAX_SIZE}
    empty = [id for id in values if id not in vectors]
    if empty:
        await db.execute(
            "DELETE FROM vectors WHERE collection = $1 AND field = $2 AND id = ANY($3::text[])",
            table.number,
            field_tag(field.name),
            empty,
        )
    if vectors:
        await db.execute(
            "INSERT INTO vectors SELECT $1::bigint + n, $2::int, $3::text, id, '', '', vector"
            f" FROM unnest($4::text[], $5::vector[]) WITH ORDINALITY AS g(id, vector, n) {REPLACE}",
            await number_vectors(db, len(vectors)),
            table.number,
            field_tag(field.name),
            list(vectors),
            [np.asarray(vector, "<f4").tobytes() for vector in vectors.values()],
        )


async def put_vectors(db: PostgresConnection, table: Table, model: str, rows: Sequence[tuple[str, str, bytes]]) -> None:
    """Store the vectors that a model computed. An item that has changed since gets none."""
    ids, digests, vectors = ([row[i] for row in rows] for i in range(3))
    # Items are locked first, as in every write: one that is being removed leaves no vector behind.
    await db.execute(f"SELECT id FROM {table.name} WHERE id = ANY($1::text[]) ORDER BY id FOR SHARE", ids)
    await db.execute(
        "INSERT INTO vectors (seq, collection, field, id, model, digest, vector)"
        f" SELECT $1::bigint + n, {table.number}, '', id, $2::text, digest, vector FROM {table.name}"
        " JOIN unnest($3::text[], $4::text[], $5::vector[]) WITH ORDINALITY AS g(id, digest, vector, n)"
        f" USING (id, digest) ORDER BY id {REPLACE}",
        await number_vectors(db, len(rows)),
        model,
        ids,
        digests,
        vectors,
    )


async def select_candidates(
    db: PostgresConnection, table: Table, near: NearVector, where: Filter
) -> list[tuple[str, bytes]]:
    """Return enough of the nearest vectors to choose from. The filter applies first, so there are never too few."""
    sql = Statement(DIALECT, table)
    source = f"FROM vectors v JOIN {table.name} USING (id) WHERE {sql.where(where)} AND {_field(table, near.field)}"
    size = len(near.vector)
    params = [*sql.params, np.asarray(near.vector, "<f4").tobytes()]
    target = f"${len(params)}::vector"
    count = near.top + SPARE
    comparable = f"{source} AND vector_dims(v.vector) = {size}"
    if near.metric == "cosine" and await _has_graph(db, table, near.field, size):
        await db.execute("SET LOCAL hnsw.iterative_scan = strict_order")
        await db.execute(f"SET LOCAL hnsw.ef_search = {min(max(2 * count, 100), 1000)}")
        graph = f"v.vector::vector({size}) <=> {target}"
        rows = await db.fetch(f"SELECT v.id, v.vector {comparable} ORDER BY {graph} LIMIT {count}", *params)
        if len(rows) == count:
            return [(id, vector) for id, vector in rows]
    # A vector of no length has no direction; it is as far from all others as one at a right angle.
    distance = f"coalesce(nullif(v.vector {_DISTANCES[near.metric]} {target}, 'NaN'), 1)"
    rows = await db.fetch(f"SELECT v.id, v.vector, {distance} {comparable} ORDER BY 3, v.id LIMIT {count}", *params)
    if not rows:
        other = await db.fetchval(f"SELECT vector_dims(v.vector) {source} LIMIT 1", *sql.params)
        if other is not None:
            raise wrong_length(near, other)
    elif len(rows) == count:
        # Of those that are equally near the first ids count, and to the database they may not be quite equal.
        edge = rows[near.top - 1][2]
        edge += ROUNDING * max(1.0, abs(edge))
        if rows[-1][2] <= edge:
            rows = await db.fetch(
                f"SELECT v.id, v.vector {comparable} AND {distance} <= ${len(params) + 1}::float8 LIMIT {MOST}",
                *params,
                edge,
            )
    return [(row[0], row[1]) for row in rows]


def field_tag(field: str) -> str:
    """Return the name of a field in the table of vectors. It is safe inside a statement, where an index needs it."""
    return hashlib.blake2b(field.encode(), digest_size=8).hexdigest() if field else ""


def _field(table: Table, field: str) -> str:
    return f"collection = {table.number} AND field = '{field_tag(field)}'"


def _graph(table: Table, field: str, size: int) -> str:
    return f"graph_{table.number}_{size}_{field_tag(field)}"


async def _has_graph(db: PostgresConnection, table: Table, field: str, size: int) -> bool:
    return bool(
        await db.fetchval(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", _graph(table, field, size)
        )
    )


async def graph_for(db: PostgresConnection, table: Table, field: str) -> tuple[str, str] | None:
    """Return name and definition of the index that a large field of vectors needs; None for a small one."""
    of = _field(table, field)
    row = await db.fetchrow(
        f"SELECT COUNT(*), mode() WITHIN GROUP (ORDER BY vector_dims(vector)) FROM vectors WHERE {of}"
    )
    count, size = row or (0, 0)
    if count < GRAPH_FROM or size > GRAPH_SIZE:
        return None
    on = f"vectors USING hnsw ((vector::vector({size})) vector_cosine_ops)"
    return _graph(table, field, size), f"{on} WHERE {of} AND vector_dims(vector) = {size}"
