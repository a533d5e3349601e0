"""A mixing by its name, and the options it has."""

from __future__ import annotations

from typing import Any

from clove.data.mixings.flower import PREFIX, by_name, by_partitioner, is_partitioner
from clove.data.mixings.registry import MIXINGS, Mixing
from clove.errors import unknown_name


def find_mixing(mixing: Any) -> Mixing:
    """Return a mixing of `MIXINGS`, or one that a partitioner of Flower Datasets makes."""
    if is_partitioner(mixing):
        return by_partitioner(mixing)
    if isinstance(mixing, str) and mixing.startswith(PREFIX):
        return by_name(mixing)
    if mixing not in MIXINGS:
        raise unknown_name("mixing", mixing, MIXINGS)
    return MIXINGS[mixing]


def mixing_options(mixing: Any) -> dict[str, Any]:
    """Return the options of a mixing and their defaults.

    A default of None depends on the data or the other options. A data set may have its own
    defaults for `clients_per_cluster` and `points_per_client`; they go before these.
    """
    found = find_mixing(mixing)
    own = found.own_options()
    amounts = {"clusters": own.pop("clusters")} if found.grouped else {}
    if found.clients is not None:
        amounts["clients_per_cluster" if found.grouped else "total_clients"] = found.clients
    return {
        **amounts,
        "points_per_client": found.points_per_client,
        "test_points_per_client": None,
        **own,
        **({"variant": "paper"} if found.variants else {}),
    }
