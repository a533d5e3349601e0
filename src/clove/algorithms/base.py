"""What an algorithm is: server logic that asks clients and is sent their answers.

A round is a generator: it yields questions (`clove.federation.questions`) and returns an `Outcome`.
It does no I/O and never sees a client's data, so the same file runs in simulation and on a network,
and can be tested by sending it hand-made answers.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from clove.clustering import Assignments
from clove.errors import CloveError, CloveWarning
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import (
    Evaluate,
    Floats,
    LocalTraining,
    Losses,
    LossVectors,
    Question,
    Seeded,
)

State = TypeVar("State")
Asking = Generator[Question, Any, State]


@dataclass(frozen=True)
class Setup:
    """What an algorithm knows of the federation before it begins.

    `groups` is the true number of client groups where it is known (None else); `initial` makes so
    many initial models, in the given way. `classes` is their number where the task has any;
    `pools` says whose data were put together before the run (see `Algorithm.pools`).
    """

    clients: int
    groups: int | None
    training: LocalTraining
    seed: int
    initial: Callable[[int, str], Parameters]
    classes: int | None = None
    pools: Indices | None = None


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """What a round leaves: the server's new state, and what there is to tell about the round."""

    state: State
    clients: Indices  # who took part to the end
    assignment: Indices | None  # the model each of them was assigned to
    stable: bool | None = None  # None: this method does not ask its clients
    loss_vectors: LossVectors | None = None  # what the clients were clustered on
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Algorithm(ABC, Generic[State]):
    """A federated learning method; its fields after `setup` are its options.

    `state_type` is the dataclass its state is kept in: a field `models` for the server's models,
    and else arrays, plain values and stacks of parameters. `clusters` says whether its assignments
    are a clustering worth comparing with the true groups; `personal` whether models stay with the
    clients, one each; `reference` that it is no federated method, but what those are measured by:
    it has no part in what is best, since its bytes leave out the data it was given.
    """

    setup: Setup

    name: ClassVar[str]
    state_type: ClassVar[type]
    clusters: ClassVar[bool] = False
    personal: ClassVar[bool] = False
    reference: ClassVar[bool] = False

    @abstractmethod
    def begin(self) -> State:
        """Return the server's state before the first round."""

    @abstractmethod
    def round(self, state: State, cohort: Indices) -> Asking[Outcome[State]]:
        """Run one round with the clients of the cohort."""

    @abstractmethod
    def server_models(self, state: State) -> Parameters | None:
        """Return the server's models, or None where there are none."""

    @abstractmethod
    def evaluation(self, state: State, clients: Indices) -> Evaluate:
        """Return the question that measures the model each client would use now."""

    def pools(self, groups: Indices | None) -> Indices | None:
        """Return a pool for each client whose data are put together before the run begins.

        None: data stay where they are, as in any federated method. `groups` are the true ones.
        """
        return None

    def newcomers(self, state: State, clients: Indices) -> Asking[Assignments]:
        """Find the model of clients never seen before, and how sure that is."""
        raise CloveError(f"{self.name} has no model to give to a newcomer")
        yield


def drop_not_finite(answer: LossVectors) -> tuple[LossVectors, list[int]]:
    """Set aside clients whose losses are not finite, with a warning that names them."""
    fine = np.isfinite(answer.losses).all(axis=1)
    aside = [int(client) for client in answer.clients[~fine]]
    if aside:
        warnings.warn(
            f"client {', '.join(map(str, aside))} sent losses that are not finite: set aside for "
            "this round, and keeps its last model",
            CloveWarning,
            stacklevel=2,
        )
    return LossVectors(answer.clients[fine], answer.losses[fine]), aside


def ask_losses(
    models: Parameters | Seeded, cohort: Indices, batch_statistics: int
) -> Asking[tuple[LossVectors, list[int]]]:
    """Ask for loss vectors; return those that are finite, and the clients set aside."""
    answer: LossVectors = yield Losses(models, cohort, batch_statistics)
    return drop_not_finite(answer)


def nearest_by_loss(losses: Floats) -> Assignments:
    """Assign each client the model of least loss; sure when the second best is far worse."""
    order = np.sort(losses, axis=1)
    best, second = order[:, 0], order[:, 1] if losses.shape[1] > 1 else order[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        margins = np.where(second > 0, 1 - best / second, 0.0)
    if losses.shape[1] == 1:
        margins = np.ones(len(losses))
    return Assignments(models=losses.argmin(axis=1), distances=losses, margins=margins)
