"""CLoVE: clustering of loss vector embeddings (algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome, ask_losses
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
from clove.algorithms.probes import PROBES, cluster_starts, random_probes, trained_probes
from clove.clustering import (
    MATCHINGS,
    TRANSFORMS,
    Assignments,
    assign_newcomers,
    match,
    stability_reached,
)
from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters, concatenate, count, pick
from clove.federation.questions import (
    Evaluate,
    Floats,
    LossVectors,
    Recall,
    Recalled,
    Seeded,
)

if TYPE_CHECKING:
    from clove.clustering import LossVectorClustering

CLUSTERINGS = ("kmeans", "agglomerative", "finch")
SELECTIONS = ("silhouette", "merge-ratio")


@dataclass(frozen=True)
class CloveState:
    """What the server keeps: models, the last clustering, and nothing per client."""

    models: Parameters
    round: int = 0  # how many rounds somebody answered
    clusters: int = 0  # how many to look for; 0: choose anew each round
    stopped: bool = False  # clustering is over: the assignments were stable
    measured: Parameters | None = None  # the models the last clustering's losses were measured on
    measured_seed: int = 0  # or, where clients made them from a seed: that seed, and how many
    measured_count: int = 0
    centroids: Floats | None = None
    model_of_cluster: Indices | None = None


@dataclass(frozen=True)
class Grouping:
    """Clients with the model each is to train, and what that was decided on."""

    clients: Indices
    assignment: Indices
    loss_vectors: LossVectors | None = None
    notes: dict[str, object] | None = None


@dataclass(frozen=True)
class Clove(Algorithm[CloveState]):
    """Cluster clients by the vectors of their losses on all server models.

    Each round every participant sends its losses on all K models; the server clusters these
    vectors, matches clusters to models at least total loss, lets each client train its cluster's
    model, and averages per model. Once the clients' assignments have been stable, `early_stopping`
    ends the clustering: from then on each client is sent one model only.

    Network: K models down and K losses up for each participant, then one model up; after early
    stopping one model each way. Defaults follow algorithm 1 as printed, but for early stopping,
    which is off as in the paper's main experiments; the authors' code starts supervised runs with
    `first_round="random"`.

    Parameters
    ----------
    models : K where it is known (default: the number of true groups, where the data know it).
    max_models : upper bound on K where it is unknown; K is then chosen every round.
    averaging, server_optimizer : "models" (option I) or "gradients" (option II) with the server's
        step: "sgd" is the paper's, "adam" the authors' code's.
    first_round : "evaluation" clusters from the first round on, "random" begins with a random
        assignment.
    initial_models : "different", "same", or "orthonormal" (linear model).
    transform : what is clustered: losses as they are ("identity"), "sqrt", "log", or "row" (each
        client's mean removed). Matching always uses the losses as they are.
    clustering, selection, selection_threshold, silhouette_margin, silhouette_repeats, n_init : see
        `clove.clustering.LossVectorClustering`.
    matching : "min-cost", or one of the ablation's, "in-order" and "overlap".
    early_stopping : stop clustering at stability. stable_rounds, stable_share : stability is
        declared when this share of participants had the same model for so many rounds.
    probes : "none", "trained" or "random": group the clients of the first round by their losses on
        probe models instead; see `clove.algorithms.probes`. probe_models, probe_epochs, probe_share
        are its settings (as many as 3K or max_models where trained, 100 where random). Where K is
        unknown, the probes decide it once and for all.
    batch_norm : in loss vectors, batch normalisation uses "running" or "batch" statistics.

    References
    ----------
    Bhatia, Papadis, Kodialam, Lakshman, Chakrabarty. CLoVE: Personalized Federated Learning through
    Clustering of Loss Vector Embeddings. ICML 2026.
    """

    models: int | None = None
    max_models: int | None = None
    averaging: str = "models"
    server_optimizer: str = "sgd"
    first_round: str = "evaluation"
    initial_models: str = "different"
    transform: str = "identity"
    clustering: str = "kmeans"
    selection: str = "silhouette"
    selection_threshold: float = 2.0
    silhouette_margin: float = 1.0
    silhouette_repeats: int = 1
    n_init: int = 10
    matching: str = "min-cost"
    early_stopping: bool = False
    stable_rounds: int = 3
    stable_share: float = 1.0
    probes: str = "none"
    probe_models: int | None = None
    probe_epochs: int = 3
    probe_share: float = 0.7
    batch_norm: str = "running"

    name = "clove"
    state_type = CloveState
    clusters = True

    def __post_init__(self) -> None:
        known = {
            "first_round": FIRST_ROUND,
            "transform": TRANSFORMS,
            "clustering": CLUSTERINGS,
            "selection": SELECTIONS,
            "matching": MATCHINGS,
            "probes": PROBES,
            "batch_norm": BATCH_NORM,
        }
        check_names(self, known)
        if self.models is not None and self.max_models is not None:
            raise CloveError("set models (K is known) or max_models (K is unknown), not both")
        for option in ("max_models", "probe_models", "probe_epochs", "n_init"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise CloveError(f"{option} must be 1 or more, not {value}")
        check_stability(self.stable_rounds, self.stable_share)
        if not 0 < self.probe_share <= 1:
            raise CloveError(f"probe_share must be in (0, 1], not {self.probe_share}")
        Averaging(self.averaging, self.server_optimizer)
        try:
            self._estimator(1)._validate_params()
        except ValueError as error:
            raise CloveError(str(error)) from None

    def begin(self) -> CloveState:
        """Make the server's models: K, or as many as K may be."""
        if self.max_models is not None:
            most = min(self.max_models, self.setup.clients)
            return CloveState(self.setup.initial(most, self.initial_models))
        hint = ", or max_models if K is unknown"
        number = number_of_models(self.name, self.models, self.setup, hint)
        return CloveState(self.setup.initial(number, self.initial_models), clusters=number)

    def server_models(self, state: CloveState) -> Parameters:
        """Return the server's models."""
        return state.models

    def evaluation(self, state: CloveState, clients: Indices) -> Evaluate:
        """Every client uses the model it was last assigned to."""
        return Evaluate(state.models, clients)

    def round(self, state: CloveState, cohort: Indices) -> Asking[Outcome[CloveState]]:
        """Group the participants, let each group train its model, and average."""
        state, grouping = yield from self._group(state, cohort)
        models, trained = yield from train_groups(
            state.models,
            grouping.assignment,
            grouping.clients,
            self.setup.training,
            Averaging(self.averaging, self.server_optimizer),
            self.stable_rounds,
        )
        replied = np.isin(grouping.clients, trained.clients)
        stable = (
            trained.stable is not None
            and state.centroids is not None  # a random assignment is nothing to stop at
            and stability_reached(trained.stable, self.stable_share)
        )
        stopped = state.stopped or (stable and self.early_stopping)
        number = state.round + (len(grouping.clients) > 0)
        return Outcome(
            state=replace(state, models=models, round=number, stopped=stopped),
            clients=grouping.clients[replied],
            assignment=grouping.assignment[replied],
            stable=stable,
            loss_vectors=grouping.loss_vectors,
            notes=grouping.notes or {},
        )

    # ------------------------------------------------------------------------------- grouping

    def _group(self, state: CloveState, cohort: Indices) -> Asking[tuple[CloveState, Grouping]]:
        if state.stopped:
            return state, (yield from self._remembered(state, cohort))
        if state.round == 0 and self.probes != "none":
            return (yield from self._by_probes(state, cohort))
        if state.round == 0 and self.first_round == "random":
            number = count(state.models)
            return state, Grouping(cohort, random_assignment(self.setup.seed, cohort, number))
        return (yield from self._by_loss_vectors(state, cohort))

    def _by_loss_vectors(
        self, state: CloveState, cohort: Indices
    ) -> Asking[tuple[CloveState, Grouping]]:
        """Cluster the participants' losses on all models, and match clusters to models."""
        statistics = self._batch_statistics()
        vectors, aside = yield from ask_losses(state.models, cohort, statistics)
        if len(vectors.clients) == 0:
            return state, Grouping(vectors.clients, vectors.clients, notes=_notes(aside))
        found = self._estimator(state.clusters).fit(vectors.losses)
        previous = None
        if self.matching == "overlap":
            recalled: Recalled = yield Recall(vectors.clients)
            previous = np.full(self.setup.clients, -1)
            previous[recalled.clients] = recalled.models
            previous = previous[vectors.clients]
        matched = match(found.labels_, vectors.losses, self.matching, previous)
        state = replace(
            state,
            measured=state.models,
            measured_count=0,
            centroids=found.cluster_centers_,
            model_of_cluster=matched,
        )
        return state, Grouping(
            vectors.clients, matched[found.labels_], vectors, _notes(aside, found)
        )

    def _by_probes(self, state: CloveState, cohort: Indices) -> Asking[tuple[CloveState, Grouping]]:
        """Cluster the participants' losses on probes; clusters start from their own probes."""
        statistics = self._batch_statistics()
        if self.probes == "trained":
            number = self.probe_models or (3 * state.clusters or count(state.models))
            probes, vectors, aside = yield from trained_probes(self, cohort, number, statistics)
        else:
            seeded = self._random_probes()
            probes, vectors, aside = yield from random_probes(seeded, cohort, statistics)
        if len(vectors.clients) == 0:
            return state, Grouping(vectors.clients, vectors.clients, notes=_notes(aside))
        found = self._estimator(state.clusters).fit(vectors.losses)
        number = state.clusters or found.n_clusters_
        models = pick(state.models, np.arange(number))
        if probes is not None:
            models = concatenate(
                [
                    cluster_starts(probes, vectors, found.labels_),
                    pick(models, np.arange(found.n_clusters_, number)),
                ]
            )
        state = replace(
            state,
            models=models,
            clusters=number,
            measured=None if probes is None else probes.models,
            measured_seed=self._random_probes().seed,
            measured_count=self._random_probes().count if probes is None else 0,
            centroids=found.cluster_centers_,
            model_of_cluster=np.arange(found.n_clusters_),
        )
        return state, Grouping(vectors.clients, found.labels_, vectors, _notes(aside, found))

    def _remembered(self, state: CloveState, cohort: Indices) -> Asking[Grouping]:
        """After stability: everyone keeps its model, newcomers get the nearest cluster's."""
        recalled: Recalled = yield Recall(cohort)
        new = recalled.clients[recalled.models < 0]
        if len(new) == 0:
            return Grouping(recalled.clients, recalled.models)
        vectors, aside = yield from self._measured_losses(state, new)
        models = np.full(self.setup.clients, -1)
        models[recalled.clients] = recalled.models
        models[vectors.clients] = self._nearest(state, vectors.losses).models
        clients = recalled.clients[models[recalled.clients] >= 0]
        return Grouping(clients, models[clients], notes=_notes(aside))

    # ------------------------------------------------------------------------------ newcomers

    def newcomers(self, state: CloveState, clients: Indices) -> Asking[Assignments]:
        """Assign by the centroids of the last clustering (at stability, the one it ended with).

        Distances are by model; a model without a cluster is infinitely far.
        """
        vectors, aside = yield from self._measured_losses(state, clients)
        if aside:
            raise CloveError("a newcomer's losses are not finite: check its data")
        return self._nearest(state, vectors.losses)

    def _measured_losses(
        self, state: CloveState, clients: Indices
    ) -> Asking[tuple[LossVectors, list[int]]]:
        models: Parameters | Seeded = state.models if state.measured is None else state.measured
        if state.measured_count:
            models = Seeded(state.measured_seed, state.measured_count)
        return (yield from ask_losses(models, clients, self._batch_statistics()))

    def _nearest(self, state: CloveState, losses: Floats) -> Assignments:
        if state.centroids is None or state.model_of_cluster is None:
            raise CloveError("nothing has been clustered yet: run more rounds")
        found = assign_newcomers(losses, state.centroids, state.model_of_cluster, self.transform)
        by_model = np.full((len(losses), count(state.models)), np.inf)
        by_model[:, state.model_of_cluster] = found.distances
        return replace(found, distances=by_model)

    # -------------------------------------------------------------------------------- helpers

    def _estimator(self, clusters: int) -> LossVectorClustering:
        from clove.clustering import LossVectorClustering  # slow to load, so when needed

        return LossVectorClustering(
            n_clusters=clusters or "auto",
            max_clusters=min(self.max_models or 15, self.setup.clients),
            selection=self.selection,
            selection_threshold=self.selection_threshold,
            silhouette_margin=self.silhouette_margin,
            silhouette_repeats=self.silhouette_repeats,
            method=self.clustering,
            transform=self.transform,
            n_init=self.n_init,
            random_state=seeds.integer(self.setup.seed, "clustering") % 2**32,
        )

    def _random_probes(self) -> Seeded:
        return Seeded(seeds.integer(self.setup.seed, "random-probes"), self.probe_models or 100)

    def _batch_statistics(self) -> int:
        return self.setup.training.batch_size if self.batch_norm == "batch" else 0


def _notes(aside: list[int], found: LossVectorClustering | None = None) -> dict[str, object]:
    notes: dict[str, object] = {}
    if found is not None:
        notes["clusters"] = int(found.n_clusters_)
        if found.choice_ is not None:
            notes["runner_up"] = found.runner_up_
        if found.sample_size_ is not None:
            notes["clustering_sample"] = found.sample_size_
    if aside:
        notes["set_aside"] = aside
    return notes
