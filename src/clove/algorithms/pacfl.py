"""PACFL: clients grouped by the angles between the subspaces their data lie in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, fcluster
from scipy.cluster.hierarchy import linkage as merge_tree
from scipy.spatial.distance import squareform
from torch import Tensor

from clove.algorithms.grouped import check_names, number_of_models
from clove.algorithms.one_shot import Grouping, OneShot, OneShotState, Summarised
from clove.algorithms.points import as_points, leading_directions
from clove.errors import CloveError
from clove.federation.objectives import Batch, Learner
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Evaluate, Floats
from clove.federation.summaries import summary

LINKAGES = ("average", "weighted", "single", "complete")
MEASURED = ("averaged", "trained")
AT_ONCE = 2**22  # products of vectors that are held at once
BLOCK = 128  # clients whose angles to all that follow are measured together


@summary("principal-vectors")
@dataclass(frozen=True)
class PrincipalVectors:
    """The first left singular vectors of the client's data, a column a sample, or of each class.

    The vectors of a class the client has not are zeros.
    """

    number: int
    per_class: bool = False

    def __call__(
        self, learner: Learner, model: Parameters | None, data: Batch, seed: int
    ) -> dict[str, Tensor]:
        """Return the vectors as rows."""
        x = as_points(data.x)
        parts = [x]
        if self.per_class:
            y = data.y.cpu().numpy()
            parts = [x[y == label] for label in range(learner.classes)]
        vectors = np.concatenate([leading_directions(part, self.number).T for part in parts])
        return {"vectors": torch.as_tensor(vectors, dtype=data.weight.dtype)}


# -------------------------------------------------------------------------------- proximity


def _principal_angles(products: Floats) -> Floats:
    return _degrees(np.linalg.svd(products, compute_uv=False))


def _existing(angles: Floats, there: NDArray[Any]) -> Floats:
    """Return the sum of the first angles, as many as there are directions of both clients.

    A client of few samples has fewer directions than are asked for, and zeros in their place.
    """
    counted = np.arange(angles.shape[-1]) < np.maximum(there, 1)[..., None]
    total: Floats = np.where(counted, angles, 0.0).sum(axis=-1)
    return total


def _degrees(cosines: NDArray[Any]) -> Floats:
    within = np.clip(np.abs(cosines), 0.0, 1.0).astype(np.float64)
    angles: Floats = np.degrees(np.arccos(within))
    return angles


# Of the products of two clients' vectors, which are the last two axes, and of how many directions
# both have. A singular vector's sign means nothing, hence no angle above 90 degrees.
ANGLES: dict[str, Callable[[Floats, NDArray[Any]], Floats]] = {
    "smallest": lambda products, _: _principal_angles(products).min(axis=-1),
    "sum": lambda products, there: _existing(_principal_angles(products), there),
    "ordered": lambda products, there: _existing(
        _degrees(np.diagonal(products, axis1=-2, axis2=-1)), there
    ),
    "vectors": lambda products, _: _degrees(np.abs(products).max(axis=(-2, -1))),
}


def proximity(vectors: NDArray[Any], others: NDArray[Any], angle: str) -> Floats:
    """Return the angle between every client of the one and every client of the other, in degrees.

    >>> x, y, z = np.eye(3)
    >>> proximity(np.array([[x, y]]), np.array([[x, y], [y, z], [z, z + x]]), "smallest").round(6)
    array([[0., 0., 0.]])
    >>> proximity(np.array([[x, y]]), np.array([[x, y], [y, z]]), "sum").round(6)
    array([[ 0., 90.]])
    """
    (clients, number, length), many = vectors.shape, len(others)
    theirs, sizes = others.reshape(-1, length).T, _directions(others)
    parts = max(1, -(-clients * number * theirs.shape[1] // AT_ONCE))
    rows = []
    for part in np.array_split(vectors, min(parts, clients)):
        products = part.reshape(-1, length) @ theirs
        pairs = products.reshape(len(part), number, many, -1).transpose(0, 2, 1, 3)
        rows.append(ANGLES[angle](pairs, np.minimum.outer(_directions(part), sizes)))
    return np.concatenate(rows)


def _directions(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return how many of each client's vectors are any."""
    count: NDArray[Any] = vectors.any(axis=-1).sum(axis=-1)
    return count


