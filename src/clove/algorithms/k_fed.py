"""k-FED: one-shot federated k-means, on clients' data, to group the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from torch import Tensor

from clove import seeds
from clove.algorithms.grouped import check_names, number_of_models
from clove.algorithms.one_shot import Grouping, OneShot, OneShotState, Summarised
from clove.algorithms.points import as_points, leading_directions
from clove.errors import CloveError
from clove.federation.objectives import Batch, Learner
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Floats
from clove.federation.summaries import summary

if TYPE_CHECKING:
    from sklearn.cluster import KMeans

LOCAL = ("awasthi-sheffet", "plain")
CENTRAL = ("one-step", "converged", "awasthi-sheffet")
CLUSTERED = ("inputs", "inputs-and-targets")


# ---------------------------------------------------------------------------------- k-means


def _means(points: Floats, number: int, **options: Any) -> KMeans:
    from sklearn.cluster import KMeans  # slow to load, so when needed

    return KMeans(number, **options).fit(points)


def plain_means(points: Floats, number: int, seed: int) -> KMeans:
    """Run k-means from k-means++ starts."""
    return _means(points, number, n_init=10, random_state=seed % 2**32)


def awasthi_sheffet_means(points: Floats, number: int, seed: int) -> KMeans:
    """Run k-means from the start of Awasthi and Sheffet.

    Points are projected on their first singular directions and clustered there. Of each cluster,
    only points three times as near to its centre as to any other count: their means are the start,
    and Lloyd's steps on the points themselves follow.
    """
    directions = leading_directions(points, number)
    projected = points @ directions
    rough = plain_means(projected, number, seed).cluster_centers_
    start = np.stack(
        [
            points[core].mean(axis=0) if core.any() else centre @ directions.T
            for core, centre in zip(cores(projected, rough), rough, strict=True)
        ]
    )
    return _means(points, number, init=start, n_init=1)


def cores(points: Floats, centres: Floats) -> NDArray[np.bool_]:
    """Say for each centre which points are three times as near to it as to any other.

    >>> cores(np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([[0.0], [4.0]])).tolist()
    [[True, True, False, False], [False, False, False, True]]
    """
    distances = cdist(centres, points)
    others = np.stack(
        [
            np.delete(distances, place, axis=0).min(axis=0, initial=np.inf)
            for place in range(len(centres))
        ]
    )
    near: NDArray[np.bool_] = 3 * distances <= others
    return near


def farthest_first(centres: Floats, first: Floats, number: int) -> Floats:
    """Add to the first centres, again and again, the one farthest from all taken so far.

    >>> farthest_first(np.array([[0.0], [1.0], [5.0], [9.0]]), np.array([[0.0]]), 3).ravel()
    array([0., 9., 5.])
    """
    taken = first[:number]
    while len(taken) < number:
        farthest = cdist(centres, taken).min(axis=1).argmax()
        taken = np.concatenate([taken, centres[[farthest]]])
    return taken


@summary("local-centres")
@dataclass(frozen=True)
class LocalCentres:
    """The centres of the client's own data, and how many of its points belong to each.

    With fewer different points than centres, the rest count none.
    """

    number: int
    local: str = LOCAL[0]
    clustered: str = CLUSTERED[0]

    def __call__(
        self, learner: Learner, model: Parameters | None, data: Batch, seed: int
    ) -> dict[str, Tensor]:
        """Cluster the client's points."""
        points = as_points(data.x)
        if self.clustered == "inputs-and-targets":
            points = np.concatenate([points, _targets(learner, data)], axis=1)
        centres, counts = np.zeros((self.number, points.shape[1])), np.zeros(self.number)
        if self.number == 1:  # no need to search: it is their mean
            centres[0], counts[0] = points.mean(axis=0), len(points)
        else:
            found = min(self.number, len(np.unique(points, axis=0)))
            cluster = awasthi_sheffet_means if self.local == "awasthi-sheffet" else plain_means
            means = cluster(points, found, seed)
            centres[:found] = means.cluster_centers_
            counts[:found] = np.bincount(means.labels_, minlength=found)
        dtype = data.weight.dtype
        return {
            "centres": torch.as_tensor(centres, dtype=dtype),
            "counts": torch.as_tensor(counts, dtype=dtype),
        }


def _targets(learner: Learner, data: Batch) -> Floats:
    """Return targets as numbers, classes as a one at their place."""
    if data.y.is_floating_point():
        return as_points(data.y.reshape(len(data.y), -1))
    return as_points(F.one_hot(data.y, learner.classes))


# -------------------------------------------------------------------------------- the method


