"""How FedPAC combines heads: what clients tell of their features, and the weights that follow."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from clove.algorithms.simplex import least_on_simplex
from clove.errors import CloveError
from clove.federation.objectives import Batch, Learner
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Floats
from clove.federation.summaries import class_marks, side_by_side, summary


@summary("feature-statistics")
@side_by_side
def feature_statistics(
    learner: Learner, model: Parameters | None, data: Batch, seed: int
) -> dict[str, Tensor]:
    """Return what the combination of heads depends on.

    `shares`: of each class, its mean features times its share of the samples, h. `variance`:
    E‖f‖² - Σ‖h‖² over the number of samples, V.
    """
    if model is None:
        raise CloveError("feature-statistics need a network's features: the question needs models")
    features, samples = learner.features(model, data.x).flatten(1), data.weight.sum()
    shares = class_marks(learner, data).T.to(features.dtype) @ features / samples
    squares = features.square().sum(1) * data.weight
    spread = squares.sum() / samples - shares.square().sum()
    return {"shares": shares, "variance": spread.clamp(min=0) / samples}


def combining_weights(variances: Floats, shares: Floats, least: float = 0.0) -> Floats:
    """Return for each client the weights of everybody's head in its own, a row a client.

    Client i's minimise Σⱼ αⱼ² Vⱼ + ‖Σⱼ αⱼ (hᵢ - hⱼ)‖² over all α that are not negative and sum to
    one: variance, and bias. Weights below `least` are cut off, and the others made to sum to one.
    """
    flat = shares.reshape(len(shares), -1).astype(np.float64)
    flat = flat - flat.mean(axis=0)  # only differences count, and small numbers lose fewer digits
    products = flat @ flat.T
    form = products + np.diag(variances)  # of all programs, which differ in what follows from hᵢ
    shifts = products - products.diagonal()[:, None] / 2
    weights = np.stack([least_on_simplex(form, shift) for shift in shifts])
    kept = np.where(weights >= np.minimum(least, weights.max(axis=1, keepdims=True)), weights, 0.0)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def out_of_order(weights: Floats, selected: Indices, uploaded: Indices) -> Floats:
    """Return the weights that clients get where lists are in different orders, as in PFLlib.

    Its server lists statistics as clients were `selected` and heads as they were `uploaded`, and
    takes a place in one list for the same place in the other. It also writes each mixture over the
    client's head in that list, so that clients further down mix heads that are mixed already.
    """
    listed = weights[np.ix_(selected, selected)]
    mixed = np.eye(len(weights))
    for place, row in enumerate(listed):
        mixed[place] = row @ mixed
    found = np.zeros_like(weights)
    found[np.ix_(uploaded, uploaded)] = mixed
    return found
