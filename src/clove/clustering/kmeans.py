"""k-means: quick for a roomful of clients, exact for thousands, from a sample for millions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from clove.clustering.arrays import FloatArray, IntArray

RandomState = int | np.random.RandomState | None

# Up to this many distances in an iteration of all starts, making the starts side by side is
# quicker than scikit-learn, which spends most of its time on such problems between calculations.
SIDE_BY_SIDE = 200_000

# As in scikit-learn.
MOST_ITERATIONS = 300
TOLERANCE = 1e-4


def kmeans_labels(
    vectors: FloatArray, n_clusters: int, n_init: int | str, random_state: RandomState
) -> IntArray:
    """Return the best of ``n_init`` runs of k-means from starts drawn by k-means++.

    It is the one scikit-learn's `KMeans` finds with the same ``random_state``. Small problems are
    done here, all runs side by side: the draws, the rule to stop and the choice are the same, and
    so are the clusters, save where rounding decides between starts that are equally good.
    """
    runs = 1 if n_init == "auto" else int(n_init)
    if runs * len(vectors) * n_clusters <= SIDE_BY_SIDE:
        return _side_by_side(vectors, n_clusters, runs, check_random_state(random_state))
    best = _fitted(vectors, KMeans(n_clusters, n_init=runs, random_state=random_state))
    labels: IntArray = best.labels_
    return labels


def kmeans_labels_from_sample(
    vectors: FloatArray,
    sample: FloatArray,
    n_clusters: int,
    n_init: int | str,
    random_state: RandomState,
) -> IntArray:
    """Return k-means of all vectors, in one run that starts from the best centres of a sample."""
    runs = 1 if n_init == "auto" else int(n_init)
    seen = _fitted(sample, KMeans(n_clusters, n_init=runs, random_state=random_state))
    whole = _fitted(vectors, KMeans(n_clusters, init=seen.cluster_centers_, n_init=1))
    labels: IntArray = whole.labels_
    return labels


def _fitted(vectors: FloatArray, kmeans: KMeans) -> KMeans:
    with warnings.catch_warnings():
        # It warns of vectors too near to tell apart; ``n_clusters_`` says what came of them.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return kmeans.fit(vectors)


@dataclass
class _Runs:
    """Runs of k-means side by side: each with its centres, its clients' clusters, its inertia."""

    centres: FloatArray  # (runs, clusters, models)
    labels: IntArray  # (runs, clients)
    inertia: FloatArray  # (runs,)


def _side_by_side(
    vectors: FloatArray, n_clusters: int, n_init: int, draw: np.random.RandomState
) -> IntArray:
    centred = vectors - vectors.mean(axis=0)  # so that less is lost to rounding
    starts = _starts(centred, n_clusters, n_init, draw)
    runs = _Runs(starts.copy(), np.full((n_init, len(vectors)), -1), np.full(n_init, np.nan))
    for run in _iterate(centred, runs):
        # A cluster came out empty, which is rare: scikit-learn knows what to do.
        alone = _fitted(centred, KMeans(n_clusters, init=starts[run], n_init=1))
        runs.labels[run], runs.inertia[run] = alone.labels_, alone.inertia_
    best: IntArray = runs.labels[runs.inertia.argmin()]
    return best


def _starts(
    vectors: FloatArray, n_clusters: int, n_init: int, draw: np.random.RandomState
) -> FloatArray:
    """Draw starts by greedy k-means++, with the draws scikit-learn would make one by one."""
    trials = 2 + int(np.log(n_clusters))
    draws = draw.random_sample((n_init, 1 + (n_clusters - 1) * trials))
    even = np.full(len(vectors), 1 / len(vectors)).cumsum()
    chosen = np.empty((n_init, n_clusters), dtype=np.intp)
    chosen[:, 0] = np.searchsorted(even / even[-1], draws[:, 0], side="right")
    nearest = cdist(vectors[chosen[:, 0]], vectors, "sqeuclidean")
    runs = np.arange(n_init)
    for cluster in range(1, n_clusters):
        drawn = draws[:, 1 + (cluster - 1) * trials :][:, :trials]
        candidates = _drawn_by_weight(nearest, drawn)
        distances = cdist(vectors[candidates.ravel()], vectors, "sqeuclidean")
        nearer = np.minimum(nearest[:, np.newaxis], distances.reshape(n_init, trials, -1))
        best = nearer.sum(axis=2).argmin(axis=1)
        chosen[:, cluster], nearest = candidates[runs, best], nearer[runs, best]
    return vectors[chosen]


def _drawn_by_weight(weights: FloatArray, draws: FloatArray) -> IntArray:
    """Return, for numbers from 0 to 1, whose turn it is if everybody's is as long as its weight."""
    sums = weights.cumsum(axis=1)
    targets = draws * weights.sum(axis=1)[:, np.newaxis]
    passed = (sums[:, np.newaxis] < targets[:, :, np.newaxis]).sum(axis=2)
    # By a rounding error a target may lie beyond the last sum.
    turns: IntArray = np.minimum(passed, weights.shape[1] - 1)
    return turns


def _iterate(vectors: FloatArray, runs: _Runs) -> list[int]:
    """Bring every run to its end, save those, which are returned, that lose a cluster."""
    tolerance = TOLERANCE * vectors.var(axis=0).mean()
    lost: list[int] = []
    going = np.arange(len(runs.labels))
    for _ in range(MOST_ITERATIONS):
        labels = _nearest(vectors, runs.centres[going])
        means, sizes = _means(vectors, labels, runs.centres.shape[1])
        shift = ((means - runs.centres[going]) ** 2).sum(axis=(1, 2))
        settled = (labels == runs.labels[going]).all(axis=1)
        runs.labels[going], runs.centres[going] = labels, means
        empty = (sizes == 0).any(axis=1)
        lost += going[empty].tolist()
        going = going[~(empty | settled | (shift <= tolerance))]
        if not len(going):
            break
    kept = np.setdiff1d(np.arange(len(runs.labels)), lost)
    runs.labels[kept] = _nearest(vectors, runs.centres[kept])
    for run in kept:
        runs.inertia[run] = ((vectors - runs.centres[run, runs.labels[run]]) ** 2).sum()
    return lost


def _nearest(vectors: FloatArray, centres: FloatArray) -> IntArray:
    """Return each client's nearest centre in every run."""
    # The client's own square is the same for all centres.
    squares = (centres**2).sum(axis=2)[:, :, np.newaxis] - 2 * centres @ vectors.T
    nearest: IntArray = squares.argmin(axis=1)
    return nearest


def _means(vectors: FloatArray, labels: IntArray, n_clusters: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the size of every cluster of every run; an empty one's mean is nought."""
    members = (labels[:, np.newaxis] == np.arange(n_clusters)[:, np.newaxis]).astype(np.float64)
    sizes = members.sum(axis=2)
    return members @ vectors / np.maximum(sizes, 1)[:, :, np.newaxis], sizes
