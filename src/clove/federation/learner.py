"""What objectives see of the network."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call

from clove.errors import CloveError, unknown_name
from clove.federation.optimizer import OPTIMIZERS
from clove.federation.parameters import Parameters
from clove.federation.precision import networks_in
from clove.federation.questions import Batch, LocalTraining
from clove.tasks import Task


class NetworkLearner:
    """Runs one network with whatever parameters it is given; `fixed` are those nobody trains."""

    def __init__(
        self,
        network: nn.Module,
        task: Task,
        fixed: Parameters | None = None,
        precision: str = "fp32",
    ) -> None:
        self.network, self.task, self.fixed = network, task, fixed or {}
        self.precision = precision

    def outputs(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Run the network with these parameters."""
        with networks_in(self.precision, x.device):
            result: Tensor = functional_call(self.network, {**self.fixed, **parameters}, (x,))
        return result.float() if self.precision == "bf16" else result

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the task's loss, averaged over the samples that count."""
        losses = self.task.loss(outputs, batch.y)
        return (losses * batch.weight).sum() / batch.weight.sum()


def check_training(training: LocalTraining) -> None:
    """Refuse settings no client can train with."""
    if training.optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", training.optimizer, OPTIMIZERS)
    local = {"learning_rate": training.learning_rate, "batch_size": training.batch_size}
    for name, value in (local | {"local_epochs": training.epochs}).items():
        if value <= 0:
            raise CloveError(f"{name} must be above zero, not {value}")
