"""A made-up data set whose points can be told apart by their features."""

from __future__ import annotations

import numpy as np

from clove.data import Dataset
from clove.data.client_data import ClientData


def numbered(
    points: int = 400, test: int = 200, classes: int | None = 10, **fields: object
) -> Dataset:
    """Make a data set of 2 × 2 images; pixel [0, 0] is the point's number (test: from 100,000)."""
    generator = np.random.default_rng(0)
    arrays: dict[str, object] = {}
    for part, count, first in (("train", points, 0), ("test", test, 100_000)):
        x = np.zeros((count, 1, 2, 2), np.float32)
        x[:, 0, 0, 0] = np.arange(first, first + count)
        arrays[f"x_{part}"] = x
        arrays[f"y_{part}"] = generator.permutation(np.arange(count) % (classes or 10))
    return Dataset(**{"name": "numbered", "classes": classes, **arrays, **fields})  # type: ignore[arg-type]


def ids(client: ClientData, part: str = "train") -> list[int]:
    """Return the numbers of a client's points, however its images are turned."""
    points = client.train if part == "train" else client.test
    assert points is not None
    return [int(image.max()) for image in points[0]]


def labels(client: ClientData, part: str = "train") -> np.ndarray:
    """Return a client's labels."""
    points = client.train if part == "train" else client.test
    assert points is not None
    assert points[1] is not None
    return points[1]


def original_labels(dataset: Dataset, client: ClientData, part: str = "train") -> np.ndarray:
    """Return the labels that a client's points have in the data set."""
    y = dataset.y_train if part == "train" else dataset.y_test
    assert y is not None
    return y[np.array(ids(client, part)) % 100_000]
