"""What the authors' code does otherwise than the paper says, for all mixings alike.

One partition serves all their seeds, and it is that of the first; a run's seed only draws which of
a cluster's points go to which of its clients. CIFAR-10's classes come in another order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.cluster import Array

VARIANTS = ("paper", "authors")
PARTITION_SEED = 1

# The number under which each class of CIFAR-10 (aeroplane first) goes there.
CIFAR10_CLASSES = (3, 1, 0, 4, 2, 5, 9, 6, 8, 7)


def relabelled(dataset: Dataset) -> Dataset:
    """Return CIFAR-10 with its classes in the authors' order; any other data set as it is."""
    if not is_cifar10(dataset):
        return dataset
    new = np.array(CIFAR10_CLASSES)
    return replace(dataset, y_train=_as(new, dataset.y_train), y_test=_as(new, dataset.y_test))


def is_cifar10(dataset: Dataset) -> bool:
    """Whether this is CIFAR-10, which the authors load in a way of its own."""
    return dataset.name == "cifar10" and dataset.classes == len(CIFAR10_CLASSES)


def _as(new: Array, labels: Array | None) -> Array | None:
    return None if labels is None else new[labels]
