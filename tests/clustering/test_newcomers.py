from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.clustering import TRANSFORMS, LossVectorClustering, assign_newcomers, match

from .groups import relaxed, seeds, separated_losses

CENTROIDS = np.array([[0.0, 4.0], [4.0, 0.0], [4.0, 4.0]])


def test_a_newcomer_gets_the_model_its_nearest_cluster_was_matched_to():
    found = assign_newcomers([[3.5, 0.5], [0.1, 3.0]], CENTROIDS, [2, 0, 1])
    assert found.models.tolist() == [0, 2]
    assert found.distances.shape == (2, 3)
    assert found.distances[0, 1] == pytest.approx(np.hypot(0.5, 0.5))


def test_margins_by_hand():
    found = assign_newcomers([[0.0, 2.0]], [[0.0, 1.0], [0.0, 6.0]], [0, 1])
    assert found.margins.tolist() == [0.75]


@relaxed
@given(seeds, st.integers(2, 6))
def test_a_newcomer_at_a_centroid_is_sure(seed, n_clusters):
    centroids = np.random.default_rng(seed).normal(size=(n_clusters, 4))
    found = assign_newcomers(centroids, centroids, np.arange(n_clusters)[::-1])
    assert found.models.tolist() == list(range(n_clusters))[::-1]
    assert found.margins.tolist() == [1.0] * n_clusters


@relaxed
@given(seeds, st.integers(1, 5), st.integers(0, 10))
def test_margins_lie_between_nought_and_one(seed, n_clusters, n_newcomers):
    rng = np.random.default_rng(seed)
    vectors, centroids = rng.normal(size=(n_newcomers, 3)), rng.normal(size=(n_clusters, 3))
    found = assign_newcomers(vectors, centroids, range(n_clusters))
    assert found.models.shape == found.margins.shape == (n_newcomers,)
    assert ((found.margins >= 0) & (found.margins <= 1)).all()


@relaxed
@given(seeds, st.permutations(range(4)))
def test_the_order_of_clusters_does_not_matter(seed, order):
    rng = np.random.default_rng(seed)
    vectors, centroids, models = rng.normal(size=(9, 3)), rng.normal(size=(4, 3)), np.arange(4)
    plain = assign_newcomers(vectors, centroids, models)
    permuted = assign_newcomers(vectors, centroids[order], models[order])
    assert np.array_equal(plain.models, permuted.models)
    assert np.array_equal(plain.margins, permuted.margins)


def test_with_one_cluster_there_is_no_doubt():
    assert assign_newcomers([[9.0, 9.0]], CENTROIDS[:1], [5]).margins.tolist() == [1.0]


def test_between_equally_near_clusters_there_is_nothing_but_doubt():
    between = assign_newcomers([[2.0, 2.0]], CENTROIDS[:2], [0, 1])
    on_both = assign_newcomers([[1.0, 1.0]], np.ones((2, 2)), [0, 1])
    assert between.margins.tolist() == on_both.margins.tolist() == [0.0]
    assert between.models.tolist() == on_both.models.tolist() == [0]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_newcomers_like_the_first_clients_get_their_models(transform):
    losses, _ = separated_losses(0, 4, 5)
    clustering = LossVectorClustering(4, transform=transform, random_state=0).fit(losses)
    models = match(clustering.labels_, losses)
    found = assign_newcomers(losses + 0.01, clustering.cluster_centers_, models, transform)
    assert np.array_equal(found.models, models[clustering.labels_])
    assert found.margins.min() > 0.8


def test_no_newcomers_are_no_trouble():
    assert assign_newcomers(np.empty((0, 2)), CENTROIDS, [0, 1, 2]).models.shape == (0,)


def test_vectors_of_another_length_are_refused_with_both_lengths():
    with pytest.raises(ValueError, match=r"have 3 losses.*centroids have 2"):
        assign_newcomers([[1.0, 2.0, 3.0]], CENTROIDS, [0, 1, 2])


def test_a_vector_that_is_not_finite_is_refused_by_its_row():
    with pytest.raises(ValueError, match="loss_vectors must be finite numbers: row 2"):
        assign_newcomers([[1.0, 1.0], [1.0, 1.0], [np.nan, 1.0]], CENTROIDS, [0, 1, 2])


def test_every_centroid_needs_its_model():
    with pytest.raises(ValueError, match="one model for each of the 3 centroids, not 2"):
        assign_newcomers([[1.0, 1.0]], CENTROIDS, [0, 1])


def test_a_hundred_thousand_newcomers_take_less_than_a_second():
    rng = np.random.default_rng(0)
    vectors, centroids = rng.random((100_000, 10)), rng.random((10, 10))
    start = time.perf_counter()
    assign_newcomers(vectors, centroids, np.arange(10), "row")
    assert time.perf_counter() - start < 1
