"""The commands of `portico keys` for certificates (NIP), which the authority of the site issues."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from portico.catalog import nearest_hint
from portico.cli.options import JsonOption, SiteOption, StoreOption, parse_danger, parse_trust
from portico.cli.sites import load_config, site_store
from portico.cli.terminal import err, out, plain, print_json
from portico.config import Config
from portico.errors import AlreadyExists, ConfigError, SiteError
from portico.protocols import capabilities, check_node

if TYPE_CHECKING:
    from portico.access.nip.authority import IssuedCertificate, SiteAuthority

certificates = typer.Typer()

TrustName: TypeAlias = Literal["untested", "generated", "validated", "community_reviewed", "certified"]
TrustOption = Annotated[
    TrustName,
    typer.Option(
        help="certified: needs no approval up to its danger. All others wait for someone with the scope approve."
    ),
]

_OWN_CAPABILITY = re.compile(r"(?!(?:ncp|nwp|nip|ndp|nop):)[\w.-]+:[\w.:-]+", re.ASCII)  # in a namespace of its own
_NODE = re.compile(r"\*|nwp://\*|(?:nwp|https?)://[^\s/?#*@]+(?:/[^\s?#*]*)?(?:(?<=/)\*)?", re.ASCII)


@certificates.command("authority")
def show_authority(site: SiteOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the certificate authority of this site: its NID and public key.

    Every site has its own authority. Its keys belong to the store: after `portico copy`, issue all certificates again.

        portico keys authority --site shop/portico.toml
    """
    config = load_config(site, store)

    async def work() -> dict[str, Any]:
        async with _authority(config) as authority:
            return {"nid": authority.nid, "public_key": authority.public_key}

    _print_facts(asyncio.run(work()), as_json)
    address = config.server.url.rstrip("/") or "https://the-address-of-this-site"
    _print_note(f'Other sites trust it with  issuers = ["{address}"]  under [nwp] in their portico.toml.')
    if not config.server.url:
        _print_note("Set server.url first: its host is part of every name.")


