"""Section 4 of the paper in numbers: clients of a mixed linear regression, clustered in one shot.

Data are as the section defines them: y = <θ*, x> + ε with x ~ N(0, I), ε ~ N(0, σ²) and |θ*| = 1,
the θ* of any two clusters at least Δ apart. Here is what its theorem on the first clustering and
the lemmas below it say of square roots of losses; `theory_convergence` has what follows by rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log, sqrt
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist
from scipy.special import gammaln
from scipy.stats import binomtest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from clove import seeds
from clove.clustering import LossVectorClustering, transform_losses
from clove.data.linear import true_parameters
from clove.errors import CloveError

Array = NDArray[np.float64]
Groups = NDArray[np.intp]
Generator = np.random.Generator

TOLERANCE = 0.05  # δ, the share of draws in which the lemma on concentration may fail


@dataclass(frozen=True)
class Mixture:
    """A mixed linear regression: K clusters, M clients, n points each, d dimensions, Δ, σ."""

    clusters: int = 5
    clients: int = 50
    points: int = 100
    dimension: int = 20
    separation: float = 1.0
    noise: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("clusters", 2), ("points", 1), ("dimension", 2)):
            if getattr(self, name) < least:
                raise CloveError(f"{name} must be {least} or more, not {getattr(self, name)}")
        if self.clients < self.clusters:
            raise CloveError(
                f"{self.clients} clients cannot be of {self.clusters} clusters: "
                "raise clients or lower clusters"
            )
        if self.noise < 0:
            raise CloveError(f"noise must not be negative, but is {self.noise:g}")

    @property
    def groups(self) -> Groups:
        """The cluster of each client; clusters have the same number of clients, or one more."""
        return np.arange(self.clients) * self.clusters // self.clients

    def parameters(self, seed: int) -> Array:
        """Draw the true parameters of all clusters."""
        truth: Array = true_parameters(self.clusters, self.dimension, self.separation, seed)
        return truth


# Every grid varies one thing and leaves the rest at this.
BASE = Mixture()
GRIDS: Mapping[str, Sequence[Any]] = {
    "clients": (10, 25, 50, 100, 250, 500, 1000),
    "points": (10, 20, 50, 100, 200, 500, 1000, 2000),
    "dimension": (5, 10, 20, 50, 100, 200, 500),
    "clusters": (2, 3, 5, 10, 20),
    "noise": (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    "separation": (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2),
}
SETTING = list(asdict(BASE))
# With two clusters, so many points in all as the theorem asks for, spread over ever more clients.
SPREAD = replace(BASE, clusters=2, points=50)
SPREAD_CLIENTS = (10, 50, 250, 1000, 2000)
# Hardly any noise, but clusters that differ little: Δ/σ is the same as at the least noise above.
ALIKE = replace(BASE, separation=0.2, noise=0.002)


def mixtures() -> list[Mixture]:
    """Return all mixtures that are looked at, each once."""
    grids = [replace(BASE, **{name: v}) for name, values in GRIDS.items() for v in values]
    spread = [replace(SPREAD, clients=clients) for clients in SPREAD_CLIENTS]
    return list(dict.fromkeys([*grids, *spread, ALIKE]))


# ----------------------------------------------------------------------------- what models to ask


def orthonormal_models(count: int, dimension: int, generator: Generator) -> Array:
    """Draw orthonormal vectors."""
    if count > dimension:
        raise CloveError(
            f"{count} orthonormal models do not exist in {dimension} dimensions: "
            f"use at most {dimension} models, or raise dimension"
        )
    basis: Array = np.linalg.qr(generator.standard_normal((dimension, count)))[0].T
    return basis


def unit_models(count: int, dimension: int, generator: Generator) -> Array:
    """Draw vectors from the unit sphere."""
    drawn = generator.standard_normal((count, dimension))
    units: Array = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return units


def proximal_models(truth: Array, separation: float, generator: Generator) -> Array:
    """Draw models as far from their optimal counterparts as Δ-proximal ones may be, Δ/4."""
    clusters, dimension = truth.shape
    near: Array = truth + separation / 4 * unit_models(clusters, dimension, generator)
    return near


# The section assumes d orthonormal models, and says that d random ones are nearly so; the algorithm
# itself has K models.
COLLECTIONS: dict[str, Callable[[Mixture, Array, Generator], Array]] = {
    "orthonormal": lambda m, _, draw: orthonormal_models(m.dimension, m.dimension, draw),
    "random": lambda m, _, draw: unit_models(m.dimension, m.dimension, draw),
    "orthonormal-k": lambda m, _, draw: orthonormal_models(m.clusters, m.dimension, draw),
    "proximal": lambda m, truth, draw: proximal_models(truth, m.separation, draw),
}


# ------------------------------------------------------------------------------------ loss vectors


@dataclass(frozen=True)
class Points:
    """The points of all clients: features, errors of the labels, and the true parameters."""

    x: Array  # [clients, points, dimension]
    errors: Array  # [clients, points]
    truth: Array  # [clients, dimension]

    def losses(self, models: Array) -> Array:
        """Return the mean squared error of every model on every client."""
        # <θ, x> - y, with y put in: as the paper writes it, and with less to cancel.
        directions = (models[None] - self.truth[:, None]).transpose(0, 2, 1)
        residuals = self.x @ directions - self.errors[:, :, None]
        losses: Array = np.square(residuals).mean(axis=1)
        return losses


def draw_points(mixture: Mixture, truth: Array, generator: Generator) -> Points:
    """Draw the points of all clients."""
    shape = (mixture.clients, mixture.points)
    return Points(
        generator.standard_normal((*shape, mixture.dimension)),
        mixture.noise * generator.standard_normal(shape),
        truth[mixture.groups],
    )


def scales(truth: Array, models: Array, noise: float) -> Array:
    """Return α = √(|θ - θ*|² + σ²) for every cluster and model."""
    alpha: Array = np.hypot(cdist(truth, models), noise)
    return alpha


def root_moments(points: int) -> tuple[float, float]:
    """Return mean and standard deviation of χ(n)/√n, a root of a loss over its α."""
    mean = sqrt(2 / points) * np.exp(gammaln((points + 1) / 2) - gammaln(points / 2))
    return float(mean), float(sqrt(max(1 - mean**2, 0)))


# -------------------------------------------------------------------------------- the first round


def one_shot(mixture: Mixture, draws: int, seed: int) -> list[dict[str, Any]]:
    """Cluster the clients of so many draws once, and return a row for each collection of models.

    All collections see the same data.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in COLLECTIONS}
    for draw in range(draws):
        truth = mixture.parameters(seeds.integer(seed, "theory/truth", draw))
        points = draw_points(mixture, truth, seeds.stream(seed, "theory/points", draw))
        for index, (name, collection) in enumerate(COLLECTIONS.items()):
            models = collection(mixture, truth, seeds.stream(seed, "theory/models", draw, index))
            random_state = seeds.integer(seed, "theory/clustering", draw) % 2**32
            found[name].append(judged(mixture, points, truth, models, random_state))
    return [{**asdict(mixture), "models": name, **_summed_up(rows)} for name, rows in found.items()]


