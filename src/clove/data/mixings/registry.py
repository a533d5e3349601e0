"""The mixings by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clove.data.card import DataCard
from clove.data.mixings.cluster import Cluster, Holding
from clove.data.mixings.concept_shift import SWAPS, concept_shift
from clove.data.mixings.dominant_class import label_skew_4
from clove.data.mixings.feature_skew import ROTATIONS, feature_skew
from clove.data.mixings.label_skew import (
    clusters_of_skew_2,
    label_skew_1,
    label_skew_2,
    label_skew_3,
)
from clove.data.mixings.mixed import OPTIONS, exchange, mixed
from clove.data.mixings.none import none
from clove.data.mixings.without_clusters import dirichlet, quantity_skew
from clove.data.options import options_of


@dataclass(frozen=True)
class Mixing:
    """A way to divide a data set into clusters, with the paper's amounts for it."""

    clusters: Callable[..., list[Cluster]]
    """`clusters(dataset, request, *, its own options)`."""
    clients: int | None
    """Clients of each cluster; all clients, where there are no true groups. None: the mixing's own
    options say how many."""
    points_per_client: int | None
    """None: as many as fall to the client."""
    grouped: bool = True
    """Whether clusters are true groups. If not, the one cluster is all clients."""
    variants: bool = True
    """Whether it is one of the paper, which the authors' code does in its own way."""
    exchange: Callable[..., list[Holding]] | None = None
    """What clients do with their points in the end: `exchange(holdings, clusters, seed, options)`,
    the same for training and test points."""
    usual: Callable[[DataCard, bool], int | None] | None = None
    """`usual(card, authors)`: how many clusters it makes of a data set where no option says; None
    where the default of its option `clusters` says it, whatever the data."""
    options: Mapping[str, Any] | None = None
    """Its own options and their defaults; None: the keyword-only parameters of `clusters`."""

    def own_options(self) -> dict[str, Any]:
        """Return the options beside the amounts, which all mixings have, and their defaults."""
        return options_of(self.clusters) if self.options is None else dict(self.options)


MIXINGS: Mapping[str, Mixing] = {
    "none": Mixing(none, 5, 1000, usual=lambda card, _: card.groups or card.classes),
    "label-skew-1": Mixing(label_skew_1, 5, 500),
    "label-skew-2": Mixing(
        label_skew_2, 5, 500, usual=lambda card, authors: clusters_of_skew_2(card.classes, authors)
    ),
    "label-skew-3": Mixing(label_skew_3, 5, 500),
    "label-skew-4": Mixing(label_skew_4, 5, 500, usual=lambda card, _: card.classes),
    "feature-skew": Mixing(feature_skew, 10, 500, usual=lambda *_: len(ROTATIONS)),
    "concept-shift": Mixing(concept_shift, 5, 1000, usual=lambda *_: len(SWAPS)),
    "dirichlet": Mixing(dirichlet, 25, None, grouped=False, variants=False),
    "quantity-skew": Mixing(quantity_skew, 25, None, grouped=False, variants=False),
    "mixed": Mixing(mixed, 5, 500, variants=False, exchange=exchange, options=OPTIONS),
}
