"""What holds for every mixing."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import MIXINGS, Dataset, MixedClients, load_dataset, mix, mixing_options
from clove.errors import CloveError, CloveWarning

from .synthetic import ids, labels, numbered

GROUPED = sorted(name for name in MIXINGS if MIXINGS[name].grouped)
UNGROUPED = sorted(set(MIXINGS) - set(GROUPED))
AMOUNTS = {"points_per_client", "test_points_per_client"}
COMMON = {"clusters", "clients_per_cluster", *AMOUNTS}
PAPER = sorted(name for name in MIXINGS if MIXINGS[name].variants)


@settings(deadline=None, max_examples=100)
@given(
    mixing=st.sampled_from(GROUPED),
    clusters=st.integers(2, 4),
    clients_per_cluster=st.integers(1, 6),
    seed=st.integers(0, 1000),
    points=st.integers(300, 500),
)
def test_no_point_goes_to_two_clients_and_clients_are_numbered_by_cluster(
    mixing: str, clusters: int, clients_per_cluster: int, seed: int, points: int
) -> None:
    mixed = mix(
        numbered(points),
        mixing,
        seed,
        clusters=clusters,
        clients_per_cluster=clients_per_cluster,
    )
    assert mixed.clusters == len(mixed.about) == clusters
    assert mixed.groups is not None
    assert mixed.groups.tolist() == sorted(list(range(clusters)) * clients_per_cluster)
    assert [client.group for client in mixed.clients] == mixed.groups.tolist()
    assert_no_point_twice(mixed, points)


def assert_no_point_twice(mixed: MixedClients, points: int, test: int = 200) -> None:
    for part, count in (("train", points), ("test", test)):
        used = Counter(i for client in mixed.clients for i in ids(client, part))
        assert max(used.values()) == 1
        assert {i % 100_000 for i in used} <= set(range(count))


@pytest.mark.parametrize("mixing", PAPER)
def test_one_cluster_is_enough_for_the_mixings_of_the_paper(mixing: str) -> None:
    assert mix(numbered(), mixing, 0, clusters=1).clusters == 1


@settings(deadline=None, max_examples=40)
@given(
    mixing=st.sampled_from(UNGROUPED),
    clients=st.integers(1, 12),
    seed=st.integers(0, 1000),
    points=st.integers(300, 500),
)
def test_without_clusters_no_point_goes_to_two_clients_and_no_group_is_made_up(
    mixing: str, clients: int, seed: int, points: int
) -> None:
    mixed = mix(numbered(points), mixing, seed, total_clients=clients, least_points=1)
    assert (mixed.groups, mixed.clusters, mixed.about) == (None, None, [])
    assert len(mixed.clients) == clients
    assert all(client.group is None for client in mixed.clients)
    assert_no_point_twice(mixed, points)


@settings(deadline=None, max_examples=60)
@given(mixing=st.sampled_from(GROUPED), seed=st.integers(0, 1000), most=st.integers(1, 10))
def test_clients_get_what_is_asked_for_when_it_is_there(mixing: str, seed: int, most: int) -> None:
    mixed = mix(
        numbered(1000, 500),
        mixing,
        seed,
        clients_per_cluster=4,
        points_per_client=most,
        test_points_per_client=2,
    )
    assert mixed.shortfall is None
    for client in mixed.clients:
        assert client.size == most
        assert len(ids(client, "test")) == 2


@pytest.mark.parametrize("mixing", sorted(MIXINGS))
def test_the_partition_depends_on_the_seed_and_on_nothing_else(mixing: str) -> None:
    def drawn(seed: int) -> list[list[int]]:
        mixed = mix(numbered(1000), mixing, seed)
        return [ids(client) + ids(client, "test") for client in mixed.clients]

    assert drawn(4) == drawn(4)
    assert drawn(4) != drawn(5)


@pytest.mark.parametrize("mixing", sorted(MIXINGS))
def test_by_default_test_points_are_capped_like_training_points(mixing: str) -> None:
    clients = {"clients_per_cluster" if mixing in GROUPED else "total_clients": 2}
    mixed = mix(numbered(1000, 500), mixing, 0, points_per_client=3, **clients)
    assert all(len(ids(client, "test")) == 3 for client in mixed.clients)


@pytest.mark.parametrize("mixing", sorted(MIXINGS))
def test_train_and_test_of_a_client_follow_the_same_distribution(mixing: str) -> None:
    mixed = mix(numbered(20_000, 20_000), mixing, 0)
    for client in mixed.clients:
        train, test = (np.bincount(labels(client, p), minlength=10) for p in ("train", "test"))
        # Four standard deviations of a share, at most.
        allowed = 4 * np.sqrt(0.25 / min(train.sum(), test.sum())) + 1 / test.sum()
        np.testing.assert_allclose(train / train.sum(), test / test.sum(), atol=allowed)


@pytest.mark.parametrize(
    "mixing", ["none", "label-skew-1", "feature-skew", "concept-shift", "mixed"]
)
def test_train_and_test_of_a_client_have_the_same_classes(mixing: str) -> None:
    mixed = mix(numbered(2000, 2000), mixing, 0, clients_per_cluster=2)
    for client in mixed.clients:
        assert set(labels(client)) == set(labels(client, "test"))


def test_defaults_come_from_the_user_then_the_data_set_then_the_mixing() -> None:
    def amounts(mixed: MixedClients) -> tuple[int, int]:
        return len(mixed.clients), mixed.clients[0].size

    large = numbered(9000, 900)
    small = numbered(9000, 900, clients_per_cluster=3, points_per_client=20)
    assert amounts(mix(large, "feature-skew", 0)) == (40, 225)
    assert amounts(mix(small, "feature-skew", 0)) == (12, 20)
    assert amounts(mix(small, "feature-skew", 0, points_per_client=7)) == (12, 7)
    assert amounts(mix(small, "feature-skew", 0, points_per_client=None)) == (12, 20)


def test_a_shortfall_of_defaults_is_noted_without_a_warning() -> None:
    mixed = mix(numbered(400), "label-skew-1", 0)
    assert mixed.shortfall is not None
    assert "points_per_client=500, but 25 of 25 clients get fewer, down to 16" in mixed.shortfall


def test_a_shortfall_of_what_was_asked_for_is_warned_of() -> None:
    with pytest.warns(CloveWarning, match="points_per_client=17, but 25 of 25"):
        mixed = mix(numbered(400), "label-skew-1", 0, points_per_client=17)
    assert all(client.size == 16 for client in mixed.clients)
    options = {"points_per_client": 5, "test_points_per_client": 9}
    with pytest.warns(CloveWarning, match="test_points_per_client=9, but 25 of 25") as caught:
        mixed = mix(numbered(400), "label-skew-1", 0, **options)
    assert mixed.shortfall == str(caught[0].message)
    assert caught[0].filename == __file__


def test_a_client_without_points_is_an_error_that_says_what_to_lower() -> None:
    with pytest.raises(CloveError, match="has 80 train points for 81 clients: lower clients_per_c"):
        mix(numbered(400), "label-skew-1", 0, clients_per_cluster=81)
    with pytest.raises(CloveError, match="has 10 test points for 11 clients"):
        mix(numbered(400, 50), "label-skew-1", 0, clients_per_cluster=11)


def test_digits_serve_every_mixing_out_of_the_box() -> None:
    digits = load_dataset("digits")
    sizes = {
        name: (len(mixed.clients), mixed.clients[0].size)
        for name in MIXINGS
        if (mixed := mix(digits, name, 0))
    }
    assert sizes["label-skew-1"] == (25, 50)
    assert sizes["feature-skew"] == (20, 50)
    assert sizes["concept-shift"] == (20, 50)
    assert sizes["none"][0] == 50
    assert sizes["label-skew-2"][0] == sizes["label-skew-3"][0] == sizes["mixed"][0] == 25
    assert sizes["label-skew-4"] == (50, 27)
    assert sizes["dirichlet"][0] == sizes["quantity-skew"][0] == 25


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_fashion_mnist_has_enough_for_the_papers_sizes(
    real: Callable[[str], Dataset], variant: str
) -> None:
    fmnist = real("fmnist")
    for name in PAPER:
        mixed = mix(fmnist, name, 1, variant=variant)
        assert mixed.shortfall is None
        assert len({client.size for client in mixed.clients}) == 1


def test_clients_of_images_hold_contiguous_floats_in_the_unit_interval() -> None:
    for client in mix(load_dataset("digits"), "feature-skew", 0).clients:
        for points in (client.train, client.test):
            assert points is not None
            assert points[0].dtype == np.float32
            assert points[0].flags.c_contiguous
            assert points[0].max() == 1


def test_dividing_images_takes_little_more_memory_than_the_clients_hold() -> None:
    images = np.ones((4000, 1, 28, 28), np.uint8)
    dataset = numbered(4000, 1000, scale=255, x_train=images, x_test=images[:1000])
    tracemalloc.start()
    mixed = mix(dataset, "feature-skew", 0, clients_per_cluster=100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = sum(client.train[0].nbytes for client in mixed.clients)
    assert peak < 1.5 * held


def test_the_papers_sizes_depend_on_the_data_set() -> None:
    cifar10, agnews = numbered(9000, 3000, name="cifar10"), numbered(classes=4, name="agnews")
    per_cluster = {name: mix(cifar10, name, 0).options["clients_per_cluster"] for name in PAPER}
    expected = dict.fromkeys(PAPER, 3) | {"label-skew-3": 5, "feature-skew": 5, "none": 5}
    assert per_cluster == expected
    amounts = mix(agnews, "label-skew-2", 0).options
    assert (amounts["clients_per_cluster"], amounts["points_per_client"]) == (10, 100)
    assert (
        mix(cifar10, "label-skew-1", 0, clients_per_cluster=2).options["clients_per_cluster"] == 2
    )


def test_an_unknown_mixing_gets_the_nearest_name() -> None:
    with pytest.raises(CloveError, match="mixing 'label-skew1': did you mean 'label-skew-1'"):
        mix(numbered(), "label-skew1", 0)
    with pytest.raises(CloveError, match="unknown mixing"):
        mixing_options("labels")


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(CloveError, match=r"'none' option 'cluster': did you mean 'clusters'.*ii"):
        mix(numbered(), "none", 0, cluster=3)


@pytest.mark.parametrize("option", sorted(COMMON))
@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_counts_are_whole_and_positive(option: str, value: object) -> None:
    with pytest.raises(CloveError, match=f"{option} must be a whole number of at least 1"):
        mix(numbered(), "none", 0, **{option: value})


def test_options_are_listed_with_the_papers_defaults() -> None:
    skews = {f"label-skew-{number}" for number in (1, 2, 3, 4)}
    assert set(PAPER) == {"none", "feature-skew", "concept-shift"} | skews
    for name in GROUPED:
        assert set(mixing_options(name)) >= COMMON
    for name in UNGROUPED:
        assert set(mixing_options(name)) >= {"total_clients", *AMOUNTS}
        assert set(mixing_options(name)).isdisjoint({"clusters", "clients_per_cluster", "variant"})
    for name in PAPER:
        assert mixing_options(name)["variant"] == "paper"
    skew = mixing_options("label-skew-1")
    assert (skew["clusters"], skew["clients_per_cluster"], skew["points_per_client"]) == (5, 5, 500)
    assert (skew["classes_per_cluster"], skew["shuffle_classes"]) == (2, False)
    assert mixing_options("feature-skew")["rotations"] == (0, 90, 180, 270)
    assert mixing_options("concept-shift")["points_per_client"] == 1000


@pytest.mark.parametrize("mixing", sorted(MIXINGS))
def test_the_listed_defaults_can_be_given_back_as_options(mixing: str) -> None:
    clients = "clients_per_cluster" if mixing in GROUPED else "total_clients"
    amounts = {"points_per_client": 5, clients: 2}
    listed = mix(numbered(), mixing, 0, **{**mixing_options(mixing), **amounts})
    plain = mix(numbered(), mixing, 0, **amounts)
    assert [ids(client) for client in listed.clients] == [ids(client) for client in plain.clients]


@pytest.mark.parametrize(
    "mixing", ["concept-shift", "dirichlet", *(f"label-skew-{number}" for number in (1, 2, 3, 4))]
)
def test_mixings_by_class_refuse_data_without_classes(mixing: str) -> None:
    with pytest.raises(CloveError, match=f"'{mixing}' needs class labels.*'linear'.*regression"):
        mix(load_dataset("linear", points=10), mixing, 0)
