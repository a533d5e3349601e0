"""How many points of each label clients have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clove.data.client_data import Points
from clove.data.dataset import Dataset
from clove.data.mixings.clients import MixedClients

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Points of clients by label, as the clients see the labels.

    Data without classes have one column for all their points.
    """

    labels: list[str]
    train: Counts
    """`[clients, labels]`."""
    test: Counts
    groups: Counts | None

    def rows(self) -> list[dict[str, int | None]]:
        """Return a row for each client: cluster, training and test points, and the former by label.

        The columns of labels are called `label 0` and so on.
        """
        groups = [None] * len(self.train) if self.groups is None else self.groups.tolist()
        sizes = zip(groups, self.train.sum(axis=1), self.test.sum(axis=1), strict=True)
        return [
            {"client": client, "cluster": group, "train": int(train), "test": int(test)}
            | {f"label {name}": int(n) for name, n in zip(self.labels, own, strict=True)}
            for client, ((group, train, test), own) in enumerate(
                zip(sizes, self.train, strict=True)
            )
        ]


def describe(mixed: MixedClients, dataset: Dataset) -> LabelCounts:
    """Count each client's points by label."""
    classes = dataset.classes if mixed.clients[0].labelled else None
    labels = ["all"] if classes is None else [str(label) for label in range(classes)]
    train, test = (
        np.stack([_counts(points, classes) for points in parts])
        for parts in zip(*((c.train, c.test) for c in mixed.clients), strict=True)
    )
    return LabelCounts(labels, train, test, mixed.groups)


def _counts(points: Points | None, classes: int | None) -> Counts:
    if points is None:
        return np.zeros(classes or 1, np.int64)
    x, y = points
    if classes is None or y is None:
        return np.array([len(x)])
    return np.bincount(y, minlength=classes)
