"""Config to Site: builds the parts of a site and runs them. Knows no HTTP."""

import asyncio
import contextlib
import importlib
import importlib.util
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from portico.access.identity import CertifiedAgent, FindAgent, Identity, TokenHolder
from portico.ask.pipeline import AskOptions
from portico.catalog import OPERATIONS, Operation
from portico.config import AgentTrust, Config, ca_file_of, screen, secret
from portico.errors import ConfigError
from portico.models import Embedder, LanguageModel, open_embedder, open_language_model
from portico.operations import collection_operations, operations_of
from portico.protocols import resources
from portico.safety.delivery import DeliveryChannels
from portico.search.finder import Finder
from portico.search.index.memory import MemoryIndex
from portico.site import RESERVED, ShowCode, Site
from portico.sources.refresh import SourceManager
from portico.store import Store, open_store
from portico.telemetry import Metrics, Recorder, TrafficHistory, discard, fan_out


@dataclass(frozen=True, slots=True)
class Parts:
    """What a running site is made of."""

    config: Config
    store: Store
    index: MemoryIndex
    site: Site
    metrics: Metrics
    traffic: TrafficHistory
    sources: SourceManager
    record: Recorder  # to the metrics, the history of traffic and the log


def open_models(config: Config) -> Embedder | None:
    return open_embedder(config.search.embedder, secret=secret)


def open_answering_model(config: Config) -> LanguageModel | None:
    return open_language_model(config.ask.model, secret=secret)


@asynccontextmanager
async def open_site(
    config: Config,
    *,
    record: Recorder = discard,
    background: bool = True,
    serves: bool = True,
    restarts: bool = True,
) -> AsyncGenerator[Parts]:
    """Open a site with its parts running. In the background it follows the feed and runs tasks.

    One that serves also makes vectors and takes up tasks that others left; one that does not runs only its own. One
    that restarts the site lets steps that wait for a code be looked at anew: agents must not be able to start it.
    """
    metrics, traffic = Metrics(), TrafficHistory()
    record = fan_out(metrics, traffic, record)
    async with contextlib.AsyncExitStack() as closing:
        store = await _open_site_store(config)
        closing.push_async_callback(store.close)
        store.health.record_to(record)
        embedder = open_models(config)
        index = MemoryIndex(store, embedder, record)
        closing.push_async_callback(index.close)
        if background:
            index.run(embed=serves)
        else:
            await index.start()
        model = open_answering_model(config)
        if model:
            closing.push_async_callback(model.close)
        channels = DeliveryChannels(config.safety, config.allow_hosts, record, screen(), ca_file_of(config))
        closing.push_async_callback(channels.close)
        finder = Finder(store, index, embedder, config.limits.page_bytes)
        site = await _site(config, finder, record, model, channels.deliver)
        closing.push_async_callback(site.subscriptions.close)
        if restarts and serves:
            await site.start()
            closing.push_async_callback(site.stop)
        if background:
            site.tasks.open(only_own=not serves)
            closing.push_async_callback(site.tasks.close)
        sources = SourceManager(config, store, record)
        closing.push_async_callback(sources.close)
        if background and restarts and serves:
            sources.open()
            metrics.watch_sources(sources.freshness)
        yield Parts(config, store, index, site, metrics, traffic, sources, record)


@asynccontextmanager
async def open_site_without_index(config: Config) -> AsyncGenerator[Parts]:
    """Open a site that can be queried but not searched: at once, whatever its size."""
    async with contextlib.AsyncExitStack() as closing:
        store = await _open_site_store(config)
        closing.push_async_callback(store.close)
        site = await _site(config, Finder(store, page_bytes=config.limits.page_bytes), discard)
        closing.push_async_callback(site.subscriptions.close)
        sources = SourceManager(config, store, discard)
        yield Parts(config, store, MemoryIndex(store, None), site, Metrics(), TrafficHistory(), sources, discard)


async def _open_site_store(config: Config) -> Store:
    store = await open_store(config.store_url, **config.store.open_options())
    for name in config.collections:
        await store.collections.declare(config.collection(name))
    return store


