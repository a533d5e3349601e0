"""Batch normalisation for stacked clients: statistics over real samples only.

Where clients are a batch dimension, short batches are padded. Padding must not enter the mean and
variance, and running statistics cannot be written in place. This layer has the parameters and
buffers of torch's, reads from a tape which samples count, and writes new statistics there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Tape:
    """What a forward pass needs beside its input, and leaves beside its output."""

    def __init__(self) -> None:
        self.weight: Tensor | None = None  # per sample: 1 real, 0 padding; None: evaluation
        self.at = 0  # where the clients' axis of the weight is, if it has one
        self.padded = True  # whether some weight may be 0
        self.updates: dict[str, Tensor] = {}
        self.head: str | None = None  # the module whose input is to be noted
        self.features: Any = None  # that input

    @contextmanager
    def recording(self, weight: Tensor | None, at: int, padded: bool) -> Iterator[None]:
        """Record a pass of its own, and afterwards be as before."""
        before = self.weight, self.at, self.padded, self.updates
        self.weight, self.at, self.padded, self.updates = weight, at, padded, {}
        try:
            yield
        finally:
            self.weight, self.at, self.padded, self.updates = before

    @contextmanager
    def weighing(self, weight: Tensor | None, at: int) -> Iterator[None]:
        """Go on recording, with other samples that count."""
        before = self.weight, self.at
        self.weight, self.at = weight, at
        try:
            yield
        finally:
            self.weight, self.at = before


class TapedBatchNorm(nn.Module):
    """A batch normalisation layer whose statistics pass through a tape."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, layer: _BatchNorm, name: str, tape: Tape) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        for buffer in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(buffer, getattr(layer, buffer))
        self.eps, self.momentum = layer.eps, layer.momentum
        self._prefix = f"{name}." if name else ""
        self._tape = tape

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by running statistics in evaluation, by those of the real samples else."""
        if self._tape.weight is None and self.running_mean is not None:
            return F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        mean, variance = self._statistics(x)
        shape = (1, -1, *[1] * (x.dim() - 2))
        scale = (variance + self.eps).rsqrt() * (1 if self.weight is None else self.weight)
        shift = -mean * scale + (0 if self.bias is None else self.bias)
        return x * scale.view(shape) + shift.view(shape)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weight = self._tape.weight
        if weight is None:
            weight = x.new_ones(x.shape[0])
        mask = weight.view(-1, *[1] * (x.dim() - 1))
        over = [0, *range(2, x.dim())]
        values = x[0, 0].numel()
        number = weight.sum() * values
        mean = (x * mask).sum(over) / number
        centred = (x - mean.view(1, -1, *[1] * (x.dim() - 2))) * mask
        variance = centred.square().sum(over) / number
        self._update(mean.detach(), variance.detach() * number / (number - 1).clamp(min=1))
        return mean, variance

    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics on from where an earlier pass of the same step left them."""
        if self.running_mean is None:
            return
        seen = self._latest("num_batches_tracked") + 1
        rate = 1 / seen if self.momentum is None else self.momentum
        rate = torch.as_tensor(rate, dtype=mean.dtype, device=mean.device)
        for name, value in (("running_mean", mean), ("running_var", variance)):
            self._tape.updates[self._prefix + name] = torch.lerp(self._latest(name), value, rate)
        self._tape.updates[self._prefix + "num_batches_tracked"] = seen

    def _latest(self, buffer: str) -> Tensor:
        latest: Tensor = self._tape.updates.get(self._prefix + buffer, getattr(self, buffer))
        return latest


def taped(module: nn.Module) -> tuple[nn.Module, Tape]:
    """Return a copy of a network with its batch normalisation layers on a tape."""
    tape = Tape()
    module = copy.deepcopy(module)
    if isinstance(module, _BatchNorm):
        return TapedBatchNorm(module, "", tape), tape
    for name, layer in list(module.named_modules()):
        if isinstance(layer, _BatchNorm):
            parent = module.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], TapedBatchNorm(layer, name, tape))
    return module, tape


def has_batch_norm(module: nn.Module) -> bool:
    """Say whether a network normalises over batches."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def always_by_batch(module: nn.Module) -> bool:
    """Say whether a network normalises by the batch at hand even when it is evaluated."""
    return any(
        isinstance(layer, _BatchNorm) and layer.running_mean is None for layer in module.modules()
    )
