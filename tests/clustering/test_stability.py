from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.clustering import AssignmentHistory, stability_reached

from .groups import relaxed


def history(*models: int) -> AssignmentHistory:
    kept = AssignmentHistory()
    for model in models:
        kept = kept.add(model)
    return kept


def test_a_client_never_assigned_has_no_model_and_is_not_stable():
    assert history().last == -1
    assert not history().stable_for(1)


def test_the_last_model_is_the_latest():
    assert history(4, 2).last == 2


def test_as_many_equal_assignments_as_asked_for_are_stable():
    assert history(1, 2, 2, 2).stable_for(3)
    assert not history(1, 2, 2, 2).stable_for(4)
    assert not history(2, 2).stable_for(3)


def test_leaving_a_model_and_coming_back_is_not_stable():
    assert not history(1, 2, 1).stable_for(3)


@relaxed
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 6))
def test_stable_for_some_rounds_is_stable_for_fewer(models, rounds):
    kept = history(*models)
    assert kept.models == tuple(models)
    if kept.stable_for(rounds):
        assert all(kept.stable_for(fewer) for fewer in range(1, rounds))


def test_adding_leaves_the_history_before_as_it_was():
    before = history(1)
    before.add(2)
    assert before == AssignmentHistory((1,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.models = (2,)


def test_no_rounds_at_all_cannot_be_asked_for():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        history(1, 1).stable_for(0)


def test_all_must_be_stable_unless_a_share_is_enough():
    reports = np.array([True, True, True, False])
    assert stability_reached(np.ones(4, dtype=bool))
    assert not stability_reached(reports)
    assert stability_reached(reports, share=0.75)
    assert not stability_reached(reports, share=0.76)


@relaxed
@given(st.integers(1, 200), st.data())
def test_exactly_the_share_asked_for_is_enough(participants, data):
    stable = data.draw(st.integers(1, participants))
    reports = np.arange(participants) < stable
    assert stability_reached(reports, share=stable / participants)
    assert stability_reached(reports, share=round(stable / participants, 2) - 0.005)
    assert not stability_reached(reports[1:], share=stable / participants) or stable == participants


def test_no_participants_are_no_evidence_of_stability():
    assert not stability_reached([])
    assert not stability_reached([], share=0.1)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_outside_nought_to_one_is_refused(share):
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        stability_reached([True], share=share)
