"""The paper's numbers of clients and points, where they depend on the data set.

Those that hold for all others stand with the mixings themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from clove.data.dataset import Dataset

Sizes = Mapping[str, int]

SIZES: Mapping[tuple[str, str], Sizes] = {
    ("cifar10", "label-skew-1"): {"clients_per_cluster": 3},
    ("cifar10", "label-skew-2"): {"clients_per_cluster": 3},
    ("cifar10", "label-skew-4"): {"clients_per_cluster": 3},
    ("cifar10", "feature-skew"): {"clients_per_cluster": 5},
    ("cifar10", "concept-shift"): {"clients_per_cluster": 3},
    # 30 clients: of the pairs of four classes, at most three share a class any two of them.
    ("agnews", "label-skew-2"): {"clients_per_cluster": 10, "points_per_client": 100},
}

AUTHORS_SIZES: Mapping[tuple[str, str], Sizes] = {
    **SIZES,
    # Also 30 clients: the authors take all six pairs.
    ("agnews", "label-skew-2"): {"clients_per_cluster": 5, "points_per_client": 100},
    ("cifar10", "none"): {"points_per_client": 500},
    ("linear", "none"): {"points_per_client": 900},
}


def sizes_for(dataset: Dataset, mixing: str, authors: bool = False) -> dict[str, int]:
    """Return the numbers that a data set has of its own; those it brings along go first."""
    own = {
        "clients_per_cluster": dataset.clients_per_cluster,
        "points_per_client": dataset.points_per_client,
    }
    brought = {option: value for option, value in own.items() if value is not None}
    return {**sizes_of(dataset.name, mixing, authors), **brought}


def sizes_of(name: str, mixing: str, authors: bool = False) -> Sizes:
    """Return the paper's own numbers for a data set of that name."""
    return (AUTHORS_SIZES if authors else SIZES).get((name, mixing), {})
