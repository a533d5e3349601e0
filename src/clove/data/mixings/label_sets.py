"""Drawing which classes each cluster holds, so that any two clusters have some in common."""

from __future__ import annotations

import numpy as np

from clove.data.mixings.cluster import Array
from clove.errors import CloveError
from clove.seeds import stream

RESTARTS = 50
DRAWS = 500  # for each further set; without an admissible one among them all is begun anew


def draw_label_sets(
    clusters: int, classes: int, each: int, shared: int, seed: int, exactly: bool = False
) -> Array:
    """Draw sets of `each` classes, all different, of which any two share at least `shared`.

    With `exactly` any two share just so many. Returns who holds what, `[clusters, classes]`.
    """
    for restart in range(RESTARTS):
        generator = stream(seed, "mixing/label-sets", restart)
        holds = _random_sets(1, classes, each, generator)
        while len(holds) < clusters:
            drawn = _random_sets(DRAWS, classes, each, generator)
            fitting = np.flatnonzero(_fits(drawn, holds, shared, exactly))
            if not len(fitting):
                break
            holds = np.vstack([holds, drawn[fitting[0]]])
        else:
            return holds
    how = "exactly" if exactly else "at least"
    raise CloveError(
        f"found no {clusters} different sets of {each} of {classes} classes of which any two share "
        f"{how} {shared}: lower clusters or shared_classes, or change classes_per_cluster"
    )


def _random_sets(count: int, classes: int, each: int, generator: np.random.Generator) -> Array:
    return generator.permuted(np.tile(np.arange(classes) < each, (count, 1)), axis=1)


def _fits(drawn: Array, holds: Array, shared: int, exactly: bool) -> Array:
    common = drawn.astype(np.int64) @ holds.T.astype(np.int64)
    enough = common == shared if exactly else common >= shared
    fits: Array = (enough & (common < drawn.sum(axis=1, keepdims=True))).all(axis=1)
    return fits
