"""FedGWC: clients grouped by how their losses in training stand in the round's cohort."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist, squareform

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome, ask_losses, nearest_by_loss
from clove.algorithms.grouped import check_names
from clove.algorithms.one_shot import with_room
from clove.clustering import Assignments
from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters, concatenate, pick
from clove.federation.questions import Evaluate, Flags, Floats, Train, Trained
from clove.federation.server_step import averaged

LEAST_VARIANCE = 1e-16  # so that rounding does not count as a difference
ALIKE = 1e-9  # affinities that differ by less are the same
REWARDS = ("shares", "plain")
PERCEPTIONS = ("rows", "columns")


@dataclass(frozen=True)
class FedGwcState:
    """Models, each client's, and how clients fare with each other (P)."""

    models: Parameters
    model_of: Indices  # of each client; -1: it joined late, and has not taken part
    interactions: Floats  # P: a row a client, of its rewards in company of every other
    seen: Flags  # which clients have taken part
    change: Floats  # of each group's part of P, mean square, a running mean
    calm: Indices  # for how many rounds that has been small, by group


def gaussian_rewards(losses: Floats) -> Floats:
    """Return each client's reward: how near its loss is to the cohort's mean, over all steps.

    `losses` has a row a client and a column a step, NaN where a client made none.

    >>> gaussian_rewards(np.array([[1.0, 3.0], [2.0, 3.0], [3.0, 3.0]])).round(3)
    array([0.803, 1.   , 0.803])
    """
    there = ~np.isnan(losses)
    number = there.sum(axis=0)
    means = np.nansum(losses, axis=0) / np.maximum(number, 1)
    apart = np.where(there, losses - means, 0.0) ** 2
    variance = apart.sum(axis=0) / np.maximum(number - 1, 1) + LEAST_VARIANCE
    rewards = np.where(there, np.exp(-apart / (2 * variance)), 0.0)
    mean: Floats = rewards.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return mean


def affinity(perceptions: Floats, kernel: float) -> Floats:
    """Return how alike every two clients are perceived, leaving out the two themselves.

    That is exp(-β ‖v_k - v_j‖²), v_k being row k, scaled to [0, 1], without the entries k and j.

    >>> affinity(np.array([[1.0, 0.0, 0.5], [0.2, 0.9, 0.5], [0.0, 1.0, 0.3]]), 1.0)[0, 1]
    np.float64(1.0)
    """
    low, high = perceptions.min(), perceptions.max()
    v = (perceptions - low) / (high - low if high > low else 1.0)
    own = np.diagonal(v)
    apart = cdist(v, v, "sqeuclidean") - (own[:, None] - v.T) ** 2 - (v - own[None, :]) ** 2
    alike: Floats = np.exp(-kernel * np.clip(apart, 0.0, None))
    np.fill_diagonal(alike, 0.0)
    return alike


def split(alike: Floats, most: int, seed: int) -> Indices:
    """Return the groups of the spectral clustering that is best by Davies and Bouldin's index.

    All clients stay in one group where no index is below 1, where they are too few to tell, and
    where all are equally alike.
    """
    from sklearn.cluster import SpectralClustering  # slow to load, so when needed
    from sklearn.manifold import spectral_embedding
    from sklearn.metrics import davies_bouldin_score

    best, labels = 1.0, np.zeros(len(alike), dtype=np.int64)
    if np.ptp(squareform(alike, checks=False)) < ALIKE:
        return labels
    for number in range(2, min(most, len(alike) - 2) + 1):
        options = {"n_components": number, "random_state": seed % 2**32}
        found = SpectralClustering(
            number, affinity="precomputed", assign_labels="cluster_qr", **options
        ).fit_predict(alike)
        if len(np.unique(found)) < number:
            continue
        index = davies_bouldin_score(spectral_embedding(alike, **options), found)
        if index < best:
            best, labels = index, found.astype(np.int64)
    return labels