def judged(
    mixture: Mixture, points: Points, truth: Array, models: Array, random_state: int
) -> dict[str, float]:
    """Cluster the clients by their losses, and measure all that the section says of them.

    The theorem has suitable centres to start k-means from; the best there are are the true means.
    """
    losses, groups = points.losses(models), mixture.groups
    clustering = LossVectorClustering(
        mixture.clusters, transform="sqrt", random_state=random_state
    ).fit(losses)
    mean, deviation = root_moments(mixture.points)
    alpha = scales(truth, models, mixture.noise)
    vectors = transform_losses(losses, "sqrt")
    from_means = KMeans(mixture.clusters, init=mean * alpha, n_init=1).fit_predict(vectors)
    return {
        "ari": float(adjusted_rand_score(groups, clustering.labels_)),
        "ari_from_means": float(adjusted_rand_score(groups, from_means)),
        **proximity(vectors, mean * alpha, groups),
        **concentration(vectors - mean * alpha[groups], deviation * alpha[groups]),
    }


def proximity(vectors: Array, centres: Array, groups: Groups) -> dict[str, float]:
    """Return the largest c' for which the proximity condition of the proof holds.

    As the paper prints it, a client must be nearer to its own centre than to any other by
    c' K (1/m_i + 1/m_j) |A - C|, with m the clusters' sizes; Kumar and Kannan, from whom it is,
    have the roots of these sizes. Where it is negative, some client is nearer to another's centre.
    """
    distances = cdist(vectors, centres)
    rows, clusters = np.arange(len(vectors)), len(centres)
    gaps = distances - distances[rows, groups][:, None]
    gaps[rows, groups] = np.inf
    norm = np.linalg.norm(vectors - centres[groups], 2)
    sizes = np.bincount(groups, minlength=clusters).astype(float)

    def constant(weights: Array) -> float:
        needed = clusters * (weights[groups][:, None] + weights[None]) * norm
        return float((gaps / needed).min())

    return {"proximity": constant(1 / sizes), "proximity_roots": constant(1 / np.sqrt(sizes))}


