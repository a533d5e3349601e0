from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.clustering import (
    MATCHINGS,
    match,
    match_by_overlap,
    match_in_order,
    match_min_cost,
)
from clove.errors import CloveError

from .groups import relaxed, seeds


@st.composite
def clusters_and_losses(draw):
    """Draw clusters, all of them used, and losses on at least as many models."""
    n_models = draw(st.integers(1, 5))
    n_clusters = draw(st.integers(1, n_models))
    rest = draw(st.lists(st.integers(0, n_clusters - 1), max_size=6))
    rng = np.random.default_rng(draw(seeds))
    labels = rng.permutation([*range(n_clusters), *rest])
    return labels, rng.uniform(0, 3, size=(len(labels), n_models))


def total_loss(labels, losses, models):
    return losses[np.arange(len(labels)), np.asarray(models)[labels]].sum()


def every_matching(labels, losses):
    return permutations(range(losses.shape[1]), int(labels.max()) + 1)


@relaxed
@given(clusters_and_losses())
def test_no_other_matching_has_less_loss(case):
    labels, losses = case
    best = total_loss(labels, losses, match_min_cost(labels, losses))
    others = (total_loss(labels, losses, models) for models in every_matching(labels, losses))
    assert best <= min(others) + 1e-9


@pytest.mark.parametrize("matching", MATCHINGS)
@relaxed
@given(case=clusters_and_losses(), data=st.data())
def test_no_two_clusters_share_a_model(matching, case, data):
    labels, losses = case
    n_clients, n_models = losses.shape
    one_model = st.integers(-1, n_models - 1)
    previous = data.draw(st.lists(one_model, min_size=n_clients, max_size=n_clients))
    models = match(labels, losses, matching, previous)
    assert len(models) == labels.max() + 1
    assert len(set(models.tolist())) == len(models)
    assert set(models.tolist()) <= set(range(n_models))


@pytest.mark.parametrize("matching", MATCHINGS)
@relaxed
@given(case=clusters_and_losses(), data=st.data())
def test_clients_models_do_not_depend_on_what_clusters_are_called(matching, case, data):
    labels, losses = case
    names = np.array(data.draw(st.permutations(range(labels.max() + 1))))
    plain = match(labels, losses, matching)[labels]
    assert np.array_equal(match(names[labels], losses, matching)[names[labels]], plain)


def test_a_case_worked_by_hand():
    losses = [[1.0, 0.5, 9.0], [1.0, 0.5, 9.0], [3.0, 0.1, 9.0]]
    # Both clusters do best on model 1; the second would lose more by leaving it.
    assert match_min_cost([0, 0, 1], losses).tolist() == [0, 1]


def test_in_order_looks_at_first_clients_only():
    losses = np.zeros((5, 4))
    assert match_in_order([2, 0, 2, 1, 0], losses).tolist() == [1, 2, 0]


@relaxed
@given(clusters_and_losses(), st.data())
def test_overlap_keeps_as_many_models_as_can_be_and_then_the_least_loss(case, data):
    labels, losses = case
    n_clients, n_models = losses.shape
    one_model = st.integers(-1, n_models - 1)
    previous = np.array(data.draw(st.lists(one_model, min_size=n_clients, max_size=n_clients)))

    def merit(models):
        kept = int((np.asarray(models)[labels] == previous).sum())
        return kept, -total_loss(labels, losses, models)

    found = merit(match_by_overlap(labels, losses, previous))
    best = max(map(merit, every_matching(labels, losses)))
    assert found[0] == best[0]
    assert found[1] == pytest.approx(best[1])


@relaxed
@given(clusters_and_losses())
def test_overlap_with_nothing_known_is_min_cost(case):
    labels, losses = case
    expected = match_min_cost(labels, losses)
    assert np.array_equal(match_by_overlap(labels, losses), expected)
    assert np.array_equal(match(labels, losses, "overlap", np.full(len(labels), -1)), expected)
    assert np.array_equal(match(labels, losses), expected)


def test_overlap_of_equal_losses_keeps_models():
    assert match_by_overlap([0, 1], np.ones((2, 2)), [1, -1]).tolist() == [1, 0]


def test_the_names_of_the_matchings():
    assert list(MATCHINGS) == ["min-cost", "in-order", "overlap"]
    with pytest.raises(CloveError, match="did you mean 'min-cost'"):
        match([0], [[1.0]], "mincost")


@pytest.mark.parametrize("matching", MATCHINGS)
@pytest.mark.parametrize(
    ("labels", "losses", "message"),
    [
        ([0, 1], [[1.0], [1.0]], "2 clusters cannot each have a model .* 1 models"),
        ([0, 0], [[1.0], [np.nan]], "row 1 holds NaN"),
        ([0, 2], [[1.0, 1.0, 1.0]] * 2, "without gaps"),
        ([-1, -1], [[1.0], [1.0]], "without gaps"),
        ([0], [[1.0], [1.0]], "labels must be one integer for each of the 2 clients"),
        ([0.0, 0.0], [[1.0], [1.0]], "labels must be one integer"),
    ],
)
def test_what_cannot_be_matched_is_refused(matching, labels, losses, message):
    with pytest.raises(ValueError, match=message):
        match(labels, losses, matching)


@pytest.mark.parametrize(
    ("previous", "message"),
    [
        ([0], "previous must be one integer for each of the 2 clients"),
        ([0, 2], "models 0 to 1"),
        ([0, -2], "models 0 to 1"),
    ],
)
def test_impossible_previous_models_are_refused(previous, message):
    with pytest.raises(ValueError, match=message):
        match_by_overlap([0, 1], np.ones((2, 2)), previous)
