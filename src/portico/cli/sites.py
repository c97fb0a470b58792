"""The site that a command works on: its settings, its store, and the caller that the command acts as."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from portico.cli.terminal import ProgressBar, err
from portico.config import Config, SourceSettings, StoreSettings, database_file, find_site_file, resolve_location
from portico.errors import ConfigError
from portico.protocols import parse_config, read_config
from portico.redaction import redact_url

if TYPE_CHECKING:
    from portico.requests import Caller
    from portico.server.assembly import Parts
    from portico.sources.reports import LoadReport
    from portico.store import Store
    from portico.telemetry import Recorder


def load_config(site: str | None, store: str | None, *, is_filled: bool = True) -> Config:
    """Return the settings of the chosen site, or of the sample site if there is no site file.

    Unless `is_filled` is false, the sample site is loaded first if it has no store yet.
    """
    path = find_site_file(site)
    if path is None and store is None:
        err.print("[dim]No portico.toml here: using the sample site.[/]", highlight=False)
        config = demo_config()
        if is_filled and missing_store(config):
            asyncio.run(load_all(config, quiet=True))
        return config
    config = read_config(path) if path else parse_config({})
    if store:
        settings = msgspec.structs.replace(config.store, url=resolve_location(store, "."))
        return msgspec.structs.replace(config, store=settings)
    return config


def demo_config() -> Config:
    """Return the settings of the sample site, whose store is in the current folder."""
    path = Path(__file__).parents[1] / "demo" / "portico.toml"
    store = StoreSettings(url=f"sqlite:///{Path('.portico', 'demo.db').absolute()}")
    return msgspec.structs.replace(read_config(path), store=store)


async def load_all(
    config: Config, *, quiet: bool, record: "Recorder | None" = None, keep_going: bool = False
) -> list["LoadReport"]:
    """Load the sources of the site file. With `keep_going`, one that cannot be read does not stop the others."""
    from portico.sources.ingest import load_sources
    from portico.telemetry import discard

    async with site_store(config) as store:
        with ProgressBar(config.site.name, quiet) as bar:
            return await load_sources(config, store, record or discard, bar.show_report, keep_going=keep_going)


async def load_one(config: Config, settings: SourceSettings) -> list["LoadReport"]:
    """Load one source of the site file."""
    from portico.sources.ingest import load_sources
    from portico.telemetry import discard

    async with site_store(config) as store:
        return await load_sources(config, store, discard, keep_going=True, only=settings)


@asynccontextmanager
async def site_store(config: Config) -> "AsyncGenerator[Store]":
    from portico.store import open_store

    store = await open_store(config.store_url, **config.store.open_options())
    try:
        yield store
    finally:
        await store.close()


async def caller_of(parts: "Parts", api_key: str | None) -> "Caller":
    """Return the caller that a command acts as: the operator of this machine, or the holder of an API key."""
    from portico.access.identity import RequestCredentials, local_operator

    return local_operator() if api_key is None else await parts.site.identity.caller(RequestCredentials(api_key))


def require_store(config: Config) -> Config:
    """Return the settings, or raise if the store does not exist. Opening it would create an empty one."""
    where = missing_store(config)
    if where:
        raise ConfigError(f"There is no store at {where}", hint="Create one with `portico load`.")
    return config


def missing_store(config: Config) -> Path | None:
    """Return the path of the store if it is a file that does not exist."""
    path = database_file(config.store_url)
    return path if path and not path.exists() else None


def site_options(site: str | None, store: str | None) -> list[str]:
    """Return the options by which another command finds the same site."""
    chosen = (("--site", site), ("--store", redact_url(store) if store else None))
    return [part for name, value in chosen if value for part in (name, value)]
