"""Similarity of vectors: the same number for the same two vectors, wherever they are compared."""

import numpy as np
from numpy.typing import NDArray

from portico.query import NearVector

DIGITS = 6  # of a rank: further ones depend on the order of additions

Doubles = NDArray[np.float64]


def similarity(near: NearVector, matrix: Doubles) -> Doubles:
    """Return the similarity of each row: greater is nearer. Euclidean distances are negated."""
    target = np.asarray(near.vector, np.float64)
    match near.metric:
        case "euclidean":
            return -np.sqrt(_sums((matrix - target) ** 2))
        case "dot_product":
            return _sums(matrix * target)
        case "cosine":
            lengths = np.sqrt(_sums(matrix * matrix) * (target * target).sum())
            return _sums(matrix * target) / np.maximum(lengths, 1e-12)


def _sums(rows: Doubles) -> Doubles:
    """Sum each row by itself: in a matrix product, a sum may depend on the other rows."""
    return rows.sum(axis=1)


def round_ranks(ranks: Doubles) -> Doubles:
    return np.round(ranks, DIGITS)


def meets_threshold(near: NearVector, ranks: Doubles) -> NDArray[np.bool_]:
    """Return which of these rounded ranks meet the threshold."""
    if near.threshold is None:
        return np.isfinite(ranks)
    least = -near.threshold if near.metric == "euclidean" else near.threshold
    return ranks >= round(least, DIGITS)
