"""Credentials for the operations of an OpenAPI document. Secrets come from the environment, go to the document's server
alone, and never appear in errors, results or what is stored.
"""

import base64
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, quote_plus, urlencode

import msgspec

from portico.config import SourceAuth
from portico.errors import ConfigError, OperationFailed, SourceError, Unavailable
from portico.redaction import HIDDEN
from portico.sources.fetch import Fetcher, origin_of, parse_url

MAX_TOKEN_RESPONSE = 64 << 10
DEFAULT_LIFETIME = 300.0  # seconds of a token whose answer does not say
MARGIN_SECONDS = 30.0  # before it expires, in which a token is not used any more
MIN_REDACTED = 6  # characters of a secret that is removed from responses


@dataclass(frozen=True, slots=True)
class RequestSecrets:
    """What is added to one request."""

    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    query: str = field(default="", repr=False)
    values: tuple[str, ...] = field(default=(), repr=False)  # not to be shown if a response repeats them


class Authenticator(Protocol):
    """Makes what authenticates a request."""

    def secrets(self, fetcher: Fetcher) -> RequestSecrets: ...

    def renew(self) -> bool:
        """Handle a response of 401. Return whether another attempt may succeed."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """An authenticator and the one origin that its secrets may be sent to."""

    authenticator: Authenticator = field(repr=False)
    origin: str
    clear_hosts: frozenset[str] = frozenset()  # that may be sent secrets without TLS

    def secrets_for(self, url: str, fetcher: Fetcher) -> RequestSecrets:
        """Return what to add to a request; nothing for another origin."""
        if not self.origin or origin_of(url) != self.origin:
            return RequestSecrets()
        _require_tls(url, self.clear_hosts)
        return self.authenticator.secrets(fetcher)


@dataclass(frozen=True, slots=True)
class FixedSecrets:
    """The same secrets for every request."""

    fixed: RequestSecrets = field(repr=False)

    def secrets(self, fetcher: Fetcher) -> RequestSecrets:
        return self.fixed

    def renew(self) -> bool:
        return False


@dataclass(slots=True)
class ClientCredentials:
    """Access tokens by the OAuth grant for clients (RFC 6749, 4.4), each used until shortly before it expires."""

    token_url: str
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    scope: str
    clear_hosts: frozenset[str]
    _token: str = field(default="", init=False, repr=False)
    _until: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def secrets(self, fetcher: Fetcher) -> RequestSecrets:
        with self._lock:
            if not self._token or time.monotonic() >= self._until:
                self._token, lifetime = self._fetch(fetcher)
                self._until = time.monotonic() + max(lifetime - MARGIN_SECONDS, lifetime / 2)
            return _bearer(self._token)

    def renew(self) -> bool:
        with self._lock:
            self._token = ""
        return True

    def _fetch(self, fetcher: Fetcher) -> tuple[str, float]:
        _require_tls(self.token_url, self.clear_hosts)
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        headers = {
            "Authorization": _basic(quote(self.client_id, safe=""), quote(self.client_secret, safe="")),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        body = urlencode(form).encode()
        try:
            with fetcher.send(
                "POST", self.token_url, body=body, headers=headers, max_bytes=MAX_TOKEN_RESPONSE
            ) as response:
                status, raw = response.status, response.read()
        except SourceError as error:
            raise Unavailable(f"No access token: {error.message}", hint=error.hint) from error
        if status != 200:
            raise Unavailable(f"No access token: the token endpoint answered {status}", status=status)
        return _parse_token(raw)


def _parse_token(raw: bytes) -> tuple[str, float]:
    try:
        answer: Any = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        answer = {}
    token, lifetime = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(token, str) or not _is_header_text(token):
        raise Unavailable("No access token: the answer of the token endpoint has none")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime > 0
    return token, min(float(lifetime), 86_400.0) if is_number else DEFAULT_LIFETIME


def make_authenticator(
    auth: SourceAuth, secret: Callable[[str], str], clear_hosts: frozenset[str] = frozenset()
) -> Authenticator:
    """Return what authenticates requests by the settings of a source; raise ConfigError for a missing variable."""
    match auth.type:
        case "oauth":
            token_url = _require(auth, "token_url")
            client_id, client_secret = (secret(_require(auth, name)) for name in ("client_id_env", "client_secret_env"))
            return ClientCredentials(token_url, client_id, client_secret, auth.scope, clear_hosts)
        case "basic":
            user, password = (secret(_require(auth, name)) for name in ("user_env", "password_env"))
            encoded = _basic(user, password)
            return FixedSecrets(
                RequestSecrets({"Authorization": encoded}, values=(password, encoded.removeprefix("Basic ")))
            )
        case "bearer":
            return FixedSecrets(_bearer(_header_secret(auth, secret)))
        case "header":
            value = _header_secret(auth, secret)
            return FixedSecrets(RequestSecrets({_require(auth, "name"): value}, values=(value,)))
        case "query":
            value = secret(_require(auth, "env"))
            return FixedSecrets(
                RequestSecrets(query=urlencode({_require(auth, "name"): value}), values=(value, quote(value, safe="")))
            )


def redact_response(raw: bytes, secrets: RequestSecrets) -> bytes:
    """Return a response without the secrets that were sent, if it repeats them."""
    for value in secrets.values:
        if len(value) >= MIN_REDACTED:
            for form in _forms(value):
                raw = raw.replace(form.encode(), HIDDEN.encode())
    return raw


def _forms(value: str) -> set[str]:
    """Return a text as it stands in itself, in JSON and in URLs."""
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    slashed = {text.replace("/", "\\/") for text in in_json}
    return {value, *in_json, *slashed, quote(value, safe=""), quote(value), quote_plus(value)}


def clear_hosts_of(allow_hosts: Sequence[str]) -> frozenset[str]:
    """Return the hosts that may be sent secrets without TLS: those that the operator named as private."""
    return frozenset(host.lower() for host in allow_hosts)


def _require_tls(url: str, clear_hosts: frozenset[str]) -> None:
    parsed = parse_url(url)
    names = (parsed.host.lower(), f"{parsed.host.lower()}:{parsed.port}")
    if parsed.scheme == "https" or not clear_hosts.isdisjoint(names):
        return
    raise OperationFailed("Credentials are sent over https only", hint="Use an https address.")


def _require(auth: SourceAuth, name: str) -> str:
    value: str = getattr(auth, name)
    if not value:
        raise ConfigError(f"source.auth of the type {auth.type!r} requires `{name}`", setting=f"source.auth.{name}")
    return value


def _header_secret(auth: SourceAuth, secret: Callable[[str], str]) -> str:
    name = _require(auth, "env")
    value = secret(name)
    if not _is_header_text(value):
        raise ConfigError(
            f"The environment variable {name} cannot be sent in a header",
            hint="It may have ASCII letters, digits and signs only.",
        )
    return value


def _is_header_text(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable()


def _bearer(token: str) -> RequestSecrets:
    return RequestSecrets({"Authorization": f"Bearer {token}"}, values=(token,))


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
