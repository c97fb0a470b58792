"""Credentials to Caller. The only place where a Caller is made."""

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
BY_KEY = "key:"  # and the id of a key: what a caller is called who shows one
ASK = "ask"
APPROVE = "approve"  # may confirm what others want to do; no other scope includes it
RESOURCES = ("", "/mcp", "/a2a", "/ask")  # what an access token may be for: the site, or one of its doors
MAX_SUBJECT = 100
MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class Key:
    """An API key as stored: never the key itself, only its hash."""

    id: str
    name: str
    digest: str
    scopes: frozenset[str]
    danger: Danger
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None  # whenever that was: it counts at once
    trust: Trust = Trust.VALIDATED
    until: datetime | None = None  # that it is good beside another, which has taken its place

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
) -> tuple[str, Key]:
    """A new key and its record. The first is shown once and stored nowhere."""
    now = now or datetime.now(UTC)
    token = PREFIX + secrets.token_urlsafe(32)
    expires = now + timedelta(days=days) if days is not None else None
    checked = frozenset(check_scope(scope) for scope in scopes)
    return token, Key(secrets.token_hex(6), name, key_digest(token), checked, danger, now, expires, trust=trust)


def key_digest(token: str) -> str:
    # A key has 256 random bits: a plain hash cannot be reversed by guessing, and is fast enough for every request.
    return _digest(token)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def check_scope(scope: str) -> str:
    """A scope is `ask`, `approve`, or a kind and a collection or operation: `read:recipes`, `execute:book_table`."""
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
    """Whether scopes cover a kind of work on any of these names (a collection, an operation)."""
    wanted = {f"{verb}:{target}" for verb in (kind, "*") for target in (*targets, "*") if target}
    return not wanted.isdisjoint(scopes)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request brought along. Faces fill it from their transport; nothing else may."""

    bearer: str = ""
    address: str = ""
    ident: bytes = field(default=b"", repr=False)  # a certificate: an IdentFrame of NIP, as JSON
    agent: str = ""  # the NID that a request claims to come from; it proves nothing

    @property
    def is_token(self) -> bool:
        """Whether the bearer has the form of a JWT, which no API key has."""
        return self.bearer.count(".") == 2 and not self.bearer.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom an authorization server vouches for, in the words of a token that was checked: they may be any text."""

    issuer: str
    subject: str
    name: str
    scopes: frozenset[str]
    danger: Danger

    @property
    def id(self) -> str:
        """The same for every token of one subject of one issuer, and for no other."""
        subject = self.subject
        is_plain = subject.isascii() and subject.isprintable() and len(subject) <= MAX_SUBJECT
        # What begins like a digest is never taken as it is, so that nobody can choose the digest of another.
        kept = subject if is_plain and not subject.startswith("~") else f"~{_digest(subject)[:32]}"
        return f"oauth:{_digest(self.issuer)[:12]}:{kept}"

    @property
    def shown_name(self) -> str:
        return "".join(each if each.isprintable() else "?" for each in self.name[:MAX_NAME])


@dataclass(frozen=True, slots=True)
class Agent:
    """Whom an authority of NIP vouches for, by a certificate that was checked."""

    nid: str
    scopes: frozenset[str]
    danger: Danger
    warrant: Warrant
    trust: Trust = Trust.VALIDATED


