"""The mixings by name, and how the points of their clusters come to clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data.client_data import ClientData
from clove.data.dataset import Dataset, Part
from clove.data.mixings.cluster import Array, Cluster
from clove.data.mixings.concept_shift import concept_shift
from clove.data.mixings.feature_skew import feature_skew
from clove.data.mixings.label_skew import label_skew_1
from clove.data.mixings.none import none
from clove.data.options import check_options, options_of, whole_number
from clove.errors import CloveError, CloveWarning, unknown_name
from clove.seeds import stream


@dataclass(frozen=True)
class Mixing:
    """A way to divide a data set into clusters, with the paper's amounts for it."""

    clusters: Callable[..., list[Cluster]]
    """`clusters(dataset, seed, *, its own options)`."""
    clients_per_cluster: int
    points_per_client: int


MIXINGS: Mapping[str, Mixing] = {
    "none": Mixing(none, clients_per_cluster=5, points_per_client=1000),
    "label-skew-1": Mixing(label_skew_1, clients_per_cluster=5, points_per_client=500),
    "feature-skew": Mixing(feature_skew, clients_per_cluster=10, points_per_client=500),
    "concept-shift": Mixing(concept_shift, clients_per_cluster=5, points_per_client=1000),
}


@dataclass(frozen=True, eq=False)
class MixedClients:
    """Clients made from a data set by a mixing."""

    clients: list[ClientData]
    """Those of cluster 0 first, then those of cluster 1, and so on."""
    groups: NDArray[np.int64]
    """The true cluster of each client."""
    clusters: int
    shortfall: str | None = None
    """What could not be had of the points asked for, in words; None if all were there."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options of the mixing as they came out: what was given, else the default."""


@dataclass(frozen=True)
class Amounts:
    """How much each client gets."""

    clients_per_cluster: int
    train: int
    test: int


def mix(dataset: Dataset, mixing: str, seed: int, **options: Any) -> MixedClients:
    """Divide a data set among clients.

    No point goes to two clients. Where there are not enough points clients get fewer: `shortfall`
    says so, and a warning does too if the number was asked for.

    Parameters
    ----------
    dataset : Dataset
        What to divide; its own defaults go before those of the mixing.
    mixing : str
        One of `MIXINGS`.
    seed : int
        Seed of the partition.
    **options
        `clusters`, `clients_per_cluster`, `points_per_client`, `test_points_per_client` (by default
        as many as `points_per_client`), and the mixing's own, see `mixing_options`; None stands for
        the default.
    """
    given = {option: value for option, value in options.items() if value is not None}
    known = mixing_options(mixing)
    check_options(f"mixing {mixing!r}", given, known)
    own = {option: given[option] for option in options_of(MIXINGS[mixing].clusters).keys() & given}
    settled = {**known, **_defaults(dataset), **given}
    amounts = _amounts(settled)
    clusters = MIXINGS[mixing].clusters(dataset, seed, **own)
    train = _cut(clusters, "train", amounts.clients_per_cluster, amounts.train, seed)
    test = _cut(clusters, "test", amounts.clients_per_cluster, amounts.test, seed)
    groups = np.arange(len(clusters)).repeat(amounts.clients_per_cluster)
    clients = [
        _client(dataset, clusters[group], int(group), *indices)
        for group, *indices in zip(groups, train, test, strict=True)
    ]
    shortfall = _shortfall(train, test, amounts, given)
    return MixedClients(clients, groups, len(clusters), shortfall, settled)


def mixing_options(name: str) -> dict[str, Any]:
    """Return the options of a mixing and their defaults.

    A default of None depends on the data or the other options. A data set may have its own
    defaults for `clients_per_cluster` and `points_per_client`; they go before these.
    """
    if name not in MIXINGS:
        raise unknown_name("mixing", name, MIXINGS)
    mixing = MIXINGS[name]
    own = options_of(mixing.clusters)
    return {
        "clusters": own.pop("clusters"),
        "clients_per_cluster": mixing.clients_per_cluster,
        "points_per_client": mixing.points_per_client,
        "test_points_per_client": None,
        **own,
    }


def _defaults(dataset: Dataset) -> dict[str, int]:
    own = {
        "clients_per_cluster": dataset.clients_per_cluster,
        "points_per_client": dataset.points_per_client,
    }
    return {option: value for option, value in own.items() if value is not None}


def _amounts(options: Mapping[str, Any]) -> Amounts:
    points = whole_number("points_per_client", options["points_per_client"])
    test = options["test_points_per_client"]
    return Amounts(
        clients_per_cluster=whole_number("clients_per_cluster", options["clients_per_cluster"]),
        train=points,
        test=points if test is None else whole_number("test_points_per_client", test),
    )


def _cut(clusters: list[Cluster], part: Part, clients: int, most: int, seed: int) -> list[Array]:
    """Shuffle each cluster's points, cut them into equal chunks, take the first of each chunk."""
    shares: list[Array] = []
    for number, cluster in enumerate(clusters):
        points = cluster.indices(part)
        chunk = len(points) // clients
        if chunk == 0:
            raise CloveError(
                f"cluster {number} has {len(points)} {part} points for {clients} clients: "
                "lower clients_per_cluster or the number of clusters"
            )
        order = stream(seed, "mixing/clients", part == "test", number).permutation(points)
        shares += [order[first : first + min(chunk, most)] for first in _starts(clients, chunk)]
    return shares


def _starts(clients: int, chunk: int) -> range:
    return range(0, clients * chunk, chunk)


def _client(
    dataset: Dataset, cluster: Cluster, group: int, train: Array, test: Array
) -> ClientData:
    return ClientData(
        train=cluster.points(dataset, "train", train),
        test=cluster.points(dataset, "test", test),
        group=group,
    )


def _shortfall(
    train: list[Array], test: list[Array], amounts: Amounts, given: Mapping[str, Any]
) -> str | None:
    """Say what is missing, and warn if it was asked for rather than a default."""
    found = []
    for option, shares, wanted in (
        ("points_per_client", train, amounts.train),
        ("test_points_per_client", test, amounts.test),
    ):
        text = _lack(option, shares, wanted)
        if text and option in given:
            warnings.warn(text, CloveWarning, stacklevel=3)
        # Test parts are smaller by nature: a shortfall there matters only if asked for.
        if text and (option in given or shares is train):
            found.append(text)
    return "; ".join(found) or None


def _lack(option: str, shares: list[Array], wanted: int) -> str | None:
    sizes = [len(share) for share in shares]
    short = sum(size < wanted for size in sizes)
    if short == 0:
        return None
    return (
        f"{option}={wanted}, but {short} of {len(sizes)} clients get fewer, down to {min(sizes)}: "
        "the data set has no more for so many clients"
    )
