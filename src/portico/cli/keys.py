"""The commands of `portico keys`: create, list and revoke API keys; certificates.py adds those for certificates."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.cli.certificates import TrustOption, certificates
from portico.cli.options import JsonOption, SiteOption, StoreOption, parse_danger, parse_trust
from portico.cli.sites import load_config, site_store
from portico.cli.terminal import err, out, plain, print_json, show_table
from portico.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from portico.access.identity import ApiKey

keys = typer.Typer(help="Create, list, renew and revoke API keys and certificates.", no_args_is_help=True)


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="Who or what will use the key.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="ask, approve, or KIND:NAME for a collection or operation, such as read:recipes or execute:*.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[float, typer.Option(help="Days until the key expires; 0 for never.")] = 90,
    danger: Annotated[
        str, typer.Option(help="Highest danger allowed: safe, reversible, destructive or dangerous.")
    ] = "safe",
    trust: TrustOption = "validated",
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key. It is printed once, and stored only as a hash.

    portico keys create --name "menu importer" --scope create:recipes --scope update:recipes --danger reversible
    """
    from portico.access.identity import make_key

    if days < 0:
        raise ConfigError("--days must be 0 or more", hint="With 0, the key never expires.")
    token, key = make_key(
        name, scope or ["ask", "read:*"], parse_danger(danger), days or None, trust=parse_trust(trust)
    )

    config = load_config(site, store)  # loads the sample site if it has to

    async def work() -> None:
        async with site_store(config) as key_store:
            await key_store.keys.add(key)

    asyncio.run(work())
    if as_json:
        print_json({"key": token, **_key_fields(key)})
        return
    out.print(token, markup=False, highlight=False, soft_wrap=True)
    err.print(f"[dim]Key {key.id} for {plain(name)}. It will not be shown again.[/]", highlight=False)


@keys.command("list")
def list_keys(site: SiteOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List API keys and agent certificates with their scopes. The keys themselves are never shown.

    portico keys list --store sqlite:///shop.db
    """

    config = load_config(site, store)  # loads the sample site if it has to

    async def work() -> "list[ApiKey]":
        async with site_store(config) as key_store:
            return await key_store.keys.list_all()

    rows = [_key_fields(key) for key in asyncio.run(work())]
    if as_json:
        print_json(rows)
    else:
        optional = [name for name in ("until", "revoked") if any(row[name] for row in rows)]
        names = ["id", "name", "scopes", "danger", "trust", "expires", *optional]
        for row in rows:
            days = {name: (row[name] or "")[:10] for name in ("expires", "until", "revoked")}
            row.update(days, scopes=" ".join(row["scopes"]))
        show_table(rows, names, whole=["id", "danger", "trust", "expires", *optional])


@keys.command("revoke")
def revoke_key(
    id: Annotated[str, typer.Argument(help="ID from `portico keys list`, or the serial number of a certificate.")],
    site: SiteOption = None,
    store: StoreOption = None,
) -> None:
    """Revoke an API key or an agent certificate, with immediate effect.

    portico keys revoke 2548990428d0

    portico keys revoke 0x9f1c22ab90de4471
    """
    config = load_config(site, store)  # loads the sample site if it has to

    async def work() -> str:
        now, key_id = datetime.now(UTC), id.lower().removeprefix("0x")
        async with site_store(config) as key_store:
            key = await key_store.keys.get(key_id)
            if key is None:
                raise NotFound(f"There is no key or certificate {id!r}", hint="`portico keys list` lists them.")
            kind = "Certificate" if key.name.startswith("urn:nps:") else "Key"
            if not await key_store.keys.revoke(key_id, now):
                raise NotFound(f"{kind} {id} is already revoked", hint="`portico keys list` shows since when.")
            # A certificate that it has replaced may still be valid for a while.
            for other in await key_store.keys.list_all():
                if other.until and other.name == key.name:
                    await key_store.keys.revoke(other.id, now)
            return kind

    err.print(f"{asyncio.run(work())} {plain(id)} is revoked.", highlight=False)


def _key_fields(key: "ApiKey") -> dict[str, Any]:
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


keys.add_typer(certificates)  # after the commands above
