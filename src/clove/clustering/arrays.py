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
    finite = np.isfinite(matrix)
    if not finite.all():
        row = int(np.argmin(finite.all(axis=1)))
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
    groups: IntArray = np.zeros(len(vectors), dtype=np.intp)
    for column in vectors.T:
        _, values = np.unique(column, return_inverse=True)
        _, groups = np.unique(groups * len(vectors) + values, return_inverse=True)
        if count_groups(groups) == len(vectors):  # as a rule, after the first column
            break
    return number_by_first_member(groups)


def few_distinct(vectors: FloatArray, fewer_than: int) -> IntArray | None:
    """Return `group_equal` if there are fewer distinct vectors than that, else None.

    Where clients differ a few of them show it, and nobody need compare them all.

    >>> few_distinct(np.array([[1.0], [2.0], [1.0]]), fewer_than=3).tolist()
    [0, 1, 0]
    """
    rows = 4 * fewer_than
    while rows < len(vectors):
        if count_groups(group_equal(vectors[:rows])) >= fewer_than:
            return None
        rows *= 8
    groups = group_equal(vectors)
    return groups if count_groups(groups) < fewer_than else None


def count_groups(labels: IntArray) -> int:
    """Return how many groups there are, where they are numbered from zero without gaps."""
    return int(labels.max()) + 1


def group_sums(vectors: FloatArray, labels: IntArray, groups: int) -> FloatArray:
    """Return the sum of the vectors of each group, in the order of their numbers."""
    columns = [np.bincount(labels, weights=column, minlength=groups) for column in vectors.T]
    return np.stack(columns, axis=1)


def group_means(vectors: FloatArray, labels: IntArray) -> FloatArray:
    """Return the mean vector of each group, in the order of their numbers."""
    groups = count_groups(labels)
    means: FloatArray = group_sums(vectors, labels, groups) / np.bincount(labels)[:, np.newaxis]
    return means
