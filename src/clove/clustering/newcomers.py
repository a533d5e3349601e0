"""Which model a client gets that comes after the grouping has settled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from clove.clustering.arrays import FloatArray, IntArray, finite_matrix
from clove.clustering.transforms import transform_losses


@dataclass(frozen=True, eq=False)
class Assignments:
    """The models of newcomers, and how sure that is.

    Attributes
    ----------
    models : ndarray of shape (n_newcomers,)
        Each newcomer's model.
    distances : ndarray of shape (n_newcomers, n_clusters)
        From each newcomer's loss vector to each centroid.
    margins : ndarray of shape (n_newcomers,)
        1 less the nearest distance over the second nearest: 1 at a centroid or when there is only
        one cluster, 0 where two clusters are equally near.
    """

    models: IntArray
    distances: FloatArray
    margins: FloatArray


def assign_newcomers(
    loss_vectors: ArrayLike,
    centroids: ArrayLike,
    model_of_cluster: ArrayLike,
    transform: str = "identity",
) -> Assignments:
    """Give each newcomer the model of the cluster whose centroid is nearest to its loss vector.

    Parameters
    ----------
    loss_vectors : array-like of shape (n_newcomers, n_models)
        Losses of the models saved at stability, untransformed. There may be no newcomers at all.
    centroids : array-like of shape (n_clusters, n_models)
        Centroids saved at stability, in the transformed space.
    model_of_cluster : array-like of shape (n_clusters,)
        The model each cluster was matched to.
    transform : str
        What was done to losses before they were clustered; see `transform_losses`.

    Examples
    --------
    >>> found = assign_newcomers([[0.0, 2.0]], [[3.0, 2.0], [1.0, 2.0]], model_of_cluster=[0, 1])
    >>> found.models.tolist(), found.margins.round(2).tolist()
    ([1], [0.67])
    """
    losses = finite_matrix(loss_vectors, "loss_vectors", min_rows=0)
    centres = finite_matrix(centroids, "centroids")
    models = np.asarray(model_of_cluster, dtype=np.intp)
    if losses.shape[1] != centres.shape[1]:
        raise ValueError(
            f"newcomers' loss vectors have {losses.shape[1]} losses, "
            f"but the centroids have {centres.shape[1]}"
        )
    if models.shape != (len(centres),):
        raise ValueError(
            f"model_of_cluster must name one model for each of the {len(centres)} centroids, "
            f"not {models.size}"
        )
    distances: FloatArray = cdist(transform_losses(losses, transform), centres)
    return Assignments(models[distances.argmin(axis=1)], distances, _margins(distances))


def _margins(distances: FloatArray) -> FloatArray:
    if distances.shape[1] == 1:
        return np.ones(len(distances))
    nearest, second = np.partition(distances, 1, axis=1)[:, :2].T
    # Where even the second is at no distance both are, and nothing tells them apart.
    ratio = np.divide(nearest, second, out=np.ones_like(nearest), where=second > 0)
    margins: FloatArray = 1 - ratio
    return margins
