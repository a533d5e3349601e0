from __future__ import annotations

import pytest

from clove.algorithms import Clove
from clove.clustering import LossVectorClustering
from clove.errors import CloveError

from .scripted import setup


@pytest.mark.parametrize(
    ("option", "given", "nearest"),
    [
        ("first_round", "randon", "random"),
        ("transform", "sqr", "sqrt"),
        ("clustering", "kmean", "kmeans"),
        ("selection", "merge_ratio", "merge-ratio"),
        ("matching", "mincost", "min-cost"),
        ("probes", "train", "trained"),
        ("batch_norm", "batches", "batch"),
        ("averaging", "model", "models"),
        ("server_optimizer", "adams", "adam"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(option, given, nearest):
    with pytest.raises(CloveError, match=f"unknown {option} '{given}': did you mean '{nearest}'"):
        Clove(setup(4, 2), **{option: given})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": 2, "max_models": 3}, r"models \(K is known\) or max_models .* not both"),
        ({"max_models": 0}, "max_models must be 1 or more, not 0"),
        ({"probe_models": 0}, "probe_models must be 1 or more, not 0"),
        ({"probe_epochs": 0}, "probe_epochs must be 1 or more, not 0"),
        ({"stable_rounds": 0}, "stable_rounds must be 1 or more"),
        ({"stable_share": 0.0}, r"stable_share in \(0, 1\]"),
        ({"stable_share": 1.1}, r"stable_share in \(0, 1\]"),
        ({"probe_share": 0.0}, r"probe_share must be in \(0, 1\], not 0"),
        ({"probe_share": 1.5}, r"probe_share must be in \(0, 1\], not 1.5"),
        ({"n_init": 0}, "n_init"),
        ({"selection_threshold": 0.5}, "selection_threshold"),
        ({"silhouette_margin": -1.0}, "silhouette_margin"),
    ],
    ids=str,
)
def test_a_number_out_of_range_is_refused(options, message):
    with pytest.raises(CloveError, match=message):
        Clove(setup(4, 2), **options)


def test_without_a_number_of_models_the_error_says_what_to_set():
    with pytest.raises(CloveError, match=r"clove needs the number of models.*Set models=K"):
        Clove(setup(4, groups=None)).begin()


@pytest.mark.parametrize(("option", "parameter"), [("clustering", "method"), ("selection",) * 2])
def test_every_way_the_estimator_clusters_is_open_to_the_method(option, parameter):
    for name in LossVectorClustering._parameter_constraints[parameter][0].options:
        Clove(setup(4, 2), **{option: name})
