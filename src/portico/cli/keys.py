"""The commands of `portico keys`: keys are made, and like certificates they are listed and ended."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.cli.certificates import TrustOption, certificates
from portico.cli.options import (
    JsonOption,
    SiteOption,
    StoreOption,
    config_of,
    danger_named,
    opened_store,
    trust_named,
)
from portico.cli.terminal import err, out, plain, print_json, show_table
from portico.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from portico.access.identity import Key

keys = typer.Typer(help="API keys and certificates: make, list, renew and revoke them.", no_args_is_help=True)


@keys.command("create")
def create_key(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Who or what will use it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="ask, approve, or KIND:NAME with a collection or operation: read:recipes, execute:*",
            show_default=False,
        ),
    ] = None,
    days: Annotated[float, typer.Option(help="Days until it expires; 0 for never.")] = 90,
    danger: Annotated[
        str, typer.Option(help="The most it may risk: safe, reversible, destructive, dangerous.")
    ] = "safe",
    trust: TrustOption = "validated",
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an API key. It is shown once and stored only as a hash.

    portico keys create --name "menu importer" --scope create:recipes --scope update:recipes --danger reversible
    """
    # Imported here: help and other commands need no keys.
    from portico.access.identity import make_key  # noqa: PLC0415

    if days < 0:
        raise ConfigError("A key cannot have expired before it is made", hint="Give --days as 0 or more.")
    token, key = make_key(
        name, scope or ["ask", "read:*"], danger_named(danger), days or None, trust=trust_named(trust)
    )

    config = config_of(context, site, store)  # the sample site may have to be loaded first

    async def work() -> None:
        async with opened_store(config) as opened:
            await opened.keys.add(key)

    asyncio.run(work())
    if as_json:
        print_json({"key": token, **_shown_key(key)})
        return
    out.print(token, markup=False, highlight=False, soft_wrap=True)
    err.print(f"[dim]Key {key.id} for {plain(name)}. This is the only time it is shown.[/]", highlight=False)


@keys.command("list")
def list_keys(
    context: typer.Context, site: SiteOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """All keys and certificates of agents, with their scopes, never the keys themselves.

    portico keys list --store sqlite:///shop.db
    """

    config = config_of(context, site, store)  # the sample site may have to be loaded first

    async def work() -> "list[Key]":
        async with opened_store(config) as opened:
            return await opened.keys.list_all()

    rows = [_shown_key(key) for key in asyncio.run(work())]
    if as_json:
        print_json(rows)
    else:
        told = [name for name in ("until", "revoked") if any(row[name] for row in rows)]
        names = ["id", "name", "scopes", "danger", "trust", "expires", *told]
        show_table([_brief_key(row) for row in rows], names, whole=["id", "danger", "trust", "expires", *told])


@keys.command("revoke")
def revoke_key(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="Its id from `portico keys list`, or the serial of a certificate.")],
    site: SiteOption = None,
    store: StoreOption = None,
) -> None:
    """End a key or the certificate of an agent at once.

    portico keys revoke 2548990428d0

    portico keys revoke 0x9f1c22ab90de4471
    """
    config = config_of(context, site, store)  # the sample site may have to be loaded first

    async def work() -> str:
        now, meant = datetime.now(UTC), id.lower().removeprefix("0x")
        async with opened_store(config) as opened:
            found = await opened.keys.get(meant)
            if found is None:
                raise NotFound(f"There is no key or certificate {id!r}", hint="`portico keys list` shows them.")
            kind = "Certificate" if found.name.startswith("urn:nps:") else "Key"
            if not await opened.keys.revoke(meant, now):
                raise NotFound(f"{kind} {id} was revoked before", hint="`portico keys list` says when.")
            # One that it took the place of is good for a while more.
            for each in await opened.keys.list_all():
                if each.until and each.name == found.name:
                    await opened.keys.revoke(each.id, now)
            return kind

    err.print(f"{asyncio.run(work())} {plain(id)} is revoked.", highlight=False)


def _brief_key(row: Mapping[str, Any]) -> dict[str, Any]:
    """A key as a line of a table has room for it: days without their hours."""
    days = {name: (row[name] or "")[:10] for name in ("expires", "until", "revoked")}
    return {**row, **days, "scopes": " ".join(row["scopes"])}


def _shown_key(key: "Key") -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "danger": key.danger.name.lower(),
        "trust": key.trust.name.lower(),
        "created": key.created.isoformat(timespec="seconds"),
        "expires": key.expires.isoformat(timespec="seconds") if key.expires else None,
        "revoked": key.revoked.isoformat(timespec="seconds") if key.revoked else None,
        "until": key.until.isoformat(timespec="seconds") if key.until else None,
    }


keys.add_typer(certificates)  # whose commands come after these
