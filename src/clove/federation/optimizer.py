"""The optimisers clients train with, over a stack of clients or a single one.

Torch's own update rules, called as functions on tensors that stay where they are: so a step can be
captured once and replayed, can act on the first rows of a stack only, and begins every round with
what clients kept, or with noughts. (Torch's optimiser classes can do none of these, and the first
one made loads torch's compiler, which takes seconds.)
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
    """Moves tensors along gradients, from `begin` on, of which every round has one.

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
        self._rate: float | Tensor = training.learning_rate
        if training.learning_rate_decay != 1 and self.tensors[0].is_cuda:
            # A captured step reads it from the device, where it can change from round to round.
            self._rate = self.tensors[0].new_tensor(training.learning_rate)

    @property
    def state(self) -> list[Tensor]:
        """All tensors that a step changes beside those it moves."""
        return [t for tensors in (*self._moments, self._steps) for t in tensors]

    @property
    def momentum(self) -> list[Tensor]:
        """What SGD remembers of earlier gradients, a tensor for each that it moves."""
        return self._moments[0]

    def begin(self, round: int, momentum: Sequence[Tensor] | None = None) -> None:
        """Forget everything but this momentum, and take the learning rate of this round."""
        torch._foreach_zero_(self.state)
        if momentum is not None:
            torch._foreach_copy_(self.momentum, list(momentum))
        rate = self.training.rate(round)
        self._rate = self._rate.fill_(rate) if isinstance(self._rate, Tensor) else rate

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rows: int | None = None) -> None:
        """Move the tensors, or their first rows only, along the gradients."""
        tensors, *moments = ([t[:rows] for t in some] for some in (self.tensors, *self._moments))
        gradients = [_laid_out_as(t, g) for t, g in zip(tensors, gradients, strict=True)]
        move = self._sgd if self.training.optimizer == "sgd" else self._adam
        if not isinstance(self._rate, Tensor) or self._rate.dtype == torch.float32:
            move(tensors, gradients, moments, self._rate)
            return
        # Updates read a rate on the device in single precision only. So the whole way is gone, and
        # of that the rate's part, which is the same: steps are as long as the rate says.
        before = [tensor.clone() for tensor in tensors]
        move(tensors, gradients, moments, 1.0)
        for tensor, start in zip(tensors, before, strict=True):
            tensor.copy_(torch.lerp(start, tensor, self._rate))

    def _sgd(
        self,
        tensors: list[Tensor],
        gradients: list[Tensor],
        moments: list[list[Tensor]],
        rate: float | Tensor,
    ) -> None:
        sgd(
            tensors,
            gradients,
            # A buffer of noughts gives in the first step what no buffer would.
            list(moments[0]) if moments else [None] * len(tensors),
            weight_decay=self.training.weight_decay,
            momentum=self.training.momentum,
            lr=rate,  # type: ignore[arg-type]  # of the fused rule it may be a tensor, too
            dampening=0.0,
            nesterov=False,
            maximize=False,
            fused=True,
        )

    def _adam(
        self,
        tensors: list[Tensor],
        gradients: list[Tensor],
        moments: list[list[Tensor]],
        rate: float | Tensor,
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
            lr=rate,
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
