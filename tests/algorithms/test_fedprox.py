from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from clove.algorithms import FedAvg, FedProx
from clove.algorithms.fedprox import Proximal
from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Batch, LocalTraining, Sequential, Train
from clove.federation.learner import NetworkLearner
from clove.federation.work import Told
from clove.runs.loop import drive
from clove.tasks import regression
from tests.federation.worlds import models_for

from .scripted import SAME, ScriptedClients, everybody, setup, weights
from .simulated import SEEDS, digits

THREE = everybody(3)
slope = regression(lambda: nn.Linear(1, 1, bias=False))


# ------------------------------------------------------------------------------ the local step


def test_the_proximal_term_is_half_mu_times_the_squared_distance_to_the_start():
    start, w = torch.tensor([[1.0]]), torch.tensor([[3.0]], requires_grad=True)
    learner = NetworkLearner(nn.Linear(1, 1, bias=False), slope, told=Told(sent={"weight": start}))
    batch = Batch(torch.tensor([[2.0]]), torch.tensor([[1.0]]), torch.ones(1))
    value = Proximal(0.5)(learner, {"weight": w}, batch, {})
    assert value == (3 * 2 - 1) ** 2 + 0.5 / 2 * (3 - 1) ** 2
    value.backward()
    assert w.grad == 2 * 5 * 2 + 0.5 * (3 - 1)


def test_local_steps_on_one_point_follow_the_recursion_by_hand():
    mu, rate, x, y = 0.4, 0.05, 2.0, 3.0
    client = ClientData(train=([[x]], [[y]]), test=([[x]], [[y]]))
    engine = Sequential([client], slope, dtype=torch.float64)
    models = models_for(engine, 1)
    start = w = models["weight"].item()
    for _ in range(4):
        w -= rate * (2 * x * (x * w - y) + mu * (w - start))
    training = LocalTraining("sgd", rate, batch_size=1, epochs=4)
    only = np.array([0])
    trained = engine.answer(Train(models, only, only, training, Proximal(mu)))
    assert trained.models["weight"].item() == pytest.approx(w, rel=1e-12)


# ------------------------------------------------------------------------------------ the server


def test_the_server_asks_as_fedavg_does_but_for_the_objective():
    clients = ScriptedClients([1.0, 2.0, 6.0], samples=[1, 1, 2])
    fedprox = FedProx(setup(3), mu=0.2)
    outcome = clients.play(fedprox.round(fedprox.begin(), THREE), Train)
    question = clients.asked[0]
    assert question.objective == Proximal(0.2)
    assert question.extras is None
    assert weights(question.models) == [SAME]
    assert weights(outcome.state.models) == [15 / 4]
    assert outcome.assignment.tolist() == [0, 0, 0]


def test_without_the_term_it_is_fedavg():
    engines = [Sequential(_clients(), slope, dtype=torch.float64) for _ in range(2)]
    models = []
    for engine, method in zip(engines, (FedProx(setup(4), mu=0.0), FedAvg(setup(4))), strict=True):
        engine.begin_round(1)
        state = type(method.begin())(models_for(engine, 1))
        models.append(drive(method.round(state, np.arange(4)), engine.answer).state.models)
    assert torch.equal(models[0]["weight"], models[1]["weight"])


def test_a_stronger_term_keeps_clients_nearer_to_their_start():
    moved = []
    for mu in (0.0, 0.1, 1.0, 10.0):
        engine = Sequential(_clients(), slope, dtype=torch.float64)
        models, cohort = models_for(engine, 1), np.arange(4)
        training = LocalTraining("sgd", 0.02, batch_size=4, epochs=5)
        found = engine.answer(Train(models, cohort * 0, cohort, training, Proximal(mu))).models
        moved.append((found["weight"] - models["weight"]).abs().sum().item())
    assert moved == sorted(moved, reverse=True)
    assert len(set(moved)) == 4


def _clients() -> list[ClientData]:
    draw = np.random.default_rng(0)
    made = []
    for steepness in (1.0, 2.0, -3.0, 4.0):
        x = draw.normal(size=(10, 1))
        made.append(ClientData(train=(x, steepness * x), test=(x, steepness * x)))
    return made


def test_a_negative_strength_is_refused():
    for wrong in (-0.1, float("nan")):
        with pytest.raises(CloveError, match="mu must not be negative"):
            FedProx(setup(3), mu=wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_on_clients_of_two_classes_each_it_learns_faster_than_fedavg(seed):
    assert digits("fedprox", seed).accuracy > digits("fedavg", seed).accuracy + 0.05
