"""Label skews 1 to 3: clusters differ in the classes their clients hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.cluster import Array, Cluster, class_labels
from clove.data.mixings.label_sets import draw_label_sets
from clove.data.mixings.request import Request
from clove.data.mixings.share_out import by_dirichlet, in_words, share_out
from clove.data.mixings.shares import Labels
from clove.data.options import switch, whole_number
from clove.errors import CloveError
from clove.seeds import stream

# The sets that the authors' code draws for ten classes, any two of which share exactly two.
AUTHORS_SETS = ((2, 4, 6, 9), (0, 2, 3, 4), (0, 4, 6, 7), (3, 4, 5, 6), (2, 3, 6, 7))

# Training and test points below which the authors' code draws a cluster's shares again.
NONE_NEEDED = (0, 0)
SKEW_2_LEAST, FOUR_CLASSES_LEAST = (5100, 510), (300, 300)
SKEW_3_LEAST = (6000, 750)


def label_skew_1(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int = 5,
    classes_per_cluster: int = 2,
    shuffle_classes: bool = False,
    alpha: float = 0.5,
    dirichlet_over: str = "clusters",
) -> list[Cluster]:
    """Give each cluster classes of its own, that no other cluster holds.

    Parameters
    ----------
    clusters : int
        Number of clusters.
    classes_per_cluster : int
        How many classes each of them has.
    shuffle_classes : bool
        Which cluster has which classes is drawn by the seed; by default they go in order, the
        first classes to the first cluster.
    alpha : float
        Concentration of the Dirichlet distribution.
    dirichlet_over : "clusters" or "clients"
        Among whom a class is shared out by it. A class has only one cluster here, so that it
        matters for "clients" only.
    """
    y_train, y_test, classes = class_labels(dataset, "label-skew-1")
    clusters = whole_number("clusters", clusters)
    each = whole_number("classes_per_cluster", classes_per_cluster)
    if clusters * each > classes:
        raise CloveError(
            f"{clusters} clusters of {each} classes need {clusters * each} classes, and data set "
            f"{dataset.name!r} has {classes}: lower clusters or classes_per_cluster"
        )
    order = _class_order(classes, shuffle_classes, request)[: clusters * each]
    holds = _holding(order.reshape(clusters, each), classes)
    how = by_dirichlet(alpha, dirichlet_over, NONE_NEEDED, request)
    if how.clients:
        return share_out(Labels(y_train, y_test, classes), holds, how, request)
    return [_whole_classes(y_train, y_test, own) for own in holds]


def label_skew_2(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int | None = None,
    classes_per_cluster: int | None = None,
    shared_classes: int | None = None,
    alpha: float = 0.5,
    dirichlet_over: str = "clusters",
) -> list[Cluster]:
    """Give each cluster some of the classes, of which any two clusters have some in common.

    A class is shared out by a Dirichlet draw; the same shares hold for training and test points.
    Shares are drawn again, a bounded number of times, until all clients can have the points asked
    for; if no draw gives them that, the one nearest to it is taken, and some clients get fewer.

    The authors' code draws the shares of training and test points separately, mixes in a reserve
    that is divided evenly, and has sets that share exactly `shared_classes`; for four classes it
    takes all six pairs.

    Parameters
    ----------
    clusters : int, optional
        Number of clusters: 5, but 3 for a data set of four classes (more pairs of them cannot have
        one in common any two), 6 in the authors' variant.
    classes_per_cluster : int, optional
        How many classes each of them has: 4, but no more than half of all.
    shared_classes : int, optional
        How many of these any two clusters share at least: half of them.
    alpha : float
        Concentration of the Dirichlet distribution.
    dirichlet_over : "clusters" or "clients"
        Among whom a class is shared out by it: the clusters that hold it, whose clients then get
        even parts, or all clients that hold it.
    """
    labels = Labels(*class_labels(dataset, "label-skew-2"))
    each, shared = _set_sizes(labels.classes, classes_per_cluster, shared_classes)
    holds = _label_sets(labels.classes, clusters, each, shared, request)
    least = FOUR_CLASSES_LEAST if labels.classes == 4 else SKEW_2_LEAST
    return share_out(labels, holds, by_dirichlet(alpha, dirichlet_over, least, request), request)


def label_skew_3(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int = 5,
    shuffle_classes: bool = False,
    alpha: float = 0.5,
    dirichlet_over: str = "clusters",
) -> list[Cluster]:
    """Give each cluster all classes but one, another one each, and the last cluster all.

    Classes are shared out as in label skew 2.

    Parameters
    ----------
    clusters : int
        Number of clusters, the last of which has all classes.
    shuffle_classes : bool
        Which classes are missed is drawn by the seed; by default the first cluster misses the first
        class, and so on.
    alpha : float
        Concentration of the Dirichlet distribution.
    dirichlet_over : "clusters" or "clients"
        Among whom a class is shared out by it, as in label skew 2.
    """
    labels = Labels(*class_labels(dataset, "label-skew-3"))
    classes = labels.classes
    clusters = whole_number("clusters", clusters)
    if clusters - 1 > classes or classes == 1:
        raise CloveError(
            f"clusters={clusters}, of which {clusters - 1} miss a class each, and data set "
            f"{dataset.name!r} has {classes} classes: lower clusters"
        )
    missed = _class_order(classes, shuffle_classes, request)
    if request.authors:
        missed = np.roll(missed, 1)  # the first cluster misses the last class there
    holds = np.ones((clusters, classes), bool)
    holds[np.arange(clusters - 1), missed[: clusters - 1]] = False
    how = by_dirichlet(alpha, dirichlet_over, SKEW_3_LEAST, request)
    return share_out(labels, holds, how, request)


def _class_order(classes: int, shuffle: object, request: Request) -> Array:
    if switch("shuffle_classes", shuffle):
        return stream(request.seed, "mixing/classes").permutation(classes)
    return np.arange(classes)


def _holding(sets: Array | Sequence[Sequence[int]], classes: int) -> Array:
    """Turn lists of classes into a table of who holds what, `[clusters, classes]`."""
    return np.stack([np.isin(np.arange(classes), own) for own in sets])


def _whole_classes(y_train: Array, y_test: Array, holds: Array) -> Cluster:
    train, test = (np.flatnonzero(holds[y]) for y in (y_train, y_test))
    return Cluster(train, test, about=in_words(holds))


def _set_sizes(classes: int, each: int | None, shared: int | None) -> tuple[int, int]:
    """Return how many classes a cluster has, and how many of them it shares with any other."""
    usual = max(min(4, classes // 2), 1)
    each = whole_number("classes_per_cluster", usual if each is None else each)
    shared = whole_number("shared_classes", each // 2 if shared is None else shared, 0)
    if each > classes:
        raise CloveError(f"classes_per_cluster={each}, and the data set has {classes} classes")
    return each, shared


def clusters_of_skew_2(classes: int | None, authors: bool) -> int:
    """Return how many clusters label skew 2 makes where no option says."""
    return (6 if authors else 3) if classes == 4 else 5


def _label_sets(
    classes: int, clusters: int | None, each: int, shared: int, request: Request
) -> Array:
    usual = clusters_of_skew_2(classes, request.authors)
    count = whole_number("clusters", usual if clusters is None else clusters)
    if request.authors and (count, classes, each, shared) == (5, 10, 4, 2):
        return _holding(AUTHORS_SETS, classes)
    if request.authors and (count, classes, each) == (6, 4, 2):
        return _holding(list(combinations(range(classes), each)), classes)
    return draw_label_sets(count, classes, each, shared, request.seed, exactly=request.authors)
