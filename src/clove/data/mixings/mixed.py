"""Mixed: clusters that are not clean, as each client has some points of another cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.checks import share
from clove.data.mixings.cluster import Array, Cluster, Holding, Piece, size_of
from clove.data.mixings.concept_shift import concept_shift
from clove.data.mixings.feature_skew import feature_skew
from clove.data.mixings.label_skew import label_skew_1
from clove.data.mixings.request import Request
from clove.data.options import check_options, one_of, options_of
from clove.errors import CloveError
from clove.seeds import stream

BASES: Mapping[str, Callable[..., list[Cluster]]] = {
    "label-skew-1": label_skew_1,
    "feature-skew": feature_skew,
    "concept-shift": concept_shift,
}


def mixed(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int | None = None,
    base: str = "label-skew-1",
    blend: float = 0.2,
    **options: Any,
) -> list[Cluster]:
    """Make the clusters of another mixing, between which clients then exchange points.

    Points stay as they are in the cluster they come from: turned, or with their labels swapped.

    Parameters
    ----------
    clusters : int, optional
        Number of clusters, by default that of the base.
    base : "label-skew-1", "feature-skew" or "concept-shift"
        The mixing whose clusters are blended.
    blend : float
        Share of a client's points, of training and test alike, that come from another cluster: at
        most one half, so that a client still belongs to its own. Which other cluster is drawn for
        each client by the seed.
    **options
        Those of the base.
    """
    share("blend", blend, most=0.5)
    make = BASES[one_of("base", base, BASES)]
    check_options(f"mixing 'mixed' with base {base!r}:", options, options_of(make))
    if clusters is not None:
        options["clusters"] = clusters
    made = make(dataset, request, **options)
    if len(made) < 2:
        raise CloveError("mixing 'mixed' blends clusters: it needs at least 2, got clusters=1")
    return made


OPTIONS: Mapping[str, Any] = {
    **dict.fromkeys(option for base in BASES.values() for option in options_of(base)),
    **options_of(mixed),
}
"""Its own options, and those of any base: None there, as the default is the base's."""


def exchange(
    holdings: list[Holding], clusters: int, seed: int, options: Mapping[str, Any]
) -> list[Holding]:
    """Let each client give the end of its points to one of another cluster, for the end of its."""
    clients = len(holdings) // clusters
    offsets = _offsets(clusters, clients, seed)
    blended = []
    for number, own in enumerate(holdings):
        cluster, client = divmod(number, clients)
        # For each client of a cluster the others' offset is the same, so all give exactly once.
        giver = (cluster + offsets[client]) % clusters * clients + client
        blended.append(_blend(own[0], holdings[giver][0], options["blend"]))
    return blended


def _offsets(clusters: int, clients: int, seed: int) -> Array:
    """Return from how many clusters further on each client of a cluster gets its guests."""
    drawn = 1 + stream(seed, "mixing/partners").permutation(clusters - 1)
    return np.resize(drawn, clients)


def _blend(own: Piece, giver: Piece, blend: float) -> Holding:
    # Where one has fewer points than the other, the share still has to come out right.
    size = min(size_of([own]), size_of([giver]))
    guests = int(blend * size + 0.5)
    kept = Piece(own.cluster, own.indices[: size - guests])
    if guests == 0:
        return [kept]
    return [kept, Piece(giver.cluster, giver.indices[len(giver.indices) - guests :])]
