"""Options that commands share, and how their values are parsed."""

import json
from typing import Annotated, Any, Literal

import typer

from portico.catalog import Danger, Trust
from portico.errors import ConfigError, InvalidQuery

SiteOption = Annotated[
    str | None,
    typer.Option(
        "--site",
        help="A portico.toml, or a folder that contains one. Default: PORTICO_SITE, then the current folder.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="Store URL, such as sqlite:///shop.db or postgresql://me@host/shop.", show_default=False
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", help="Act as the holder of this API key instead of as the operator.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogLevelOption = Annotated[
    Literal["info", "debug"] | None,
    typer.Option(help="debug logs failures with their traceback.", show_default=False),
]
QUOTED = """Quote it for the shell: '{"price": {"$lt": 5}}'."""


def port_option(help: str, *, show_default: bool = True) -> Any:
    return typer.Option(min=0, max=65535, help=help, show_default=show_default)


def parse_danger(text: str) -> Danger:
    """Parse the highest danger that a caller may risk. `forbidden` cannot be granted to anyone."""
    if text.upper() not in Danger.__members__ or text == "forbidden":
        raise ConfigError(f"{text!r} is not a danger level", hint="Use safe, reversible, destructive or dangerous.")
    return Danger[text.upper()]


def parse_trust(text: str) -> Trust:
    return Trust[text.upper()]


def parse_json(raw: str, what: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise InvalidQuery(f"{what} is not JSON: {error}", hint=QUOTED) from None
