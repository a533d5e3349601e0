"""Section 4 of the paper by rounds: how fast CLoVE's models approach the true parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import linregress, t

from clove.errors import CloveError
from clove.runs.api import run
from clove.runs.loop import Progress

Array = NDArray[np.float64]

CLUSTERS, DIMENSION, SEPARATION = 5, 20, 1.0
CLIENTS_PER_CLUSTER, POINTS = 5, 1000
PAPERS_STEP = (1 - SEPARATION / 12) / 2  # what the appendix sets η to
ABOVE = 3  # a model this many times the floor away is still on its way
ROUNDS = 20
SETTINGS: dict[str, Any] = {
    **{"dataset": "linear", "mixing": "none", "algorithm": "clove"},
    **{"clusters": CLUSTERS, "dimension": DIMENSION, "separation": SEPARATION},
    **{"clients_per_cluster": CLIENTS_PER_CLUSTER, "points_per_client": POINTS},
    **{"initial_models": "orthonormal", "transform": "sqrt", "optimizer": "sgd"},
    **{"engine": "vectorized", "device": "cpu", "precision": "fp64", "threads": 1},
}


@dataclass(frozen=True)
class Descent:
    """How models are trained: by averages of gradients (the theorem's way), or of models."""

    averaging: str = "gradients"
    learning_rate: float = PAPERS_STEP
    noise: float = 1e-3
    batch_size: int = POINTS

    def contraction(self, curvature: float = 1.0) -> float:
        """Return what a round leaves of a distance, |1 - 2ηλ| for each step.

        λ, an eigenvalue of the mean of x xᵀ, is one but for sampling.
        """
        steps = 1 if self.averaging == "gradients" else POINTS // self.batch_size
        return float(abs(1 - 2 * self.learning_rate * curvature) ** steps)

    @property
    def slowest(self) -> float:
        """The contraction where a sample of so many points has the least or the most curvature."""
        width = sqrt(DIMENSION / (CLIENTS_PER_CLUSTER * POINTS))
        return max(self.contraction((1 + side * width) ** 2) for side in (-1, 1))

    @property
    def floor(self) -> float:
        """How far least squares over all points of a cluster is from the true parameters."""
        return self.noise * sqrt(DIMENSION / (CLIENTS_PER_CLUSTER * POINTS))


DESCENTS = (
    *(Descent(learning_rate=step) for step in (0.1, 0.25, PAPERS_STEP)),
    *(Descent(noise=noise) for noise in (1e-4, 1e-2, 1e-1)),
    Descent("models", learning_rate=0.1, batch_size=POINTS // 5),
)


@dataclass
class Watch:
    """The largest distance of a cluster's model from its true parameters, and the ARI, by round.

    Round 0 is the model that a cluster was to be matched with, before training.
    """

    distances: list[float] = field(default_factory=list)
    ari: list[float | None] = field(default_factory=list)

    def __call__(self, progress: Progress) -> None:
        """Take note of a round."""
        if not self.distances:
            self._note(progress, progress.prepared.algorithm.begin())
            self.ari.append(None)
        self._note(progress, progress.state)
        self.ari.append(progress.records[-1]["ari"])

    def rows(self) -> list[dict[str, Any]]:
        """Return a row a round."""
        both = zip(self.distances, self.ari, strict=True)
        return [{"round": i, "distance": far, "ari": ari} for i, (far, ari) in enumerate(both)]

    def _note(self, progress: Progress, state: Any) -> None:
        clients = progress.prepared.clients
        assert clients.groups is not None
        assert clients.truth is not None
        (weight,) = state.models.values()
        models = weight[:, 0].double().cpu().numpy()
        # A cluster's model is that of most of its clients: one of them may be in a wrong cluster.
        of_cluster = [
            np.bincount(progress.assignment[clients.groups == k]).argmax() for k in range(CLUSTERS)
        ]
        distances = np.linalg.norm(models[of_cluster] - clients.truth, axis=1)
        self.distances.append(float(distances.max()))

    @property
    def right_from(self) -> int:
        """The round from which on the clustering is right; one past the last where it never is."""
        wrong = [number for number, ari in enumerate(self.ari) if ari != 1]
        return wrong[-1] + 1


def descend(descent: Descent, seed: int, rounds: int = ROUNDS) -> Watch:
    """Run CLoVE on mixed linear regression from orthonormal models, and watch its models."""
    watch = Watch()
    run(**SETTINGS, **asdict(descent), rounds=rounds, seed=seed, watch=watch)
    return watch


@dataclass(frozen=True)
class Rate:
    """The factor by which the distance shrinks in a round, above the floor."""

    distances: Sequence[float]
    floor: float

    @cached_property
    def rounds(self) -> int:
        """How many rounds from the first on end above the floor."""
        below = np.flatnonzero(np.asarray(self.distances) <= ABOVE * self.floor)
        return int(below[0]) if len(below) else len(self.distances)

    @property
    def value(self) -> float:
        """The factor, by least squares through the logarithms."""
        if self.rounds < 2:
            raise CloveError(
                f"no rate can be told: the distance is at the floor of {self.floor:.2g} "
                "before a second round; lower the noise or the learning rate"
            )
        logs = np.log(self.distances[: self.rounds])
        return float(np.exp(linregress(np.arange(self.rounds), logs).slope))

    @property
    def c1(self) -> float:
        """The largest c1 for which the distance after each of these rounds T is within Δ/c1^T."""
        rounds = np.arange(1, self.rounds)
        return float(((SEPARATION / np.asarray(self.distances)[rounds]) ** (1 / rounds)).min())


Rows = list[dict[str, Any]]


def descended(descent: Descent, seed: int) -> tuple[Rows, Rows]:
    """Make a run, and return what is kept of it: its rate, and its rounds."""
    identity, watch = {**asdict(descent), "seed": seed}, descend(descent, seed)
    rounds = [{**identity, **row} for row in watch.rows()]
    return [{**identity, **_rates(descent, watch)}], rounds


def _rates(descent: Descent, watch: Watch) -> dict[str, Any]:
    rate = Rate(watch.distances, descent.floor)
    return {
        "clusters": CLUSTERS,
        "clients": CLUSTERS * CLIENTS_PER_CLUSTER,
        "points": POINTS,
        "dimension": DIMENSION,
        "separation": SEPARATION,
        "contraction": descent.contraction(),
        "slowest": descent.slowest,
        "rate": rate.value,
        "c1": rate.c1,
        "rounds_above_floor": rate.rounds,
        "after_one_round": watch.distances[1],
        "last": watch.distances[-1],
        "floor": descent.floor,
        "right_from": watch.right_from,
    }


def mean_and_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of a few values, and the ends of its 95 % interval by Student's t."""
    some = np.asarray(values, dtype=float)
    if len(some) < 2:
        return float(some.mean()), float("nan"), float("nan")
    half = t.ppf(0.975, len(some) - 1) * some.std(ddof=1) / sqrt(len(some))
    return float(some.mean()), float(some.mean() - half), float(some.mean() + half)
