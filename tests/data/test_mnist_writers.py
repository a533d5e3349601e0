from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clove.data import Dataset, load_dataset, mix
from clove.errors import CloveError

SIZES = {0: 10, 5: 3, 2100: 7, 2101: 2}
"""Images of each writer; those from 2100 on are students."""


def writers() -> np.ndarray:
    order = np.random.default_rng(0).permutation(sum(SIZES.values()))
    return np.repeat(list(SIZES), list(SIZES.values()))[order]


def series() -> np.ndarray:
    return np.where(writers() < 2100, 0, 4)


def digits() -> np.ndarray:
    return np.arange(len(writers())) % 10


def write_images(folder: Path) -> None:
    """Write a MNIST whose training images show their number."""
    x = np.zeros((len(writers()), 28, 28), np.uint8)
    x[:, 0, 0] = np.arange(len(x))
    test = {"x_test": np.zeros((1, 28, 28), np.uint8), "y_test": np.zeros(1, int)}
    np.savez(folder / "mnist.npz", x_train=x, y_train=digits(), **test)


def write_npz(folder: Path) -> None:
    np.savez(folder / "mnist_writers.npz", writer_train=writers(), hsf_train=series())


def qmnist(columns: int = 8) -> bytes:
    table = np.zeros((len(writers()), columns), ">i4")
    table[:, :3] = np.stack([digits(), series(), writers()], axis=1)
    return struct.pack(">4B2I", 0, 0, 12, 2, *table.shape) + table.tobytes()


def write_qmnist(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "qmnist-train-labels-idx2-int.gz").write_bytes(gzip.compress(qmnist()))


def images(dataset: Dataset, part: str, group: int) -> list[int]:
    groups = dataset.groups(part)  # type: ignore[arg-type]
    assert groups is not None
    x, y = dataset.take(part, np.flatnonzero(groups == group))  # type: ignore[arg-type]
    numbers = x[:, 0, 0, 0].astype(int).tolist()
    assert y is not None
    assert y.tolist() == [number % 10 for number in numbers]
    return numbers


def by(writer: int) -> list[int]:
    return np.flatnonzero(writers() == writer).tolist()


@pytest.fixture
def both(no_places: Path) -> Path:
    write_images(no_places)
    write_npz(no_places)
    return no_places


