"""Access tokens of an authorization server: JWT (RFC 9068), checked against its public keys. Asks nobody about a token.

The keys are read when they are first needed, when a token names one that is not known, and every hour. What was read
last stays good while the authorization server is away.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import jwt
import msgspec

from portico.access.identity import TokenHolder, is_scope
from portico.catalog import Danger
from portico.config import Config, Server, resolve_location
from portico.errors import ConfigError, SourceError, Unauthenticated, Unavailable
from portico.sources.fetch import Fetcher, parse_url

T = TypeVar("T")

KeyRing: TypeAlias = tuple[jwt.PyJWK, ...]  # each with one algorithm that it checks

MAX_TOKEN = 8192  # characters
MAX_DOCUMENT = 256 << 10  # bytes
MAX_KEYS = 50
LEEWAY_SECONDS = 30  # by which clocks may differ
PAUSE_SECONDS = 60.0  # between two reads of the keys, whatever tokens arrive
RETRY_SECONDS = 5.0  # the same while there are no keys
LIFETIME_SECONDS = 3600.0  # until keys are read again, so that a withdrawn one is dropped
FETCH_SECONDS = 5.0  # for one document
WAIT_SECONDS = 10.0  # that a caller waits for keys being read

# A key verifies only the algorithms of its kind: never a symmetric one, and never `none`.
ALGORITHMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
# RFC 9068 requires at+jwt, which many issuers omit. Any other type is not an access token.
TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})

REASONS: Mapping[type[Exception], tuple[str, str]] = {
    jwt.ExpiredSignatureError: ("The access token has expired", "Get a new one from {issuer}."),
    jwt.ImmatureSignatureError: ("The access token is not valid yet", "Check the clock of {issuer}."),
    jwt.InvalidAudienceError: ("The access token is for another audience", "Get one from {issuer} for this site."),
}
INVALID = ("The access token is not valid", "Get one from {issuer} for this site.")


class TokenHeader(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""
    typ: str = ""


class AuthorizationServer:
    """Verifies access tokens of a site's authorization server."""

    def __init__(
        self, config: Config, resources: Iterable[str] = ("",), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._oauth = config.oauth
        self._audiences = audiences(config, resources)
        self._keys = SigningKeys(KeySource(config).read, clock)

    async def holder(self, token: str) -> TokenHolder:
        """Return the holder of a token.

        Raise Unauthenticated if it is not valid here, or Unavailable if it cannot be verified now.
        """
        try:
            header = _parse_header(token)
            return self._make_holder(self._claims(token, await self._keys.find(header.alg, header.kid)))
        except (jwt.PyJWTError, RecursionError) as error:
            message, hint = REASONS.get(type(error), INVALID)
            raise Unauthenticated(message, hint=hint.format(issuer=self._oauth.issuer)) from error

    def _claims(self, token: str, keys: list[jwt.PyJWK]) -> Mapping[str, Any]:
        for key in keys:
            with contextlib.suppress(jwt.InvalidSignatureError):
                return jwt.decode(
                    token,
                    key,
                    [key.algorithm_name],
                    {"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
                    audience=self._audiences,
                    issuer=self._oauth.issuer,
                    leeway=LEEWAY_SECONDS,
                )
        raise jwt.InvalidSignatureError

    def _make_holder(self, claims: Mapping[str, Any]) -> TokenHolder:
        subject = claims["sub"]
        if not subject:
            raise jwt.MissingRequiredClaimError("sub")
        if "cnf" in claims:
            raise jwt.InvalidTokenError  # bound to a key by proof of possession, which is not supported
        names = (claims.get("client_id"), claims.get("azp"), subject)
        token_scopes = (scope for scope in _scopes_of(claims) if scope.isprintable() and is_scope(scope))
        name = next(scope for scope in names if scope and isinstance(scope, str))
        scopes = frozenset({*self._oauth.scopes, *token_scopes})
        return TokenHolder(self._oauth.issuer, subject, name, scopes, Danger[self._oauth.danger.upper()])


def _parse_header(token: str) -> TokenHeader:
    """Parse the header of a token, before anything is verified."""
    if len(token) > MAX_TOKEN or not token.isascii():
        raise jwt.DecodeError
    try:
        header = msgspec.convert(jwt.get_unverified_header(token), TokenHeader)
    except msgspec.ValidationError as error:
        raise jwt.DecodeError from error
    if header.typ.lower() not in TYPES or not any(header.alg in algorithms for algorithms in ALGORITHMS.values()):
        raise jwt.DecodeError
    return header


def _scopes_of(claims: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scopes in `scope` (RFC 9068) and in `scp`, which some issuers use instead."""
    for claim in ("scope", "scp"):
        match claims.get(claim):
            case str() as text:
                yield from text.split()
            case list():
                yield from (item for item in cast("list[Any]", claims[claim]) if isinstance(item, str))
            case _:
                pass


def audiences(config: Config, resources: Iterable[str]) -> frozenset[str]:
    """Return the accepted audiences: as configured, or else the URLs of the site and its endpoints."""
    if config.oauth.audience:
        return frozenset(config.oauth.audience)
    bases = [config.server.url.rstrip("/")] if config.server.url else list(_own_bases(config.server))
    return frozenset(f"{base}{path}{slash}" for base in bases for path in resources for slash in ("", "/"))


def _own_bases(server: Server) -> Iterator[str]:
    host = f"[{server.host}]" if ":" in server.host else server.host
    for name in ("localhost", "127.0.0.1", host, *server.hosts):
        yield f"http://{name}" if re.search(r":\d+\Z", name) else f"http://{name}:{server.port}"


class SigningKeys:
    """The current public keys. They are read by one task at a time, and rarely, however many tokens arrive."""

    def __init__(self, read: Callable[[], KeyRing], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._ring: KeyRing = ()
        self._expires = -inf  # when the ring is to be read again
        self._last_read = -inf  # when the last reading began
        self._reading: asyncio.Task[None] | None = None
        self._error: SourceError | None = None

    async def find(self, algorithm: str, name: str) -> list[jwt.PyJWK]:
        """Return the keys that may have signed a token: the named one, or every one of the algorithm."""
        if self._clock() >= self._expires:
            self._start_reading()
        keys = self._select(algorithm, name)
        if keys:
            return keys
        await self._wait_for_read()
        if not self._ring:
            raise Unavailable(
                "Access tokens cannot be verified at the moment", hint="Try again later."
            ) from self._error
        return self._select(algorithm, name)

    def _select(self, algorithm: str, name: str) -> list[jwt.PyJWK]:
        return [key for key in self._ring if key.algorithm_name == algorithm and name in {"", key.key_id}]

    async def _wait_for_read(self) -> None:
        reading = self._start_reading()
        if reading is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.shield(reading)  # it continues for others if this caller is cancelled

    def _start_reading(self) -> "asyncio.Task[None] | None":
        """Return the running read, or start one unless the last one was too recent."""
        if self._reading and not self._reading.done():
            return self._reading
        if self._clock() - self._last_read < (PAUSE_SECONDS if self._ring else RETRY_SECONDS):
            return None
        self._last_read = self._clock()
        self._reading = asyncio.create_task(self._read_keys())
        return self._reading

    async def _read_keys(self) -> None:
        try:
            self._ring = await asyncio.to_thread(self._read)
        except SourceError as error:
            self._error = error
        else:
            self._expires = self._clock() + LIFETIME_SECONDS


class KeySource:
    """Reads keys from a file, a URL, or the URL in the issuer's metadata (RFC 8414, OpenID Connect)."""

    def __init__(self, config: Config) -> None:
        self._issuer = config.oauth.issuer
        self._place = resolve_location(config.oauth.keys, config.folder) if config.oauth.keys else ""
        self._allowed = frozenset(config.allow_hosts)
        try:
            parse_url(self._issuer)
            self._check_place()
        except SourceError as error:
            raise ConfigError(f"[oauth] {error.message}", hint=error.hint) from error

    def read(self) -> KeyRing:
        """Read the keys. This blocks: call it on a thread."""
        if self._is_file:
            return _parse_keys(_read_key_file(self._place), self._place)
        url = self._place or self._discover_url()
        return _parse_keys(self._fetch(url), url)

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(allow_hosts=self._allowed, max_bytes=MAX_DOCUMENT, timeout=FETCH_SECONDS, deadline=FETCH_SECONDS)

    @property
    def _is_file(self) -> bool:
        return bool(self._place) and "://" not in self._place

    def _check_place(self) -> None:
        if self._is_file:
            _parse_keys(_read_key_file(self._place), self._place)
        else:
            self._check_https(self._place or self._issuer)

    def _check_https(self, url: str) -> None:
        """Require https, without which keys could be replaced in transit, except for hosts in `allow_hosts`."""
        address = parse_url(url)
        if address.scheme != "https" and self._allowed.isdisjoint({address.host, address.netloc.decode()}):
            raise SourceError(
                f"{url} is not https", url=url, hint="Plain http is allowed only for hosts in `allow_hosts`."
            )

    def _discover_url(self) -> str:
        """Return the URL of the keys. Metadata of another issuer are ignored (RFC 8414 3.3)."""
        problem = SourceError(f"{self._issuer} does not publish where its keys are", url=self._issuer)
        for url in metadata_urls(self._issuer):
            try:
                metadata = _decode_document(self._fetch(url), IssuerMetadata, url)
            except SourceError as error:
                problem = error
                continue
            if metadata.issuer == self._issuer:
                return metadata.jwks_uri
            problem = SourceError(f"{url} is the metadata of another issuer", url=url, issuer=metadata.issuer)
        raise problem

    def _fetch(self, url: str) -> bytes:
        self._check_https(url)
        with self._fetcher.open(url, follow=False) as answer:
            answer.raise_for_status()
            return answer.read()


class IssuerMetadata(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class KeySet(msgspec.Struct, frozen=True):
    keys: list[Any]


class PublicKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public members of a JSON Web Key; private ones are ignored if they were published."""

    kty: str
    kid: str = ""
    alg: str = ""
    use: str = "sig"
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


def metadata_urls(issuer: str) -> list[str]:
    """Return the metadata URLs of an issuer. RFC 8414 puts its path before the issuer's, OpenID Connect after it."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    addresses = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}{path}/.well-known/oauth-authorization-server",
    )
    return list(dict.fromkeys(addresses))


def _read_key_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


def _parse_keys(raw: bytes, where: str) -> KeyRing:
    """Parse the usable keys of a document; unknown kinds are skipped."""
    key_set = _decode_document(raw, KeySet, where)
    ring = tuple(key for raw_key in key_set.keys[:MAX_KEYS] for key in _make_keys(raw_key))
    if not ring:
        raise SourceError(f"{where} has no key that can verify tokens", url=where)
    return ring


def _make_keys(raw: Any) -> Iterator[jwt.PyJWK]:
    """Yield a key once for each algorithm that it may verify."""
    try:
        key = msgspec.convert(raw, PublicKey)
    except msgspec.ValidationError:
        return
    if key.use != "sig":
        return
    for algorithm in ALGORITHMS.get((key.kty, key.crv), ()):
        if key.alg in {"", algorithm}:
            with contextlib.suppress(jwt.PyJWTError, ValueError):
                yield jwt.PyJWK(msgspec.to_builtins(key), algorithm)


def _decode_document(raw: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{where} is malformed: {error}", url=where) from error
