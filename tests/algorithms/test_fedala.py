from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import clove
from clove.algorithms import FedAla, FedAvg
from clove.algorithms.fedala import (
    WEIGHTS,
    FedAlaState,
    between_0_and_1,
    blended_loss,
    blended_start,
    top_layers,
)
from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Batch, Filled, Kept, LocalTraining, Sequential, Vectorized
from clove.federation.learner import NetworkLearner
from clove.federation.work import Told
from clove.runs.loop import drive
from clove.tasks import regression
from tests.federation.worlds import models_for, some_clients, world

from .scripted import TRAINING, everybody, setup
from .simulated import SEEDS, digits

plane = regression(lambda: nn.Linear(2, 1, bias=False))
X, Y = np.array([[1.0, 2.0]]), np.array([[3.0]])


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


# ------------------------------------------------------------- one update of the weights, by hand


def test_the_weights_descend_the_loss_of_the_blend_and_are_clipped():
    sent, own, weights = row(2.0, -1.0), row(0.0, 1.0), row(0.5, 0.9).requires_grad_()
    told = Told(sent={"weight": sent}, kept={"model": {"weight": own}})
    learner = NetworkLearner(nn.Linear(2, 1, bias=False).double(), plane, told=told)
    batch = Batch(torch.tensor(X), torch.tensor(Y), torch.ones(1).double())
    # The blend is (0, 1) + (2, -2) (0.5, 0.9) = (1, -0.8): it says 1 - 1.6 of (1, 2), which is 3.6
    # too little. By the blend the gradient is 2 · -3.6 · (1, 2); by the weights, times (2, -2).
    value = blended_loss(learner, {"weight": weights}, batch, {})
    assert value.item() == pytest.approx(3.6**2)
    value.backward()
    np.testing.assert_allclose(weights.grad, [[-14.4, 28.8]])
    moved = between_0_and_1({"weight": weights.detach() - 0.02 * weights.grad})
    np.testing.assert_allclose(moved["weight"], [[0.5 + 0.288, 0.9 - 0.576]])
    clipped = between_0_and_1({"weight": weights.detach() - weights.grad})
    np.testing.assert_allclose(clipped["weight"], [[1, 0]])


def test_training_starts_from_the_blend_above_and_from_the_model_sent_below():
    sent = {"low": row(5.0, 5.0), "high": row(2.0, -1.0)}
    own = {"low": row(0.0, 0.0), "high": row(0.0, 1.0)}
    start = blended_start(sent, {"model": own, WEIGHTS: {"high": row(0.25, 1.0)}})
    assert start["low"].tolist() == [[5, 5]]
    assert start["high"].tolist() == [[0.5, -1]]


@pytest.mark.parametrize("engine_type", [Sequential, Vectorized])
def test_two_rounds_on_one_point_follow_the_steps_by_hand(engine_type):
    """One client, one sample, plain steps: every number of two rounds by hand."""
    client = ClientData(train=(X, Y), test=(X, Y))
    engine = engine_type([client], plane, dtype=torch.float64)
    rate, eta = 0.01, 0.05
    training = LocalTraining("sgd", rate, batch_size=1)
    options = {"weight_learning_rate": eta, "settle_window": 2, "settle_threshold": 1e9}
    method = FedAla(replace(setup(1), training=training), **options)
    x, y = X[0], Y[0, 0]
    first = np.array([2.0, -1.0])

    def step(w):
        return w - rate * 2 * (w @ x - y) * x

    own = step(first)  # the first round starts from the model sent
    elsewhere = np.array([0.5, 0.5])  # what the server has by the second round
    weights = np.ones(2)
    for _ in range(2):  # so many passes, and the losses have settled
        blend = own + (elsewhere - own) * weights
        slope = 2 * (blend @ x - y) * x * (elsewhere - own)
        weights = np.clip(weights - eta * slope, 0, 1)
    second = step(own + (elsewhere - own) * weights)
    assert ((weights > 0) & (weights < 1)).any()

    def play(number, state):
        engine.begin_round(number)
        return drive(method.round(state, np.array([0])), engine.answer).state

    state = play(1, FedAlaState({"weight": torch.tensor(first)[None, None]}))
    np.testing.assert_allclose(state.models["weight"][0, 0], own)
    state = play(2, replace(state, models={"weight": torch.tensor(elsewhere)[None, None]}))
    only = np.array([0])
    np.testing.assert_allclose(engine.memory.kept(WEIGHTS, only)["weight"][0, 0], weights)
    np.testing.assert_allclose(engine.memory.kept("model", only)["weight"][0, 0], second)
    np.testing.assert_allclose(state.models["weight"][0, 0], second)


# ----------------------------------------------------------------------------------- the method


