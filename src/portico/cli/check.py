"""Looks over a site and says what is wrong, in plain words. Changes nothing but a store of an earlier version."""

import errno
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from portico.access.nip.verifier import Verifier
from portico.catalog import Operation
from portico.config import Config, NodeReference, SourceSettings, ca_file_of, database_file, secret, tls_of
from portico.errors import SiteError
from portico.operations import check_published
from portico.protocols.nwp.graph import is_allowed
from portico.query import EVERYTHING
from portico.redaction import redact_url
from portico.safety.delivery import Channels
from portico.safety.guard import Guard
from portico.server.admission import fit_connections
from portico.server.assembly import open_answering_model, open_models, site_operations
from portico.sources.ingest import described_source
from portico.store import Store, open_store
from portico.store.sqlite.engine import check_log
from portico.telemetry import nowhere

MIN_FREE_BYTES = 64 << 20  # below which a write may soon fail
PAGE = 4096
IN_MEMORY = "sqlite:///:memory:"


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    is_well: bool
    says: str


async def look_over(config: Config) -> list[Finding]:
    server = config.server
    findings = [_site_file(config), *_sources(config), _embedder(config), await _model(config)]
    ports = [_port("port", server.host, server.port), _port("native port", server.host, server.nwp_port)]
    return [
        *findings,
        *ports,
        *_open_files(config),
        *_nwp(config),
        *_channels(config),
        *[finding async for finding in _store(config)],
    ]


def _site_file(config: Config) -> Finding:
    return Finding("site", True, f"{config.site.name}, {len(config.collections)} collections described")


async def _operations(config: Config, store: Store) -> Finding:
    try:
        found = await site_operations(config, store)
        check_published(found)
    except SiteError as error:
        return Finding("operations", False, str(error))
    return Finding("operations", True, ", ".join(each.name for each in found) or "none of its own")


def _sources(config: Config) -> list[Finding]:
    return [_source(config, each) for each in config.source]


def _source(config: Config, said: SourceSettings) -> Finding:
    try:
        described_source(said, config)
    except SiteError as error:
        return Finding(f"source {redact_url(said.url)}", False, str(error))
    return Finding(f"source {redact_url(said.url)}", True, "can be opened")


async def _model(config: Config) -> Finding:
    try:
        model = open_answering_model(config)
    except SiteError as error:
        return Finding("model", False, str(error))
    if model is None:
        return Finding("model", True, "none: answers are put together from the items themselves")
    await model.close()
    return Finding("model", True, f"{model.name}; it is asked when somebody asks")


def _embedder(config: Config) -> Finding:
    try:
        embedder = open_models(config)
    except SiteError as error:
        return Finding("embedder", False, str(error))
    if embedder is None:
        return Finding("embedder", True, "none: search is by words alone")
    return Finding("embedder", True, f"{embedder.name}, {embedder.dimensions} dimensions")


