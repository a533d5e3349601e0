"""The server's initial models."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from clove import seeds
from clove.errors import CloveError, unknown_name
from clove.federation import parameters as stacks
from clove.federation.parameters import Parameters
from clove.tasks import Task, initial_parameters

INITIAL_MODELS = ("different", "same", "orthonormal")


def initial_models(task: Task, count: int, how: str, seed: int) -> Parameters:
    """Make the server's models: each its own draw, all the same, or orthonormal (linear model)."""
    if how not in INITIAL_MODELS:
        raise unknown_name("way to make initial models", how, INITIAL_MODELS)
    numbers = [0 if how == "same" else number for number in range(count)]
    models = stacks.stack(
        [initial_parameters(task, seeds.integer(seed, "initial", number)) for number in numbers]
    )
    return _orthonormal(models, seed) if how == "orthonormal" else models


def seeded_model(task: Task, seed: int, number: int) -> dict[str, Tensor]:
    """Return the model that everybody makes from this seed and number."""
    return initial_parameters(task, seeds.integer(seed, "seeded", number))


def _orthonormal(models: Parameters, seed: int) -> dict[str, Tensor]:
    """Replace linear models by orthonormal vectors."""
    number = stacks.count(models)
    weights = list(models.items())
    if len(weights) != 1 or weights[0][1].dim() != 3 or weights[0][1].shape[1] != 1:
        raise CloveError(
            "orthonormal initial models are defined for the linear model with one output; "
            "use 'different' or 'same'"
        )
    name, weight = weights[0]
    dimension = weight.shape[2]
    if number > dimension:
        raise CloveError(
            f"{number} orthonormal models do not exist in {dimension} dimensions; "
            f"use at most {dimension} models"
        )
    draw = seeds.stream(seed, "orthonormal").normal(size=(dimension, number))
    vectors = np.linalg.qr(draw)[0].T
    return {name: torch.as_tensor(vectors).to(weight).reshape(weight.shape)}
