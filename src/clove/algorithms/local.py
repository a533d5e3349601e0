"""Local-only: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome, Setup
from clove.federation.parameters import Indices
from clove.federation.questions import Evaluate, Kept, Seeded, Train, Trained

KEPT = "model"  # the name under which clients keep a model of their own


def own_model(setup: Setup) -> Kept:
    """Return the client's own model; before it has one, an initial one, the same for all."""
    return Kept(KEPT, otherwise=Seeded(seeds.integer(setup.seed, "initial", 0)))


@dataclass(frozen=True)
class LocalState:
    """The server keeps nothing."""

    round: int = 0


@dataclass(frozen=True)
class Local(Algorithm[LocalState]):
    """Each client trains a model of its own, which never leaves it: the lower reference.

    Network: a seed for the initial model, which is the same for all; no parameters.
    """

    name = "local"
    state_type = LocalState
    personal = True

    def begin(self) -> LocalState:
        """Start with nothing."""
        return LocalState()

    def server_models(self, state: LocalState) -> None:
        """Return nothing: models stay with the clients."""
        return

    def evaluation(self, state: LocalState, clients: Indices) -> Evaluate:
        """Every client uses its own model."""
        return Evaluate(own_model(self.setup), clients)

    def round(self, state: LocalState, cohort: Indices) -> Asking[Outcome[LocalState]]:
        """Let every participant go on training its own model."""
        own, training = own_model(self.setup), self.setup.training
        trained: Trained = yield Train(own, cohort, cohort, training, keep=KEPT)
        return Outcome(LocalState(state.round + 1), trained.clients, trained.clients)
