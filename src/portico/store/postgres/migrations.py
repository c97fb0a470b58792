"""The tables every store has, and how a database is brought up to date, however many processes start together."""

import re
import secrets
from typing import Any

import asyncpg

from portico.errors import ConfigError
from portico.redaction import redact_text, redact_url

MIGRATION_SECONDS = 3600.0
REDACTED = "redacted"  # the blob of a store whose sources hold no passwords

MIGRATIONS = (
    """
    CREATE TABLE meta (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL, secret bytea NOT NULL,
        shape bigint NOT NULL DEFAULT 0
    );
    CREATE TABLE feed (one boolean PRIMARY KEY DEFAULT true CHECK (one), seq bigint NOT NULL) WITH (fillfactor = 20);
    CREATE TABLE vector_feed (one boolean PRIMARY KEY DEFAULT true CHECK (one), seq bigint NOT NULL)
        WITH (fillfactor = 20);
    INSERT INTO feed (seq) VALUES (0);
    INSERT INTO vector_feed (seq) VALUES (0);
    CREATE TABLE collections (
        number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" UNIQUE NOT NULL, about text NOT NULL
    );
    CREATE TABLE fields (
        collection int NOT NULL, position int NOT NULL, name text COLLATE "C" NOT NULL, type text NOT NULL,
        path text NOT NULL, declared boolean NOT NULL, description text NOT NULL, place text,
        PRIMARY KEY (collection, name)
    );
    CREATE TABLE changes (
        seq bigint PRIMARY KEY, collection int NOT NULL, id text NOT NULL, kind text NOT NULL, version text NOT NULL,
        data text NOT NULL, patch text NOT NULL, undo text NOT NULL, at bigint NOT NULL
    );
    CREATE INDEX changes_by_collection ON changes (collection, seq);
    CREATE TABLE runs (run bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source text UNIQUE NOT NULL);
    CREATE TABLE seen (
        run bigint NOT NULL, collection int NOT NULL, id text COLLATE "C" NOT NULL, PRIMARY KEY (run, collection, id)
    );
    CREATE TABLE vectors (
        seq bigint NOT NULL, collection int NOT NULL, field text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
        model text NOT NULL, digest text NOT NULL, vector vector NOT NULL, PRIMARY KEY (collection, field, id)
    );
    ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;
    CREATE INDEX vectors_by_seq ON vectors (collection, field, seq);
    CREATE TABLE blobs (name text NOT NULL, part int NOT NULL, data bytea NOT NULL, PRIMARY KEY (name, part));
    CREATE TABLE tasks (
        id text PRIMARY KEY, caller text NOT NULL, meter text NOT NULL, state text NOT NULL,
        created bigint NOT NULL, task text NOT NULL, cancelling boolean NOT NULL DEFAULT false,
        owner text NOT NULL DEFAULT '', lease timestamptz NOT NULL DEFAULT '-infinity'
    );
    CREATE INDEX tasks_waiting ON tasks (created) WHERE state IN ('pending', 'running');
    CREATE INDEX tasks_by_caller ON tasks (caller, created);
    CREATE INDEX tasks_by_meter ON tasks (meter) WHERE state IN ('pending', 'running');
    CREATE TABLE kept (
        scope text COLLATE "C" PRIMARY KEY, digest text NOT NULL, task text NOT NULL, result bytea NOT NULL,
        expires timestamptz NOT NULL
    );
    CREATE INDEX kept_by_expiry ON kept (expires);
    CREATE TABLE keys (id text PRIMARY KEY, digest text UNIQUE NOT NULL, key text NOT NULL, revoked bigint);
    CREATE UNLOGGED TABLE meters (
        key text COLLATE "C" PRIMARY KEY, tokens float8 NOT NULL, granted boolean NOT NULL, at timestamptz NOT NULL
    );
    CREATE TABLE roles (name text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL);
    CREATE FUNCTION number_of(value jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT CASE WHEN jsonb_typeof(value) <> 'number' THEN NULL
            WHEN abs(value::numeric) > 9223372036854775807 THEN value::numeric::float8::text::numeric
            ELSE value::numeric END
    $$;
    CREATE FUNCTION text_of(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT CASE jsonb_typeof(value) WHEN 'string' THEN value #>> '{}' END
    $$;
    CREATE FUNCTION boolean_of(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT CASE jsonb_typeof(value) WHEN 'boolean' THEN value::boolean END
    $$;
    CREATE FUNCTION elements_of(value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT CASE WHEN value IS NULL THEN '[]' WHEN jsonb_typeof(value) = 'array' THEN value
            ELSE jsonb_build_array(value) END
    $$;
    """,
    """
    ALTER TABLE tasks ADD COLUMN rank smallint NOT NULL DEFAULT 1;
    CREATE INDEX tasks_by_rank ON tasks (rank, created) WHERE state IN ('pending', 'running');
    """,
    """
    CREATE TABLE cases (
        kind text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, version bigint NOT NULL, data bytea NOT NULL,
        expires timestamptz, PRIMARY KEY (kind, id)
    );
    CREATE INDEX cases_by_expiry ON cases (expires);
    CREATE TABLE trail (
        seq bigint PRIMARY KEY, at bigint NOT NULL, event text NOT NULL, body text NOT NULL, before text NOT NULL,
        digest text NOT NULL
    );
    CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'the audit trail only grows'; END
    $$;
    CREATE TRIGGER trail_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON trail
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
    """,
    # Tokens of transactions: they show whether one was committed whose COMMIT was not answered.
    """
    ALTER TABLE kept ADD COLUMN owner text NOT NULL DEFAULT '', ADD COLUMN lease timestamptz NOT NULL
        DEFAULT '-infinity', ADD COLUMN reason text NOT NULL DEFAULT '';
    CREATE TABLE commits (token text COLLATE "C" PRIMARY KEY, is_committed boolean NOT NULL);
    """,
)


