from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import clove
from clove.algorithms import ALGORITHMS, FedAvg, Local, find_algorithm, register
from clove.algorithms.base import drop_not_finite, nearest_by_loss
from clove.errors import CloveError, CloveWarning
from clove.federation import LossVectors

from .scripted import relaxed

BAD = [np.nan, np.inf, -np.inf]
losses = st.integers(1, 5).flatmap(
    lambda number: arrays(float, (6, number), elements=st.floats(0, 1e6))
)


# ----------------------------------------------------------------------- losses that are not finite


@pytest.mark.parametrize("bad", BAD)
def test_a_client_with_a_loss_that_is_not_finite_is_set_aside_by_name(bad):
    answer = LossVectors(np.array([3, 5, 8]), np.array([[1.0, 2.0], [bad, 1.0], [2.0, 1.0]]))
    with pytest.warns(CloveWarning, match="client 5 sent losses that are not finite"):
        fine, aside = drop_not_finite(answer)
    assert aside == [5]
    assert fine.clients.tolist() == [3, 8]
    assert fine.losses.tolist() == [[1.0, 2.0], [2.0, 1.0]]


def test_all_those_set_aside_are_named_in_one_warning():
    answer = LossVectors(np.array([3, 5]), np.array([[np.nan], [np.inf]]))
    with pytest.warns(CloveWarning, match="client 3, 5 ") as warned:
        fine, _ = drop_not_finite(answer)
    assert len(warned) == 1
    assert fine.losses.shape == (0, 1)


@relaxed
@given(losses)
def test_finite_losses_pass_without_a_word(matrix):
    fine, aside = drop_not_finite(LossVectors(np.arange(6), matrix))
    assert aside == []
    assert np.array_equal(fine.losses, matrix)


# ---------------------------------------------------------------------------- nearest by loss


@relaxed
@given(losses)
def test_the_model_of_least_loss_is_nearest_and_margins_lie_between_nought_and_one(matrix):
    found = nearest_by_loss(matrix)
    assert np.array_equal(matrix[np.arange(6), found.models], matrix.min(axis=1))
    assert np.array_equal(found.distances, matrix)
    assert ((found.margins >= 0) & (found.margins <= 1)).all()


@pytest.mark.parametrize(
    ("row", "margin"),
    [([1.0, 4.0, 9.0], 0.75), ([0.0, 1.0], 1.0), ([2.0, 2.0], 0.0), ([0.0, 0.0], 0.0), ([3.0], 1)],
    ids=str,
)
def test_margins_by_hand(row, margin):
    assert nearest_by_loss(np.array([row])).margins.tolist() == [margin]


# ------------------------------------------------------------------------------------ by name


@pytest.mark.parametrize(
    ("name", "clusters", "personal"),
    [
        ("clove", True, False),
        ("fedavg", False, False),
        ("ifca", True, False),
        ("local", False, True),
    ],
)
def test_every_method_is_found_by_its_name_and_says_of_what_kind_it_is(name, clusters, personal):
    found = find_algorithm(name)
    assert (found.name, found.clusters, found.personal) == (name, clusters, personal)


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(CloveError, match="unknown algorithm 'fedavgg': did you mean 'fedavg'"):
        find_algorithm("fedavgg")


def test_a_method_may_be_registered_twice_but_not_replaced():
    assert register(FedAvg) is FedAvg
    other = type("Other", (Local,), {"name": "fedavg"})
    with pytest.raises(CloveError, match=r"'fedavg' is registered already.*FedAvg"):
        register(other)
    assert find_algorithm("fedavg") is FedAvg


def test_a_method_of_ones_own_runs_by_its_name():
    register(type("Mine", (FedAvg,), {"name": "mine"}))
    try:
        result = clove.run(dataset="digits", algorithm="mine", rounds=1)
    finally:
        del ALGORITHMS["mine"]
    assert result.settings.algorithm == "mine"
    assert result.accuracy > 0
