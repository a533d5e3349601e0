from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clove.errors import CloveError
from clove.federation import INITIAL_MODELS, initial_models
from clove.federation import parameters as stacks
from clove.tasks import regression

from .worlds import assert_identical, dense, relaxed

linear = regression().for_data((6,), 1)


@pytest.mark.parametrize("how", INITIAL_MODELS)
def test_a_seed_means_the_same_models_every_time(how):
    assert_identical(initial_models(linear, 4, how, 3), initial_models(linear, 4, how, 3))
    other = initial_models(linear, 4, how, 2)["weight"]
    assert not torch.equal(other, initial_models(linear, 4, how, 3)["weight"])


def test_different_models_differ_from_each_other():
    weights = initial_models(dense, 4, "different", 0)["1.weight"].flatten(1)
    assert len({tuple(row.tolist()) for row in weights}) == 4


def test_same_models_are_all_the_first_of_the_different_ones():
    models = initial_models(dense, 3, "same", 0)
    first = stacks.one(initial_models(dense, 1, "different", 0), 0)
    assert_identical(models, stacks.repeat(first, 3))


def test_more_models_leave_the_first_ones_as_they_were():
    few, many = (initial_models(dense, number, "different", 0) for number in (2, 5))
    assert_identical(stacks.pick(many, np.arange(2)), few)


@relaxed
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_orthonormal_models_are_unit_vectors_at_right_angles(seed, number):
    weight = initial_models(linear, number, "orthonormal", seed)["weight"]
    assert weight.shape == (number, 1, 6)
    torch.testing.assert_close(
        weight[:, 0] @ weight[:, 0].T, torch.eye(number), atol=1e-6, rtol=0.0
    )


def test_more_orthonormal_models_than_dimensions_do_not_exist():
    with pytest.raises(CloveError, match="7 orthonormal models do not exist in 6 dimensions"):
        initial_models(linear, 7, "orthonormal", 0)


@pytest.mark.parametrize("task", [dense, regression().for_data((6,), 2)])
def test_orthonormal_models_are_for_the_linear_model_with_one_output(task):
    with pytest.raises(CloveError, match="use 'different' or 'same'"):
        initial_models(task, 2, "orthonormal", 0)


def test_an_unknown_way_is_refused_with_the_nearest():
    with pytest.raises(CloveError, match="did you mean 'orthonormal'"):
        initial_models(linear, 2, "orthogonal", 0)


def test_making_models_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    initial_models(dense, 3, "different", 0)
    assert torch.equal(torch.get_rng_state(), before)
