"""The vectors of one collection in a growing matrix. Knows numbers only."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from portico.query import NearVector
from portico.store.distance import meets_threshold, round_ranks, similarity

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
ROUNDING = 1e-4  # more than the error of quick products
GATHERED_BELOW = 0.15  # of all rows: below this share, multiplying only the wanted rows is cheaper


class VectorMatrix:
    """One row for each item that has a vector. Rows are written by one thread and read by many."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.matrix: Floats = np.zeros((1024, dimensions), np.float32)
        self.count = 0
        self._slots: dict[str, int] = {}
        self._free: list[int] = []

    def slot(self, id: str) -> int:
        return self._slots.get(id, -1)

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, ids: Sequence[str], rows: Floats) -> list[int]:
        """Store rows and say where they lie."""
        slots = [self._place(id) for id in ids]
        self.matrix[slots] = rows
        return slots

    def remove(self, id: str) -> None:
        slot = self._slots.pop(id, None)
        if slot is not None:
            self._free.append(slot)

    def _place(self, id: str) -> int:
        existing = self._slots.get(id)
        if existing is not None:
            return existing
        slot = self._free.pop() if self._free else self.count
        if slot == len(self.matrix):
            grown = np.zeros((len(self.matrix) * 2, self.dimensions), np.float32)
            grown[: len(self.matrix)] = self.matrix
            self.matrix = grown
        self.count = max(self.count, slot + 1)
        self._slots[id] = slot
        return slot

    def products(self, slots: NDArray[np.int32], vector: Floats) -> Floats:
        """The dot product of a vector with the rows at these slots; quick, and exact to some six digits."""
        if len(slots) < self.count * GATHERED_BELOW:
            return self.matrix[slots] @ vector
        return (self.matrix[: self.count] @ vector)[slots]

    def exact(self, slots: NDArray[np.int32], vector: Floats) -> Doubles:
        """The same, for a few rows: to the last digit, whatever rows lie around them."""
        return round_ranks((self.matrix[slots].astype(np.float64) * vector.astype(np.float64)).sum(axis=1))

    def rank_nearest(self, slots: NDArray[np.int32], near: NearVector) -> Doubles:
        """How near the rows at these slots lie, see `similarity`; -inf for those that are not among the nearest."""
        ranks = np.full(len(slots), -np.inf)
        close = nearest_candidates(_quick_similarity(near, self.matrix[slots]), near.top)
        exact = round_ranks(similarity(near, self.matrix[slots[close]].astype(np.float64)))
        ranks[close] = np.where(meets_threshold(near, exact), exact, -np.inf)
        return ranks


def nearest_candidates(quick: Floats, count: int) -> NDArray[np.int64]:
    """Which may be among the nearest, by quick products: those, and all that are closer to them than rounding."""
    if len(quick) <= count:
        return np.arange(len(quick))
    edge = float(np.partition(quick, -count)[-count])
    return np.flatnonzero(quick >= edge - ROUNDING * max(1.0, abs(edge)))


def _quick_similarity(near: NearVector, rows: Floats) -> Floats:
    target = np.asarray(near.vector, np.float32)
    match near.metric:
        case "euclidean":
            return -np.linalg.norm(rows - target, axis=1)
        case "dot_product":
            return rows @ target
        case "cosine":
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(target)
            return (rows @ target) / np.maximum(lengths, np.float32(1e-12))
