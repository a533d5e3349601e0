"""Arrays of the clustering room: how they are checked, numbered and averaged."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


def finite_matrix(values: ArrayLike, name: str, min_rows: int = 1) -> FloatArray:
    """Return the values as a matrix of finite floats, or say which row is not fit for one."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, one row each, not {matrix.ndim}")
    if len(matrix) < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} row(s), not {len(matrix)}")
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"{name} must be finite numbers: row {row} holds NaN or infinity")
    return matrix


def number_by_first_member(labels: ArrayLike) -> IntArray:
    """Renumber groups from zero in the order in which their first members appear.

    >>> number_by_first_member([7, 7, 2, 9, 2]).tolist()
    [0, 0, 1, 2, 1]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank: IntArray = np.argsort(np.argsort(first))
    return rank[inverse]


def group_equal(vectors: FloatArray) -> IntArray:
    """Return one group a distinct vector: no clustering can tell its members apart."""
    _, inverse = np.unique(vectors, axis=0, return_inverse=True)
    # numpy 2.0 gives the inverse a second axis here, versions before and after do not.
    return number_by_first_member(inverse.reshape(-1))


def count_groups(labels: IntArray) -> int:
    """Return how many groups there are, where they are numbered from zero without gaps."""
    return int(labels.max()) + 1


def group_means(vectors: FloatArray, labels: IntArray) -> FloatArray:
    """Return the mean vector of each group, in the order of their numbers."""
    sums = np.zeros((count_groups(labels), vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    means: FloatArray = sums / np.bincount(labels)[:, np.newaxis]
    return means
