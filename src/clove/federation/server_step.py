"""The server's averaging step, in both of the paper's options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from clove.federation.optimizer import Optimizer
from clove.federation.parameters import Parameters, pick, replace_rows
from clove.federation.questions import LocalTraining, Trained


def averaged(models: Parameters, trained: Trained) -> Parameters:
    """Option I: each model becomes the sample-weighted mean of what its group trained.

    A model nobody trained keeps its parameters.
    """
    if trained.models is None or trained.weights is None:
        return models
    groups = np.flatnonzero(trained.weights)
    return replace_rows(models, groups, pick(trained.models, groups))


def descended(
    models: Parameters, gradients: Trained, training: LocalTraining, optimizer: str = "sgd"
) -> Parameters:
    """Option II: each model takes one step along its group's sample-weighted mean gradient.

    `sgd` is the paper's rule θ − γ·g; `adam`, a fresh Adam each round, is what the authors' code
    does (so in effect a step of size γ in the direction of each gradient's sign).
    """
    if gradients.models is None or gradients.weights is None:
        return models
    groups = np.flatnonzero(gradients.weights)
    means, moved = pick(gradients.models, groups), pick(models, groups)
    free: dict[str, Tensor] = {n: t for n, t in moved.items() if n not in gradients.values}
    step = Optimizer(free.values(), replace(training, optimizer=optimizer, weight_decay=0.0))
    step.step([means[name].to(tensor) for name, tensor in free.items()])
    values = {name: means[name] for name in gradients.values}
    return replace_rows(models, groups, moved | values)
