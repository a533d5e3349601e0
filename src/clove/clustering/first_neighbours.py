"""FINCH: clusters from who is whose nearest neighbour, without a parameter.

M. S. Sarfraz, V. Sharma, R. Stiefelhagen, "Efficient Parameter-free Clustering Using First Neighbor
Relations", CVPR 2019. Written from the paper's definition, with Euclidean distances.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from clove.clustering.arrays import (
    FloatArray,
    IntArray,
    count_groups,
    finite_matrix,
    group_equal,
    group_means,
    number_by_first_member,
)
from clove.clustering.selection import BLOCK, Choice, best_silhouette
from clove.errors import CloveError

# With ten models this many clients took 15 to 25 s on a busy machine of two cores. Time grows
# faster than their number.
FINCH_LIMIT = 100_000

# Clusters between which the two nearest are looked for again and again: 200 MB of distances.
MERGE_LIMIT = 5_000


def finch(vectors: ArrayLike) -> list[IntArray]:
    """Return FINCH's hierarchy of partitions, finest first.

    Two vectors share a cluster of the first partition if one is the other's first neighbour, or if
    they have the same first neighbour, and so on along the chain. Each further partition does the
    same to the means of the clusters before. The last step, where all are one, is left out unless
    it is the only one. Of equally near neighbours the one with the lowest index is the first.
    For at most ``FINCH_LIMIT`` clients.

    >>> [labels.tolist() for labels in finch([[0.0], [1.0], [10.0], [11.0], [12.5]])]
    [[0, 0, 1, 1, 1]]
    """
    matrix = finite_matrix(vectors, "vectors")
    refuse_finch_of(len(matrix))
    labels: IntArray = np.arange(len(matrix))
    means = matrix
    partitions: list[IntArray] = []
    while len(means) > 1:
        # Everybody joins somebody, so that every step at least halves the number of clusters.
        labels = _joined_with_first_neighbours(means)[labels]
        means = group_means(matrix, labels)
        partitions.append(labels)
    return partitions[:-1] or partitions or [labels]


def finch_k(vectors: ArrayLike, max_clusters: int, *, margin: float = 1.0) -> Choice:
    """Choose the partition of FINCH's hierarchy with the best silhouette.

    Only partitions of at most ``max_clusters`` clusters are candidates; if the coarsest has more,
    it is merged down to ``max_clusters``. One cluster is the answer only if FINCH finds no other
    or no more are allowed. For ``margin`` see `silhouette_k`.
    """
    matrix = finite_matrix(vectors, "vectors")
    partitions = finch(matrix)
    if max_clusters < 2 or count_groups(partitions[-1]) == 1:
        return Choice(1, method="finch")
    candidates = [labels for labels in partitions[::-1] if count_groups(labels) <= max_clusters]
    if not candidates:
        candidates = [_merge_nearest(matrix, partitions[-1], max_clusters)]
    return best_silhouette(matrix, candidates, margin=margin, method="finch")


def finch_labels(
    vectors: ArrayLike, n_clusters: int | None = None, max_clusters: int | None = None
) -> IntArray:
    """Return one partition: of ``n_clusters`` clusters, or the one `finch_k` chooses.

    For a required number the coarsest partition with at least so many clusters is taken, and its
    two nearest clusters (by their means) are merged until the number is reached. Where even the
    first partition has too few, merging starts from every distinct vector on its own, the
    hierarchy's level nought; so only fewer distinct vectors give fewer clusters.
    ``max_clusters`` bounds the choice where ``n_clusters`` is None; None is no bound.
    """
    matrix = finite_matrix(vectors, "vectors")
    if n_clusters is None:
        n_clusters = finch_k(matrix, max_clusters or len(matrix)).n_clusters
    if n_clusters < 1:
        raise ValueError(f"n_clusters must be at least 1, not {n_clusters}")
    levels = [group_equal(matrix), *finch(matrix)]
    enough = [labels for labels in levels if count_groups(labels) >= n_clusters]
    return _merge_nearest(matrix, (enough or levels[:1])[-1], n_clusters)


def refuse_finch_of(n_clients: int) -> None:
    """Refuse what would take longer than anybody waits."""
    if n_clients > FINCH_LIMIT:
        raise CloveError(
            f"FINCH of {n_clients:,} clients would take long: it looks for everybody's nearest "
            f"neighbour, and is limited to {FINCH_LIMIT:,} clients. Cluster with method='kmeans', "
            "which has no limit"
        )


def _joined_with_first_neighbours(points: FloatArray) -> IntArray:
    # The links i - first(i) alone have the paper's components: its two other kinds of link, to
    # whom i is first and to whom shares i's first neighbour, join nothing these do not.
    count = len(points)
    links = coo_matrix((np.ones(count), (np.arange(count), _joins(points))), shape=(count, count))
    return number_by_first_member(connected_components(links, directed=False)[1])


def _joins(points: FloatArray) -> IntArray:
    """Return whom everybody joins: its first neighbour; of equal points, the first of them."""
    equal = group_equal(points)
    distinct = np.unique(equal, return_index=True)[1]
    joins: IntArray = distinct[equal]
    alone = np.flatnonzero(np.bincount(equal) == 1)
    if len(distinct) > 1:
        joins[distinct[alone]] = distinct[_first_neighbours(points[distinct], alone)]
    return joins


def _first_neighbours(points: FloatArray, asked: IntArray) -> IntArray:
    """Return the nearest other point of each of those asked; all points differ."""
    if len(points) ** 2 <= BLOCK:
        return _first_by_comparing(points, asked)
    distances, found = KDTree(points).query(points[asked], k=3, workers=-1)
    first: IntArray = found[:, 1].astype(np.intp)
    # A tree has an order of its own for equally near points: those are compared one by one.
    tied = (distances[:, 1] == 0) | (distances[:, 2] <= distances[:, 1] * (1 + 1e-12))
    first[tied] = _first_by_comparing(points, asked[tied])
    return first


def _first_by_comparing(points: FloatArray, asked: IntArray) -> IntArray:
    step = max(1, BLOCK // len(points))
    first: IntArray = np.empty(len(asked), dtype=np.intp)
    for start in range(0, len(asked), step):
        some = asked[start : start + step]
        distances = cdist(points[some], points)
        distances[np.arange(len(some)), some] = np.inf
        first[start : start + step] = distances.argmin(axis=1)
    return first


def _merge_nearest(vectors: FloatArray, labels: IntArray, n_clusters: int) -> IntArray:
    """Merge the two clusters with the nearest means until at most ``n_clusters`` are left."""
    if count_groups(labels) <= n_clusters:
        return labels
    if count_groups(labels) > MERGE_LIMIT:
        raise CloveError(
            f"FINCH has no partition between {count_groups(labels):,} clusters and fewer than the "
            f"{n_clusters:,} asked for, and merges at most {MERGE_LIMIT:,}: ask for fewer clusters "
            "or use method='kmeans'"
        )
    means, sizes = group_means(vectors, labels), np.bincount(labels)
    merged = np.arange(len(means))
    distances = cdist(means, means)
    np.fill_diagonal(distances, np.inf)
    for _ in range(len(means) - n_clusters):
        keep, drop = divmod(int(distances.argmin()), len(means))
        merged[merged == drop] = keep
        means[keep] = np.average(means[[keep, drop]], axis=0, weights=sizes[[keep, drop]])
        sizes[keep] += sizes[drop]
        # A merged cluster is out of the race, and infinitely far from all marks it so.
        distances[drop] = distances[:, drop] = np.inf
        anew = cdist(means[[keep]], means)[0]
        anew[np.isinf(distances[keep])] = np.inf
        distances[keep] = distances[:, keep] = anew
    return number_by_first_member(merged[labels])