def concentration(centred: Array, deviations: Array) -> dict[str, float]:
    """Return how far loss vectors are from their means, and how far the lemma lets them be.

    Of client vectors with N entries, none is farther from its mean than the root of
    t max_j Var_j, t = 9/2 log²(NM/δ), but with probability δ.
    """
    clients, models = centred.shape
    squares = np.square(centred).sum(axis=1) / np.square(deviations).max(axis=1)
    return {
        "spread": float(np.sqrt(np.square(centred).mean())),
        "spread_expected": float(np.sqrt(np.square(deviations).mean())),
        "farthest": float(squares.max()),
        "tolerated": 4.5 * log(models * clients / TOLERANCE) ** 2,
    }


def _summed_up(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    table = pd.DataFrame(rows)
    recovered = int((table["ari"] == 1).sum())
    interval = binomtest(recovered, len(table)).proportion_ci(method="wilson")
    return {
        "draws": len(table),
        "recovered": recovered,
        "probability": recovered / len(table),
        "low": interval.low,
        "high": interval.high,
        "mean_ari": table["ari"].mean(),
        "probability_from_means": (table["ari_from_means"] == 1).mean(),
        "nearest_own_centre": (table["proximity"] > 0).mean(),
        "proximity": table["proximity"].median(),
        "proximity_roots": table["proximity_roots"].median(),
        "spread": sqrt(np.square(table["spread"]).mean()),
        "spread_expected": sqrt(np.square(table["spread_expected"]).mean()),
        "farthest": table["farthest"].max(),
        "tolerated": table["tolerated"].iloc[0],
        "concentrated": (table["farthest"] <= table["tolerated"]).mean(),
    }


def along(table: pd.DataFrame, name: str, base: Mixture = BASE) -> pd.DataFrame:
    """Return the rows of one grid: all else is as in the base, in order of what is varied."""
    others = [other for other in SETTING if other != name]
    mine = (table[others] == pd.Series(asdict(base))[others]).all(axis=1)
    return table[mine].sort_values(name)


# ------------------------------------------------------------------------------------- the centres

SEPARATIONS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
NOISES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def separated(separation: float, draws: int, seed: int) -> list[dict[str, Any]]:
    """Return how far the clusters' centres are apart, a row for each σ and collection of models.

    `c` is Δ over the distance of two centres, of which the lemmas say that it is at most about 2;
    the smallest and largest are over all pairs of clusters in all draws.
    """
    mixture = replace(BASE, separation=separation)
    rows = []
    for name in COLLECTIONS:
        pairs = [_pairs(mixture, name, draw, seed) for draw in range(draws)]
        rows += [_distances(mixture, name, i, pairs) for i in range(len(NOISES))]
    return rows


def _pairs(mixture: Mixture, name: str, draw: int, seed: int) -> Array:
    """Return the distances of all pairs of centres in a draw, a row for each noise."""
    truth = mixture.parameters(seeds.integer(seed, "theory/truth", draw))
    index = list(COLLECTIONS).index(name)
    models = COLLECTIONS[name](mixture, truth, seeds.stream(seed, "theory/models", draw, index))
    return np.stack([pdist(scales(truth, models, noise)) for noise in NOISES])


def _distances(mixture: Mixture, name: str, index: int, pairs: list[Array]) -> dict[str, Any]:
    distances = np.concatenate([one[index] for one in pairs])
    noise = NOISES[index]
    bound = sqrt(4 + noise**2) if name.startswith("orthonormal") else 2.0
    c = mixture.separation / distances
    setting = {n: v for n, v in asdict(mixture).items() if n not in ("clients", "points")}
    return {
        **setting,
        "noise": noise,
        "models": name,
        "draws": len(pairs),
        "pairs": len(distances),
        "smallest_distance": distances.min(),
        "median_distance": np.median(distances),
        "c_smallest": c.min(),
        "c_median": np.median(c),
        "c_largest": c.max(),
        "c_claimed": bound,
        "within": (c <= bound).mean(),
    }
