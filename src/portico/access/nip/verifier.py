"""Verifies certificates: who presents one, and what they may do here.

Trusts this site's authority and those of the site file. Answers of other authorities are cached for a minute; while
an authority cannot be reached, its certificates are not accepted.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
import rfc8785
from cachetools import TTLCache

from portico.access.identity import CertifiedAgent
from portico.access.nip import (
    Certificate,
    CertificateStatus,
    GrantedRights,
    TrustedIssuer,
    domain_of,
    is_nid,
    parse_serial,
    raw_key,
    read_certificate,
    revocation_error,
    verify_signature,
)
from portico.access.nip.authority import CACHE_SIZE, SiteAuthority, cache_timer, host_of
from portico.catalog import Danger
from portico.config import AgentTrust, Config
from portico.errors import ConfigError, SourceError, Unavailable, UntrustedIssuer
from portico.requests import Warrant
from portico.sources.fetch import Fetcher, parse_url
from portico.store import Store

T = TypeVar("T")

MAX_DOCUMENT = 256 << 10  # bytes of what an authority says of itself, or of one agent
MAX_LIST = 4 << 20  # bytes of a list of revoked certificates
CACHE_SECONDS = 60.0  # how long a checked signature, or the answer of another authority, counts
NAME_SECONDS = 1.0  # the same for a bare name
DOCUMENT_SECONDS = 3600.0  # until the key of another authority is read again
RETRY_SECONDS = 5.0  # until an authority that did not answer is asked again
FETCH_SECONDS = 5.0  # for one answer
WAIT_SECONDS = 10.0  # of a caller for an answer
THREADS = 4


@dataclass(frozen=True, slots=True)
class _VerifiedCertificate:
    """A certificate whose signature was checked, and the authority that signed it."""

    certificate: Certificate
    issuer: TrustedIssuer


class CertificateVerifier:
    """Finds the agent of a certificate. Signatures are checked once a minute, revocation by this site every time."""

    def __init__(self, config: Config, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._trusts_names = config.section(AgentTrust).trust_names
        self._rights = GrantedRights(
            frozenset(config.section(AgentTrust).scopes), Danger[config.section(AgentTrust).danger.upper()]
        )
        self._clock = clock
        self._own = SiteAuthority(config, store, clock)
        self._remote = _remote_authorities(config, self._own.host, self._rights, clock)
        timer = cache_timer(clock)
        self._certificates = TTLCache[bytes, _VerifiedCertificate](CACHE_SIZE, CACHE_SECONDS, timer)
        self._names = TTLCache[str, bool](CACHE_SIZE, NAME_SECONDS, timer)

    async def agent(self, ident: bytes, name: str) -> CertifiedAgent | None:
        """Return the agent of a certificate, or of a bare name if the site trusts names; None if there is neither.

        With a certificate, a claimed name has to match it.
        """
        if not ident:
            return await self._find_agent_by_name(name) if name and self._trusts_names else None
        digest = hashlib.sha256(ident).digest()
        verified = self._certificates.get(digest)
        certificate = verified.certificate if verified else read_certificate(ident)
        certificate.check_time(datetime.fromtimestamp(self._clock(), UTC))
        issuer = verified.issuer if verified else await self._issuer_of(certificate)
        if not verified:
            self._certificates[digest] = _VerifiedCertificate(certificate, issuer)
        if name not in {"", certificate.nid}:
            raise UntrustedIssuer(
                "The certificate belongs to another agent", hint="Name its `nid` as the agent, or no agent."
            )
        rights = await issuer.rights(certificate)
        warrant = replace(certificate.warrant, record=rights.record)
        return CertifiedAgent(certificate.nid, rights.scopes, rights.danger, warrant, rights.trust)

    async def _issuer_of(self, certificate: Certificate) -> TrustedIssuer:
        issuer = await self._find_issuer(lambda authority: authority.nid == certificate.issuer)
        if not verify_signature(issuer.public_key, certificate.signed, certificate.signature):
            raise UntrustedIssuer("The signature of the certificate is not valid", hint="It may have been altered.")
        self._check_domain(certificate.nid, issuer)
        return issuer

    def _check_domain(self, nid: str, issuer: TrustedIssuer) -> None:
        """Raise if a trusted authority certifies an agent of another one."""
        domain = domain_of(nid)
        is_spoken_for = domain == self._own.host or any(authority.speaks_for(domain) for authority in self._remote)
        if is_spoken_for and domain != domain_of(issuer.nid):
            raise UntrustedIssuer(f"{issuer.nid} cannot certify agents of {domain}")

    async def _find_issuer(self, matches: Callable[[TrustedIssuer], bool]) -> TrustedIssuer:
        issuer = self._own if matches(self._own) else self._find_remote(matches)
        if issuer:
            return issuer
        are_known = await asyncio.gather(*(authority.wait_until_known() for authority in self._remote))
        issuer = self._find_remote(matches)
        if issuer:
            return issuer
        if not all(are_known):
            raise Unavailable("An authority cannot be asked at the moment", hint="Try later.")
        raise UntrustedIssuer(
            "The authority of the certificate is not trusted here", hint=f"{self._own.nid} is trusted."
        )

    def _find_remote(self, matches: Callable[[TrustedIssuer], bool]) -> TrustedIssuer | None:
        """Return the first match among the remote authorities that are known, in the order of the site file."""
        for authority in self._remote:
            authority.refresh()
        return next((authority for authority in self._remote if authority.nid and matches(authority)), None)

    async def _find_agent_by_name(self, nid: str) -> CertifiedAgent:
        """Accept a name without proof, as the site file allows. The agent gets the rights of remote certificates."""
        if not is_nid(nid) or not nid.startswith("urn:nps:agent:"):
            raise UntrustedIssuer("The name is not the NID of an agent", hint="Example: urn:nps:agent:shop.example:ann")
        if not self._names.get(nid):
            issuer = await self._find_issuer(lambda authority: domain_of(authority.nid) == domain_of(nid))
            await issuer.check_name(nid)
            self._names[nid] = True
        return CertifiedAgent(nid, self._rights.scopes, self._rights.danger, Warrant(frozenset({"nwp:query"}), ("*",)))


# Remote authorities


class AuthorityDocument(msgspec.Struct, frozen=True):
    """The document of an authority at /.well-known/nps-ca."""

    issuer: str
    public_key: str
    endpoints: dict[str, Any] = {}

    @property
    def has_status_endpoint(self) -> bool:
        """Whether it answers for one agent, not only with a list of all that are revoked."""
        return "crl" not in self.endpoints or not self.endpoints.keys().isdisjoint({"verify", "ocsp"})


class RevocationEntry(msgspec.Struct, frozen=True):
    serial: str


class Revocations(msgspec.Struct, frozen=True):
    issued_by: str
    entries: tuple[RevocationEntry, ...]
    signature: str


@dataclass(frozen=True, slots=True)
class AuthorityLocation:
    """Where an authority is, which limits the names it may have: none may claim one of another not read yet."""

    host: str
    others: frozenset[str] = frozenset()  # hosts of the other authorities
    is_allowed_host: bool = False  # listed in `allow_hosts`: the address need not match the name

    def may_speak_for(self, domain: str) -> bool:
        """Whether it may speak for a domain: its own or its parent, but not that of another authority."""
        if domain in self.others:
            return False
        return self.is_within(domain) or (
            self.is_allowed_host and not any(_is_within_domain(host, domain) for host in self.others)
        )

    def is_within(self, domain: str) -> bool:
        return _is_within_domain(self.host, domain)


def _is_within_domain(host: str, domain: str) -> bool:
    return host == domain or ("." in domain and host.endswith(f".{domain}"))


class RemoteAuthority:
    """An authority at an address of the site file. It has no name until its document was read."""

    def __init__(
        self,
        url: str,
        location: AuthorityLocation,
        fetcher: "AuthorityFetcher",
        rights: GrantedRights,
        own_domain: str,
        clock: Callable[[], float],
    ) -> None:
        self._url = url.rstrip("/")
        self._location = location
        self._ask = fetcher.fetch
        self._rights = rights
        self._own_domain = own_domain  # of the site, for which no other authority may speak
        self._documents = AnswerCache[AuthorityDocument](DOCUMENT_SECONDS, fetcher.threads, clock)
        self._statuses = AnswerCache[CertificateStatus](CACHE_SECONDS, fetcher.threads, clock)
        self._lists = AnswerCache[frozenset[int]](CACHE_SECONDS, fetcher.threads, clock)
        self._document: AuthorityDocument | None = None

    @property
    def nid(self) -> str:
        return self._document.issuer if self._document else ""

    @property
    def public_key(self) -> str:
        return self._document.public_key if self._document else ""

    def speaks_for(self, domain: str) -> bool:
        """Whether agents of a domain are its own. While its name is unknown, any domain it is within counts."""
        return domain == domain_of(self.nid) if self.nid else self._location.is_within(domain)

    def refresh(self) -> "asyncio.Task[AuthorityDocument | SourceError]":
        """Read the document unless it was read recently. While that fails, the last one remains valid."""
        return self._documents.begin("", self._read_document)

    async def wait_until_known(self) -> bool:
        """Wait for the document; return whether there is one."""
        await asyncio.wait([self.refresh()], timeout=WAIT_SECONDS)
        return bool(self.nid)

    async def rights(self, certificate: Certificate) -> GrantedRights:
        if await self._is_revoked(certificate):
            raise revocation_error(self.nid)
        return self._rights

    async def check_name(self, nid: str) -> None:
        (await self._fetch_status(nid)).check(self.nid)

    async def _is_revoked(self, certificate: Certificate) -> bool:
        if self._document and self._document.has_status_endpoint:
            status = await self._fetch_status(certificate.nid)
            status.check(self.nid)
            # A NID can have an old and a new certificate at once; the answer is about only one of them.
            if status.serial is None or status.number == certificate.serial:
                return False
            if "crl" not in self._document.endpoints:
                return True
        return certificate.serial in await self._lists.get("", self._read_revocations)

    async def _fetch_status(self, nid: str) -> CertificateStatus:
        return await self._statuses.get(nid, lambda: self._read_status(nid))

    # On a thread

    def _read_document(self) -> AuthorityDocument:
        url = f"{self._url}/.well-known/nps-ca"
        document = _decode_document(self._ask(url, MAX_DOCUMENT), AuthorityDocument, url)
        domain = domain_of(document.issuer)
        try:
            raw_key(document.public_key)
        except ValueError as error:
            raise SourceError(f"{url} has no Ed25519 public key", url=url) from error
        if domain in {"", self._own_domain} or not self._location.may_speak_for(domain):
            raise SourceError(f"{url} does not name an issuer of its own", url=url, issuer=document.issuer)
        self._document = document
        return document

    def _read_status(self, nid: str) -> CertificateStatus:
        url = f"{self._url}/v1/agents/{nid}/verify"
        return _decode_document(self._ask(url, MAX_DOCUMENT), CertificateStatus, url)

    def _read_revocations(self) -> frozenset[int]:
        url = f"{self._url}/v1/crl"
        raw = self._ask(url, MAX_LIST)
        body = _decode_document(raw, dict[str, Any], url)
        revocations = _decode_document(raw, Revocations, url)
        body.pop("signature", None)
        try:
            is_signed = verify_signature(self.public_key, rfc8785.dumps(body), revocations.signature)
            serials = frozenset(parse_serial(entry.serial) for entry in revocations.entries)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{url} is malformed", url=url) from error
        if not is_signed or revocations.issued_by != self.nid:
            raise SourceError(f"{url} is not signed by its authority", url=url)
        return serials


def _remote_authorities(
    config: Config, host: str, rights: GrantedRights, clock: Callable[[], float]
) -> list[RemoteAuthority]:
    fetcher = AuthorityFetcher(config.allow_hosts)
    try:
        locations = [fetcher.locate(url) for url in config.section(AgentTrust).issuers]
    except (SourceError, ConfigError) as error:
        raise ConfigError(f"nwp.issuers: {error.message}", hint=error.hint) from error
    hosts = frozenset(location.host for location in locations)
    return [
        RemoteAuthority(url, replace(location, others=hosts - {location.host}), fetcher, rights, host, clock)
        for url, location in zip(config.section(AgentTrust).issuers, locations, strict=True)
    ]


class AuthorityFetcher:
    """Fetches documents of authorities: over https, or from hosts in `allow_hosts`. Follows no redirects."""

    def __init__(self, allow_hosts: Iterable[str]) -> None:
        self._allowed = frozenset(allow_hosts)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="authority")

    def locate(self, url: str) -> AuthorityLocation:
        """Return the location of an address. Raise SourceError if it must not be fetched."""
        address = parse_url(url)
        is_near = not self._allowed.isdisjoint({address.host, address.netloc.decode()})
        if address.scheme != "https" and not is_near:
            hint = "Plain http is allowed only for hosts in `allow_hosts`."
            raise SourceError(f"{url} is not https", url=url, hint=hint)
        return AuthorityLocation(host_of(url), is_allowed_host=is_near)

    def fetch(self, url: str, limit: int) -> bytes:
        """Return the body of a response; also of a 404, which some authorities send with their answer about a name."""
        with self._fetcher.open(url, follow=False, max_bytes=limit) as answer:
            if answer.status != 404:
                answer.raise_for_status()
            return answer.read()

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(allow_hosts=self._allowed, max_bytes=MAX_LIST, timeout=FETCH_SECONDS, deadline=FETCH_SECONDS)


class AnswerCache(Generic[T]):
    """Caches answers fetched on threads. Each key is fetched once at a time; failures are cached for a short time."""

    def __init__(self, seconds: float, threads: ThreadPoolExecutor, clock: Callable[[], float]) -> None:
        self._threads = threads
        self._tasks = TTLCache[str, asyncio.Task[T | SourceError]](CACHE_SIZE, seconds, cache_timer(clock))
        self._failures = TTLCache[str, bool](CACHE_SIZE, RETRY_SECONDS, cache_timer(clock))

    async def get(self, about: str, ask: Callable[[], T]) -> T:
        """Return the answer. Raise Unavailable if there is none in time."""
        task = self.begin(about, ask)
        await asyncio.wait([task], timeout=WAIT_SECONDS)
        outcome = task.result() if task.done() else None
        if outcome is None or isinstance(outcome, SourceError):
            raise Unavailable("The authority of the certificate cannot be asked", hint="Try later.") from outcome
        return outcome

    def begin(self, about: str, ask: Callable[[], T]) -> "asyncio.Task[T | SourceError]":
        """Return the cached or running fetch, or start one."""
        task = self._tasks.get(about)
        if task and (not task.done() or self._is_valid(about, task)):
            return task
        task = asyncio.create_task(self._ask(about, ask))
        self._tasks[about] = task
        return task

    def _is_valid(self, about: str, task: "asyncio.Task[T | SourceError]") -> bool:
        return not isinstance(task.result(), SourceError) or self._failures.get(about) is not None

    async def _ask(self, about: str, ask: Callable[[], T]) -> T | SourceError:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except SourceError as error:
            self._failures[about] = True
            return error


def _decode_document(raw: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{where} is malformed: {error}", url=where) from error