def _port(what: str, host: str, port: int) -> Finding:
    """Whether the server could listen; a running one is no fault."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Finding(what, True, f"{host}:{port} is free")
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        says = "is in use; a server may be running" if in_use else f"cannot be listened on: {error.strerror}"
        return Finding(what, in_use, f"{host}:{port} {says}")


def _open_files(config: Config) -> Iterator[Finding]:
    """A finding if the process may not open as many files as the connections would take."""
    wanted = config.limits.connections
    fitting = fit_connections(wanted, config.store.pool)
    if fitting < wanted:
        says = (
            f"leave room for {fitting} connections; limits.connections is {wanted}. Raise the hard limit (ulimit -Hn)"
        )
        yield Finding("open files", False, says)


def _nwp(config: Config) -> Iterator[Finding]:
    nwp = config.nwp
    if config.ca_file:
        yield _tried("ca_file", "has certificates of authorities", lambda: ca_file_of(config))
    if nwp.tls_certificate or nwp.tls_key:
        yield _tried("nwp.tls_certificate", "can be used with its key", lambda: tls_of(config))
    if nwp.callback_secret:
        yield _tried("nwp.callback_secret", "is set in the environment", lambda: secret(nwp.callback_secret))
    for each in nwp.node:
        yield _node(each, nwp.allow_nodes)


def _channels(config: Config) -> Iterator[Finding]:
    if config.safety.channels:
        told = f"codes go to: {', '.join(config.safety.channels)}"
        yield _tried("safety.channels", told, lambda: Channels(config.safety))


def _tried(what: str, well: str, use: Callable[[], object]) -> Finding:
    try:
        use()
    except SiteError as error:
        return Finding(what, False, str(error))
    return Finding(what, True, well)


def _node(node: NodeReference, allowed: tuple[str, ...]) -> Finding:
    is_well = is_allowed(node.url, allowed)
    says = "may be asked" if is_well else "is never asked: nwp.allow_nodes names no beginning of this address"
    return Finding(f"nwp.node {redact_url(node.url)}", is_well, says)


async def _store(config: Config) -> AsyncIterator[Finding]:
    path = database_file(config.store_url)
    if path:
        yield _disk(path)
    finding = _without_store(path) if path else None
    if finding:
        yield finding
    try:
        # What does not depend on the store is looked at with an empty one. None is made in its place.
        store = await open_store(IN_MEMORY if finding else config.store_url, **config.store.opening())
    except SiteError as error:
        yield Finding("store", False, str(error))
        return
    try:
        if not finding:
            problems = await store.check()
            yield Finding("store", not problems, "; ".join(problems) or f"{store.url} is sound")
        yield await _operations(config, store)
        yield await _trail(config, store)
        if config.nwp.issuers:
            yield _tried("nwp.issuers", "are addresses; they are asked when needed", lambda: Verifier(config, store))
        if not finding:
            async for result in _collections(config, store):
                yield result
    except SiteError as error:
        yield Finding("store", False, str(error))
    finally:
        await store.close()


def _without_store(path: Path) -> Finding | None:
    """Return what there is to say of a file without a store in it. To open it would make one."""
    try:
        check_log(str(path))
    except SiteError as error:
        return Finding("store", False, str(error))
    if not path.exists():
        return Finding("store", True, f"There is no store at {path} yet; portico load makes it")
    if path.is_file() and not path.stat().st_size:
        says = f"{path} is empty: it holds no store. Restore it from a backup, or run portico load"
        return Finding("store", False, says)
    return None


def _disk(file: Path) -> Finding:
    """Whether there is room to write beside the store, where it keeps what is not in its file yet."""
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as attempt:
            attempt.write(bytes(PAGE))
            attempt.flush()
    except OSError as error:
        return Finding("disk", False, f"{folder} cannot be written to: {error.strerror}")
    is_well = free >= MIN_FREE_BYTES
    says = "" if is_well else f"; a store needs {MIN_FREE_BYTES >> 20} MB to work"
    return Finding("disk", is_well, f"{free >> 20:,} MB are free in {folder}{says}")


async def _trail(config: Config, store: Store) -> Finding:
    try:
        problems = await Guard(store, config.safety, dict[str, Operation], nowhere).check_trail()
    except SiteError as error:
        return Finding("audit trail", False, str(error))
    return Finding("audit trail", not problems, "; ".join(problems) or "each line follows from the one before")


async def _collections(config: Config, store: Store) -> AsyncIterator[Finding]:
    for name, collection in store.collections.schema.items():
        count = await store.items.count(name, EVERYTHING)
        fields = ", ".join(f"{f.name} ({f.type})" for f in collection.fields.values())
        yield Finding(f"collection {name}", True, f"{count:,} items; {fields or 'no fields yet'}")
    for name, said in config.collections.items():
        if not said.private and not (name in store.collections.schema and await store.items.count(name, EVERYTHING)):
            yield Finding(
                f"collection {name}",
                False,
                "is described in the site file but has no items; run portico load",
            )
