"""No mixing: the groups the data set has by itself are the clusters."""

from __future__ import annotations

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.cluster import Array, Cluster
from clove.data.mixings.request import Request
from clove.data.options import switch, whole_number
from clove.errors import CloveError


def none(
    dataset: Dataset, request: Request, *, clusters: int | None = None, iid: bool = False
) -> list[Cluster]:
    """Make a cluster of each natural group, or of each class where the data set has no groups.

    Parameters
    ----------
    clusters : int, optional
        Only the first so many groups; by default all.
    iid : bool
        Pool everything into one cluster instead: all clients come from one distribution.
    """
    wanted = None if clusters is None else whole_number("clusters", clusters)
    if switch("iid", iid):
        return [_pool(dataset, wanted)]
    train, test = _groups(dataset)
    names, kind = np.unique(train), "class" if dataset.group_train is None else "group"
    if wanted is not None and wanted > len(names):
        raise CloveError(
            f"clusters={wanted}, but data set {dataset.name!r} has {len(names)} groups"
        )
    return [
        Cluster(np.flatnonzero(train == name), np.flatnonzero(test == name), about=f"{kind} {name}")
        for name in names[:wanted]
    ]


def _groups(dataset: Dataset) -> tuple[Array, Array]:
    train, test = dataset.groups("train"), dataset.groups("test")
    if train is None or test is None:
        raise CloveError(
            f"data set {dataset.name!r} has neither groups nor classes to make clusters of: "
            "set iid=True for clients that all come from one distribution"
        )
    return train, test


def _pool(dataset: Dataset, clusters: int | None) -> Cluster:
    if clusters not in (None, 1):
        raise CloveError(f"iid=True makes one cluster, got clusters={clusters}")
    train, test = (np.arange(dataset.size(part)) for part in ("train", "test"))
    return Cluster(train, test, about="everything")
