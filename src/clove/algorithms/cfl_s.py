"""CFL-S: clustered federated learning by recursive bipartition (Sattler et al.)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clove.algorithms.base import Algorithm, Asking, Outcome
from clove.algorithms.forks import Descent, descend
from clove.algorithms.grouped import check_names
from clove.algorithms.updates import WEIGHTINGS, Updates, ask_updates, shares_of
from clove.clustering import Assignments
from clove.errors import CloveError
from clove.federation.parameters import (
    Indices,
    Parameters,
    combined,
    concatenate,
    pick,
    squared_lengths,
)
from clove.federation.questions import Evaluate, Flags, Floats

INDICES = ("corrected", "as-published")
LINKAGES = ("single", "complete")
FEWEST_TO_SPLIT = 3  # two clients stay together, as in the authors' notebook


@dataclass(frozen=True)
class CflState:
    """Models, who has which, who is in which cluster, and where clusters were split."""

    models: Parameters
    model_of: Indices  # the model each client has
    members: Flags  # [clusters, clients]
    passed: Indices  # how many forks each client has passed
    forks: Indices  # [forks, 2]: the cluster that was split, and its second half
    fork_models: Parameters | None = None  # what was trained when it was split
    fork_updates: Parameters | None = None  # the mean update of each half, two for each fork
    round: int = 0


@dataclass(frozen=True)
class CflS(Algorithm[CflState]):
    """Split a cluster in two where its clients pull in different directions.

    All clients begin in one cluster. When a cluster's mean update has become short (below `eps1`)
    while a member's is still long (above `eps2`), what they agree on has been learned: the members
    are split in two by the cosine similarities of their updates, and each half goes on with a
    model of its own. So the number of clusters need not be known.

    The paper has all clients take part in every round. Where some do not, a split is decided by
    those who replied; a member that did not is left in the first half, and when it next takes part
    it first trains the model that was split and joins the half whose mean update is more like its
    own. Newcomers come down from the first cluster in the same way, as in the paper.

    Network: one model down and one up for each participant, whose update the server sees; one more
    each way for each split that a client missed.

    Parameters
    ----------
    eps1, eps2 : the thresholds. 0.4 and 1.6 are those of the authors' notebook, which trains by SGD
        with step size 0.1, falling by a hundredth a round (`learning_rate_decay=0.99`), and
        momentum 0.9, which clients keep from round to round (`keep_momentum`). How long updates are
        depends on network, optimiser and step size: with Adam, whose steps hardly shrink, others
        are needed.
    split_after : no splits in so many rounds at first. 20 in the notebook; the paper has no such
        rule.
    linkage : how similarities make two halves. "single" minimises the largest similarity between
        them, which is the paper's bipartition; "complete" is the notebook's.
    gamma_max : split only where sqrt((1 - α) / 2) is above this, α being the largest similarity
        between the halves: the paper's test of separation. 0: no test, as in the notebook.
    weighting : clients count "equal" in means, as in the notebook, or by "samples".
    indices : "corrected", or "as-published". The notebook takes places within a cluster for
        numbers of clients: a cluster of clients 3, 4, 7 that falls into places {0, 2} and {1}
        becomes clusters of clients 0, 2 and 1. From the second split on some clients so are in
        several clusters, and their models take all mean updates; others are in none, and theirs
        stand still.

    References
    ----------
    Sattler, Müller, Samek. Clustered Federated Learning: Model-Agnostic Distributed Multitask
    Optimization Under Privacy Constraints. IEEE Transactions on Neural Networks and Learning
    Systems 32(8), 2021.
    """

    eps1: float = 0.4
    eps2: float = 1.6
    split_after: int = 0
    linkage: str = "single"
    gamma_max: float = 0.0
    weighting: str = "equal"
    indices: str = "corrected"

    name = "cfl-s"
    state_type = CflState
    clusters = True

    def __post_init__(self) -> None:
        known = {"linkage": LINKAGES, "weighting": WEIGHTINGS, "indices": INDICES}
        check_names(self, known)
        for option in ("eps1", "eps2", "split_after"):
            if not getattr(self, option) >= 0:
                raise CloveError(f"{option} must not be negative, but is {getattr(self, option)}")
        if not 0 <= self.gamma_max < 1:
            raise CloveError(f"gamma_max must be in [0, 1), not {self.gamma_max}")

    def begin(self) -> CflState:
        """Put everybody into one cluster."""
        clients = self.setup.clients
        nobody = np.zeros(clients, dtype=np.int64)
        everybody = np.ones((1, clients), dtype=np.bool_)
        no_forks = np.zeros((0, 2), dtype=np.int64)
        return CflState(self.setup.initial(1, "same"), nobody, everybody, nobody, no_forks)

    def server_models(self, state: CflState) -> Parameters:
        """Return the clusters' models."""
        return state.models

    def evaluation(self, state: CflState, clients: Indices) -> Evaluate:
        """Every client uses its cluster's model."""
        return Evaluate(state.models, clients, state.model_of[clients])

    def round(self, state: CflState, cohort: Indices) -> Asking[Outcome[CflState]]:
        """Train, split the clusters that are ripe, and average in each."""
        state = yield from self._catch_up(state, cohort)
        found = yield from ask_updates(
            state.models, state.model_of[cohort], cohort, self.setup.training
        )
        state = replace(state, round=state.round + 1)
        if found is None:
            return Outcome(state, cohort[:0], cohort[:0])
        state = self._averaged(self._split(state, found), found)
        notes = {"clusters": len(state.members)}
        return Outcome(state, found.clients, state.model_of[found.clients], notes=notes)

    # -------------------------------------------------------------------------------- splitting

    def _split(self, state: CflState, found: Updates) -> CflState:
        """Split every cluster that is ripe, by the updates of those who replied."""
        if state.round <= self.split_after:
            return state
        members = state.members
        shares = shares_of(members[:, found.clients] * found.weights(self.weighting))
        means = np.sqrt(squared_lengths(combined(found.changes, shares), found.statistics))
        lengths = np.sqrt(squared_lengths(found.changes, found.statistics))
        for cluster in np.flatnonzero(means < self.eps1):
            present = np.flatnonzero(members[cluster, found.clients])
            if len(present) >= FEWEST_TO_SPLIT and lengths[present].max() > self.eps2:
                second = self._second_half(found.similarities(present))
                if second is not None:
                    state = self._in_two(state, int(cluster), present, second, found)
        passed = state.passed.copy()
        passed[found.clients] = len(state.forks)
        return replace(state, passed=passed)

    def _second_half(self, alike: Floats) -> Flags | None:
        """Return who leaves the cluster; None where the halves are not far enough apart."""
        second = bipartition(alike, self.linkage)
        apart = np.sqrt((1 - alike[~second][:, second].max()) / 2)
        return second if apart > self.gamma_max else None

    def _in_two(
        self, state: CflState, cluster: int, present: Indices, second: Flags, found: Updates
    ) -> CflState:
        """Return the state with a cluster's second half as a new cluster."""
        members = np.vstack([state.members, np.zeros_like(state.members[:1])])
        if self.indices == "as-published":
            members[cluster] = False
            members[cluster, np.flatnonzero(~second)] = True
            members[-1, np.flatnonzero(second)] = True
            return replace(state, members=members)
        leaving = found.clients[present[second]]
        members[cluster, leaving], members[-1, leaving] = False, True
        fork = np.array([[cluster, len(state.members)]])
        weights = np.zeros((2, len(found.clients)))
        weights[second.astype(int), present] = found.weights(self.weighting)[present]
        halves = combined(found.changes, shares_of(weights))
        return replace(
            state,
            members=members,
            forks=np.vstack([state.forks, fork]),
            fork_models=_joined(state.fork_models, pick(state.models, fork[:, 0])),
            fork_updates=_joined(state.fork_updates, halves),
        )

    def _averaged(self, state: CflState, found: Updates) -> CflState:
        """Move every client's model by the mean updates of the clusters it is in.

        Clients of one model and the same clusters go on with one model. With corrected indices
        that is a model for each cluster, in the clusters' order.
        """
        weights = state.members[:, found.clients] * found.weights(self.weighting)
        kinds = np.column_stack([~state.members.T, state.model_of])
        kinds, model_of = np.unique(kinds, axis=0, return_inverse=True)
        changes = combined(found.changes, (1 - kinds[:, :-1]) @ shares_of(weights))
        before = pick(state.models, kinds[:, -1])
        models = {name: tensor + changes[name] for name, tensor in before.items()}
        return replace(state, models=models, model_of=model_of.reshape(-1))

    # --------------------------------------------------------------------- those who come later

    def _catch_up(self, state: CflState, cohort: Indices) -> Asking[CflState]:
        """Find the half of those who missed a split of their cluster."""
        late = cohort[state.passed[cohort] < len(state.forks)]
        if len(late) == 0:
            return state
        down = Descent.of(late, state.model_of[late], state.passed[late], len(state.members))
        yield from self._descend(state, down)
        late, clusters = late[down.replied], down.clusters[down.replied]
        members, passed, model_of = state.members.copy(), state.passed.copy(), state.model_of.copy()
        members[:, late] = False
        members[clusters, late] = True
        passed[late], model_of[late] = len(state.forks), clusters
        return replace(state, members=members, passed=passed, model_of=model_of)

    def newcomers(self, state: CflState, clients: Indices) -> Asking[Assignments]:
        """Let newcomers come down from the first cluster, fork by fork.

        Distances are (1 - cosine) / 2 to the halves met on the way; other clusters are infinitely
        far.
        """
        if self.indices == "as-published":
            raise CloveError(
                "with indices='as-published' clusters have no newcomers: use corrected"
            )
        nothing = np.zeros(len(clients), dtype=np.int64)
        down = Descent.of(clients, nothing, nothing, len(state.members))
        yield from self._descend(state, down)
        return Assignments(down.clusters, down.distances, down.margins)

    def _descend(self, state: CflState, down: Descent) -> Asking[None]:
        """Take clients down the forks below their clusters."""
        if state.fork_models is not None and state.fork_updates is not None:
            training, models, updates = self.setup.training, state.fork_models, state.fork_updates
            yield from descend(down, state.forks, models, updates, training)


def bipartition(similarity: Floats, linkage: str = "single") -> Flags:
    """Cut vectors in two by their similarities; return who is in the half without the first.

    Single linkage makes the largest similarity between the halves as small as it can be.
    """
    from sklearn.cluster import AgglomerativeClustering  # slow to load, so when needed

    tree = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage=linkage)
    labels = tree.fit(1 - similarity).labels_
    return np.asarray(labels != labels[0])


def _joined(stack: Parameters | None, more: Parameters) -> Parameters:
    return more if stack is None else concatenate([stack, more])
