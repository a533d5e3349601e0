"""scikit-learn's own opinion of the estimator, in every configuration."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from clove.clustering import LossVectorClustering

CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"method": "agglomerative"},
    {"method": "finch"},
    {"n_clusters": "auto", "max_clusters": 5},
    {"n_clusters": "auto", "selection": "merge-ratio"},
    {"n_clusters": "auto", "method": "finch"},
    {"transform": "row"},
    {"transform": "sqrt"},
    {"transform": "log", "method": "agglomerative"},
]


def not_for_positive_losses(estimator: LossVectorClustering) -> dict[str, str]:
    """Name the one check that feeds negative values whatever the estimator's tags say."""
    if estimator.get_params()["transform"] in ("sqrt", "log"):
        return {"check_clustering": "feeds standardised data, half of which are negative"}
    return {}


@parametrize_with_checks(
    [LossVectorClustering(**settings) for settings in CONFIGURATIONS],
    expected_failed_checks=not_for_positive_losses,
)
def test_the_estimator_keeps_scikit_learns_conventions(estimator: Any, check: Any) -> None:
    check(estimator)
