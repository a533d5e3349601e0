from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.algorithms.simplex import AT_FIRST, least_on_simplex

from .scripted import relaxed


def made(seed: int, size: int, rank: int, ridge: float) -> np.ndarray:
    """Make a form that is positive semidefinite."""
    rows = np.random.default_rng(seed).normal(size=(size, rank)) + 0.3
    return rows @ rows.T + ridge * np.eye(size)


@pytest.mark.parametrize("seed", range(8))
def test_no_point_of_a_fine_grid_is_lower(seed):
    form = made(seed, 3, 1 + seed % 3, 0.1)
    steps = 200
    grid = [(a, b, steps - a - b) for a, b in product(range(steps + 1), repeat=2) if a + b <= steps]
    points = np.array(grid) / steps
    values = np.einsum("pi,ij,pj->p", points, form, points)
    found = least_on_simplex(form)
    assert found @ form @ found <= values.min() + 1e-12
    assert np.abs(found - points[values.argmin()]).max() < 0.05


def test_answers_known_beforehand():
    np.testing.assert_allclose(least_on_simplex(np.eye(4)), np.full(4, 1 / 4))
    # Of independent estimates each counts by its precision.
    np.testing.assert_allclose(least_on_simplex(np.diag([1.0, 2.0, 4.0])), np.array([4, 2, 1]) / 7)
    # The line through (1, 1) and (3, 1), seen from the origin, is nearest at its first end.
    ends = np.array([[1.0, 1.0], [3.0, 1.0]])
    np.testing.assert_allclose(least_on_simplex(ends @ ends.T), [1, 0], atol=1e-9)
    np.testing.assert_allclose(least_on_simplex(np.zeros((3, 3))), np.full(3, 1 / 3))
    assert least_on_simplex(np.array([[5.0]])).tolist() == [1.0]


@relaxed
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 3 * AT_FIRST),
    rank=st.integers(1, 60),
    ridge=st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
)
def test_no_weight_can_be_moved_to_another_place_for_less(seed, size, rank, ridge):
    form = made(seed, size, rank, ridge)
    found = least_on_simplex(form)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    slope = form @ found
    # Where there is weight the slope is least, and everywhere the same (Karush, Kuhn, Tucker).
    tolerance = 1e-6 * np.abs(form).max()
    assert (slope >= found @ slope - tolerance).all()


def test_weights_not_looked_at_in_the_beginning_are_found():
    # The last two, the longest, stand on opposite sides of the origin: half of each is nought.
    side = np.array([[3.0, 0.0], [-3.0, 0.0]])
    points = np.concatenate([np.tile([0.0, 1.0], (2 * AT_FIRST, 1)), side])
    found = least_on_simplex(points @ points.T)
    np.testing.assert_allclose(found[-2:], [0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_a_shift_of_rows_and_columns_is_as_good_as_the_form_it_makes(seed):
    draw = np.random.default_rng(seed)
    points, here = draw.normal(size=(2 * AT_FIRST, 5)), draw.normal(size=5) / 5
    away = points - here
    shift = points @ here - here @ here / 2
    found = least_on_simplex(points @ points.T + 0.1 * np.eye(len(points)), shift)
    expected = least_on_simplex(away @ away.T + 0.1 * np.eye(len(points)))
    np.testing.assert_allclose(found, expected, atol=1e-9)
