"""Probe models: a first grouping from more models than groups. Our own addition to CLoVE.

K untrained models tell clients apart poorly. Two cheap sources of better loss vectors, used once,
before the first round's training:

- *trained*: some clients, drawn at random, each train the same initial model for a few epochs, and
  every client is clustered by its losses on these probes. A client's loss on its own probe would be
  too good, so a prober trains on a share of its data and measures its own entry on the rest. The
  models of the groups then start from the mean of their members' probes.
- *random*: many untrained networks, which every client makes itself from a seed: no parameters
  travel at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clove import seeds
from clove.algorithms.base import Asking, drop_not_finite
from clove.federation.parameters import GroupSums, Indices, Parameters, pick
from clove.federation.questions import (
    Floats,
    Losses,
    LossVectors,
    Seeded,
    Train,
    Trained,
    Unseen,
)

if TYPE_CHECKING:
    from clove.algorithms.clove import Clove

PROBES = ("none", "trained", "random")


@dataclass(frozen=True)
class Probes:
    """Trained probes: the models, who trained each, and on how many samples."""

    models: Parameters
    probers: Indices
    samples: Floats


Probing = Asking[tuple[Probes | None, LossVectors, list[int]]]


def trained_probes(method: Clove, cohort: Indices, number: int, batch_statistics: int) -> Probing:
    """Let `number` clients train probes, and ask everybody's losses on them."""
    setup = method.setup
    draw = seeds.stream(setup.seed, "probers")
    probers = np.sort(draw.choice(cohort, size=min(number, len(cohort)), replace=False))
    training = replace(setup.training, epochs=method.probe_epochs, purpose="probe-batches")
    trained: Trained = yield Train(
        setup.initial(1, "same"),
        np.zeros(len(probers), dtype=np.int64),
        probers,
        training,
        share=method.probe_share,
    )
    if trained.models is None:
        return None, LossVectors(cohort[:0], np.zeros((0, 1))), []
    own = np.full(setup.clients, -1)
    own[trained.clients] = np.arange(len(trained.clients))
    unseen = Unseen(own[cohort], method.probe_share) if method.probe_share < 1 else None
    answer: LossVectors = yield Losses(trained.models, cohort, batch_statistics, unseen)
    vectors, aside = drop_not_finite(answer)
    return Probes(trained.models, trained.clients, trained.samples), vectors, aside


def random_probes(probes: Seeded, cohort: Indices, batch_statistics: int) -> Probing:
    """Ask everybody's losses on untrained networks made from a seed."""
    answer: LossVectors = yield Losses(probes, cohort, batch_statistics)
    vectors, aside = drop_not_finite(answer)
    return None, vectors, aside


def cluster_starts(probes: Probes, vectors: LossVectors, labels: Indices) -> Parameters:
    """Return a starting model for each cluster: the mean of its own members' probes.

    A cluster in which nobody trained a probe starts from the probe its members lose least on.
    """
    number = int(labels.max()) + 1
    cluster_of = dict(zip(vectors.clients.tolist(), labels.tolist(), strict=True))
    groups = np.array([cluster_of.get(int(prober), -1) for prober in probes.probers])
    weights = probes.samples.copy()
    members = [np.flatnonzero(groups == cluster) for cluster in range(number)]
    for cluster in range(number):
        if len(members[cluster]) == 0:
            losses = vectors.losses[labels == cluster].sum(axis=0)
            members[cluster] = np.array([int(losses.argmin())])
    chosen = np.concatenate(members)
    sums = GroupSums(number)
    into = np.repeat(np.arange(number), [len(own) for own in members])
    sums.add(pick(probes.models, chosen), into, weights[chosen])
    return sums.means()
