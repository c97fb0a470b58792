"""What faces share: from the headers of a request to who is calling."""

from collections.abc import Mapping

from portico.errors import Unauthenticated
from portico.identity import Credentials


def credentials(headers: Mapping[str, str], address: str) -> Credentials:
    """An API key as `authorization: Bearer …` or `x-api-key: …`; header names in lower case. Two must agree."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme and scheme.lower() != "bearer":
        raise Unauthenticated(f"The authorization scheme {scheme!r} is not known", hint="Use Bearer.")
    key = headers.get("x-api-key", "").strip()
    token = token.strip()
    if key and token and key != token:
        raise Unauthenticated("authorization and x-api-key name different keys", hint="Send one of them.")
    return Credentials(token or key, address)
