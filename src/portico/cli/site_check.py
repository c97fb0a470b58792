"""The checks of `portico check`. They change nothing, except that they migrate a store of an earlier version."""

import errno
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

from portico.catalog import Collection, Operation, nearest_hint
from portico.cli.load_report import Report, ask_about
from portico.cli.sites import site_store
from portico.config import Config, SourceSettings, database_file, secret
from portico.errors import SiteError
from portico.operations import check_published
from portico.protocols import Finding, attempt, protocols
from portico.query import MATCH_ALL
from portico.redaction import redact_url
from portico.safety.delivery import DeliveryChannels
from portico.safety.guard import Guard
from portico.server.admission import fit_connections
from portico.server.assembly import open_answering_model, open_models, site_operations
from portico.sources.ingest import open_configured_source
from portico.sources.inventory import describe_items
from portico.sources.saved_reports import saved_reports
from portico.sources.schedule import parse_schedule
from portico.store import Store, open_store
from portico.store.sqlite.engine import check_log
from portico.telemetry import discard

MIN_FREE_BYTES = 64 << 20  # with less, writes may soon fail
PAGE = 4096
IN_MEMORY = "sqlite:///:memory:"


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
        channels.append(attempt("safety.channels", text, lambda: DeliveryChannels(config.safety)))
    ports = [
        _port("port", server.host, server.port),
        *(_port(f"{p.name} port", server.host, p.port.number(config)) for p in protocols() if p.port),
    ]
    return [
        *findings,
        *ports,
        *_open_files(config),
        *channels,
        *[finding async for finding in _store(config)],
    ]


async def describe_loaded(config: Config) -> Report:
    """Return what the store holds, as a load reports it, with what the last load of each source had to say.

    Without a store, or with one that cannot be read, the report is empty: `check_site` says why.
    """
    path = database_file(config.store_url)
    if path and _without_store(path):
        return Report((), {})
    try:
        async with site_store(config) as store:
            public = [collection for collection in store.collections.schema.values() if not collection.private]
            collections = {collection.name: await describe_items(store, collection) for collection in public}
            reports = [saved.report for saved in await saved_reports(store.notes)]
    except SiteError:
        return Report((), {})
    current = [report for report in reports if not collections.keys().isdisjoint(report.collections)]
    return Report(current, collections, ask_about(collections, config))


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
        if source.every:
            parse_schedule(source.every)
        if source.webhook_secret_env:
            secret(source.webhook_secret_env)
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
        for protocol in protocols():
            for result in protocol.site_checks(config, store):
                yield result
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
        roles = config.collection(name).roles
        for finding in _absent_roles(replace(collection, roles=roles)) if count else ():
            yield finding
    for name, settings in config.collections.items():
        if not settings.private and not (name in store.collections.schema and await store.items.count(name, MATCH_ALL)):
            yield Finding(
                f"collection {name}",
                False,
                "is described in the site file but has no items; run portico load",
            )


def _absent_roles(collection: Collection) -> Iterator[Finding]:
    """Yield a finding for each role that the site file gives to a field that no item has."""
    for role, field in collection.absent_roles.items():
        near = nearest_hint(field, collection.fields)
        says = f"the role {role} names the field {field!r}, which no item has{f'. {near}' if near else ''}"
        yield Finding(f"collections.{collection.name}.roles", False, says)
