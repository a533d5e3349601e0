"""Summaries of a client's own data, known by name: what a client can say of them without a sample.

A summary is a pure function of one client's training data, and of a model where the question names
one. Its tensors have the same shape for every client. A part called `counts` says how many of the
client's samples are of each kind, each sample of one: on a network it is held to their number. One
that is marked `side_by_side` neither branches on numbers nor draws, and leaves out samples of no
weight: the vectorized engine maps it over its stack of clients, as it does objectives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
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
Marked = TypeVar("Marked", bound=Callable[..., Any])
MARK = "_side_by_side"


def side_by_side(function: Marked) -> Marked:
    """Mark a summary as one that engines may make for many clients at once."""
    setattr(function, MARK, True)
    return function


def is_side_by_side(function: Summariser) -> bool:
    """Say whether a summary is marked so."""
    return bool(getattr(function, MARK, False))


@summary("label-counts")
@side_by_side
def label_counts(
    learner: Learner, model: Parameters | None, data: Batch, seed: int
) -> dict[str, Tensor]:
    """Count the client's samples of each class."""
    return {"counts": class_marks(learner, data).long().sum(0)}


@summary("class-means")
@side_by_side
def class_means(
    learner: Learner, model: Parameters | None, data: Batch, seed: int
) -> dict[str, Tensor]:
    """Return the mean features of each class, and its samples; zeros for a class without any."""
    if model is None:
        raise CloveError("class-means are means of a network's features: the question needs models")
    marks, features = class_marks(learner, data), learner.features(model, data.x).flatten(1)
    counts, sums = marks.long().sum(0), marks.T.to(features.dtype) @ features
    return {"means": sums / counts.clamp(min=1)[:, None], "counts": counts}


def class_marks(learner: Learner, data: Batch) -> Tensor:
    """Return a row for each sample, true at its class; of padding, nowhere."""
    classes = torch.arange(learner.classes, device=data.y.device)
    return (data.y[:, None] == classes) & (data.weight > 0)[:, None]
