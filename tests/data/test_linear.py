from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import Dataset, load_dataset, mix
from clove.data.linear import true_parameters
from clove.errors import CloveError


def residuals(dataset: Dataset) -> np.ndarray:
    assert dataset.truth is not None
    assert dataset.group_train is not None
    assert dataset.y_train is not None
    own = dataset.truth[dataset.group_train]
    return dataset.y_train[:, 0] - (dataset.x_train.astype(float) * own).sum(1)


@settings(deadline=None, max_examples=60)
@given(
    clusters=st.integers(1, 8),
    dimension=st.integers(3, 60),
    separation=st.sampled_from([1.0, 0.5, 0.1, 0.01, 0.001, 0.0003]),
    seed=st.integers(0, 10_000),
)
def test_true_parameters_keep_their_distance_on_the_sphere(
    clusters: int, dimension: int, separation: float, seed: int
) -> None:
    truth = true_parameters(clusters, dimension, separation, seed)
    assert truth.shape == (clusters, dimension)
    np.testing.assert_allclose(np.linalg.norm(truth, axis=1), 1)
    distances = np.linalg.norm(truth[:, None] - truth[None], axis=2)
    apart = distances[~np.eye(clusters, dtype=bool)]
    assert (apart >= separation).all()
    assert (apart <= 5 * separation).all()


@pytest.mark.parametrize(
    ("clusters", "dimension", "separation"),
    [(2, 20, 2.1), (5, 20, 1.6), (5, 20, 0.0), (5, 20, -1.0), (7, 2, 1.0), (40, 3, 1.0)],
)
def test_what_no_sphere_can_hold_is_refused(
    clusters: int, dimension: int, separation: float
) -> None:
    with pytest.raises(CloveError, match="separation"):
        true_parameters(clusters, dimension, separation, seed=0)


def test_two_clusters_can_be_opposite_each_other() -> None:
    truth = true_parameters(2, 20, 2.0 - 1e-6, seed=0)
    np.testing.assert_allclose(np.linalg.norm(truth[0] - truth[1]), 2, atol=1e-5)


def test_labels_are_the_true_parameters_times_the_features_plus_noise() -> None:
    dataset = load_dataset("linear")
    assert dataset.y_train is not None
    assert dataset.y_test is not None
    assert dataset.x_train.shape == (25_000, 20)
    assert dataset.x_test.shape == (6250, 20)
    assert dataset.y_train.shape == (25_000, 1)
    assert dataset.y_test.shape == (6250, 1)
    assert dataset.x_train.dtype == dataset.y_train.dtype == np.float32
    np.testing.assert_allclose(residuals(dataset).std(), 1e-4, rtol=0.02)
    np.testing.assert_allclose(dataset.x_train.std(), 1, rtol=0.02)
    assert dataset.kind == "regression"
    assert dataset.classes is None


@settings(deadline=None, max_examples=10)
@given(noise=st.floats(0.001, 2), seed=st.integers(0, 100))
def test_the_noise_is_as_asked_for(noise: float, seed: int) -> None:
    dataset = load_dataset("linear", seed=seed, noise=noise, points=2000)
    np.testing.assert_allclose(residuals(dataset).std(), noise, rtol=0.05)


def test_every_seed_draws_afresh_and_always_the_same() -> None:
    one, again, other = (load_dataset("linear", seed=s, points=10) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.x_train, again.x_train)
    np.testing.assert_array_equal(one.y_train, again.y_train)
    assert not np.array_equal(one.x_train, other.x_train)
    assert not np.array_equal(one.truth, other.truth)  # type: ignore[arg-type]


def test_clients_have_the_papers_thousand_points_of_one_cluster_each() -> None:
    dataset = load_dataset("linear", seed=3)
    mixed = mix(dataset, "none", seed=3)
    assert mixed.shortfall is None
    assert dataset.truth is not None
    assert [client.size for client in mixed.clients] == [1000] * 25
    for client in mixed.clients:
        assert client.train[1] is not None
        assert client.group is not None
        fitted = np.linalg.lstsq(client.train[0], client.train[1], rcond=None)[0][:, 0]
        np.testing.assert_allclose(fitted, dataset.truth[client.group], atol=1e-3)


def test_the_authors_clients_have_nine_hundred_points() -> None:
    dataset = load_dataset("linear", seed=3, variant="authors")
    assert (dataset.size("train"), dataset.size("test")) == (5 * 4500, 5 * 500)
    mixed = mix(dataset, "none", seed=3, variant="authors")
    assert mixed.shortfall is None
    assert [client.size for client in mixed.clients] == [900] * 25


@pytest.mark.parametrize("option", ["points", "dimension", "clusters"])
def test_more_than_fits_into_memory_is_refused(option: str) -> None:
    with pytest.raises(CloveError, match=f"{option}=1000000000000.* make .* numbers, more than"):
        load_dataset("linear", **{option: 10**12})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("clusters", 0),
        ("clusters", 2.5),
        ("clusters", True),
        ("dimension", 1),
        ("points", 1),
        ("noise", -1),
        ("noise", "much"),
        ("noise", float("nan")),
        ("separation", "far"),
    ],
)
def test_unsound_options_are_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(CloveError, match=f"{option} must be a"):
        load_dataset("linear", **{option: value})


def test_none_stands_for_the_default() -> None:
    assert len(load_dataset("linear", points=10, clusters=None).x_train) == 5 * 8
