"""How fast this machine is at a federation: engines side by side, on made-up data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data import ClientData
from clove.errors import CloveError, unknown_name
from clove.runs.api import run
from clove.runs.result import Result
from clove.tasks import MODELS

PHASES = ("losses", "training", "server", "evaluation")
WARM_UP = 2


@dataclass(frozen=True)
class Shape:
    """A federation: its network, clients, samples and models."""

    model: str
    sample: tuple[int, ...]
    classes: int = 10
    clients: int = 25
    points: int = 500
    models: int = 5
    task: str = "classification"


SHAPES = {  # of the samples that networks of the zoo are made for
    "mlp": Shape("mlp", (1, 28, 28)),
    "cnn": Shape("cnn", (1, 28, 28)),
    "cifar-cnn": Shape("cifar-cnn", (3, 32, 32)),
    "text-cnn": Shape("text-cnn", (200,), classes=4),
    "amazon-mlp": Shape("amazon-mlp", (5000,), classes=2),
    "autoencoder": Shape("autoencoder", (1, 28, 28), task="reconstruction"),
    "conv-autoencoder": Shape("conv-autoencoder", (3, 32, 32), task="reconstruction"),
}


def shape_for(model: str) -> Shape:
    """Return the usual federation for a network of the zoo."""
    if model not in SHAPES:
        raise unknown_name("model", model, [name for name in MODELS if name in SHAPES])
    return SHAPES[model]


def made_clients(shape: Shape) -> list[ClientData]:
    """Make clients of as many groups as there are models, which differ in where their data lie."""
    for name in ("clients", "points", "models"):
        if getattr(shape, name) < 1:
            raise CloveError(f"{name} must be 1 or more, not {getattr(shape, name)}")
    draw = np.random.default_rng(0)
    groups = [client % shape.models for client in range(shape.clients)]
    return [ClientData(_points(shape, g, draw), _points(shape, g, draw), group=g) for g in groups]


def _points(
    shape: Shape, group: int, draw: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    size = (shape.points, *shape.sample)
    labels = (group + draw.integers(0, 2, shape.points)) % max(shape.classes, 2)
    if shape.model == "text-cnn":
        return draw.integers(1, 20, size) + 20 * labels[:, None], labels
    x = draw.random(size, np.float32) * 0.5
    flat = x.reshape(shape.points, -1)
    flat[:, group * 20 % flat.shape[1] :][:, :40] += 1
    flat[np.arange(shape.points), 7 * labels + 1] += 2
    return x, labels if shape.task == "classification" else None


def bench(
    shape: Shape,
    engines: Sequence[str] = ("sequential", "vectorized", "auto"),
    *,
    rounds: int = 5,
    tell: Callable[[str], None] | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Time rounds of CLoVE with each engine; return a row an engine.

    Figures are medians over the rounds after two of warm-up; `times` is how many times as fast as
    the first engine.
    """
    if rounds < 1:
        raise CloveError(f"rounds must be 1 or more, not {rounds}")
    clients, rows = made_clients(shape), []
    for engine in engines:
        if tell is not None:
            tell(engine)
        result = run(
            clients=clients,
            task=shape.task,
            model=shape.model,
            algorithm="clove",
            models=shape.models,
            rounds=rounds + WARM_UP,
            engine=engine,
            **settings,
        )
        rows.append(_row(engine, result))
    for row in rows:
        row["times"] = rows[0]["seconds"] / row["seconds"]
    return rows


def _row(engine: str, result: Result) -> dict[str, Any]:
    chosen, made = result.settings, result.summary()["made"]
    middle = result.history[["seconds", *PHASES]].iloc[WARM_UP:].median()
    return {
        "asked": engine,
        "engine": chosen.engine,
        "why": made["engine_reason"],
        **{name: float(value) for name, value in middle.items()},
        "rounds_per_second": 1 / float(middle["seconds"]),
        "precision": chosen.precision,
        "threads": chosen.threads,
        "group_size": chosen.group_size,
        "kernels": chosen.kernels,
        "machine": made["machine"],
        "torch": made["torch"],
        "clove": made["clove"],
    }
