"""Local-only: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome
from clove.federation.parameters import Indices
from clove.federation.questions import Evaluate, Kept, Seeded, Train, Trained

KEPT = "model"


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
        return Evaluate(self._own(), clients)

    def round(self, state: LocalState, cohort: Indices) -> Asking[Outcome[LocalState]]:
        """Let every participant go on training its own model."""
        trained: Trained = yield Train(self._own(), cohort, cohort, self.setup.training, keep=KEPT)
        return Outcome(LocalState(state.round + 1), trained.clients, trained.clients)

    def _own(self) -> Kept:
        return Kept(KEPT, otherwise=Seeded(seeds.integer(self.setup.seed, "initial", 0)))
