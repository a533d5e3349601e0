"""Label skews 2, 3 and 4, and how a class is shared out among those who hold it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import Dataset, mix
from clove.data.mixings import MixedClients, describe
from clove.errors import CloveError, CloveWarning

from .synthetic import ids, numbered

seeds = st.integers(0, 1000)
DIRICHLET = ["label-skew-1", "label-skew-2", "label-skew-3"]


def cluster_counts(dataset: Dataset, mixing: str, seed: int = 0, **options: object) -> np.ndarray:
    """Return the points that each cluster has of each class, train and test: [2, K, classes]."""
    clients = {"clients_per_cluster": 1, "points_per_client": 10**6, **options}
    with pytest.warns(CloveWarning):
        mixed = mix(dataset, mixing, seed, **clients)
    counts = describe(mixed, dataset)
    return np.stack([counts.train, counts.test])


def classes_in_words(mixed: MixedClients) -> list[set[int]]:
    return [set(map(int, words.removeprefix("classes ").split(", "))) for words in mixed.about]


def held(counts: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(own).tolist()) for own in counts]


@settings(deadline=None, max_examples=30)
@given(seed=seeds, clusters=st.integers(2, 5), each=st.integers(3, 5), shared=st.integers(0, 2))
def test_label_skew_2_draws_sets_of_which_any_two_share_enough(
    seed: int, clusters: int, each: int, shared: int
) -> None:
    options = {"clusters": clusters, "classes_per_cluster": each, "shared_classes": shared}
    sets = classes_in_words(mix(numbered(800, 800), "label-skew-2", seed, **options))
    assert [len(own) for own in sets] == [each] * clusters
    for one, other in combinations(sets, 2):
        assert shared <= len(one & other) < each


@settings(deadline=None, max_examples=20)
@given(seed=seeds)
def test_label_skew_2_gives_clients_only_the_classes_of_their_cluster(seed: int) -> None:
    dataset = numbered(2000, 1000)
    mixed = mix(dataset, "label-skew-2", seed)
    counts = describe(mixed, dataset)
    sets = classes_in_words(mixed)
    for client, train, test in zip(mixed.clients, counts.train, counts.test, strict=True):
        for own in held(np.stack([train, test])):
            assert own <= sets[client.group or 0]


def test_label_skew_2_has_the_papers_classes() -> None:
    sets = classes_in_words(mix(numbered(2000), "label-skew-2", 0))
    assert [len(own) for own in sets] == [4] * 5
    assert min(len(one & other) for one, other in combinations(sets, 2)) >= 2


def test_of_four_classes_three_pairs_share_one_any_two_and_no_more() -> None:
    dataset = numbered(2000, 1000, classes=4)
    for seed in range(5):
        sets = classes_in_words(mix(dataset, "label-skew-2", seed))
        assert [len(own) for own in sets] == [2] * 3
        assert all(len(one & other) == 1 for one, other in combinations(sets, 2))
    with pytest.raises(CloveError, match=r"no 4 different sets of 2 of 4 classes.*at least 1"):
        mix(dataset, "label-skew-2", 0, clusters=4)


def test_label_skew_2_says_what_cannot_be() -> None:
    with pytest.raises(CloveError, match="classes_per_cluster=11, and the data set has 10"):
        mix(numbered(), "label-skew-2", 0, classes_per_cluster=11)
    with pytest.raises(CloveError, match=r"share at least 4: lower clusters or shared_classes"):
        mix(numbered(), "label-skew-2", 0, shared_classes=4)
    with pytest.raises(CloveError, match="shared_classes must be a whole number of at least 0"):
        mix(numbered(), "label-skew-2", 0, shared_classes=-1)


def test_label_skew_3_lets_each_cluster_miss_a_class_and_the_last_none() -> None:
    mixed = mix(numbered(2000), "label-skew-3", 0)
    assert mixed.about == ["all but 0", "all but 1", "all but 2", "all but 3", "all classes"]
    counts = cluster_counts(numbered(20_000, 20_000), "label-skew-3", alpha=100.0)
    everything = set(range(10))
    expected = [everything - {0}, everything - {1}, everything - {2}, everything - {3}, everything]
    assert held(counts[0]) == held(counts[1]) == expected


@settings(deadline=None, max_examples=20)
@given(seed=seeds, clusters=st.integers(1, 11))
def test_label_skew_3_with_shuffled_classes_misses_different_ones(seed: int, clusters: int) -> None:
    options = {"clusters": clusters, "shuffle_classes": True, "clients_per_cluster": 1}
    about = mix(numbered(), "label-skew-3", seed, **options).about
    assert len(set(about)) == clusters
    assert about[-1] == "all classes"


def test_label_skew_3_cannot_miss_more_classes_than_there_are() -> None:
    with pytest.raises(CloveError, match="clusters=12, of which 11 miss a class each"):
        mix(numbered(), "label-skew-3", 0, clusters=12)


@settings(deadline=None, max_examples=40)
@given(
    mixing=st.sampled_from(["label-skew-2", "label-skew-3"]),
    seed=seeds,
    alpha=st.sampled_from([0.1, 0.5, 5.0]),
    over=st.sampled_from(["clusters", "clients"]),
)
def test_a_class_is_used_up_and_train_and_test_have_the_same_shares_of_it(
    mixing: str, seed: int, alpha: float, over: str
) -> None:
    dataset = numbered(4000, 2000)
    train, test = cluster_counts(dataset, mixing, seed, alpha=alpha, dirichlet_over=over)
    whole = train.sum(axis=0)
    assert set(whole[whole > 0]) == {400}
    assert set(test.sum(axis=0)[whole > 0]) == {200}
    # Counts are shares rounded to points, of which the test part has half as many.
    np.testing.assert_allclose(test, train / 2, atol=1.5)


def test_alpha_says_how_unevenly_a_class_is_shared_out() -> None:
    dataset = numbered(10_000, 5000)
    spread = [
        np.std(cluster_counts(dataset, "label-skew-3", alpha=alpha)[0][:, 4:])
        for alpha in (0.1, 1.0, 100.0)
    ]
    assert spread[0] > spread[1] > spread[2]


@pytest.mark.parametrize("mixing", DIRICHLET)
@pytest.mark.parametrize("alpha", [0, -1, float("nan"), "much", 1e-9, True])
def test_alpha_is_positive(mixing: str, alpha: object) -> None:
    with pytest.raises(CloveError, match="alpha must"):
        mix(numbered(), mixing, 0, alpha=alpha)


@settings(deadline=None, max_examples=30)
@given(seed=seeds, alpha=st.floats(0.05, 100))
def test_over_clusters_label_skew_1_is_what_it_is_without_dirichlet(
    seed: int, alpha: float
) -> None:
    plain = mix(numbered(), "label-skew-1", seed)
    shared = mix(numbered(), "label-skew-1", seed, alpha=alpha, dirichlet_over="clusters")
    assert [ids(client) for client in plain.clients] == [ids(client) for client in shared.clients]


def test_the_partition_of_label_skew_1_is_as_it_always_was() -> None:
    first, last = (mix(numbered(), "label-skew-1", 0).clients[place] for place in (0, -1))
    assert ids(first)[:6] == [348, 235, 121, 82, 157, 261]
    assert ids(last)[:6] == [169, 282, 10, 156, 218, 305]
    assert ids(first, "test")[:4] == [100054, 100141, 100056, 100078]


@settings(deadline=None, max_examples=20)
@given(mixing=st.sampled_from(DIRICHLET), seed=seeds)
def test_over_clients_each_client_has_its_own_shares_of_the_clusters_classes(
    mixing: str, seed: int
) -> None:
    dataset = numbered(20_000, 10_000)
    mixed = mix(dataset, mixing, seed, dirichlet_over="clients", points_per_client=100)
    over_clusters = mix(dataset, mixing, seed, points_per_client=100)
    assert mixed.about == over_clusters.about
    counts = describe(mixed, dataset)
    assert counts.train.sum(axis=1).tolist() == [100] * 25
    shares = counts.train / counts.train.sum(axis=1, keepdims=True)
    within = [np.ptp(shares[5 * k : 5 * k + 5], axis=0).max() for k in range(5)]
    # An even division among 5 clients of 100 points would hardly ever come to this.
    assert max(within) > 0.35


def test_classes_are_shared_out_over_clusters_or_clients_only() -> None:
    with pytest.raises(CloveError, match="unknown dirichlet_over 'cluster': did you mean"):
        mix(numbered(), "label-skew-2", 0, dirichlet_over="cluster")


@settings(deadline=None, max_examples=20)
@given(mixing=st.sampled_from(["label-skew-2", "label-skew-3"]), seed=seeds)
def test_shares_are_drawn_again_until_every_client_can_have_its_points(
    mixing: str, seed: int
) -> None:
    # A plain draw would leave some cluster with less than this half of an even share quite often.
    options = {"points_per_client": 60, "test_points_per_client": 30}
    assert mix(numbered(4000, 2000), mixing, seed, **options).shortfall is None


def test_clients_get_fewer_where_no_draw_is_enough() -> None:
    with pytest.warns(CloveWarning, match="points_per_client=500, but"):
        mixed = mix(numbered(4000, 2000), "label-skew-2", 0, points_per_client=500)
    sizes = [client.size for client in mixed.clients]
    assert 20 < min(sizes) < max(sizes) < 500


def test_a_client_left_without_points_is_an_error() -> None:
    options = {"dirichlet_over": "clients", "alpha": 0.01, "clients_per_cluster": 20}
    with pytest.raises(CloveError, match=r"client \d+ of cluster 0 gets no train points"):
        mix(numbered(100), "label-skew-1", 0, **options)


@settings(deadline=None, max_examples=40)
@given(
    seed=seeds,
    clusters=st.integers(1, 10),
    dominant=st.floats(0, 1),
    points=st.integers(200, 3000),
)
def test_label_skew_4_has_a_dominant_class_and_the_rest_even(
    seed: int, clusters: int, dominant: float, points: int
) -> None:
    options = {"clusters": clusters, "dominant_share": dominant}
    counts = cluster_counts(numbered(points, 500), "label-skew-4", seed, **options)
    for part in counts:
        assert len(set(part.sum(axis=1))) == 1
        own = round(dominant * part[0].sum())
        rest = part - own * np.eye(clusters, 10, dtype=int)
        assert np.ptp(rest, axis=1).max() <= 1
        assert rest.min() >= 0


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(20, 60), min_size=2, max_size=6), dominant=st.floats(0, 1))
def test_label_skew_4_uses_what_classes_of_any_size_allow(
    sizes: list[int], dominant: float
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    x = np.zeros((len(labels), 1, 2, 2), np.float32)
    arrays = {"x_train": x, "y_train": labels, "x_test": x, "y_test": labels}
    counts = cluster_counts(
        numbered(classes=len(sizes), **arrays), "label-skew-4", dominant_share=dominant
    )
    assert (counts[0].sum(axis=0) <= sizes).all()
    # The scarcest class is used up but for rounding.
    assert (np.array(sizes) - counts[0].sum(axis=0)).min() <= len(sizes)


def test_label_skew_4_has_the_papers_shares_in_each_client() -> None:
    dataset = numbered(60_000, 10_000)
    mixed = mix(dataset, "label-skew-4", 0)
    counts = describe(mixed, dataset)
    assert (len(mixed.clients), mixed.clusters, mixed.shortfall) == (50, 10, None)
    shares = counts.train / 500
    own = shares[np.arange(50), np.arange(50) // 5]
    assert own.mean() == pytest.approx(2 / 3 + 1 / 30, abs=0.02)
    assert shares.sum(axis=0) == pytest.approx([5] * 10, abs=0.5)


def test_label_skew_4_says_what_cannot_be() -> None:
    with pytest.raises(CloveError, match=r"clusters=11.*a dominant class of its own"):
        mix(numbered(), "label-skew-4", 0, clusters=11)
    with pytest.raises(CloveError, match="dominant_share must lie between 0 and 1, got 66"):
        mix(numbered(), "label-skew-4", 0, dominant_share=66)
