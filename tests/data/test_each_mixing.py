"""What sets each mixing apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import Dataset, load_dataset, mix
from clove.errors import CloveError

from .synthetic import ids, labels, numbered, original_labels

seeds = st.integers(0, 1000)


def class_sets(dataset: Dataset, seed: int = 0, **options: object) -> list[set[int]]:
    mixed = mix(dataset, "label-skew-1", seed, clients_per_cluster=1, **options)
    return [set(labels(client).tolist()) for client in mixed.clients]


def test_label_skew_1_deals_out_the_classes_in_order() -> None:
    assert class_sets(numbered()) == [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}]
    assert class_sets(numbered(), clusters=2, classes_per_cluster=3) == [{0, 1, 2}, {3, 4, 5}]


@settings(deadline=None, max_examples=30)
@given(seed=seeds, clusters=st.integers(1, 5), each=st.integers(1, 2))
def test_label_skew_1_with_shuffled_classes_keeps_them_disjoint(
    seed: int, clusters: int, each: int
) -> None:
    options = {"clusters": clusters, "classes_per_cluster": each, "shuffle_classes": True}
    sets = class_sets(numbered(), seed, **options)
    assert all(len(own) == each for own in sets)
    assert len(set().union(*sets)) == clusters * each


def test_label_skew_1_shuffles_classes_by_the_seed() -> None:
    drawn = [class_sets(numbered(), seed, shuffle_classes=True) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_label_skew_1_keeps_labels_and_gives_the_cluster_all_its_points() -> None:
    dataset = numbered(400)
    mixed = mix(dataset, "label-skew-1", 0, clients_per_cluster=1)
    assert sum(client.size for client in mixed.clients) == 400
    for client in mixed.clients:
        np.testing.assert_array_equal(labels(client), original_labels(dataset, client))


def test_label_skew_1_says_when_there_are_too_few_classes() -> None:
    with pytest.raises(CloveError, match=r"need 12 classes.*has 10: lower clusters"):
        class_sets(numbered(), clusters=6)
    with pytest.raises(CloveError, match="shuffle_classes must be true or false, got 'false'"):
        class_sets(numbered(), shuffle_classes="false")


def test_without_mixing_each_class_is_a_cluster() -> None:
    mixed = mix(numbered(), "none", 0)
    assert mixed.clusters == 10
    for client in mixed.clients:
        assert set(labels(client)) == {client.group}


def test_without_mixing_natural_groups_go_before_classes() -> None:
    groups = np.arange(400) % 3 * 5, np.arange(200) % 3 * 5
    dataset = numbered(group_train=groups[0], group_test=groups[1])
    mixed = mix(dataset, "none", 0)
    assert mixed.clusters == 3
    for client in mixed.clients:
        assert {groups[0][i] for i in ids(client)} == {5 * (client.group or 0)}
        assert {groups[1][i - 100_000] for i in ids(client, "test")} == {5 * (client.group or 0)}


def test_without_mixing_only_the_first_groups_may_be_taken() -> None:
    assert mix(numbered(), "none", 0, clusters=3).clusters == 3
    with pytest.raises(CloveError, match="clusters=11, but data set 'numbered' has 10 groups"):
        mix(numbered(), "none", 0, clusters=11)


def test_without_groups_or_classes_there_is_nothing_to_make_clusters_of() -> None:
    nameless = numbered(kind="regression", classes=None)
    with pytest.raises(CloveError, match=r"neither groups nor classes.*iid=True"):
        mix(nameless, "none", 0)
    assert mix(nameless, "none", 0, iid=True).clusters == 1


def test_iid_clients_all_come_from_one_cluster() -> None:
    mixed = mix(numbered(), "none", 0, iid=True, clients_per_cluster=8, points_per_client=50)
    assert mixed.clusters == 1
    assert mixed.groups.tolist() == [0] * 8
    assert sorted(i for client in mixed.clients for i in ids(client)) == list(range(400))
    assert all(len(set(labels(client))) > 5 for client in mixed.clients)
    assert mix(numbered(), "none", 0, iid=True, clusters=1).clusters == 1
    with pytest.raises(CloveError, match="iid=True makes one cluster, got clusters=2"):
        mix(numbered(), "none", 0, iid=True, clusters=2)


def test_unlabelled_data_make_unsupervised_clients() -> None:
    mixed = mix(numbered(y_train=None, y_test=None), "feature-skew", 0)
    assert not any(client.labelled for client in mixed.clients)


@settings(deadline=None, max_examples=30)
@given(
    mixing=st.sampled_from(["feature-skew", "concept-shift"]),
    clusters=st.integers(1, 4),
    points=st.integers(50, 400),
    seed=seeds,
)
def test_mixings_over_all_classes_divide_each_class_evenly(
    mixing: str, clusters: int, points: int, seed: int
) -> None:
    dataset = numbered(points)
    mixed = mix(dataset, mixing, seed, clusters=clusters, clients_per_cluster=1)
    counts = np.stack(
        [np.bincount(original_labels(dataset, c), minlength=10) for c in mixed.clients]
    )
    assert counts.sum() == points
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


@settings(deadline=None, max_examples=20)
@given(turns=st.permutations([0, 1, 2, 3]), seed=seeds)
def test_feature_skew_turns_every_image_of_a_cluster_by_its_angle(
    turns: list[int], seed: int
) -> None:
    dataset = numbered()
    mixed = mix(dataset, "feature-skew", seed, rotations=[90 * turn for turn in turns])
    # Counter-clockwise, the corner at the top left goes to the bottom left first.
    corner = [(0, 0), (1, 0), (1, 1), (0, 1)]
    for client in mixed.clients:
        row, column = corner[turns[client.group or 0]]
        for points, part in ((client.train, "train"), (client.test, "test")):
            assert points is not None
            assert points[0][:, 0, row, column].tolist() == ids(client, part)
        np.testing.assert_array_equal(labels(client), original_labels(dataset, client))


def test_feature_skew_has_a_cluster_for_each_rotation() -> None:
    assert mix(numbered(), "feature-skew", 0).clusters == 4
    assert mix(numbered(), "feature-skew", 0, rotations=[0, -90]).clusters == 2
    assert mix(numbered(), "feature-skew", 0, clusters=2).clusters == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rotations": [0, 45]}, "multiples of 90 degrees"),
        ({"rotations": []}, r"rotations=\[\] names no cluster"),
        ({"rotations": [0, 90, 360]}, "must differ between clusters"),
        ({"rotations": 90}, "must be a list of angles"),
        ({"rotations": ["left"]}, "must be a list of angles"),
        ({"rotations": [float("inf")]}, "multiples of 90 degrees"),
        ({"clusters": 5}, "clusters=5, but there are 4 rotations"),
    ],
)
def test_feature_skew_refuses_other_angles(options: dict[str, object], message: str) -> None:
    with pytest.raises(CloveError, match=message):
        mix(numbered(), "feature-skew", 0, **options)


def test_feature_skew_needs_images_that_keep_their_shape() -> None:
    with pytest.raises(CloveError, match=r"'feature-skew' turns images.*'linear'.*\(20,\)"):
        mix(load_dataset("linear", points=10), "feature-skew", 0)
    wide = numbered(x_train=np.zeros((400, 1, 2, 3)), x_test=np.zeros((200, 1, 2, 3)))
    with pytest.raises(CloveError, match="2 × 3 pixels change shape"):
        mix(wide, "feature-skew", 0)
    assert mix(wide, "feature-skew", 0, rotations=[0, 180]).clusters == 2


def relabellings(dataset: Dataset, seed: int = 0, **options: object) -> list[dict[int, int]]:
    """Return for each cluster which labels it changed and into what, seen from the clients."""
    mixed = mix(dataset, "concept-shift", seed, clients_per_cluster=1, **options)
    found = []
    for client in mixed.clients:
        maps = [
            dict(zip(original_labels(dataset, client, part), labels(client, part), strict=True))
            for part in ("train", "test")
        ]
        assert maps[0] == maps[1]
        found.append({int(a): int(b) for a, b in maps[0].items() if a != b})
    return found


def test_concept_shift_swaps_the_papers_labels() -> None:
    assert relabellings(numbered(4000, 4000)) == [
        {0: 3, 3: 0, 8: 9, 9: 8},
        {1: 4, 4: 1, 6: 9, 9: 6},
        {1: 2, 2: 1, 3: 6, 6: 3},
        {3: 5, 5: 3, 4: 7, 7: 4},
    ]


def test_concept_shift_without_swaps_needs_a_number_of_clusters() -> None:
    with pytest.raises(CloveError, match=r"swaps=\[\] names no cluster"):
        mix(numbered(), "concept-shift", 0, swaps=[])
    assert len(relabellings(numbered(), swaps=[], clusters=3)) == 3


def test_concept_shift_swaps_labels_as_asked() -> None:
    swaps = [[], [[0, 1]], [[0, 1], [2, 3]]]
    expected = [{}, {0: 1, 1: 0}, {0: 1, 1: 0, 2: 3, 3: 2}]
    assert relabellings(numbered(), swaps=swaps) == expected
    assert relabellings(numbered(), swaps=swaps, clusters=2) == expected[:2]


@settings(deadline=None, max_examples=20)
@given(clusters=st.integers(5, 12), seed=seeds)
def test_concept_shift_draws_swaps_of_their_own_for_further_clusters(
    clusters: int, seed: int
) -> None:
    found = relabellings(numbered(4000, 4000), seed, clusters=clusters)
    assert len(found) == clusters
    assert found[:4] == relabellings(numbered(4000, 4000))
    pairs = [frozenset(swap) for own in found for swap in own.items()]
    assert all(len(own) == 4 for own in found)
    assert len(set(pairs)) == 2 * clusters


def test_concept_shift_draws_what_the_papers_swaps_cannot_give_for_few_classes() -> None:
    found = relabellings(numbered(classes=4), clusters=3)
    assert all(len(own) == 4 for own in found)
    with pytest.raises(CloveError, match=r"4 classes allow 3 clusters.*got clusters=4"):
        relabellings(numbered(classes=4))


@pytest.mark.parametrize(
    ("swaps", "message"),
    [
        ([[[0, 10]]], "cluster 0 name labels outside 0 to 9"),
        ([[[0, -1]]], "cluster 0 name labels outside 0 to 9"),
        ([[], [[0, 1], [1, 2]]], "cluster 1 use a label twice"),
        ([[[2, 2]]], "cluster 0 use a label twice"),
        ([[[0, 1]], [[1, 0]]], "must differ between clusters"),
        ([[0, 1]], "must list for each cluster its pairs"),
        ([[[0, 1, 2]]], "must list for each cluster its pairs"),
        ("0-1", "must list for each cluster its pairs"),
        (7, "must list for each cluster its pairs"),
    ],
)
def test_concept_shift_refuses_unsound_swaps(swaps: object, message: str) -> None:
    with pytest.raises(CloveError, match=message):
        relabellings(numbered(), swaps=swaps)
