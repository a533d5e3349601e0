"""Which model each cluster of clients trains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from clove.clustering.arrays import (
    FloatArray,
    IntArray,
    count_groups,
    finite_matrix,
    group_sums,
    number_by_first_member,
)
from clove.errors import unknown_name


def match(
    labels: ArrayLike,
    losses: ArrayLike,
    matching: str = "min-cost",
    previous: ArrayLike | None = None,
) -> IntArray:
    """Give every cluster a model of its own; clients' models are then ``result[labels]``.

    Parameters
    ----------
    labels : array-like of shape (n_clients,)
        Each client's cluster, numbered from zero without gaps.
    losses : array-like of shape (n_clients, n_models)
        Each client's loss on each model. At least as many models as clusters; models left over get
        no cluster.
    matching : {"min-cost", "in-order", "overlap"}
        The least total loss, as in the paper; the i-th model to the i-th cluster, which is the
        paper's ablation; or as few changes of model as possible.
    previous : array-like of shape (n_clients,), optional
        Each client's model in the round before, -1 if unknown. Only "overlap" looks at it.

    Returns
    -------
    ndarray of shape (n_clusters,)
        The model of each cluster.

    Examples
    --------
    >>> match([0, 0, 1], [[5.0, 1.0], [4.0, 1.0], [2.0, 2.0]]).tolist()
    [1, 0]
    """
    if matching not in MATCHINGS:
        raise unknown_name("matching", matching, MATCHINGS)
    return MATCHINGS[matching](labels, losses, previous)


def match_min_cost(labels: ArrayLike, losses: ArrayLike) -> IntArray:
    """Match clusters to models so that the sum of all clients' losses is least."""
    clusters, matrix = _checked(labels, losses)
    return _cheapest(group_sums(matrix, clusters, count_groups(clusters)))


def match_in_order(labels: ArrayLike, losses: ArrayLike) -> IntArray:
    """Give the i-th model to the i-th cluster, in order of their first clients: no matching."""
    clusters, _ = _checked(labels, losses)
    models: IntArray = np.empty(count_groups(clusters), dtype=np.intp)
    models[clusters] = number_by_first_member(clusters)
    return models


def match_by_overlap(
    labels: ArrayLike, losses: ArrayLike, previous: ArrayLike | None = None
) -> IntArray:
    """Match so that as many clients as possible keep their model, and then for the least loss.

    With nothing known of the round before this is the min-cost matching.
    """
    clusters, matrix = _checked(labels, losses)
    cost = group_sums(matrix, clusters, count_groups(clusters))
    kept = _kept(clusters, matrix, previous)
    if not kept.any():
        return _cheapest(cost)
    # All matched costs together must weigh less than one client kept.
    spread = np.ptp(cost) * (len(cost) + 1)
    share = (cost - cost.min()) / spread if spread > 0 else np.zeros_like(cost)
    return _cheapest(share - kept)


def _checked(labels: ArrayLike, losses: ArrayLike) -> tuple[IntArray, FloatArray]:
    matrix = finite_matrix(losses, "losses")
    clusters = _client_integers(labels, "labels", len(matrix))
    if clusters.min() < 0 or not np.bincount(clusters).all():
        raise ValueError("labels must number the clusters from 0 without gaps")
    if count_groups(clusters) > matrix.shape[1]:
        raise ValueError(
            f"{count_groups(clusters)} clusters cannot each have a model of their own: "
            f"there are {matrix.shape[1]} models"
        )
    return clusters, matrix


def _client_integers(values: ArrayLike, name: str, n_clients: int) -> IntArray:
    numbers = np.asarray(values)
    if numbers.shape != (n_clients,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be one integer for each of the {n_clients} clients, "
            f"not {numbers.dtype} of shape {numbers.shape}"
        )
    return numbers.astype(np.intp)


def _kept(clusters: IntArray, losses: FloatArray, previous: ArrayLike | None) -> FloatArray:
    """Return how many clients keep their model, for every cluster with every model."""
    n_clients, n_models = losses.shape
    models = _client_integers(
        np.full(n_clients, -1) if previous is None else previous, "previous", n_clients
    )
    if models.min() < -1 or models.max() >= n_models:
        raise ValueError(f"previous must be -1 or one of the models 0 to {n_models - 1}")
    known = models >= 0
    pairs = np.bincount(
        clusters[known] * n_models + models[known], minlength=count_groups(clusters) * n_models
    )
    return pairs.reshape(-1, n_models).astype(np.float64)


def _cheapest(cost: FloatArray) -> IntArray:
    models: IntArray = linear_sum_assignment(cost)[1]
    return models


MATCHINGS: dict[str, Callable[[ArrayLike, ArrayLike, ArrayLike | None], IntArray]] = {
    "min-cost": lambda labels, losses, previous: match_min_cost(labels, losses),
    "in-order": lambda labels, losses, previous: match_in_order(labels, losses),
    "overlap": match_by_overlap,
}
