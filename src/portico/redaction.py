"""Takes passwords and tokens out of URLs, so that they can be shown, logged and stored. Knows no settings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote_plus

HIDDEN = "***"

_URL = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>`]+""")
_WEB = re.compile(r"(?:.*\+)?(?:https?|wss?|ftps?)", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_SECRET_WORDS = frozenset(
    {"accesskey", "apikey", "auth", "authorization", "bearer", "credential", "credentials", "jwt", "passphrase"}
    | {"passwd", "password", "pwd", "secret", "sig", "signature", "token"}
)
_SECRET_ENDINGS = ("apikey", "accesskey", "password", "secret", "token")
# A whole connection string inside one parameter, as in odbc_connect=…;PWD=….
_CONNECTION_STRING = re.compile(r"(?:^|;)\s*(?:pwd|password)\s*=", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Return the URL without its password, and with *** for values of parameters that are named like secrets.

    Every password and token gives the same text: a source keeps its name when its password is changed. What is no URL,
    or holds no secret, comes back as it is.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    place, shown = _without_password(scheme, rest)
    return f"{scheme}{separator}{shown}{_redact_params(place)}"


def redact_text(text: str) -> str:
    """Return a text with every URL in it redacted."""
    return _URL.sub(lambda found: redact_url(found[0]), text) if "://" in text else text


def _without_password(scheme: str, rest: str) -> tuple[str, str]:
    """Split what follows `://` into what comes behind the host, and user and host without the password."""
    start = _end_of_user(scheme, rest)
    user = rest[:start]
    shown = f"{HIDDEN}@" if user and _WEB.fullmatch(scheme) else user.rstrip("@").partition(":")[0] + "@" * bool(user)
    end = re.search(r"[/?#]|$", rest[start:])
    length = end.start() if end else 0
    return rest[start + length :], shown + rest[start : start + length]


def _end_of_user(scheme: str, rest: str) -> int:
    """Return where the host begins. A password of a database may hold any character but `@`, as SQLAlchemy reads it."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority or _WEB.fullmatch(scheme) or not re.match(r"[^:/?#@]*:[^@]*@", rest):
        return authority.rfind("@") + 1
    first = rest.index("@") + 1
    return first + re.split(r"[/?#]", rest[first:], maxsplit=1)[0].rfind("@") + 1


def _redact_params(place: str) -> str:
    """Redact the parameters of what follows the host, in its query and in its fragment."""
    return re.sub(r"(?<=[?&#;])([^?&#;=]*)=([^&#]*)", _redact_param, place)


def _redact_param(found: re.Match[str]) -> str:
    name, value = found[1], unquote_plus(found[2])
    is_hidden = _is_secret(unquote_plus(name)) or _CONNECTION_STRING.search(value) or redact_text(value) != value
    return f"{name}={HIDDEN}" if is_hidden and value else found[0]


def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    return not _SECRET_WORDS.isdisjoint(words) or words[-1:] == ["key"] or joined.endswith(_SECRET_ENDINGS)


class Redactor:
    """Takes the secrets of one URL out of what was read from it: links that repeat a token, for instance."""

    def __init__(self, url: str) -> None:
        shown = redact_url(url)
        self._replaced = dict(_replacements(url, shown)) if shown != url else {}

    def __bool__(self) -> bool:
        """Whether the URL holds any secret."""
        return bool(self._replaced)

    def redact(self, text: str) -> str:
        for secret, shown in self._replaced.items():
            text = text.replace(secret, shown)
        return text

    def redact_data(self, value: Any) -> Any:
        """Redact every text of a JSON value."""
        match value:
            case str():
                return self.redact(value)
            case Mapping():
                pairs = cast("Mapping[str, Any]", value).items()
                return {name: self.redact_data(inner) for name, inner in pairs}
            case list() | tuple():
                return [self.redact_data(inner) for inner in cast("list[Any]", value)]
            case _:
                return value


def _replacements(url: str, shown: str) -> Iterator[tuple[str, str]]:
    """The secret parts of a URL as others may write them, the longest first."""
    yield url, shown
    scheme, _, rest = url.partition("://")
    user = rest[: _end_of_user(scheme, rest)]
    if user:
        yield user, f"{HIDDEN}@"
    for found in re.finditer(r"(?<=[?&#;])([^?&#;=]*)=([^&#]*)", rest):
        if _redact_param(found) != found[0]:
            yield found[0], f"{found[1]}={HIDDEN}"
            yield f"{unquote_plus(found[1])}={unquote_plus(found[2])}", f"{found[1]}={HIDDEN}"