def test_each_writers_last_fifth_is_for_testing(both: Path) -> None:
    dataset = load_dataset("mnist-writers", minimum=2)
    for group, writer in enumerate(SIZES):
        held_out = max(SIZES[writer] // 5, 1)
        assert images(dataset, "train", group) == by(writer)[:-held_out]
        assert images(dataset, "test", group) == by(writer)[-held_out:]
    assert dataset.scaled(dataset.take("train", np.arange(3))[0]).max() < 1
    assert (dataset.classes, dataset.feature_shape, dataset.images) == (10, (1, 28, 28), True)


@pytest.mark.parametrize("place", ["mnist-writers", "qmnist", "QMNIST/raw"])
def test_qmnists_labels_say_the_same(both: Path, place: str) -> None:
    expected = load_dataset("mnist-writers", minimum=2)
    (both / "mnist_writers.npz").unlink()
    write_qmnist(both / place)
    dataset = load_dataset("mnist-writers", minimum=2)
    np.testing.assert_array_equal(dataset.x_train, expected.x_train)
    np.testing.assert_array_equal(dataset.group_test, expected.group_test)


def test_a_writer_is_a_client_with_all_images_and_nobody_elses(both: Path) -> None:
    mixed = mix(load_dataset("mnist-writers", minimum=2), "none", seed=0)
    assert mixed.groups.tolist() == [0, 1, 2, 3]
    assert [client.size for client in mixed.clients] == [8, 2, 6, 1]
    assert all(client.test is not None for client in mixed.clients)


def test_series_are_two_groups_of_many_writers(both: Path) -> None:
    dataset = load_dataset("mnist-writers", minimum=2, by="hsf")
    assert sorted(images(dataset, "train", 0)) == sorted([*by(0)[:-2], *by(5)[:-1]])
    assert sorted(images(dataset, "test", 1)) == sorted([by(2100)[-1], by(2101)[-1]])
    assert dataset.clients_per_cluster is None


def test_only_writers_with_enough_images_are_kept(both: Path) -> None:
    dataset = load_dataset("mnist-writers", minimum=7)
    assert images(dataset, "train", 1) == by(2100)[:-1]
    assert dataset.group_train is not None
    assert dataset.group_train.max() == 1
    with pytest.raises(CloveError, match="no writer has 100 images, the most is 10: lower minimum"):
        load_dataset("mnist-writers")


def test_writers_are_drawn_by_the_seed(both: Path) -> None:
    draws = {
        tuple(images(load_dataset("mnist-writers", seed=seed, minimum=2, writers=2), "test", 0))
        for seed in range(8)
    }
    assert len(draws) > 1
    assert draws == {
        tuple(images(load_dataset("mnist-writers", seed=seed, minimum=2, writers=2), "test", 0))
        for seed in range(8)
    }
    with pytest.raises(CloveError, match="writers=5, but there are 4"):
        load_dataset("mnist-writers", minimum=2, writers=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "age"}, "unknown by 'age'"),
        ({"minimum": 1}, "minimum must be a whole number of at least 2"),
        ({"writers": 0}, "writers must be a whole number"),
    ],
)
def test_options_out_of_range_are_refused(
    both: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(CloveError, match=message):
        load_dataset("mnist-writers", **{"minimum": 2, **options})


def test_writers_of_other_images_are_refused(both: Path) -> None:
    np.savez(both / "mnist_writers.npz", writer_train=np.zeros(3, int), hsf_train=np.zeros(3, int))
    with pytest.raises(CloveError, match="expected one integer for each of MNIST's 22"):
        load_dataset("mnist-writers")
    (both / "mnist_writers.npz").unlink()
    path = both / "qmnist-train-labels-idx2-int"
    path.write_bytes(qmnist(columns=5))
    with pytest.raises(CloveError, match="has 5 columns, expected QMNIST's 8"):
        load_dataset("mnist-writers")
    raw = bytearray(qmnist())
    raw[15] = 9  # the first digit's last byte
    path.write_bytes(bytes(raw))
    with pytest.raises(CloveError, match="its digits are not those of MNIST"):
        load_dataset("mnist-writers")


def test_what_is_missing_is_named(no_places: Path) -> None:
    with pytest.raises(CloveError, match=r"'mnist-writers' was not found\. Run `clove data fetch"):
        load_dataset("mnist-writers")
    write_npz(no_places)
    with pytest.raises(CloveError, match=r"'mnist' was not found\. Run `clove data fetch mnist`"):
        load_dataset("mnist-writers")


def test_the_real_data_are_whole(real: Callable[[str], Dataset]) -> None:
    dataset = real("mnist-writers")
    train, test = dataset.group_train, dataset.group_test
    assert train is not None
    assert test is not None
    sizes = np.bincount(train) + np.bincount(test)
    assert (len(sizes), sizes.min(), sizes.max()) == (440, 100, 131)
    assert (dataset.size("train"), dataset.size("test")) == (41_411, 10_137)
    everybody = load_dataset("mnist-writers", minimum=2)
    assert everybody.size("train") + everybody.size("test") == 60_000
    assert everybody.group_train is not None
    assert everybody.group_train.max() == 538


def test_a_hundred_real_writers_are_a_hundred_clients(real: Callable[[str], Dataset]) -> None:
    real("mnist-writers")
    mixed = mix(load_dataset("mnist-writers", writers=100), "none", seed=0)
    assert len(mixed.clients) == 100
    assert min(client.size for client in mixed.clients) == 80
