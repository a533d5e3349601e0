"""What is learned: a network, a loss for each sample, and how a prediction is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clove.errors import CloveError, unknown_name
from clove.tasks.models import Shape, build_model, check_model, imported

NetworkFactory = Callable[[], nn.Module]
SampleLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Task:
    """A learning task.

    `network` is a function (or class) that makes the network, or the name of one of the zoo.
    `loss` maps outputs and targets of a batch to one loss per sample. `correct`, where the task has
    right and wrong answers, maps them to 1 or 0 per sample. `target` says what the outputs are
    compared with: the labels `y`, or the sample `x` itself (reconstruction: no labels needed).
    `head` names the layer of the network that methods take as its head, the rest being its body;
    None: the last linear layer.
    """

    name: str
    network: NetworkFactory | str
    loss: SampleLoss
    correct: SampleLoss | None = None
    target: Literal["x", "y"] = "y"
    head: str | None = None

    @property
    def metric(self) -> str:
        """Name of the headline figure: accuracy where answers are right or wrong, else the loss."""
        return "accuracy" if self.correct else "test_loss"

    def for_data(self, inputs: Shape, outputs: int) -> Task:
        """Return this task with a network of the zoo made to measure."""
        if not isinstance(self.network, str):
            return self
        return replace(self, network=partial(build_model, self.network, inputs, outputs))

    def build(self) -> nn.Module:
        """Make a new network, initialised from torch's global generator."""
        if isinstance(self.network, str):
            raise CloveError(f"task {self.name!r} has to be fitted to data first: use for_data")
        try:
            module = self.network()
        except CloveError:
            raise
        except Exception as error:  # a factory of the user's own can fail in any way
            raise CloveError(
                f"the network of task {self.name!r} cannot be made: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(module, nn.Module):
            raise CloveError(
                f"the network factory of task {self.name!r} returned "
                f"{type(module).__name__}, not a torch.nn.Module"
            )
        return module


def _checked(network: object) -> NetworkFactory | str:
    if isinstance(network, nn.Module):
        raise CloveError(
            "pass the class or a function that makes the network, not a network: "
            "several models with different initial parameters are made from it"
        )
    if not isinstance(network, str) and not callable(network):
        raise CloveError(f"a network must be a class, a function or a name, not {network!r}")
    return network


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.numel() != targets.numel():
        raise CloveError(
            f"the network's outputs have shape {tuple(outputs.shape)}, "
            f"its targets {tuple(targets.shape)}: they must hold as many numbers"
        )
    apart = outputs.reshape(len(outputs), -1) - targets.reshape(len(targets), -1)
    return apart.square().mean(1)


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.argmax(1) == targets


def classification(network: NetworkFactory | str = "mlp") -> Task:
    """Predict labels: cross-entropy, judged by accuracy. The network gives one logit a class."""
    return Task("classification", _checked(network), _cross_entropy, _right)


def regression(network: NetworkFactory | str = "linear") -> Task:
    """Predict numbers: squared error."""
    return Task("regression", _checked(network), _squared_error)


def reconstruction(network: NetworkFactory | str = "autoencoder") -> Task:
    """Predict the sample itself, without labels: squared error of the reconstruction."""
    return Task("reconstruction", _checked(network), _squared_error, target="x")


TASKS: dict[str, tuple[Callable[[NetworkFactory | str], Task], str]] = {
    "classification": (classification, "mlp"),
    "regression": (regression, "linear"),
    "reconstruction": (reconstruction, "autoencoder"),
}


def named_task(kind: str, model: str = "auto", loss: str = "auto") -> Task:
    """Return the task of that name with a model of the zoo; `auto` is the kind's usual one.

    Both the model and the loss may also be one's own, as `package.module:name`.
    """
    if kind not in TASKS:
        raise unknown_name("task", kind, TASKS)
    make, usual = TASKS[kind]
    check_model(model)
    task = make(usual if model == "auto" else model)
    return task if loss == "auto" else replace(task, loss=imported(loss))


def initial_parameters(task: Task, seed: int) -> dict[str, Tensor]:
    """Return the parameters and buffers of a network made from a seed.

    Always made on the CPU, so that a seed means the same network on every device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = task.build()
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
