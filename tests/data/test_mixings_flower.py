"""Partitioners of Flower Datasets as mixings."""

from __future__ import annotations

import builtins
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from clove.data import Dataset, describe, find_mixing, load_dataset, mix, mixing_options
from clove.errors import CloveError
from clove.runs.settings import from_names

from .synthetic import ids, numbered

pytestmark = pytest.mark.skipif(
    find_spec("flwr_datasets") is None, reason="flwr-datasets is not installed"
)

OPTIONS: dict[str, dict[str, Any]] = {
    "iid": {"num_partitions": 6},
    "linear": {"num_partitions": 6},
    "square": {"num_partitions": 4},
    "exponential": {"num_partitions": 3},
    "size": {"partition_sizes": [300, 200, 100]},
    "id-to-size-fnc": {"num_partitions": 4, "partition_id_to_size_fn": lambda i: i + 1},
    "dirichlet": {"num_partitions": 6, "alpha": 0.5},
    "inner-dirichlet": {"partition_sizes": [300, 200, 100], "alpha": 0.5},
    "pathological": {"num_partitions": 6, "num_classes_per_partition": 3},
    "shard": {"num_partitions": 5, "num_shards_per_partition": 2},
    "continuous": {"num_partitions": 6, "strictness": 0.5},
    "natural-id": {},
    "grouped-natural-id": {"ids_per_client": 2},
    "distribution": {
        "distribution_array": [[100.0, 50.0]] * 10,
        "num_partitions": 10,
        "num_unique_labels_per_partition": 2,
        "preassigned_num_samples_per_label": 5,
    },
}


def grouped() -> Dataset:
    """Return points with labels, and natural groups that are something else."""
    groups = {"group_train": np.arange(2000) % 7, "group_test": np.arange(1000) % 7}
    return numbered(2000, 1000, **groups)


def test_every_partitioner_of_the_library_is_covered_here() -> None:
    partitioners = import_module("flwr_datasets.partitioner")
    theirs = {name for name in partitioners.__all__ if name != "Partitioner"}
    horizontal = {name for name in theirs if not name.startswith("Vertical")}
    for name in OPTIONS:
        find_mixing(f"flwr:{name}")
    assert len(horizontal) == len(OPTIONS)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_each_makes_disjoint_clients_the_same_for_a_seed(name: str) -> None:
    dataset, options = grouped(), OPTIONS[name]
    mixed = mix(dataset, f"flwr:{name}", 3, **options)
    for part in ("train", "test"):
        held = [point for client in mixed.clients for point in ids(client, part)]
        assert len(held) == len(set(held))
        assert min(len(ids(client, part)) for client in mixed.clients) > 0
    again = mix(dataset, f"flwr:{name}", 3, **options)
    assert [ids(c, "train") for c in again.clients] == [ids(c, "train") for c in mixed.clients]
    other = mix(dataset, f"flwr:{name}", 4, **options)
    if "natural-id" not in name:  # who wrote what is no matter of chance
        assert [ids(c, "train") for c in other.clients] != [ids(c, "train") for c in mixed.clients]
    assert (mixed.groups, mixed.clusters) == (None, None)


def test_test_data_follow_the_training_data() -> None:
    dataset = numbered(6000, 6000)
    for name in ("dirichlet", "pathological", "shard"):
        counts = describe(mix(dataset, f"flwr:{name}", 0, **OPTIONS[name]), dataset)
        shares = [table / table.sum(axis=1, keepdims=True) for table in (counts.train, counts.test)]
        np.testing.assert_allclose(*shares, atol=0.1)
        assert (counts.train > 0).tolist() == (counts.test > 0).tolist() or name == "dirichlet"


def test_pathological_clients_have_as_many_classes_as_asked() -> None:
    dataset = numbered(2000, 1000)
    counts = describe(mix(dataset, "flwr:pathological", 0, **OPTIONS["pathological"]), dataset)
    assert (counts.train > 0).sum(axis=1).tolist() == [3] * 6


def test_natural_ids_are_the_groups_of_the_data_set() -> None:
    mixed = mix(grouped(), "flwr:natural-id", 0)
    assert len(mixed.clients) == 7
    for client in mixed.clients:
        assert len({point % 7 for point in ids(client, "train")}) == 1


def test_a_partitioner_object_is_a_mixing_too() -> None:
    partitioners = import_module("flwr_datasets.partitioner")
    made = mix(numbered(), partitioners.IidPartitioner(num_partitions=5), 0)
    named = mix(numbered(), "flwr:IidPartitioner", 0, num_partitions=5)
    assert [ids(c, "train") for c in made.clients] == [ids(c, "train") for c in named.clients]


def test_amounts_limit_what_clients_get() -> None:
    mixed = mix(numbered(), "flwr:iid", 0, num_partitions=5, points_per_client=7)
    assert [client.size for client in mixed.clients] == [7] * 5


def test_options_are_the_parameters_and_a_run_takes_them() -> None:
    assert mixing_options("flwr:dirichlet")["partition_by"] == "label"
    assert mixing_options("flwr:natural-id")["partition_by"] == "group"
    assert "seed" not in mixing_options("flwr:dirichlet")
    settings = from_names(dataset="digits", mixing="flwr:dirichlet", num_partitions=4, alpha=1.0)
    assert settings.data == {"num_partitions": 4, "alpha": 1.0}


def test_regression_data_are_divided_by_their_targets() -> None:
    dataset = load_dataset("linear", seed=0)
    mixed = mix(dataset, "flwr:continuous", 0, num_partitions=4, strictness=1.0)
    means = sorted(float(client.train[1].mean()) for client in mixed.clients)
    assert means[-1] - means[0] > 1


@pytest.mark.parametrize(
    ("mixing", "options", "complaint"),
    [
        ("flwr:dirichle", {}, "did you mean 'flwr:dirichlet'"),
        ("flwr:dirichlet", {"alpha": 1.0}, "has no default for num_partitions: give it"),
        ("flwr:grouped-natural-id", {}, "has no default for ids_per_client"),
        ("flwr:dirichlet", {"num_partitions": 0, "alpha": 1.0}, "refuses its options"),
        ("flwr:dirichlet", {"num_partitions": 3, "alpha": -1.0}, "Alpha values"),
        ("flwr:iid", {"num_partition": 3}, "did you mean 'num_partitions'"),
        ("flwr:iid", {"num_partitions": 5000}, "out of range"),
        ("flwr:iid", {"num_partitions": 500}, r"gives client \d+ no (test|training) point"),
        ("flwr:natural-id", {}, r"Column \(group\) not in table columns"),
        ("flwr:vertical-even", {}, "divides the features among clients, not the points"),
    ],
)
def test_bad_input_is_named(mixing: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CloveError, match=complaint):
        mix(numbered(), mixing, 0, **options)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any) -> Any:
        if name.startswith("flwr_datasets"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(CloveError, match=r"pip install 'clove-fl\[flower-datasets\]'"):
        mix(numbered(), "flwr:iid", 0, num_partitions=5)
