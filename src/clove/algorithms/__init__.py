"""The methods: one file each, server logic only."""

from __future__ import annotations

from typing import Any

from clove.algorithms.base import Algorithm, Asking, Outcome, Setup
from clove.algorithms.clove import Clove
from clove.algorithms.fedavg import FedAvg
from clove.algorithms.ifca import Ifca
from clove.algorithms.local import Local
from clove.errors import CloveError, unknown_name

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {}


def register(algorithm: type[Algorithm[Any]]) -> type[Algorithm[Any]]:
    """Make a method known by its name; usable as a class decorator."""
    known = ALGORITHMS.get(algorithm.name)
    if known is not None and known is not algorithm:
        raise CloveError(f"an algorithm named {algorithm.name!r} is registered already: {known}")
    ALGORITHMS[algorithm.name] = algorithm
    return algorithm


def find_algorithm(name: str) -> type[Algorithm[Any]]:
    """Return the method of that name."""
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


for _algorithm in (Clove, FedAvg, Ifca, Local):
    register(_algorithm)

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Asking",
    "Clove",
    "FedAvg",
    "Ifca",
    "Local",
    "Outcome",
    "Setup",
    "find_algorithm",
    "register",
]
