"""Everything that a site persists. A store answers structured queries, never text."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module

from portico.errors import ConfigError
from portico.store.contract import (
    AuditStore,
    BackupStore,
    BlobStore,
    ChangeStore,
    CollectionStore,
    IdempotencyStore,
    ItemStore,
    KeyStore,
    LoadStore,
    MeterStore,
    NoteStore,
    RoleStore,
    TaskStore,
    VectorStore,
)
from portico.store.health import StoreHealth

__all__ = [
    "AuditStore",
    "BackupStore",
    "BlobStore",
    "ChangeStore",
    "CollectionStore",
    "IdempotencyStore",
    "ItemStore",
    "KeyStore",
    "LoadStore",
    "MeterStore",
    "NoteStore",
    "RoleStore",
    "Store",
    "TaskStore",
    "VectorStore",
    "open_store",
]


@dataclass(frozen=True, slots=True)
class Store:
    """The parts of an open store; see `portico.store.contract`. Consumers take the parts they need."""

    url: str  # without the password
    secret: bytes = field(repr=False)  # random, created with the store: signs cursors and tokens of every process
    health: StoreHealth
    collections: CollectionStore
    items: ItemStore
    changes: ChangeStore
    loads: LoadStore
    vectors: VectorStore
    blobs: BlobStore
    tasks: TaskStore
    idempotency: IdempotencyStore
    notes: NoteStore
    meters: MeterStore
    roles: RoleStore
    keys: KeyStore
    audit: AuditStore
    backup: BackupStore
    check: Callable[[], Awaitable[list[str]]]  # describes what is wrong with the store; empty when nothing is
    close: Callable[[], Awaitable[None]]


async def open_store(url: str, *, keep_changes: int = 100_000, pool: int = 10, seconds: float = 10.0) -> Store:
    """Open the store that a URL names. `seconds` bounds a query, `pool` the connections to a server."""
    scheme, separator, path = url.partition("://")
    if scheme == "sqlite" and path.startswith("/") and len(path) > 1:
        module = import_module("portico.store.sqlite")
        return await module.open_sqlite(path[1:], keep_changes=keep_changes, seconds=seconds)
    if scheme in {"postgresql", "postgres"} and separator:
        try:
            module = import_module("portico.store.postgres")
        except ModuleNotFoundError as error:
            raise ConfigError(
                "A store on PostgreSQL needs the package asyncpg", hint="pip install 'portico[postgres]'"
            ) from error
        return await module.open_postgres(url, keep_changes=keep_changes, pool=pool, seconds=seconds)
    raise ConfigError(
        f"{scheme}: is not a store",
        hint="Use sqlite:///path/to/site.db or postgresql://user@host/database.",
    )
