"""Access tokens of an authorization server: JWT (RFC 9068), checked against its public keys. Asks nobody about a token.

The keys are read when they are first needed, when a token names one that is not known, and every hour. What was read
last stays good while the authorization server is away.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import jwt
import msgspec

from portico.access.identity import RESOURCES, Holder, is_scope
from portico.catalog import Danger
from portico.config import Config, Server, located
from portico.errors import ConfigError, SourceError, Unauthenticated, Unavailable
from portico.sources.fetch import Fetcher, checked_url

T = TypeVar("T")

Ring: TypeAlias = tuple[jwt.PyJWK, ...]  # each with one algorithm that it checks

MAX_TOKEN = 8192  # characters
MAX_DOCUMENT = 256 << 10  # bytes
MAX_KEYS = 50
LEEWAY_SECONDS = 30  # that clocks may differ
PAUSE_SECONDS = 60.0  # from one reading of the keys to the next, whoever sends which tokens
RETRY_SECONDS = 5.0  # the same, while there are no keys at all
LIFETIME_SECONDS = 3600.0  # until keys are read again, so that a withdrawn one is forgotten
FETCH_SECONDS = 5.0  # for one document
WAIT_SECONDS = 10.0  # of a caller for keys that are being read

# A key checks the algorithms of its kind and no others: none that is symmetric, and not `none`.
ALGORITHMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
# RFC 9068 says at+jwt; many issuers do not. What names itself something else is no access token.
TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})

REASONS: Mapping[type[Exception], tuple[str, str]] = {
    jwt.ExpiredSignatureError: ("The access token has expired", "Get a new one from {issuer}."),
    jwt.ImmatureSignatureError: ("The access token is not valid yet", "Check the clock of {issuer}."),
    jwt.InvalidAudienceError: ("The access token is for somebody else", "Get one from {issuer} for this site."),
}
INVALID = ("The access token is not valid", "Get one from {issuer} for this site.")


class Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""
    typ: str = ""


class Issuer:
    """The authorization server of a site, as far as its tokens go."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._oauth = config.oauth
        self._audiences = audiences(config)
        self._keys = Keys(KeySource(config).read, clock)

    async def holder(self, token: str) -> Holder:
        """Who holds a token. Raises Unauthenticated if it is not good here, Unavailable if that cannot be told."""
        try:
            header = _header(token)
            return self._holder(self._claims(token, await self._keys.fitting(header.alg, header.kid)))
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

    def _holder(self, claims: Mapping[str, Any]) -> Holder:
        subject = claims["sub"]
        if not subject:
            raise jwt.MissingRequiredClaimError("sub")
        if "cnf" in claims:
            raise jwt.InvalidTokenError  # good only with a proof that its holder has a key, which is not read here
        names = (claims.get("client_id"), claims.get("azp"), subject)
        named = (each for each in _named_scopes(claims) if each.isprintable() and is_scope(each))
        name = next(each for each in names if each and isinstance(each, str))
        scopes = frozenset({*self._oauth.scopes, *named})
        return Holder(self._oauth.issuer, subject, name, scopes, Danger[self._oauth.danger.upper()])


def _header(token: str) -> Header:
    """What a token says of itself, before anything is known to be true."""
    if len(token) > MAX_TOKEN or not token.isascii():
        raise jwt.DecodeError
    try:
        header = msgspec.convert(jwt.get_unverified_header(token), Header)
    except msgspec.ValidationError as error:
        raise jwt.DecodeError from error
    if header.typ.lower() not in TYPES or not any(header.alg in each for each in ALGORITHMS.values()):
        raise jwt.DecodeError
    return header


def _named_scopes(claims: Mapping[str, Any]) -> Iterator[str]:
    """Of `scope` (RFC 9068), and of `scp`, which some issuers write instead."""
    for claim in ("scope", "scp"):
        match claims.get(claim):
            case str() as text:
                yield from text.split()
            case list():
                yield from (each for each in cast("list[Any]", claims[claim]) if isinstance(each, str))
            case _:
                pass


def audiences(config: Config) -> frozenset[str]:
    """Whom a token may be for: as configured, or else the site and its doors, by every address of its own."""
    if config.oauth.audience:
        return frozenset(config.oauth.audience)
    bases = [config.server.url.rstrip("/")] if config.server.url else list(_own_bases(config.server))
    return frozenset(f"{base}{path}{slash}" for base in bases for path in RESOURCES for slash in ("", "/"))


def _own_bases(server: Server) -> Iterator[str]:
    host = f"[{server.host}]" if ":" in server.host else server.host
    for name in ("localhost", "127.0.0.1", host, *server.hosts):
        yield f"http://{name}" if re.search(r":\d+\Z", name) else f"http://{name}:{server.port}"


