from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.clustering.arrays import (
    count_groups,
    few_distinct,
    finite_matrix,
    group_equal,
    group_means,
    number_by_first_member,
)

from .groups import relaxed, same_groups, seeds

labellings = st.lists(st.integers(-3, 5), min_size=1, max_size=20).map(np.array)


@relaxed
@given(labellings)
def test_numbers_follow_the_first_members_and_keep_the_groups(labels):
    numbered = number_by_first_member(labels)
    assert same_groups(numbered, labels)
    firsts = [int(np.argmax(numbered == group)) for group in range(count_groups(numbered))]
    assert firsts == sorted(firsts)


@relaxed
@given(labellings, st.permutations(range(-3, 6)))
def test_numbers_do_not_depend_on_what_groups_were_called(labels, names):
    renamed = np.array(names)[labels + 3]
    assert np.array_equal(number_by_first_member(labels), number_by_first_member(renamed))


def test_equal_vectors_are_grouped_and_nought_has_no_sign():
    vectors = np.array([[1.0, 0.0], [2.0, 1.0], [1.0, -0.0], [1.0, 1.0]])
    assert group_equal(vectors).tolist() == [0, 1, 0, 2]


@relaxed
@given(seeds, st.integers(1, 40), st.integers(1, 3), st.integers(1, 4))
def test_vectors_share_a_group_exactly_when_they_are_equal(seed, rows, columns, values):
    vectors = np.random.default_rng(seed).integers(0, values, (rows, columns)).astype(float)
    groups = group_equal(vectors)
    assert np.array_equal(
        groups[:, np.newaxis] == groups, (vectors[:, np.newaxis] == vectors).all(axis=2)
    )
    assert np.array_equal(groups, number_by_first_member(groups))


@relaxed
@given(seeds, st.integers(1, 200), st.integers(1, 6), st.integers(1, 6))
def test_few_distinct_vectors_are_grouped_and_many_are_not(seed, rows, values, fewer_than):
    vectors = np.random.default_rng(seed).integers(0, values, (rows, 1)).astype(float)
    groups, found = group_equal(vectors), few_distinct(vectors, fewer_than)
    if count_groups(groups) < fewer_than:
        assert np.array_equal(found, groups)
    else:
        assert found is None


def test_means_are_those_of_each_group():
    vectors = np.array([[1.0, 2.0], [5.0, 5.0], [3.0, 4.0]])
    assert group_means(vectors, np.array([0, 1, 0])).tolist() == [[2.0, 3.0], [5.0, 5.0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_named(bad):
    with pytest.raises(ValueError, match="losses must be finite numbers: row 1"):
        finite_matrix([[1.0, 2.0], [bad, 1.0]], "losses")


def test_a_matrix_has_two_dimensions_and_a_row():
    with pytest.raises(ValueError, match="two dimensions"):
        finite_matrix([1.0, 2.0], "losses")
    with pytest.raises(ValueError, match="at least 1 row"):
        finite_matrix(np.empty((0, 3)), "losses")
    assert finite_matrix(np.empty((0, 3)), "losses", min_rows=0).shape == (0, 3)
