from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from clove.clustering import finch, finch_k, finch_labels, first_neighbours
from clove.clustering.arrays import count_groups

from .groups import (
    is_coarser_each_time,
    relaxed,
    same_groups,
    seeds,
    separated_losses,
)

# First neighbours: 0-1, 3-4 and 4-3, 10-11, 14-15; the means 0.5, 3.5, 10.5, 14.5 then pair up as
# {0.5, 3.5} and {10.5, 14.5}, and those two in one.
LADDER = np.array([[0.0], [1.0], [3.0], [4.0], [10.0], [11.0], [14.0], [15.0]])


def test_the_hierarchy_of_a_case_worked_by_hand():
    assert [labels.tolist() for labels in finch(LADDER)] == [
        [0, 0, 1, 1, 2, 2, 3, 3],
        [0, 0, 0, 0, 1, 1, 1, 1],
    ]


def test_a_chain_of_first_neighbours_is_one_cluster():
    # Each one's first neighbour is the one to its right, save the last, whose is to its left.
    assert [labels.tolist() for labels in finch([[0.0], [4.0], [7.0], [9.0], [10.0]])] == [
        [0, 0, 0, 0, 0]
    ]


def test_clients_with_the_same_first_neighbour_share_a_cluster():
    star = [[0.0, 0.0], [2.0, 0.0], [0.0, 2.1], [-2.2, 0.0], [50.0, 50.0], [51.0, 50.0]]
    assert finch(star)[0].tolist() == [0, 0, 0, 0, 1, 1]


def test_of_equally_near_neighbours_the_first_counts():
    # 3 is as near to 1 as to 5; taking 1 makes {1, 3} and {5, 5.5}, taking 5 would join all.
    assert finch([[1.0], [3.0], [5.0], [5.5], [0.5]])[0].tolist() == [0, 0, 1, 1, 0]


@relaxed
@given(seeds, st.integers(2, 40), st.integers(1, 4))
def test_every_partition_is_made_of_clusters_of_the_one_before(seed, n_clients, n_models):
    vectors = np.random.default_rng(seed).normal(size=(n_clients, n_models))
    partitions = finch(vectors)
    assert is_coarser_each_time(partitions)
    # Nobody is alone: everybody has a first neighbour.
    assert np.bincount(partitions[0]).min() >= 2
    assert len(partitions) == 1 or count_groups(partitions[-1]) > 1


@relaxed
@given(seeds, st.integers(2, 25))
def test_the_first_partition_is_that_of_the_papers_three_kinds_of_link(seed, n_clients):
    vectors = np.random.default_rng(seed).normal(size=(n_clients, 3))
    distances = cdist(vectors, vectors)
    np.fill_diagonal(distances, np.inf)
    first = distances.argmin(axis=1)
    is_first = first[:, np.newaxis] == np.arange(n_clients)
    links = is_first | is_first.T | (first[:, np.newaxis] == first)
    _, expected = connected_components(links, directed=False)
    assert same_groups(finch(vectors)[0], expected)


@relaxed
@given(seeds, st.data())
def test_permuting_clients_permutes_the_hierarchy(seed, data):
    vectors = np.random.default_rng(seed).normal(size=(15, 3))
    order = np.array(data.draw(st.permutations(range(15))))
    for plain, permuted in zip(finch(vectors), finch(vectors[order]), strict=True):
        assert same_groups(plain[order], permuted)


def test_neighbours_are_the_same_when_looked_for_in_small_blocks(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(40, 3))
    whole = finch(vectors)
    monkeypatch.setattr(first_neighbours, "BLOCK", 7 * 40)
    for left, right in zip(whole, finch(vectors), strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("n_clients", [1, 2, 5])
def test_one_client_two_clients_and_identical_ones_are_one_cluster(n_clients):
    vectors = np.ones((n_clients, 3))
    assert [labels.tolist() for labels in finch(vectors)] == [[0] * n_clients]
    assert finch_labels(vectors).tolist() == [0] * n_clients
    assert finch_labels(vectors, 3).tolist() == [0] * n_clients
    assert finch_k(vectors, 5).n_clusters == 1


@relaxed
@given(seeds, st.integers(1, 25), st.integers(1, 25))
def test_a_required_number_of_clusters_is_met(seed, n_clients, n_clusters):
    vectors = np.random.default_rng(seed).normal(size=(n_clients, 3))
    labels = finch_labels(vectors, n_clusters)
    assert count_groups(labels) == len(set(labels.tolist())) == min(n_clusters, n_clients)


@relaxed
@given(seeds, st.integers(2, 6), st.integers(2, 6))
def test_separated_groups_are_found_when_their_number_is_required(seed, n_clusters, per_cluster):
    losses, truth = separated_losses(seed, n_clusters, per_cluster)
    assert same_groups(finch_labels(losses, n_clusters), truth)


def test_the_two_nearest_clusters_are_merged_first():
    assert finch_labels(LADDER, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert finch_labels(LADDER, 3).tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert finch_labels(LADDER, 2).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert finch_labels(LADDER, 1).tolist() == [0] * 8


def test_means_of_merged_clusters_are_weighted_by_their_size():
    # Four at 0 and one at 4 have their mean at 0.8: 3.2 from 4 but 6.2 from 7, which is nearer 11.
    vectors = np.array([[0.0], [0.0], [0.0], [0.0], [3.9], [8.0], [12.0]])
    assert finch_labels(vectors, 2).tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_more_clusters_than_the_first_partition_has_start_from_single_clients():
    assert finch_labels(LADDER, 7).tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_equal_vectors_are_never_parted():
    vectors = np.array([[0.0], [5.0], [0.0], [9.0]])
    assert finch_labels(vectors, 4).tolist() == [0, 1, 0, 2]


def test_without_a_number_the_partition_of_best_silhouette_is_taken():
    choice = finch_k(LADDER, 8)
    expected = {count_groups(p): silhouette_score(LADDER, p) for p in finch(LADDER)}
    assert choice.scores == pytest.approx(expected)
    assert choice.n_clusters == max(expected, key=expected.get)
    assert set(expected) == {choice.n_clusters, choice.runner_up}
    assert count_groups(finch_labels(LADDER)) == choice.n_clusters
    assert choice.method == "finch"


def test_partitions_with_too_many_clusters_are_no_candidates():
    assert set(finch_k(LADDER, 3).scores) == {2}
    assert finch_k(LADDER, 1).n_clusters == 1
    assert finch_labels(LADDER, max_clusters=3).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_hierarchy_that_stays_above_the_largest_number_is_merged_down_to_it():
    vectors = np.random.default_rng(0).normal(size=(60, 3))
    coarsest = count_groups(finch(vectors)[-1])
    assert coarsest > 2
    assert set(finch_k(vectors, coarsest - 1).scores) == {coarsest - 1}
    assert count_groups(finch_labels(vectors, max_clusters=coarsest - 1)) == coarsest - 1


def test_impossible_requests_are_refused():
    with pytest.raises(ValueError, match="n_clusters must be at least 1, not 0"):
        finch_labels(LADDER, 0)
    with pytest.raises(ValueError, match="row 0"):
        finch([[np.nan], [1.0]])
