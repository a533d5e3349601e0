from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clove.algorithms import Ifca
from clove.errors import CloveError, CloveWarning
from clove.federation import Evaluate, Gradients, Losses, Train

from .scripted import TRAINING, ScriptedClients, everybody, relaxed, setup, weights

TARGETS = [0.0, 1.0, 2.0, 9.0, 10.0, 11.0]
SIX = everybody(6)


def first_round(clients, *expected, groups=2, **options):
    ifca = Ifca(setup(len(clients.targets), groups), **options)
    asking = ifca.round(ifca.begin(), everybody(len(clients.targets)))
    return clients.play(asking, *(expected or (Losses, Train)))


@relaxed
@given(arrays(float, (6, 3), elements=st.floats(0, 100)))
def test_everybody_trains_the_model_on_which_it_loses_least(losses):
    clients = ScriptedClients(TARGETS, losses=losses)
    outcome = first_round(clients, groups=3)
    asked, train = clients.asked
    assert asked.models is train.models
    assert asked.batch_statistics == 0
    assert train.start.tolist() == train.reduce.tolist() == losses.argmin(axis=1).tolist()
    assert train.assigns
    assert outcome.assignment.tolist() == train.start.tolist()
    assert outcome.notes == {"clusters": len(set(train.start.tolist()))}
    assert outcome.loss_vectors.losses.tolist() == losses.tolist()


def test_of_models_equally_good_the_first_is_taken():
    outcome = first_round(ScriptedClients([5.0]), groups=2)  # 25 from both
    assert outcome.assignment.tolist() == [0]


def test_different_groups_may_share_a_model_and_the_other_stays():
    outcome = first_round(ScriptedClients([0.0, 0.0, 4.0, 4.0]))
    assert outcome.assignment.tolist() == [0, 0, 0, 0]
    assert weights(outcome.state.models) == [2.0, 10.0]


def test_a_random_first_round_asks_no_losses_and_is_over_with_the_first():
    ifca, clients = Ifca(setup(6, 3), first_round="random"), ScriptedClients(TARGETS)
    first = clients.play(ifca.round(ifca.begin(), SIX), Train)
    assert set(first.assignment) == {0, 1, 2}
    assert first.loss_vectors is None
    clients.play(ifca.round(first.state, SIX), Losses, Train)


@pytest.mark.parametrize("stable_rounds", [1, 2, 3])
def test_stability_is_told_but_the_losses_are_asked_all_the_same(stable_rounds):
    ifca, clients = Ifca(setup(6, 2), stable_rounds=stable_rounds), ScriptedClients(TARGETS)
    state, stable = ifca.begin(), []
    for _ in range(4):
        outcome = clients.play(ifca.round(state, SIX), Losses, Train)
        state = outcome.state
        stable.append(outcome.stable)
    assert stable == [number >= stable_rounds for number in (1, 2, 3, 4)]
    assert state.round == 4


def test_gradients_may_be_averaged_instead():
    outcome = first_round(ScriptedClients(TARGETS), Losses, Gradients, averaging="gradients")
    assert weights(outcome.state.models) == [0.5, 10.0]


@pytest.mark.parametrize("backwards", [False, True])
def test_who_does_not_reply_does_not_count(backwards):
    missing = {Losses: [0], Train: [5]}
    clients = ScriptedClients(TARGETS, missing=missing, backwards=backwards)
    outcome = first_round(clients)
    placed = dict(zip(outcome.clients.tolist(), outcome.assignment.tolist(), strict=True))
    assert placed == {1: 0, 2: 0, 3: 1, 4: 1}
    assert weights(outcome.state.models) == [1.5, 9.5]


def test_a_round_in_which_nobody_answers_leaves_the_models_as_they_were():
    outcome = first_round(ScriptedClients(TARGETS, missing={Losses: SIX}))
    assert weights(outcome.state.models) == [0.0, 10.0]
    assert outcome.clients.tolist() == []
    assert not outcome.stable


def test_a_client_whose_losses_are_not_finite_sits_the_round_out():
    clients = ScriptedClients([*TARGETS[:5], np.nan])
    with pytest.warns(CloveWarning, match="client 5 "):
        outcome = first_round(clients)
    assert outcome.notes["set_aside"] == [5]
    assert outcome.clients.tolist() == [0, 1, 2, 3, 4]


def test_everybody_is_judged_by_the_model_it_picked_last():
    ifca = Ifca(setup(6, 2))
    state = ifca.begin()
    assert ifca.evaluation(state, SIX) == Evaluate(state.models, SIX, index=None)
    assert ifca.server_models(state) is state.models


def test_a_newcomer_picks_the_model_of_least_loss_among_the_current_ones():
    ifca, clients = Ifca(setup(6, 2), batch_norm="batch"), ScriptedClients(TARGETS)
    state = clients.play(ifca.round(ifca.begin(), SIX), Losses, Train).state
    found = clients.play(ifca.newcomers(state, np.array([5, 0])), Losses)
    assert clients.asked[0].models is state.models
    assert clients.asked[0].batch_statistics == TRAINING.batch_size
    assert found.models.tolist() == [1, 0]


def test_a_newcomers_losses_must_be_finite():
    ifca, clients = Ifca(setup(1, 2)), ScriptedClients([np.nan])
    with pytest.warns(CloveWarning), pytest.raises(CloveError, match="check its data"):
        clients.play(ifca.newcomers(ifca.begin(), everybody(1)), Losses)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_round": "rando"}, "unknown first_round 'rando': did you mean 'random'"),
        ({"batch_norm": "batches"}, "unknown batch_norm 'batches': did you mean 'batch'"),
        ({"averaging": "modle"}, "unknown averaging 'modle': did you mean 'models'"),
        ({"stable_rounds": 0}, "stable_rounds must be 1 or more"),
        ({"stable_share": 0.0}, r"stable_share in \(0, 1\]"),
        ({"stable_share": 2.0}, r"stable_share in \(0, 1\]"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        Ifca(setup(6, 2), **options)


def test_without_a_number_of_models_the_error_says_what_to_set():
    with pytest.raises(CloveError, match=r"ifca needs the number of models.*Set models=K"):
        Ifca(setup(6)).begin()
