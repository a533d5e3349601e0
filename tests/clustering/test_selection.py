from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import silhouette_score

from clove.clustering import Choice, merge_ratio_k, silhouette_k
from clove.clustering import selection as selection_module
from clove.clustering.selection import best_silhouette, silhouettes

from .groups import relaxed, seeds, separated_losses

CHOOSERS = [silhouette_k, merge_ratio_k]


@pytest.mark.parametrize("choose", CHOOSERS)
@relaxed
@given(seed=seeds, n_clusters=st.integers(2, 6), per_cluster=st.integers(4, 8))
def test_well_separated_groups_are_counted(choose, seed, n_clusters, per_cluster):
    losses, _ = separated_losses(seed, n_clusters, per_cluster)
    assert choose(losses, 10).n_clusters == n_clusters


@relaxed
@given(seeds, st.integers(20, 60))
def test_one_blob_is_one_group_by_merge_ratio(seed, n_clients):
    blob = np.random.default_rng(seed).normal(5, 1, size=(n_clients, 10))
    choice = merge_ratio_k(blob, 10)
    assert choice.n_clusters == 1
    assert choice.runner_up == max(choice.scores, key=choice.scores.get)


@pytest.mark.parametrize("choose", CHOOSERS)
@relaxed
@given(seed=seeds, data=st.data())
def test_the_order_of_clients_does_not_matter(choose, seed, data):
    losses, _ = separated_losses(seed, 3, 4)
    order = data.draw(st.permutations(range(len(losses))))
    assert choose(losses[order], 6).n_clusters == choose(losses, 6).n_clusters


@pytest.mark.parametrize("choose", CHOOSERS)
@pytest.mark.parametrize(
    "vectors",
    [np.ones((6, 3)), np.zeros((6, 3)), [[1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]],
    ids=["identical", "all nought", "one client", "two clients"],
)
def test_where_nothing_can_be_separated_there_is_one_group(choose, vectors):
    choice = choose(vectors, 5)
    assert (choice.n_clusters, choice.runner_up, choice.scores) == (1, None, {})


@pytest.mark.parametrize("choose", CHOOSERS)
def test_at_most_the_largest_number_allowed_is_chosen(choose):
    losses, _ = separated_losses(0, 6, 4)
    assert set(choose(losses, 4).scores) == {2, 3, 4}
    assert choose(losses, 1).n_clusters == 1


@pytest.mark.parametrize("choose", CHOOSERS)
def test_equal_vectors_in_each_group_leave_no_doubt(choose):
    vectors = np.repeat([[0.0, 3.0], [3.0, 0.0], [3.0, 3.0]], 4, axis=0)
    choice = choose(vectors, 10)
    assert choice.n_clusters == 3
    assert all(np.isfinite(score) for score in choice.scores.values())


@pytest.mark.parametrize("choose", CHOOSERS)
def test_a_vector_that_is_not_finite_is_refused(choose):
    with pytest.raises(ValueError, match="row 1"):
        choose([[1.0], [np.nan], [2.0]], 5)


def test_silhouettes_are_those_of_scikit_learns_ward_clusterings():
    vectors = np.random.default_rng(0).normal(size=(25, 4))
    expected = {
        k: silhouette_score(vectors, AgglomerativeClustering(k).fit_predict(vectors))
        for k in range(2, 9)
    }
    choice = silhouette_k(vectors, 8)
    assert choice.scores == pytest.approx(expected)
    assert choice.n_clusters == max(expected, key=expected.get)
    assert choice.method == "silhouette"


@relaxed
@given(seeds, st.integers(3, 40), st.integers(1, 50))
def test_silhouettes_do_not_depend_on_how_distances_are_parted(seed, n_clients, block):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(0, 5, (n_clients, 2)).astype(float)
    partitions = [np.r_[0, 1, rng.integers(0, 2, n_clients - 2)], np.arange(n_clients) // 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection_module, "BLOCK", block)
        found = silhouettes(vectors, partitions)
    assert found == pytest.approx([silhouette_score(vectors, p) for p in partitions], abs=1e-7)


def test_the_runner_up_is_the_second_best_silhouette():
    losses, _ = separated_losses(1, 3, 5)
    choice = silhouette_k(losses, 6)
    ranked = sorted(choice.scores, key=choice.scores.get, reverse=True)
    assert [choice.n_clusters, choice.runner_up] == ranked[:2]


def test_a_margin_asks_more_of_a_larger_number_of_clusters():
    rng = np.random.default_rng(0)
    pairs = np.array([[0.0, 0.0], [0.0, 4.0], [20.0, 0.0], [20.0, 4.0]])
    vectors = np.repeat(pairs, 5, axis=0) + rng.normal(0, 0.2, size=(20, 2))
    plain, demanding = silhouette_k(vectors, 6), silhouette_k(vectors, 6, margin=1.25)
    assert plain.scores == demanding.scores
    assert plain.n_clusters == 4
    assert (demanding.n_clusters, demanding.runner_up) == (2, 4)


def test_an_equal_silhouette_does_not_replace_a_smaller_number():
    # Identical vectors have no silhouette to speak of: nought, however they are parted.
    partitions = [np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])]
    choice = best_silhouette(np.ones((4, 2)), partitions, margin=1.0, method="by hand")
    assert choice == Choice(2, 3, {2: 0.0, 3: 0.0}, "by hand")


