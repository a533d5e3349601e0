"""How clients find their cluster that were not there when clusters were split.

A fork is a cluster that was split. Its model, and the mean update of each half, are kept: a client
that comes later trains that model, goes with the half whose update is more like its own, and so on
down to a cluster that is whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clove.algorithms.base import Asking
from clove.algorithms.updates import ask_updates, places_of
from clove.federation.parameters import Indices, Parameters, pick
from clove.federation.questions import Flags, Floats, LocalTraining


@dataclass
class Descent:
    """Clients on their way: where they are, whether they still reply, and how sure that is.

    `distances` are to the halves met on the way; to other clusters they are infinite.
    """

    clients: Indices
    clusters: Indices
    passed: Indices  # how many forks each was there for
    replied: Flags
    distances: Floats
    margins: Floats

    @classmethod
    def of(cls, clients: Indices, clusters: Indices, passed: Indices, number: int) -> Descent:
        """Begin in some clusters, of so many."""
        size = len(clients)
        distances = np.full((size, number), np.inf if number > 1 else 0.0)
        replied = np.ones(size, dtype=np.bool_)
        return cls(clients, clusters.copy(), passed, replied, distances, np.ones(size))

    def at(self, fork: int, cluster: int) -> Indices:
        """Return the places of those who stand at a fork."""
        here = self.replied & (self.clusters == cluster) & (self.passed <= fork)
        return np.flatnonzero(here)

    def take(self, places: Indices, halves: Indices, apart: Floats) -> None:
        """Let the clients at these places go where they are nearer."""
        self.distances[places[:, None], halves] = apart
        self.clusters[places] = halves[apart.argmin(axis=1)]
        near, other = np.sort(apart, axis=1).T
        sure = np.divide(other - near, other, out=np.zeros_like(near), where=other > 0)
        self.margins[places] = np.minimum(self.margins[places], sure)


def descend(
    down: Descent, forks: Indices, models: Parameters, updates: Parameters, training: LocalTraining
) -> Asking[None]:
    """Take clients through the forks, in the order they came about in."""
    for fork, halves in enumerate(forks):
        places = down.at(fork, halves[0])
        if len(places) == 0:
            continue
        asked, model = down.clients[places], pick(models, np.array([fork]))
        found = yield from ask_updates(model, places * 0, asked, training)
        down.replied[places] = False
        if found is not None:
            there = places[places_of(found.clients, asked)]
            down.replied[there] = True
            both = pick(updates, np.array([2 * fork, 2 * fork + 1]))
            down.take(there, halves, (1 - found.cosines(both)) / 2)
