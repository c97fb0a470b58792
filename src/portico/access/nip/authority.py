"""The certificate authority of this site: issues, renews and lists certificates. Decides no rights on other sites.

Its keys are derived from the secret of the store, so that every process has them without any setup. Issued
certificates are recorded among the API keys in the store, where they are listed and revoked.
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
from cachetools import TTLCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from portico.access.identity import ApiKey, check_scope
from portico.access.nip import (
    ALGORITHM,
    DIGEST_PREFIX,
    EXPIRED,
    FRAME,
    REVOKED,
    UNKNOWN,
    Certificate,
    CertificateStatus,
    GrantedRights,
    canonical_body,
    is_nid,
    raw_key,
    read_certificate,
    render_key,
    revocation_error,
    sign,
    timestamp,
    verify_signature,
)
from portico.catalog import Danger, Trust
from portico.config import Config
from portico.errors import BadRequest, ConfigError, Conflict, UntrustedIssuer
from portico.store import Store

AGENT_DAYS = 30
NODE_DAYS = 90
MAX_DAYS = 366
NODE_PERIOD = timedelta(days=30)  # for which a node keeps the same certificate
RENEWAL = timedelta(days=7)  # before a certificate expires, in which it can be renewed
OVERLAP = timedelta(hours=1)  # for which a renewed certificate stays valid beside the new one
REGISTER_SECONDS = 1.0  # delay until others see what was issued or revoked
CACHE_SIZE = 1000  # entries of a cache whose keys come from requests

NODE = "site"  # the node for the site as a whole
# The default of a certificate. The last two mean the same: manifests use one, NIP uses the other.
CAPABILITIES = ("nwp:query", "nwp:stream", "nwp:action", "nwp:invoke")


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A new certificate, its record, and the private key (PEM) if it was generated here. The key is not stored."""

    certificate: Mapping[str, Any]
    key: ApiKey
    private_key: str = ""


@dataclass(frozen=True, slots=True)
class _CertificateRequest:
    """The contents of a certificate to issue."""

    nid: str
    public_key: str
    capabilities: tuple[str, ...]
    scope: Mapping[str, Any]
    lifetime: timedelta
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CertificateRegister:
    """The certificates that this site has issued, as others may query them."""

    by_name: Mapping[str, Sequence[ApiKey]]
    withdrawn_keys: Sequence[ApiKey]


