"""Choosing among the people whose writing a data set holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data.options import whole_number
from clove.errors import CloveError

Array = NDArray[Any]


def drawn(writers: Array, count: int | None, generator: np.random.Generator) -> Array:
    """Draw so many writers, or take all, in ascending order.

    A larger draw contains every smaller one with the same generator, so that clients are added.
    """
    if count is None:
        return np.sort(writers)
    wanted = whole_number("writers", count)
    if wanted > len(writers):
        raise CloveError(f"writers={wanted}, but there are {len(writers)} to draw from")
    return np.sort(generator.permutation(writers)[:wanted])


def rows_of(writers: Array, chosen: Array) -> tuple[Array, Array]:
    """Return the rows of chosen writers, and for each row the number of its writer among them."""
    rows = np.flatnonzero(np.isin(writers, chosen))
    return rows, np.searchsorted(chosen, writers[rows])