TABLES = re.findall(r"CREATE (?:UNLOGGED )?TABLE (\w+)", "".join(MIGRATIONS))


async def prepare(connection: Any, schema: str) -> tuple[str, bytes]:
    """Bring the schema up to date; returns the search path and the store's secret."""
    await connection.execute(f"SET statement_timeout = {int(MIGRATION_SECONDS * 1000)}")
    secret = await _read_secret(connection, schema)
    if secret is None:
        lock = f"portico/{schema}/migrations"
        # Replicas that start together wait here; the first one does the work.
        await connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", lock)
        secret = await _read_secret(connection, schema)
    if secret is None:
        await _create_schema(connection, schema)
        async with connection.transaction():
            path = await _search_path(connection, schema)
            await connection.execute(f"SET LOCAL search_path = {path}")
            await _bring_up_to_date(connection, schema)
        secret = await _read_secret(connection, schema)
    if secret is None:
        raise ConfigError(f"The schema {schema} was not made", hint="Look into the database's log.")
    path = await _search_path(connection, schema)
    await _redact_sources(connection, path)
    return path, secret


async def _read_secret(connection: Any, schema: str) -> bytes | None:
    """Return the secret of a store that is up to date; None if it is older or does not exist."""
    quoted = _quote(schema)
    rows = await connection.fetch(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1"
        " AND relname = ANY($2::text[])",
        schema,
        TABLES,
    )
    names = {name for (name,) in rows}
    if "meta" not in names:
        if names:
            raise _foreign(schema)
        return None
    try:
        row = await connection.fetchrow(f"SELECT version, secret FROM {quoted}.meta")
    except asyncpg.UndefinedColumnError:
        row = None
    if row is None or not isinstance(row[0], int):
        raise _foreign(schema)
    version, secret = row
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"The schema {schema} was made by a newer Portico (schema {version}; this one knows {len(MIGRATIONS)})",
            hint="Upgrade Portico, or use another store.",
        )
    return secret if version == len(MIGRATIONS) else None


def _foreign(schema: str) -> ConfigError:
    return ConfigError(f"The schema {schema} is in use for something else", hint="Name another in the URL: ?schema=…")


async def _create_schema(connection: Any, schema: str) -> None:
    if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
        await connection.execute(f"CREATE SCHEMA {_quote(schema)}")
    if await extension_schema(connection) is not None:
        return
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except asyncpg.PostgresError as error:
        if await extension_schema(connection) is None:  # two sites of one database may have met here
            raise ConfigError(
                f"PostgreSQL needs the extension pgvector: {error}",
                hint="Install pgvector on the server, and let an owner run: CREATE EXTENSION vector;",
            ) from error


async def _bring_up_to_date(connection: Any, schema: str) -> None:
    version = 0
    if await connection.fetchval("SELECT to_regclass($1)", f"{_quote(schema)}.meta") is not None:
        version = await connection.fetchval("SELECT version FROM meta")
    for number in range(version, len(MIGRATIONS)):
        await connection.execute(MIGRATIONS[number])
    if version == 0:
        await connection.execute(
            "INSERT INTO meta (version, secret) VALUES ($1, $2)", len(MIGRATIONS), secrets.token_bytes(32)
        )
    else:
        await connection.execute("UPDATE meta SET version = $1", len(MIGRATIONS))


async def _redact_sources(connection: Any, path: str) -> None:
    """Remove passwords from what earlier versions stored: the names of sources, and why loading them failed."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL search_path = {path}")
        if await connection.fetchval("SELECT 1 FROM blobs WHERE name = $1", REDACTED):
            return
        # Replicas that start together: one waits for the other's mark, and does the same once more.
        await connection.execute("INSERT INTO blobs VALUES ($1, 0, '') ON CONFLICT DO NOTHING", REDACTED)
        await connection.execute("DELETE FROM runs WHERE source LIKE '%://%'")  # a run that did not end is of no use
        for (number,) in await connection.fetch("SELECT number FROM collections"):
            names = await connection.fetch(f"SELECT DISTINCT source FROM items_{number} WHERE source LIKE '%://%'")
            for (name,) in names:
                await connection.execute(
                    f"UPDATE items_{number} SET source = $2 WHERE source = $1 AND $1 <> $2::text",
                    name,
                    redact_url(name),
                )
        for scope, note in await connection.fetch("SELECT scope, result FROM kept WHERE scope LIKE E'source\\n%'"):
            redacted = redact_text(note.decode("utf-8", "replace")).encode()
            await connection.execute("UPDATE kept SET result = $2 WHERE scope = $1", scope, redacted)


async def _search_path(connection: Any, schema: str) -> str:
    return f"{_quote(schema)}, {_quote(await extension_schema(connection) or 'public')}"


async def extension_schema(connection: Any) -> str | None:
    return await connection.fetchval(
        "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
    )


def _quote(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
