"""What a client's functions see of the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from clove.errors import CloveError, unknown_name
from clove.federation.heads import noting_input
from clove.federation.objectives import Batch
from clove.federation.optimizer import OPTIMIZERS
from clove.federation.parameters import Parameters
from clove.federation.precision import networks_in
from clove.federation.questions import LocalTraining
from clove.federation.work import Told
from clove.tasks import Task

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


class NetworkLearner:
    """Runs one network with whatever parameters it is given; `fixed` are those nobody trains."""

    def __init__(
        self,
        network: nn.Module,
        task: Task,
        fixed: Parameters | None = None,
        precision: str = "fp32",
        engine: Simulation | None = None,
        told: Told | None = None,
    ) -> None:
        self.network, self.task, self.fixed = network, task, fixed or {}
        self.precision, self.engine = precision, engine
        self._told = told or Told()

    @property
    def start(self) -> Parameters:
        """The model this client was sent."""
        if not self._told.sent:
            raise CloveError(
                "an objective that looks at learner.start has to say so: give its class "
                "`uses_start = True`"
            )
        return self._told.sent

    @property
    def kept(self) -> Mapping[str, Parameters]:
        """What the client keeps, by name, as far as the question reads it."""
        return self._told.kept

    @property
    def classes(self) -> int:
        """How many classes there are."""
        assert self.engine is not None
        return self.engine.classes

    @property
    def head(self) -> nn.Module:
        """The network's head."""
        assert self.engine is not None
        return self.network.get_submodule(self.engine.head)

    def outputs(self, parameters: Parameters, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Run the network with these parameters."""
        with networks_in(self.precision, x.device):
            result: Tensor = functional_call(self.network, {**self.fixed, **parameters}, (x,))
        return result.float() if self.precision == "bf16" else result

    def features(self, parameters: Parameters, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Run the body of the network: return what its head is given."""
        return self.outputs_and_features(parameters, x, weight)[1]

    def outputs_and_features(
        self, parameters: Parameters, x: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs and features, from one pass."""
        met: list[Tensor] = []
        with noting_input(self.head, met.append):
            outputs = self.outputs(parameters, x, weight)
        return outputs, met[-1].to(outputs.dtype)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the task's loss, averaged over the samples that count."""
        losses = self.task.loss(outputs, batch.y)
        return (losses * batch.weight).sum() / batch.weight.sum()

    def gradient(self, parameters: Parameters, batch: Batch) -> dict[str, Tensor]:
        """Return the gradient of the task's loss, as numbers, and leave no trace in statistics."""
        fixed = {name: tensor.clone() for name, tensor in self.fixed.items()}
        alone = NetworkLearner(self.network, self.task, fixed, self.precision)
        with torch.enable_grad():
            free = {name: p.detach().requires_grad_() for name, p in parameters.items()}
            loss = alone.loss(alone.outputs(free, batch.x), batch)
            return gradients_of(loss, free)


def gradients_of(loss: Tensor, free: Parameters) -> dict[str, Tensor]:
    """Return the gradient of a loss by parameters, zeros for those it does not depend on."""
    found = torch.autograd.grad(
        loss, list(free.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(free, found, strict=True))


def check_training(training: LocalTraining) -> None:
    """Refuse settings no client can train with."""
    if training.optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", training.optimizer, OPTIMIZERS)
    local = {"learning_rate": training.learning_rate, "batch_size": training.batch_size}
    for name, value in (local | {"local_epochs": training.epochs}).items():
        if value <= 0:
            raise CloveError(f"{name} must be above zero, not {value}")
    if not 0 < training.learning_rate_decay <= 1:
        raise CloveError(
            f"learning_rate_decay must be in (0, 1], not {training.learning_rate_decay}"
        )
    if training.keep_momentum and (training.optimizer != "sgd" or not training.momentum):
        raise CloveError(
            "keep_momentum is for SGD with momentum: set optimizer=sgd and a momentum above zero"
        )
