"""What every mixing is told, beside its own options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """How much each client is to get, and how the partition is drawn.

    Parameters
    ----------
    seed : int
        Seed of the partition into clusters.
    clients : int
        Clients of each cluster; all clients, where a mixing makes no clusters; 0 where it is for
        the mixing to say.
    train, test : int or None
        The most points a client gets; None: no limit.
    least_test : int
        Test points that a client must be able to get: those asked for, else one.
    authors : bool
        Do as the authors' code does, where that is not what the paper says.
    """

    seed: int
    clients: int
    train: int | None
    test: int | None
    least_test: int = 1
    authors: bool = False
