from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from clove.errors import CloveError
from clove.federation import OPTIMIZERS, Batch, LocalTraining, check_training, task_loss
from clove.federation.learner import NetworkLearner
from clove.federation.optimizer import Optimizer
from clove.tasks import classification, regression


def test_short_last_batches_have_no_weight():
    learner = NetworkLearner(nn.Identity(), regression(nn.Identity))
    outputs = torch.tensor([[1.0], [2.0], [100.0]])
    batch = Batch(outputs, torch.zeros(3, 1), torch.tensor([1.0, 1.0, 0.0]))
    assert learner.loss(outputs, batch) == (1 + 4) / 2


def test_the_network_runs_with_the_parameters_it_is_given():
    learner = NetworkLearner(nn.Linear(1, 1), classification(nn.Identity))
    given = {"weight": torch.tensor([[2.0]]), "bias": torch.tensor([3.0])}
    assert learner.outputs(given, torch.tensor([[5.0]])).tolist() == [[13.0]]
    fixed = NetworkLearner(learner.network, learner.task, {"bias": torch.tensor([-1.0])})
    own = {"weight": torch.tensor([[2.0]])}
    assert fixed.outputs(own, torch.tensor([[5.0]])).tolist() == [[9.0]]


def test_the_plain_objective_is_the_tasks_loss():
    learner = NetworkLearner(nn.Linear(1, 1, bias=False), regression(nn.Identity))
    batch = Batch(torch.tensor([[2.0]]), torch.tensor([[1.0]]), torch.ones(1))
    assert task_loss(learner, {"weight": torch.tensor([[3.0]])}, batch, {}) == 25.0


@pytest.mark.parametrize("use", [check_training, lambda t: Optimizer([torch.zeros(1)], t)])
def test_an_unknown_optimiser_is_refused_with_the_nearest_name(use):
    with pytest.raises(CloveError, match="unknown optimizer 'adma': did you mean 'adam'"):
        use(LocalTraining("adma"))


@pytest.mark.parametrize("name", ["learning_rate", "batch_size", "epochs"])
def test_settings_must_be_above_zero(name):
    with pytest.raises(CloveError, match=f"{name} must be above zero, not 0"):
        check_training(replace(LocalTraining(), **{name: 0}))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_sensible_settings_pass(name):
    check_training(LocalTraining(name))
