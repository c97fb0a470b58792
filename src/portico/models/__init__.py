"""Models behind one small interface, named by URL. Reads no settings and no environment.

local:                                the model in the installed wheel; threads, max_tokens, query_prefix
onnx:///folder?pooling=cls            a folder with model.onnx and vocab.txt; also pooling, sha256
openai://host/v1/model?dimensions=N   a service over https; openai+http:// for a local one
none:                                 no embedder: text search alone
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol
from urllib.parse import urlsplit

from portico.errors import ConfigError
from portico.models.local import local_model_available, open_folder, open_local
from portico.models.vectors import Vectors

__all__ = ["SCHEMES", "Embedder", "Vectors", "local_model_available", "open_embedder"]

SCHEMES = ("local", "onnx", "openai", "openai+http", "none")


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
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError("The embedder's URL is malformed", hint=str(error)) from error
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
            raise ConfigError(
                f"No embedder has the scheme {parts.scheme!r}",
                hint=f"Known schemes: {', '.join(f'{scheme}:' for scheme in SCHEMES)}",
            )
