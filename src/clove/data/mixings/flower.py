"""Partitioners of Flower Datasets (`flwr-datasets`) as mixings, where that library is installed."""

from __future__ import annotations

import inspect
import os
from functools import partial
from typing import Any

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.cluster import Array, Cluster, divided
from clove.data.mixings.registry import Mixing
from clove.data.mixings.request import Request
from clove.errors import CloveError, unknown_name
from clove.seeds import integer, stream

PREFIX = "flwr:"
THEIRS = {"ids_per_client": "group_size"}
"""Options that have another name than theirs, which a setting of a run has already."""
SEED_LIMIT = 2**32


def is_partitioner(mixing: object) -> bool:
    """Say whether this is a partitioner object, or at least behaves like one."""
    return hasattr(mixing, "load_partition") and hasattr(type(mixing), "num_partitions")


def by_partitioner(partitioner: Any) -> Mixing:
    """Return the mixing that a partitioner object makes.

    Training and test points are shuffled together and partitioned as one, so that a client's test
    data follow the distribution of its training data; sizes count both. The partitioner sees the
    columns `label` (class or target) and, where the data set has natural groups, `group`.
    """
    return Mixing(partial(_partitioned, partitioner), None, None, grouped=False, variants=False)


def by_name(name: str) -> Mixing:
    """Return the mixing of a partitioner class, `flwr:dirichlet` for DirichletPartitioner.

    Its options are the parameters of the class. The seed is that of the run; `partition_by` is
    `label` unless given, and `group` for partitioners by natural ids.
    """
    kind = _class(name)
    parameters = [p for p in inspect.signature(kind).parameters.values() if p.name != "seed"]
    options = {_shown(p.name): None if p.default is p.empty else p.default for p in parameters}
    if "partition_by" in options:
        options["partition_by"] = "group" if "NaturalId" in kind.__name__ else "label"
    make = partial(_make, name, kind, partition_by=options.get("partition_by"))
    return Mixing(
        lambda dataset, request, **given: _partitioned(make(request, given), dataset, request),
        None,
        None,
        grouped=False,
        variants=False,
        options=options,
    )


def _class(name: str) -> Any:
    partitioners = _library()
    known = {
        _short(kind): getattr(partitioners, kind)
        for kind in partitioners.__all__
        # The base class, and those that divide columns: their clients have no points of their own.
        if kind != "Partitioner" and not kind.startswith("Vertical")
    }
    wanted = _short(name.removeprefix(PREFIX))
    if wanted.startswith("vertical"):
        raise CloveError(
            f"mixing {name!r} divides the features among clients, not the points: "
            "all clients would have the same points, and no model fits all of them"
        )
    if wanted not in known:
        raise unknown_name("mixing", name, [f"{PREFIX}{short}" for short in sorted(known)])
    return known[wanted]


def _short(name: str) -> str:
    """Return `grouped-natural-id` for GroupedNaturalIdPartitioner."""
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)
    return words.strip("-").removesuffix("-partitioner")


def _library() -> Any:
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read once, when it is imported
    try:
        import flwr_datasets.partitioner as partitioners
    except ImportError as error:
        raise CloveError(
            f"mixings that begin with {PREFIX!r} need Flower Datasets: "
            "pip install 'clove-fl[flower-datasets]'"
        ) from error
    return partitioners


def _make(
    name: str, kind: Any, request: Request, given: dict[str, Any], partition_by: str | None
) -> Any:
    options = {THEIRS.get(option, option): value for option, value in given.items()}
    parameters = inspect.signature(kind).parameters
    if "partition_by" in parameters:
        options.setdefault("partition_by", partition_by)
    if "seed" in parameters:
        options["seed"] = integer(request.seed, "mixing/flwr") % SEED_LIMIT
    if "distribution_array" in options:
        options["distribution_array"] = np.asarray(options["distribution_array"], float)
    missing = [
        p.name for p in parameters.values() if p.default is p.empty and p.name not in options
    ]
    if missing:
        needed = ", ".join(map(_shown, missing))
        raise CloveError(f"mixing {name!r} has no default for {needed}: give it as an option")
    try:
        return kind(**options)
    except (TypeError, ValueError) as error:
        raise CloveError(f"mixing {name!r} refuses its options: {error}") from error


def _shown(parameter: str) -> str:
    """Return the name of the option that stands for a parameter."""
    return next((own for own, theirs in THEIRS.items() if theirs == parameter), parameter)


def _partitioned(partitioner: Any, dataset: Dataset, request: Request) -> list[Cluster]:
    """Let a partitioner divide all points, training and test together."""
    train = dataset.size("train")
    order = stream(request.seed, "mixing/pool").permutation(train + dataset.size("test"))
    partitioner.dataset = _table(dataset, order)
    what = f"{type(partitioner).__name__} on data set {dataset.name!r}"
    try:
        count = partitioner.num_partitions
        hands = [_points(partitioner.load_partition(client)) for client in range(count)]
    except (ValueError, KeyError, IndexError, TypeError, AssertionError) as error:
        raise CloveError(f"{what}: {error}") from error
    for client, hand in enumerate(hands):
        for part, own in (("training", hand < train), ("test", hand >= train)):
            if not own.any():
                raise CloveError(
                    f"{what} gives client {client} no {part} point ({len(hand)} points in all): "
                    "ask for fewer or larger partitions"
                )
    return [divided([h[h < train] for h in hands], [h[h >= train] - train for h in hands])]


def _table(dataset: Dataset, order: Array) -> Any:
    """Return what partitioners look at: labels, groups, and which point it is."""
    from datasets import Dataset as Table

    columns: dict[str, Array] = {"point": order}
    for name, train, test in (
        ("label", dataset.y_train, dataset.y_test),
        ("group", dataset.group_train, dataset.group_test),
    ):
        if train is not None and test is not None and train[0].size == 1:
            columns[name] = np.concatenate([train, test]).reshape(-1)[order]
    return Table.from_dict(columns)


def _points(partition: Any) -> Array:
    return np.asarray(partition["point"], np.int64).reshape(-1)
