"""Clients' samples as points, and the directions they lie in: for summaries of data."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits
from torch import Tensor

from clove.federation.questions import Floats


def as_points(x: Tensor) -> Floats:
    """Return samples as rows of numbers, in double precision."""
    return x.flatten(1).to("cpu", torch.float64).numpy()


def leading_directions(rows: Floats, number: int) -> Floats:
    """Return the singular vectors of the largest singular values, as columns as long as a row.

    They come from the smaller of the two matrices of products, since few are wanted of many. Where
    rows span fewer dimensions, the last columns are zeros.
    """
    # Threads have little to share out of matrices this small, and spend their time on waiting for
    # each other: on busy processors a hundred times as much as the arithmetic takes.
    with threadpool_limits(1, user_api="blas"):
        return _leading_directions(rows, number)


def _leading_directions(rows: Floats, number: int) -> Floats:
    wide = rows.shape[0] < rows.shape[1]
    products = rows @ rows.T if wide else rows.T @ rows
    size = len(products)
    found = min(number, size)
    values, vectors = eigh(products, subset_by_index=[size - found, size - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    there = values > values[:1] * size * np.finfo(np.float64).eps
    if wide:
        lengths = np.sqrt(np.where(there, values, 1.0))
        vectors = rows.T @ vectors / lengths
    directions = np.zeros((rows.shape[1], number))
    directions[:, :found] = np.where(there, vectors, 0.0)
    return directions
