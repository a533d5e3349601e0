"""FlexCFL (FedGroup): clients are grouped once, by the directions of a short training."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome, nearest_by_loss
from clove.algorithms.grouped import Averaging, check_stability, number_of_models, train_groups
from clove.algorithms.one_shot import with_room
from clove.algorithms.updates import Updates, ask_updates, shares_of
from clove.clustering import Assignments, stability_reached
from clove.clustering.arrays import number_by_first_member
from clove.errors import CloveError
from clove.federation.parameters import (
    Indices,
    Parameters,
    combined,
    count,
    pick,
    replace_rows,
    squared_lengths,
)
from clove.federation.questions import Evaluate, Flags, Floats


@dataclass(frozen=True)
class FlexCflState:
    """The groups' models, the model all pre-train, the groups' directions, and who is in which."""

    models: Parameters
    initial: Parameters
    directions: Parameters | None = None  # the mean update of each group's pre-training
    # The group of each client; -1: it has not pre-trained yet.
    group_of: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class FlexCfl(Algorithm[FlexCflState]):
    """Group clients once, by the directions in which a short training takes one initial model.

    In the first round some clients, drawn from all, pre-train one model, whoever takes part. Their
    updates are decomposed into as many directions as there are to be groups (truncated SVD), and
    k-means groups the clients by their updates' cosines with these: by Euclidean distance of
    decomposed cosine similarity (EDC). Groups then train by FedAvg, each beginning with the mean of
    its pre-trained models, and are never changed. All other clients, newcomers too, pre-train the
    initial model when they first take part and join the group whose mean pre-training update is
    most like theirs. (The paper also moves clients whose labels change during the run to another
    group; here a client's data are the same throughout.)

    Network: one model down and one up for pre-training, once for each client; then one model each
    way in every round, and each participant's group.

    Parameters
    ----------
    models : the number of groups (default: the number of true groups, where the data know it).
    pretrained_per_group : clients that are drawn and clustered, for each group. 20 in the paper's
        code (`pretrain_scale`), which draws them from all clients before the first round.
    pretraining_steps : batches of pre-training; 50 in the paper's code.
    eta_g : inter-group learning rate: each model is moved by this times the sum of all others that
        trained in the round, each divided by its length. 0 by default in the paper's code: groups
        are on their own. (There the sum is a weighted mean.)
    n_init : the starts of k-means.
    stable_rounds, stable_share : when assignments count as stable, for the report only.

    Of the clients drawn, some may not answer (on a network, those that are away): participants of
    the first round take their places. If nobody answers, the next round tries again.

    References
    ----------
    Duan, Liu, Ji, Wu, Liang, Chen, Tan. Flexible Clustered Federated Learning for Client-Level Data
    Distribution Shift. IEEE Transactions on Parallel and Distributed Systems 33(11), 2022.
    Duan et al. FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering.
    ISPA 2021.
    """

    models: int | None = None
    pretrained_per_group: int = 20
    pretraining_steps: int = 50
    eta_g: float = 0.0
    n_init: int = 10
    stable_rounds: int = 3
    stable_share: float = 1.0

    name = "flexcfl"
    state_type = FlexCflState
    clusters = True

    def __post_init__(self) -> None:
        for option in ("pretrained_per_group", "pretraining_steps", "n_init"):
            if getattr(self, option) < 1:
                raise CloveError(f"{option} must be 1 or more, not {getattr(self, option)}")
        if not self.eta_g >= 0:
            raise CloveError(f"eta_g must not be negative, but is {self.eta_g}")
        check_stability(self.stable_rounds, self.stable_share)

    def begin(self) -> FlexCflState:
        """Make a model for each group, all the same as yet."""
        number = number_of_models(self.name, self.models, self.setup)
        models = self.setup.initial(number, "same")
        nowhere = np.full(self.setup.clients, -1)
        return FlexCflState(models, pick(models, np.array([0])), group_of=nowhere)

    def server_models(self, state: FlexCflState) -> Parameters:
        """Return the groups' models."""
        return state.models

    def evaluation(self, state: FlexCflState, clients: Indices) -> Evaluate:
        """Every client that has a group uses its model."""
        clients = clients[state.group_of[clients] >= 0]
        return Evaluate(state.models, clients, state.group_of[clients])

    def round(self, state: FlexCflState, cohort: Indices) -> Asking[Outcome[FlexCflState]]:
        """Find the group of those who have none yet; train and average in each group."""
        state, clients, groups = yield from self._grouped(state, cohort)
        models, trained = yield from train_groups(
            state.models, groups, clients, self.setup.training, Averaging(), self.stable_rounds
        )
        if self.eta_g and trained.weights is not None:
            models = between_groups(models, trained.weights > 0, self.eta_g, trained.values)
        replied = np.isin(clients, trained.clients)
        return Outcome(
            state=replace(state, models=models),
            clients=clients[replied],
            assignment=groups[replied],
            stable=trained.stable is not None
            and stability_reached(trained.stable, self.stable_share),
            notes={"clusters": len(np.unique(groups))},
        )

    # --------------------------------------------------------------------------------- grouping

    def _grouped(
        self, state: FlexCflState, cohort: Indices
    ) -> Asking[tuple[FlexCflState, Indices, Indices]]:
        """Return the participants that have a group, and which."""
        group_of = with_room(state.group_of, self.setup.clients)
        new = cohort[group_of[cohort] < 0]
        if state.directions is None:
            new = np.union1d(self._drawn[: self._founders(state)], new)
        found = (yield from self._pretrained(state, new)) if len(new) else None
        if found is not None:
            if state.directions is None:
                state, group_of[found.clients] = self._cold_start(state, found)
            else:
                group_of[found.clients] = found.cosines(state.directions).argmax(axis=1)
        clients = cohort[group_of[cohort] >= 0]
        return replace(state, group_of=group_of), clients, group_of[clients]

    @property
    def _drawn(self) -> Indices:
        """All clients, in the order in which they are drawn to found the groups."""
        return seeds.stream(self.setup.seed, "pretrained").permutation(self.setup.clients)

    def _founders(self, state: FlexCflState) -> int:
        return count(state.models) * self.pretrained_per_group

    def _pretrained(self, state: FlexCflState, clients: Indices) -> Asking[Updates | None]:
        """Let clients train the initial model for a few steps."""
        steps = self.pretraining_steps
        training = replace(
            self.setup.training, epochs=steps, steps=steps, purpose="pretraining-batches"
        )
        return (yield from ask_updates(state.initial, clients * 0, clients, training))

    def _cold_start(self, state: FlexCflState, found: Updates) -> tuple[FlexCflState, Indices]:
        """Group pre-trained clients; the means of some of them are the groups' first models."""
        number, asked = count(state.models), len(found.clients)
        turn = np.argsort(self._drawn)[found.clients]  # when each was drawn
        some = np.sort(np.argsort(turn)[: self._founders(state)])
        points = decomposed_cosines(found.products(some), number)
        chance = seeds.integer(self.setup.seed, "clustering") % 2**32
        from clove.clustering.kmeans import kmeans_labels  # slow to load, so when needed

        clusters = kmeans_labels(points, min(number, len(some)), self.n_init, chance)
        labels = number_by_first_member(clusters)  # rounding must not choose the numbers
        table = np.zeros((labels.max() + 1, asked))
        table[labels, some] = 1.0  # all count the same, as in the paper's code
        directions = combined(found.changes, shares_of(table))
        models = combined(found.models, shares_of(table))
        groups = found.cosines(directions).argmax(axis=1)
        groups[some] = labels
        used = np.arange(len(table))
        state = replace(
            state, models=replace_rows(state.models, used, models), directions=directions
        )
        return state, groups

    def newcomers(self, state: FlexCflState, clients: Indices) -> Asking[Assignments]:
        """Let newcomers pre-train, and find the group whose direction is most like theirs.

        Distances are the paper's normalised cosine dissimilarity, (1 - cosine) / 2.
        """
        if state.directions is None:
            raise CloveError("nothing has been clustered yet: run more rounds")
        found = yield from self._pretrained(state, clients)
        if found is None:
            raise CloveError("no newcomer replied")
        return nearest_by_loss((1 - found.cosines(state.directions)) / 2)


def decomposed_cosines(products: Floats, directions: int) -> Floats:
    """Return the cosines of vectors with the first singular directions of all of them together.

    Of the singular value decomposition A = U S Vᵀ of vectors (rows), the cosines with the rows of
    Vᵀ are the rows of U S, each divided by its vector's length; and U and S² are the eigenvectors
    and eigenvalues of the inner products. So the vectors themselves are not needed.
    """
    squared, left = np.linalg.eigh(products)
    first = np.argsort(-squared)[:directions]
    lengths = np.sqrt(products.diagonal())[:, None]
    along = left[:, first] * np.sqrt(np.maximum(squared[first], 0.0))
    cosines: Floats = np.divide(along, lengths, out=np.zeros_like(along), where=lengths > 0)
    return cosines


def between_groups(
    models: Parameters, trained: Flags, eta_g: float, statistics: Collection[str]
) -> Parameters:
    """Move each model that was trained by the others, each of length `eta_g`.

    Running statistics stay the groups' own: a sum of variances is none.
    """
    rows = np.flatnonzero(trained)
    own = pick(models, rows)
    lengths = np.sqrt(squared_lengths(own, statistics))
    shares = np.divide(eta_g, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    table = np.where(np.eye(len(rows), dtype=bool), 1.0, shares)
    moved = combined({n: t for n, t in own.items() if n not in statistics}, table)
    return replace_rows(models, rows, moved)
