"""Label skew: clusters differ in the classes their clients hold."""

from __future__ import annotations

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.cluster import Cluster, class_labels
from clove.data.options import switch, whole_number
from clove.errors import CloveError
from clove.seeds import stream


def label_skew_1(
    dataset: Dataset,
    seed: int,
    *,
    clusters: int = 5,
    classes_per_cluster: int = 2,
    shuffle_classes: bool = False,
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
    """
    y_train, y_test, classes = class_labels(dataset, "label-skew-1")
    clusters = whole_number("clusters", clusters)
    each = whole_number("classes_per_cluster", classes_per_cluster)
    if clusters * each > classes:
        raise CloveError(
            f"{clusters} clusters of {each} classes need {clusters * each} classes, and data set "
            f"{dataset.name!r} has {classes}: lower clusters or classes_per_cluster"
        )
    order = np.arange(classes)
    if switch("shuffle_classes", shuffle_classes):
        order = stream(seed, "mixing/classes").permutation(classes)
    return [
        Cluster(np.flatnonzero(np.isin(y_train, own)), np.flatnonzero(np.isin(y_test, own)))
        for own in order[: clusters * each].reshape(clusters, each)
    ]
