"""The commands of `portico keys` that are about certificates (NIP). Decides nothing: asks the authority of the site."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import typer

from portico.catalog import nearest_hint
from portico.cli.options import JsonOption, SiteOption, StoreOption, config_of, danger_named, opened_store, trust_named
from portico.cli.terminal import err, out, plain, print_json
from portico.config import Config
from portico.errors import AlreadyExists, ConfigError, SiteError

if TYPE_CHECKING:
    from portico.access.nip.authority import Authority, Issued

certificates = typer.Typer()

TrustName: TypeAlias = Literal["untested", "generated", "validated", "community_reviewed", "certified"]
TrustOption = Annotated[
    TrustName,
    typer.Option(help="certified: what it may risk it does alone; others wait for somebody with the scope approve."),
]

CAPABILITIES: Final = (
    *("nwp:query", "nwp:stream", "nwp:action", "nwp:invoke"),
    *("ncp:stream", "nop:delegate", "nop:orchestrate"),
)
_OWN_CAPABILITY = re.compile(r"(?!(?:ncp|nwp|nip|ndp|nop):)[\w.-]+:[\w.:-]+", re.ASCII)  # of a family of its own
_NODE = re.compile(r"\*|nwp://\*|(?:nwp|https?)://[^\s/?#*@]+(?:/[^\s?#*]*)?(?:(?<=/)\*)?", re.ASCII)


@certificates.command("authority")
def show_authority(
    context: typer.Context, site: SiteOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Say who issues certificates here: its NID and public key, and how other sites come to trust it.

    Every site is an authority of its own. Its keys belong to the store: after `portico copy` to another one, issue
    certificates anew.

        portico keys authority --site shop/portico.toml
    """
    config = config_of(context, site, store)

    async def work() -> dict[str, Any]:
        async with _authority(config) as authority:
            return {"nid": authority.nid, "public_key": authority.public_key}

    _show(asyncio.run(work()), as_json)
    address = config.server.url.rstrip("/") or "https://the-address-of-this-site"
    _say(f'Other sites trust it with  issuers = ["{address}"]  under [nwp] in their portico.toml.')
    if not config.server.url:
        _say("Set server.url first: its host becomes part of every name.")


