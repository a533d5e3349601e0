"""Feature skew: clusters see their images turned by different angles."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from clove.data.dataset import Dataset
from clove.data.mixings.authors import CIFAR10_CLASSES, is_cifar10
from clove.data.mixings.cluster import Array, Cluster
from clove.data.mixings.request import Request
from clove.data.mixings.spread import spread
from clove.data.options import whole_number
from clove.errors import CloveError
from clove.seeds import stream

ROTATIONS = (0, 90, 180, 270)


def feature_skew(
    dataset: Dataset,
    request: Request,
    *,
    clusters: int | None = None,
    rotations: Iterable[int] = ROTATIONS,
) -> list[Cluster]:
    """Spread the images evenly over the clusters and turn each cluster's by its own angle.

    In the authors' code every cluster has all images, so that clients of two clusters may have the
    same one; and those of CIFAR-10 are not turned, but their labels permuted in each cluster.

    Parameters
    ----------
    clusters : int, optional
        Only the first so many rotations; by default one cluster for each.
    rotations : degrees, counter-clockwise
        The angle of each cluster, a multiple of 90.
    """
    if not dataset.images:
        raise CloveError(
            f"mixing 'feature-skew' turns images, and the points of data set {dataset.name!r} "
            f"have shape {dataset.feature_shape}: it needs (channels, height, width)"
        )
    turns = _quarter_turns(rotations)
    count = len(turns) if clusters is None else whole_number("clusters", clusters)
    if count > len(turns):
        raise CloveError(f"clusters={count}, but there are {len(turns)} rotations for them")
    _check_square(dataset, turns[:count])
    if request.authors:
        return [_whole(dataset, turns[k], k, request) for k in range(count)]
    train, test = (spread(dataset, part, count, request.seed) for part in ("train", "test"))
    return [_turned(train[k], test[k], turns[k]) for k in range(count)]


def turn(x: Array, quarters: int) -> Array:
    """Turn images counter-clockwise by quarter turns."""
    return np.rot90(x, quarters, axes=(-2, -1))


def _turned(train: Array, test: Array, quarters: int) -> Cluster:
    about = f"turned by {90 * quarters}°" if quarters else "upright"
    return Cluster(train, test, change_x=partial(turn, quarters=quarters), about=about)


def _whole(dataset: Dataset, quarters: int, number: int, request: Request) -> Cluster:
    """Return a cluster of the authors' code."""
    train, test = (np.arange(dataset.size(part)) for part in ("train", "test"))
    if not is_cifar10(dataset):
        return _turned(train, test, quarters)
    labels = stream(request.seed, "mixing/relabelling", number).permutation(len(CIFAR10_CLASSES))
    about = f"labels {' '.join(map(str, labels))}"
    return Cluster(train, test, change_y=labels.__getitem__, about=about)


def _quarter_turns(rotations: Iterable[int]) -> list[int]:
    try:
        angles = [float(angle) for angle in rotations]
    except (TypeError, ValueError) as error:
        raise CloveError(
            f"rotations must be a list of angles such as {list(ROTATIONS)}, got {rotations!r}"
        ) from error
    if not angles:
        raise CloveError("rotations=[] names no cluster: give an angle for each")
    if any(angle % 90 for angle in angles):
        raise CloveError(f"rotations must be multiples of 90 degrees, got {rotations!r}")
    turns = [int(angle // 90) % 4 for angle in angles]
    if len(set(turns)) < len(turns):
        raise CloveError(f"rotations must differ between clusters, got {rotations!r}")
    return turns


def _check_square(dataset: Dataset, turns: list[int]) -> None:
    height, width = dataset.feature_shape[-2:]
    if height != width and any(quarters % 2 for quarters in turns):
        raise CloveError(
            f"images of {height} × {width} pixels change shape when turned by 90 degrees: "
            "use rotations 0 and 180 only"
        )
