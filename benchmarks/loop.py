"""CLoVE and FedAvg as a bare PyTorch loop, the way one writes it for a single experiment.

Nothing here is clove's: it is what `peers.py` measures clove against, and a test holds the two
to the same results. One client after the other, a data loader each, state dicts averaged in Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

State = Mapping[str, Tensor]
EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Training:
    """How clients train for one epoch."""

    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam
    learning_rate: float = 1e-3
    batch_size: int = 64
    reconstruct: bool = False  # the target is the sample itself
    device: str = "cpu"

    def loss(self, outputs: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return (
            F.mse_loss(outputs, x.flatten(1)) if self.reconstruct else F.cross_entropy(outputs, y)
        )


class Client:
    """A client's loaders: shuffled batches to train on, large ones to measure on."""

    def __init__(self, train: tuple[Any, Any], test: tuple[Any, Any], batch_size: int) -> None:
        points, held_back = (TensorDataset(*map(torch.as_tensor, part)) for part in (train, test))
        self.size = len(points)
        self.batches = DataLoader(points, batch_size, shuffle=True)
        self.train = DataLoader(points, EVALUATION_BATCH)
        self.test = DataLoader(held_back, EVALUATION_BATCH)


@dataclass(frozen=True)
class Round:
    """What came out of a round; scores are there where they were asked for."""

    seconds: float
    assignment: np.ndarray
    states: list[State]
    loss: list[float] = field(default_factory=list)  # of every client, on its test points
    accuracy: list[float] = field(default_factory=list)


def train(model: nn.Module, state: State, client: Client, how: Training) -> State:
    """Train the model one epoch on a client's points; return its new state."""
    model.load_state_dict(state)
    model.train()
    optimizer = how.optimizer(model.parameters(), lr=how.learning_rate)
    for x, y in client.batches:
        x, y = x.to(how.device), y.to(how.device)
        optimizer.zero_grad()
        how.loss(model(x), x, y).backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, how: Training) -> tuple[float, float]:
    """Return the mean loss and the accuracy of the model on a loader's points."""
    model.eval()
    loss, right, points = 0.0, 0, 0
    for x, y in loader:
        x, y = x.to(how.device), y.to(how.device)
        outputs = model(x)
        loss += how.loss(outputs, x, y).item() * len(x)
        if not how.reconstruct:
            right += (outputs.argmax(1) == y).sum().item()
        points += len(x)
    return loss / points, right / points


def average(states: Sequence[State], sizes: Sequence[int]) -> State:
    """Return the mean of state dicts, weighted by numbers of points."""
    total = sum(sizes)
    return {
        name: sum(state[name] * (size / total) for state, size in zip(states, sizes, strict=True))
        for name in states[0]
    }


def cluster(
    model: nn.Module, states: Sequence[State], clients: Sequence[Client], how: Training, seed: int
) -> np.ndarray:
    """CLoVE's server step: k-means on loss vectors, then each cluster to its best model."""
    losses = np.zeros((len(clients), len(states)))
    for k, state in enumerate(states):
        model.load_state_dict(state)
        losses[:, k] = [evaluate(model, client.train, how)[0] for client in clients]
    found = KMeans(len(states), n_init=10, random_state=seed).fit_predict(losses)
    cost = np.stack([losses[found == c].sum(0) for c in range(len(states))])
    return linear_sum_assignment(cost)[1][found]


def rounds(
    model: nn.Module,
    states: Sequence[State],
    clients: Sequence[Client],
    how: Training,
    number: int,
    *,
    evaluation: bool = True,
    seed: int = 0,
) -> Iterator[Round]:
    """Run CLoVE where there are several models, FedAvg where there is one."""
    model, states = model.to(how.device), list(states)
    for _ in range(number):
        start = time.perf_counter()
        assignment = np.zeros(len(clients), dtype=int)
        if len(states) > 1:
            assignment = cluster(model, states, clients, how, seed)
        trained = [
            train(model, states[k], client, how)
            for k, client in zip(assignment, clients, strict=True)
        ]
        for k in set(assignment.tolist()):
            members = np.flatnonzero(assignment == k)
            states[k] = average([trained[i] for i in members], [clients[i].size for i in members])
        loss, accuracy = scores(model, states, clients, assignment, how) if evaluation else ([], [])
        if how.device != "cpu":
            torch.cuda.synchronize()
        yield Round(time.perf_counter() - start, assignment, list(states), loss, accuracy)


def scores(
    model: nn.Module,
    states: Sequence[State],
    clients: Sequence[Client],
    assignment: np.ndarray,
    how: Training,
) -> tuple[list[float], list[float]]:
    """Return loss and accuracy of every client's own model on its own test points."""
    found = []
    for k, client in zip(assignment, clients, strict=True):
        model.load_state_dict(states[k])
        found.append(evaluate(model, client.test, how))
    return [loss for loss, _ in found], [accuracy for _, accuracy in found]