async def _site(
    config: Config, finder: Finder, record: Recorder, model: LanguageModel | None = None, show: ShowCode | None = None
) -> Site:
    identity = Identity(
        finder.store.keys.find,
        config.anonymous_scopes,
        config.anonymous_danger,
        _token_holders(config),
        _agents(config, finder.store),
        finder.store.keys.get,
    )
    operations, ask = await site_operations(config, finder.store), config.ask
    return Site(
        config.site.name,
        finder,
        identity,
        config.limits,
        operations,
        record,
        ask_options=AskOptions(config.site.language, ask.clarify, ask.patience, ask.near, ask.prompt, ask.candidates),
        model=model,
        safety=config.safety,
        show=show,
    )


def _token_holders(config: Config) -> Callable[[str], Awaitable[TokenHolder]] | None:
    if not config.oauth.issuer:
        return None
    # Half a second to import, for sites that take tokens.
    return importlib.import_module("portico.access.oauth").AuthorizationServer(config, resources()).holder


def _agents(config: Config, store: Store) -> FindAgent:
    @cache
    def verifier() -> Any:
        # Half a second to import, for sites that are shown certificates.
        return importlib.import_module("portico.access.nip.verifier").CertificateVerifier(config, store)

    async def find(ident: bytes, name: str) -> CertifiedAgent | None:
        if not ident and not config.section(AgentTrust).trust_names:
            return None
        # The first certificate that anyone shows makes it; the event loop does not wait for that.
        certificates = verifier() if verifier.cache_info().currsize else await asyncio.to_thread(verifier)
        return await certificates.agent(ident, name)

    if config.section(AgentTrust).issuers:
        verifier()  # a wrong address is reported at the start
    return find


async def embed_everything(config: Config, report_progress: Callable[[int, int, float], None]) -> None:
    """Make every vector that is missing, and report how many are done, of how many, at which rate."""
    embedder = open_models(config)
    if embedder is None:
        return
    store = await _open_site_store(config)
    try:
        index = MemoryIndex(store, embedder)
        counts = [await store.vectors.count(name, embedder.name) for name in store.collections.schema]
        done, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        started, first = time.monotonic(), done
        for name in store.collections.schema:
            while count := await index.embed_batch(name):
                done += count
                report_progress(done, total, (done - first) / max(time.monotonic() - started, 1e-3))
            await store.collections.optimize(name)
    finally:
        await store.close()


async def site_operations(config: Config, store: Store) -> list[Operation]:
    """Return the site's own operations: Python functions, and HTTP endpoints elsewhere."""
    modules = [_module(name, config.folder) for name in config.operations]
    operations = [operation for module in modules for operation in operations_of(module)]
    has_credentials = any(source.auth for source in config.source)
    if config.operation or has_credentials or OPERATIONS in store.collections.schema:
        # Half a second to import, for sites that have such operations.
        endpoints = importlib.import_module("portico.operations.http_endpoint")
        operations += await endpoints.load_endpoint_operations(config, store, secret)
    names = [operation.name for operation in operations]
    public = [collection for collection in store.collections.schema.values() if not collection.private]
    generated = {operation.name for collection in public for operation in collection_operations(collection)}
    duplicate = next((name for name in names if names.count(name) > 1 or name in RESERVED | generated), None)
    if duplicate:
        raise ConfigError(f"There are two operations called {duplicate}", hint="Give one of them another name.")
    return operations


def _module(name: str, folder: str) -> ModuleType:
    """Import a module by its dotted name, or a file beside the site file."""
    try:
        return _module_of_file(Path(folder, name)) if name.endswith(".py") else importlib.import_module(name)
    except ConfigError:
        raise
    except Exception as error:  # the site's own code may raise anything
        raise ConfigError(f"The operations module {name!r} cannot be imported: {error!r}") from error


def _module_of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"portico_site_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"There is no Python file {path}", hint="`operations` names modules or files.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
