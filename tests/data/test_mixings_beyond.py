"""The mixings beyond the paper: without clusters, or with clusters that are not clean."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import load_dataset, mix
from clove.data.mixings import describe
from clove.errors import CloveError, CloveWarning

from .synthetic import ids, labels, numbered, original_labels

seeds = st.integers(0, 1000)


@settings(deadline=None, max_examples=30)
@given(seed=seeds, clients=st.integers(2, 20), alpha=st.sampled_from([0.1, 0.5, 10.0]))
def test_dirichlet_gives_all_points_out_and_test_follows_train(
    seed: int, clients: int, alpha: float
) -> None:
    dataset = numbered(4000, 2000)
    counts = describe(mix(dataset, "dirichlet", seed, total_clients=clients, alpha=alpha), dataset)
    assert counts.train.sum(axis=0).tolist() == [400] * 10
    assert counts.test.sum(axis=0).tolist() == [200] * 10
    assert counts.train.sum(axis=1).min() >= 10
    np.testing.assert_allclose(counts.test, counts.train / 2, atol=1.5)


def test_dirichlet_clients_differ_more_the_smaller_alpha_is() -> None:
    dataset = numbered(4000, 2000)

    def unevenness(alpha: float) -> float:
        return float(describe(mix(dataset, "dirichlet", 0, alpha=alpha), dataset).train.std())

    assert unevenness(0.1) > unevenness(1) > unevenness(100)


def test_dirichlet_says_when_no_draw_gives_everyone_enough() -> None:
    with pytest.raises(CloveError, match=r"none of 100 draws gave each of 90 clients 10 training"):
        mix(numbered(), "dirichlet", 0, total_clients=90, alpha=0.1)
    with pytest.raises(CloveError, match="least_points must be a whole number of at least 1"):
        mix(numbered(), "dirichlet", 0, least_points=0)


def test_without_clusters_points_have_no_limit_unless_one_is_given() -> None:
    dataset = numbered(4000, points_per_client=5, clients_per_cluster=2)
    for mixing in ("dirichlet", "quantity-skew"):
        free = mix(dataset, mixing, 0)
        assert sum(client.size for client in free.clients) == 4000
        assert (len(free.clients), free.options["total_clients"]) == (25, 25)
        limited = mix(dataset, mixing, 0, points_per_client=50, test_points_per_client=3)
        assert max(client.size for client in limited.clients) == 50
        assert max(len(ids(client, "test")) for client in limited.clients) == 3
        assert limited.shortfall is None


@pytest.mark.parametrize("mixing", ["dirichlet", "quantity-skew"])
def test_a_limit_that_no_client_reaches_is_told(mixing: str) -> None:
    most = max(client.size for client in mix(numbered(4000), mixing, 0).clients)
    said = f"points_per_client=4001, but no client gets so many: the most is {most}"
    with pytest.warns(CloveWarning, match=said):
        assert mix(numbered(4000), mixing, 0, points_per_client=4001).shortfall == said


@pytest.mark.parametrize("mixing", ["dirichlet", "quantity-skew", "label-skew-1"])
def test_more_clients_than_points_are_refused_before_anything_is_drawn(mixing: str) -> None:
    option = "clients_per_cluster" if mixing == "label-skew-1" else "total_clients"
    with pytest.raises(CloveError, match="100000000000 clients are too many"):
        mix(numbered(), mixing, 0, **{option: 10**11})


def test_mixed_takes_the_options_of_its_base() -> None:
    turned = mix(numbered(), "mixed", 0, base="feature-skew", rotations=[0, 180], blend=0)
    assert (turned.clusters, turned.about) == (2, ["upright", "turned by 180°"])
    one_class = mix(numbered(), "mixed", 0, classes_per_cluster=1, clusters=3)
    assert one_class.about == ["class 0", "class 1", "class 2"]
    with pytest.raises(CloveError, match="base 'label-skew-1': option 'rotations'"):
        mix(numbered(), "mixed", 0, rotations=[0])


def test_alpha_is_finite() -> None:
    with pytest.raises(CloveError, match="alpha must be a finite number, got inf"):
        mix(numbered(), "dirichlet", 0, alpha=float("inf"))


@settings(deadline=None, max_examples=30)
@given(
    seed=seeds,
    clients=st.integers(1, 20),
    law=st.sampled_from(["dirichlet", "power"]),
    least=st.integers(2, 20),
)
def test_quantity_skew_gives_all_points_out_and_no_client_too_few(
    seed: int, clients: int, law: str, least: int
) -> None:
    options = {"total_clients": clients, "law": law, "least_points": least}
    mixed = mix(numbered(2000, 1000), "quantity-skew", seed, **options)
    train = np.array([client.size for client in mixed.clients])
    test = np.array([len(ids(client, "test")) for client in mixed.clients])
    assert (train.sum(), test.sum()) == (2000, 1000)
    assert train.min() >= least
    np.testing.assert_allclose(test, train / 2, atol=1.5)


def test_quantity_skew_by_a_power_law_makes_the_second_client_half_as_large() -> None:
    dataset = numbered(9000, 9000)
    mixed = mix(dataset, "quantity-skew", 0, total_clients=4, law="power", least_points=0)
    sizes = sorted(client.size for client in mixed.clients)
    assert sizes == pytest.approx([1080, 1440, 2160, 4320], abs=3)
    even = mix(numbered(9000), "quantity-skew", 0, total_clients=4, law="power", exponent=0)
    assert {client.size for client in even.clients} == {2250}


def test_quantity_skew_leaves_all_clients_the_same_distribution() -> None:
    dataset = numbered(40_000, 1000)
    counts = describe(mix(dataset, "quantity-skew", 0, total_clients=4, law="power"), dataset)
    shares = counts.train / counts.train.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, 0.1, atol=0.02)


def test_quantity_skew_needs_no_labels() -> None:
    mixed = mix(load_dataset("linear", points=500), "quantity-skew", 0)
    assert len(mixed.clients) == 25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"total_clients": 41},
            r"41 clients need at least 10 .* has 400 and 200: lower total_clients",
        ),
        ({"law": "zipf"}, "unknown law 'zipf'"),
        ({"exponent": -1}, "exponent must be a number of at least 0"),
        ({"alpha": 0}, "alpha must lie between"),
        ({"clusters": 3}, "'quantity-skew' option 'clusters'"),
        ({"total_clients": 0}, "total_clients must be a whole number of at least 1"),
    ],
)
def test_quantity_skew_refuses_unsound_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(CloveError, match=message):
        mix(numbered(), "quantity-skew", 0, **options)


@settings(deadline=None, max_examples=40)
@given(
    seed=seeds,
    clusters=st.integers(2, 5),
    clients=st.integers(1, 6),
    blend=st.floats(0, 0.5),
    points=st.integers(200, 500),
)
def test_mixed_clients_have_a_share_of_one_other_cluster(
    seed: int, clusters: int, clients: int, blend: float, points: int
) -> None:
    dataset = numbered(points)
    options = {"clusters": clusters, "clients_per_cluster": clients, "blend": blend}
    mixed = mix(dataset, "mixed", seed, **options)
    used = Counter(i for client in mixed.clients for i in ids(client))
    assert max(used.values()) == 1
    for client in mixed.clients:
        others = []
        for part in ("train", "test"):
            came_from = original_labels(dataset, client, part) // 2
            guests = came_from[came_from != client.group]
            assert len(guests) == int(blend * len(came_from) + 0.5)
            others.append(set(guests))
        assert len(others[0] | others[1]) <= 1


def test_mixed_clients_of_a_cluster_differ_in_where_their_guests_come_from() -> None:
    dataset = numbered(2000)
    counts = describe(mix(dataset, "mixed", 0), dataset)
    assert len({tuple(own > 0) for own in counts.train[:5]}) == 4


def test_mixed_points_keep_the_labels_and_the_turn_of_the_cluster_they_come_from() -> None:
    dataset = numbered(4000, 2000)
    shifted = mix(dataset, "mixed", 0, base="concept-shift", blend=0.3)
    clean = mix(dataset, "concept-shift", 0)
    as_shifted = {i: y for c in clean.clients for i, y in zip(ids(c), labels(c), strict=True)}
    for client in shifted.clients:
        assert labels(client).tolist() == [as_shifted[i] for i in ids(client)]
    turned = mix(dataset, "mixed", 0, base="feature-skew", blend=0.3).clients[0]
    # In the first cluster, which is upright, three tenths have their number in another corner.
    away = turned.train[0][:, 0, 0, 0] != ids(turned)
    assert np.isclose(np.mean(away), 0.3, atol=0.01)


def test_mixed_clients_may_be_unlabelled() -> None:
    unlabelled = numbered(y_train=None, y_test=None)
    mixed = mix(unlabelled, "mixed", 0, base="feature-skew", blend=0.5)
    assert not any(client.labelled for client in mixed.clients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blend": 0.6}, "blend must lie between 0 and 0.5, got 0.6"),
        ({"blend": -0.1}, "blend must be a number of at least 0"),
        ({"base": "label-skew-2"}, "unknown base 'label-skew-2'"),
        ({"clusters": 1}, "it needs at least 2"),
    ],
)
def test_mixed_refuses_unsound_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(CloveError, match=message):
        mix(numbered(), "mixed", 0, **options)
