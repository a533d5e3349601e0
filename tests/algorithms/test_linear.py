"""Mixed linear regression, the setting of the paper's theory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

import clove

from .simulated import SEEDS, untraced

# With y = <θ*, x>, x ~ N(0, I), the squared error's gradient is 2 (θ − θ*) but for sampling, so
# that a step of 0.25 halves the distance.
STEP, HALF = 0.25, 0.5
ROUNDS = 14
NOISE_FLOOR = 1e-4  # a few times what the noise in the labels leaves at the end


@dataclass
class Distances:
    """How far each group's model is from the group's true parameters, round by round."""

    rounds: list[np.ndarray] = field(default_factory=list)
    ari: list[float] = field(default_factory=list)

    def __call__(self, progress):
        clients = progress.prepared.clients
        (weight,) = progress.state.models.values()
        first = [np.flatnonzero(clients.groups == group)[0] for group in range(5)]
        models = weight[progress.assignment[first], 0].double().numpy()
        self.rounds.append(np.linalg.norm(models - clients.truth, axis=1))
        self.ari.append(progress.records[-1]["ari"])


@cache
def run(seed: int) -> Distances:
    watch = Distances()
    with untraced():
        clove.run(
            dataset="linear",
            mixing="none",
            clients_per_cluster=5,
            points_per_client=1000,
            algorithm="clove",
            initial_models="orthonormal",
            transform="sqrt",
            averaging="gradients",
            learning_rate=STEP,
            rounds=ROUNDS,
            seed=seed,
            engine="vectorized",
            device="cpu",
            watch=watch,
        )
    return watch


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_clustering_finds_the_true_groups_and_none_loses_them(seed):
    assert run(seed).ari == [1.0] * ROUNDS


@pytest.mark.parametrize("seed", SEEDS)
def test_models_approach_the_true_parameters_geometrically_down_to_the_noise(seed):
    distances = np.array(run(seed).rounds)
    assert (distances[0] > 0.1).all()
    assert (distances[-1] < 3 * NOISE_FLOOR).all()
    above = distances[1:] > NOISE_FLOOR
    ratios = distances[1:] / distances[:-1]
    assert ratios[above].max() < HALF + 0.06
