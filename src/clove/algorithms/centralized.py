"""Centralized training: not federated, but the upper reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clove.algorithms.base import Algorithm, Asking, Outcome, ask_losses, nearest_by_loss
from clove.algorithms.grouped import Averaging, check_names, train_groups
from clove.clustering import Assignments
from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Evaluate

POOLS = ("groups", "all")


@dataclass(frozen=True)
class CentralizedState:
    """A model for each pool of data."""

    models: Parameters


@dataclass(frozen=True)
class Centralized(Algorithm[CentralizedState]):
    """Put clients' data together and train on them: what federated methods can hope for at best.

    Before the run begins, all training data of a pool are handed to its first client, and only
    those clients train, `local_epochs` a round. Every client is measured on its own test data with
    the model of its pool. It takes no notice of participation, and has no
    stragglers: a pool is no client that could fail to reply.

    Network: this is no federated method. Data leave their clients, which the run's bytes do not
    count: they are one model down and one up for each pool.

    Parameters
    ----------
    pool : "groups", one model for each true group of clients, which must be known; "all", one model
        on everything, as in the code of CLoVE's authors.
    """

    pool: str = "groups"

    name = "centralized"
    state_type = CentralizedState
    reference = True

    def __post_init__(self) -> None:
        check_names(self, {"pool": POOLS})

    def pools(self, groups: Indices | None) -> Indices:
        """Every true group is a pool, or there is only one."""
        if self.pool == "all":
            return np.zeros(self.setup.clients, dtype=np.int64)
        if groups is None:
            raise CloveError("the clients' true groups are not known: set pool=all")
        return np.unique(groups, return_inverse=True)[1].astype(np.int64)

    @property
    def pool_of(self) -> Indices:
        """The pool of each client."""
        if self.setup.pools is None:
            raise CloveError(
                "centralized is no federated method: it needs the clients' data in one place, and "
                "can only be simulated"
            )
        return self.setup.pools

    def begin(self) -> CentralizedState:
        """Make a model for each pool."""
        return CentralizedState(self.setup.initial(int(self.pool_of.max()) + 1, "different"))

    def server_models(self, state: CentralizedState) -> Parameters:
        """Return the models."""
        return state.models

    def evaluation(self, state: CentralizedState, clients: Indices) -> Evaluate:
        """Every client uses the model of its pool."""
        return Evaluate(state.models, clients, self.pool_of[clients])

    def round(self, state: CentralizedState, cohort: Indices) -> Asking[Outcome[CentralizedState]]:
        """Go on training on every pool."""
        pools, holders = np.unique(self.pool_of, return_index=True)
        models, _ = yield from train_groups(
            state.models, pools, holders, self.setup.training, Averaging()
        )
        return Outcome(replace(state, models=models), cohort, self.pool_of[cohort])

    def newcomers(self, state: CentralizedState, clients: Indices) -> Asking[Assignments]:
        """A newcomer gets the model of least loss."""
        vectors, aside = yield from ask_losses(state.models, clients, 0)
        if aside:
            raise CloveError("a newcomer's losses are not finite: check its data")
        return nearest_by_loss(vectors.losses)
