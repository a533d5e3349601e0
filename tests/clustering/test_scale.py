"""Very many clients: what is done on a sample says so, and what cannot be done is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from clove.clustering import (
    LossVectorClustering,
    finch,
    finch_labels,
    first_neighbours,
    merge_ratio_k,
    selection,
    silhouette_k,
)
from clove.errors import CloveError

from .groups import relaxed, same_groups, seeds, separated_losses


@pytest.mark.parametrize("how", ["silhouette", "merge-ratio"])
@relaxed
@given(seed=seeds, n_clusters=st.integers(2, 6))
def test_a_sample_gives_the_number_of_clusters_that_all_clients_give(how, seed, n_clusters):
    losses, truth = separated_losses(seed, n_clusters, 60)
    whole = LossVectorClustering("auto", selection=how, random_state=0).fit(losses)
    sampled = clone(whole).set_params(exact_limit=10 * n_clusters).fit(losses)
    assert sampled.n_clusters_ == whole.n_clusters_ == n_clusters
    assert same_groups(sampled.labels_, truth)


@pytest.mark.parametrize("method", ["kmeans", "agglomerative", "finch"])
def test_a_sample_is_never_silent(method):
    losses, truth = separated_losses(0, 4, 50)
    given = {"method": method, "selection": "merge-ratio", "random_state": 0}
    sampled = LossVectorClustering("auto", exact_limit=60, **given).fit(losses)
    assert sampled.sample_size_ == sampled.choice_.sample == 60
    assert same_groups(sampled.labels_, truth)
    exact = LossVectorClustering("auto", exact_limit=200, **given).fit(losses)
    assert exact.sample_size_ is None
    assert exact.choice_.sample is None


def test_a_known_number_needs_a_sample_only_for_the_starts_of_k_means():
    losses, truth = separated_losses(0, 4, 50)
    limited = LossVectorClustering(4, exact_limit=60, random_state=0)
    assert limited.fit(losses).sample_size_ == 60
    assert limited.choice_ is None
    assert same_groups(limited.labels_, truth)
    for method in ("agglomerative", "finch"):
        assert clone(limited).set_params(method=method).fit(losses).sample_size_ is None


def test_at_the_limit_all_is_as_without_it():
    losses = np.random.default_rng(0).random((120, 4))
    one, other = (
        LossVectorClustering(5, random_state=3, exact_limit=limit).fit(losses)
        for limit in (120, 10_000)
    )
    assert one.sample_size_ is other.sample_size_ is None
    assert np.array_equal(one.labels_, other.labels_)


@pytest.mark.parametrize("n_clusters", [5, "auto"])
def test_the_same_seed_gives_the_same_sample_and_clusters(n_clusters):
    losses = np.random.default_rng(0).random((300, 4))
    once = LossVectorClustering(n_clusters, exact_limit=40, random_state=7).fit(losses)
    again = clone(once).fit(losses)
    assert np.array_equal(once.labels_, again.labels_)
    assert once.choice_ == again.choice_


def test_a_sample_that_holds_too_few_distinct_vectors_is_not_started_from():
    losses = np.zeros((400, 2))
    losses[:3] = [[0.0, 5.0], [0.0, 9.0], [0.0, 14.0]]
    clustering = LossVectorClustering(3, exact_limit=2, random_state=0).fit(losses)
    assert clustering.n_clusters_ == 3
    assert clustering.sample_size_ is None


@relaxed
@given(seeds, st.integers(2, 5), st.integers(10, 60))
def test_labels_and_centres_fit_together_on_a_sample_too(seed, n_clusters, exact_limit):
    losses = np.random.default_rng(seed).random((200, 3))
    found = LossVectorClustering(n_clusters, exact_limit=exact_limit, random_state=0).fit(losses)
    assert found.n_clusters_ == n_clusters
    assert adjusted_rand_score(found.predict(losses), found.labels_) > 0.9
    for cluster, centre in enumerate(found.cluster_centers_):
        assert np.allclose(losses[found.labels_ == cluster].mean(axis=0), centre)


def test_too_many_clients_for_ward_are_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(selection, "WARD_LIMIT", 50)
    losses, truth = separated_losses(0, 3, 20)
    refusal = r"Ward's clustering of 60 clients .* limited to 50 clients.*method='kmeans'"
    for choose in (silhouette_k, merge_ratio_k):
        with pytest.raises(CloveError, match=refusal):
            choose(losses, 5)
    with pytest.raises(CloveError, match=refusal):
        LossVectorClustering(3, method="agglomerative").fit(losses)
    with pytest.raises(CloveError, match="exact_limit"):
        LossVectorClustering("auto").fit(losses)
    way_out = LossVectorClustering("auto", exact_limit=40, random_state=0).fit(losses)
    assert same_groups(way_out.labels_, truth)


def test_the_refusal_says_how_much_memory_it_would_take():
    with pytest.raises(CloveError, match="1,000,000 clients would need 8,000 GB"):
        selection.refuse_ward_of(1_000_000)


def test_too_many_clients_for_finch_are_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(first_neighbours, "FINCH_LIMIT", 50)
    losses, _ = separated_losses(0, 3, 20)
    for attempt in (finch, LossVectorClustering("auto", method="finch", exact_limit=20).fit):
        with pytest.raises(CloveError, match=r"FINCH of 60 clients .* limited to 50.*'kmeans'"):
            attempt(losses)


def test_finch_merges_only_so_many_clusters(monkeypatch):
    monkeypatch.setattr(first_neighbours, "MERGE_LIMIT", 10)
    vectors = np.random.default_rng(0).random((40, 2))
    assert len(set(finch_labels(vectors, 40).tolist())) == 40
    with pytest.raises(CloveError, match="40 clusters and fewer than the 39 asked for"):
        finch_labels(vectors, 39)


@relaxed
@given(seeds, st.integers(3, 60), st.integers(1, 4), st.booleans())
def test_finch_by_a_tree_is_finch_by_comparing_all(seed, n_clients, n_models, on_a_grid):
    rng = np.random.default_rng(seed)
    # On a grid many are equal and many equally near.
    drawn = rng.integers(0, 4, (n_clients, n_models)) if on_a_grid else rng.random((n_clients, 3))
    vectors = drawn.astype(float)
    compared = finch(vectors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_neighbours, "BLOCK", 5)
        searched = finch(vectors)
    for left, right in zip(compared, searched, strict=True):
        assert np.array_equal(left, right)


def test_a_choice_on_a_sample_differs_in_that_from_one_on_all():
    losses, _ = separated_losses(0, 3, 10)
    choice = silhouette_k(losses, 5)
    assert dataclasses.replace(choice, sample=30) != choice
