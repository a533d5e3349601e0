"""Concept shift: clusters see the same things and call some of them by other names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations
from operator import index
from typing import Any

import numpy as np

from clove.data.dataset import Dataset, Part
from clove.data.mixings.cluster import Array, Cluster, class_labels
from clove.data.mixings.request import Request
from clove.data.mixings.shares import Labels
from clove.data.mixings.spread import spread
from clove.data.options import whole_number
from clove.errors import CloveError
from clove.seeds import stream

Swaps = tuple[tuple[int, int], ...]
"""The pairs of labels that one cluster exchanges."""

SWAPS: tuple[Swaps, ...] = (
    ((0, 3), (8, 9)),
    ((1, 4), (6, 9)),
    ((1, 2), (3, 6)),
    ((3, 5), (4, 7)),
)

AUTHORS_POINTS: dict[Part, int] = {"train": 1250, "test": 200}


def concept_shift(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int | None = None,
    swaps: Sequence[Sequence[Sequence[int]]] = SWAPS,
) -> list[Cluster]:
    """Spread all classes evenly over the clusters, and exchange labels in each in its own way.

    In the authors' code a cluster has no more than 1,250 training and 200 test points of a class,
    and as many of each.

    Parameters
    ----------
    clusters : int, optional
        Number of clusters; by default one for each entry of `swaps`.
    swaps : for each cluster, its pairs of labels
        Clusters beyond the last entry exchange two pairs, drawn by the seed, that no other cluster
        exchanges.
    """
    labels = Labels(*class_labels(dataset, "concept-shift"))
    classes = labels.classes
    given = _as_swaps(swaps)
    if not given and clusters is None:
        raise CloveError("swaps=[] names no cluster: give swaps for each, or say how many clusters")
    count = len(given) if clusters is None else whole_number("clusters", clusters)
    if given == SWAPS:
        # The default is made for ten classes; with fewer, what does not fit is drawn instead.
        given = tuple(own for own in given if max(max(pair) for pair in own) < classes)
    _check_swaps(given, classes)
    every = _enough(given[:count], count, classes, request.seed)
    divide = partial(_same_of_each, labels) if request.authors else partial(spread, dataset)
    train, test = (divide(part, count, request.seed) for part in ("train", "test"))
    return [_swapped(train[k], test[k], every[k], classes) for k in range(count)]


def _swapped(train: Array, test: Array, own: Swaps, classes: int) -> Cluster:
    about = ", ".join(f"{a}↔{b}" for a, b in own) or "no swaps"
    return Cluster(train, test, change_y=_relabelling(own, classes).__getitem__, about=about)


def _same_of_each(labels: Labels, part: Part, clusters: int, seed: int) -> list[Array]:
    """Divide points as the authors do: the same number of each class to each cluster."""
    each = min(AUTHORS_POINTS[part], int(labels.totals(part).min()) // clusters)
    return labels.hand_out(part, np.full((clusters, labels.classes), each), seed)


def _as_swaps(swaps: Iterable[Any]) -> tuple[Swaps, ...]:
    try:
        # Unpacking refuses what is no pair.
        return tuple(tuple((index(a), index(b)) for a, b in own) for own in swaps)
    except (TypeError, ValueError) as error:
        raise CloveError(
            "swaps must list for each cluster its pairs of labels, such as "
            f"[[[0, 3], [8, 9]], [[1, 4], [6, 9]]], got {swaps!r}"
        ) from error


def _check_swaps(swaps: tuple[Swaps, ...], classes: int) -> None:
    for cluster, own in enumerate(swaps):
        labels = [label for pair in own for label in pair]
        if len(set(labels)) < len(labels):
            raise CloveError(f"swaps of cluster {cluster} use a label twice: {own}")
        if labels and not 0 <= min(labels) <= max(labels) < classes:
            raise CloveError(
                f"swaps of cluster {cluster} name labels outside 0 to {classes - 1}: {own}"
            )
    if len({_pairs(own) for own in swaps}) < len(swaps):
        raise CloveError(f"swaps must differ between clusters, got {swaps}")


def _pairs(own: Swaps) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(pair) for pair in own)


def _enough(given: tuple[Swaps, ...], count: int, classes: int, seed: int) -> list[Swaps]:
    """Draw further swaps until every cluster has its own."""
    used = {pair for own in given for pair in _pairs(own)}
    free = [pair for pair in combinations(range(classes), 2) if frozenset(pair) not in used]
    order = stream(seed, "mixing/swaps").permutation(len(free))
    free = [free[i] for i in order]
    drawn = list(given)
    while len(drawn) < count:
        own = next((two for two in combinations(free, 2) if set(two[0]).isdisjoint(two[1])), None)
        if own is None:
            raise CloveError(
                f"{classes} classes allow {len(drawn)} clusters with label swaps of their own, "
                f"got clusters={count}"
            )
        drawn.append(own)
        free = [pair for pair in free if pair not in own]
    return drawn


def _relabelling(own: Swaps, classes: int) -> Array:
    """Return the new label of every label."""
    labels = np.arange(classes)
    for a, b in own:
        labels[[a, b]] = b, a
    return labels