@certificates.command("node")
def show_node(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A node of the site; the site as a whole when left out.")] = "site",
    out: Annotated[Path | None, typer.Option(help="Write the certificate to this file.", show_default=False)] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the certificate of a node of this site: its NID, its public key, and who says so.

    All nodes of a site have one key. With it they sign what they send of their own accord, as callbacks.

        portico keys node products --out products.json
    """

    config = config_of(context, site, store)

    async def work() -> Mapping[str, Any]:
        await _check_node(config, name)
        async with _authority(config) as authority:
            return authority.node_certificate(name)

    certificate = asyncio.run(work())
    if out:
        _write(out, _text(certificate), 0o644)
    if as_json:
        print_json(certificate)
        return
    _show(
        {"nid": certificate["nid"], "public_key": certificate["pub_key"], "expires": certificate["expires_at"]}, False
    )
    if not out:
        _say("The certificate itself: --json or --out FILE.")


@certificates.command("agent")
def issue_agent(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Of the agent: letters, digits, - _ and .")],
    capability: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(CAPABILITIES)}; the first three when left out.", show_default=False),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(help="An address it may go to, with all below: nwp://shop.example/products", show_default=False),
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option(help="An action it may invoke: orders:create, orders:*; all when left out.", show_default=False),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Tokens of one answer, at most.", show_default=False)
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="What it may do on this site, as for keys: ask, read:recipes.", show_default=False),
    ] = None,
    danger: Annotated[
        str, typer.Option(help="The most it may risk: safe, reversible, destructive, dangerous.")
    ] = "safe",
    trust: TrustOption = "validated",
    days: Annotated[float, typer.Option(help="Days until it expires, up to a year.")] = 30,
    public_key: Annotated[
        str, typer.Option(help="The agent's own key, as ed25519:…; else one is made.", show_default=False)
    ] = "",
    out: Annotated[Path, typer.Option(help="The folder for NAME.json and NAME.key.")] = Path(),
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Issue a certificate to an agent: who it is, and what it may do.

    Writes NAME.json, the certificate that the agent shows, and NAME.key, its private key, which is kept nowhere else.
    Whoever has the certificate can show it: send it over TLS only. `portico keys list` has it; `portico keys revoke`
    ends it at once.

        portico keys agent importer --capability nwp:query --node nwp://shop.example/products --days 7

        portico keys agent buyer --action "orders:*" --scope "read:*" --scope execute:place_order --danger reversible
    """
    config = config_of(context, site, store)
    risk = danger_named(danger)
    _check_capabilities(capability or (), config.nwp.capabilities)
    _check_addresses(node or ())
    if not as_json:
        _check_absent(out / f"{name}.json", out / f"{name}.key")

    async def work() -> "Issued":
        async with _authority(config) as authority:
            return await authority.issue(
                name,
                capabilities=capability or (),
                nodes=node or (),
                actions=action,
                budget=budget,
                scopes=scope or ("ask", "read:*"),
                danger=risk,
                trust=trust_named(trust),
                days=days,
                public_key=public_key,
            )

    issued = asyncio.run(work())
    if as_json:
        private = {"private_key": issued.private_key} if issued.private_key else {}
        print_json({"id": issued.key.id, "certificate": issued.certificate, **private})
        return
    _write(out / f"{name}.json", _text(issued.certificate), 0o600)
    if issued.private_key:
        _write(out / f"{name}.key", issued.private_key, 0o600)
    _show({"id": issued.key.id, "nid": issued.key.name, "expires": issued.certificate["expires_at"]}, False)
    _say(f"End it with  portico keys revoke {issued.key.id}")


@certificates.command("renew")
def renew_agent(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The certificate, as `portico keys agent` wrote it.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the new one to this file, and leave the old.", show_default=False)
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Renew the certificate of an agent, from seven days before it expires.

    The new one is for the same name, key and rights, for as long again. It takes the place of the file, or is only
    printed with --json. The old one is good for an hour more, so that the agent can change over. The private key stays.

        portico keys renew importer.json
    """
    config = config_of(context, site, store)
    target = out or file
    written = _read(file)
    # Nothing is renewed that then could not be written. Whoever reads it meanwhile has the one or the other, whole.
    beside = target.with_name(f".{target.name}.new")
    if not as_json:
        if out:
            _check_absent(out)
        _write(beside, "", 0o600, says=False)

    async def work() -> "Issued":
        async with _authority(config) as authority:
            return await authority.renew(written)

    try:
        issued = asyncio.run(work())
    except SiteError:
        beside.unlink(missing_ok=True)
        raise
    if as_json:
        print_json({"id": issued.key.id, "certificate": issued.certificate})
        return
    _write(beside, _text(issued.certificate), 0o600, says=False)
    beside.replace(target)
    _say(f"Wrote {target}")
    _show({"id": issued.key.id, "nid": issued.key.name, "expires": issued.certificate["expires_at"]}, False)
    _say(f"The old one is good for an hour more. End the new one with  portico keys revoke {issued.key.id}")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


@asynccontextmanager
async def _authority(config: Config) -> "AsyncGenerator[Authority]":
    # Imported here: other commands need no cryptography.
    from portico.access.nip.authority import Authority  # noqa: PLC0415

    async with opened_store(config) as store:
        yield Authority(config, store)


async def _check_node(config: Config, name: str) -> None:
    """No certificate speaks for a node that is not there. The site as a whole always is."""
    if name == "site":
        return
    # Imported here: other commands need no catalog.
    from portico.protocols.nwp.nodes import Nodes  # noqa: PLC0415
    from portico.server.assembly import opened_store_only  # noqa: PLC0415

    async with opened_store_only(config) as parts:
        await Nodes(parts.site, config).named(name)


def _check_capabilities(capabilities: Iterable[str], own: Iterable[str]) -> None:
    """What the protocols do not know is a slip of the pen, unless a site asks for it or it is of another family."""
    known = (*CAPABILITIES, *own)
    for each in capabilities:
        if each not in known and not _OWN_CAPABILITY.fullmatch(each):
            hint = nearest_hint(each, known) or f"Known: {', '.join(known)}. One of your own is as shop:refund."
            raise ConfigError(f"{each!r} is not a capability", hint=hint)


def _check_addresses(nodes: Iterable[str]) -> None:
    for each in nodes:
        if not _NODE.fullmatch(each):
            hint = "Write nwp://shop.example/products, https://shop.example/nwp/products or *."
            raise ConfigError(f"{each!r} is not the address of a node", hint=hint)


def _check_absent(*files: Path) -> None:
    """Nothing is issued that then could not be written, and no key is lost under another."""
    for file in files:
        if file.exists():
            raise AlreadyExists(f"{file} exists already", hint="Move it away, or name another folder with --out.")


def _write(file: Path, text: str, mode: int, *, says: bool = True) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    if says:
        _say(f"Wrote {file}")


def _text(certificate: Mapping[str, Any]) -> str:
    """On one line of ASCII, so that it can be sent in a header as it is."""
    return json.dumps(certificate, separators=(",", ":")) + "\n"


def _show(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        out.print(f"{name.replace('_', ' '):<{width}}  {plain(value)}", highlight=False, soft_wrap=True)


def _say(text: str) -> None:
    err.print(f"[dim]{plain(text)}[/]", highlight=False, soft_wrap=True)
