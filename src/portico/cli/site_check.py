"""The checks of `portico check`. They change nothing, except that they migrate a store of an earlier version."""

import errno
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from portico.access.nip.verifier import CertificateVerifier
from portico.catalog import Operation
from portico.config import Config, SourceSettings, ca_file_of, database_file, secret
from portico.errors import SiteError
from portico.operations import check_published
from portico.protocols.nwp.graph import is_allowed
from portico.protocols.nwp.settings import NodeReference, NwpSettings
from portico.protocols.nwp.tls import load_tls
from portico.query import MATCH_ALL
from portico.redaction import redact_url
from portico.safety.delivery import DeliveryChannels
from portico.safety.guard import Guard
from portico.server.admission import fit_connections
from portico.server.assembly import open_answering_model, open_models, site_operations
from portico.sources.ingest import open_configured_source
from portico.store import Store, open_store
from portico.store.sqlite.engine import check_log
from portico.telemetry import discard

MIN_FREE_BYTES = 64 << 20  # with less, writes may soon fail
PAGE = 4096
IN_MEMORY = "sqlite:///:memory:"


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    is_ok: bool
    message: str


async def check_site(config: Config) -> list[Finding]:
    server = config.server
    findings = [
        Finding("site", True, f"{config.site.name}, {len(config.collections)} collections described"),
        *(_source(config, source) for source in config.source),
        _embedder(config),
        await _model(config),
    ]
    channels: list[Finding] = []
    if config.safety.channels:
        text = f"codes go to: {', '.join(config.safety.channels)}"
        channels.append(_attempt("safety.channels", text, lambda: DeliveryChannels(config.safety)))
    ports = [_port("port", server.host, server.port), _port("native port", server.host, server.nwp_port)]
    return [
        *findings,
        *ports,
        *_open_files(config),
        *_nwp(config),
        *channels,
        *[finding async for finding in _store(config)],
    ]


async def _operations(config: Config, store: Store) -> Finding:
    try:
        operations = await site_operations(config, store)
        check_published(operations)
    except SiteError as error:
        return Finding("operations", False, str(error))
    return Finding("operations", True, ", ".join(operation.name for operation in operations) or "none of its own")


def _source(config: Config, source: SourceSettings) -> Finding:
    try:
        open_configured_source(source, config)
    except SiteError as error:
        return Finding(f"source {redact_url(source.url)}", False, str(error))
    return Finding(f"source {redact_url(source.url)}", True, "can be opened")


async def _model(config: Config) -> Finding:
    try:
        model = open_answering_model(config)
    except SiteError as error:
        return Finding("model", False, str(error))
    if model is None:
        return Finding("model", True, "none: answers are composed from the items themselves")
    await model.close()
    return Finding("model", True, f"{model.name}; not contacted by this check")


def _embedder(config: Config) -> Finding:
    try:
        embedder = open_models(config)
    except SiteError as error:
        return Finding("embedder", False, str(error))
    if embedder is None:
        return Finding("embedder", True, "none: search uses words alone")
    return Finding("embedder", True, f"{embedder.name}, {embedder.dimensions} dimensions")