@dataclass(frozen=True)
class FedGwc(Algorithm[FedGwcState]):
    """Split groups of clients by how their losses in local training compare, again and again.

    Clients train by FedAvg and report their loss at every local step. At each step a client's
    reward is exp(-(loss - mean)² / 2σ²), mean and σ being of the group's participants; averaged
    over steps, it moves the running means P_kj of client k's reward in company of client j. Once a
    group's P hardly changes, the group is split by spectral clustering on a Gaussian kernel between
    rows of P, into as many parts as are best by Davies and Bouldin's index, each with a copy of the
    model. Needs no labels.

    Network: one model down, one model and a number for each local step up for each participant. The
    server keeps P, quadratic in the number of clients.

    Parameters
    ----------
    kernel : β of the Gaussian kernel, 0.1 (the default of the authors' program).
    tolerance : ε: P is settled when its mean squared change, a running mean itself, stays below
        this for as many rounds as it takes everybody to take part once; 1e-5 (theirs).
    weight_step : weight of the new reward in the running means. None: the share of the group's
        clients that took part, as in their code.
    rewards : "shares" of the participants' sum, as in their code; "plain".
    perception : what clients are compared by: "rows" of P, a client's own rewards in all company;
        "columns", everybody's rewards in company of the client, as in their code. With everybody
        taking part, columns are all the same, and nothing is ever split.
    most_parts : the most groups that one is split into, 4 as in their code.

    We could read the authors' code and the abstract, not the whole paper, and follow the code, but
    for this: mean and variance of the losses are plain rather than weighted by sample counts, and
    the variance divides by n - 1; a group may be split however few its clients, once each has taken
    part (they split only where each part can fill a cohort of its own, since they draw cohorts by
    group; here participants are drawn from all clients); P begins with zeros. Their score of
    Wasserstein type measures clusterings and takes no part in the method. Where fewer than ten take
    part, they add losses drawn from a normal distribution; we do not. For newcomers, and for
    clients that join a run late, they have nothing; here these get the model of least loss.

    References
    ----------
    Licciardi, Leo, Fanì, Caputo, Ciccone. Interaction-Aware Gaussian Weighting for Clustered
    Federated Learning. ICML 2025.
    """

    kernel: float = 0.1
    tolerance: float = 1e-5
    weight_step: float | None = None
    rewards: str = REWARDS[0]
    perception: str = PERCEPTIONS[0]
    most_parts: int = 4

    name = "fedgwc"
    state_type = FedGwcState
    clusters = True

    def __post_init__(self) -> None:
        check_names(self, {"rewards": REWARDS, "perception": PERCEPTIONS})
        for option in ("kernel", "tolerance"):
            if not getattr(self, option) > 0:
                raise CloveError(f"{option} must be above zero, not {getattr(self, option)}")
        if self.weight_step is not None and not 0 < self.weight_step <= 1:
            raise CloveError(f"weight_step must be in (0, 1], not {self.weight_step}")
        if self.most_parts < 2:
            raise CloveError(f"most_parts must be 2 or more, not {self.most_parts}")

    def begin(self) -> FedGwcState:
        """Make the one model everybody starts with."""
        clients = self.setup.clients
        return FedGwcState(
            models=self.setup.initial(1, "same"),
            model_of=np.zeros(clients, dtype=np.int64),
            interactions=np.zeros((clients, clients)),
            seen=np.zeros(clients, dtype=np.bool_),
            change=np.ones(1),
            calm=np.zeros(1, dtype=np.int64),
        )

    def server_models(self, state: FedGwcState) -> Parameters:
        """Return the groups' models."""
        return state.models

    def evaluation(self, state: FedGwcState, clients: Indices) -> Evaluate:
        """Every client uses its group's model."""
        grouped = clients[state.model_of[clients] >= 0]
        return Evaluate(state.models, grouped, state.model_of[grouped])

    def round(self, state: FedGwcState, cohort: Indices) -> Asking[Outcome[FedGwcState]]:
        """Train and average per group, see how the clients' losses compare, and split."""
        state = yield from self._joined(state, cohort)
        cohort = cohort[state.model_of[cohort] >= 0]
        start = state.model_of[cohort]
        trained: Trained = yield Train(
            state.models, start, cohort, self.setup.training, reduce=start, report_losses=True
        )
        clients = trained.clients
        assignment = state.model_of[clients]  # what they trained: splits come after
        state = replace(state, models=averaged(state.models, trained), seen=state.seen.copy())
        state.seen[clients] = True
        if trained.losses is not None:
            for group in np.unique(assignment):
                state = self._noted(state, int(group), clients, trained.losses)
                state = self._split(state, int(group), int((assignment == group).sum()))
        notes = {"clusters": len(state.change)}
        return Outcome(state, clients, state.model_of[clients], notes=notes)

    def newcomers(self, state: FedGwcState, clients: Indices) -> Asking[Assignments]:
        """A newcomer gets the model of least loss."""
        vectors, aside = yield from ask_losses(state.models, clients, 0)
        if aside:
            raise CloveError("a newcomer's losses are not finite: check its data")
        return nearest_by_loss(vectors.losses)

    def _joined(self, state: FedGwcState, cohort: Indices) -> Asking[FedGwcState]:
        """Make room for clients that joined since; participants get the model of least loss."""
        late = self.setup.clients - len(state.model_of)
        model_of = with_room(state.model_of, self.setup.clients)
        new = cohort[model_of[cohort] < 0]
        if len(new):
            vectors, _ = yield from ask_losses(state.models, new, 0)
            model_of[vectors.clients] = vectors.losses.argmin(axis=1)
        return replace(
            state,
            model_of=model_of,
            interactions=np.pad(state.interactions, (0, late)),
            seen=np.pad(state.seen, (0, late)),
        )

    def _noted(
        self, state: FedGwcState, group: int, clients: Indices, losses: Floats
    ) -> FedGwcState:
        """Move the part of P that belongs to a group's participants."""
        mine = state.model_of[clients] == group
        members = clients[mine]
        if len(members) < 2:  # alone, there is nobody to be compared with
            return state
        rewards = gaussian_rewards(losses[mine])
        if self.rewards == "shares":
            rewards = rewards / rewards.sum()
        step = self.weight_step or len(members) / (state.model_of == group).sum()
        block, interactions = np.ix_(members, members), state.interactions.copy()
        moved = step * (rewards[:, None] - interactions[block])
        interactions[block] += moved
        change, calm = state.change.copy(), state.calm.copy()
        change[group] += step * ((moved**2).mean() - change[group])
        calm[group] = calm[group] + 1 if change[group] < self.tolerance else 0
        return replace(state, interactions=interactions, change=change, calm=calm)

    def _split(self, state: FedGwcState, group: int, participants: int) -> FedGwcState:
        """Split a group whose part of P is settled; the first part keeps its place."""
        members = np.flatnonzero(state.model_of == group)
        patience = max(1, round(len(members) / participants))
        if state.calm[group] < patience or not state.seen[members].all():
            return state
        part = state.interactions[np.ix_(members, members)]
        alike = affinity(part if self.perception == "rows" else part.T, self.kernel)
        labels = split(alike, self.most_parts, seeds.integer(self.setup.seed, "clustering"))
        new = int(labels.max())
        change, calm = state.change.copy(), state.calm.copy()
        change[group], calm[group] = 1.0, 0
        model_of = state.model_of.copy()
        model_of[members] = np.where(labels > 0, len(change) - 1 + labels, group)
        copies = pick(state.models, np.full(new, group))
        return replace(
            state,
            models=concatenate([state.models, copies]) if new else state.models,
            model_of=model_of,
            change=np.concatenate([change, np.ones(new)]),
            calm=np.concatenate([calm, np.zeros(new, dtype=np.int64)]),
        )