class SiteAuthority:
    """The authority of this site and the key of its nodes, the same in every process of a store."""

    def __init__(self, config: Config, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._register = TTLCache[str, CertificateRegister](1, REGISTER_SECONDS, cache_timer(clock))
        self._reading = asyncio.Lock()
        self._title = config.site.name
        self._key = _derive_key(store.secret, b"portico nip authority")
        self._node_key = _derive_key(store.secret, b"portico nip node")
        self.host = own_host(config)
        self.nid = f"urn:nps:org:{self.host}"
        self.public_key = render_key(self._key.public_key())
        self.node_public_key = render_key(self._node_key.public_key())

    def node_nid(self, name: str = NODE) -> str:
        return f"urn:nps:node:{self.host}:{name}"

    def sign(self, body: bytes) -> str:
        """Sign as a node of the site, for example the body of a callback."""
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
    ) -> IssuedCertificate:
        """Issue and record a certificate for an agent. Without `nodes` it covers every node of this host.

        The certificate counts wherever this authority is trusted; scopes, danger and trust count only on this site.
        """
        nid = _check_nid(f"urn:nps:agent:{self.host}:{name}", name)
        if not 0 < days <= MAX_DAYS:
            raise BadRequest(
                f"A certificate cannot be valid for {days:g} days", hint=f"Give more than 0, and at most {MAX_DAYS}."
            )
        private = None if public_key else Ed25519PrivateKey.generate()
        holder = render_key(private.public_key()) if private else _check_key(public_key)
        scope = _scope_fields(tuple(nodes) or self._all_nodes, actions, budget)
        rights = GrantedRights(frozenset(check_scope(scope_name) for scope_name in scopes), danger, trust)
        request = _CertificateRequest(
            nid, holder, tuple(capabilities) or CAPABILITIES, scope, timedelta(days=days), metadata
        )
        return await self._issue(request, rights, _pem(private) if private else "")

    async def renew(self, raw: bytes) -> IssuedCertificate:
        """Replace a certificate that expires soon by one for the same holder and key, with the same rights.

        The old one stays valid for another hour, so that the holder can switch over.
        """
        certificate, now = read_certificate(raw), self._now()
        if certificate.issuer != self.nid or not verify_signature(
            self.public_key, certificate.signed, certificate.signature
        ):
            raise UntrustedIssuer(f"{self.nid} did not issue this certificate", hint="Renew it where it was issued.")
        certificate.check_time(now)
        record = await self._store.keys.find(certificate.digest)
        if record is None or record.is_withdrawn(now):
            raise revocation_error(self.nid)
        if record.until:
            raise Conflict(f"The certificate of {record.name} has already been renewed", hint="Use the new one.")
        if now < certificate.expires - RENEWAL:
            opens = timestamp(certificate.expires - RENEWAL)
            raise BadRequest(f"A certificate can be renewed in its last {RENEWAL.days} days: this one from {opens}")
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        metadata: Any = fields.get("metadata")  # not signed: it may be anything
        lifetime = certificate.expires - certificate.issued
        request = _CertificateRequest(
            record.name,
            fields["pub_key"],
            tuple(fields["capabilities"]),
            fields["scope"],
            lifetime,
            cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else None,
        )
        issued = await self._issue(request, GrantedRights(record.scopes, record.danger, record.trust))
        if not await self._store.keys.supersede(record.id, now + OVERLAP):
            await self._store.keys.revoke(issued.key.id, now)
            raise Conflict(f"The certificate of {record.name} was renewed or revoked meanwhile")
        return issued

    async def _issue(
        self, request: "_CertificateRequest", rights_granted: GrantedRights, private_key: str = ""
    ) -> IssuedCertificate:
        """Sign a certificate and store its record."""
        now, id = self._now(), secrets.token_hex(8)
        frame = self._sign_certificate(
            request.nid, request.public_key, request.capabilities, request.scope, now, request.lifetime, id
        )
        certificate = {**frame, "metadata": dict(request.metadata)} if request.metadata else frame
        parsed = read_certificate(msgspec.json.encode(certificate))
        rights = rights_granted.scopes, rights_granted.danger, now, parsed.expires
        key = ApiKey(id, request.nid, parsed.digest, *rights, trust=rights_granted.trust)
        await self._store.keys.add(key)
        return IssuedCertificate(certificate, key, private_key)

    def _now(self) -> datetime:
        """Return the time in whole seconds, as certificates have it."""
        return datetime.fromtimestamp(int(self._clock()), UTC)

    def node_certificate(self, name: str = NODE) -> dict[str, Any]:
        """Return the certificate of a node, valid for at least two months and the same in every process."""
        return self._node_certificate(_check_nid(self.node_nid(name), name))

    def document(self, base: str) -> dict[str, Any]:
        """Return the document at /.well-known/nps-ca for a site with this base URL."""
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
        """Return whether a NID has a valid certificate of this authority, and the newest one. May lag by a second."""
        if nid.startswith(self.node_nid("")) and is_nid(nid):  # all nodes have one key, which has no record
            certificate = self._node_certificate(nid)
            return {"valid": True, "nid": nid, "expires_at": certificate["expires_at"], "serial": certificate["serial"]}
        records = (await self._load_register()).by_name.get(nid, ())
        now = datetime.fromtimestamp(self._clock(), UTC)
        valid = [record for record in records if record.is_valid(now) and record.expires]
        if not valid:
            last = max(records, key=lambda record: record.created, default=None)
            code = UNKNOWN if last is None else REVOKED if last.is_withdrawn(now) else EXPIRED
            return {"valid": False, "nid": nid, "error_code": code}
        newest = max(valid, key=lambda record: record.created)
        expires = timestamp(newest.expires or now)
        return {"valid": True, "nid": nid, "expires_at": expires, "serial": f"0x{newest.id}"}

    async def list_revoked(self) -> dict[str, Any]:
        """Return the signed list of revoked certificates that have not expired (RFC 8785, without the signature)."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        entries = [
            {"nid": record.name, "serial": f"0x{record.id}", "revoked_at": timestamp(at), "reason": reason}
            for record in (await self._load_register()).withdrawn_keys
            if record.is_withdrawn(now) and record.expires and record.expires > now
            for at, reason in [(record.revoked, "revoked") if record.revoked else (record.until, "superseded")]
            if at
        ]
        body = {"issued_by": self.nid, "issued_at": timestamp(now), "entries": entries}
        return {**body, "signature": sign(self._key, rfc8785.dumps(cast("Any", body)))}

    async def rights(self, certificate: Certificate) -> GrantedRights:
        """Return the holder's rights. A certificate without a record counts as revoked."""
        record = await self._store.keys.find(certificate.digest)
        if record is None or record.is_withdrawn(datetime.fromtimestamp(self._clock(), UTC)):
            raise revocation_error(self.nid)
        return GrantedRights(record.scopes, record.danger, record.trust, record.id)

    async def check_name(self, nid: str) -> None:
        msgspec.convert(await self.verify(nid), CertificateStatus).check(self.nid)

    def _node_certificate(self, nid: str) -> dict[str, Any]:
        period = NODE_PERIOD.total_seconds()
        issued = datetime.fromtimestamp(self._clock() // period * period, UTC)
        id = hashlib.sha256(f"{nid} {timestamp(issued)}".encode()).hexdigest()[:16]
        scope = _scope_fields(self._all_nodes, None, None)
        return self._sign_certificate(
            nid, self.node_public_key, CAPABILITIES, scope, issued, timedelta(days=NODE_DAYS), id
        )

    def _sign_certificate(
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
        return {**frame, "signature": sign(self._key, canonical_body(frame))}

    @property
    def _all_nodes(self) -> tuple[str, ...]:
        return (f"nwp://{self.host}/*",)

    async def _load_register(self) -> CertificateRegister:
        """Return the register, read from the store at most once a second however many clients ask."""
        async with self._reading:
            register = self._register.get("")
            if register is None:
                register = self._register[""] = _make_register(await self._store.keys.list_all())
            return register


def cache_timer(clock: Callable[[], float]) -> Callable[[], float]:
    """Return the clock for caches. The wall clock could be set back, which would keep stale entries alive."""
    return time.monotonic if clock is time.time else clock


def own_host(config: Config) -> str:
    """Return the host in the NIDs of a site: that of its public URL."""
    try:
        return host_of(config.server.url or "https://localhost")
    except ConfigError as error:
        raise ConfigError(f"server.url: {error.message}") from error


def host_of(url: str) -> str:
    """Return the host of a URL as NIDs have it."""
    try:
        # The colons of an IPv6 address would split a NID.
        host = (urlsplit(url).hostname or "").replace(":", "-").encode("idna").decode().lower()
    except ValueError as error:
        raise ConfigError(f"{url} has no host that a NID can contain") from error
    if not is_nid(f"urn:nps:org:{host}"):
        raise ConfigError(f"{url} has no host that a NID can contain")
    return host


def _make_register(keys: Iterable[ApiKey]) -> CertificateRegister:
    by_name: defaultdict[str, list[ApiKey]] = defaultdict(list)
    for key in keys:
        if key.digest.startswith(DIGEST_PREFIX):
            by_name[key.name].append(key)
    withdrawn = [key for records in by_name.values() for key in records if key.revoked or key.until]
    return CertificateRegister(by_name, withdrawn)


def _derive_key(secret: bytes, label: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(HKDF(SHA256(), 32, None, label).derive(secret))


def _check_nid(nid: str, name: str) -> str:
    if not is_nid(nid):
        raise BadRequest(f"{name!r} cannot be part of a NID", hint="Use letters, digits, - _ and . (at most 128).")
    return nid


def _check_key(public_key: str) -> str:
    try:
        return render_key(Ed25519PublicKey.from_public_bytes(raw_key(public_key)))
    except ValueError as error:
        raise BadRequest(
            f"{public_key[:100]!r} is not a public key", hint="Write `ed25519:` and the key in base64url."
        ) from error


def _scope_fields(nodes: tuple[str, ...], actions: Iterable[str] | None, budget: int | None) -> dict[str, Any]:
    fields = {
        "nodes": list(nodes),
        "actions": None if actions is None else list(actions),
        "max_token_budget": budget,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _pem(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
