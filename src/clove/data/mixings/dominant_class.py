"""Label skew 4: each cluster has a class of which its clients see most."""

from __future__ import annotations

import numpy as np

from clove.data.dataset import Dataset, Part
from clove.data.mixings.checks import share
from clove.data.mixings.cluster import Array, Cluster, class_labels
from clove.data.mixings.request import Request
from clove.data.mixings.shares import Labels
from clove.data.options import whole_number
from clove.errors import CloveError
from clove.seeds import stream

DOMINANT = 2 / 3
# A hair below 0.666, which for CIFAR-10 makes a point's difference: 2,996 of 4,500, not 2,997.
AUTHORS_DOMINANT = 1 - 0.334
AUTHORS_USE = 0.9  # of the smallest class


def label_skew_4(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int | None = None,
    dominant_share: float | None = None,
) -> list[Cluster]:
    """Give each cluster a share of a dominant class of its own, and the rest from all classes.

    The first cluster's is the first class, and so on. Clusters are as large as the classes allow.

    The authors' code takes the rest from the other classes only, and no more than nine tenths of
    the smallest class for a cluster.

    Parameters
    ----------
    clusters : int, optional
        Number of clusters, by default one for each class.
    dominant_share : float, optional
        Share of a client's points that are of the dominant class, apart from those among the rest:
        two thirds (0.666 in the authors' variant).
    """
    y_train, y_test, classes = class_labels(dataset, "label-skew-4")
    count = classes if clusters is None else whole_number("clusters", clusters)
    if count > classes:
        raise CloveError(
            f"clusters={count}, but data set {dataset.name!r} has {classes} classes, and each "
            "cluster needs a dominant class of its own"
        )
    default = AUTHORS_DOMINANT if request.authors else DOMINANT
    dominant = share("dominant_share", default if dominant_share is None else dominant_share)
    labels = Labels(y_train, y_test, classes)
    train, test = (
        labels.hand_out(part, _counts(labels, part, count, dominant, request), request.seed)
        for part in ("train", "test")
    )
    return [Cluster(train[k], test[k], about=f"mostly class {k}") for k in range(count)]


def _counts(labels: Labels, part: Part, clusters: int, dominant: float, request: Request) -> Array:
    totals = labels.totals(part)
    if request.authors:
        return authors_counts(totals, clusters, dominant)
    return dominant_counts(totals, clusters, dominant, stream(request.seed, "mixing/rest"))


def dominant_counts(
    totals: Array, clusters: int, dominant: float, generator: np.random.Generator
) -> Array:
    """Return the counts of the largest clusters of equal size, `[clusters, classes]`."""
    classes = len(totals)
    # What a cluster of size one takes of each class, over all clusters.
    demand = np.full(classes, clusters * (1 - dominant) / classes)
    demand[:clusters] += dominant
    used = demand > 0
    size = int((totals[used] / demand[used]).min() + 1e-9)
    own = round(dominant * size)
    left = totals - np.where(np.arange(classes) < clusters, own, 0)
    counts = np.zeros((clusters, classes), np.int64)
    for k in range(clusters):
        counts[k] = _evenly(size - own, left, generator)
        left = left - counts[k]
        counts[k, k] += own
    return counts


def _evenly(count: int, left: Array, generator: np.random.Generator) -> Array:
    """Take points evenly from all classes; odd ones from those with most left, ties by lot."""
    each, odd = divmod(count, len(left))
    order = np.lexsort((generator.random(len(left)), -left))
    return each + np.isin(np.arange(len(left)), order[:odd])


def authors_counts(totals: Array, clusters: int, dominant: float) -> Array:
    """Return the counts of the authors' code, `[clusters, classes]`."""
    classes = len(totals)
    size = int(AUTHORS_USE * totals.min())
    own = int(dominant * size)
    counts = np.full((clusters, classes), (size - own) // max(classes - 1, 1))
    counts[np.arange(clusters), np.arange(clusters)] = own
    return counts
