"""Dividing a data set among clients by a mixing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data.client_data import ClientData, Points
from clove.data.dataset import Dataset, Part
from clove.data.mixings.authors import PARTITION_SEED, VARIANTS, relabelled
from clove.data.mixings.cluster import Array, Cluster, Holding, size_of
from clove.data.mixings.cut import cut
from clove.data.mixings.find import find_mixing, mixing_options
from clove.data.mixings.registry import Mixing
from clove.data.mixings.request import Request
from clove.data.mixings.sizes import sizes_for
from clove.data.options import check_options, one_of, whole_number
from clove.errors import CloveError, CloveWarning


@dataclass(frozen=True, eq=False)
class MixedClients:
    """Clients made from a data set by a mixing."""

    clients: list[ClientData]
    """Those of cluster 0 first, then those of cluster 1, and so on."""
    groups: NDArray[np.int64] | None
    """The true cluster of each client; None where the mixing makes no clusters."""
    clusters: int | None
    shortfall: str | None = None
    """What could not be had of the points asked for, in words; None if all were there."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options of the mixing as they came out: what was given, else the default."""
    about: list[str] = field(default_factory=list)
    """What each cluster is, in a few words."""


def mix(dataset: Dataset, mixing: Any, seed: int, **options: Any) -> MixedClients:
    """Divide a data set among clients.

    No point goes to two clients (but see feature skew in the authors' variant). Where there are not
    enough points clients get fewer: `shortfall` says so, and a warning does too if the number was
    asked for.

    Parameters
    ----------
    dataset : Dataset
        What to divide; its own defaults go before those of the mixing.
    mixing : str or partitioner
        One of `MIXINGS`; or a partitioner of Flower Datasets, as an object or by name:
        `flwr:dirichlet` for DirichletPartitioner, whose parameters are then the options.
    seed : int
        Seed of the partition.
    **options
        `clusters`, `clients_per_cluster`, `points_per_client`, `test_points_per_client` (by default
        as many as `points_per_client`), and the mixing's own, see `mixing_options`; None stands for
        the default. Mixings without clusters have `total_clients` instead of the first two, and no
        limit of points unless one is given. `variant="authors"` does as the authors' code does
        where that differs from the paper: one partition whatever the seed, and what each mixing
        says.
    """
    given = {option: value for option, value in options.items() if value is not None}
    known = mixing_options(mixing)
    check_options(f"mixing {mixing!r}", given, known)
    chosen = find_mixing(mixing)
    authors = one_of("variant", given.get("variant", VARIANTS[0]), VARIANTS) == "authors"
    sizes = sizes_for(dataset, mixing, authors) if chosen.grouped else {}
    settled = {**known, **sizes, **given}
    request = _request(settled, given, seed, authors)
    if request.clients > dataset.size("train"):
        raise CloveError(
            f"{request.clients} clients are too many: data set {dataset.name!r} has "
            f"{dataset.size('train')} training points"
        )
    own = {option: given[option] for option in chosen.own_options().keys() & given}
    dataset = relabelled(dataset) if authors else dataset
    clusters = chosen.clusters(dataset, request, **own)
    train, test = (
        _holdings(chosen, clusters, part, request, seed, settled) for part in ("train", "test")
    )
    groups = np.arange(len(clusters)).repeat(request.clients) if chosen.grouped else None
    shortfall = _shortfall(train, test, request, given, chosen.grouped)
    return MixedClients(
        clients=_clients(dataset, train, test, groups),
        groups=groups,
        clusters=len(clusters) if chosen.grouped else None,
        shortfall=shortfall,
        options=settled,
        about=[cluster.about for cluster in clusters] if chosen.grouped else [],
    )


def _request(
    options: Mapping[str, Any], given: Mapping[str, Any], seed: int, authors: bool
) -> Request:
    clients = next((n for n in ("clients_per_cluster", "total_clients") if n in options), None)
    train, test = options["points_per_client"], options["test_points_per_client"]
    most = None if train is None else whole_number("points_per_client", train)
    most_test = most if test is None else whole_number("test_points_per_client", test)
    return Request(
        seed=PARTITION_SEED if authors else seed,
        clients=0 if clients is None else whole_number(clients, options[clients]),
        train=most,
        test=most_test,
        # Test parts are smaller by nature: only what is asked for must be there.
        least_test=most_test if most_test is not None and "test_points_per_client" in given else 1,
        authors=authors,
    )


def _holdings(
    mixing: Mixing,
    clusters: list[Cluster],
    part: Part,
    request: Request,
    seed: int,
    options: Mapping[str, Any],
) -> list[Holding]:
    most = request.train if part == "train" else request.test
    held = cut(clusters, part, request.clients, most, seed)
    if mixing.exchange is None:
        return held
    return mixing.exchange(held, len(clusters), seed, options)


def _clients(
    dataset: Dataset, train: list[Holding], test: list[Holding], groups: Array | None
) -> list[ClientData]:
    return [
        ClientData(
            train=_points(dataset, "train", own),
            test=_points(dataset, "test", own_test),
            group=None if groups is None else groups[number],
        )
        for number, (own, own_test) in enumerate(zip(train, test, strict=True))
    ]


def _points(dataset: Dataset, part: Part, holding: Holding) -> Points:
    pieces = [piece.cluster.points(dataset, part, piece.indices) for piece in holding]
    if len(pieces) == 1:
        return pieces[0]
    labels = [y for _, y in pieces if y is not None]
    return np.concatenate([x for x, _ in pieces]), np.concatenate(labels) if labels else None


def _shortfall(
    train: list[Holding],
    test: list[Holding],
    request: Request,
    given: Mapping[str, Any],
    grouped: bool,
) -> str | None:
    """Say what is missing, and warn if it was asked for rather than a default.

    Where there are no clusters clients differ in size by design: only what none gets is missing.
    """
    found = []
    for option, holdings, wanted in (
        ("points_per_client", train, request.train),
        ("test_points_per_client", test, request.test),
    ):
        text = (_lack if grouped else _beyond)(option, holdings, wanted)
        if text and option in given:
            warnings.warn(text, CloveWarning, stacklevel=3)
        # Test parts are smaller by nature: a shortfall there matters only if asked for.
        if text and (option in given or holdings is train):
            found.append(text)
    return "; ".join(found) or None


def _lack(option: str, holdings: list[Holding], wanted: int | None) -> str | None:
    sizes = [size_of(holding) for holding in holdings]
    short = sum(wanted is not None and size < wanted for size in sizes)
    if short == 0:
        return None
    return (
        f"{option}={wanted}, but {short} of {len(sizes)} clients get fewer, down to {min(sizes)}: "
        "the data set has no more for so many clients"
    )


def _beyond(option: str, holdings: list[Holding], wanted: int | None) -> str | None:
    most = max(size_of(holding) for holding in holdings)
    if wanted is None or most >= wanted:
        return None
    return f"{option}={wanted}, but no client gets so many: the most is {most}"
