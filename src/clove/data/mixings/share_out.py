"""From who holds which classes to clusters: a class is shared out among its holders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from clove.data.dataset import Part
from clove.data.division import apportion
from clove.data.mixings.checks import concentration
from clove.data.mixings.cluster import Array, Cluster, divided
from clove.data.mixings.request import Request
from clove.data.mixings.shares import Labels, dirichlet_shares, fair_shares, reserved_counts
from clove.data.options import one_of
from clove.errors import CloveError

# Smaller parts than those of the authors' data sets need proportionally fewer points.
FULL_SIZE = {"train": 50_000, "test": 7_600}


@dataclass(frozen=True)
class ByDirichlet:
    """How a class is shared out: concentration, among whom, and when the authors draw again."""

    alpha: float
    clients: bool
    authors_least: tuple[int, int]
    """Training and test points that each cluster must get in the authors' variant."""


def by_dirichlet(
    alpha: object, dirichlet_over: object, authors_least: tuple[int, int], request: Request
) -> ByDirichlet:
    """Check the options of sharing out."""
    clients = one_of("dirichlet_over", dirichlet_over, ("clusters", "clients")) == "clients"
    if clients and request.authors:
        raise CloveError("the authors' variant shares classes out over clusters, not over clients")
    return ByDirichlet(concentration(alpha), clients, authors_least)


def share_out(labels: Labels, holds: Array, how: ByDirichlet, request: Request) -> list[Cluster]:
    """Return clusters, `holds` saying which classes each has, `[clusters, classes]`."""
    if how.clients:
        return _over_clients(labels, holds, how.alpha, request)
    if request.authors:
        counts = [_as_the_authors(labels, holds, how, part, request) for part in ("train", "test")]
    else:
        shares = _enough_for_all(labels, holds, how.alpha, request.clients, request)
        counts = [apportion(labels.totals(part), shares) for part in ("train", "test")]
    train = labels.hand_out("train", counts[0], request.seed)
    test = labels.hand_out("test", counts[1], request.seed)
    return [Cluster(train[k], test[k], about=in_words(own)) for k, own in enumerate(holds)]


def in_words(holds: Array) -> str:
    """Say which classes a cluster has.

    >>> in_words(np.array([True, True, False, False])), in_words(np.array([True, True, False]))
    ('classes 0, 1', 'all but 2')
    """
    own, others = np.flatnonzero(holds), np.flatnonzero(~holds)
    if len(own) > 1 and len(others) <= 1:
        return f"all but {others[0]}" if len(others) else "all classes"
    return f"class{'es' if len(own) > 1 else ''} {', '.join(map(str, own))}"


def _over_clients(labels: Labels, holds: Array, alpha: float, request: Request) -> list[Cluster]:
    shares = _enough_for_all(labels, holds.repeat(request.clients, axis=0), alpha, 1, request)
    train, test = (
        labels.hand_out(part, apportion(labels.totals(part), shares), request.seed)
        for part in ("train", "test")
    )
    places = [slice(k * request.clients, (k + 1) * request.clients) for k in range(len(holds))]
    return [divided(train[own], test[own], in_words(holds[k])) for k, own in enumerate(places)]


def _enough_for_all(
    labels: Labels, holds: Array, alpha: float, clients: int, request: Request
) -> Array:
    """Draw shares that give each party enough for so many clients, or come as near as may be."""
    least = clients * (request.train or 1), clients * request.least_test
    shares, _ = fair_shares(partial(dirichlet_shares, holds, alpha), labels, least, request.seed)
    return shares


def _as_the_authors(
    labels: Labels, holds: Array, how: ByDirichlet, part: Part, request: Request
) -> Array:
    totals = labels.totals(part)
    least = how.authors_least[part == "test"] * min(1.0, totals.sum() / FULL_SIZE[part])
    return reserved_counts(holds, how.alpha, totals, least, request.seed, part)
