"""What methods have in common that look at how clients change the model they are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clove.federation.parameters import (
    Indices,
    Parameters,
    difference,
    inner_products,
    pick,
    squared_lengths,
)
from clove.federation.questions import Floats, LocalTraining, Train, Trained

if TYPE_CHECKING:
    from clove.algorithms.base import Asking

WEIGHTINGS = ("equal", "samples")


@dataclass(frozen=True)
class Updates:
    """What clients trained, and how that differs from what they started from.

    Running statistics (`statistics`) are averaged like all else, but have no part in lengths,
    distances and angles: they are no parameters.
    """

    clients: Indices
    samples: Floats
    models: Parameters
    changes: Parameters
    statistics: frozenset[str]

    def weights(self, weighting: str) -> Floats:
        """Return how much each client counts in a mean: as much as any other, or its samples."""
        return self.samples if weighting == "samples" else np.ones(len(self.clients))

    def products(self, places: Indices) -> Floats:
        """Return the inner products of the updates of the clients at some places."""
        some = pick(self.changes, places)
        return inner_products(some, some, self.statistics)

    def similarities(self, places: Indices) -> Floats:
        """Return the cosines of the updates of the clients at some places with each other."""
        products = self.products(places)
        squared = products.diagonal()
        return _cosines(products, squared, squared)

    def cosines(self, directions: Parameters) -> Floats:
        """Return the cosine of each client's update with each direction; 0 where one is nought."""
        mine = squared_lengths(self.changes, self.statistics)
        theirs = squared_lengths(directions, self.statistics)
        return _cosines(inner_products(self.changes, directions, self.statistics), mine, theirs)

    def squared_distances(self, models: Parameters) -> Floats:
        """Return the squared distance of what each client trained to each of some models."""
        mine = squared_lengths(self.models, self.statistics)
        theirs = squared_lengths(models, self.statistics)
        products = inner_products(self.models, models, self.statistics)
        return np.maximum(mine[:, None] + theirs - 2 * products, 0.0)


def ask_updates(
    models: Parameters, start: Indices, clients: Indices, training: LocalTraining
) -> Asking[Updates | None]:
    """Let each client train the model `start` names; None where nobody replies."""
    trained: Trained = yield Train(models, start, clients, training)
    if trained.models is None:
        return None
    started = pick(models, start[places_of(trained.clients, clients)])
    changes = difference(trained.models, started)
    return Updates(trained.clients, trained.samples, trained.models, changes, trained.values)


def places_of(some: Indices, clients: Indices) -> Indices:
    """Return the places that some of the clients have among all of them."""
    order = np.argsort(clients)
    return order[np.searchsorted(clients, some, sorter=order)]


def shares_of(groups: Floats) -> Floats:
    """Return rows of weights so that each adds up to 1, or is nought throughout."""
    totals = groups.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(groups, totals, out=np.zeros(groups.shape), where=totals > 0)
    return shares


def _cosines(products: Floats, squared: Floats, others: Floats) -> Floats:
    lengths = np.sqrt(np.outer(squared, others))
    found = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return np.clip(found, -1.0, 1.0)
