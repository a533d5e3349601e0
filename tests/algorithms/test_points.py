from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.algorithms.points import leading_directions

from .scripted import relaxed


@relaxed
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.integers(1, 6))
def test_leading_directions_are_the_first_singular_vectors(seed, samples, features, number):
    rows = np.random.default_rng(seed).normal(size=(samples, features))
    found = leading_directions(rows, number)
    expected = np.linalg.svd(rows, full_matrices=False)[2][:number]
    there = len(expected)
    np.testing.assert_allclose(np.abs(np.sum(found.T[:there] * expected, axis=1)), 1, rtol=1e-6)
    assert found.shape == (features, number)
    assert not found[:, there:].any()


@pytest.mark.parametrize("rows", [np.ones((5, 3)), np.ones((3, 5)), np.zeros((4, 4))], ids=str)
def test_where_data_span_fewer_dimensions_the_other_directions_are_zeros(rows):
    lengths = np.linalg.norm(leading_directions(rows, 2), axis=0)
    np.testing.assert_allclose(lengths, [float(rows.any()), 0])
