"""FedAvg: one model for everybody."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clove.algorithms.base import Algorithm, Asking, Outcome, nearest_by_loss
from clove.algorithms.grouped import Averaging, train_groups
from clove.clustering import Assignments
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Evaluate


@dataclass(frozen=True)
class FedAvgState:
    """The one model, as a stack of one."""

    models: Parameters


@dataclass(frozen=True)
class FedAvg(Algorithm[FedAvgState]):
    """All participants train the same model; the server averages by sample counts.

    Network: one model down and one up for each participant.

    Parameters
    ----------
    averaging, server_optimizer : "models", or "gradients" (FedSGD) with the server's step.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-Efficient Learning of Deep
    Networks from Decentralized Data. AISTATS 2017.
    """

    averaging: str = "models"
    server_optimizer: str = "sgd"

    name = "fedavg"
    state_type = FedAvgState

    def __post_init__(self) -> None:
        Averaging(self.averaging, self.server_optimizer)

    def begin(self) -> FedAvgState:
        """Make the model."""
        return FedAvgState(self.setup.initial(1, "same"))

    def server_models(self, state: FedAvgState) -> Parameters:
        """Return the model."""
        return state.models

    def evaluation(self, state: FedAvgState, clients: Indices) -> Evaluate:
        """Everybody uses the one model."""
        return Evaluate(state.models, clients, _first(clients))

    def round(self, state: FedAvgState, cohort: Indices) -> Asking[Outcome[FedAvgState]]:
        """Train and average."""
        averaging = Averaging(self.averaging, self.server_optimizer)
        models, trained = yield from train_groups(
            state.models, _first(cohort), cohort, self.setup.training, averaging
        )
        return Outcome(replace(state, models=models), trained.clients, _first(trained.clients))

    def newcomers(self, state: FedAvgState, clients: Indices) -> Asking[Assignments]:
        """A newcomer gets the one model."""
        yield from ()
        return nearest_by_loss(np.zeros((len(clients), 1)))


def _first(clients: Indices) -> Indices:
    return np.zeros(len(clients), dtype=np.int64)
