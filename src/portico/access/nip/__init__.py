"""NIP certificates of agents and nodes: their format, signatures and parsing.

A certificate is a JSON object (an IdentFrame) signed with Ed25519. It is a bearer credential, so it is never logged.
`authority.py` issues those of this site; `verifier.py` decides whether one is accepted.
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

from portico.access.budget import find_tokenizer
from portico.catalog import Danger, Trust
from portico.errors import CertificateExpired, CertificateRevoked, UntrustedIssuer
from portico.requests import Warrant

MAX_CERTIFICATE = 8192  # bytes
LEEWAY_SECONDS = 60  # by which the clock of an authority may be ahead
FRAME = "0x20"  # of an IdentFrame
ALGORITHM = "ed25519"
DIGEST_PREFIX = "nip:"  # of a certificate's record in the store; no API key's digest begins like this
REVOKED, EXPIRED, UNKNOWN = "NIP-CERT-REVOKED", "NIP-CERT-EXPIRED", "NIP-CA-NID-NOT-FOUND"

_UNSIGNED = frozenset({"signature", "metadata", "cert_format", "cert_chain"})
_FRAMES = (None, FRAME, 0x20)
_NID = re.compile(r"urn:nps:(?:(?:agent|node|org):([\w.-]{1,253}):[\w.-]{1,128}|org:([\w.-]{1,253}))", re.ASCII)
_SERIAL = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,64})")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|\+00:00)", re.ASCII)  # both are UTC
_BASE64 = re.compile(r"[\w-]{1,200}={0,2}", re.ASCII)
_ADDRESS = re.compile(r"(\w+)://([^/?#*]+)(/[^?#*]*)?", re.ASCII)
_DER = bytes.fromhex("302a300506032b6570032100")  # the bytes of a SubjectPublicKeyInfo before an Ed25519 key


# Signatures


def canonical_body(frame: Mapping[str, Any]) -> bytes:
    """Return the bytes that a certificate's signature covers: every signed member, canonical as in RFC 8785."""
    return rfc8785.dumps({**{name: value for name, value in frame.items() if name not in _UNSIGNED}, "frame": FRAME})


def sign(key: Ed25519PrivateKey, body: bytes) -> str:
    return _encode(key.sign(body))


def verify_signature(public_key: str, body: bytes, signature: str) -> bool:
    """Return whether a signature of a body is valid. A malformed key or signature is not."""
    try:
        Ed25519PublicKey.from_public_bytes(raw_key(public_key)).verify(_decode(signature), body)
    except (InvalidSignature, ValueError):
        return False
    return True


def raw_key(public_key: str) -> bytes:
    """Return the 32 bytes of a public key given raw or as SubjectPublicKeyInfo."""
    raw = _decode(public_key).removeprefix(_DER)
    if len(raw) != 32:
        raise ValueError("not a public key of Ed25519")
    return raw


def render_key(key: Ed25519PublicKey) -> str:
    return _encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _encode(raw: bytes) -> str:
    return f"{ALGORITHM}:{base64.urlsafe_b64encode(raw).decode()}"


def _decode(encoded: str) -> bytes:
    algorithm, _, text = encoded.partition(":")
    if algorithm != ALGORITHM or not _BASE64.fullmatch(text):
        raise ValueError("not base64url of Ed25519")
    text = text.rstrip("=")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# Names and scopes


def is_nid(text: str) -> bool:
    """Return whether a text has the form of a NID. That of an organisation may end with its domain."""
    return _NID.fullmatch(text) is not None


def domain_of(nid: str) -> str:
    match = _NID.fullmatch(nid)
    return (match[1] or match[2]).lower() if match else ""


def covers(nodes: Iterable[str], url: str, exact: bool = False) -> bool:
    """Return whether scope nodes cover the URL of a node, including those below it unless `exact`.

    A URL without a port stands for every port of its host. Case is ignored.
    """
    return any(_covers(node.lower(), url.lower(), exact) for node in nodes)


def _covers(node: str, url: str, exact: bool) -> bool:
    if not exact and node in {"*", "nwp://*"}:
        return True
    granted = _ADDRESS.fullmatch(node if exact else node.removesuffix("*") if node.endswith("/*") else node)
    requested = _ADDRESS.fullmatch(url)
    if granted is None or requested is None:
        return False
    host = requested[2].lower()
    if granted[2].lower() not in {host, re.sub(r":\d+\Z", "", host)}:
        return False
    path, path_requested = (granted[3] or "").rstrip("/"), (requested[3] or "").rstrip("/")
    is_same_kind = granted[1].lower() == requested[1].lower()
    return is_same_kind and (path == path_requested or (not exact and path_requested.startswith(f"{path}/")))


def allows_action(actions: Iterable[str] | None, action: str) -> bool:
    """Return whether scope actions cover one: `orders:create` is orders.create, `orders:*` all of orders.

    None covers every action.
    """
    if actions is None:
        return True
    requested = action.replace(".", ":")
    return any(_is_action(allowed.replace(".", ":"), requested) for allowed in actions)


