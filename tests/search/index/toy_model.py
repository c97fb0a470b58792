"""A stand-in for an embedding model: words that mean the same lie on the same axis."""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from portico.errors import Unavailable

SYNONYMS = {"automobile": "car", "vehicle": "car", "feline": "cat", "kitten": "cat", "broth": "soup"}


class ToyModel:
    """Implements Embedder. Counts what it is given; fails as often as it is told to."""

    dimensions = 32

    def __init__(self, name: str = "toy-1", failures: int = 0) -> None:
        self.name = name
        self.failures = failures
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.failures:
            self.failures -= 1
            raise Unavailable("The model does not answer")
        self.texts.extend(texts)
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        if self.failures:
            self.failures -= 1
            raise Unavailable("The model does not answer")
        return self._vector(text)

    def _vector(self, text: str) -> NDArray[np.float32]:
        vector = np.full(self.dimensions, 1e-3, np.float32)
        for word in text.lower().replace(".", " ").split():
            vector[zlib.crc32(SYNONYMS.get(word, word).encode()) % self.dimensions] += 1.0
        return vector / np.linalg.norm(vector)
