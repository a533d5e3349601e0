"""Prototypes: the mean features of a class, what clients do with them, and how they are averaged.

They travel as two tensors: `prototypes`, a row a class, and `known`, which says what classes have
one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clove.algorithms.base import Setup
from clove.errors import CloveError, CloveWarning
from clove.federation.objectives import Batch, Learner, Objective, objective, task_loss
from clove.federation.parameters import Parameters
from clove.federation.questions import Extras, Summaries
from clove.federation.summaries import class_marks

AVERAGES = ("samples", "clients")  # what weighs in a prototype's average
DISTANCES = ("samples", "prototypes")  # what is drawn to the global prototypes


@objective("prototype-loss")
@dataclass(frozen=True)
class PrototypeLoss:
    """The task's loss plus λ times the mean squared distance of features to their prototypes.

    The mean is over samples and features, the prototype that of the sample's class; a class without
    one adds nothing.
    """

    weight: float

    def __call__(
        self, learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the loss with the distance."""
        outputs, features = learner.outputs_and_features(parameters, batch.x, batch.weight)
        apart = (features.flatten(1) - extras["prototypes"][batch.y]).square().mean(1)
        counted = apart * extras["known"][batch.y] * batch.weight
        distance = counted.sum() / batch.weight.sum()
        return learner.loss(outputs, batch) + self.weight * distance


@objective("local-prototype-loss")
@dataclass(frozen=True)
class LocalPrototypeLoss:
    """The task's loss plus λ times the squared distances of local prototypes to the global ones.

    A local prototype is the mean features of the batch's samples of a class; its distance is
    averaged over features, and those of all classes are added up. A class that the batch has not,
    or that has no global prototype, adds nothing.
    """

    weight: float

    def __call__(
        self, learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the loss with the distances."""
        outputs, features = learner.outputs_and_features(parameters, batch.x, batch.weight)
        features = features.flatten(1)
        marks = class_marks(learner, batch).to(features.dtype)
        counts = marks.sum(0)
        means = marks.T @ features / counts.clamp(min=1)[:, None]
        apart = (means - extras["prototypes"]).square().mean(1)
        distance = (apart * (extras["known"] & (counts > 0))).sum()
        return learner.loss(outputs, batch) + self.weight * distance


def towards(
    prototypes: Parameters, weight: float, distance: str = DISTANCES[0]
) -> tuple[Objective, Extras | None]:
    """Return the objective that draws features to prototypes, and what to send for it."""
    if not prototypes:  # before the first round there are none
        return task_loss, None
    loss = PrototypeLoss if distance == "samples" else LocalPrototypeLoss
    return loss(weight), Extras(shared=prototypes)


def averaged_prototypes(before: Parameters, means: Summaries, by: str = "samples") -> Parameters:
    """Average clients' class means over those that have the class; else it keeps the one before.

    By "samples" a client counts as often as it has samples of the class, by "clients" once.
    """
    means = set_aside_not_finite(means)
    if not len(means.clients):
        return before
    own, counts = means.values["means"], means.values["counts"]
    weights = counts if by == "samples" else counts > 0
    totals = weights.sum(0)
    shares = weights / np.maximum(totals, 1)
    mean = torch.from_numpy(np.einsum("nc,ncd->cd", shares, own).astype(own.dtype))
    known = torch.from_numpy(totals > 0)
    if before:
        mean = torch.where(known[:, None], mean, before["prototypes"].to(mean))
        known = known | before["known"].to(known)
    return {"prototypes": mean, "known": known}


def set_aside_not_finite(answer: Summaries) -> Summaries:
    """Leave out clients whose summaries are not finite, with a warning that names them."""
    fine = np.ones(len(answer.clients), dtype=np.bool_)
    for value in answer.values.values():
        fine &= np.isfinite(value).reshape(len(value), -1).all(axis=1)
    if fine.all():
        return answer
    warnings.warn(
        f"client {', '.join(map(str, answer.clients[~fine]))} sent features that are not finite: "
        "left out of this round's averages",
        CloveWarning,
        stacklevel=2,
    )
    values = {name: value[fine] for name, value in answer.values.items()}
    return Summaries(answer.clients[fine], values)


def check_classes(method: str, setup: Setup) -> None:
    """Refuse to begin a method of classes where there are none."""
    if setup.classes is None:
        raise CloveError(
            f"{method} compares clients class by class, but this task has no classes: run it on "
            "labelled data with task=classification, or use clove, ifca, fedavg or fedala"
        )
