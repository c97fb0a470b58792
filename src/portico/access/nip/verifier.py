"""Says who shows a certificate, and what they may do here. Trusts this site's authority and those of the site file.

Others are asked about their certificates, and what they say counts for a minute; when one cannot be asked, nobody gets
in by its word.
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

from portico.access.identity import Agent
from portico.access.nip import (
    Certificate,
    Issuer,
    Rights,
    Standing,
    domain_of,
    is_nid,
    raw_key,
    read_certificate,
    revoked_by,
    serial_number,
    verify_signature,
)
from portico.access.nip.authority import Authority, host_of
from portico.access.nip.fresh import Fresh
from portico.catalog import Danger
from portico.config import Config
from portico.errors import ConfigError, SourceError, Unavailable, UntrustedIssuer
from portico.requests import Warrant
from portico.sources.fetch import Fetcher, checked_url
from portico.store import Store

T = TypeVar("T")

MAX_DOCUMENT = 256 << 10  # bytes of what an authority says of itself, or of one agent
MAX_LIST = 4 << 20  # bytes of a list of revoked certificates
REMEMBER_SECONDS = 60.0  # how long a checked signature, or the answer of another authority, counts
NAME_SECONDS = 1.0  # the same for a bare name
DOCUMENT_SECONDS = 3600.0  # until the key of another authority is read again
RETRY_SECONDS = 5.0  # until an authority that did not answer is asked again
FETCH_SECONDS = 5.0  # for one answer
WAIT_SECONDS = 10.0  # of a caller for an answer
THREADS = 4


@dataclass(frozen=True, slots=True)
class Vouched:
    """A certificate whose signature was checked, and whose it is."""

    certificate: Certificate
    issuer: Issuer


class Verifier:
    """Says who shows a certificate. A signature is checked once a minute; whether it is revoked here, each time."""

    def __init__(self, config: Config, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._trusts_names = config.nwp.trust_names
        self._rights = Rights(frozenset(config.nwp.scopes), Danger[config.nwp.danger.upper()])
        self._clock = clock
        self._own = Authority(config, store, clock)
        self._elsewhere = _authorities(config, self._own.host, self._rights, clock)
        self._checked = Fresh[Vouched](REMEMBER_SECONDS, clock)
        self._named = Fresh[bool](NAME_SECONDS, clock)

    async def agent(self, ident: bytes, name: str) -> Agent | None:
        """Who shows this certificate, under this name if one is claimed. A name alone is mostly nobody's."""
        if not ident:
            return await self._agent_named(name) if name and self._trusts_names else None
        digest = hashlib.sha256(ident).digest()
        known = self._checked.get(digest)
        certificate = known.certificate if known else read_certificate(ident)
        certificate.check_time(datetime.fromtimestamp(self._clock(), UTC))
        issuer = known.issuer if known else await self._issuer_of(certificate)
        if not known:
            self._checked.put(digest, Vouched(certificate, issuer))
        if name not in {"", certificate.nid}:
            raise UntrustedIssuer("The certificate is of another agent", hint="Name its nid as the agent, or none.")
        rights = await issuer.rights(certificate)
        warrant = replace(certificate.warrant, record=rights.record)
        return Agent(certificate.nid, rights.scopes, rights.danger, warrant, rights.trust)

    async def _issuer_of(self, certificate: Certificate) -> Issuer:
        issuer = await self._issuer(lambda each: each.nid == certificate.issuer)
        if not verify_signature(issuer.public_key, certificate.signed, certificate.signature):
            raise UntrustedIssuer("The signature of the certificate is wrong", hint="It may have been altered.")
        self._check_domain(certificate.nid, issuer)
        return issuer

    def _check_domain(self, nid: str, issuer: Issuer) -> None:
        """A trusted authority cannot speak of the agents of another one."""
        domain = domain_of(nid)
        is_spoken_for = domain == self._own.host or any(each.speaks_for(domain) for each in self._elsewhere)
        if is_spoken_for and domain != domain_of(issuer.nid):
            raise UntrustedIssuer(f"{issuer.nid} cannot certify agents of {domain}")

    async def _issuer(self, is_meant: Callable[[Issuer], bool]) -> Issuer:
        found = self._own if is_meant(self._own) else self._first(is_meant)
        if found:
            return found
        read = await asyncio.gather(*(each.renewed() for each in self._elsewhere))
        found = self._first(is_meant)
        if found:
            return found
        if not all(read):
            raise Unavailable("An authority cannot be asked at the moment", hint="Try later.")
        raise UntrustedIssuer("The authority of the certificate is not trusted here", hint=f"{self._own.nid} is.")

    def _first(self, is_meant: Callable[[Issuer], bool]) -> Issuer | None:
        """Of those elsewhere in the order of the site file, as far as they are known."""
        for each in self._elsewhere:
            each.renew()
        return next((each for each in self._elsewhere if each.nid and is_meant(each)), None)

    async def _agent_named(self, nid: str) -> Agent:
        """Believed without a proof, as the site file wants it: so it may do what holders from elsewhere may."""
        if not is_nid(nid) or not nid.startswith("urn:nps:agent:"):
            raise UntrustedIssuer("The name is not the NID of an agent", hint="As in urn:nps:agent:shop.example:ann.")
        if not self._named.get(nid):
            issuer = await self._issuer(lambda each: domain_of(each.nid) == domain_of(nid))
            await issuer.check_name(nid)
            self._named.put(nid, True)
        return Agent(nid, self._rights.scopes, self._rights.danger, Warrant(frozenset({"nwp:query"}), ("*",)))


