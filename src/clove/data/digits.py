"""The handwritten digits that come with scikit-learn: small, and always there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clove.data.card import DataCard
from clove.data.dataset import Dataset
from clove.data.division import deal
from clove.seeds import stream

# The data set has no official split. Every fifth point is for testing, and which ones is fixed
# once and for all (not by a run's seed), so that results on it can be compared.
SPLIT_SEED = 0
TEST_PART = 5
FILE = Path("datasets", "data", "digits.csv.gz")  # of scikit-learn


DIGITS = DataCard(
    name="digits",
    description="Handwritten digits, 1,797 images of 8 × 8 pixels, 10 classes",
    licence="CC BY 4.0",
    citation=(
        "E. Alpaydin and C. Kaynak, Optical recognition of handwritten digits, "
        "UCI Machine Learning Repository, 1998"
    ),
    shape=(1, 8, 8),
    classes=10,
    train=1437,
    test=360,
    by_hand="comes with scikit-learn",
    brings={"clients_per_cluster": 5, "points_per_client": 50},
)


def digits(data_dir: Path | None, seed: int) -> Dataset:
    """Load 1,797 images of 8 × 8 pixels with 16 grey levels, 80 % for training."""
    images, y = _read()
    x = images.reshape(-1, 1, 8, 8).astype(np.uint8)
    hands = deal(len(y), TEST_PART, stream(SPLIT_SEED, "digits/split"), labels=y)
    test, train = np.sort(hands[0]), np.sort(np.concatenate(hands[1:]))
    return Dataset.of(
        DIGITS,
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        scale=16,
        **DIGITS.brings,
    )


def _read() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the images and their classes, if possible without importing scikit-learn.

    Its import takes longer than all else here does, and a node on a network would pay it for every
    message. Where its file is not where it has been for years, scikit-learn knows where it is.
    """
    found = find_spec("sklearn")
    path = Path(found.origin).parent / FILE if found and found.origin else FILE
    if path.is_file():
        table = np.loadtxt(path, delimiter=",", dtype=np.int64)
        return table[:, :-1], np.ascontiguousarray(table[:, -1])
    from sklearn.datasets import load_digits

    images, classes = load_digits(return_X_y=True)
    return images.astype(np.int64), classes.astype(np.int64)
