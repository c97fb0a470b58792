"""Everything that a site persists. A store answers structured queries, never text."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from portico.errors import ConfigError
from portico.plugins import STORES, Registry
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


OpenStore: TypeAlias = Callable[..., Awaitable[Store]]  # given what `open_store` is given
BUILT_IN: Final = {
    "sqlite": "portico.store.sqlite:open_sqlite_url",
    "postgresql": "portico.store.postgres:open_postgres",
    "postgres": "portico.store.postgres:open_postgres",
}


@cache
def _stores() -> Registry[OpenStore]:
    return Registry(STORES, BUILT_IN, Callable)


async def open_store(url: str, *, keep_changes: int = 100_000, pool: int = 10, seconds: float = 10.0) -> Store:
    """Open the store that a URL names. `seconds` bounds a query, `pool` the connections to a server.

    Installed packages add stores through entry points of the group `portico.stores`, named by the URL's scheme.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _stores():
        raise ConfigError(
            f"{url!r} does not name a store",
            hint="Use sqlite:///path/to/site.db or postgresql://user@host/database.",
        )
    try:
        opener = _stores().get(scheme)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"A store on PostgreSQL needs the package {error.name}", hint="pip install 'portico[postgres]'"
        ) from error
    return await opener(url, keep_changes=keep_changes, pool=pool, seconds=seconds)
