"""Named random streams: everything random in a run is drawn from one of these.

A stream is addressed by the run's seed, what it is for, and integers such as the round and the
client. So no draw depends on the order of others: a run resumed, or with other participants, or on
another engine, draws the same numbers for the same purpose.
"""

from __future__ import annotations

import zlib

import numpy as np


def sequence(seed: int, purpose: str, *index: int) -> np.random.SeedSequence:
    """Return the seed sequence of one purpose, at one place (round, client, ...)."""
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *map(int, index)])


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Return numpy's generator for one purpose, at one place.

    >>> stream(0, "batches", 3, 7).random() == stream(0, "batches", 3, 7).random()
    True
    """
    return np.random.default_rng(sequence(seed, purpose, *index))


def integer(seed: int, purpose: str, *index: int) -> int:
    """Return a 63-bit integer for libraries that take a plain seed (torch, scikit-learn)."""
    return int(sequence(seed, purpose, *index).generate_state(1, np.uint64)[0] >> 1)