def test_merge_ratios_by_hand():
    # Ward joins 0 and 1 at height 1, 10 and 12 at height 2, and the pairs, whose means are 10.5
    # apart, at sqrt(2) times that.
    choice = merge_ratio_k([[0.0], [1.0], [10.0], [12.0]], 10)
    assert choice.scores == pytest.approx({2: 10.5 * np.sqrt(2) / 2, 3: 2.0})
    assert (choice.n_clusters, choice.runner_up, choice.method) == (2, 3, "merge-ratio")


def test_a_ratio_at_the_threshold_counts():
    vectors = [[0.0], [1.0], [10.0], [12.0]]
    ratio = merge_ratio_k(vectors, 10).scores[2]
    assert merge_ratio_k(vectors, 10, threshold=ratio).n_clusters == 2
    assert merge_ratio_k(vectors, 10, threshold=ratio * 1.01) == dataclasses.replace(
        merge_ratio_k(vectors, 10), n_clusters=1, runner_up=2
    )


def test_a_coarser_structure_shows_as_the_runner_up():
    rng = np.random.default_rng(3)
    pairs = np.array([[0.0, 0.0], [0.0, 8.0], [200.0, 0.0], [200.0, 8.0]])
    vectors = np.repeat(pairs, 5, axis=0) + rng.normal(0, 0.1, size=(20, 2))
    choice = merge_ratio_k(vectors, 8)
    assert {choice.n_clusters, choice.runner_up} == {2, 4}


@relaxed
@given(seeds)
def test_rounding_errors_are_not_taken_for_structure(seed):
    rng = np.random.default_rng(seed)
    vectors = 1e3 * (1 + np.finfo(float).eps * rng.integers(-1, 2, size=(12, 5)))
    assert merge_ratio_k(vectors, 6).n_clusters == 1


@relaxed
@given(seeds)
def test_rounding_errors_within_groups_do_not_hide_them(seed):
    rng = np.random.default_rng(seed)
    vectors = np.repeat([[1e3, 1e3], [1e3, 1e3 + 1]], 6, axis=0)
    vectors *= 1 + np.finfo(float).eps * rng.integers(-1, 2, size=(12, 2))
    assert merge_ratio_k(vectors, 6).n_clusters == 2


def test_a_choice_is_a_value():
    assert Choice(3) == Choice(3, None, {}, "")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Choice(3).n_clusters = 4


@given(st.integers(0, 10**6), st.integers(4, 9), st.integers(2, 5))
def test_repeats_are_as_if_every_client_were_several(seed, clients, repeats):
    vectors = np.random.default_rng(seed).normal(size=(clients, 3))
    found = silhouette_k(vectors, clients, repeats=repeats)
    several = np.repeat(vectors, repeats, axis=0)
    assert set(found.scores) == set(range(2, clients + 1))
    for number, score in found.scores.items():
        labels = AgglomerativeClustering(number).fit_predict(several)
        assert score == pytest.approx(silhouette_score(several, labels), abs=1e-6)


def test_repeats_count_only_where_a_cluster_a_client_may_be_tried():
    vectors = np.random.default_rng(0).normal(size=(9, 3))
    assert silhouette_k(vectors, 8, repeats=5) == silhouette_k(vectors, 8)