def _is_action(allowed: str, requested: str) -> bool:
    return allowed in {"*", requested} or (allowed.endswith(":*") and requested.startswith(allowed[:-1]))


# Certificates


class CertificateScope(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...] = ()
    actions: tuple[str, ...] | None = None
    max_token_budget: int | None = None


class IdentPayload(msgspec.Struct, frozen=True):
    """The members of a certificate. Others are signed too, but ignored."""

    nid: str
    pub_key: str
    capabilities: tuple[str, ...]
    scope: CertificateScope
    issued_by: str
    issued_at: str
    expires_at: str
    serial: str
    signature: str
    metadata: Any = None
    frame: Any = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was parsed, not verified."""

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
        return f"{DIGEST_PREFIX}{hashlib.sha256(self.signed).hexdigest()}"

    def check_time(self, now: datetime) -> None:
        if now >= self.expires:
            raise CertificateExpired("The certificate has expired", hint="Get a new one from its authority.")
        if now + timedelta(seconds=LEEWAY_SECONDS) < self.issued:
            raise CertificateExpired("The certificate is not valid yet", hint="Check the clock of its authority.")


def read_certificate(raw: bytes) -> Certificate:
    """Parse an IdentFrame from JSON. Raise UntrustedIssuer if it is malformed."""
    if len(raw) > MAX_CERTIFICATE:
        raise UntrustedIssuer(f"A certificate may have at most {MAX_CERTIFICATE} bytes")
    try:
        frame = msgspec.json.decode(raw, type=dict[str, Any])
        ident = msgspec.convert(frame, IdentPayload)
        if not is_nid(ident.nid) or not is_nid(ident.issued_by) or ident.frame not in _FRAMES:
            raise ValueError("not an IdentFrame")
        return _certificate(ident, canonical_body(frame))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UntrustedIssuer("The certificate is malformed", hint="Send an IdentFrame as JSON.") from error


def _certificate(ident: IdentPayload, signed: bytes) -> Certificate:
    scope = ident.scope
    warrant = Warrant(
        frozenset(ident.capabilities),
        scope.nodes,
        scope.actions,
        scope.max_token_budget,
        _find_tokenizer_name(ident.metadata),
    )
    issued, expires = parse_time(ident.issued_at), parse_time(ident.expires_at)
    serial = parse_serial(ident.serial)
    return Certificate(ident.nid, ident.issued_by, serial, issued, expires, warrant, signed, ident.signature)


def _find_tokenizer_name(metadata: Any) -> str:
    """Return the tokenizer of the holder's model. Metadata are not signed and never invalidate a certificate."""
    if not isinstance(metadata, dict):
        return ""
    values = cast("dict[str, Any]", metadata)
    names = [value for name in ("tokenizer", "model_family") if isinstance(value := values.get(name), str)]
    return next((value for value in names if find_tokenizer(value)), "".join(names[:1]))


def parse_serial(serial: str) -> int:
    match = _SERIAL.fullmatch(serial)
    if match is None:
        raise ValueError("not a serial number")
    return int(match[1], 16)


def parse_time(text: str) -> datetime:
    if not _TIME.fullmatch(text):
        raise ValueError("not a time in UTC")
    return datetime.fromisoformat(text)


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# Authorities


@dataclass(frozen=True, slots=True)
class GrantedRights:
    """The rights of a certificate's holder on this site."""

    scopes: frozenset[str]
    danger: Danger
    trust: Trust = Trust.VALIDATED
    record: str = ""  # id of the certificate's record, if this site issued it


class TrustedIssuer(Protocol):
    """A trusted authority: this site's own, or a remote one."""

    @property
    def nid(self) -> str: ...

    @property
    def public_key(self) -> str: ...

    async def rights(self, certificate: Certificate) -> GrantedRights:
        """Return the rights of the holder of a verified certificate. Raise if it is no longer valid."""
        ...

    async def check_name(self, nid: str) -> None:
        """Raise unless the authority knows a NID and has not revoked its certificate."""
        ...


class CertificateStatus(msgspec.Struct, frozen=True):
    """The answer of an authority about one agent."""

    valid: bool
    serial: str | None = None
    error_code: str | None = None

    @property
    def number(self) -> int | None:
        """The serial number of the certificate in question, if it is well-formed."""
        match = _SERIAL.fullmatch(self.serial or "")
        return int(match[1], 16) if match else None

    def check(self, authority: str) -> None:
        if self.valid:
            return
        if self.error_code == EXPIRED:
            raise CertificateExpired(f"{authority} says that the certificate has expired", hint="Get a new one.")
        raise revocation_error(authority)


def revocation_error(authority: str) -> CertificateRevoked:
    return CertificateRevoked(f"{authority} has revoked the certificate, or never issued it", hint="Get a new one.")
