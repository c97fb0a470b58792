"""Identity: turns the credentials of a request into a Caller. The only place where one is made."""

import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

from portico.catalog import Danger, Kind, Trust
from portico.errors import ConfigError, Unauthenticated
from portico.requests import Caller, Warrant

PREFIX = "pk_"
KEY_PREFIX = "key:"  # and the id of the key form the id of its caller
ASK = "ask"
APPROVE = "approve"  # may confirm what other callers want to do; no other scope includes it
MAX_SUBJECT = 100
MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as stored: never the key itself, only its hash."""

    id: str
    name: str
    digest: str
    scopes: frozenset[str]
    danger: Danger
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None  # whatever the time is, the key is no longer valid
    trust: Trust = Trust.VALIDATED
    until: datetime | None = None  # for which it stays valid beside the key that replaces it

    def is_valid(self, now: datetime) -> bool:
        return not self.is_withdrawn(now) and (self.expires is None or now < self.expires)

    def is_withdrawn(self, now: datetime) -> bool:
        return self.revoked is not None or (self.until is not None and self.until <= now)


def make_key(
    name: str,
    scopes: Iterable[str],
    danger: Danger,
    days: float | None,
    now: datetime | None = None,
    trust: Trust = Trust.VALIDATED,
) -> tuple[str, ApiKey]:
    """Return a new key and its record. The key itself is shown once and never stored."""
    now = now or datetime.now(UTC)
    token = PREFIX + secrets.token_urlsafe(32)
    expires = now + timedelta(days=days) if days is not None else None
    checked_scopes = frozenset(check_scope(scope) for scope in scopes)
    return token, ApiKey(
        secrets.token_hex(6), name, key_digest(token), checked_scopes, danger, now, expires, trust=trust
    )


def key_digest(token: str) -> str:
    # A key has 256 random bits: a plain hash cannot be reversed by guessing, and is fast enough for every request.
    return _digest(token)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def check_scope(scope: str) -> str:
    """Return the scope, or raise: `ask`, `approve`, or a kind and a target such as `read:recipes`."""
    if is_scope(scope):
        return scope
    raise ConfigError(
        f"{scope!r} is not a scope",
        hint=f"Use ask, approve, or one of {', '.join(Kind)} or * with a collection or operation, as in read:recipes.",
    )


def is_scope(text: str) -> bool:
    verb, _, target = text.partition(":")
    return text in {ASK, APPROVE} or (bool(target) and (verb == "*" or verb in set(Kind)))


def allows(scopes: frozenset[str], kind: Kind, *targets: str) -> bool:
    """Return whether scopes allow a kind of operation on any of these targets (a collection, an operation)."""
    accepted = {f"{verb}:{target}" for verb in (kind, "*") for target in (*targets, "*") if target}
    return not accepted.isdisjoint(scopes)


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """What a request shows of its caller. The edge fills it from the transport; nothing else may."""

    bearer: str = ""
    address: str = ""
    certificate: bytes = field(default=b"", repr=False)  # a certificate: an IdentFrame of NIP, as JSON
    agent: str = ""  # the NID that a request claims, without proof

    @property
    def is_token(self) -> bool:
        """Whether the bearer has the form of a JWT, which no API key has."""
        return self.bearer.count(".") == 2 and not self.bearer.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a verified access token. Its names are the token's and may be any text."""

    issuer: str
    subject: str
    name: str
    scopes: frozenset[str]
    danger: Danger

    @property
    def id(self) -> str:
        """Identifies one subject of one issuer, whichever token it shows."""
        subject = self.subject
        is_plain = subject.isascii() and subject.isprintable() and len(subject) <= MAX_SUBJECT
        # A subject that begins like a digest is digested too, so that it cannot match the digest of another.
        subject_id = subject if is_plain and not subject.startswith("~") else f"~{_digest(subject)[:32]}"
        return f"oauth:{_digest(self.issuer)[:12]}:{subject_id}"

    @property
    def display_name(self) -> str:
        return "".join(character if character.isprintable() else "?" for character in self.name[:MAX_NAME])


@dataclass(frozen=True, slots=True)
class CertifiedAgent:
    """The agent of a verified NIP certificate."""

    nid: str
    scopes: frozenset[str]
    danger: Danger
    warrant: Warrant
    trust: Trust = Trust.VALIDATED


