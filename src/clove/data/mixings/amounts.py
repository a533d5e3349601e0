"""How many clients a mixing makes of a data set, and how much each gets, before data are read."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from clove.data.card import DataCard
from clove.data.mixings.authors import VARIANTS
from clove.data.mixings.find import find_mixing, mixing_options
from clove.data.mixings.sizes import sizes_of
from clove.errors import CloveError


@dataclass(frozen=True)
class Amounts:
    """What comes of a mixing, by its options and the facts on a data set's card."""

    clusters: int
    clients: int
    """Of all clusters together."""
    points: int
    """A client has for training, about."""


def expected_amounts(card: DataCard, mixing: str, **options: Any) -> Amounts:
    """Return what a mixing makes of a data set that is whole; options are those of `mix`.

    >>> from clove.data import dataset_card
    >>> expected_amounts(dataset_card("cifar10"), "label-skew-4")
    Amounts(clusters=10, clients=30, points=500)
    """
    known, chosen = mixing_options(mixing), find_mixing(mixing)
    given = {option: value for option, value in options.items() if value is not None}
    authors = given.get("variant", VARIANTS[0]) == "authors"
    settled = {**known, **sizes_of(card.name, mixing, authors), **card.brings, **given}
    usual = None
    if chosen.usual is not None and card.train is not None:  # else the data depend on who made them
        usual = chosen.usual(card, authors)
    clusters, each = settled["clusters"] or usual, settled["clients_per_cluster"]
    if clusters is None:
        raise CloveError(f"what {mixing!r} makes of {card.name!r} is not known before it is read")
    points = settled["points_per_client"]
    if card.train is not None:
        points = min(points, ceil(card.train / (max(clusters, usual or 0) * each)))
    return Amounts(clusters, clusters * each, points)
