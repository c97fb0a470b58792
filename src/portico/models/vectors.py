"""What all embedders share: unit vectors, and a cache of the vectors of recent queries."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

CACHED_QUERIES = 1024


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Scale each row to length one, so that a dot product is a cosine. A row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)


def cache_queries(embed: Callable[[str], Vectors]) -> Callable[[str], Vectors]:
    """Return `embed` with a cache. Callers share the vectors, so these are read-only."""

    @lru_cache(maxsize=CACHED_QUERIES)
    def embed_cached(text: str) -> Vectors:
        vector = embed(text)
        vector.setflags(write=False)
        return vector

    return embed_cached
