"""Options that commands share, and the values behind them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from portico.catalog import Danger, Trust
from portico.config import Config, database_file
from portico.errors import ConfigError

if TYPE_CHECKING:
    from portico.requests import Caller
    from portico.server.assembly import Parts
    from portico.store import Store

SiteOption = Annotated[
    str | None,
    typer.Option(
        "--site",
        help="A portico.toml or a folder with one. Else PORTICO_SITE, else the one here.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="A store URL, as in sqlite:///shop.db or postgresql://me@host/shop.", show_default=False
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", help="Act as the holder of this key, not as the operator.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def port_option(help: str, *, show_default: bool = True) -> Any:
    return typer.Option(min=0, max=65535, help=help, show_default=show_default)


def danger_named(text: str) -> Danger:
    """The most that a caller may risk. What is forbidden to all cannot be allowed."""
    if text.upper() not in Danger.__members__ or text == "forbidden":
        raise ConfigError(f"{text!r} is not a danger", hint="safe, reversible, destructive or dangerous.")
    return Danger[text.upper()]


def trust_named(text: str) -> Trust:
    return Trust[text.upper()]


@asynccontextmanager
async def opened_store(config: Config) -> "AsyncGenerator[Store]":
    # Imported here: help and other commands need no store.
    from portico.store import open_store  # noqa: PLC0415

    store = await open_store(config.store_url, **config.store.opening())
    try:
        yield store
    finally:
        await store.close()


async def caller_of(parts: "Parts", api_key: str | None) -> "Caller":
    """Who a command acts for: the operator at this machine, or the holder of a key."""
    # Imported here, as above.
    from portico.access.identity import Credentials, local_operator  # noqa: PLC0415

    return local_operator() if api_key is None else await parts.site.identity.caller(Credentials(api_key))


def config_of(context: typer.Context, site: str | None, store: str | None) -> Config:
    """The site that is meant; how to find it is what the command line has noted for its commands."""
    return cast("Callable[[str | None, str | None], Config]", context.obj)(site, store)


def filled(config: Config) -> Config:
    """A site that can be asked something. Of a store that is not there an empty one would be made."""
    where = missing(config)
    if where:
        raise ConfigError(f"There is no store at {where}", hint="`portico load` makes one.")
    return config


def missing(config: Config) -> Path | None:
    """Where the store would be, if it is a file that is not there."""
    path = database_file(config.store_url)
    return path if path and not path.exists() else None
