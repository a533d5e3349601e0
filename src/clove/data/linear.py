"""Mixed linear regression, drawn on the spot: each cluster has its own true parameters."""

from __future__ import annotations

from math import asin, cos, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data.card import DataCard
from clove.data.dataset import Dataset
from clove.data.options import one_of, real_number, whole_number
from clove.errors import CloveError
from clove.seeds import stream

Array = NDArray[Any]

CLUSTERS = 5
POINTS, TRAIN_SHARE = {"paper": 6250, "authors": 5000}, {"paper": 0.8, "authors": 0.9}
MOST_VALUES = 10**9  # of all points together: eight gigabytes as they are drawn
FARTHEST = 5  # the paper's range of distances between true parameters is [separation, 5 separation]
TRIES = 10_000
# Points at exactly the least distance would fall on either side of it by rounding.
MARGIN = 1 + 1e-9

LINEAR = DataCard(
    name="linear",
    description="Mixed linear regression, 5 clusters in 20 dimensions unless asked for others",
    licence="none needed: drawn on the spot",
    citation="the mixed linear regression of the CLoVE paper",
    shape=(20,),
    classes=None,
    groups=CLUSTERS,
    train=25_000,
    test=6_250,
    by_hand="drawn on the spot",
)


def linear(
    data_dir: Path | None,
    seed: int,
    *,
    clusters: int = CLUSTERS,
    dimension: int = 20,
    points: int | None = None,
    noise: float = 1e-4,
    separation: float = 1.0,
    variant: str = "paper",
) -> Dataset:
    """Draw y = <θ*, x> + ε for every cluster, with x ~ N(0, I) and ε ~ N(0, noise²).

    The true parameters θ* lie on the unit sphere, any two of them at a distance between
    `separation` and five times that. Everything is drawn afresh for each seed. Of the 6,250
    `points` of a cluster, 80 % are for training; labels have shape `[points, 1]`, as a network's
    output. In the authors' code there are 5,000, of which 90 % are for training: with five clients
    in a cluster that makes 900 each, not 1,000.
    """
    usual = POINTS[one_of("variant", variant, POINTS)]
    points = whole_number("points", usual if points is None else points, 2)
    clusters = whole_number("clusters", clusters)
    dimension = whole_number("dimension", dimension, 2)
    noise, separation = real_number("noise", noise, 0), real_number("separation", separation)
    if clusters * points * dimension > MOST_VALUES:
        raise CloveError(
            f"clusters={clusters}, points={points} and dimension={dimension} make "
            f"{clusters * points * dimension:,} numbers, more than {MOST_VALUES:,}: lower one"
        )
    truth = true_parameters(clusters, dimension, separation, seed)
    x = np.stack(
        [stream(seed, "linear/x", k).standard_normal((points, dimension)) for k in range(clusters)]
    ).astype(np.float32)
    errors = noise * stream(seed, "linear/noise").standard_normal((clusters, points))
    y = np.einsum("kpd,kd->kp", x, truth) + errors
    return _dataset(x, y.astype(np.float32), truth, TRAIN_SHARE[variant])


def true_parameters(clusters: int, dimension: int, separation: float, seed: int) -> Array:
    """Draw unit vectors whose pairwise distances lie in [separation, 5 separation].

    The first is any; each further one is a step in a random direction away from a random earlier
    one, back on the sphere, and accepted if it keeps its distance from the others. The step is
    along the sphere and as long as the separation, which is the least the range allows.
    """
    _check_separation(clusters, separation)
    generator = stream(seed, "linear/truth")
    truth = _unit(generator.standard_normal(dimension))[None]
    tries = 0
    while len(truth) < clusters:
        new = _step(truth[generator.integers(len(truth))], separation * MARGIN, generator)
        distances = np.linalg.norm(truth - new, axis=1)
        if distances.min() >= separation and distances.max() <= FARTHEST * separation:
            truth = np.vstack([truth, new])
            tries = 0
        elif (tries := tries + 1) == TRIES:
            raise CloveError(
                f"found no {clusters} unit vectors of dimension {dimension} with distances between "
                f"{separation:g} and {FARTHEST * separation:g}: "
                "lower clusters or separation, or raise dimension"
            )
    return truth


def _step(start: Array, distance: float, generator: np.random.Generator) -> Array:
    """Return a unit vector at a distance from another one, in a random direction from it."""
    direction = generator.standard_normal(len(start))
    direction = _unit(direction - (direction @ start) * start)
    angle = 2 * asin(min(distance / 2, 1.0))
    return _unit(cos(angle) * start + sin(angle) * direction)


def _unit(vector: Array) -> Array:
    unit: Array = vector / np.linalg.norm(vector)
    return unit


def _check_separation(clusters: int, separation: float) -> None:
    # No unit vectors are farther apart than the corners of a simplex, whatever the dimension.
    widest = sqrt(2 * clusters / (clusters - 1)) if clusters > 1 else 2.0
    if not 0 < separation <= widest:
        raise CloveError(
            f"separation must lie between 0 and {widest:.4g}, the farthest that {clusters} unit "
            f"vectors can be from each other, got {separation:g}"
        )


def _dataset(x: Array, y: Array, truth: Array, share: float) -> Dataset:
    clusters, points, dimension = x.shape
    # Points are independent draws, so any split is a random one; at least one point on each side.
    cut = min(max(round(share * points), 1), points - 1)
    group = np.arange(clusters)
    return Dataset.of(
        LINEAR,
        x_train=x[:, :cut].reshape(-1, dimension),
        y_train=y[:, :cut].reshape(-1, 1),
        x_test=x[:, cut:].reshape(-1, dimension),
        y_test=y[:, cut:].reshape(-1, 1),
        group_train=group.repeat(cut),
        group_test=group.repeat(points - cut),
        kind="regression",
        truth=truth,
        description=f"Mixed linear regression, {clusters} clusters in {dimension} dimensions",
    )
