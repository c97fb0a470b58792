"""Vectors of one collection in a matrix that grows. Knows numbers; never what they mean."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from portico.query import Near
from portico.store.distance import is_near_enough, rounded, similarity

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
ROUNDING = 1e-4  # more than quick products can be wrong by
GATHERED_BELOW = 0.15  # of all rows: below this share, multiplying only the wanted rows is cheaper


class Vectors:
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
        known = self._slots.get(id)
        if known is not None:
            return known
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
        return rounded((self.matrix[slots].astype(np.float64) * vector.astype(np.float64)).sum(axis=1))

    def nearness(self, slots: NDArray[np.int32], near: Near) -> Doubles:
        """How near the rows at these slots lie, see `similarity`; -inf for those that are not among the nearest."""
        ranks = np.full(len(slots), -np.inf)
        close = nearest_of(_quick(near, self.matrix[slots]), near.top)
        exact = rounded(similarity(near, self.matrix[slots[close]].astype(np.float64)))
        ranks[close] = np.where(is_near_enough(near, exact), exact, -np.inf)
        return ranks


def nearest_of(quick: Floats, count: int) -> NDArray[np.int64]:
    """Which may be among the nearest, by quick products: those, and all that are closer to them than rounding."""
    if len(quick) <= count:
        return np.arange(len(quick))
    edge = float(np.partition(quick, -count)[-count])
    return np.flatnonzero(quick >= edge - ROUNDING * max(1.0, abs(edge)))


def _quick(near: Near, rows: Floats) -> Floats:
    wanted = np.asarray(near.vector, np.float32)
    match near.metric:
        case "euclidean":
            return -np.linalg.norm(rows - wanted, axis=1)
        case "dot_product":
            return rows @ wanted
        case "cosine":
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted)
            return (rows @ wanted) / np.maximum(lengths, np.float32(1e-12))