def mutual_proximity(vectors: NDArray[Any], angle: str) -> Floats:
    """Return the angle between every two clients, each pair measured once."""
    apart = np.zeros((len(vectors), len(vectors)))
    for start in range(0, len(vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        apart[rows, start:] = proximity(vectors[rows], vectors[start:], angle)
    upper: Floats = np.triu(apart, 1)
    return upper + upper.T


@dataclass(frozen=True)
class Pacfl(OneShot):
    """Group clients by the angles between the subspaces that their data lie in, then FedAvg.

    Before training every client sends the first left singular vectors of its data. The server
    measures the principal angles between every two clients' subspaces, merges clients from the
    nearest on (hierarchical clustering), and cuts the tree at a threshold, or where K groups are
    left. Each group then trains a model by FedAvg. Needs no labels, unless `per_class`.

    Network: once, `vectors` times the size of a sample up for each client (for every class where
    `per_class`); then one model down and one up for each participant. Of the clients, the server
    keeps vectors and groups.

    Parameters
    ----------
    vectors : how many singular vectors a client sends, p; the paper has 3 to 5, the authors' runs
        on CIFAR-10 3, the default here.
    angle : "smallest", the smallest principal angle (the paper's equation 2); "ordered", the sum
        of the angles between the first vectors, the second, and so on (its equation 3); "sum", of
        all principal angles; "vectors", the smallest between a vector of the one and a vector of
        the other, as in the authors' code (which tells a vector from its opposite; singular vectors
        come with either sign). Sums are of the directions that both clients have.
    per_class : vectors of each class's data instead, all together, as in the authors' code; goes
        with angle=vectors.
    linkage : distance of two groups of clients: "average" of all pairs, "weighted" (what the
        authors' code does for average: of the two groups last merged, whatever their sizes),
        "single" or "complete".
    threshold : β, in degrees: groups farther apart are not merged. The right one depends on data
        and angle (3.5 is the default of the authors' code and 4.9 their script's for CIFAR-10, both
        with their angle, per class). None: the tree is cut at K.
    models : K (default: the number of true groups, where the data know it).
    measured : the group's model as "averaged", or as each client has "trained" it on its own data
        for a round more, which is what the authors' script reports.

    A client that comes late joins the group of least average angle, where the paper extends the
    matrix of angles and clusters anew, with the same result unless it founds a group.

    References
    ----------
    Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin. Efficient Distribution Similarity
    Identification in Clustered Federated Learning via Principal Angles Between Client Data
    Subspaces. AAAI 2023.
    """

    vectors: int = 3
    angle: str = "smallest"
    per_class: bool = False
    linkage: str = "average"
    threshold: float | None = None
    models: int | None = None
    measured: str = "averaged"

    name = "pacfl"

    def __post_init__(self) -> None:
        check_names(self, {"angle": ANGLES, "linkage": LINKAGES, "measured": MEASURED})
        if self.vectors < 1:
            raise CloveError(f"vectors must be 1 or more, not {self.vectors}")
        if self.threshold is not None and not self.threshold >= 0:
            raise CloveError(f"threshold must not be negative, but is {self.threshold}")
        if self.threshold is not None and self.models is not None:
            raise CloveError("set threshold (in degrees) or models (K is known), not both")
        if self.per_class and self.angle != "vectors":
            raise CloveError(
                "per_class needs angle=vectors: the vectors of several classes are no basis to "
                "take principal angles of"
            )

    def begin(self) -> OneShotState:
        """Make the model all groups start from."""
        if self.per_class and self.setup.classes is None:
            raise CloveError("pacfl with per_class needs labels: without them, set per_class=false")
        self._number()  # an unknown K is told before anything is asked
        return super().begin()

    def evaluation(self, state: OneShotState, clients: Indices) -> Evaluate:
        """Every client uses its group's model, or what it makes of it."""
        asked = super().evaluation(state, clients)
        trained = self.measured == "trained"
        return replace(asked, adapt=self.setup.training) if trained else asked

    @property
    def summary(self) -> PrincipalVectors:
        """The clients' principal vectors."""
        return PrincipalVectors(self.vectors, self.per_class)

    def group(self, values: Summarised) -> Grouping:
        """Merge clients whose subspaces are near."""
        vectors = values["vectors"]
        if vectors.shape[-1] < self.vectors:
            raise CloveError(
                f"vectors={self.vectors}, but a sample has {vectors.shape[-1]} numbers: so many "
                "directions hold any data; send a few"
            )
        labels = np.zeros(len(vectors), dtype=np.int64)
        if len(vectors) > 1:
            apart = mutual_proximity(vectors, self.angle)
            labels = self._cut(merge_tree(squareform(apart, checks=False), self.linkage))
        return Grouping(labels, vectors, labels, int(labels.max()) + 1)

    def place(
        self, values: Summarised, marks: NDArray[Any], marked: Indices
    ) -> tuple[Indices, Floats]:
        """Find the group whose clients are at the least angle on average."""
        angles = proximity(values["vectors"], marks, self.angle)
        members = np.eye(int(marked.max()) + 1)[marked]
        distances = angles @ members / members.sum(axis=0)
        return distances.argmin(axis=1), distances

    def _cut(self, tree: Floats) -> Indices:
        number = self._number()
        if number is None:
            labels = fcluster(tree, self.threshold, criterion="distance")
        else:
            labels = cut_tree(tree, n_clusters=min(number, len(tree) + 1))[:, 0]
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)

    def _number(self) -> int | None:
        """Return K, or None where a threshold decides."""
        if self.threshold is not None:
            return None
        hint = ", or threshold (in degrees) if K is unknown"
        return number_of_models(self.name, self.models, self.setup, hint)
