"""How many groups of clients there are, read from their loss vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import linkage
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

from clove.clustering.arrays import (
    FloatArray,
    IntArray,
    count_groups,
    few_distinct,
    finite_matrix,
    number_by_first_member,
)
from clove.errors import CloveError

# Ward's clustering holds the distance of every client to every other, and a copy: 8 n² bytes.
# That is 7.2 GB at this many clients, and took 82 s on a busy machine of two cores.
WARD_LIMIT = 30_000

# Distances held at a time (32 MiB).
BLOCK = 1 << 22


@dataclass(frozen=True)
class Choice:
    """A number of clusters, and what spoke for and against it.

    Attributes
    ----------
    n_clusters : int
        The number chosen; 1 when nothing tells the clients apart.
    runner_up : int or None
        The number that scored best beside it, None when none was tried.
    scores : dict
        The score of every number tried: a silhouette, or a ratio of merge heights.
    method : str
        How it was chosen.
    sample : int or None
        How many clients it was chosen on, where that was a sample; None if it was all of them.
    """

    n_clusters: int
    runner_up: int | None = None
    scores: dict[int, float] = field(default_factory=dict)
    method: str = ""
    sample: int | None = None


def silhouette_k(
    vectors: ArrayLike, max_clusters: int, *, margin: float = 1.0, repeats: int = 1
) -> Choice:
    """Choose the number of clusters with the best silhouette (the paper's algorithm 2).

    Every K from 2 to ``max_clusters`` that leaves a silhouette defined (fewer clusters than
    clients, and no more than there are distinct vectors) is tried with Ward's agglomerative
    clustering. With nothing to try, K is 1. Nothing here is random. Time and memory grow with the
    square of the number of clients; above ``WARD_LIMIT`` clients it refuses, and a sample is what
    to ask, as `LossVectorClustering` does above its ``exact_limit``.

    Parameters
    ----------
    vectors : array-like of shape (n_clients, n_models)
        Loss vectors, transformed as they will be clustered.
    max_clusters : int
        The largest K to try.
    margin : float
        A larger K replaces the best one so far only if its score is above ``margin`` times the
        best. 1 is the paper's text, 1.10 is what its authors' experiments used.
    repeats : int
        Where as many clusters as clients may be tried, take every client for so many, whose vectors
        are alike: then a client that is alone in its cluster has silhouette 1 instead of nought,
        and a cluster a client is a number to try. 1 is the paper's text, 5 what its authors'
        experiments used.
    """
    matrix = finite_matrix(vectors, "vectors")
    repeats = repeats if max_clusters >= len(matrix) else 1
    largest = _largest_k(matrix, max_clusters, alone=repeats > 1)
    if largest < 2:
        return Choice(1, method="silhouette")
    tree = _ward_tree(matrix)
    partitions = [_cut(tree, n_clusters) for n_clusters in range(2, largest + 1)]
    return best_silhouette(matrix, partitions, margin=margin, method="silhouette", repeats=repeats)


def best_silhouette(
    vectors: FloatArray,
    partitions: Sequence[IntArray],
    *,
    margin: float,
    method: str,
    repeats: int = 1,
) -> Choice:
    """Choose among partitions given from few clusters to many; see `silhouette_k` for the rule."""
    found = silhouettes(vectors, partitions, repeats)
    scores = dict(zip(map(count_groups, partitions), found, strict=True))
    best = min(scores)
    for n_clusters, score in scores.items():
        if score > margin * scores[best]:
            best = n_clusters
    return Choice(best, _best_but(best, scores), scores, method)


def silhouettes(
    vectors: FloatArray, partitions: Sequence[IntArray], repeats: int = 1
) -> list[float]:
    """Return the mean silhouette of every partition, from one pass over the distances.

    With `repeats`, every vector counts as so many that are alike.

    They are those of scikit-learn's `silhouette_score`, which computes all distances anew for each
    partition. Time grows with the square of the number of clients, memory with the number.
    """
    indicators = [_indicator(labels) for labels in partitions]
    totals = np.zeros(len(partitions))
    step = max(1, BLOCK // len(vectors))
    for start in range(0, len(vectors), step):
        distances = cdist(vectors, vectors[start : start + step])
        for number, (labels, indicator) in enumerate(zip(partitions, indicators, strict=True)):
            sums, sizes = repeats * (indicator @ distances), repeats * np.bincount(labels)
            totals[number] += _silhouette_sum(sums, sizes, labels[start:][:step])
    return [float(total) / len(vectors) for total in totals]


def _indicator(labels: IntArray) -> csr_matrix:
    """Return a row a cluster with a one for each of its clients: times a column, it adds up."""
    places = (labels, np.arange(len(labels)))
    return csr_matrix((np.ones(len(labels)), places), shape=(count_groups(labels), len(labels)))


def _silhouette_sum(sums: FloatArray, sizes: IntArray, own: IntArray) -> float:
    """Add up the silhouettes of some clients, given their summed distances to every cluster."""
    columns = np.arange(len(own))
    # Oneself is not counted among one's own; who is alone has silhouette nought by definition.
    within = sums[own, columns] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes[:, np.newaxis]
    means[own, columns] = np.inf
    beyond = means.min(axis=0)
    scale = np.maximum(within, beyond)
    defined = (sizes[own] > 1) & (scale > 0)
    return float(np.divide(beyond - within, scale, out=np.zeros(len(own)), where=defined).sum())


def merge_ratio_k(vectors: ArrayLike, max_clusters: int, threshold: float = 2.0) -> Choice:
    """Choose the number of clusters at the largest jump in Ward's merge heights.

    While clusters that belong together are being merged, heights grow slowly; the first merge of
    two that do not is much higher than the one before. The score of K is the height of the merge
    from K to K - 1 clusters over that from K + 1 to K. Unlike a silhouette it can answer "one
    group": when no ratio reaches the threshold. It cannot answer "as many groups as clients",
    since then there is no lower merge to compare with. As to very many clients see `silhouette_k`.

    Parameters
    ----------
    vectors : array-like of shape (n_clients, n_models)
        Loss vectors, transformed as they will be clustered.
    max_clusters : int
        The largest K to consider.
    threshold : float
        The smallest ratio that counts as a jump. On image data, clients of one distribution gave
        1.1 to 1.5, and true groupings 2.9 or more, except for 2.1 in the hardest case.

    Returns
    -------
    Choice
        Its ``runner_up`` is the other K with the largest ratio, whether that reached the threshold
        or not: often a true finer or coarser structure.
    """
    matrix = finite_matrix(vectors, "vectors")
    largest = _largest_k(matrix, max_clusters)
    if largest < 2:
        return Choice(1, method="merge-ratio")
    heights = _merge_heights(matrix)
    scores = {k: float(heights[-k + 1] / heights[-k]) for k in range(2, largest + 1)}
    top = max(scores, key=lambda k: scores[k])
    best = top if scores[top] >= threshold else 1
    return Choice(best, _best_but(best, scores), scores, "merge-ratio")


def _largest_k(vectors: FloatArray, max_clusters: int, alone: bool = False) -> int:
    # With a cluster a client there is neither a silhouette nor a merge before the first, unless
    # who is alone counts as several.
    largest = min(max_clusters, len(vectors) - (not alone))
    distinct = few_distinct(vectors, fewer_than=largest) if largest > 1 else None
    return largest if distinct is None else count_groups(distinct)


def refuse_ward_of(n_clients: int) -> None:
    """Refuse what would take more memory than a machine is likely to have."""
    if n_clients > WARD_LIMIT:
        raise CloveError(
            f"Ward's clustering of {n_clients:,} clients would need {8e-9 * n_clients**2:,.0f} GB: "
            f"it compares everyone with everyone, and is limited to {WARD_LIMIT:,} clients. "
            "Cluster with method='kmeans', which has no limit, and for the number of clusters "
            "leave LossVectorClustering's exact_limit at its default: it then chooses on a sample"
        )


def _ward_tree(vectors: FloatArray) -> FloatArray:
    refuse_ward_of(len(vectors))
    tree: FloatArray = linkage(vectors, "ward")
    return tree


def _cut(tree: FloatArray, n_clusters: int) -> IntArray:
    """Return the clusters there are when all but the last merges have been made."""
    n_clients = len(tree) + 1
    merges = tree[: n_clients - n_clusters, :2].astype(np.intp)
    above = np.arange(n_clients + len(merges))
    above[merges] = np.arange(n_clients, len(above))[:, np.newaxis]
    while not np.array_equal(above, higher := above[above]):
        above = higher
    return number_by_first_member(above[:n_clients])


def _merge_heights(vectors: FloatArray) -> FloatArray:
    """Return Ward's merge heights, lowest first, none below what rounding can make."""
    heights: FloatArray = _ward_tree(vectors)[:, 2]
    # Equal vectors merge at height nought, nearly equal ones at the height of a rounding error.
    # Without a floor the ratio of two such heights would mean nothing, and could be anything.
    rounding = np.finfo(np.float64).eps
    noise = 8 * rounding * np.abs(vectors).max() * np.sqrt(vectors.size)
    floor = max(noise, rounding * heights[-1], np.finfo(np.float64).tiny)
    floored: FloatArray = np.maximum(heights, floor)
    return floored


def _best_but(chosen: int, scores: dict[int, float]) -> int | None:
    others = [k for k in scores if k != chosen]
    return max(others, key=lambda k: scores[k], default=None)