# Authorities elsewhere


class Document(msgspec.Struct, frozen=True):
    """What an authority says of itself at /.well-known/nps-ca."""

    issuer: str
    public_key: str
    endpoints: dict[str, Any] = {}

    @property
    def is_asked(self) -> bool:
        """Whether it tells of one agent, not only by a list of all that are revoked."""
        return "crl" not in self.endpoints or not self.endpoints.keys().isdisjoint({"verify", "ocsp"})


class Entry(msgspec.Struct, frozen=True):
    serial: str


class Revocations(msgspec.Struct, frozen=True):
    issued_by: str
    entries: tuple[Entry, ...]
    signature: str


@dataclass(frozen=True, slots=True)
class Seat:
    """Where an authority is, and so whose name it can have. Else one could take that of another not read yet."""

    host: str
    others: frozenset[str] = frozenset()  # hosts of the other authorities
    is_near: bool = False  # named in `allow_hosts`: the address may have nothing to do with the name

    def can_be(self, domain: str) -> bool:
        """Whether it may speak for a domain: its own or the one that it is in, but not where another one sits."""
        if domain in self.others:
            return False
        return self.is_in(domain) or (self.is_near and not any(_is_in(each, domain) for each in self.others))

    def is_in(self, domain: str) -> bool:
        return _is_in(self.host, domain)


def _is_in(host: str, domain: str) -> bool:
    return host == domain or ("." in domain and host.endswith(f".{domain}"))


class Elsewhere:
    """An authority at an address of the site file. It has no name until it could be read."""

    def __init__(
        self, url: str, seat: Seat, courier: "Courier", rights: Rights, taken: str, clock: Callable[[], float]
    ) -> None:
        self._url = url.rstrip("/")
        self._seat = seat
        self._ask = courier.ask
        self._rights = rights
        self._taken = taken  # the domain of the site, for which nobody else speaks
        self._documents = Answers[Document](DOCUMENT_SECONDS, courier.threads, clock)
        self._standings = Answers[Standing](REMEMBER_SECONDS, courier.threads, clock)
        self._lists = Answers[frozenset[int]](REMEMBER_SECONDS, courier.threads, clock)
        self._document: Document | None = None

    @property
    def nid(self) -> str:
        return self._document.issuer if self._document else ""

    @property
    def public_key(self) -> str:
        return self._document.public_key if self._document else ""

    def speaks_for(self, domain: str) -> bool:
        """Whether agents of a domain are its own. While its name is not known, all are for whom it may be there."""
        return domain == domain_of(self.nid) if self.nid else self._seat.is_in(domain)

    def renew(self) -> "asyncio.Task[Document | SourceError]":
        """Read who this is, unless that was done not long ago. What was read before counts while it cannot be."""
        return self._documents.begin("", self._introduced)

    async def renewed(self) -> bool:
        """Whether it is known who this is, after waiting for it."""
        await asyncio.wait([self.renew()], timeout=WAIT_SECONDS)
        return bool(self.nid)

    async def rights(self, certificate: Certificate) -> Rights:
        if await self._is_revoked(certificate):
            raise revoked_by(self.nid)
        return self._rights

    async def check_name(self, nid: str) -> None:
        (await self._standing(nid)).check(self.nid)

    async def _is_revoked(self, certificate: Certificate) -> bool:
        if self._document and self._document.is_asked:
            standing = await self._standing(certificate.nid)
            standing.check(self.nid)
            # A NID can have an old and a new certificate at once: then the answer is about one of them.
            if standing.serial is None or standing.number == certificate.serial:
                return False
            if "crl" not in self._document.endpoints:
                return True
        return certificate.serial in await self._lists.answer("", self._revoked)

    async def _standing(self, nid: str) -> Standing:
        return await self._standings.answer(nid, lambda: self._asked(nid))

    # On a thread

    def _introduced(self) -> Document:
        url = f"{self._url}/.well-known/nps-ca"
        found = _decoded(self._ask(url, MAX_DOCUMENT), Document, url)
        domain = domain_of(found.issuer)
        try:
            raw_key(found.public_key)
        except ValueError as error:
            raise SourceError(f"{url} has no public key of Ed25519", url=url) from error
        if domain in {"", self._taken} or not self._seat.can_be(domain):
            raise SourceError(f"{url} names no issuer of its own", url=url, issuer=found.issuer)
        self._document = found
        return found

    def _asked(self, nid: str) -> Standing:
        url = f"{self._url}/v1/agents/{nid}/verify"
        return _decoded(self._ask(url, MAX_DOCUMENT), Standing, url)

    def _revoked(self) -> frozenset[int]:
        url = f"{self._url}/v1/crl"
        raw = self._ask(url, MAX_LIST)
        body = _decoded(raw, dict[str, Any], url)
        found = _decoded(raw, Revocations, url)
        body.pop("signature", None)
        try:
            is_signed = verify_signature(self.public_key, rfc8785.dumps(body), found.signature)
            revoked = frozenset(serial_number(each.serial) for each in found.entries)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{url} cannot be understood", url=url) from error
        if not is_signed or found.issued_by != self.nid:
            raise SourceError(f"{url} is not signed by its authority", url=url)
        return revoked


