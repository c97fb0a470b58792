"""The authority of this site: makes certificates, and tells of those that it made. Decides nobody's rights elsewhere.

Its keys come from the secret of the store, so that every process has them and nothing needs to be set up. What it has
issued stands in the store among the API keys: there it is listed, and there it is revoked.
"""

import asyncio
import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from portico.access.identity import Key, check_scope
from portico.access.nip import (
    ALGORITHM,
    EXPIRED,
    FRAME,
    RECORD,
    REVOKED,
    UNKNOWN,
    Certificate,
    Rights,
    Standing,
    canonical,
    is_nid,
    raw_key,
    read_certificate,
    revoked_by,
    shown_key,
    sign,
    timestamp,
    verify_signature,
)
from portico.access.nip.fresh import Fresh
from portico.catalog import Danger, Trust
from portico.config import Config
from portico.errors import BadRequest, ConfigError, Conflict, UntrustedIssuer
from portico.store import Store

AGENT_DAYS = 30
NODE_DAYS = 90
MAX_DAYS = 366
NODE_PERIOD = timedelta(days=30)  # a node has the same certificate for so long
RENEWAL = timedelta(days=7)  # before a certificate expires, in which it can be renewed
OVERLAP = timedelta(hours=1)  # that one that was renewed is good beside the new one
REGISTER_SECONDS = 1.0  # how late the site may tell others of what it issued or revoked

NODE = "site"  # the node that stands for the site as a whole
# Of a certificate when nothing else is said. The last two mean the same: manifests say one, NIP says the other.
CAPABILITIES = ("nwp:query", "nwp:stream", "nwp:action", "nwp:invoke")