FindAgent: TypeAlias = Callable[[bytes, str], Awaitable[CertifiedAgent | None]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Finds callers by API keys, access tokens or certificates."""

    find_key: Callable[[str], Awaitable[ApiKey | None]]
    anonymous: frozenset[str]
    anonymous_danger: Danger = Danger.SAFE
    find_holder: Callable[[str], Awaitable[TokenHolder]] | None = None  # by an access token; raises if it is not valid
    find_agent: FindAgent | None = None  # by a certificate and a claimed name; raises if they are not valid
    find_key_by_id: Callable[[str], Awaitable[ApiKey | None]] | None = None  # for work that continues later

    async def caller(self, credentials: RequestCredentials) -> Caller:
        """Return the caller of a request. Raise Unauthenticated if its credentials are not valid."""
        if not credentials.bearer:
            return await self._find_agent_caller(credentials)
        if credentials.certificate:
            raise Unauthenticated("The request has both a certificate and a key", hint="Send one of them.")
        if self.find_holder and credentials.is_token:
            holder = await self.find_holder(credentials.bearer)
            return Caller(holder.id, holder.display_name, holder.scopes, holder.danger, credentials.address)
        key = await self.find_key(key_digest(credentials.bearer))
        if key is None or not key.is_valid(datetime.now(UTC)):
            raise Unauthenticated(
                "The API key is not valid",
                hint="It may be mistyped, expired or revoked.",
            )
        return Caller(f"{KEY_PREFIX}{key.id}", key.name, key.scopes, key.danger, credentials.address, trust=key.trust)

    async def _find_agent_caller(self, credentials: RequestCredentials) -> Caller:
        agent = None
        if self.find_agent and (credentials.certificate or credentials.agent):
            agent = await self.find_agent(credentials.certificate, credentials.agent)
        if agent:
            id = f"nip:{agent.nid}"
            return Caller(id, agent.nid, agent.scopes, agent.danger, credentials.address, agent.warrant, agent.trust)
        if credentials.certificate:
            raise Unauthenticated("This site does not accept certificates", hint="Send an API key, or no credentials.")
        return self.anonymous_caller(credentials.address)

    async def refresh(self, caller: Caller) -> Caller:
        """Return a caller of an earlier request with the rights that it still has."""
        record = caller.warrant.record if caller.warrant else caller.id.removeprefix(KEY_PREFIX)
        has_record = bool(caller.warrant and record) or caller.id.startswith(KEY_PREFIX)
        if not has_record or self.find_key_by_id is None:
            return caller
        key = await self.find_key_by_id(record)
        if key is None or not key.is_valid(datetime.now(UTC)):
            what = "certificate" if caller.warrant else "API key"
            raise Unauthenticated(f"The {what} is no longer valid", hint="It has expired or was revoked.")
        trust, danger = min(caller.trust, key.trust), min(caller.danger, key.danger)
        return replace(caller, scopes=caller.scopes & key.scopes, danger=danger, trust=trust)

    async def find_key_of(self, caller: str) -> ApiKey | None:
        """Return the key of the caller with this id, or None if it has none."""
        if not caller.startswith(KEY_PREFIX) or self.find_key_by_id is None:
            return None
        return await self.find_key_by_id(caller.removeprefix(KEY_PREFIX))

    def anonymous_caller(self, address: str = "") -> Caller:
        return Caller(scopes=self.anonymous, danger=self.anonymous_danger, address=address)


def for_user(caller: Caller, user: Any) -> Caller:
    """Return the caller acting for one of its users: the same rights, but separate memories and conversations.

    A user is any JSON value; only a digest of it is kept, or of its identifier if it is an object. Anonymous callers
    have no users, since anybody could name one, and are returned unchanged.
    """
    if caller.is_anonymous or not names_user(user):
        return caller
    # As JSON, a string never equals an object.
    return replace(caller, user=_digest(json.dumps(_user_identifier(user), sort_keys=True))[:32])


def names_user(user: Any) -> bool:
    """Return whether a value names a user; null, blank texts and empty objects do not."""
    return bool(user.strip()) if isinstance(user, str) else user is not None and user not in ({}, [])


def _user_identifier(user: Any) -> Any:
    """Return the identifier of a user, or the whole value without one, since two people may share a name."""
    if isinstance(user, dict):
        members = cast("dict[str, Any]", user)
        identifiers = (members.get(name) for name in ("identifier", "@id", "id"))
        user = next((value for value in identifiers if isinstance(value, str | int) and value != ""), members)
    return str(user) if type(user) is int else user


def local_operator(name: str = "operator") -> Caller:
    """Return the caller for the person at the machine, who may do everything that is not forbidden to all."""
    return Caller(f"operator:{name}", name, frozenset({ASK, APPROVE, "*:*"}), Danger.DANGEROUS, trust=Trust.CERTIFIED)