FindAgent: TypeAlias = Callable[[bytes, str], Awaitable[Agent | None]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Knows whom to trust: keys of the store, tokens of an authorization server, certificates, or nobody."""

    find_key: Callable[[str], Awaitable[Key | None]]
    anonymous: frozenset[str]
    anonymous_danger: Danger = Danger.SAFE
    find_holder: Callable[[str], Awaitable[Holder]] | None = None  # of an access token; raises if it is wrong
    find_agent: FindAgent | None = None  # by a certificate and a claimed name; raises if it is wrong
    find_named: Callable[[str], Awaitable[Key | None]] | None = None  # a key by its id, for work that goes on later

    async def caller(self, credentials: Credentials) -> Caller:
        """The caller behind a request; raises if credentials are given but wrong."""
        if not credentials.bearer:
            return await self._agent(credentials)
        if credentials.ident:
            raise Unauthenticated("The request has both a certificate and a key", hint="Send one of them.")
        if self.find_holder and credentials.is_token:
            holder = await self.find_holder(credentials.bearer)
            return Caller(holder.id, holder.shown_name, holder.scopes, holder.danger, credentials.address)
        key = await self.find_key(key_digest(credentials.bearer))
        if key is None or not key.is_valid(datetime.now(UTC)):
            raise Unauthenticated(
                "The API key is not valid",
                hint="It may be mistyped, expired or revoked.",
            )
        return Caller(f"{BY_KEY}{key.id}", key.name, key.scopes, key.danger, credentials.address, trust=key.trust)

    async def _agent(self, credentials: Credentials) -> Caller:
        found = None
        if self.find_agent and (credentials.ident or credentials.agent):
            found = await self.find_agent(credentials.ident, credentials.agent)
        if found:
            id = f"nip:{found.nid}"
            return Caller(id, found.nid, found.scopes, found.danger, credentials.address, found.warrant, found.trust)
        if credentials.ident:
            raise Unauthenticated("Certificates are not taken here", hint="Show a key, or nothing.")
        return self.nobody(credentials.address)

    async def renewed(self, caller: Caller) -> Caller:
        """Who asked earlier, as of now: what was taken away since does not count any more."""
        record = caller.warrant.record if caller.warrant else caller.id.removeprefix(BY_KEY)
        is_noted = bool(caller.warrant and record) or caller.id.startswith(BY_KEY)
        if not is_noted or self.find_named is None:
            return caller
        key = await self.find_named(record)
        if key is None or not key.is_valid(datetime.now(UTC)):
            what = "certificate" if caller.warrant else "API key"
            raise Unauthenticated(f"The {what} is not valid any more", hint="It has expired or was revoked.")
        trust, danger = min(caller.trust, key.trust), min(caller.danger, key.danger)
        return replace(caller, scopes=caller.scopes & key.scopes, danger=danger, trust=trust)

    async def key_of(self, caller: str) -> Key | None:
        """The key of a caller, by what the caller is called; none for callers without one."""
        if not caller.startswith(BY_KEY) or self.find_named is None:
            return None
        return await self.find_named(caller.removeprefix(BY_KEY))

    def nobody(self, address: str = "") -> Caller:
        return Caller(scopes=self.anonymous, danger=self.anonymous_danger, address=address)


def for_user(caller: Caller, user: Any) -> Caller:
    """Return the caller as it asks for one of its users: the same rights, but memories and conversations apart.

    A user is any JSON that a caller with a name calls so, at any length; only a digest is kept. Of an object its
    identifier counts. Anonymous callers have no users: anybody could name one, so the caller is returned as it is.
    """
    if caller.is_anonymous or not names_user(user):
        return caller
    # As JSON, no text is the same as an object.
    return replace(caller, user=_digest(json.dumps(_user_identifier(user), sort_keys=True))[:32])


def names_user(user: Any) -> bool:
    """Return whether a value names a user; null, blank texts and empty objects do not."""
    return bool(user.strip()) if isinstance(user, str) else user is not None and user not in ({}, [])


def _user_identifier(user: Any) -> Any:
    """Return the identifier of a user, or the whole value where it has none: two people may have one name."""
    if isinstance(user, dict):
        members = cast("dict[str, Any]", user)
        identifiers = (members.get(name) for name in ("identifier", "@id", "id"))
        user = next((value for value in identifiers if isinstance(value, str | int) and value != ""), members)
    return str(user) if type(user) is int else user


def local_operator(name: str = "operator") -> Caller:
    """Whoever sits at the machine: may do everything but what is forbidden to all."""
    return Caller(f"operator:{name}", name, frozenset({ASK, APPROVE, "*:*"}), Danger.DANGEROUS, trust=Trust.CERTIFIED)