@certificates.command("node")
def show_node(
    name: Annotated[str, typer.Argument(help="Name of a node. Default: the node of the whole site.")] = "site",
    out: Annotated[Path | None, typer.Option(help="Write the certificate to this file.", show_default=False)] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the certificate of a node of this site.

    All nodes share one key, and sign callbacks with it.

        portico keys node products --out products.json
    """

    config = load_config(site, store)

    async def work() -> Mapping[str, Any]:
        await _check_node(config, name)
        async with _authority(config) as authority:
            return authority.node_certificate(name)

    certificate = asyncio.run(work())
    if out:
        _write(out, _certificate_line(certificate), 0o644)
    if as_json:
        print_json(certificate)
        return
    _print_facts(
        {"nid": certificate["nid"], "public_key": certificate["pub_key"], "expires": certificate["expires_at"]}, False
    )
    if not out:
        _print_note("Get the certificate itself with --json or --out FILE.")


@certificates.command("agent")
def issue_agent(
    name: Annotated[str, typer.Argument(help="Name of the agent: letters, digits, - _ and .")],
    capability: Annotated[
        list[str] | None,
        typer.Option(
            help="nwp:query, nwp:stream, nwp:action, nwp:invoke, ncp:stream, nop:delegate or nop:orchestrate. "
            "Default: the first three.",
            show_default=False,
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(help="Node it may use, with all below it: nwp://shop.example/products.", show_default=False),
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option(help="Action it may invoke: orders:create or orders:*. Default: all.", show_default=False),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tokens per answer.", show_default=False)
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Scope on this site, as for API keys: ask, read:recipes.", show_default=False),
    ] = None,
    danger: Annotated[
        str, typer.Option(help="Highest danger allowed: safe, reversible, destructive or dangerous.")
    ] = "safe",
    trust: TrustOption = "validated",
    days: Annotated[float, typer.Option(help="Days until the certificate expires, at most a year.")] = 30,
    public_key: Annotated[
        str, typer.Option(help="Public key of the agent, as ed25519:…. Default: a new key pair.", show_default=False)
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder for NAME.json and NAME.key.")] = Path(),
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Issue a certificate to an agent.

    Writes the certificate to NAME.json and the private key, which is stored nowhere else, to NAME.key. Anyone who has
    the certificate can use it, so send it over TLS only. `portico keys revoke` ends it.

        portico keys agent importer --capability nwp:query --node nwp://shop.example/products --days 7

        portico keys agent buyer --action "orders:*" --scope "read:*" --scope execute:place_order --danger reversible
    """
    config = load_config(site, store)
    risk = parse_danger(danger)
    _check_capabilities(capability or (), config)
    _check_addresses(node or ())
    if not as_json:
        _check_absent(out / f"{name}.json", out / f"{name}.key")

    async def work() -> "IssuedCertificate":
        async with _authority(config) as authority:
            return await authority.issue(
                name,
                capabilities=capability or (),
                nodes=node or (),
                actions=action,
                budget=budget,
                scopes=scope or ("ask", "read:*"),
                danger=risk,
                trust=parse_trust(trust),
                days=days,
                public_key=public_key,
            )

    issued = asyncio.run(work())
    if as_json:
        private = {"private_key": issued.private_key} if issued.private_key else {}
        print_json({"id": issued.key.id, "certificate": issued.certificate, **private})
        return
    _write(out / f"{name}.json", _certificate_line(issued.certificate), 0o600)
    if issued.private_key:
        _write(out / f"{name}.key", issued.private_key, 0o600)
    _print_facts({"id": issued.key.id, "nid": issued.key.name, "expires": issued.certificate["expires_at"]}, False)
    _print_note(f"Revoke it with  portico keys revoke {issued.key.id}")


@certificates.command("renew")
def renew_agent(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Certificate file that `portico keys agent` wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the new certificate to this file. Default: replace FILE.", show_default=False),
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Renew an agent certificate. Possible from seven days before it expires.

    The new certificate has the same name, key, rights and lifetime. It replaces the file, or is only printed with
    --json. The old certificate stays valid for another hour, so that the agent can switch over.

        portico keys renew importer.json
    """
    config = load_config(site, store)
    target = out or file
    certificate = _read(file)
    # Renew only what can be written. A reader sees either the old file or the new one, never a part.
    beside = target.with_name(f".{target.name}.new")
    if not as_json:
        if out:
            _check_absent(out)
        _write(beside, "", 0o600, announce=False)

    async def work() -> "IssuedCertificate":
        async with _authority(config) as authority:
            return await authority.renew(certificate)

    try:
        issued = asyncio.run(work())
    except SiteError:
        beside.unlink(missing_ok=True)
        raise
    if as_json:
        print_json({"id": issued.key.id, "certificate": issued.certificate})
        return
    _write(beside, _certificate_line(issued.certificate), 0o600, announce=False)
    beside.replace(target)
    _print_note(f"Wrote {target}")
    _print_facts({"id": issued.key.id, "nid": issued.key.name, "expires": issued.certificate["expires_at"]}, False)
    _print_note(
        f"The old one stays valid for another hour. Revoke the new one with  portico keys revoke {issued.key.id}"
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


@asynccontextmanager
async def _authority(config: Config) -> "AsyncGenerator[SiteAuthority]":
    # Imported here: other commands need no cryptography.
    from portico.access.nip.authority import SiteAuthority

    async with site_store(config) as store:
        yield SiteAuthority(config, store)


async def _check_node(config: Config, name: str) -> None:
    """Raise if there is no such node. The node of the whole site always exists."""
    if name == "site":
        return
    # Imported here: other commands need no catalog.
    from portico.server.assembly import open_site_without_index

    async with open_site_without_index(config) as parts:
        await check_node(parts.site, config, name)


def _check_capabilities(names: Iterable[str], config: Config) -> None:
    """Raise for a capability that is neither the protocols', nor the site's, nor in a namespace of its own."""
    valid_names = capabilities(config)
    for capability in names:
        if capability not in valid_names and not _OWN_CAPABILITY.fullmatch(capability):
            hint = (
                nearest_hint(capability, valid_names)
                or f"Known: {', '.join(valid_names)}. Write your own as shop:refund."
            )
            raise ConfigError(f"{capability!r} is not a capability", hint=hint)


def _check_addresses(nodes: Iterable[str]) -> None:
    for node in nodes:
        if not _NODE.fullmatch(node):
            hint = "Write nwp://shop.example/products, https://shop.example/nwp/products or *."
            raise ConfigError(f"{node!r} is not the address of a node", hint=hint)


def _check_absent(*files: Path) -> None:
    """Raise if a file exists, so that no key is overwritten and nothing is issued that cannot be written."""
    for file in files:
        if file.exists():
            raise AlreadyExists(f"{file} already exists", hint="Move it, or choose another folder with --out.")


def _write(file: Path, text: str, mode: int, *, announce: bool = True) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    if announce:
        _print_note(f"Wrote {file}")


def _certificate_line(certificate: Mapping[str, Any]) -> str:
    """Return a certificate on one line of ASCII, which can be sent in a header as it is."""
    return json.dumps(certificate, separators=(",", ":")) + "\n"


def _print_facts(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        out.print(f"{name.replace('_', ' '):<{width}}  {plain(value)}", highlight=False, soft_wrap=True)


def _print_note(text: str) -> None:
    err.print(f"[dim]{plain(text)}[/]", highlight=False, soft_wrap=True)
