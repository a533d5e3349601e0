"""What methods have in common that group clients once, by a summary of their data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.algorithms.base import Algorithm, Asking, Outcome
from clove.algorithms.grouped import Averaging, train_groups
from clove.clustering import Assignments
from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters, pick
from clove.federation.questions import Evaluate, Floats, Summaries, Summary
from clove.federation.summaries import Summariser

Summarised = Mapping[str, NDArray[Any]]  # parts of the clients' summaries, a row a client


@dataclass(frozen=True)
class OneShotState:
    """Models, each client's, and what the groups are recognised by.

    `marks` are rows of whatever a method tells groups apart by, and `marked` the group of each.
    """

    models: Parameters
    model_of: Indices  # of each client; -1: nothing is known of it yet
    marks: NDArray[Any] | None = None
    marked: Indices | None = None


@dataclass(frozen=True)
class Grouping:
    """The groups of the clients that sent summaries, and what others will be told them by."""

    labels: Indices
    marks: NDArray[Any]
    marked: Indices
    groups: int


@dataclass(frozen=True)
class OneShot(Algorithm[OneShotState]):
    """Group all clients before they train, by summaries of their data; then FedAvg per group.

    In the first round everybody is asked for a summary, whoever takes part in it. A client that did
    not answer then is asked when it first takes part, and joins the group it is nearest to. All
    groups start from the same model.
    """

    state_type = OneShotState
    clusters = True

    @property
    @abstractmethod
    def summary(self) -> Summariser:
        """What clients are asked for."""

    @abstractmethod
    def group(self, values: Summarised) -> Grouping:
        """Group clients by their summaries."""

    @abstractmethod
    def place(
        self, values: Summarised, marks: NDArray[Any], marked: Indices
    ) -> tuple[Indices, Floats]:
        """Return the groups of more clients, and their distances to all groups."""

    def begin(self) -> OneShotState:
        """Make the model all groups start from."""
        return OneShotState(self.setup.initial(1, "same"), np.full(self.setup.clients, -1))

    def server_models(self, state: OneShotState) -> Parameters:
        """Return the groups' models."""
        return state.models

    def evaluation(self, state: OneShotState, clients: Indices) -> Evaluate:
        """Every client uses its group's model; who has no group yet has no model."""
        grouped = clients[state.model_of[clients] >= 0]
        return Evaluate(state.models, grouped, state.model_of[grouped])

    def round(self, state: OneShotState, cohort: Indices) -> Asking[Outcome[OneShotState]]:
        """Find the groups of those who have none, let each group train its model, and average."""
        state = replace(state, model_of=with_room(state.model_of, self.setup.clients))
        state = yield from self._grouped(state, cohort)
        clients = cohort[state.model_of[cohort] >= 0]
        models, trained = yield from train_groups(
            state.models, state.model_of[clients], clients, self.setup.training, Averaging()
        )
        return Outcome(
            state=replace(state, models=models),
            clients=trained.clients,
            assignment=state.model_of[trained.clients],
            notes={"clusters": len(np.unique(state.model_of[state.model_of >= 0]))},
        )

    def newcomers(self, state: OneShotState, clients: Indices) -> Asking[Assignments]:
        """A newcomer joins the group it is nearest to, by a summary of its own."""
        if state.marks is None or state.marked is None:
            raise CloveError("nothing has been clustered yet: run more rounds")
        found: Summaries = yield Summary(self.summary, clients)
        models, distances = self.place(found.values, state.marks, state.marked)
        return Assignments(models, distances, _margins(models, distances))

    def _grouped(self, state: OneShotState, cohort: Indices) -> Asking[OneShotState]:
        first = state.marks is None or state.marked is None
        asked = np.arange(self.setup.clients) if first else cohort[state.model_of[cohort] < 0]
        if len(asked) == 0:
            return state
        found: Summaries = yield Summary(self.summary, asked)
        if len(found.clients) == 0:
            return state
        if state.marks is None or state.marked is None:
            grouping = self.group(found.values)
            labels = grouping.labels
            same = np.zeros(grouping.groups, dtype=np.int64)
            state = replace(
                state,
                models=pick(state.models, same),
                marks=grouping.marks,
                marked=grouping.marked,
            )
        else:
            labels, _ = self.place(found.values, state.marks, state.marked)
        model_of = state.model_of.copy()
        model_of[found.clients] = labels
        return replace(state, model_of=model_of)


def with_room(model_of: Indices, clients: int) -> Indices:
    """Return the clients' models with room for those who joined since, who have none yet."""
    return np.concatenate([model_of, np.full(clients - len(model_of), -1)])


def _margins(models: Indices, distances: Floats) -> Floats:
    """Say how much farther the nearest other group is than the one chosen."""
    if distances.shape[1] == 1:
        return np.ones(len(distances))
    rows = np.arange(len(distances))
    chosen, others = distances[rows, models], distances.copy()
    others[rows, models] = np.inf
    nearest = others.min(axis=1)
    ratio = np.divide(chosen, nearest, out=np.ones_like(chosen), where=nearest > 0)
    return np.asarray(np.clip(1 - ratio, 0.0, 1.0))