def _port(what: str, host: str, port: int) -> Finding:
    """Check that the server could listen. A port that is in use is no problem: the server may be running."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Finding(what, True, f"{host}:{port} is free")
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        says = "is in use; a server may be running" if in_use else f"cannot be used: {error.strerror}"
        return Finding(what, in_use, f"{host}:{port} {says}")


def _open_files(config: Config) -> Iterator[Finding]:
    """Yield a finding if the process may not open as many files as its connections need."""
    connections = config.limits.connections
    possible = fit_connections(connections, config.store.pool)
    if possible < connections:
        yield Finding(
            "open files",
            False,
            f"the limit leaves room for {possible} connections, not for the {connections} of limits.connections; "
            "raise the hard limit (ulimit -Hn)",
        )


def _nwp(config: Config) -> Iterator[Finding]:
    nwp = config.section(NwpSettings)
    if config.ca_file:
        yield _attempt("ca_file", "contains certificates of authorities", lambda: ca_file_of(config))
    if nwp.tls_certificate or nwp.tls_key:
        yield _attempt("nwp.tls_certificate", "can be used with its key", lambda: load_tls(config))
    if nwp.callback_secret:
        yield _attempt("nwp.callback_secret", "is set in the environment", lambda: secret(nwp.callback_secret))
    for node in nwp.node:
        yield _node(node, nwp.allow_nodes)


def _attempt(what: str, success: str, use: Callable[[], object]) -> Finding:
    try:
        use()
    except SiteError as error:
        return Finding(what, False, str(error))
    return Finding(what, True, success)


def _node(node: NodeReference, allowed: tuple[str, ...]) -> Finding:
    is_well = is_allowed(node.url, allowed)
    says = "may be asked" if is_well else "is never asked: no entry of nwp.allow_nodes matches it"
    return Finding(f"nwp.node {redact_url(node.url)}", is_well, says)


async def _store(config: Config) -> AsyncIterator[Finding]:
    path = database_file(config.store_url)
    if path:
        yield _disk(path)
    finding = _without_store(path) if path else None
    if finding:
        yield finding
    try:
        # Without a store, check the rest with an empty one in memory. No store is created.
        store = await open_store(IN_MEMORY if finding else config.store_url, **config.store.open_options())
    except SiteError as error:
        yield Finding("store", False, str(error))
        return
    try:
        if not finding:
            problems = await store.check()
            yield Finding("store", not problems, "; ".join(problems) or f"{store.url} is sound")
        yield await _operations(config, store)
        yield await _trail(config, store)
        if config.section(NwpSettings).issuers:
            yield _attempt(
                "nwp.issuers", "are addresses; not contacted by this check", lambda: CertificateVerifier(config, store)
            )
        if not finding:
            async for result in _collections(config, store):
                yield result
    except SiteError as error:
        yield Finding("store", False, str(error))
    finally:
        await store.close()


def _without_store(path: Path) -> Finding | None:
    """Return a finding for a file that contains no store. Opening it would create one."""
    try:
        check_log(str(path))
    except SiteError as error:
        return Finding("store", False, str(error))
    if not path.exists():
        return Finding("store", True, f"There is no store at {path} yet; create one with portico load")
    if path.is_file() and not path.stat().st_size:
        says = f"{path} is empty and contains no store. Restore it from a backup, or run portico load"
        return Finding("store", False, says)
    return None


def _disk(file: Path) -> Finding:
    """Check that there is room to write in the folder of the store, which also holds its log."""
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as attempt:
            attempt.write(bytes(PAGE))
            attempt.flush()
    except OSError as error:
        return Finding("disk", False, f"{folder} cannot be written to: {error.strerror}")
    is_well = free >= MIN_FREE_BYTES
    says = "" if is_well else f"; a store needs {MIN_FREE_BYTES >> 20} MB"
    return Finding("disk", is_well, f"{free >> 20:,} MB are free in {folder}{says}")


async def _trail(config: Config, store: Store) -> Finding:
    try:
        problems = await Guard(store, config.safety, dict[str, Operation], discard).supervision.check_trail()
    except SiteError as error:
        return Finding("audit trail", False, str(error))
    return Finding("audit trail", not problems, "; ".join(problems) or "complete and unchanged")


async def _collections(config: Config, store: Store) -> AsyncIterator[Finding]:
    for name, collection in store.collections.schema.items():
        count = await store.items.count(name, MATCH_ALL)
        fields = ", ".join(f"{f.name} ({f.type})" for f in collection.fields.values())
        yield Finding(f"collection {name}", True, f"{count:,} items; {fields or 'no fields yet'}")
    for name, settings in config.collections.items():
        if not settings.private and not (name in store.collections.schema and await store.items.count(name, MATCH_ALL)):
            yield Finding(
                f"collection {name}",
                False,
                "is described in the site file but has no items; run portico load",
            )
