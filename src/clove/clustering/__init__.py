"""Loss matrix in, groups of clients and their models out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clove.clustering.estimator import LossVectorClustering
    from clove.clustering.first_neighbours import finch, finch_k, finch_labels
    from clove.clustering.matching import (
        MATCHINGS,
        match,
        match_by_overlap,
        match_in_order,
        match_min_cost,
    )
    from clove.clustering.newcomers import Assignments, assign_newcomers
    from clove.clustering.selection import Choice, merge_ratio_k, silhouette_k
    from clove.clustering.stability import AssignmentHistory, stability_reached
    from clove.clustering.transforms import TRANSFORMS, transform_losses

# Loaded when first used: a client on a network needs its history alone, and starts anew for each
# message; scikit-learn and scipy would be half of that start.
_HOMES = {
    "MATCHINGS": "matching",
    "TRANSFORMS": "transforms",
    "AssignmentHistory": "stability",
    "Assignments": "newcomers",
    "Choice": "selection",
    "LossVectorClustering": "estimator",
    "assign_newcomers": "newcomers",
    "finch": "first_neighbours",
    "finch_k": "first_neighbours",
    "finch_labels": "first_neighbours",
    "match": "matching",
    "match_by_overlap": "matching",
    "match_in_order": "matching",
    "match_min_cost": "matching",
    "merge_ratio_k": "selection",
    "silhouette_k": "selection",
    "stability_reached": "stability",
    "transform_losses": "transforms",
}
__all__ = [
    "MATCHINGS",
    "TRANSFORMS",
    "AssignmentHistory",
    "Assignments",
    "Choice",
    "LossVectorClustering",
    "assign_newcomers",
    "finch",
    "finch_k",
    "finch_labels",
    "match",
    "match_by_overlap",
    "match_in_order",
    "match_min_cost",
    "merge_ratio_k",
    "silhouette_k",
    "stability_reached",
    "transform_losses",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clove.clustering' has no attribute {name!r}")
    value = getattr(import_module(f"clove.clustering.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
