"""NIP: certificates of agents and nodes. How they are written, signed and read; asks nobody whether one is good.

A certificate is a JSON object (an IdentFrame) that an authority signed with Ed25519. It is not bound to a connection:
whoever has one can show it, so none is ever logged. `authority.py` makes those of this site, `verifier.py` says whether
one that is shown is good here.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

import msgspec
import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from portico.access.budget import tokenizer
from portico.catalog import Danger, Trust
from portico.errors import CertificateExpired, CertificateRevoked, UntrustedIssuer
from portico.requests import Warrant

MAX_CERTIFICATE = 8192  # bytes
LEEWAY_SECONDS = 60  # that the clock of an authority may be ahead
FRAME = "0x20"  # of an IdentFrame
ALGORITHM = "ed25519"
RECORD = "nip:"  # begins the digest of a certificate's record in the store, which no API key's does
REVOKED, EXPIRED, UNKNOWN = "NIP-CERT-REVOKED", "NIP-CERT-EXPIRED", "NIP-CA-NID-NOT-FOUND"

_UNSIGNED = frozenset({"signature", "metadata", "cert_format", "cert_chain"})
_FRAMES = (None, FRAME, 0x20)
_NID = re.compile(r"urn:nps:(?:(?:agent|node|org):([\w.-]{1,253}):[\w.-]{1,128}|org:([\w.-]{1,253}))", re.ASCII)
_SERIAL = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,64})")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|\+00:00)", re.ASCII)  # both are UTC
_BASE64 = re.compile(r"[\w-]{1,200}={0,2}", re.ASCII)
_ADDRESS = re.compile(r"(\w+)://([^/?#*]+)(/[^?#*]*)?", re.ASCII)
_DER = bytes.fromhex("302a300506032b6570032100")  # what a SubjectPublicKeyInfo of Ed25519 has before the key


# Signatures


def canonical(frame: Mapping[str, Any]) -> bytes:
    """What the signature of a certificate covers: all that was received but what is not signed, as in RFC 8785."""
    return rfc8785.dumps({**{name: each for name, each in frame.items() if name not in _UNSIGNED}, "frame": FRAME})


def sign(key: Ed25519PrivateKey, body: bytes) -> str:
    return _shown(key.sign(body))


def verify_signature(public_key: str, body: bytes, signature: str) -> bool:
    """Whether the holder of a key signed a body. What has not the form of a key or a signature is none."""
    try:
        Ed25519PublicKey.from_public_bytes(raw_key(public_key)).verify(_bytes(signature), body)
    except (InvalidSignature, ValueError):
        return False
    return True


def raw_key(public_key: str) -> bytes:
    """The 32 bytes of a public key that is written as they are or as SubjectPublicKeyInfo."""
    raw = _bytes(public_key).removeprefix(_DER)
    if len(raw) != 32:
        raise ValueError("not a public key of Ed25519")
    return raw


def shown_key(key: Ed25519PublicKey) -> str:
    return _shown(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _shown(raw: bytes) -> str:
    return f"{ALGORITHM}:{base64.urlsafe_b64encode(raw).decode()}"


def _bytes(shown: str) -> bytes:
    algorithm, _, text = shown.partition(":")
    if algorithm != ALGORITHM or not _BASE64.fullmatch(text):
        raise ValueError("not base64url of Ed25519")
    text = text.rstrip("=")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# Names and scopes


def is_nid(text: str) -> bool:
    """Whether a text has the form of a NID. That of an organisation may end with its domain."""
    return _NID.fullmatch(text) is not None


def domain_of(nid: str) -> str:
    found = _NID.fullmatch(nid)
    return (found[1] or found[2]).lower() if found else ""


def covers(nodes: Iterable[str], url: str, exact: bool = False) -> bool:
    """Whether scope nodes cover the address of a node: itself and what lies below; if exact, itself alone.

    An address without a port stands for every port of its host. Case does not count.
    """
    return any(_covers(each.lower(), url.lower(), exact) for each in nodes)


def _covers(node: str, url: str, exact: bool) -> bool:
    if not exact and node in {"*", "nwp://*"}:
        return True
    wanted = _ADDRESS.fullmatch(node if exact else node.removesuffix("*") if node.endswith("/*") else node)
    found = _ADDRESS.fullmatch(url)
    if wanted is None or found is None or not _is_host(found[2].lower(), wanted[2].lower()):
        return False
    path, below = (wanted[3] or "").rstrip("/"), (found[3] or "").rstrip("/")
    is_same_kind = wanted[1].lower() == found[1].lower()
    return is_same_kind and (path == below or (not exact and below.startswith(f"{path}/")))


def _is_host(host: str, wanted: str) -> bool:
    return wanted in {host, re.sub(r":\d+\Z", "", host)}


def allows_action(actions: Iterable[str] | None, action: str) -> bool:
    """Whether scope actions cover one: `orders:create` is orders.create, `orders:*` all of orders; None covers all."""
    if actions is None:
        return True
    wanted = action.replace(".", ":")
    return any(_is_action(each.replace(".", ":"), wanted) for each in actions)


def _is_action(allowed: str, wanted: str) -> bool:
    return allowed in {"*", wanted} or (allowed.endswith(":*") and wanted.startswith(allowed[:-1]))


# Certificates


class Scope(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...] = ()
    actions: tuple[str, ...] | None = None
    max_token_budget: int | None = None


class Ident(msgspec.Struct, frozen=True):
    """A certificate as it is written. What else it says is signed too, and means nothing here."""

    nid: str
    pub_key: str
    capabilities: tuple[str, ...]
    scope: Scope
    issued_by: str
    issued_at: str
    expires_at: str
    serial: str
    signature: str
    metadata: Any = None
    frame: Any = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that could be read. Nothing in it is known to be true yet."""

    nid: str
    issuer: str
    serial: int
    issued: datetime
    expires: datetime
    warrant: Warrant
    signed: bytes
    signature: str

    @property
    def digest(self) -> str:
        return f"{RECORD}{hashlib.sha256(self.signed).hexdigest()}"

    def check_time(self, now: datetime) -> None:
        if now >= self.expires:
            raise CertificateExpired("The certificate has expired", hint="Get a new one from its authority.")
        if now + timedelta(seconds=LEEWAY_SECONDS) < self.issued:
            raise CertificateExpired("The certificate is not valid yet", hint="Check the clock of its authority.")


