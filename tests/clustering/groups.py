"""Client groups made for the tests of this room."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

# Deadlines measure the machine, not the code.
relaxed = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)


def separated_losses(
    seed: int, n_clusters: int, per_cluster: int, noise: float = 0.02
) -> tuple[np.ndarray, np.ndarray]:
    """Make clients in shuffled order that each do well on their own cluster's model alone."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(n_clusters), per_cluster))
    losses = np.where(np.eye(n_clusters, dtype=bool), 0.2, 2.0)[truth]
    return losses + noise * rng.random(losses.shape), truth


def same_groups(left: np.ndarray, right: np.ndarray) -> bool:
    """Tell whether two labellings are one but for the names of the groups."""
    pairs = {(int(a), int(b)) for a, b in zip(left, right, strict=True)}
    return len(pairs) == len(set(map(int, left))) == len(set(map(int, right)))


def is_coarser_each_time(partitions: list[np.ndarray]) -> bool:
    """Tell whether every partition is made of whole clusters of the one before."""
    return all(
        len(set(zip(fine.tolist(), coarse.tolist(), strict=True))) == len(set(fine.tolist()))
        and coarse.max() < fine.max()
        for fine, coarse in pairwise(partitions)
    )
