from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_matrix

from clove.data import Dataset, load_dataset, mix
from clove.data.amazon import WORDS
from clove.errors import CloveError

SIZES = (40, 30, 50, 20)
REVIEWS = sum(SIZES)


def counts(words: int = WORDS) -> np.ndarray:
    """Return the counts of each review: word 0 is the number of the review."""
    dense = np.zeros((REVIEWS, words), np.uint8)
    dense[:, 0] = np.arange(1, REVIEWS + 1)
    dense[:, [7, WORDS - 1]] = np.random.default_rng(0).integers(0, 5, (REVIEWS, 2))
    return dense


def domains() -> np.ndarray:
    return np.arange(4).repeat(SIZES).astype(np.uint8)


def labels() -> np.ndarray:
    return (np.arange(REVIEWS) % 3 == 0).astype(np.uint8)


def compact() -> dict[str, Any]:
    matrix = csr_matrix(counts())
    return {
        "data": matrix.data,
        "indices": matrix.indices.astype(np.uint16),
        "indptr": matrix.indptr,
        "shape": np.array(matrix.shape),
        "y": labels(),
        "domain": domains(),
        "is_train": np.ones(REVIEWS, bool),
        "domain_names": np.array(["books", "dvd", "electronics", "kitchen"]),
    }


def original() -> dict[str, Any]:
    # There rows are words, and there are many more than are used.
    matrix = coo_matrix(np.hstack([counts(), np.ones((REVIEWS, 9), np.uint8)]).T)
    return {
        "xx_data": matrix.data.astype(float),
        "xx_row": matrix.row,
        "xx_col": matrix.col,
        "xx_shape": np.array(matrix.shape),
        "yy": 2.0 * labels()[:, None] - 1,
        "offset": np.cumsum([0, *SIZES])[:, None],
    }


def numbers(dataset: Dataset, part: str) -> np.ndarray:
    """Return which reviews are in a part of the split, from 0."""
    x, _ = dataset.take(part, np.arange(dataset.size(part)))  # type: ignore[arg-type]
    return x[:, 0].astype(int) - 1


@pytest.mark.parametrize("content", [compact, original])
@pytest.mark.parametrize("place", ["amazon.npz", "amazon/amazon.npz", "AmazonReview/amazon.npz"])
def test_both_forms_hold_the_same(
    no_places: Path, place: str, content: Callable[[], dict[str, Any]]
) -> None:
    (no_places / place).parent.mkdir(exist_ok=True)
    np.savez(no_places / place, **content())
    dataset = load_dataset("amazon")
    assert (dataset.size("train"), dataset.size("test")) == (REVIEWS - 14, 14)
    for part in ("train", "test"):
        own = numbers(dataset, part)
        x, y = dataset.take(part, np.arange(len(own)))  # type: ignore[arg-type]
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x, counts()[own])
        np.testing.assert_array_equal(y, labels()[own])
        np.testing.assert_array_equal(dataset.groups(part), domains()[own])  # type: ignore[arg-type]


def test_a_tenth_of_each_domain_is_for_testing_whatever_the_seed(no_places: Path) -> None:
    np.savez(no_places / "amazon.npz", **compact())
    dataset, other = load_dataset("amazon"), load_dataset("amazon", seed=9)
    np.testing.assert_array_equal(numbers(dataset, "test"), numbers(other, "test"))
    assert dataset.group_test is not None
    assert np.bincount(dataset.group_test).tolist() == [4, 3, 5, 2]
    together = np.concatenate([numbers(dataset, "train"), numbers(dataset, "test")])
    assert sorted(together) == list(range(REVIEWS))


def test_the_published_split_trains_on_the_first_of_each_domain(
    no_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clove.data.amazon.LABELLED", 15)
    np.savez(no_places / "amazon.npz", **original())
    dataset = load_dataset("amazon", split="published")
    assert numbers(dataset, "train").tolist() == [
        *[*range(15), *range(40, 55), *range(70, 85), *range(120, 135)]
    ]
    with pytest.raises(CloveError, match="unknown split 'half'"):
        load_dataset("amazon", split="half")


def test_domains_are_the_clusters(no_places: Path) -> None:
    np.savez(no_places / "amazon.npz", **compact())
    mixed = mix(load_dataset("amazon"), "none", seed=0, clients_per_cluster=2)
    assert mixed.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert mixed.clients[0].train[0].shape == (18, WORDS)


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        (compact, {"y": np.zeros(3)}, f"not all of {REVIEWS} reviews"),
        (compact, {"y": np.full(REVIEWS, 2)}, "y holds other values"),
        (compact, {"domain": np.full(REVIEWS, 4)}, "domain holds other values"),
        (compact, {"shape": np.array([REVIEWS, 60])}, "60 words, expected 5000"),
        (compact, {"shape": np.array(7)}, "does not hold the Amazon reviews"),
        (compact, {"indices": np.full(400, 9_000)}, "does not hold the Amazon reviews"),
        (compact, {"indptr": None}, "lacks arrays: indptr"),
        (original, {"yy": np.zeros((REVIEWS, 1))}, "y holds other values"),
        (original, {"offset": np.array([0, 5])}, "not all of"),
        (original, {"xx_shape": np.array([3])}, "does not hold the Amazon reviews"),
        (original, {"xx_row": np.zeros(2, int)}, "does not hold the Amazon reviews"),
        (original, {"xx_col": None}, "lacks arrays: xx_col"),
    ],
)
def test_files_with_other_contents_are_refused(
    no_places: Path,
    content: Callable[[], dict[str, Any]],
    change: dict[str, np.ndarray | None],
    message: str,
) -> None:
    arrays = {k: v for k, v in {**content(), **change}.items() if v is not None}
    np.savez(no_places / "amazon.npz", **arrays)
    with pytest.raises(CloveError, match=message):
        load_dataset("amazon")


def test_a_damaged_file_is_named(no_places: Path) -> None:
    (no_places / "amazon.npz").write_bytes(b"no npz file")
    with pytest.raises(CloveError, match=r"amazon\.npz is damaged or no npz file"):
        load_dataset("amazon")


def test_data_that_are_not_there_are_answered_with_where_to_get_them(no_places: Path) -> None:
    with pytest.raises(CloveError, match=r"was not found.*AmazonReview\.zip.*KD3A") as caught:
        load_dataset("amazon")
    assert str(no_places / "amazon.npz") in str(caught.value)


def test_the_real_data_are_whole(real: Callable[[str], Dataset]) -> None:
    dataset = real("amazon")
    assert dataset.feature_shape == (5000,)
    train, test = dataset.group_train, dataset.group_test
    assert train is not None
    assert test is not None
    assert (np.bincount(train) + np.bincount(test)).tolist() == [6465, 5586, 7681, 7945]
    assert np.bincount(test).tolist() == [646, 558, 768, 794]


def test_the_real_data_are_enough_for_the_papers_clients(real: Callable[[str], Dataset]) -> None:
    mixed = mix(real("amazon"), "none", seed=0, points_per_client=1000)
    assert mixed.shortfall is None
    assert len(mixed.clients) == 20
