"""What every embedder does with its vectors: bring them to length one, remember recent queries."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

REMEMBERED_QUERIES = 1024


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Each row at length one, so that a dot product is a cosine. A row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)


def remember(embed: Callable[[str], Vectors]) -> Callable[[str], Vectors]:
    """The same query is embedded once. Callers share the vector, so it cannot be written to."""

    @lru_cache(maxsize=REMEMBERED_QUERIES)
    def remembered(text: str) -> Vectors:
        vector = embed(text)
        vector.setflags(write=False)
        return vector

    return remembered
