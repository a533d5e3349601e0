"""CLoVE when its grouping has settled, and what newcomers get."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clove.algorithms import Clove
from clove.errors import CloveError, CloveWarning
from clove.federation import Gradients, Losses, Recall, Train

from .scripted import ScriptedClients, everybody, setup, weights

TARGETS = [0.0, 1.0, 2.0, 9.0, 10.0, 11.0]
SIX = everybody(6)
OLD, NEW = np.array([0, 1, 3, 4]), np.array([2, 5])


def method(**options) -> Clove:
    return Clove(setup(6, 2), **{"early_stopping": True, "stable_rounds": 1} | options)


def stopped(clove: Clove, clients: ScriptedClients, cohort=OLD, questions=(Losses, Train)):
    """Return the state after a first round that ended the clustering."""
    state = clients.play(clove.round(clove.begin(), cohort), *questions).state
    assert state.stopped
    return state


# -------------------------------------------------------------------------------- early stopping


@pytest.mark.parametrize("stable_rounds", [1, 2, 4])
def test_after_so_many_stable_rounds_losses_are_asked_no_more(stable_rounds):
    clove, clients = method(stable_rounds=stable_rounds), ScriptedClients(TARGETS)
    state = clove.begin()
    for number in range(1, 7):
        before = number <= stable_rounds
        asking = clove.round(state, SIX)
        outcome = clients.play(asking, *((Losses, Train) if before else (Recall, Train)))
        assert outcome.stable == (number >= stable_rounds)
        assert (outcome.loss_vectors is not None) == before
        assert outcome.assignment.tolist() == [0, 0, 0, 1, 1, 1]
        state = outcome.state


def test_after_stopping_everybody_goes_on_training_its_own_model():
    clove, clients = method(), ScriptedClients(TARGETS)
    state = stopped(clove, clients, SIX)
    clients.targets = clients.targets + 4.0
    outcome = clients.play(clove.round(state, SIX), Recall, Train)
    assert clients.asked[1].start.tolist() == [0, 0, 0, 1, 1, 1]
    assert weights(outcome.state.models) == [5.0, 14.0]
    assert outcome.state.stopped


def test_unless_told_to_stop_it_goes_on_clustering_and_only_tells_of_stability():
    clove, clients = Clove(setup(6, 2)), ScriptedClients(TARGETS)
    state, stable = clove.begin(), []
    for _ in range(5):
        outcome = clients.play(clove.round(state, SIX), Losses, Train)
        state = outcome.state
        stable.append(outcome.stable)
    assert stable == [False, False, True, True, True]
    assert not state.stopped


@pytest.mark.parametrize(("share", "stable"), [(1.0, False), (0.8, True)])
def test_a_share_of_the_participants_may_be_enough(share, stable):
    clove, clients = method(stable_rounds=2, stable_share=share), ScriptedClients(TARGETS)
    clients.memory.note_assignments(SIX, np.array([0, 0, 0, 1, 1, 0]))  # the last one changes
    outcome = clients.play(clove.round(clove.begin(), SIX), Losses, Train)
    assert outcome.stable == outcome.state.stopped == stable


def test_a_random_first_round_is_nothing_to_stop_at():
    clove, clients = method(first_round="random"), ScriptedClients(TARGETS)
    first = clients.play(clove.round(clove.begin(), SIX), Train)
    assert not first.stable
    assert not first.state.stopped
    second = clients.play(clove.round(first.state, SIX), Losses, Train)
    assert second.state.stopped


def test_with_gradient_averaging_clients_tell_of_their_stability_as_well():
    clove, clients = method(averaging="gradients"), ScriptedClients(TARGETS)
    stopped(clove, clients, SIX, (Losses, Gradients))


def test_after_stopping_who_does_not_recall_its_model_sits_out():
    clove, clients = method(), ScriptedClients(TARGETS, missing={Recall: [1, 4]})
    state = stopped(clove, clients, SIX)
    outcome = clients.play(clove.round(state, SIX), Recall, Train)
    assert outcome.clients.tolist() == [0, 2, 3, 5]
    assert outcome.assignment.tolist() == [0, 0, 1, 1]


def test_after_stopping_a_round_in_which_nobody_answers_changes_nothing():
    clove, clients = method(), ScriptedClients(TARGETS)
    state = stopped(clove, clients, SIX)
    clients.missing = {Recall: SIX}
    outcome = clients.play(clove.round(state, SIX), Recall, Train)
    assert outcome.state == replace(state, models=outcome.state.models)
    assert weights(outcome.state.models) == weights(state.models)
    assert outcome.clients.tolist() == []


# ----------------------------------------------------------------- newcomers among participants


@pytest.mark.parametrize("backwards", [False, True])
def test_newcomers_are_placed_by_the_models_and_centroids_saved_at_stability(backwards):
    clove, clients = method(), ScriptedClients(TARGETS, backwards=backwards)
    state = stopped(clove, clients)
    # Meanwhile the models have changed beyond recognition; only the saved ones can tell.
    later = replace(state, models={"weight": state.models["weight"] * 0 - 99.0})
    outcome = clients.play(clove.round(later, SIX), Recall, Losses, Train)
    losses = clients.asked[1]
    assert weights(losses.models) == [0.0, 10.0]  # as the clients' losses were measured
    assert set(losses.clients) == set(NEW)
    placed = dict(zip(outcome.clients.tolist(), outcome.assignment.tolist(), strict=True))
    assert placed == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}


def test_a_newcomer_is_one_of_the_others_from_then_on():
    clove, clients = method(), ScriptedClients(TARGETS)
    state = stopped(clove, clients)
    state = clients.play(clove.round(state, SIX), Recall, Losses, Train).state
    clients.play(clove.round(state, SIX), Recall, Train)


def test_newcomers_go_by_the_transformed_losses_they_were_clustered_on():
    targets = np.array(TARGETS)
    clients = ScriptedClients(targets, losses=(targets[:, None] - [0.0, 10.0]) ** 2 + 5.0)
    clove = method(transform="row")
    state = stopped(clove, clients)
    clients.losses[NEW] += 1000.0  # much harder data of the same two kinds
    outcome = clients.play(clove.round(state, SIX), Recall, Losses, Train)
    assert outcome.assignment.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_newcomer_that_sends_no_losses_waits_for_another_round():
    clove, clients = method(), ScriptedClients(TARGETS)
    state = stopped(clove, clients)
    clients.missing = {Losses: [2]}
    outcome = clients.play(clove.round(state, SIX), Recall, Losses, Train)
    assert outcome.clients.tolist() == [0, 1, 3, 4, 5]
    assert outcome.assignment.tolist() == [0, 0, 1, 1, 1]
    assert "set_aside" not in outcome.notes


def test_a_newcomer_whose_losses_are_not_finite_is_set_aside():
    clove, clients = method(), ScriptedClients(TARGETS)
    state = stopped(clove, clients)
    clients.targets[2] = np.nan
    with pytest.warns(CloveWarning, match="client 2 sent losses that are not finite"):
        outcome = clients.play(clove.round(state, SIX), Recall, Losses, Train)
    assert outcome.clients.tolist() == [0, 1, 3, 4, 5]
    assert outcome.notes == {"set_aside": [2]}


# --------------------------------------------------------------------- newcomers from outside


def test_a_newcomer_from_outside_is_placed_likewise():
    clove, clients = method(early_stopping=False), ScriptedClients(TARGETS)
    state = clients.play(clove.round(clove.begin(), OLD), Losses, Train).state
    found = clients.play(clove.newcomers(state, NEW), Losses)
    assert clients.asked[0].clients is NEW
    assert weights(clients.asked[0].models) == [0.0, 10.0]
    assert found.models.tolist() == [0, 1]
    assert (found.margins > 0.5).all()


def test_models_without_a_group_are_infinitely_far_from_a_newcomer():
    clove = Clove(setup(6), max_models=4)
    clients = ScriptedClients([0.0, 1.0, 2.0, 20.0, 21.0, 22.0])
    state = clients.play(clove.round(clove.begin(), SIX), Losses, Train).state
    found = clients.play(clove.newcomers(state, NEW), Losses)
    assert found.models.tolist() == [0, 2]
    assert np.isinf(found.distances).tolist() == [[False, True, False, True]] * 2


def test_before_anything_is_clustered_a_newcomer_cannot_be_placed():
    clove, clients = method(first_round="random"), ScriptedClients(TARGETS)
    state = clients.play(clove.round(clove.begin(), OLD), Train).state
    with pytest.raises(CloveError, match="nothing has been clustered yet"):
        clients.play(clove.newcomers(state, NEW), Losses)


def test_a_newcomers_losses_must_be_finite():
    clove, clients = method(), ScriptedClients(TARGETS)
    state = stopped(clove, clients)
    clients.targets[2] = np.nan
    with (
        pytest.warns(CloveWarning, match="client 2 "),
        pytest.raises(CloveError, match="a newcomer's losses are not finite: check its data"),
    ):
        clients.play(clove.newcomers(state, NEW), Losses)


def test_newcomers_losses_are_measured_as_those_of_the_others_were():
    clove, clients = method(batch_norm="batch"), ScriptedClients(TARGETS)
    state = stopped(clove, clients)
    clients.play(clove.newcomers(state, NEW), Losses)
    assert clients.asked[0].batch_statistics == clove.setup.training.batch_size
