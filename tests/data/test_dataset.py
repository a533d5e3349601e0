from __future__ import annotations

import numpy as np
import pytest

from clove.data import CARDS, DATASETS, Dataset, dataset_options, load_dataset
from clove.errors import CloveError

from .synthetic import numbered


def test_scaled_features_are_float32_between_nought_and_one() -> None:
    dataset = numbered(scale=16)
    x = np.array([[0, 8, 16]], np.uint8)
    scaled = dataset.scaled(x)
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [[0, 0.5, 1]]


def test_channels_are_standardised_after_scaling() -> None:
    dataset = numbered(scale=10, mean=(0.5, 0.0), std=(0.25, 2.0))
    x = np.array([[[[5, 10]], [[0, 10]]]], np.uint8)
    scaled = dataset.scaled(x)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, [[[[0, 2]], [[0, 0.5]]]])
    assert x.max() == 10


def test_features_without_a_scale_keep_their_type() -> None:
    x = np.array([[1, 2]], np.int64)
    assert numbered().scaled(x).dtype == np.int64


def test_scaled_features_are_contiguous_however_they_were_turned() -> None:
    x = np.rot90(np.zeros((3, 1, 4, 4), np.uint8), axes=(2, 3))
    assert numbered(scale=255).scaled(x).flags.c_contiguous
    assert numbered().scaled(x).flags.c_contiguous


def test_classes_are_the_groups_unless_the_data_set_has_its_own() -> None:
    plain = numbered(20, 10)
    assert plain.groups("train") is plain.y_train
    own = numbered(20, 10, group_train=np.zeros(20), group_test=np.ones(10))
    assert own.groups("test") is own.group_test
    regression = numbered(20, 10, kind="regression", classes=None)
    assert regression.groups("train") is None


def test_taking_points_copies_them() -> None:
    dataset = numbered()
    x, y = dataset.take("test", np.array([3]))
    assert x.base is None
    assert y is not None
    assert int(x[0, 0, 0, 0]) == 100_003
    unlabelled = numbered(y_train=None, y_test=None)
    assert unlabelled.take("train", np.array([0]))[1] is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"y_train": np.zeros(3, int)}, "400 train points but 3 labels"),
        ({"group_test": np.zeros(3, int)}, "200 test points but 3 groups"),
        ({"y_test": np.full(200, 10)}, "test labels run from 10 to 10, expected 0 to 9"),
        ({"x_test": np.zeros((200, 5))}, r"shape \(1, 2, 2\), test points \(5,\)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(CloveError, match=message):
        numbered(**fields)  # type: ignore[arg-type]


def test_the_text_of_a_data_set_is_short() -> None:
    assert repr(numbered()) == (
        "Dataset('numbered': 400 training and 200 test points of shape (1, 2, 2))"
    )


def test_an_unknown_data_set_gets_the_nearest_name() -> None:
    with pytest.raises(CloveError, match="unknown data set 'mnits': did you mean 'mnist'"):
        load_dataset("mnits")
    with pytest.raises(CloveError, match="unknown data set"):
        dataset_options("mnits")


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(CloveError, match=r"'linear' option 'cluster': did you mean 'clusters'.*no"):
        load_dataset("linear", cluster=3)
    with pytest.raises(CloveError, match="data set 'digits' has no options, got 'clusters'"):
        load_dataset("digits", clusters=3)


def test_options_are_listed_with_their_defaults() -> None:
    assert set(DATASETS) == set(CARDS)
    assert set(DATASETS) >= {"digits", "linear", "mnist", "fmnist", "cifar10", "femnist"}
    assert set(DATASETS) >= {"amazon", "agnews", "mnist-writers"}
    assert dataset_options("digits") == {}
    assert dataset_options("linear") == {
        "clusters": 5,
        "dimension": 20,
        "points": None,
        "noise": 1e-4,
        "separation": 1.0,
        "variant": "paper",
    }


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


def test_digits_are_whole_small_images(digits: Dataset) -> None:
    assert digits.x_train.shape == (1437, 1, 8, 8)
    assert digits.x_test.shape == (360, 1, 8, 8)
    assert digits.x_train.dtype == np.uint8
    assert digits.scaled(digits.x_train).max() == 1
    assert (digits.classes, digits.clients_per_cluster, digits.points_per_client) == (10, 5, 50)
    assert digits.images
    assert digits.licence
    assert digits.citation


def test_digits_are_split_evenly_by_class(digits: Dataset) -> None:
    assert digits.y_train is not None
    assert digits.y_test is not None
    train, test = np.bincount(digits.y_train), np.bincount(digits.y_test)
    assert np.abs(test - (train + test) / 5).max() < 1


def test_digits_have_one_split_for_all_seeds(digits: Dataset) -> None:
    other = load_dataset("digits", seed=7)
    np.testing.assert_array_equal(digits.x_train, other.x_train)
    np.testing.assert_array_equal(digits.y_test, other.y_test)
