"""Mixings that know no clusters: clients differ one by one, and have no true groups."""

from __future__ import annotations

from functools import partial

import numpy as np

from clove.data.dataset import Dataset
from clove.data.division import apportion
from clove.data.mixings.checks import concentration
from clove.data.mixings.cluster import Array, Cluster, class_labels, divided
from clove.data.mixings.request import Request
from clove.data.mixings.shares import TRIES, Labels, dirichlet_shares, fair_shares
from clove.data.options import one_of, real_number, whole_number
from clove.errors import CloveError
from clove.seeds import stream


def dirichlet(
    dataset: Dataset, request: Request, *, alpha: float = 0.5, least_points: int = 10
) -> list[Cluster]:
    """Share every class out among all clients by a Dirichlet draw.

    Clients differ in which classes they have and in how many points. Shares are drawn again until
    every client has enough points.

    Parameters
    ----------
    alpha : float
        Concentration: the smaller, the more the clients differ.
    least_points : int
        Training points that every client must get; test points: one.
    """
    labels = Labels(*class_labels(dataset, "dirichlet"))
    least = whole_number("least_points", least_points)
    holds = np.ones((request.clients, labels.classes), bool)
    draw = partial(dirichlet_shares, holds, concentration(alpha))
    shares, enough = fair_shares(draw, labels, (least, 1), request.seed)
    if not enough:
        raise CloveError(
            f"none of {TRIES} draws gave each of {request.clients} clients {least} training points "
            "and a test point: lower total_clients or least_points, or raise alpha"
        )
    return [_one_cluster(labels, shares, request)]


def quantity_skew(
    dataset: Dataset,
    request: Request,
    *,
    law: str = "dirichlet",
    alpha: float = 0.5,
    exponent: float = 1.0,
    least_points: int = 10,
) -> list[Cluster]:
    """Give clients very different numbers of points, all from the same distribution.

    Parameters
    ----------
    law : "dirichlet" or "power"
        What the sizes follow: one Dirichlet draw, or size ~ rank ** -exponent, the ranks of the
        clients being drawn by the seed.
    alpha : float
        Concentration of the Dirichlet distribution: the smaller, the more sizes differ.
    exponent : float
        Of the power law: the larger, the more sizes differ.
    least_points : int
        Training points that every client gets before the rest is divided by the law; test points:
        one.
    """
    clients, least = request.clients, whole_number("least_points", least_points, 0)
    floor = max(least / dataset.size("train"), 1 / dataset.size("test"))
    if clients * floor > 1:
        raise CloveError(
            f"{clients} clients need at least {least} training points and a test point each, and "
            f"data set {dataset.name!r} has {dataset.size('train')} and {dataset.size('test')}: "
            "lower total_clients or least_points"
        )
    drawn = _sizes(law, concentration(alpha), real_number("exponent", exponent, 0), request)
    shares = floor + (1 - clients * floor) * drawn
    # Of no interest here which class a point is of: all are of one.
    train, test = (np.zeros(dataset.size(part), np.int64) for part in ("train", "test"))
    return [_one_cluster(Labels(train, test, classes=1), shares[:, None], request)]


def _sizes(law: object, alpha: float, exponent: float, request: Request) -> Array:
    """Return each client's share of all points."""
    generator = stream(request.seed, "mixing/sizes")
    if one_of("law", law, ("dirichlet", "power")) == "dirichlet":
        return generator.dirichlet(np.full(request.clients, alpha))
    sizes: Array = generator.permutation(np.arange(1, request.clients + 1) ** -exponent)
    shares: Array = sizes / sizes.sum()
    return shares


def _one_cluster(labels: Labels, shares: Array, request: Request) -> Cluster:
    train, test = (
        labels.hand_out(part, apportion(labels.totals(part), shares), request.seed)
        for part in ("train", "test")
    )
    return divided(train, test)
