"""The authors' variant: what their code does otherwise than the paper says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import Dataset, mix
from clove.data.mixings import MIXINGS, MixedClients, describe
from clove.errors import CloveError, CloveWarning

from .synthetic import ids, labels, numbered, original_labels

PAPER = sorted(name for name in MIXINGS if MIXINGS[name].variants)
CIFAR10_CLASSES = [3, 1, 0, 4, 2, 5, 9, 6, 8, 7]


def authors(dataset: Dataset, mixing: str, seed: int = 0, **options: object) -> MixedClients:
    return mix(dataset, mixing, seed, variant="authors", **options)


def clusters_of(dataset: Dataset, mixing: str, seed: int = 0, **options: object) -> np.ndarray:
    """Return the points that each cluster has of each class, train and test: [2, K, classes]."""
    whole = {"clients_per_cluster": 1, "points_per_client": 10**6}
    with pytest.warns(CloveWarning):
        counts = describe(authors(dataset, mixing, seed, **whole, **options), dataset)
    return np.stack([counts.train, counts.test])


@pytest.mark.parametrize("mixing", PAPER)
def test_one_partition_serves_all_seeds_which_only_draw_who_gets_what(mixing: str) -> None:
    def points(seed: int) -> tuple[list[list[int]], list[int]]:
        mixed = authors(numbered(), mixing, seed, clients_per_cluster=1, points_per_client=None)
        own = [ids(client) for client in mixed.clients]
        return own, [i for one in own for i in sorted(one)]

    assert points(3)[0] != points(4)[0]
    assert points(3)[1] == points(4)[1]


@pytest.mark.parametrize("mixing", sorted(set(PAPER) - {"feature-skew"}))
def test_no_point_goes_to_two_clients(mixing: str) -> None:
    mixed = authors(numbered(), mixing)
    for part in ("train", "test"):
        used = Counter(i for client in mixed.clients for i in ids(client, part))
        assert max(used.values()) == 1


def test_label_skew_2_has_their_sets_and_fewest_points() -> None:
    mixed = authors(numbered(60_000, 10_000), "label-skew-2")
    assert mixed.about == [
        "classes 2, 4, 6, 9",
        "classes 0, 2, 3, 4",
        "classes 0, 4, 6, 7",
        "classes 3, 4, 5, 6",
        "classes 2, 3, 6, 7",
    ]
    train, test = clusters_of(numbered(60_000, 10_000), "label-skew-2")
    assert train.sum(axis=1).min() >= 5100
    assert test.sum(axis=1).min() >= 510


def test_label_skew_2_draws_other_sets_that_share_exactly_as_many() -> None:
    mixed = authors(numbered(2000), "label-skew-2", clusters=4, classes_per_cluster=3)
    sets = [set(words.removeprefix("classes ").split(", ")) for words in mixed.about]
    assert [len(a & b) for a in sets for b in sets if a is not b] == [1] * 12


def test_label_skew_2_takes_all_pairs_of_four_classes() -> None:
    mixed = authors(numbered(2000, classes=4, name="agnews"), "label-skew-2")
    pairs = ["0, 1", "0, 2", "0, 3", "1, 2", "1, 3", "2, 3"]
    assert mixed.about == [f"classes {pair}" for pair in pairs]
    assert mixed.options["clients_per_cluster"] == 5
    assert len(mixed.clients) == 30


def test_label_skew_3_misses_the_last_class_first() -> None:
    train, test = clusters_of(numbered(60_000, 10_000), "label-skew-3")
    missed = [np.flatnonzero(own == 0).tolist() for own in train]
    assert missed == [[9], [0], [1], [2], []]
    assert train.sum(axis=1).min() >= 6000
    assert test.sum(axis=1).min() >= 750


@pytest.mark.parametrize("mixing", ["label-skew-2", "label-skew-3"])
def test_train_and_test_shares_of_a_class_are_drawn_separately(mixing: str) -> None:
    train, test = clusters_of(numbered(60_000, 10_000), mixing)
    assert np.abs(train / 6000 - test / 1000).max() > 0.1
    # All of a class is given out, and a tenth of it evenly.
    holders = (train > 0).sum(axis=0)
    assert set(train.sum(axis=0)) <= {0, 6000}
    assert (train >= np.floor(600 / np.maximum(holders, 1)))[train > 0].all()


def test_what_is_never_enough_is_divided_evenly_in_the_end() -> None:
    train, _ = clusters_of(numbered(400, 200), "label-skew-3", clusters=11)
    for column in train.T:
        assert np.count_nonzero(column) == 10
        assert np.ptp(column[column > 0]) <= 1


def test_classes_are_shared_out_over_clusters() -> None:
    with pytest.raises(CloveError, match="over clusters, not over clients"):
        authors(numbered(), "label-skew-2", dirichlet_over="clients")


def test_label_skew_4_takes_the_rest_from_the_other_classes() -> None:
    train, test = clusters_of(numbered(60_000, 10_000), "label-skew-4")
    assert train.tolist() == (200 + 3396 * np.eye(10, dtype=int)).tolist()
    assert test.tolist() == (33 + 566 * np.eye(10, dtype=int)).tolist()


@pytest.mark.parametrize(
    ("smallest", "own", "rest"), [(5421, 3248, 181), (892, 534, 29), (5000, 2996, 167)]
)
def test_label_skew_4_has_their_numbers_for_mnist_and_cifar10(
    smallest: int, own: int, rest: int
) -> None:
    train, _ = clusters_of(numbered(10 * smallest), "label-skew-4")
    assert set(np.diag(train)) == {own}
    assert set(train[~np.eye(10, dtype=bool)]) == {rest}


def test_feature_skew_gives_every_cluster_all_images() -> None:
    mixed = authors(numbered(), "feature-skew", clients_per_cluster=1)
    for client in mixed.clients:
        assert sorted(ids(client)) == list(range(400))
        np.testing.assert_array_equal(labels(client), original_labels(numbered(), client))
    assert mixed.about == ["upright", "turned by 90°", "turned by 180°", "turned by 270°"]


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 100))
def test_feature_skew_of_cifar10_permutes_labels_and_turns_nothing(seed: int) -> None:
    dataset = numbered(name="cifar10")
    mixed = authors(dataset, "feature-skew", seed)
    found = set()
    for client in mixed.clients:
        assert client.train[0][:, 0, 0, 0].tolist() == ids(client)
        for part in ("train", "test"):
            old, new = original_labels(dataset, client, part), labels(client, part)
            pairs = set(zip(old.tolist(), new.tolist(), strict=True))
            assert len(pairs) == len(np.unique(old)) == len(np.unique(new))
        found.add(client.group)
    assert found == {0, 1, 2, 3}
    assert len(set(mixed.about)) == 4


def test_concept_shift_has_the_same_number_of_each_class() -> None:
    train, test = clusters_of(numbered(60_000, 10_000), "concept-shift")
    assert set(train.flat) == {1250}
    assert set(test.flat) == {200}
    small, _ = clusters_of(numbered(425), "concept-shift")
    assert set(small.flat) == {10}


@pytest.mark.parametrize("mixing", sorted(set(PAPER) - {"feature-skew", "concept-shift"}))
def test_the_classes_of_cifar10_have_other_numbers(mixing: str) -> None:
    dataset = numbered(name="cifar10")
    for client in authors(dataset, mixing).clients:
        for part in ("train", "test"):
            expected = [CIFAR10_CLASSES[old] for old in original_labels(dataset, client, part)]
            assert labels(client, part).tolist() == expected


def test_unlabelled_cifar10_stays_unlabelled() -> None:
    dataset = numbered(name="cifar10", y_train=None, y_test=None)
    groups = {"group_train": np.arange(400) % 4, "group_test": np.arange(200) % 4}
    mixed = authors(numbered(name="cifar10", y_train=None, y_test=None, **groups), "none")
    assert not any(client.labelled for client in mixed.clients)
    assert not any(client.labelled for client in authors(dataset, "feature-skew").clients)


def test_the_variant_is_the_papers_or_the_authors() -> None:
    with pytest.raises(CloveError, match="unknown variant 'author': did you mean 'authors'"):
        mix(numbered(), "label-skew-1", 0, variant="author")
    with pytest.raises(CloveError, match="'mixed' option 'variant'"):
        mix(numbered(), "mixed", 0, variant="authors")
