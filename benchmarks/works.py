"""The works of peers.py: what is trained, on whose data, from which parameters."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import clove
from clove.data import load_dataset, mix
from clove.federation import initial_models

MODELS = 5


def published_cnn() -> nn.Module:
    """Build the network pfl-research publishes its timings with: 1,626,442 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def small_mlp() -> nn.Module:
    """One hidden layer of 16: 49,338 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.ReLU(), nn.Linear(16, 10))


@dataclass(frozen=True)
class Work:
    """What everybody is to do."""

    title: str
    algorithm: str
    data: str
    task: clove.Task
    optimizer: str = "Adam"
    learning_rate: float = 1e-3
    batch_size: int = 64

    @property
    def reconstruct(self) -> bool:
        return self.task.target == "x"


CIFAR = {"optimizer": "SGD", "learning_rate": 0.1, "batch_size": 10}
WORKS = {
    "clove-cnn": Work("CLoVE, CNN", "clove", "fmnist", clove.classification("cnn")),
    "clove-mlp": Work("CLoVE, MLP", "clove", "fmnist", clove.classification("mlp")),
    "clove-autoencoder": Work("CLoVE, autoencoder", "clove", "fmnist", clove.reconstruction()),
    "fedavg-cnn": Work("FedAvg, CNN", "fedavg", "fmnist", clove.classification("cnn")),
    "fedavg-mlp": Work("FedAvg, MLP", "fedavg", "fmnist", clove.classification("mlp")),
    "fedavg-autoencoder": Work("FedAvg, autoencoder", "fedavg", "fmnist", clove.reconstruction()),
    "fedavg-published-mlp": Work(
        "FedAvg, pfl-research's shape, MLP",
        "fedavg",
        "cifar10",
        clove.classification(small_mlp),
        **CIFAR,
    ),
    "fedavg-published-cnn": Work(
        "FedAvg, pfl-research's shape, its CNN",
        "fedavg",
        "cifar10",
        clove.classification(published_cnn),
        **CIFAR,
    ),
}
QUICK = ("clove-cnn", "fedavg-published-mlp")
WITHOUT_PEERS = ("fedavg-autoencoder",)  # they take a minute for it and would tell little


@functools.cache
def client_data(name: str) -> tuple[list[clove.ClientData], str]:
    """Return the clients, and in words what their data are."""
    options: dict[str, Any] = {"clients_per_cluster": 5, "points_per_client": 500}
    mixing, words = "label-skew-1", "Fashion-MNIST, label skew 1"
    if name == "cifar10":
        options = {"iid": True, "clients_per_cluster": 50, "points_per_client": 50}
        mixing, words = "none", "CIFAR-10, one distribution"
    try:
        clients = mix(load_dataset(name, None, 0), mixing, 0, **options).clients
    except clove.CloveError:
        clients, words = random_clients(name), "random arrays of the data's shape"
    points = f"{clients[0].size} training and {len(clients[0].test[0])} test points"
    return clients, f"{words}: {len(clients)} clients of {points}"


def random_clients(name: str) -> list[clove.ClientData]:
    """Return clients like those of the data set, for machines without it."""
    draw = np.random.default_rng(0)
    shape, clients, points, tests = {
        "fmnist": ((1, 28, 28), 25, 500, 400),
        "cifar10": ((3, 32, 32), 50, 50, 50),
    }[name]
    centres = draw.normal(size=(10, *shape))

    def some(number: int, classes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        y = draw.choice(classes, number)
        x = centres[y] + draw.normal(size=(number, *shape))
        return (1 / (1 + np.exp(-x))).astype(np.float32), y

    made = []
    for client in range(clients):
        group = client // 5 if name == "fmnist" else 0
        classes = [2 * group, 2 * group + 1] if name == "fmnist" else list(range(10))
        made.append(clove.ClientData(some(points, classes), some(tests, classes), group=group))
    return made


@dataclass(frozen=True)
class Prepared:
    """Work with its clients, and the models everybody starts from."""

    work: Work
    clients: list[clove.ClientData]
    network: nn.Module
    states: list[dict[str, torch.Tensor]]

    @classmethod
    def of(cls, work: Work) -> Prepared:
        clients, _ = client_data(work.data)
        task = work.task.for_data(clients[0].train[0].shape[1:], 10)
        count = MODELS if work.algorithm == "clove" else 1
        stack = initial_models(task, count, "different", seed=0)
        states = [{name: tensor[k] for name, tensor in stack.items()} for k in range(count)]
        network = task.build()
        network.load_state_dict(states[0])
        return cls(work, clients, network, states)
