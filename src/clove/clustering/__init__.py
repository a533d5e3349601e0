"""Loss matrix in, groups of clients and their models out."""

from clove.clustering.estimator import LossVectorClustering
from clove.clustering.finch import finch, finch_k, finch_labels
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
