from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import clove
from clove.algorithms import Centralized
from clove.data import ClientData, pool_training_data
from clove.errors import CloveError
from clove.federation import Losses, Train

from .scripted import ScriptedClients, everybody, setup, weights
from .simulated import SEEDS, digits

GROUPS = np.array([7, 3, 7, 3, 9])


def made(pool: str = "groups", clients: int = 5) -> Centralized:
    """Make the method as a run does."""
    method = Centralized(setup(clients), pool=pool)
    return replace(method, setup=replace(method.setup, pools=method.pools(GROUPS[:clients])))


# ----------------------------------------------------------------------------------- the pools


def test_every_true_group_is_a_pool_or_there_is_one():
    assert Centralized(setup(5)).pools(GROUPS).tolist() == [1, 0, 1, 0, 2]
    assert Centralized(setup(5), pool="all").pools(None).tolist() == [0] * 5
    with pytest.raises(CloveError, match="true groups are not known: set pool=all"):
        Centralized(setup(5)).pools(None)
    with pytest.raises(CloveError, match="unknown pool 'group': did you mean 'groups'"):
        Centralized(setup(5), pool="group")


@pytest.mark.parametrize("labels", [True, False])
def test_the_first_client_of_a_pool_is_handed_all_its_training_data(labels):
    clients = [
        ClientData(
            train=(np.full((n + 1, 2), n, dtype=float), np.full(n + 1, n) if labels else None),
            test=(np.zeros((1, 2)), np.zeros(1, dtype=int) if labels else None),
            name=str(n),
        )
        for n in range(4)
    ]
    pooled = pool_training_data(clients, np.array([1, 0, 1, 0]))
    assert pooled[0].train[0][:, 0].tolist() == [0, 2, 2, 2]
    assert pooled[1].train[0][:, 0].tolist() == [1, 1, 3, 3, 3, 3]
    if labels:
        assert pooled[1].train[1].tolist() == [1, 1, 3, 3, 3, 3]
    assert [len(client.train[0]) for client in pooled[2:]] == [3, 4]
    assert [client.name for client in pooled] == ["0", "1", "2", "3"]
    assert [len(client.train[0]) for client in clients] == [1, 2, 3, 4]


# ---------------------------------------------------------------------------------- the method


def test_only_those_who_hold_a_pool_train_and_each_pool_has_its_model():
    clients, method = ScriptedClients([1.0, 2.0, 3.0, 4.0, 5.0]), made()
    outcome = clients.play(method.round(method.begin(), np.array([0, 2, 4])), Train)
    assert clients.asked[0].clients.tolist() == [1, 0, 4]
    assert clients.asked[0].start.tolist() == [0, 1, 2]
    assert weights(outcome.state.models) == [2.0, 1.0, 5.0]
    assert outcome.clients.tolist() == [0, 2, 4]
    assert outcome.assignment.tolist() == [1, 1, 2]
    assert method.evaluation(outcome.state, everybody(5)).index.tolist() == [1, 0, 1, 0, 2]


def test_a_pool_whose_holder_does_not_reply_keeps_its_model():
    clients = ScriptedClients([1.0] * 5, missing={Train: [1]})
    method = made()
    state = clients.play(method.round(method.begin(), everybody(5)), Train).state
    assert weights(state.models) == [0.0, 1.0, 1.0]


def test_a_newcomer_gets_the_model_of_least_loss():
    clients, method = ScriptedClients([1.0, 12.0, 19.0, 0.0, 0.0]), made()
    found = clients.play(method.newcomers(method.begin(), everybody(3)), Losses)
    assert found.models.tolist() == [0, 1, 2]


def test_without_the_data_in_one_place_there_is_nothing_to_train_on():
    with pytest.raises(CloveError, match="centralized is no federated method"):
        Centralized(setup(5)).begin()


# ------------------------------------------------------------------------------------- the run


@pytest.mark.parametrize("seed", SEEDS)
def test_one_model_a_group_is_the_upper_reference(seed):
    best = digits("centralized", seed)
    assert best.accuracy >= digits("clove", seed).accuracy
    assert best.accuracy > digits("centralized", seed, pool="all").accuracy
    assert digits("centralized", seed, pool="all").accuracy > digits("fedavg", seed).accuracy + 0.4
    assert best.ari is None
    assert len(best.client_scores) == 25
    assert best.summary()["models"] == 5


def test_a_run_is_resumed_with_its_pools(tmp_path, monkeypatch):
    settings = {"algorithm": "centralized", "rounds": 3, "engine": "vectorized", "device": "cpu"}
    whole = clove.run(**settings, out=tmp_path / "whole")

    def stop(progress):
        if progress.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clove.run(**settings, out=tmp_path / "stopped", watch=stop)
    again = clove.resume(tmp_path / "stopped")
    assert again.summary()["history"] == whole.summary()["history"]
    x, y = whole._progress.prepared.clients.clients[6].test
    assert clove.load(tmp_path / "whole").assign(x, y).model == whole.assignment[6]
