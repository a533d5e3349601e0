"""A data set before it is divided among clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clove.data.card import DataCard
from clove.data.client_data import Points
from clove.data.rows import Rows
from clove.errors import CloveError

Array = NDArray[Any]
Part = Literal["train", "test"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its official split, as compact in memory as it came.

    Parameters
    ----------
    name : str
        The name it is loaded by.
    x_train, x_test : array or Rows
        Features, first axis the points. Images are `[points, channels, height, width]`, uint8.
    y_train, y_test : array or None
        Labels: class numbers from 0 as int64, or for regression float32 `[points, outputs]`.
    kind : "classification" or "regression"
        What the labels are.
    classes : int or None
        Number of classes; None for regression.
    group_train, group_test : int array, optional
        The natural group of each point, where the data set has groups other than its classes.
    scale : int, optional
        What to divide features by to bring them into [0, 1]; None: they are handed out as they are.
    mean, std : tuple of float, optional
        For each channel, what to subtract after that, and what to divide by then.
    tokens : int, optional
        For texts, how many different token ids there may be.
    clients_per_cluster, points_per_client : int, optional
        Defaults for data sets that are too small for those of the mixings.
    truth : array, optional
        The true parameters of each group, `[groups, parameters]`, where the data were drawn from a
        known model.
    licence, citation, description : str
        What a user should know, and say, when using it.
    """

    name: str
    x_train: Array | Rows
    y_train: Array | None
    x_test: Array | Rows
    y_test: Array | None
    kind: Literal["classification", "regression"] = "classification"
    classes: int | None = None
    group_train: Array | None = None
    group_test: Array | None = None
    scale: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    tokens: int | None = None
    clients_per_cluster: int | None = None
    points_per_client: int | None = None
    truth: Array | None = None
    licence: str = ""
    citation: str = ""
    description: str = ""

    @classmethod
    def of(cls, card: DataCard, **fields: Any) -> Dataset:
        """Make a data set with what its card says, and what was loaded."""
        words = ("name", "classes", "licence", "citation", "description")
        return cls(**{**{word: getattr(card, word) for word in words}, **fields})

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            self._check_lengths(part)
            self._check_labels(part)
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise CloveError(
                f"data set {self.name!r}: training points have shape {self.x_train.shape[1:]}, "
                f"test points {self.x_test.shape[1:]}"
            )

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {len(self.x_train)} training and {len(self.x_test)} test "
            f"points of shape {self.feature_shape})"
        )

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one point's features."""
        return self.x_train.shape[1:]

    @property
    def images(self) -> bool:
        """Whether the points are images: channels, height, width."""
        return self.x_train.ndim == 4

    def labels(self, part: Part) -> Array | None:
        """Return the labels of one part of the split."""
        return self.y_train if part == "train" else self.y_test

    def size(self, part: Part) -> int:
        """Return the number of points of one part of the split."""
        return len(self.x_train if part == "train" else self.x_test)

    def groups(self, part: Part) -> Array | None:
        """Return each point's natural group: the data set's own, or else the point's class."""
        own = self.group_train if part == "train" else self.group_test
        if own is not None or self.kind == "regression":
            return own
        return self.labels(part)

    def take(self, part: Part, indices: Array) -> Points:
        """Return copies of some points, features as stored (see `scaled`)."""
        x, y = (self.x_train, self.y_train) if part == "train" else (self.x_test, self.y_test)
        return x[indices], None if y is None else y[indices]

    def scaled(self, x: Array) -> Array:
        """Return stored features as clients get them: float32 in [0, 1] where there is a scale.

        Where there is a mean too, each channel is standardised after that.
        """
        if self.scale is None:
            return np.ascontiguousarray(x)
        scaled = np.divide(x, np.float32(self.scale), dtype=np.float32, order="C")
        if self.mean is not None and self.std is not None:
            scaled -= _per_channel(self.mean)
            scaled /= _per_channel(self.std)
        return scaled

    def _check_lengths(self, part: Part) -> None:
        group = self.group_train if part == "train" else self.group_test
        for what, array in (("labels", self.labels(part)), ("groups", group)):
            if array is not None and len(array) != self.size(part):
                raise CloveError(
                    f"data set {self.name!r} has {self.size(part)} {part} points "
                    f"but {len(array)} {what} for them"
                )

    def _check_labels(self, part: Part) -> None:
        y = self.labels(part)
        if self.classes is None or y is None or len(y) == 0:
            return
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.classes:
            raise CloveError(
                f"data set {self.name!r}: {part} labels run from {low} to {high}, "
                f"expected 0 to {self.classes - 1}"
            )


def _per_channel(values: tuple[float, ...]) -> Array:
    return np.array(values, np.float32).reshape(-1, 1, 1)
