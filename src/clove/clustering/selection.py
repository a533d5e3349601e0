"""How many groups of clients there are, read from their loss vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import cut_tree, linkage
from sklearn.metrics import silhouette_score

from clove.clustering.arrays import (
    FloatArray,
    IntArray,
    count_groups,
    finite_matrix,
    group_equal,
    number_by_first_member,
)


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
    """

    n_clusters: int
    runner_up: int | None = None
    scores: dict[int, float] = field(default_factory=dict)
    method: str = ""


def silhouette_k(vectors: ArrayLike, max_clusters: int, *, margin: float = 1.0) -> Choice:
    """Choose the number of clusters with the best silhouette (the paper's algorithm 2).

    Every K from 2 to ``max_clusters`` that leaves a silhouette defined (fewer clusters than
    clients, and no more than there are distinct vectors) is tried with Ward's agglomerative
    clustering. With nothing to try, K is 1. Nothing here is random.

    Parameters
    ----------
    vectors : array-like of shape (n_clients, n_models)
        Loss vectors, transformed as they will be clustered.
    max_clusters : int
        The largest K to try.
    margin : float
        A larger K replaces the best one so far only if its score is above ``margin`` times the
        best. 1 is the paper's text, 1.10 is what its authors' experiments used.
    """
    matrix = finite_matrix(vectors, "vectors")
    largest = _largest_k(matrix, max_clusters)
    if largest < 2:
        return Choice(1, method="silhouette")
    cuts = cut_tree(linkage(matrix, "ward"), np.arange(2, largest + 1))
    partitions = (number_by_first_member(cut) for cut in cuts.T)
    return best_silhouette(matrix, partitions, margin=margin, method="silhouette")


def best_silhouette(
    vectors: FloatArray, partitions: Iterable[IntArray], *, margin: float, method: str
) -> Choice:
    """Choose among partitions given from few clusters to many; see `silhouette_k` for the rule."""
    scores: dict[int, float] = {}
    best = 0
    for labels in partitions:
        n_clusters = count_groups(labels)
        scores[n_clusters] = float(silhouette_score(vectors, labels))
        if not best or scores[n_clusters] > margin * scores[best]:
            best = n_clusters
    return Choice(best, _best_but(best, scores), scores, method)


def merge_ratio_k(vectors: ArrayLike, max_clusters: int, threshold: float = 2.0) -> Choice:
    """Choose the number of clusters at the largest jump in Ward's merge heights.

    While clusters that belong together are being merged, heights grow slowly; the first merge of
    two that do not is much higher than the one before. The score of K is the height of the merge
    from K to K - 1 clusters over that from K + 1 to K. Unlike a silhouette it can answer "one
    group": when no ratio reaches the threshold. It cannot answer "as many groups as clients",
    since then there is no lower merge to compare with.

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


def _largest_k(vectors: FloatArray, max_clusters: int) -> int:
    # With a cluster a client there is neither a silhouette nor a merge before the first.
    return min(max_clusters, len(vectors) - 1, count_groups(group_equal(vectors)))


def _merge_heights(vectors: FloatArray) -> FloatArray:
    """Return Ward's merge heights, lowest first, none below what rounding can make."""
    heights: FloatArray = linkage(vectors, "ward")[:, 2]
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
