"""Signed tokens that clients carry: bound to one holder, valid for a limited time. Their contents are not secret."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from portico.errors import BadRequest
from portico.requests import Caller

MAX_TOKEN = 16_384  # characters
SIGNATURE = 16  # bytes


class _SignedPayload(msgspec.Struct, frozen=True, array_like=True):
    expires: int
    payload: dict[str, Any]


def seal(payload: Mapping[str, Any], holder: str, secret: bytes, seconds: float) -> str:
    """Return a token that only this holder can redeem, within `seconds`."""
    try:
        body = msgspec.msgpack.encode(_SignedPayload(int(time.time() + seconds), dict(payload)))
    except OverflowError as error:
        raise BadRequest("Numbers of more than 64 bits cannot be stored", hint="Send it as a string.") from error
    return base64.urlsafe_b64encode(_sign(body, holder, secret) + body).rstrip(b"=").decode()


def unseal(token: str, holder: str, secret: bytes) -> dict[str, Any] | None:
    """Return the payload of a token; None if it was altered, is another holder's or has expired."""
    if len(token) > MAX_TOKEN:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    signature, body = raw[:SIGNATURE], raw[SIGNATURE:]
    if not hmac.compare_digest(signature, _sign(body, holder, secret)):
        return None
    sealed = msgspec.msgpack.decode(body, type=_SignedPayload)
    return sealed.payload if time.time() < sealed.expires else None


class SignedTokens:
    """Signs and reads tokens with the secret of a site."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, payload: Mapping[str, Any], caller: Caller, seconds: float) -> str:
        """Return a token that only this caller can redeem, within `seconds`."""
        return seal(payload, caller.owner, self._secret, seconds)

    def unseal(self, token: str, caller: Caller) -> dict[str, Any] | None:
        """Return the payload of a token; None if it was altered, is another caller's or has expired."""
        return unseal(token, caller.owner, self._secret)

    @property
    def fingerprint(self) -> str:
        """A name that every process of a site has, and no other site. It tells nothing of its secret."""
        return hmac.digest(self._secret, b"fingerprint", "sha256").hex()[:16]


def _sign(body: bytes, holder: str, secret: bytes) -> bytes:
    message = holder.encode(errors="surrogatepass") + b"\0" + body
    return hashlib.blake2b(message, key=secret, digest_size=SIGNATURE, person=b"token").digest()
