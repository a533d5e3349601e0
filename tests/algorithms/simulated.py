"""Small runs on the simulated engine, each made once for all tests that look at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import clove

SEEDS = (0, 1, 2)


@contextmanager
def untraced() -> Iterator[None]:
    """Measure no coverage for a while: it doubles the time of training, and adds little here.

    Runs like these show what a method achieves; its lines are gone through by scripted clients.
    """
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@cache
def digits(algorithm: str, seed: int = 0, rounds: int = 20, **options: Any) -> Any:
    """Run a method on the digits: five groups of five clients, two classes to a group."""
    with untraced():
        return clove.run(
            dataset="digits",
            mixing="label-skew-1",
            algorithm=algorithm,
            rounds=rounds,
            seed=seed,
            engine="vectorized",
            device="cpu",
            batch_size=10,
            learning_rate=0.003,
            **options,
        )