@dataclass(frozen=True)
class KFed(OneShot):
    """Cluster everybody's data by k-means in one exchange, and clients by where most of theirs are.

    Every client clusters its own points into k' and sends the centres. The server takes those of
    one client, adds whichever centre is farthest until it has K, and puts every centre received to
    the nearest of them; their means are the K centres. A client belongs to the group that holds
    most of its points. Each group then trains a model by FedAvg. Needs no labels.

    Network: once, k' centres of the size of a sample and their counts up for each client; then one
    model down and one up for each participant. The server keeps the K centres and who is where.

    Parameters
    ----------
    local_clusters : k'. 1, the default, is what CLoVE's authors compared with: a client's mean. The
        paper has no default; its theory wants k' at most the root of K.
    local : how clients cluster: "awasthi-sheffet" as in the paper (projection, k-means there, cores
        of clusters, Lloyd's steps; for k' = 1 the mean), or "plain" k-means.
    central : how the server goes on from its K initial centres: "one-step" of Lloyd as in the
        paper, or until "converged" as in its authors' code and CLoVE's; "awasthi-sheffet" clusters
        the centres received in that way instead, the other variant of CLoVE's authors.
    clustered : a point is a sample's "inputs", or "inputs-and-targets" as CLoVE's authors did for
        linear regression (classes as a one among zeros).
    models : K (default: the number of true groups, where the data know it).

    k-FED clusters points, so K counts kinds of points. Which group a client with points of several
    kinds belongs to is our reading; with k' = 1 there is no question. A client that comes late puts
    its centres to the nearest of the K.

    References
    ----------
    Dennis, Li, Smith. Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021.
    Awasthi, Sheffet. Improved Spectral-Norm Bounds for Clustering. APPROX 2012.
    """

    local_clusters: int = 1
    local: str = LOCAL[0]
    central: str = CENTRAL[0]
    clustered: str = CLUSTERED[0]
    models: int | None = None

    name = "k-fed"

    def __post_init__(self) -> None:
        check_names(self, {"local": LOCAL, "central": CENTRAL, "clustered": CLUSTERED})
        if self.local_clusters < 1:
            raise CloveError(f"local_clusters must be 1 or more, not {self.local_clusters}")

    def begin(self) -> OneShotState:
        """Make the model all groups start from."""
        if self.local_clusters > self._number():
            raise CloveError(
                f"local_clusters must be at most the number of models, {self._number()}, but is "
                f"{self.local_clusters}"
            )
        return super().begin()

    @property
    def summary(self) -> LocalCentres:
        """The clients' centres."""
        return LocalCentres(self.local_clusters, self.local, self.clustered)

    def group(self, values: Summarised) -> Grouping:
        """Cluster the centres received."""
        counts = values["counts"]
        real = values["centres"][counts > 0].astype(np.float64)
        number = min(self._number(), len(np.unique(real, axis=0)))
        labels = self._cluster(real, int((counts[0] > 0).sum()), number)
        members = np.eye(number)[:, labels]
        centres = members @ real / members.sum(axis=1, keepdims=True).clip(min=1)
        of_centre = np.zeros(counts.shape, dtype=np.int64)
        of_centre[counts > 0] = labels
        return Grouping(_majority(of_centre, counts, number), centres, np.arange(number), number)

    def place(
        self, values: Summarised, marks: NDArray[Any], marked: Indices
    ) -> tuple[Indices, Floats]:
        """Put each client's centres to the nearest of the K, and the client where most points are.

        Its distance to a group is that of its centres, averaged over its points.
        """
        centres, counts = values["centres"].astype(np.float64), values["counts"]
        apart = cdist(centres.reshape(-1, centres.shape[2]), marks)
        apart = apart.reshape(*counts.shape, len(marks))
        shares = counts / counts.sum(axis=1, keepdims=True)
        distances = np.einsum("ck,ckg->cg", shares, apart)
        return _majority(apart.argmin(axis=2), counts, len(marks)), distances

    def _cluster(self, centres: Floats, first: int, number: int) -> Indices:
        """Return the cluster of each centre received."""
        if self.central == "awasthi-sheffet":
            seed = seeds.integer(self.setup.seed, "clustering")
            return np.asarray(awasthi_sheffet_means(centres, number, seed).labels_)
        initial = farthest_first(centres, centres[:first], number)
        if self.central == "converged":
            return np.asarray(_means(centres, number, init=initial, n_init=1).labels_)
        return np.asarray(cdist(centres, initial).argmin(axis=1))

    def _number(self) -> int:
        return number_of_models(self.name, self.models, self.setup)


def _majority(groups: Indices, counts: NDArray[Any], number: int) -> Indices:
    """Return for each client, a row of centres and their counts, the group of most points."""
    votes = np.zeros((len(groups), number))
    np.add.at(votes, (np.arange(len(groups))[:, None], groups), counts)
    return np.asarray(votes.argmax(axis=1))
