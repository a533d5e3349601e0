"""Sharing classes out by Dirichlet draws, among the clusters or clients that hold them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clove.data.dataset import Part
from clove.data.division import apportion, hand_out
from clove.data.mixings.cluster import Array
from clove.seeds import stream

TRIES = 100

# The authors' share of a class that is divided evenly, in percent: the first, and what is added
# when a cluster comes out too small.
RESERVE, STEP = 10, 5


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of both parts of a data set."""

    train: Array
    test: Array
    classes: int

    def totals(self, part: Part) -> Array:
        """Return how many points each class has."""
        return np.bincount(self.of(part), minlength=self.classes)

    def of(self, part: Part) -> Array:
        """Return the labels of one part."""
        return self.train if part == "train" else self.test

    def hand_out(self, part: Part, counts: Array, seed: int) -> list[Array]:
        """Return the points of each party, `counts` being `[parties, classes]`."""
        return hand_out(self.of(part), counts, stream(seed, "mixing/points", part == "test"))


def dirichlet_shares(holds: Array, alpha: float, generator: np.random.Generator) -> Array:
    """Draw what share of each class every party gets; `holds` says who gets any of it.

    Both are `[parties, classes]`. The shares of a class add up to one, unless nobody holds it.
    """
    shares = np.zeros(holds.shape)
    for label, column in enumerate(holds.T):
        parties = np.flatnonzero(column)
        if len(parties):
            shares[parties, label] = generator.dirichlet(np.full(len(parties), alpha))
    return shares


def fair_shares(
    draw: Callable[[np.random.Generator], Array], labels: Labels, least: tuple[int, int], seed: int
) -> tuple[Array, bool]:
    """Draw shares until every party gets at least so many training and test points.

    After a bounded number of draws the best of them is taken: that in which the party worst off
    comes nearest to what it should get. Returns the shares, and whether all get enough.
    """
    totals = labels.totals("train"), labels.totals("test")
    best, most = None, -1.0
    for attempt in range(TRIES):
        shares = draw(stream(seed, "mixing/dirichlet", attempt))
        enough = min(
            apportion(have, shares).sum(axis=1).min() / need
            for have, need in zip(totals, least, strict=True)
        )
        if enough > most:
            best, most = shares, enough
        if enough >= 1:
            break
    assert best is not None
    return best, most >= 1


def reserved_counts(
    holds: Array, alpha: float, totals: Array, least: float, seed: int, part: Part
) -> Array:
    """Draw counts as the authors do: each part by itself, with a reserve that is divided evenly.

    The reserve grows until every party gets `least` points, or the whole class is divided evenly.
    """
    even = holds / np.maximum(holds.sum(axis=0), 1)
    counts = np.zeros(holds.shape, np.int64)
    for percent in range(RESERVE, 101, STEP):
        generator = stream(seed, "mixing/dirichlet", part == "test", percent)
        reserve = percent / 100
        drawn = (1 - reserve) * dirichlet_shares(holds, alpha, generator)
        counts = apportion(totals, reserve * even + drawn)
        if counts.sum(axis=1).min() >= least:
            break
    return counts
