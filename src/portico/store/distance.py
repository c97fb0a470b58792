"""How near vectors lie to one another: the same number for the same two vectors, wherever they are compared."""

import numpy as np
from numpy.typing import NDArray

from portico.query import Near

DIGITS = 6  # of a rank: those behind them depend on how numbers were added

Doubles = NDArray[np.float64]


def similarity(near: Near, matrix: Doubles) -> Doubles:
    """How near each row lies: greater is nearer. Euclidean distances are negated."""
    wanted = np.asarray(near.vector, np.float64)
    match near.metric:
        case "euclidean":
            return -np.sqrt(_sums((matrix - wanted) ** 2))
        case "dot_product":
            return _sums(matrix * wanted)
        case "cosine":
            lengths = np.sqrt(_sums(matrix * matrix) * (wanted * wanted).sum())
            return _sums(matrix * wanted) / np.maximum(lengths, 1e-12)


def _sums(rows: Doubles) -> Doubles:
    """Each row by itself, so that a sum does not depend on the rows around it; that of a matrix product may."""
    return rows.sum(axis=1)


def rounded(ranks: Doubles) -> Doubles:
    return np.round(ranks, DIGITS)


def is_near_enough(near: Near, ranks: Doubles) -> NDArray[np.bool_]:
    """Which of these rounded ranks the threshold lets through."""
    if near.threshold is None:
        return np.isfinite(ranks)
    least = -near.threshold if near.metric == "euclidean" else near.threshold
    return ranks >= round(least, DIGITS)
