"""The optimisers clients train with, over a stack of clients or a single one.

Torch's own update rules, called as functions on tensors that stay where they are: so a step can be
captured once and replayed, can act on the first rows of a stack only, and starts fresh every round
by setting its state to nought. (Torch's optimiser classes can do none of these, and the first one
made loads torch's compiler, which takes seconds.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from clove.errors import unknown_name
from clove.federation.questions import LocalTraining

OPTIMIZERS = ("adam", "adamw", "sgd")


class Optimizer:
    """Moves tensors along gradients; every round starts with an empty state.

    All rules act on each number by itself, so a stack of clients needs only one optimiser.
    """

    def __init__(self, tensors: Iterable[Tensor], training: LocalTraining) -> None:
        if training.optimizer not in OPTIMIZERS:
            raise unknown_name("optimizer", training.optimizer, OPTIMIZERS)
        self.tensors, self.training = list(tensors), training
        moments = {"adam": 2, "adamw": 2, "sgd": int(training.momentum != 0)}
        count = moments[training.optimizer]
        self._moments = [[torch.zeros_like(t) for t in self.tensors] for _ in range(count)]
        # The number of steps lives on the device, where a captured step can count it up.
        self._steps = [torch.zeros((), device=t.device) for t in self.tensors]

    @property
    def state(self) -> list[Tensor]:
        """All tensors that a step changes beside those it moves."""
        return [t for tensors in (*self._moments, self._steps) for t in tensors]

    def reset(self) -> None:
        """Forget everything, as at the start of a round."""
        torch._foreach_zero_(self.state)

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rows: int | None = None) -> None:
        """Move the tensors, or their first rows only, along the gradients."""
        tensors, *moments = ([t[:rows] for t in some] for some in (self.tensors, *self._moments))
        gradients = [_laid_out_as(t, g) for t, g in zip(tensors, gradients, strict=True)]
        if self.training.optimizer == "sgd":
            self._sgd(tensors, gradients, moments)
        else:
            self._adam(tensors, gradients, moments)

    def _sgd(
        self, tensors: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]]
    ) -> None:
        sgd(
            tensors,
            gradients,
            # A buffer of noughts gives in the first step what no buffer would.
            list(moments[0]) if moments else [None] * len(tensors),
            weight_decay=self.training.weight_decay,
            momentum=self.training.momentum,
            lr=self.training.learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            fused=True,
        )

    def _adam(
        self, tensors: list[Tensor], gradients: list[Tensor], moments: list[list[Tensor]]
    ) -> None:
        adam(
            tensors,
            gradients,
            moments[0],
            moments[1],
            [],
            self._steps,
            beta1=0.9,
            beta2=0.999,
            lr=self.training.learning_rate,
            weight_decay=self.training.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            fused=True,
            capturable=tensors[0].is_cuda,
            decoupled_weight_decay=self.training.optimizer == "adamw",
        )


def _laid_out_as(tensor: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient with the strides of its tensor, which fused updates demand."""
    if gradient.stride() == tensor.stride():
        return gradient
    return torch.empty_like(tensor).copy_(gradient)
