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
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

from portico.errors import ConfigError
from portico.models.language import LanguageModel, Prompt, Usage, estimate_tokens
from portico.models.local import local_model_available, open_folder, open_local
from portico.models.urls import Secret
from portico.models.vectors import Vectors
from portico.plugins import MODELS, Registry

__all__ = [
    "LANGUAGE_SCHEMES",
    "SCHEMES",
    "Embedder",
    "LanguageModel",
    "ModelProvider",
    "Prompt",
    "Usage",
    "Vectors",
    "estimate_tokens",
    "local_model_available",
    "open_embedder",
    "open_language_model",
]


SCHEMES = ("local", "onnx", "openai", "openai+http", "none")
LANGUAGE_SCHEMES = ("openai", "openai+http", "anthropic", "anthropic+http", "none")


class Embedder(Protocol):
    """Turns texts into unit vectors. Blocking; may be called from several threads at once."""

    name: str
    """The model and its version. Stored with vectors: those of two names cannot be compared."""

    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in their order."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """Return one read-only vector, with the query instruction if there is one. Recent queries are cached."""
        ...


class ModelProvider(NamedTuple):
    """What an installed package adds through an entry point of the group `portico.models`, named by a URL's scheme.

    Each function takes the parts of the URL, and a function that returns the value of an environment variable.
    """

    open_embedder: Callable[[SplitResult, Secret], Embedder] | None = None
    open_language_model: Callable[[SplitResult, Secret], LanguageModel] | None = None


def open_embedder(url: str, *, secret: Secret) -> Embedder | None:
    """Open the embedder that a URL names. Return None for `none:`, and for `local:` without its wheel.

    `secret` returns the value of an environment variable. A service is not contacted before the first text.
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
            # Takes half a second to import: only for sites that use a service.
            return import_module("portico.models.openai").open_service(parts, secret)
        case _:
            opener = _find_provider(parts.scheme).open_embedder
            if opener is None:
                raise _unknown_scheme(parts, "embedder", SCHEMES)
            return opener(parts, secret)


def open_language_model(
    url: str, *, secret: Secret, clock: Callable[[], float] = time.monotonic
) -> LanguageModel | None:
    """Open the language model that a URL names, or return None for `none:`.

    `secret` returns the value of an environment variable; `clock` measures the pauses of a failing model. A service
    is not contacted before the first prompt.
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
            opener = _find_provider(parts.scheme).open_language_model
            if opener is None:
                raise _unknown_scheme(parts, "language model", LANGUAGE_SCHEMES)
            return opener(parts, secret)


@cache
def _providers() -> Registry[ModelProvider]:
    return Registry(MODELS, dict.fromkeys({*SCHEMES, *LANGUAGE_SCHEMES}, ""), ModelProvider)


def _find_provider(scheme: str) -> ModelProvider:
    return _providers().get(scheme) if _providers().adds(scheme) else ModelProvider()


def _split(url: str, part: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"The {part}'s URL is malformed", hint=str(error)) from error


def _unknown_scheme(parts: SplitResult, part: str, schemes: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"No {part} has the scheme {parts.scheme!r}",
        hint=f"Known schemes: {', '.join(f'{scheme}:' for scheme in schemes)}",
    )
