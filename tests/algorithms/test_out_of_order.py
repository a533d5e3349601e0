"""FedPAC's heads as PFLlib's server mixes them."""

from __future__ import annotations

import numpy as np
import pytest

import clove
from clove.algorithms.combining import out_of_order
from tests.algorithms.simulated import SEEDS


def test_with_one_order_heads_that_are_mixed_already_are_mixed_again() -> None:
    weights = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    same = np.arange(3)
    # The second client's is half of the first's mixture, half of its own; the third's half of that.
    expected = [[0.5, 0.5, 0], [0.25, 0.75, 0], [0.125, 0.375, 0.5]]
    np.testing.assert_allclose(out_of_order(weights, same, same), expected)


def test_a_client_gets_the_mixture_that_stands_at_its_place_in_the_other_list() -> None:
    weights = np.array([[1.0, 0, 0], [0, 1, 0], [0.5, 0, 0.5]])
    selected, uploaded = np.array([2, 0, 1]), np.array([1, 2, 0])
    # First come the weights of client 2: half of its own, half of client 0's, who stands second.
    # They are given to client 1, of its own head and of that of client 2, who stands second there.
    found = out_of_order(weights, selected, uploaded)
    np.testing.assert_allclose(found, [[1, 0, 0], [0, 0.5, 0.5], [0, 0, 1]])


def test_clients_that_need_nobody_elses_head_are_spared() -> None:
    found = out_of_order(np.eye(4), np.array([3, 1, 0, 2]), np.array([1, 0, 3, 2]))
    np.testing.assert_array_equal(found, np.eye(4))


@pytest.mark.parametrize("seed", SEEDS)
def test_on_the_digits_it_costs_accuracy(seed: int) -> None:
    options = {"dataset": "digits", "mixing": "label-skew-1", "algorithm": "fedpac", "seed": seed}
    options |= {"rounds": 6, "learning_rate": 0.003}
    right, wrong = (
        clove.run(**options, indices=indices).accuracy for indices in ("corrected", "pfllib")
    )
    assert right is not None
    assert wrong is not None
    assert wrong < right
