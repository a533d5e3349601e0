"""What methods have in common whose server keeps one model for everybody."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clove.algorithms.base import Algorithm, Asking, Outcome, nearest_by_loss
from clove.algorithms.grouped import Averaging, train_groups
from clove.clustering import Assignments
from clove.federation.objectives import Objective, task_loss
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Evaluate, LocalTraining


@dataclass(frozen=True)
class OneModelState:
    """The one model, as a stack of one."""

    models: Parameters


@dataclass(frozen=True)
class OneModel(Algorithm[OneModelState]):
    """All participants train the same model; the server averages by sample counts.

    Methods differ in the local objective, in how clients train, and in how they are measured.
    """

    state_type = OneModelState

    @property
    def objective(self) -> Objective:
        """What clients minimise."""
        return task_loss

    @property
    def training(self) -> LocalTraining:
        """How clients train."""
        return self.setup.training

    @property
    def averages(self) -> Averaging:
        """How the server averages."""
        return Averaging()

    def begin(self) -> OneModelState:
        """Make the model."""
        return OneModelState(self.setup.initial(1, "same"))

    def server_models(self, state: OneModelState) -> Parameters:
        """Return the model."""
        return state.models

    def evaluation(self, state: OneModelState, clients: Indices) -> Evaluate:
        """Everybody uses the one model."""
        return Evaluate(state.models, clients, first_model(clients))

    def round(self, state: OneModelState, cohort: Indices) -> Asking[Outcome[OneModelState]]:
        """Train and average."""
        models, trained = yield from train_groups(
            state.models,
            first_model(cohort),
            cohort,
            self.training,
            self.averages,
            objective=self.objective,
        )
        assignment = first_model(trained.clients)
        return Outcome(replace(state, models=models), trained.clients, assignment)

    def newcomers(self, state: OneModelState, clients: Indices) -> Asking[Assignments]:
        """A newcomer gets the one model."""
        yield from ()
        return nearest_by_loss(np.zeros((len(clients), 1)))


def first_model(clients: Indices) -> Indices:
    """Return for each client the number of the first model, which is the only one."""
    return np.zeros(len(clients), dtype=np.int64)