class Keys:
    """The public keys that were read last. However many ask, they are read once at a time and seldom."""

    def __init__(self, read: Callable[[], Ring], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._ring: Ring = ()
        self._old = -inf  # when the ring is to be read again
        self._begun = -inf  # when the last reading began
        self._reading: asyncio.Task[None] | None = None
        self._trouble: SourceError | None = None

    async def fitting(self, algorithm: str, name: str) -> list[jwt.PyJWK]:
        """The keys that may have signed a token: the one of this name, or if it names none all of the algorithm."""
        if self._clock() >= self._old:
            self._begin()
        found = self._found(algorithm, name)
        if found:
            return found
        await self._renewed()
        if not self._ring:
            raise Unavailable("Access tokens cannot be checked at the moment", hint="Try later.") from self._trouble
        return self._found(algorithm, name)

    def _found(self, algorithm: str, name: str) -> list[jwt.PyJWK]:
        return [each for each in self._ring if each.algorithm_name == algorithm and name in {"", each.key_id}]

    async def _renewed(self) -> None:
        reading = self._begin()
        if reading is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.shield(reading)  # it goes on for others when this caller leaves

    def _begin(self) -> "asyncio.Task[None] | None":
        """The reading that is under way, or a new one unless the last has only just been."""
        if self._reading and not self._reading.done():
            return self._reading
        if self._clock() - self._begun < (PAUSE_SECONDS if self._ring else RETRY_SECONDS):
            return None
        self._begun = self._clock()
        self._reading = asyncio.create_task(self._renew())
        return self._reading

    async def _renew(self) -> None:
        try:
            self._ring = await asyncio.to_thread(self._read)
        except SourceError as error:
            self._trouble = error
        else:
            self._old = self._clock() + LIFETIME_SECONDS


class KeySource:
    """Where the keys are: a file, a URL, or what the metadata of the issuer say (RFC 8414, OpenID Connect)."""

    def __init__(self, config: Config) -> None:
        self._issuer = config.oauth.issuer
        self._place = located(config.oauth.keys, config.folder) if config.oauth.keys else ""
        self._allowed = frozenset(config.allow_hosts)
        try:
            checked_url(self._issuer)
            self._check_place()
        except SourceError as error:
            raise ConfigError(f"[oauth] {error.message}", hint=error.hint) from error

    def read(self) -> Ring:
        """The keys as they are. Waits for them: call it on a thread."""
        if self._is_file:
            return _ring(_file(self._place), self._place)
        url = self._place or self._published()
        return _ring(self._get(url), url)

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(allow_hosts=self._allowed, max_bytes=MAX_DOCUMENT, timeout=FETCH_SECONDS, deadline=FETCH_SECONDS)

    @property
    def _is_file(self) -> bool:
        return bool(self._place) and "://" not in self._place

    def _check_place(self) -> None:
        if self._is_file:
            _ring(_file(self._place), self._place)
        else:
            self._check(self._place or self._issuer)

    def _check(self, url: str) -> None:
        """Whoever stands between could hand out keys of their own, except on the way to a host of one's own."""
        address = checked_url(url)
        if address.scheme != "https" and self._allowed.isdisjoint({address.host, address.netloc.decode()}):
            raise SourceError(
                f"{url} is not https", url=url, hint="Plain http is for hosts that are named in `allow_hosts`."
            )

    def _published(self) -> str:
        """The address of the keys. Metadata that speak for another issuer count for nothing (RFC 8414 3.3)."""
        trouble = SourceError(f"{self._issuer} does not say where its keys are", url=self._issuer)
        for url in _metadata_addresses(self._issuer):
            try:
                found = _decoded(self._get(url), Metadata, url)
            except SourceError as error:
                trouble = error
                continue
            if found.issuer == self._issuer:
                return found.jwks_uri
            trouble = SourceError(f"{url} is the metadata of another issuer", url=url, issuer=found.issuer)
        raise trouble

    def _get(self, url: str) -> bytes:
        self._check(url)
        with self._fetcher.open(url, follow=False) as answer:
            answer.expect_ok()
            return answer.read()


class Metadata(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class KeySet(msgspec.Struct, frozen=True):
    keys: list[Any]


class PublicKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A JSON Web Key without what is private in it, should somebody have published that."""

    kty: str
    kid: str = ""
    alg: str = ""
    use: str = "sig"
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


def _metadata_addresses(issuer: str) -> list[str]:
    """RFC 8414 puts its path before that of the issuer, OpenID Connect behind it, and some servers both behind."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    addresses = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}{path}/.well-known/oauth-authorization-server",
    )
    return list(dict.fromkeys(addresses))


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


def _ring(raw: bytes, where: str) -> Ring:
    """The keys of a document that Portico can use. One that it does not know leaves the others as they are."""
    found = _decoded(raw, KeySet, where)
    ring = tuple(key for each in found.keys[:MAX_KEYS] for key in _usable(each))
    if not ring:
        raise SourceError(f"{where} has no key that tokens can be checked with", url=where)
    return ring


def _usable(raw: Any) -> Iterator[jwt.PyJWK]:
    """A key once for each algorithm that it may be used with."""
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


def _decoded(raw: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{where} cannot be understood: {error}", url=where) from error