def _authorities(config: Config, host: str, rights: Rights, clock: Callable[[], float]) -> list[Elsewhere]:
    courier = Courier(config.allow_hosts)
    try:
        seats = [courier.seat(url) for url in config.nwp.issuers]
    except (SourceError, ConfigError) as error:
        raise ConfigError(f"nwp.issuers: {error.message}", hint=error.hint) from error
    hosts = frozenset(each.host for each in seats)
    return [
        Elsewhere(url, replace(seat, others=hosts - {seat.host}), courier, rights, host, clock)
        for url, seat in zip(config.nwp.issuers, seats, strict=True)
    ]


class Courier:
    """The guarded way to authorities: over https, or to hosts of one's own. Takes no redirect."""

    def __init__(self, allow_hosts: Iterable[str]) -> None:
        self._allowed = frozenset(allow_hosts)
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="authority")

    def seat(self, url: str) -> Seat:
        """Where an address leads. Raises unless it may be asked there."""
        address = checked_url(url)
        is_near = not self._allowed.isdisjoint({address.host, address.netloc.decode()})
        if address.scheme != "https" and not is_near:
            hint = "Plain http is for hosts that are named in `allow_hosts`."
            raise SourceError(f"{url} is not https", url=url, hint=hint)
        return Seat(host_of(url), is_near=is_near)

    def ask(self, url: str, limit: int) -> bytes:
        """The body of an answer; also of a 404, which some authorities send with their answer about a name."""
        with self._fetcher.open(url, follow=False, max_bytes=limit) as answer:
            if answer.status != 404:
                answer.expect_ok()
            return answer.read()

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(allow_hosts=self._allowed, max_bytes=MAX_LIST, timeout=FETCH_SECONDS, deadline=FETCH_SECONDS)


class Answers(Generic[T]):
    """What was asked elsewhere, on threads. The same is asked once at a time; a failure counts for a short while."""

    def __init__(self, seconds: float, threads: ThreadPoolExecutor, clock: Callable[[], float]) -> None:
        self._threads = threads
        self._asked = Fresh[asyncio.Task[T | SourceError]](seconds, clock)
        self._failed = Fresh[bool](RETRY_SECONDS, clock)

    async def answer(self, about: str, ask: Callable[[], T]) -> T:
        """Raises Unavailable if there is none in time."""
        asking = self.begin(about, ask)
        await asyncio.wait([asking], timeout=WAIT_SECONDS)
        found = asking.result() if asking.done() else None
        if found is None or isinstance(found, SourceError):
            raise Unavailable("The authority of the certificate cannot be asked", hint="Try later.") from found
        return found

    def begin(self, about: str, ask: Callable[[], T]) -> "asyncio.Task[T | SourceError]":
        """The question that is under way or was answered lately, or else a new one."""
        asking = self._asked.get(about)
        if asking and (not asking.done() or self._counts(about, asking)):
            return asking
        asking = asyncio.create_task(self._ask(about, ask))
        self._asked.put(about, asking)
        return asking

    def _counts(self, about: str, asked: "asyncio.Task[T | SourceError]") -> bool:
        return not isinstance(asked.result(), SourceError) or self._failed.get(about) is not None

    async def _ask(self, about: str, ask: Callable[[], T]) -> T | SourceError:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except SourceError as error:
            self._failed.put(about, True)
            return error


def _decoded(raw: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{where} cannot be understood: {error}", url=where) from error
