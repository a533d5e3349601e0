from __future__ import annotations

import doctest
import importlib
import pkgutil
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import clove.clustering
from clove.clustering import TRANSFORMS, LossVectorClustering, finch, transform_losses

from .groups import relaxed, same_groups, seeds, separated_losses

METHODS = ["kmeans", "agglomerative", "finch"]
SELECTIONS = ["silhouette", "merge-ratio"]


def fitted(losses, n_clusters=8, **settings) -> LossVectorClustering:
    """Fit with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return LossVectorClustering(n_clusters, random_state=0, **settings).fit(losses)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_separated_groups_are_found(method, transform):
    losses, truth = separated_losses(0, 5, 5)
    clustering = fitted(losses, 5, method=method, transform=transform)
    assert adjusted_rand_score(truth, clustering.labels_) == 1
    assert np.array_equal(clustering.predict(losses), clustering.labels_)


@pytest.mark.parametrize(
    ("method", "selection"),
    [
        ("kmeans", "silhouette"),
        ("kmeans", "merge-ratio"),
        ("agglomerative", "silhouette"),
        ("agglomerative", "merge-ratio"),
        ("finch", "merge-ratio"),
    ],
)
def test_their_number_is_found_as_well(method, selection):
    losses, truth = separated_losses(1, 5, 5)
    clustering = fitted(losses, "auto", method=method, selection=selection)
    assert clustering.n_clusters_ == clustering.choice_.n_clusters == 5
    assert clustering.runner_up_ == clustering.choice_.runner_up
    assert same_groups(clustering.labels_, truth)


@relaxed
@given(seeds, st.integers(2, 5), st.integers(2, 6))
def test_finch_left_to_itself_takes_a_partition_of_its_own_hierarchy(seed, n_kinds, per_kind):
    losses, _ = separated_losses(seed, n_kinds, per_kind)
    clustering = fitted(losses, "auto", method="finch")
    assert clustering.choice_.method == "finch"
    assert any(np.array_equal(clustering.labels_, labels) for labels in finch(losses))


@pytest.mark.parametrize("method", METHODS)
@relaxed
@given(seed=seeds, data=st.data())
def test_permuting_clients_permutes_labels(method, seed, data):
    losses, _ = separated_losses(seed, 3, 4)
    order = np.array(data.draw(st.permutations(range(len(losses)))))
    plain, permuted = fitted(losses, 3, method=method), fitted(losses[order], 3, method=method)
    assert same_groups(plain.labels_[order], permuted.labels_)


@pytest.mark.parametrize("method", METHODS)
@relaxed
@given(seed=seeds, n_clients=st.integers(1, 12), n_clusters=st.integers(1, 14))
def test_labels_and_centres_fit_together(method, seed, n_clients, n_clusters):
    losses = np.random.default_rng(seed).random((n_clients, 3))
    clustering = fitted(losses, n_clusters, method=method, transform="sqrt")
    labels = clustering.labels_
    assert clustering.n_clusters_ == min(n_clients, n_clusters)
    # Numbered by first appearance: each label is at most one above all before it.
    assert (labels <= np.maximum.accumulate(np.r_[-1, labels])[:-1] + 1).all()
    vectors = transform_losses(losses, "sqrt")
    for cluster, centre in enumerate(clustering.cluster_centers_):
        assert np.allclose(vectors[labels == cluster].mean(axis=0), centre)


@pytest.mark.parametrize("method", METHODS)
def test_fewer_clients_than_clusters_are_a_cluster_each(method):
    clustering = fitted([[0.1, 2.0], [2.0, 0.1], [1.0, 1.0]], 8, method=method)
    assert clustering.labels_.tolist() == [0, 1, 2]
    assert clustering.n_clusters_ == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_clusters", [1, 4, "auto"])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_identical_loss_vectors_are_one_cluster(method, n_clusters, selection):
    clustering = fitted(np.full((6, 4), 0.7), n_clusters, method=method, selection=selection)
    assert clustering.labels_.tolist() == [0] * 6
    assert clustering.n_clusters_ == 1
    assert clustering.runner_up_ is None


@pytest.mark.parametrize("method", METHODS)
def test_models_that_are_all_alike_tell_nobody_apart_under_row(method):
    # As when all models start the same: each client has its own loss, but the same on all models.
    losses = np.repeat(np.random.default_rng(0).random((9, 1)), 5, axis=1)
    assert fitted(losses, 3, method=method, transform="row").n_clusters_ == 1


@pytest.mark.parametrize("method", METHODS)
def test_fewer_distinct_vectors_than_clusters_are_a_cluster_each(method):
    losses = [[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [3.0, 3.0]]
    clustering = fitted(losses, 4, method=method)
    assert clustering.labels_.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_clusters", [1, 8, "auto"])
def test_one_client_is_one_cluster(method, n_clusters):
    clustering = fitted([[0.5, 0.6]], n_clusters, method=method)
    assert clustering.labels_.tolist() == [0]
    assert clustering.cluster_centers_.tolist() == [[0.5, 0.6]]


def test_vectors_too_near_to_tell_apart_raise_no_warning():
    # Distinct to the last bit, but k-means cannot keep three of them apart.
    losses = 1e8 + np.array([[0.0], [0.0], [1.5e-8], [3e-8], [1e8]])
    assert fitted(losses, 3).n_clusters_ <= 3


@pytest.mark.parametrize("method", METHODS)
def test_ties_are_settled_the_same_way_every_time(method):
    square = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    once, again = fitted(square, 2, method=method), fitted(square, 2, method=method)
    assert np.array_equal(once.labels_, again.labels_)
    assert once.labels_[0] == 0


def test_of_equally_near_centres_the_first_is_predicted():
    clustering = fitted([[0.0, 2.0], [2.0, 0.0]], 2)
    assert clustering.predict([[1.0, 1.0]]).tolist() == [0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_losses_that_are_not_finite_are_refused(bad):
    losses = np.ones((4, 3))
    losses[2, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        LossVectorClustering(2).fit(losses)


@pytest.mark.parametrize("transform", ["sqrt", "log"])
def test_negative_losses_are_refused_where_they_make_no_sense(transform):
    with pytest.raises(ValueError, match="Negative values"):
        LossVectorClustering(2, transform=transform).fit([[1.0, -1.0], [2.0, 3.0]])


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", "some"),
        ("max_clusters", 0),
        ("selection", "elbow"),
        ("selection_threshold", 0.5),
        ("silhouette_margin", 0.0),
        ("method", "dbscan"),
        ("transform", "square"),
        ("n_init", 0),
        ("random_state", "seed"),
    ],
)
def test_a_wrong_parameter_is_named(parameter, value):
    with pytest.raises(ValueError, match=f"The '{parameter}' parameter of LossVectorClustering"):
        LossVectorClustering(**{parameter: value}).fit([[1.0, 2.0], [2.0, 1.0]])


def test_prediction_needs_a_fit_first():
    with pytest.raises(NotFittedError):
        LossVectorClustering().predict([[1.0]])


def test_a_given_number_of_clusters_is_no_choice():
    clustering = fitted([[0.0], [1.0], [5.0]], 2)
    assert clustering.choice_ is None
    assert clustering.runner_up_ is None
    assert clustering.n_features_in_ == 1


def test_settings_of_the_choice_reach_it():
    rng = np.random.default_rng(0)
    pairs = np.array([[0.0, 0.0], [0.0, 4.0], [20.0, 0.0], [20.0, 4.0]])
    losses = np.repeat(pairs, 5, axis=0) + rng.normal(0, 0.2, size=(20, 2))
    assert fitted(losses, "auto").n_clusters_ == 4
    assert fitted(losses, "auto", silhouette_margin=1.25).n_clusters_ == 2
    assert set(fitted(losses, "auto", max_clusters=3).choice_.scores) == {2, 3}
    by_ratio = fitted(losses, "auto", selection="merge-ratio", selection_threshold=1e6)
    assert by_ratio.n_clusters_ == 1
    assert by_ratio.runner_up_ in (2, 4)


def test_the_same_seed_gives_the_same_clusters():
    losses = np.random.default_rng(0).random((40, 5))
    once = LossVectorClustering(6, n_init=1, random_state=3)
    assert np.array_equal(once.fit_predict(losses), clone(once).fit_predict(losses))


def test_the_examples_in_the_rooms_docstrings_run():
    for module in pkgutil.iter_modules(clove.clustering.__path__, "clove.clustering."):
        assert doctest.testmod(importlib.import_module(module.name)).failed == 0


def test_all_that_the_room_names_is_there():
    assert all(hasattr(clove.clustering, name) for name in clove.clustering.__all__)
