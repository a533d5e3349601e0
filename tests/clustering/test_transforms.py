from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clove.clustering import TRANSFORMS, transform_losses
from clove.clustering.transforms import LOG_FLOOR
from clove.errors import CloveError

from .groups import relaxed

shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))
losses_of_any_size = arrays(np.float64, shapes, elements=st.floats(0, 1e6))


def test_the_four_transforms_have_names():
    assert TRANSFORMS == ("identity", "sqrt", "log", "row")


@relaxed
@given(losses_of_any_size, st.sampled_from(TRANSFORMS))
def test_losses_stay_finite_and_keep_their_shape(losses, transform):
    transformed = transform_losses(losses, transform)
    assert transformed.shape == losses.shape
    assert np.isfinite(transformed).all()


@relaxed
@given(losses_of_any_size)
def test_identity_changes_nothing_and_sqrt_is_undone_by_squaring(losses):
    assert np.array_equal(transform_losses(losses), losses)
    assert np.allclose(transform_losses(losses, "sqrt") ** 2, losses)


@relaxed
@given(losses_of_any_size, st.sampled_from(["sqrt", "log"]))
def test_elementwise_transforms_keep_the_order_of_losses(losses, transform):
    order = np.argsort(losses, axis=None)
    assert (np.diff(transform_losses(losses, transform).ravel()[order]) >= 0).all()


@relaxed
@given(losses_of_any_size)
def test_log_is_the_logarithm_above_its_floor(losses):
    assert np.allclose(transform_losses(losses + 1e-9, "log"), np.log(losses + 1e-9))


def test_a_zero_loss_is_no_outlier_under_log():
    zero, small = transform_losses([0.0, 1e-6], "log")
    assert zero == np.log(LOG_FLOOR)
    assert small - zero < 20


@relaxed
@given(losses_of_any_size, st.floats(0, 1000))
def test_row_removes_each_clients_mean_and_so_any_constant(losses, constant):
    rows = transform_losses(losses, "row")
    scale = 1 + np.abs(losses).max() + constant
    assert np.allclose(rows.mean(axis=1), 0, atol=1e-12 * scale)
    assert np.allclose(transform_losses(losses + constant, "row"), rows, atol=1e-12 * scale)


@relaxed
@given(st.floats(-1e6, 1e6), st.integers(1, 12))
def test_losses_equal_on_all_models_become_exactly_nothing_under_row(loss, n_models):
    assert not transform_losses([[loss] * n_models], "row").any()


def test_a_single_vector_may_be_transformed():
    assert transform_losses([1.0, 2.0, 6.0], "row").tolist() == [-2.0, -1.0, 3.0]


@pytest.mark.parametrize("transform", ["sqrt", "log"])
def test_negative_losses_are_refused_where_they_make_no_sense(transform):
    with pytest.raises(ValueError, match=r"not negative.*smallest here is -0\.5"):
        transform_losses([[1.0, -0.5], [2.0, np.nan]], transform)


def test_the_losses_given_are_not_written_to():
    losses = np.array([[1.0, 3.0]])
    for transform in TRANSFORMS:
        transform_losses(losses, transform)
    assert losses.tolist() == [[1.0, 3.0]]


def test_an_unknown_transform_is_told_the_nearest_known_one():
    with pytest.raises(CloveError, match="did you mean 'sqrt'"):
        transform_losses([[1.0]], "sqr")
