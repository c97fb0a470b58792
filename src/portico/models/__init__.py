"""Models behind one small interface, named by URL. Reads no settings and no environment.

local:                                the model in the installed wheel; threads, max_tokens, query_prefix
onnx:///folder?pooling=cls            a folder with model.onnx and vocab.txt; also pooling, sha256
openai://host/v1/model?dimensions=N   a service over https; openai+http:// for a local one
none:                                 no embedder: text search alone

And language models:

openai://host/v1/model                a service that speaks chat completions; openai+http:// for a local one
anthropic://host/v1/model             a service that speaks Anthropic's messages; also anthropic+http://
none:                                 no language model
"""

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from portico.errors import ConfigError
from portico.models.language import LanguageModel, Prompt, Usage, tokens
from portico.models.local import local_model_available, open_folder, open_local
from portico.models.vectors import Vectors

__all__ = [
    "LANGUAGE_SCHEMES",
    "SCHEMES",
    "Embedder",
    "LanguageModel",
    "Prompt",
    "Usage",
    "Vectors",
    "local_model_available",
    "open_embedder",
    "open_language_model",
    "tokens",
]

SCHEMES = ("local", "onnx", "openai", "openai+http", "none")
LANGUAGE_SCHEMES = ("openai", "openai+http", "anthropic", "anthropic+http", "none")


class Embedder(Protocol):
    """Turns texts into unit vectors. Blocking; may be called from several threads at once."""

    name: str
    """The model and its version. Stored beside vectors: those of two names cannot be compared."""

    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, in their order."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """One read-only vector, with the query instruction if there is one. Recent queries are remembered."""
        ...


def open_embedder(url: str, *, secret: Callable[[str], str] | None) -> Embedder | None:
    """None for `none:`, and for `local:` when its wheel is not installed.

    `secret` gives the value of an environment variable. A service is not contacted before the first text.
    """
    parts = _split(url, "embedder")
    match parts.scheme:
        case "none":
            return None
        case "local":
            return open_local(parts)
        case "onnx":
            return open_folder(parts)
        case "openai" | "openai+http":
            # Half a second to import, for those who use a service.
            return import_module("portico.models.openai").open_service(parts, secret)
        case _:
            raise _unknown_scheme(parts, "embedder", SCHEMES)


def open_language_model(
    url: str, *, secret: Callable[[str], str] | None, clock: Callable[[], float] = time.monotonic
) -> LanguageModel | None:
    """None for `none:`. A service is not contacted before the first prompt.

    `secret` gives the value of an environment variable, `clock` the seconds for which a failing model rests.
    """
    parts = _split(url, "language model")
    match parts.scheme:
        case "none":
            return None
        case "openai" | "openai+http":
            return import_module("portico.models.chat").open_model(parts, secret, clock)
        case "anthropic" | "anthropic+http":
            return import_module("portico.models.anthropic").open_model(parts, secret, clock)
        case _:
            raise _unknown_scheme(parts, "language model", LANGUAGE_SCHEMES)


def _split(url: str, part: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"The {part}'s URL is malformed", hint=str(error)) from error


def _unknown_scheme(parts: SplitResult, part: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"No {part} has the scheme {parts.scheme!r}",
        hint=f"Known schemes: {', '.join(f'{scheme}:' for scheme in known)}",
    )
