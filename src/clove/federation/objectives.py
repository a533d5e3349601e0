"""What a client can be told to do with its data: functions of one client, known by name.

All are pure functions, written for one client. The vectorized engine maps them over its stack of
clients, so they must not branch on numbers. Each kind has a registry (`registry.py`), whose
decorator gives a function its name:

- an *objective* is what local training minimises;
- a *projection* is applied to the parameters after every step;
- a *preparation* makes the start of training of what was sent and what the client keeps;
- a *prediction* takes the place of the network's outputs in an evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clove.federation.parameters import Parameters
from clove.federation.registry import Registry


@dataclass(frozen=True)
class Batch:
    """Samples of one step. `weight` is 1 for a sample and 0 for padding."""

    x: Tensor
    y: Tensor
    weight: Tensor


class Learner(Protocol):
    """What a client's functions may use: the network, the task's loss, what the client has."""

    @property
    def start(self) -> Parameters:
        """The model this client was sent; for objectives that say `uses_start = True`."""
        ...

    @property
    def kept(self) -> Mapping[str, Parameters]:
        """What the client keeps, by name, as far as the question `reads` it."""
        ...

    @property
    def classes(self) -> int:
        """How many classes there are; an error where the task has none."""
        ...

    def outputs(self, parameters: Parameters, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Run the network with these parameters.

        `weight` says which samples count in batch statistics; without it, those of the batch.
        """
        ...

    def features(self, parameters: Parameters, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Run the body of the network: return what its head is given."""
        ...

    def outputs_and_features(
        self, parameters: Parameters, x: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return both, from one pass."""
        ...

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the task's loss, averaged over the samples that count."""
        ...

    def gradient(self, parameters: Parameters, batch: Batch) -> dict[str, Tensor]:
        """Return the gradient of the task's loss, as numbers: nothing is differentiated through."""
        ...


class Objective(Protocol):
    """A local objective: a pure function of parameters, a batch, and what the server sent.

    A class may say two things of itself. `uses_start = True`: it looks at `learner.start`.
    `parts = n`: it cuts every batch into so many (see `cut`), so a batch needs that many samples.
    """

    def __call__(
        self, learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the scalar to be minimised."""
        ...


class Projection(Protocol):
    """What happens to the trained parameters after every step."""

    def __call__(self, parameters: Parameters) -> Parameters:
        """Return the parameters, moved to where they may be."""
        ...


class Preparation(Protocol):
    """What a client makes of the model it was sent before it trains or measures it."""

    def __call__(self, sent: Parameters, kept: Mapping[str, Parameters]) -> Parameters:
        """Return the model to start from; `kept` is what the client has, by name."""
        ...


class Prediction(Protocol):
    """How a client predicts, where it is not by the outputs of its network."""

    def __call__(
        self, learner: Learner, parameters: Parameters, x: Tensor, extras: Mapping[str, Tensor]
    ) -> Tensor:
        """Return outputs, which the task's loss and metric then judge."""
        ...


objective: Registry[Objective] = Registry("objective")
projection: Registry[Projection] = Registry("projection")
preparation: Registry[Preparation] = Registry("preparation")
prediction: Registry[Prediction] = Registry("prediction")


@objective("task-loss")
def task_loss(
    learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
) -> Tensor:
    """Return the plain objective: the task's loss on the batch."""
    return learner.loss(learner.outputs(parameters, batch.x, batch.weight), batch)


def cut(batch: Batch, parts: int) -> list[Batch]:
    """Cut a batch into parts, its samples dealt out in turn; for objectives with `parts`.

    Where a client has fewer samples than parts, the last parts hold its first sample.
    """
    whole = (batch.x, batch.y, batch.weight)
    dealt = [[tensor[place::parts] for tensor in whole] for place in range(parts)]
    first = dealt[0]
    return [Batch(*_filled(part, first)) if len(part[0]) else Batch(*first) for part in dealt]


def _filled(part: list[Tensor], first: list[Tensor]) -> list[Tensor]:
    """Put the first sample in place of a part's own first where that is padding.

    Padding comes last in a batch, so no sample of such a part counts.
    """
    empty = part[2][:1] == 0

    def one(old: Tensor, new: Tensor) -> Tensor:
        instead = torch.where(empty.view(-1, *[1] * (old.dim() - 1)), new[:1], old[:1])
        return torch.cat([instead, old[1:]])

    return [one(old, new) for old, new in zip(part, first, strict=True)]
