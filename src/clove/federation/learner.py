"""What objectives see of the network, and how its optimiser is made: shared by the engines."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from clove.errors import CloveError, unknown_name
from clove.federation.parameters import Parameters
from clove.federation.questions import Batch, LocalTraining
from clove.tasks import Task

OPTIMIZERS = ("adam", "adamw", "sgd")


class NetworkLearner:
    """Runs one network with whatever parameters it is given; `fixed` are those nobody trains."""

    def __init__(self, network: nn.Module, task: Task, fixed: Parameters | None = None) -> None:
        self.network, self.task, self.fixed = network, task, fixed or {}

    def outputs(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Run the network with these parameters."""
        result: Tensor = functional_call(self.network, {**self.fixed, **parameters}, (x,))
        return result

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the task's loss, averaged over the samples that count."""
        losses = self.task.loss(outputs, batch.y)
        return (losses * batch.weight).sum() / batch.weight.sum()


def make_optimizer(tensors: Iterable[Tensor], training: LocalTraining) -> torch.optim.Optimizer:
    """Make the optimiser of a client's training; every round starts a fresh one.

    All of these act on each number by itself, so a stack of clients needs only one.
    """
    tensors = list(tensors)
    rate, decay = training.learning_rate, training.weight_decay
    if training.optimizer == "adam":
        return torch.optim.Adam(tensors, lr=rate, weight_decay=decay)
    if training.optimizer == "adamw":
        return torch.optim.AdamW(tensors, lr=rate, weight_decay=decay)
    if training.optimizer == "sgd":
        return torch.optim.SGD(tensors, lr=rate, momentum=training.momentum, weight_decay=decay)
    raise unknown_name("optimizer", training.optimizer, OPTIMIZERS)


def check_training(training: LocalTraining) -> None:
    """Refuse settings no client can train with."""
    if training.optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", training.optimizer, OPTIMIZERS)
    local = {"learning_rate": training.learning_rate, "batch_size": training.batch_size}
    for name, value in (local | {"local_epochs": training.epochs}).items():
        if value <= 0:
            raise CloveError(f"{name} must be above zero, not {value}")
