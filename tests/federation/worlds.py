"""Small federations made for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from torch import Tensor, nn

from clove.data import ClientData
from clove.federation import LocalTraining, Sequential, Simulation, Train, Vectorized, averaged
from clove.federation import parameters as stacks
from clove.federation.initial import initial_models
from clove.federation.objectives import task_loss
from clove.tasks import Task, classification, reconstruction, regression
from clove.tasks.models import autoencoder, cnn, mlp

# Deadlines measure the machine, not the code.
relaxed = settings(deadline=None, max_examples=40)

ENGINES = [Sequential, Vectorized]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}

# With batches of eight: less than a batch, a short last batch, whole batches, a lone last sample.
UNEQUAL = (7, 20, 3, 16, 17)
ASSIGNMENT = np.array([0, 1, 0, 1, 1])
TRAINING = LocalTraining(batch_size=8)
SGD = LocalTraining("sgd", learning_rate=0.1, batch_size=8)


# ------------------------------------------------------------------------------------- networks


def conv_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 9, 3),
    )


def dense_norm(**options: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6, **options), nn.ReLU(), nn.Linear(6, 3)
    )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))


class Peeking(nn.Module):
    """A network that looks at a number of its batch, which no stack of clients can do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * (1.0 if x.sum().item() > 0 else 2.0)


dense = classification(partial(mlp, (4,), 3, 8))
normalised = classification(dense_norm)
convolved = classification(partial(cnn, (1, 28, 28), 10))

# Each kind of network: the task, the shape of a sample, the number of classes.
WORLDS: dict[str, tuple[Task, tuple[int, ...], int]] = {
    "mlp": (dense, (4,), 3),
    "cnn": (convolved, (1, 28, 28), 10),
    "cnn with batch norm": (classification(conv_norm), (1, 8, 8), 3),
    "mlp with batch norm": (normalised, (4,), 3),
    "autoencoder": (reconstruction(partial(autoencoder, (16,), 1)), (16,), 0),
    "regression": (regression(partial(mlp, (4,), 1, 8)), (4,), 1),
}


# -------------------------------------------------------------------------------------- clients


def points(
    draw: np.random.Generator, size: int, shape: tuple[int, ...], classes: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Draw samples; no classes: without labels, one class: labelled with a number."""
    x = draw.normal(size=(size, *shape))
    if classes == 0:
        return x, None
    if classes == 1:
        return x, x.reshape(size, -1).sum(1, keepdims=True)
    return x, draw.integers(classes, size=size)


def some_clients(
    sizes: Sequence[int] = UNEQUAL, shape: tuple[int, ...] = (4,), classes: int = 3, seed: int = 0
) -> list[ClientData]:
    """Make clients with so many training samples each, and five to eight test samples."""
    draw = np.random.default_rng(seed)
    return [
        ClientData(points(draw, size, shape, classes), points(draw, 5 + number % 4, shape, classes))
        for number, size in enumerate(sizes)
    ]


def world(name: str) -> tuple[Task, list[ClientData]]:
    """Return the task of a kind of network, and clients of unequal size to learn it."""
    task, shape, classes = WORLDS[name]
    return task, some_clients(shape=shape, classes=classes)


def models_for(
    engine: Simulation, number: int = 2, how: str = "different", seed: int = 0
) -> dict[str, Tensor]:
    """Make so many initial models, as this engine wants them."""
    return stacks.move(initial_models(engine.task, number, how, seed), engine.device, engine.dtype)


def everyone(engine: Simulation) -> np.ndarray:
    return np.arange(engine.clients)


# --------------------------------------------------------------------------------------- rounds


def train_rounds(
    engine: Simulation,
    training: LocalTraining = TRAINING,
    start: np.ndarray = ASSIGNMENT,
    rounds: int = 2,
    **options: Any,
) -> Mapping[str, Tensor]:
    """Train and average per group for some rounds; return the server's models."""
    models: Mapping[str, Tensor] = models_for(engine, int(start.max()) + 1)
    for number in range(1, rounds + 1):
        engine.begin_round(number)
        question = Train(models, start, everyone(engine), training, reduce=start, **options)
        models = averaged(models, engine.answer(question))
    return models


def on_both(
    ask: Callable[[Simulation], Any], clients: Sequence[ClientData], task: Task, **options: Any
) -> tuple[Any, Any]:
    """Do the same with either engine."""
    return tuple(ask(engine(clients, task, **options)) for engine in ENGINES)


def assert_same_models(
    left: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float | None = None
) -> None:
    """Compare every tensor, relative to its largest number."""
    assert left.keys() == right.keys()
    for name, expected in right.items():
        given = left[name]
        assert given.dtype == expected.dtype
        assert given.shape == expected.shape
        if not expected.is_floating_point():
            assert torch.equal(given.cpu(), expected.cpu()), name
            continue
        bound = TOLERANCE[expected.dtype] if tolerance is None else tolerance
        apart = (given.cpu() - expected.cpu()).abs().max()
        assert apart <= bound * expected.abs().max().cpu(), f"{name}: {apart:.2e} apart"


def assert_identical(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> None:
    """Compare every bit."""
    assert left.keys() == right.keys()
    for name, tensor in right.items():
        assert torch.equal(left[name], tensor), name


# ----------------------------------------------------------------------------------- objectives


def proximal(learner, parameters, batch, extras):
    """FedProx: the task's loss, and a pull towards the anchor all clients were sent."""
    away = sum((p - extras[name]).square().sum() for name, p in parameters.items())
    return task_loss(learner, parameters, batch, extras) + extras["pull"] / 2 * away
