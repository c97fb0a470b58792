"""Parses the URL of a model: its options, such as `?threads=1`, and the endpoint, model and key of a service."""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote

import httpx
import msgspec

from portico.errors import ConfigError

Options = TypeVar("Options", bound=msgspec.Struct)
Secret: TypeAlias = Callable[[str], str] | None  # the value of an environment variable


def parse_options(url: SplitResult, kind: type[Options]) -> Options:
    """Return the options of a URL; refuse unknown, repeated and mistyped ones."""
    pairs = parse_qsl(url.query, keep_blank_values=True)
    twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if twice:
        raise ConfigError(f"The {url.scheme}: model URL gives {', '.join(twice)} more than once")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise ConfigError(
            f"The options of the {url.scheme}: model URL are wrong: {error}", hint=f"Known options: {names}."
        ) from error


def service_url(url: SplitResult, path: str, example: str = "") -> tuple[httpx.URL, str]:
    """Return the endpoint of a service, and the name of the model."""
    if "@" in url.netloc:
        raise ConfigError("A model URL must not hold a user or a key", hint="Name the key's variable with key_env=.")
    base, _, model = url.path.rpartition("/")
    if not url.hostname or not model:
        raise ConfigError(
            f"The {url.scheme}: model URL must name a host and a model",
            hint=f"Write {url.scheme}://host/v1/model{example}; a slash in the model's name is %2F.",
        )
    protocol = "http" if url.scheme.endswith("+http") else "https"
    try:
        return httpx.URL(f"{protocol}://{url.netloc}{base}/{path}"), unquote(model)
    except httpx.InvalidURL as error:
        raise ConfigError("The model's URL is malformed", hint=str(error)) from error


def service_key(variable: str, secret: Secret, what: str) -> str:
    """Return the key in an environment variable. `what` names its purpose in the error."""
    try:
        key = secret(variable).strip() if secret else ""
    except KeyError:
        key = ""
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"The environment variable {variable} holds no usable key for the {what}",
            hint="Set it, or remove key_env if the service needs no key.",
            variable=variable,
        )
    return key
