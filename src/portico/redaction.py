"""Removes passwords and tokens from URLs, so that these can be shown, logged and stored. Knows no settings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote_plus

HIDDEN = "***"

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"
_URL = re.compile(_SCHEME + r"""[^\s"'<>`]+""")
# A password may hold the characters that end a URL in a sentence. `host:5432 … @` is no password but a port.
_URL_WITH_PASSWORD = re.compile(
    _SCHEME + r"""[^\s/@:]*:(?!\d+(?:[\s/?#"'<>`,;)]|$))(?:(?!://)[^@\n]){0,200}@[^\s"'<>`]*"""
)
# A URL in which a slash was forgotten is none, and is shown in the message that says so.
_SLASH_MISSING = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,30}:/)(?!/)[^\s/@:]*:[^\s/@]+@")
_WEB = re.compile(r"(?:.*\+)?(?:https?|wss?|ftps?)", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_SECRET_WORDS = frozenset(
    {"accesskey", "apikey", "auth", "authorization", "bearer", "credential", "credentials", "jwt", "passphrase"}
    | {"pass", "passwd", "password", "pw", "pwd", "secret", "sig", "signature", "token"}
)
_SECRET_ENDINGS = ("apikey", "accesskey", "privatekey", "secretkey", "password", "secret", "token")
MIN_KEY = 16  # characters of a `key` that is a secret: shorter ones name a field or a list
MIN_IN_ITEMS = 8  # characters of a secret that is looked for in items: shorter ones may be ordinary words
# What may stand before and behind a secret in a text that is not its own.
_BEFORE = r"(?<![\w%.~-])"
_BEHIND = r"""(?=[.,;:!?)\]}]*(?:[&#\s"'<>`\\]|$))"""
# A whole connection string inside one parameter, as in odbc_connect=…;PWD=….
_CONNECTION_STRING = re.compile(r"(?:^|;)\s*(?:pwd|password)\s*=", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Return the URL without its password, and with *** for values of parameters that are named like secrets.

    Every password and token gives the same text: a source keeps its name when its password is changed. What is no URL,
    or holds no secret, comes back as it is.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _SLASH_MISSING.sub(rf"\1{HIDDEN}@", url)
    place, redacted = _split_password(scheme, rest)
    params = re.sub(r"(?<=[?&#;])([^?&#;=]*)=([^&#]*)", _redact_param, place)
    return f"{scheme}{separator}{redacted}{params}"


def redact_text(text: str) -> str:
    """Return a text with every URL in it redacted."""
    if ":/" not in text:
        return text
    text = _SLASH_MISSING.sub(rf"\1{HIDDEN}@", text)
    for pattern in (_URL_WITH_PASSWORD, _URL):
        text = pattern.sub(lambda match: redact_url(match[0]), text)
    return text


def _split_password(scheme: str, rest: str) -> tuple[str, str]:
    """Split what follows `://` into what comes behind the host, and user and host without the password."""
    start = _end_of_user(scheme, rest)
    user = rest[:start]
    user_info = (
        f"{HIDDEN}@" if user and _WEB.fullmatch(scheme) else user.rstrip("@").partition(":")[0] + "@" * bool(user)
    )
    end = re.search(r"[/?#]|$", rest[start:])
    length = end.start() if end else 0
    return rest[start + length :], user_info + rest[start : start + length]


def _end_of_user(scheme: str, rest: str) -> int:
    """Return where the host begins. A password of a database may hold any character but `@`, as SQLAlchemy reads it."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority or _WEB.fullmatch(scheme) or not re.match(r"[^:/?#@]*:[^@]*@", rest):
        return authority.rfind("@") + 1
    first = rest.index("@") + 1
    return first + re.split(r"[/?#]", rest[first:], maxsplit=1)[0].rfind("@") + 1


def _redact_param(match: re.Match[str]) -> str:
    name, value = match[1], unquote_plus(match[2])
    is_hidden = _is_secret(unquote_plus(name), value) or _CONNECTION_STRING.search(value) or redact_text(value) != value
    return f"{name}={HIDDEN}" if is_hidden and value else match[0]


def _is_secret(name: str, value: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if not _SECRET_WORDS.isdisjoint(words) or "".join(words).endswith(_SECRET_ENDINGS):
        return True
    return words[-1:] == ["key"] and _looks_random(value)


def _looks_random(value: str) -> bool:
    """Whether a value is a generated key rather than a word such as `recipes`."""
    return len(value) >= MIN_KEY and any(map(str.isalpha, value)) and any(map(str.isdigit, value))


class Redactor:
    """Removes the secrets of one URL from the data read there: from links that repeat a token, for instance."""

    def __init__(self, url: str) -> None:
        redacted = redact_url(url)
        secrets = list(_find_secrets(url, redacted)) if redacted != url else []
        self._in_messages = {secret: replacement for secret, replacement, _ in secrets}
        self._in_items = [
            (re.compile(f"{_BEFORE if secret[:1].isalnum() else ''}{re.escape(secret)}{behind}"), replacement)
            for secret, replacement, behind in secrets
            if behind is not None
        ]

    def __bool__(self) -> bool:
        """Whether the URL holds any secret."""
        return bool(self._in_messages)

    def redact(self, text: str) -> str:
        """Redact a message, wherever it repeats a secret."""
        for secret, replacement in self._in_messages.items():
            text = text.replace(secret, replacement)
        return text

    def redact_data(self, value: Any) -> Any:
        """Redact every text of an item. Words that only begin like a secret, and short secrets, stay as they are."""
        match value:
            case str():
                for pattern, replacement in self._in_items:
                    value = pattern.sub(lambda _, replacement=replacement: replacement, value)
                return value
            case Mapping():
                pairs = cast("Mapping[str, Any]", value).items()
                return {name: self.redact_data(inner) for name, inner in pairs}
            case list() | tuple():
                return [self.redact_data(inner) for inner in cast("list[Any]", value)]
            case _:
                return value


def _find_secrets(url: str, redacted: str) -> Iterator[tuple[str, str, str | None]]:
    """Find the secret parts of a URL as others may write them, the longest first.

    Each comes with its redacted form, and the pattern of what follows it in an item; None if it is too short for items.
    """
    yield url, redacted, _BEHIND
    scheme, _, rest = url.partition("://")
    if "+" in scheme and _WEB.fullmatch(scheme):  # feed+https://…, to which the links say https://…
        yield url.partition("+")[2], redacted.partition("+")[2], _BEHIND
    user = rest[: _end_of_user(scheme, rest)]
    if user:
        yield f"://{user}", f"://{HIDDEN}@", ""
        yield user, f"{HIDDEN}@", "" if len(user) > MIN_IN_ITEMS else None
    for match in re.finditer(r"(?<=[?&#;])([^?&#;=]*)=([^&#]*)", rest):
        name, value = match[1], match[2]
        if _redact_param(match) != match[0]:
            behind = _BEHIND if len(value) >= MIN_IN_ITEMS else None
            yield match[0], f"{name}={HIDDEN}", behind
            yield f"{unquote_plus(name)}={unquote_plus(value)}", f"{name}={HIDDEN}", behind
