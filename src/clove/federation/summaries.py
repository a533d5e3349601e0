"""Summaries of a client's own data, known by name: what a client can say of them without a sample.

A summary is a pure function of one client's training data, and of a model where the question names
one. Its tensors have the same shape for every client.
"""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from clove.errors import CloveError
from clove.federation.objectives import Batch, Learner
from clove.federation.parameters import Parameters
from clove.federation.registry import Registry


class Summariser(Protocol):
    """A summary: a pure function of a client's data."""

    def __call__(
        self, learner: Learner, model: Parameters | None, data: Batch, seed: int
    ) -> dict[str, Tensor]:
        """Return the summary's parts by name; `seed` is for what is random, the client's own."""
        ...


summary: Registry[Summariser] = Registry("summary")


@summary("label-counts")
def label_counts(
    learner: Learner, model: Parameters | None, data: Batch, seed: int
) -> dict[str, Tensor]:
    """Count the client's samples of each class."""
    return {"counts": _marks(learner, data).sum(0)}


@summary("class-means")
def class_means(
    learner: Learner, model: Parameters | None, data: Batch, seed: int
) -> dict[str, Tensor]:
    """Return the mean features of each class, and its samples; zeros for a class without any."""
    if model is None:
        raise CloveError("class-means are means of a network's features: the question needs models")
    marks = _marks(learner, data)
    counts, features = marks.sum(0), learner.features(model, data.x).flatten(1)
    sums = marks.T.to(features.dtype) @ features
    return {"means": sums / counts.clamp(min=1)[:, None], "counts": counts}


def _marks(learner: Learner, data: Batch) -> Tensor:
    """Return a row for each sample, with a one at its class."""
    return F.one_hot(data.y, learner.classes)
