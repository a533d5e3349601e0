"""FedPAC: features that mean the same to everybody, and heads combined for each client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome
from clove.algorithms.combining import combining_weights, feature_statistics, out_of_order
from clove.algorithms.grouped import check_names
from clove.algorithms.local import KEPT
from clove.algorithms.one_model import first_model
from clove.algorithms.prototypes import (
    AVERAGES,
    averaged_prototypes,
    check_classes,
    set_aside_not_finite,
    towards,
)
from clove.errors import CloveError
from clove.federation.parameters import (
    Indices,
    Parameters,
    combined,
    concatenate,
    pick,
    replace_rows,
)
from clove.federation.questions import (
    Evaluate,
    Kept,
    LocalTraining,
    Summaries,
    Summary,
    Train,
    Trained,
)
from clove.federation.server_step import averaged
from clove.federation.summaries import class_means

MEASURED = ("combined", "trained")
INDICES = ("corrected", "pfllib")


@dataclass(frozen=True)
class FedPacState:
    """The shared model, the heads of clients that have one of their own, and global centroids.

    `owners` are the numbers of those clients, in order; everybody else has the shared model's head,
    which stays as it was made.
    """

    models: Parameters
    heads: Parameters = field(default_factory=dict)
    owners: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    prototypes: Parameters = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True)
class FedPac(Algorithm[FedPacState]):
    """One body for everybody, aligned class by class, and for each client a mixture of heads.

    A participant trains its head with the body fixed, then the body with the head fixed, with λ
    times the mean squared distance of features to the global centroid of their class added to the
    loss. The server averages bodies by sample counts, and centroids by those of the class. For each
    client it mixes all heads by the weights that promise the least error: a quadratic program of
    the clients' feature statistics, which weighs variance (few samples) against bias (other data).

    Network: a model (the body, one's own head) and the centroids down; model, mean features and
    number of samples of each class, and the feature statistics (as much again, and a number) up.

    Parameters
    ----------
    alignment_weight : λ, 1 in the authors' code and in PFLlib, which CLoVE's authors compared with.
    head_epochs : passes over the data to train the head, 1 in the paper. The body gets the run's
        `local_epochs`; 5 in the authors' code.
    head_learning_rate : the head's learning rate; 0.1 in the authors' code (with SGD, and 0.01 for
        the body). None: the run's, as in PFLlib.
    least_weight : weights of heads below it are cut off, and the others made to sum to one, as in
        the authors' code; 0.001 there and in PFLlib (which leaves the sum below one), 0 in the
        paper.
    prototype_average : clients' centroids of a class count by "samples" of it (the paper), or all
        the same, by "clients" (PFLlib).
    measured : the "combined" model, averaged body and mixed head (the paper's personal model,
        PFLlib), or the client's as "trained", before the server's step.
    indices : "corrected", or "pfllib". PFLlib's server, which CLoVE's authors compared with, has
        the clients' statistics in one order and their heads in another, both drawn anew each round,
        and mixes heads in place: clients get mixtures that were meant for others, of heads that are
        mixed already.

    Statistics are taken with the body as it was sent, as in the authors' code, centroids with the
    trained one. In the first round there are no centroids to align with, and later a class without
    one is not aligned (the authors' code draws it to the client's own).

    References
    ----------
    Xu, Tong, Huang. Personalized Federated Learning with Feature Alignment and Classifier
    Collaboration. ICLR 2023.
    """

    alignment_weight: float = 1.0
    head_epochs: int = 1
    head_learning_rate: float | None = None
    least_weight: float = 0.0
    prototype_average: str = "samples"
    measured: str = "combined"
    indices: str = "corrected"

    name = "fedpac"
    state_type = FedPacState
    personal = True

    def __post_init__(self) -> None:
        known = {"measured": MEASURED, "indices": INDICES, "prototype_average": AVERAGES}
        check_names(self, known)
        if not self.alignment_weight >= 0:
            raise CloveError(f"alignment_weight must not be negative, not {self.alignment_weight}")
        if self.head_epochs < 1:
            raise CloveError(f"head_epochs must be 1 or more, not {self.head_epochs}")
        if self.head_learning_rate is not None and not self.head_learning_rate > 0:
            raise CloveError(
                f"head_learning_rate must be above zero, not {self.head_learning_rate}"
            )
        if not 0 <= self.least_weight < 1:
            raise CloveError(f"least_weight must be in [0, 1), not {self.least_weight}")

    @property
    def head_training(self) -> LocalTraining:
        """How clients train their heads."""
        plain = self.setup.training
        rate = self.head_learning_rate or plain.learning_rate
        return replace(plain, learning_rate=rate, epochs=self.head_epochs, purpose="head-batches")

    def begin(self) -> FedPacState:
        """Make the model that everybody starts from."""
        check_classes(self.name, self.setup)
        return FedPacState(self.setup.initial(1, "same"))

    def server_models(self, state: FedPacState) -> Parameters:
        """Return the model of each client: the shared body with its head."""
        return models_for(state, np.arange(self.setup.clients))

    def evaluation(self, state: FedPacState, clients: Indices) -> Evaluate:
        """Every client uses the shared body with its head, or what it trained."""
        if self.measured == "trained":
            return Evaluate(Kept(KEPT), clients)
        return Evaluate(models_for(state, clients), clients, np.arange(len(clients)))

    def round(self, state: FedPacState, cohort: Indices) -> Asking[Outcome[FedPacState]]:
        """Train heads, then bodies; average bodies and centroids, and combine heads."""
        heads: Trained = yield Train(
            models_for(state, cohort),
            np.arange(len(cohort)),
            cohort,
            self.head_training,
            keep=KEPT,
            only="head",
            send="head",
        )
        clients = heads.clients
        statistics: Summaries = yield Summary(feature_statistics, clients, Kept(KEPT))
        objective, extras = towards(state.prototypes, self.alignment_weight)
        bodies: Trained = yield Train(
            Kept(KEPT),
            first_model(clients),
            clients,
            self.setup.training,
            objective,
            extras,
            reduce=first_model(clients),
            keep=KEPT,
            only="body",
            send="body",
        )
        means: Summaries = yield Summary(class_means, bodies.clients, Kept(KEPT))
        after = replace(
            self._combined(state, heads, set_aside_not_finite(statistics)),
            models=averaged(state.models, bodies),
            prototypes=averaged_prototypes(state.prototypes, means, self.prototype_average),
            round=state.round + 1,
        )
        return Outcome(after, bodies.clients, bodies.clients)

    def _combined(self, state: FedPacState, heads: Trained, statistics: Summaries) -> FedPacState:
        """Give every client that told its statistics a mixture of their heads."""
        clients, values = statistics.clients, statistics.values
        if heads.models is None or not len(clients):
            return state
        weights = combining_weights(values["variance"], values["shares"], self.least_weight)
        if self.indices == "pfllib":
            draw = seeds.stream(self.setup.seed, "orders-of-heads", state.round)
            weights = out_of_order(
                weights, draw.permutation(len(weights)), draw.permutation(len(weights))
            )
        told = np.flatnonzero(np.isin(heads.clients, clients))
        mixed = combined(pick(heads.models, told), weights)
        others = np.flatnonzero(~np.isin(state.owners, clients))
        owners = np.concatenate([state.owners[others], clients])
        if len(others):
            mixed = concatenate([pick(state.heads, others), mixed])
        order = np.argsort(owners)
        return replace(state, heads=pick(mixed, order), owners=owners[order])


def models_for(state: FedPacState, clients: Indices) -> Parameters:
    """Return each client's model: the shared body, and its own head where it has one."""
    shared = {name: t.expand(len(clients), *t.shape[1:]) for name, t in state.models.items()}
    has = np.isin(clients, state.owners)
    if not has.any():
        return shared
    own = pick(state.heads, np.searchsorted(state.owners, clients[has]))
    return replace_rows(shared, np.flatnonzero(has), own)
