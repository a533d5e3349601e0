"""Which samples a client uses in which step: one plan that serves every engine."""

from __future__ import annotations

from math import ceil

import numpy as np

from clove import seeds
from clove.federation.parameters import Indices
from clove.federation.questions import LocalTraining


def split_by_share(seed: int, client: int, samples: int, share: float) -> tuple[Indices, Indices]:
    """Split a client's samples into a part to train on and a part held back.

    The same split every time for the same seed and client. At least one sample stays in each part
    where there are two or more.
    """
    if share >= 1:
        return np.arange(samples), np.arange(0)
    order = seeds.stream(seed, "share", client).permutation(samples)
    cut = min(max(ceil(share * samples), 1), max(samples - 1, 1))
    return np.sort(order[:cut]), np.sort(order[cut:])


def consecutive(rows: Indices, size: int) -> list[Indices]:
    """Cut rows into batches as they come; a lone last one joins the batch before it.

    Because batch statistics of a single sample say nothing.
    """
    cuts = list(range(size, len(rows), size))
    if size > 1 and cuts and len(rows) - cuts[-1] == 1:
        cuts.pop()
    return np.split(rows, cuts)


def batch_plan(
    seed: int, round_number: int, client: int, rows: Indices, training: LocalTraining, pairs: bool
) -> list[Indices]:
    """Return the sample rows of every step of a client's training in a round.

    Each epoch is a new random order, cut into batches; the last may be short. With `pairs` a last
    batch of a single sample is left out where there are others, because batch normalisation cannot
    use it.
    """
    generator = seeds.stream(seed, training.purpose, round_number, client)
    plan: list[Indices] = []
    for _ in range(training.epochs):
        order = rows[generator.permutation(len(rows))]
        steps = [
            order[at : at + training.batch_size] for at in range(0, len(order), training.batch_size)
        ]
        if pairs and len(steps) > 1 and len(steps[-1]) == 1:
            steps.pop()
        plan += steps
    return plan
