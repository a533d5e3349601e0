"""The two references: one model for all, and every client for itself."""

from __future__ import annotations

import numpy as np
import pytest

from clove.algorithms import FedAvg, Local
from clove.errors import CloveError
from clove.federation import Evaluate, Gradients, Kept, Train

from .scripted import SAME, ScriptedClients, everybody, setup, weights

THREE = everybody(3)


def fedavg_round(clients, *expected, **options):
    fedavg = FedAvg(setup(3, 2), **options)
    return clients.play(fedavg.round(fedavg.begin(), THREE), *expected)


# -------------------------------------------------------------------------------------- FedAvg


def test_fedavg_asks_everybody_to_train_the_one_model_and_nothing_else():
    clients = ScriptedClients([1.0, 2.0, 6.0], samples=[1, 1, 2])
    outcome = fedavg_round(clients, Train)
    assert weights(clients.asked[0].models) == [SAME]
    assert clients.asked[0].start.tolist() == clients.asked[0].reduce.tolist() == [0, 0, 0]
    assert not clients.asked[0].assigns
    assert weights(outcome.state.models) == [15 / 4]
    assert outcome.assignment.tolist() == [0, 0, 0]
    assert not outcome.stable


def test_fedavg_averages_over_those_who_reply():
    outcome = fedavg_round(ScriptedClients([1.0, 2.0, 6.0], missing={Train: [2]}), Train)
    assert outcome.clients.tolist() == [0, 1]
    assert weights(outcome.state.models) == [1.5]


def test_fedavg_may_average_gradients():
    outcome = fedavg_round(ScriptedClients([1.0, 2.0, 6.0]), Gradients, averaging="gradients")
    assert weights(outcome.state.models) == [SAME - 0.5 * (SAME - 3.0)]


def test_fedavg_judges_everybody_by_the_one_model_and_gives_it_to_newcomers():
    fedavg = FedAvg(setup(3))
    state = fedavg.begin()
    assert fedavg.evaluation(state, THREE).index.tolist() == [0, 0, 0]
    assert fedavg.server_models(state) is state.models
    found = ScriptedClients([1.0] * 3).play(fedavg.newcomers(state, THREE))
    assert found.models.tolist() == [0, 0, 0]
    assert found.margins.tolist() == [1, 1, 1]


def test_fedavg_refuses_an_unknown_way_to_average():
    with pytest.raises(CloveError, match="did you mean 'gradients'"):
        FedAvg(setup(3), averaging="gradient")


# --------------------------------------------------------------------------------------- Local


def test_local_models_stay_with_their_clients():
    local, clients = Local(setup(3)), ScriptedClients([1.0, 2.0, 6.0])
    state, cohort = local.begin(), np.array([0, 2])
    outcome = clients.play(local.round(state, cohort), Train)
    train = clients.asked[0]
    assert isinstance(train.models, Kept)
    assert train.keep == train.models.name
    assert train.reduce is None
    assert outcome.clients.tolist() == outcome.assignment.tolist() == [0, 2]
    assert local.server_models(outcome.state) is None
    assert local.evaluation(outcome.state, THREE) == Evaluate(train.models, THREE)


def test_local_clients_all_start_from_the_same_seed_and_other_runs_from_others():
    def seed_of(run):
        clients, local = ScriptedClients([1.0] * 3), Local(setup(3, seed=run))
        clients.play(local.round(local.begin(), THREE), Train)
        return clients.asked[0].models.otherwise

    assert seed_of(0) == seed_of(0) != seed_of(1)


def test_local_has_nothing_for_newcomers():
    local = Local(setup(3))
    with pytest.raises(CloveError, match="local has no model to give to a newcomer"):
        ScriptedClients([1.0]).play(local.newcomers(local.begin(), THREE))