def asked_in_rounds(method, engine, cohorts):
    """Play rounds with these cohorts; return the questions of each, and the last state."""
    state = replace(FedAlaState({}), models=models_for(engine, 1))
    asked = []
    for number, cohort in enumerate(cohorts, 1):
        engine.begin_round(number)
        asked.append([])

        def answer(question, asked=asked):
            asked[-1].append(question)
            return engine.answer(question)

        state = drive(method.round(state, np.array(cohort)), answer).state
    return asked, state


def test_only_clients_with_a_model_learn_weights_and_only_new_ones_until_they_settle():
    task, _ = world("mlp")
    engine = Vectorized(some_clients(), task)
    cohorts = [[0, 1], [1, 2], [1], [0, 1]]
    method = FedAla(setup(5), settle_window=3, settle_threshold=0.2, weight_share=0.7)
    asked, state = asked_in_rounds(method, engine, cohorts)
    assert [len(questions) for questions in asked] == [1, 2, 2, 2]
    weighing = [questions[0] for questions in asked[1:]]
    assert [question.clients.tolist() for question in weighing] == [[1], [1], [0, 1]]
    assert [question.settle is None for question in weighing] == [False, True, False]
    assert (weighing[0].settle.window, weighing[0].settle.threshold) == (3, 0.2)
    for question in weighing:
        assert question.trains == Kept(WEIGHTS, Filled(1.0, ("3.weight", "3.bias")))
        assert (question.share, question.share_anew) == (0.7, True)
        assert question.training.optimizer == "sgd"
        assert question.training.learning_rate == 1.0
        assert question.training.batch_size == TRAINING.batch_size
    assert state.trained.tolist() == [0, 1, 2]
    assert state.weighed.tolist() == [0, 1]


def test_weights_between_0_and_1_come_to_differ():
    weights = digits("fedala")._progress.prepared.federation.memory.kept(WEIGHTS, everybody(25))
    assert sorted(weights) == ["3.bias", "3.weight"]
    for tensor in weights.values():
        assert tensor.min() == 0
        assert 0.5 < tensor.max() <= 1
    assert len(weights["3.weight"].unique()) > 100


def test_layers_are_counted_from_the_top():
    model = {name: row(0.0) for name in ("a.weight", "a.bias", "b.0.weight", "b.1.weight", "c")}
    assert top_layers(model, 1) == ("c",)
    assert top_layers(model, 2) == ("b.1.weight", "c")
    assert top_layers(model, 4) == top_layers(model, 0) == tuple(model)
    with pytest.raises(CloveError, match="layers=5, but the network has 4"):
        top_layers(model, 5)


def test_the_first_round_is_that_of_fedavg():
    engines = [Sequential(some_clients(), world("mlp")[0]) for _ in range(2)]
    found = []
    for engine, method in zip(engines, (FedAla(setup(5)), FedAvg(setup(5))), strict=True):
        engine.begin_round(1)
        state = method.state_type(models_for(engine, 1))
        found.append(drive(method.round(state, everybody(5)), engine.answer).state.models)
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name])


def test_clients_are_measured_as_trained_or_as_they_would_start():
    trained = FedAla(setup(3))
    state = FedAlaState({"weight": row(1.0)[None]})
    assert trained.evaluation(state, everybody(3)).models == Kept("model")
    question = FedAla(setup(3), measured="blended").evaluation(state, everybody(3))
    assert question.models is state.models
    assert question.prepare is blended_start
    assert question.index.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": -1}, "layers must be 0"),
        ({"weight_share": 0.0}, r"weight_share must be in \(0, 1\]"),
        ({"weight_share": 80.0}, r"weight_share must be in \(0, 1\]"),
        ({"weight_learning_rate": 0.0}, "weight_learning_rate must be above zero"),
        ({"settle_threshold": -1.0}, "settle_threshold must be above zero"),
        ({"settle_window": 1}, "settle_window must be 2 or more"),
        ({"measured": "blend"}, "unknown measured 'blend': did you mean 'blended'"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        FedAla(setup(3), **options)


def test_more_layers_than_there_are_is_said_before_any_round():
    with pytest.raises(CloveError, match=r"layers=3, but the network has 2: 1, 3"):
        clove.run(dataset="digits", algorithm="fedala", layers=3, rounds=1)


def test_it_needs_no_labels():
    result = clove.run(dataset="digits", task="reconstruction", algorithm="fedala", rounds=3)
    losses = result.history["test_loss"]
    assert losses.iloc[-1] < losses.iloc[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_on_clients_of_two_classes_each_it_does_far_better_than_one_model(seed):
    assert digits("fedala", seed).accuracy > digits("fedavg", seed).accuracy + 0.3
