"""From the URL of a model behind a service to where it is asked, its name and its key."""

from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import SplitResult, unquote

import httpx

from portico.errors import ConfigError

Secret: TypeAlias = Callable[[str], str] | None  # the value of an environment variable


def service_url(url: SplitResult, path: str, example: str = "") -> tuple[httpx.URL, str]:
    """Where a model is asked, and its name."""
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
    """The key in an environment variable; `what` it is for is said if there is none."""
    try:
        key = secret(variable).strip() if secret else ""
    except KeyError:
        key = ""
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"The environment variable {variable} holds no usable key for the {what}",
            hint="Set it, or leave key_env out when the service needs no key.",
            variable=variable,
        )
    return key
