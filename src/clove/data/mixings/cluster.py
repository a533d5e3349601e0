"""What a mixing says about one cluster, and which of its points a client holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data.dataset import Dataset, Part
from clove.errors import CloveError

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Cluster:
    """The points a cluster's clients draw on, and what happens to them there.

    `train` and `test` are indices into the data set; `change_x` and `change_y` are applied to the
    stored features and the labels of both alike, so that a client's test data follow the
    distribution of its training data. `hands` are the indices by client where the mixing divides
    them itself; else they are divided evenly at random. `about` says in a few words what the
    cluster is.
    """

    train: Array
    test: Array
    change_x: Callable[[Array], Array] | None = None
    change_y: Callable[[Array], Array] | None = None
    hands: dict[Part, Sequence[Array]] | None = None
    about: str = ""

    def indices(self, part: Part) -> Array:
        """Return the indices of one part of the split."""
        return self.train if part == "train" else self.test

    def points(self, dataset: Dataset, part: Part, indices: Array) -> tuple[Array, Array | None]:
        """Return some of the points as this cluster's clients see them."""
        x, y = dataset.take(part, indices)
        x = x if self.change_x is None else self.change_x(x)
        y = y if self.change_y is None or y is None else self.change_y(y)
        return dataset.scaled(x), y


def divided(train: Sequence[Array], test: Sequence[Array], about: str = "") -> Cluster:
    """Make a cluster whose points already belong to its clients."""
    hands: dict[Part, Sequence[Array]] = {"train": train, "test": test}
    return Cluster(np.concatenate(train), np.concatenate(test), hands=hands, about=about)


@dataclass(frozen=True, eq=False)
class Piece:
    """Points that a client holds, as those of a cluster see them."""

    cluster: Cluster
    indices: Array


Holding = list[Piece]
"""All points of a client in one part of the split: of one cluster, or of several."""


def size_of(holding: Holding) -> int:
    """Return the number of points."""
    return sum(len(piece.indices) for piece in holding)


def class_labels(dataset: Dataset, mixing: str) -> tuple[Array, Array, int]:
    """Return train labels, test labels and number of classes, for mixings that need classes."""
    if dataset.classes is None or dataset.y_train is None or dataset.y_test is None:
        raise CloveError(
            f"mixing {mixing!r} needs class labels, and data set {dataset.name!r} has none "
            f"(it is {dataset.kind} data): use mixing 'none'"
        )
    return dataset.y_train, dataset.y_test, dataset.classes
