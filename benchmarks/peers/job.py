"""What a peer's script is handed, and what it hands back: the same for all of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Points = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Job:
    """FedAvg to run: the network with its initial parameters, clients' points, and training."""

    network: nn.Module
    train: list[Points]
    test: list[Points]
    optimizer: str
    learning_rate: float
    batch_size: int
    rounds: int
    reconstruct: bool

    @property
    def make_optimizer(self) -> type[torch.optim.Optimizer]:
        return getattr(torch.optim, self.optimizer)

    def loss(self, outputs: Tensor, x: Tensor, y: Tensor) -> Tensor:
        if self.reconstruct:
            return F.mse_loss(outputs, x.flatten(1))
        return F.cross_entropy(outputs, y)

    @torch.no_grad()
    def test_loss(self, network: nn.Module) -> float:
        network.eval()
        losses = [self.loss(network(x), x, y).item() for x, y in self.test]
        return sum(losses) / len(losses)


@lru_cache(maxsize=1)
def read_job(path: str) -> Job:
    """Read a job; a process that trains many clients reads it once."""
    return Job(**torch.load(path, weights_only=False))


def report(out: str, ends: list[float], test_loss: float, **versions: str) -> None:
    """Write what was measured, from the moments of the start and of every round's end."""
    seconds = [end - start for start, end in pairwise(ends)]
    found = {"seconds": seconds, "test_loss": test_loss, "versions": versions}
    Path(out).write_text(json.dumps(found), encoding="utf-8")
