"""Tokens that callers carry for us: signed, bound to one caller, good for a while. Nothing in them is secret."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from portico.errors import BadRequest

MAX_TOKEN = 16_384  # characters
SIGNATURE = 16  # bytes


class _Sealed(msgspec.Struct, frozen=True, array_like=True):
    expires: int
    payload: dict[str, Any]


def seal(payload: Mapping[str, Any], holder: str, secret: bytes, seconds: float) -> str:
    """A token only this holder can bring back, and only for so long."""
    try:
        body = msgspec.msgpack.encode(_Sealed(int(time.time() + seconds), dict(payload)))
    except OverflowError as error:
        raise BadRequest("A number of more than 64 bits cannot be kept", hint="Send it as text.") from error
    return base64.urlsafe_b64encode(_sign(body, holder, secret) + body).rstrip(b"=").decode()


def unseal(token: str, holder: str, secret: bytes) -> dict[str, Any] | None:
    """What a token says; None if it was altered, is another holder's or has expired."""
    if len(token) > MAX_TOKEN:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    signature, body = raw[:SIGNATURE], raw[SIGNATURE:]
    if not hmac.compare_digest(signature, _sign(body, holder, secret)):
        return None
    sealed = msgspec.msgpack.decode(body, type=_Sealed)
    return sealed.payload if time.time() < sealed.expires else None


def _sign(body: bytes, holder: str, secret: bytes) -> bytes:
    said = holder.encode(errors="surrogatepass") + b"\0" + body
    return hashlib.blake2b(said, key=secret, digest_size=SIGNATURE, person=b"token").digest()