@dataclass(frozen=True, slots=True)
class Issued:
    """A new certificate with its record, and the private key (PEM) if it was made here: it is kept nowhere."""

    certificate: Mapping[str, Any]
    key: Key
    private_key: str = ""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a certificate shall say."""

    nid: str
    public_key: str
    capabilities: tuple[str, ...]
    scope: Mapping[str, Any]
    lifetime: timedelta
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """What was issued, as it is told to others."""

    by_name: Mapping[str, Sequence[Key]]
    withdrawn: Sequence[Key]


class Authority:
    """The authority of this site, and the key of its nodes. The same in every process on one store."""

    def __init__(self, config: Config, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._register = Fresh[Register](REGISTER_SECONDS, clock)
        self._reading = asyncio.Lock()
        self._title = config.site.name
        self._key = _derived(store.secret, b"portico nip authority")
        self._node_key = _derived(store.secret, b"portico nip node")
        self.host = own_host(config)
        self.nid = f"urn:nps:org:{self.host}"
        self.public_key = shown_key(self._key.public_key())
        self.node_public_key = shown_key(self._node_key.public_key())

    def node_nid(self, name: str = NODE) -> str:
        return f"urn:nps:node:{self.host}:{name}"

    def sign(self, body: bytes) -> str:
        """A signature of the site's nodes, as under callbacks."""
        return sign(self._node_key, body)

    async def issue(
        self,
        name: str,
        *,
        capabilities: Iterable[str] = (),
        nodes: Iterable[str] = (),
        actions: Iterable[str] | None = None,
        budget: int | None = None,
        scopes: Iterable[str] = (),
        danger: Danger = Danger.SAFE,
        trust: Trust = Trust.VALIDATED,
        days: float = AGENT_DAYS,
        public_key: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> Issued:
        """A certificate for an agent, and a record of it. Without nodes it covers all that this host has.

        What it says counts wherever this authority is trusted; scopes, danger and trust count on this site alone.
        """
        nid = _checked_nid(f"urn:nps:agent:{self.host}:{name}", name)
        if not 0 < days <= MAX_DAYS:
            raise BadRequest(
                f"A certificate cannot be valid for {days:g} days", hint=f"Give more than 0, and at most {MAX_DAYS}."
            )
        private = None if public_key else Ed25519PrivateKey.generate()
        holder = shown_key(private.public_key()) if private else _checked_key(public_key)
        scope = _scope(tuple(nodes) or self._everything, actions, budget)
        granted = Rights(frozenset(check_scope(each) for each in scopes), danger, trust)
        wanted = _Wanted(nid, holder, tuple(capabilities) or CAPABILITIES, scope, timedelta(days=days), metadata)
        return await self._issued(wanted, granted, _pem(private) if private else "")

    async def renew(self, raw: bytes) -> Issued:
        """A certificate in the place of one that expires soon: for the same holder and key, with the same rights.

        The old one is good for an hour more, so that nobody is locked out while the holder changes over.
        """
        certificate, now = read_certificate(raw), self._now()
        if certificate.issuer != self.nid or not verify_signature(
            self.public_key, certificate.signed, certificate.signature
        ):
            raise UntrustedIssuer(f"{self.nid} has not issued this certificate", hint="Renew it where it was issued.")
        certificate.check_time(now)
        record = await self._store.keys.find(certificate.digest)
        if record is None or record.is_withdrawn(now):
            raise revoked_by(self.nid)
        if record.until:
            raise Conflict(f"The certificate of {record.name} was renewed already", hint="Use the new one.")
        if now < certificate.expires - RENEWAL:
            opens = timestamp(certificate.expires - RENEWAL)
            raise BadRequest(
                f"A certificate is renewed within {RENEWAL.days} days of its end: this one from {opens} on"
            )
        said = msgspec.json.decode(raw, type=dict[str, Any])
        metadata: Any = said.get("metadata")  # not signed: it may be anything
        lifetime = certificate.expires - certificate.issued
        wanted = _Wanted(
            record.name,
            said["pub_key"],
            tuple(said["capabilities"]),
            said["scope"],
            lifetime,
            cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else None,
        )
        issued = await self._issued(wanted, Rights(record.scopes, record.danger, record.trust))
        if not await self._store.keys.supersede(record.id, now + OVERLAP):
            await self._store.keys.revoke(issued.key.id, now)
            raise Conflict(f"The certificate of {record.name} was renewed or revoked meanwhile")
        return issued

    async def _issued(self, wanted: "_Wanted", granted: Rights, private_key: str = "") -> Issued:
        """A certificate, of which there is a record from now on."""
        now, id = self._now(), secrets.token_hex(8)
        signed = self._signed(
            wanted.nid, wanted.public_key, wanted.capabilities, wanted.scope, now, wanted.lifetime, id
        )
        certificate = {**signed, "metadata": dict(wanted.metadata)} if wanted.metadata else signed
        written = read_certificate(msgspec.json.encode(certificate))
        rights = granted.scopes, granted.danger, now, written.expires
        key = Key(id, wanted.nid, written.digest, *rights, trust=granted.trust)
        await self._store.keys.add(key)
        return Issued(certificate, key, private_key)

    def _now(self) -> datetime:
        """To the second, as certificates say it."""
        return datetime.fromtimestamp(int(self._clock()), UTC)

    def node_certificate(self, name: str = NODE) -> dict[str, Any]:
        """That of a node of this site: valid for two months and more, and the same whichever process is asked."""
        return self._node_certificate(_checked_nid(self.node_nid(name), name))

    def document(self, base: str) -> dict[str, Any]:
        """What stands at /.well-known/nps-ca, for a site at this address."""
        verify = f"{base}/v1/agents/{{nid}}/verify"
        return {
            "nps_ca": "0.1",
            "issuer": self.nid,
            "display_name": self._title,
            "public_key": self.public_key,
            "algorithms": [ALGORITHM],
            "endpoints": {"verify": verify, "ocsp": verify, "crl": f"{base}/v1/crl"},
            "capabilities": ["agent", "node"],
            "max_cert_validity_days": MAX_DAYS,
        }

    async def verify(self, nid: str) -> dict[str, Any]:
        """Whether a NID had a good certificate of this authority a moment ago, and which was the newest such."""
        if nid.startswith(self.node_nid("")) and is_nid(nid):  # all nodes have one key, which has no record
            shown = self._node_certificate(nid)
            return {"valid": True, "nid": nid, "expires_at": shown["expires_at"], "serial": shown["serial"]}
        records = (await self._records()).by_name.get(nid, ())
        now = datetime.fromtimestamp(self._clock(), UTC)
        good = [each for each in records if each.is_valid(now) and each.expires]
        if not good:
            last = max(records, key=lambda each: each.created, default=None)
            code = UNKNOWN if last is None else REVOKED if last.is_withdrawn(now) else EXPIRED
            return {"valid": False, "nid": nid, "error_code": code}
        newest = max(good, key=lambda each: each.created)
        expires = timestamp(newest.expires or now)
        return {"valid": True, "nid": nid, "expires_at": expires, "serial": f"0x{newest.id}"}

    async def revoked(self) -> dict[str, Any]:
        """The list of revoked certificates that would be good otherwise, signed (RFC 8785, without the signature)."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        entries = [
            {"nid": each.name, "serial": f"0x{each.id}", "revoked_at": timestamp(at), "reason": reason}
            for each in (await self._records()).withdrawn
            if each.is_withdrawn(now) and each.expires and each.expires > now
            for at, reason in [(each.revoked, "revoked") if each.revoked else (each.until, "superseded")]
            if at
        ]
        body = {"issued_by": self.nid, "issued_at": timestamp(now), "entries": entries}
        return {**body, "signature": sign(self._key, rfc8785.dumps(cast("Any", body)))}

    async def rights(self, certificate: Certificate) -> Rights:
        """What the holder may do here. A certificate that has no record any more is as good as revoked."""
        record = await self._store.keys.find(certificate.digest)
        if record is None or record.is_withdrawn(datetime.fromtimestamp(self._clock(), UTC)):
            raise revoked_by(self.nid)
        return Rights(record.scopes, record.danger, record.trust, record.id)

    async def check_name(self, nid: str) -> None:
        msgspec.convert(await self.verify(nid), Standing).check(self.nid)

    def _node_certificate(self, nid: str) -> dict[str, Any]:
        period = NODE_PERIOD.total_seconds()
        issued = datetime.fromtimestamp(self._clock() // period * period, UTC)
        id = hashlib.sha256(f"{nid} {timestamp(issued)}".encode()).hexdigest()[:16]
        scope = _scope(self._everything, None, None)
        return self._signed(nid, self.node_public_key, CAPABILITIES, scope, issued, timedelta(days=NODE_DAYS), id)

    def _signed(
        self,
        nid: str,
        public_key: str,
        capabilities: tuple[str, ...],
        scope: Mapping[str, Any],
        issued: datetime,
        lifetime: timedelta,
        id: str,
    ) -> dict[str, Any]:
        frame: dict[str, Any] = {
            "frame": FRAME,
            "nid": nid,
            "pub_key": public_key,
            "capabilities": list(capabilities),
            "scope": scope,
            "issued_by": self.nid,
            "issued_at": timestamp(issued),
            "expires_at": timestamp(issued + lifetime),
            "serial": f"0x{id}",
        }
        return {**frame, "signature": sign(self._key, canonical(frame))}

    @property
    def _everything(self) -> tuple[str, ...]:
        return (f"nwp://{self.host}/*",)

    async def _records(self) -> Register:
        """Anybody may ask, as often as they like: it is read for all of them at once, and not each time."""
        async with self._reading:
            known = self._register.get("")
            return known or self._register.put("", _register(await self._store.keys.list_all()))


def own_host(config: Config) -> str:
    """The name in the NIDs of a site: of the address that the world knows it by."""
    try:
        return host_of(config.server.url or "https://localhost")
    except ConfigError as error:
        raise ConfigError(f"server.url: {error.message}") from error


def host_of(url: str) -> str:
    """The host of an address, as it is written in NIDs."""
    try:
        # An IPv6 address has colons, which part a NID.
        host = (urlsplit(url).hostname or "").replace(":", "-").encode("idna").decode().lower()
    except ValueError as error:
        raise ConfigError(f"{url} has no host that can be named") from error
    if not is_nid(f"urn:nps:org:{host}"):
        raise ConfigError(f"{url} has no host that can be named")
    return host


def _register(keys: Iterable[Key]) -> Register:
    by_name: defaultdict[str, list[Key]] = defaultdict(list)
    for each in keys:
        if each.digest.startswith(RECORD):
            by_name[each.name].append(each)
    withdrawn = [each for records in by_name.values() for each in records if each.revoked or each.until]
    return Register(by_name, withdrawn)


def _derived(secret: bytes, label: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(HKDF(SHA256(), 32, None, label).derive(secret))


def _checked_nid(nid: str, name: str) -> str:
    if not is_nid(nid):
        raise BadRequest(f"{name!r} cannot be part of a NID", hint="Use letters, digits, - _ and . (at most 128).")
    return nid


def _checked_key(public_key: str) -> str:
    try:
        return shown_key(Ed25519PublicKey.from_public_bytes(raw_key(public_key)))
    except ValueError as error:
        raise BadRequest(
            f"{public_key[:100]!r} is not a public key", hint="Write ed25519: and the key in base64url."
        ) from error


def _scope(nodes: tuple[str, ...], actions: Iterable[str] | None, budget: int | None) -> dict[str, Any]:
    said = {
        "nodes": list(nodes),
        "actions": None if actions is None else list(actions),
        "max_token_budget": budget,
    }
    return {name: each for name, each in said.items() if each is not None}


def _pem(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
