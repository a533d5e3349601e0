"""Dividing points evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def deal(
    count: int, parts: int, generator: np.random.Generator, labels: Array | None = None
) -> list[Array]:
    """Deal `count` points to `parts` hands, like cards sorted by label after shuffling.

    Every label is spread evenly: two hands differ by at most one point of it, and by at most one
    point in all. Returns the indices of the points of each hand.
    """
    order = generator.permutation(count)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    return [order[part::parts] for part in range(parts)]
