"""FeSEM: several centres, each the mean of the clients whose models are nearest to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clove import seeds
from clove.algorithms.base import Algorithm, Asking, Outcome, nearest_by_loss
from clove.algorithms.grouped import check_names, number_of_models
from clove.algorithms.one_shot import with_room
from clove.algorithms.updates import WEIGHTINGS, Updates, ask_updates, places_of, shares_of
from clove.clustering import Assignments
from clove.clustering.arrays import number_by_first_member
from clove.errors import CloveError
from clove.federation.parameters import (
    Indices,
    Parameters,
    combined,
    concatenate,
    count,
    pick,
    replace_rows,
)
from clove.federation.questions import Evaluate, Floats

INITIAL_CENTRES = ("k-means", "random", "one-model")
ORDERS = ("assign-average", "average-assign")


@dataclass(frozen=True)
class FesemState:
    """The centres, the model that all clients begin with, and each client's centre."""

    models: Parameters
    initial: Parameters
    centre_of: Indices  # -1: none yet
    round: int = 0


@dataclass(frozen=True)
class Fesem(Algorithm[FesemState]):
    """Stochastic expectation maximisation with the clients' parameters as the points.

    Each participant trains its centre's model. E-step: it is assigned to the centre nearest to its
    local model, by Euclidean distance. M-step: each centre becomes the mean of the local models
    assigned to it; one without any stays. A client that takes part for the first time has no centre
    yet and trains the model all begin with. So does a newcomer, which the paper does not speak of.

    The paper's algorithm has all clients in every round, and random centres. Its authors' code lets
    some of each centre's clients train, and assigns all by k-means of their last local models: at
    first of random points, so that the first local models come of one model and of random groups.
    Ours goes on from there: everybody trains that model, and k-means makes the first centres. Where
    only some take part, all are asked nevertheless in the first round; who does not answer begins
    later, as above.

    Network: one model down and one up for each participant, whose local model the server sees; in
    the first round, with "k-means", for every client.

    Parameters
    ----------
    models : the number of centres (default: the number of true groups, where the data know it).
    initial_centres : "k-means": in the first round all train one model, whoever takes part, and the
        centres are the clusters of what comes of it. "random": random models, and each
        client begins with a random one. "one-model": random models, and each client begins with the
        one nearest to an initial model that is the same for all, hence all with the same: so it is
        in the code that CLoVE's authors used (FlexCFL's), where it is never left again.
    order : "assign-average" as published; "average-assign" first averages the clients that trained
        a centre, and then assigns them to the centres that come of it, as in that code.
    weighting : clients count "equal" in means, as published, or by "samples".
    n_init : the starts of k-means.

    References
    ----------
    Long, Xie, Shen, Zhou, Wang, Jiang. Multi-Center Federated Learning: Clients Clustering for
    Better Personalization. World Wide Web 26, 2023.
    """

    models: int | None = None
    initial_centres: str = "k-means"
    order: str = "assign-average"
    weighting: str = "equal"
    n_init: int = 10

    name = "fesem"
    state_type = FesemState
    clusters = True

    def __post_init__(self) -> None:
        known = {"initial_centres": INITIAL_CENTRES, "order": ORDERS, "weighting": WEIGHTINGS}
        check_names(self, known)
        if self.n_init < 1:
            raise CloveError(f"n_init must be 1 or more, not {self.n_init}")

    def begin(self) -> FesemState:
        """Make the centres; with k-means they are made anew once there are local models."""
        number = number_of_models(self.name, self.models, self.setup)
        made = self.setup.initial(number + 1, "different")
        centres, initial = pick(made, np.arange(1, number + 1)), pick(made, np.array([0]))
        return FesemState(centres, initial, np.full(self.setup.clients, -1))

    def server_models(self, state: FesemState) -> Parameters:
        """Return the centres."""
        return state.models

    def evaluation(self, state: FesemState, clients: Indices) -> Evaluate:
        """Every client that has a centre uses it."""
        clients = clients[state.centre_of[clients] >= 0]
        return Evaluate(state.models, clients, state.centre_of[clients])

    def round(self, state: FesemState, cohort: Indices) -> Asking[Outcome[FesemState]]:
        """Train, assign each client to the nearest centre, and average."""
        state = replace(state, centre_of=with_room(state.centre_of, self.setup.clients))
        asked = np.arange(self.setup.clients) if self._founds(state) else cohort
        start = self._start(state, asked)
        offered = concatenate([state.models, state.initial])
        found = yield from ask_updates(offered, start, asked, self.setup.training)
        if found is None:
            return Outcome(state, cohort[:0], cohort[:0])
        trained_from = start[places_of(found.clients, asked)]
        centres, assignment = self._expect_and_maximise(state, found, trained_from)
        centre_of = state.centre_of.copy()
        centre_of[found.clients] = assignment
        state = replace(state, models=centres, centre_of=centre_of, round=state.round + 1)
        notes = {"clusters": len(np.unique(assignment))}
        takes_part = np.isin(found.clients, cohort)
        return Outcome(state, found.clients[takes_part], assignment[takes_part], notes=notes)

    def _founds(self, state: FesemState) -> bool:
        """Say whether the centres are still to be made of local models."""
        return state.round == 0 and self.initial_centres == "k-means"

    def _start(self, state: FesemState, clients: Indices) -> Indices:
        """Return what each client trains: its centre, or as long as it has none another model."""
        start, number = state.centre_of[clients], count(state.models)
        new = np.flatnonzero(start < 0)
        if self.initial_centres == "k-means":
            start[new] = number  # the initial model, offered after the centres
        elif self.initial_centres == "random":
            drawn = seeds.stream(self.setup.seed, "first-centre").integers(
                number, size=self.setup.clients
            )
            start[new] = drawn[clients[new]]
        else:
            first = Updates(new[:1], np.ones(1), state.initial, state.initial, frozenset())
            start[new] = first.squared_distances(state.models).argmin()
        return start

    def _expect_and_maximise(
        self, state: FesemState, found: Updates, trained_from: Indices
    ) -> tuple[Parameters, Indices]:
        """Return the new centres, and each client's."""
        number = count(state.models)
        if self._founds(state):
            assignment = self._kmeans(found, number)
            return self._means(state.models, found, assignment), assignment
        centres = state.models
        if self.order == "average-assign":
            centres = self._means(centres, found, trained_from)
        assignment = found.squared_distances(centres).argmin(axis=1)
        if self.order == "assign-average":
            centres = self._means(centres, found, assignment)
        return centres, assignment

    def _kmeans(self, found: Updates, number: int) -> Indices:
        """Cluster what came of one model.

        The updates' principal coordinates have the distances that the local models have, and no
        more numbers than there are clients.
        """
        lengths, axes = np.linalg.eigh(found.products(np.arange(len(found.clients))))
        points = axes * np.sqrt(np.maximum(lengths, 0.0))
        state = seeds.integer(self.setup.seed, "clustering") % 2**32
        from clove.clustering.kmeans import kmeans_labels  # slow to load, so when needed

        clusters = kmeans_labels(points, min(number, len(points)), self.n_init, state)
        return number_by_first_member(clusters)  # rounding must not choose the numbers

    def _means(self, centres: Parameters, found: Updates, assignment: Indices) -> Parameters:
        """Return the centres with those that have clients replaced by the clients' mean."""
        own = assignment < count(centres)  # newcomers trained no centre
        table: Floats = np.zeros((count(centres), len(assignment)))
        table[assignment[own], np.flatnonzero(own)] = found.weights(self.weighting)[own]
        used = np.flatnonzero(table.any(axis=1))
        return replace_rows(centres, used, combined(found.models, shares_of(table[used])))

    def newcomers(self, state: FesemState, clients: Indices) -> Asking[Assignments]:
        """Let newcomers train the model all began with, and assign them to the nearest centre."""
        found = yield from ask_updates(state.initial, clients * 0, clients, self.setup.training)
        if found is None:
            raise CloveError("no newcomer replied")
        return nearest_by_loss(np.sqrt(found.squared_distances(state.models)))
