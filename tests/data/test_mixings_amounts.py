"""What a mixing makes of a data set is known from its card, before any file is read."""

from __future__ import annotations

import pytest

from clove.data import (
    CARDS,
    MIXINGS,
    Amounts,
    dataset_card,
    expected_amounts,
    load_dataset,
    mix,
)
from clove.errors import CloveError


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("mixing", [name for name, one in MIXINGS.items() if one.variants])
def test_it_is_what_the_mixing_makes(mixing: str, variant: str) -> None:
    dataset = load_dataset("digits")
    expected = expected_amounts(dataset_card("digits"), mixing, variant=variant)
    made = mix(dataset, mixing, 0, variant=variant)
    assert (expected.clusters, expected.clients) == (made.clusters, len(made.clients))
    assert expected.points >= max(client.size for client in made.clients)


def test_linear_data_have_their_clusters_and_no_more_points_than_there_are() -> None:
    assert expected_amounts(dataset_card("linear"), "none") == Amounts(5, 25, 1000)
    many = expected_amounts(dataset_card("linear"), "none", clients_per_cluster=50)
    assert many == Amounts(5, 250, 100)


@pytest.mark.parametrize(
    ("dataset", "mixing", "options", "clusters", "clients", "points"),
    [
        ("cifar10", "label-skew-1", {}, 5, 15, 500),
        ("cifar10", "feature-skew", {}, 4, 20, 500),
        ("cifar10", "concept-shift", {}, 4, 12, 1000),
        ("mnist", "label-skew-4", {}, 10, 50, 500),
        ("mnist", "label-skew-1", {"clients_per_cluster": 200}, 5, 1000, 60),
        ("amazon", "none", {}, 4, 20, 1000),
        ("agnews", "label-skew-2", {}, 3, 30, 100),
        ("agnews", "label-skew-2", {"variant": "authors"}, 6, 30, 100),
        ("mnist-writers", "none", {}, 440, 440, 95),
        ("mnist-writers", "none", {"clusters": 100}, 100, 100, 95),
    ],
)
def test_the_papers_amounts(
    dataset: str, mixing: str, options: dict[str, int], clusters: int, clients: int, points: int
) -> None:
    found = expected_amounts(dataset_card(dataset), mixing, **options)
    assert found == Amounts(clusters, clients, points)


def test_how_many_writers_femnist_has_depends_on_who_made_it() -> None:
    with pytest.raises(CloveError, match="'none' makes of 'femnist' is not known"):
        expected_amounts(CARDS["femnist"], "none")
    assert expected_amounts(CARDS["femnist"], "none", clusters=7) == Amounts(7, 7, 1000)
