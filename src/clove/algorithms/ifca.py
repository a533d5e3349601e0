"""IFCA: the iterative federated clustering algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clove.algorithms.base import Algorithm, Asking, Outcome, ask_losses, nearest_by_loss
from clove.algorithms.grouped import (
    BATCH_NORM,
    FIRST_ROUND,
    Averaging,
    check_names,
    check_stability,
    number_of_models,
    random_assignment,
    train_groups,
)
from clove.clustering import Assignments, stability_reached
from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters, count
from clove.federation.questions import Evaluate, LossVectors


@dataclass(frozen=True)
class IfcaState:
    """The server's models."""

    models: Parameters
    round: int = 0


@dataclass(frozen=True)
class Ifca(Algorithm[IfcaState]):
    """Each client picks the server model on which its loss is least, and trains that one.

    Network: K models down and K losses up for each participant, then one model up.

    Parameters
    ----------
    models : K (default: the number of true groups, where the data know it).
    averaging, server_optimizer : "models" or "gradients", with the server's step ("sgd", "adam").
    first_round : "evaluation" as published; "random" begins with a random assignment, as in the
        code of CLoVE's authors.
    initial_models : "different", "same", or "orthonormal" (linear model).
    stable_rounds, stable_share : when assignments count as stable, for the report only.
    batch_norm : for the losses, batch normalisation uses "running" or "batch" statistics.

    References
    ----------
    Ghosh, Chung, Yin, Ramchandran. An Efficient Framework for Clustered Federated Learning.
    NeurIPS 2020.
    """

    models: int | None = None
    averaging: str = "models"
    server_optimizer: str = "sgd"
    first_round: str = "evaluation"
    initial_models: str = "different"
    stable_rounds: int = 3
    stable_share: float = 1.0
    batch_norm: str = "running"

    name = "ifca"
    state_type = IfcaState
    clusters = True

    def __post_init__(self) -> None:
        check_names(self, {"first_round": FIRST_ROUND, "batch_norm": BATCH_NORM})
        check_stability(self.stable_rounds, self.stable_share)
        Averaging(self.averaging, self.server_optimizer)

    def begin(self) -> IfcaState:
        """Make the K models."""
        number = number_of_models(self.name, self.models, self.setup)
        return IfcaState(self.setup.initial(number, self.initial_models))

    def server_models(self, state: IfcaState) -> Parameters:
        """Return the server's models."""
        return state.models

    def evaluation(self, state: IfcaState, clients: Indices) -> Evaluate:
        """Every client uses the model it picked last."""
        return Evaluate(state.models, clients)

    def round(self, state: IfcaState, cohort: Indices) -> Asking[Outcome[IfcaState]]:
        """Let each client pick its model and train it, and average per model."""
        vectors: LossVectors | None = None
        aside: list[int] = []
        if state.round == 0 and self.first_round == "random":
            clients = cohort
            chosen = random_assignment(self.setup.seed, cohort, count(state.models))
        else:
            vectors, aside = yield from self._losses(state, cohort)
            clients = vectors.clients
            chosen = vectors.losses.argmin(axis=1)
        models, trained = yield from train_groups(
            state.models,
            chosen,
            clients,
            self.setup.training,
            Averaging(self.averaging, self.server_optimizer),
            self.stable_rounds,
        )
        replied = np.isin(clients, trained.clients)
        notes = {"clusters": len(np.unique(chosen))}
        return Outcome(
            state=replace(state, models=models, round=state.round + 1),
            clients=clients[replied],
            assignment=chosen[replied],
            stable=trained.stable is not None
            and stability_reached(trained.stable, self.stable_share),
            loss_vectors=vectors,
            notes=notes | ({"set_aside": aside} if aside else {}),
        )

    def newcomers(self, state: IfcaState, clients: Indices) -> Asking[Assignments]:
        """A newcomer, too, picks the model of least loss."""
        vectors, aside = yield from self._losses(state, clients)
        if aside:
            raise CloveError("a newcomer's losses are not finite: check its data")
        return nearest_by_loss(vectors.losses)

    def _losses(self, state: IfcaState, clients: Indices) -> Asking[tuple[LossVectors, list[int]]]:
        statistics = self.setup.training.batch_size if self.batch_norm == "batch" else 0
        return (yield from ask_losses(state.models, clients, statistics))