def read_certificate(raw: bytes) -> Certificate:
    """An IdentFrame in JSON. Raises UntrustedIssuer for what is none."""
    if len(raw) > MAX_CERTIFICATE:
        raise UntrustedIssuer(f"A certificate has at most {MAX_CERTIFICATE} bytes")
    try:
        frame = msgspec.json.decode(raw, type=dict[str, Any])
        ident = msgspec.convert(frame, Ident)
        if not is_nid(ident.nid) or not is_nid(ident.issued_by) or ident.frame not in _FRAMES:
            raise ValueError("not an IdentFrame")
        return _certificate(ident, canonical(frame))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UntrustedIssuer("The certificate cannot be understood", hint="It is an IdentFrame, as JSON.") from error


def _certificate(ident: Ident, signed: bytes) -> Certificate:
    scope = ident.scope
    warrant = Warrant(
        frozenset(ident.capabilities), scope.nodes, scope.actions, scope.max_token_budget, _tokenizer(ident.metadata)
    )
    issued, expires = time_of(ident.issued_at), time_of(ident.expires_at)
    serial = serial_number(ident.serial)
    return Certificate(ident.nid, ident.issued_by, serial, issued, expires, warrant, signed, ident.signature)


def _tokenizer(metadata: Any) -> str:
    """Of the holder's model. Metadata are not signed: whatever they are, the certificate stays good."""
    if not isinstance(metadata, dict):
        return ""
    said = cast("dict[str, Any]", metadata)
    named = [each for name in ("tokenizer", "model_family") if isinstance(each := said.get(name), str)]
    return next((each for each in named if tokenizer(each)), "".join(named[:1]))


def serial_number(serial: str) -> int:
    found = _SERIAL.fullmatch(serial)
    if found is None:
        raise ValueError("not a serial number")
    return int(found[1], 16)


def time_of(text: str) -> datetime:
    if not _TIME.fullmatch(text):
        raise ValueError("not a time in UTC")
    return datetime.fromisoformat(text)


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# Authorities


@dataclass(frozen=True, slots=True)
class Rights:
    """What the holder of a certificate may do on this site."""

    scopes: frozenset[str]
    danger: Danger
    trust: Trust = Trust.VALIDATED
    record: str = ""  # what the site has noted of the certificate, if it issued it


class Issuer(Protocol):
    """An authority that is trusted: this site's own, or one elsewhere."""

    @property
    def nid(self) -> str: ...

    @property
    def public_key(self) -> str: ...

    async def rights(self, certificate: Certificate) -> Rights:
        """Of the holder of a certificate whose signature was checked. Raises unless it is still good."""
        ...

    async def check_name(self, nid: str) -> None:
        """Raises unless the authority knows a NID and has not withdrawn its certificate."""
        ...


class Standing(msgspec.Struct, frozen=True):
    """What an authority says of one agent."""

    valid: bool
    serial: str | None = None
    error_code: str | None = None

    @property
    def number(self) -> int | None:
        """Of the certificate that the answer is about, if it says so in a form that can be read."""
        found = _SERIAL.fullmatch(self.serial or "")
        return int(found[1], 16) if found else None

    def check(self, authority: str) -> None:
        if self.valid:
            return
        if self.error_code == EXPIRED:
            raise CertificateExpired(f"{authority} says that the certificate has expired", hint="Get a new one.")
        raise revoked_by(authority)


def revoked_by(authority: str) -> CertificateRevoked:
    return CertificateRevoked(f"{authority} has revoked the certificate, or never issued it", hint="Get a new one.")
