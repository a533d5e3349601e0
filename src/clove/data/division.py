"""Dividing points: evenly, by shares, or by counts."""

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


def apportion(totals: Array, shares: Array) -> Array:
    """Turn shares of every label's points into whole numbers of points.

    `totals` has one entry a label, `shares` is `[parties, labels]`. No count is off by a whole
    point, and a label of which all is shared out is used up to the last point.
    """
    # Rounding the running sums, not the shares, is what makes the counts add up. All round the same
    # way at one half, so that a share of one whole point is never rounded away.
    edges = np.floor(np.cumsum(shares, axis=0) * totals + (0.5 + 1e-9)).astype(np.int64)
    return np.diff(edges, axis=0, prepend=0)


def hand_out(labels: Array, counts: Array, generator: np.random.Generator) -> list[Array]:
    """Give each party its count of points of every label, drawn at random, no point twice.

    `counts` is `[parties, labels]`. Returns the indices of the points of each party.
    """
    hands: list[list[Array]] = [[] for _ in counts]
    for label, column in enumerate(counts.T):
        order = generator.permutation(np.flatnonzero(labels == label))
        pieces = np.split(order, np.cumsum(column))  # the last is what nobody gets
        for hand, piece in zip(hands, pieces, strict=False):
            hand.append(piece)
    return [np.concatenate(hand) for hand in hands]
