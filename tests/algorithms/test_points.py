from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from threadpoolctl import threadpool_info, threadpool_limits

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


def test_they_are_made_by_one_thread_and_the_others_are_given_back(monkeypatch):
    """Threads wait for each other longer than they work on matrices of this size."""
    seen = []

    def watched(*arguments, **options):
        seen.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return eigh(*arguments, **options)

    monkeypatch.setattr("clove.algorithms.points.eigh", watched)
    with threadpool_limits(2, user_api="blas"):
        before = threadpool_info()
        leading_directions(np.eye(4), 2)
        assert threadpool_info() == before
    assert set(seen) == {1}
