"""Credentials to Caller. The only place where a Caller is made."""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from portico.calls import Caller
from portico.catalog import Danger, Kind
from portico.errors import ConfigError, Unauthenticated

PREFIX = "pk_"
ASK = "ask"


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
    revoked: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)


def make_key(
    name: str, scopes: Iterable[str], danger: Danger, days: float | None, now: datetime | None = None
) -> tuple[str, Key]:
    """A new key and its record. The first is shown once and stored nowhere."""
    now = now or datetime.now(UTC)
    token = PREFIX + secrets.token_urlsafe(32)
    expires = now + timedelta(days=days) if days is not None else None
    checked = frozenset(check_scope(scope) for scope in scopes)
    return token, Key(secrets.token_hex(6), name, key_digest(token), checked, danger, now, expires)


def key_digest(token: str) -> str:
    # A key has 256 random bits: a plain hash cannot be reversed by guessing, and is fast enough for every request.
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def check_scope(scope: str) -> str:
    """A scope is `ask`, or a kind and a collection or operation: `read:recipes`, `execute:book_table`, `*:*`."""
    verb, colon, target = scope.partition(":")
    if scope == ASK or (colon and target and (verb == "*" or verb in set(Kind))):
        return scope
    raise ConfigError(
        f"{scope!r} is not a scope",
        hint=f"Use ask, or one of {', '.join(Kind)} or * with a collection or operation, as in read:recipes.",
    )


def allows(scopes: frozenset[str], kind: Kind, *targets: str) -> bool:
    """Whether scopes cover a kind of work on any of these names (a collection, an operation)."""
    wanted = {f"{verb}:{target}" for verb in (kind, "*") for target in (*targets, "*") if target}
    return not wanted.isdisjoint(scopes)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request brought along. Faces fill it from their transport; nothing else may."""

    bearer: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Knows whom to trust: keys of the store, or nobody in particular."""

    find_key: Callable[[str], Awaitable[Key | None]]
    anonymous: frozenset[str]
    anonymous_danger: Danger = Danger.SAFE

    async def caller(self, credentials: Credentials) -> Caller:
        """The caller behind a request; raises if credentials are given but wrong."""
        if not credentials.bearer:
            return self.nobody(credentials.address)
        key = await self.find_key(key_digest(credentials.bearer))
        if key is None or not key.is_valid(datetime.now(UTC)):
            raise Unauthenticated(
                "The API key is not valid",
                hint="It may be mistyped, expired or revoked; `portico keys create` makes a new one.",
            )
        return Caller(f"key:{key.id}", key.name, key.scopes, key.danger, credentials.address)

    def nobody(self, address: str = "") -> Caller:
        return Caller(scopes=self.anonymous, danger=self.anonymous_danger, address=address)


def local_operator(name: str = "operator") -> Caller:
    """Whoever sits at the machine: may do everything but what is forbidden to all."""
    return Caller(f"operator:{name}", name, frozenset({ASK, "*:*"}), Danger.DANGEROUS)
