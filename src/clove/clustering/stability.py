"""When the grouping has settled: each client knows for itself, the server only counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class AssignmentHistory:
    """The models one client was assigned to, oldest first. It is kept by the client.

    It holds every round the client took part in: a few bytes each, and any number of stable rounds
    can be asked for.

    >>> AssignmentHistory((0, 2, 2)).add(2).stable_for(3)
    True
    """

    models: tuple[int, ...] = ()

    def add(self, model: int) -> AssignmentHistory:
        """Return the history with one more assignment."""
        return AssignmentHistory((*self.models, int(model)))

    @property
    def last(self) -> int:
        """The client's latest model, -1 if it never had one."""
        return self.models[-1] if self.models else -1

    def stable_for(self, rounds: int) -> bool:
        """Tell whether the last ``rounds`` assignments exist and are all the same model."""
        if rounds < 1:
            raise ValueError(f"stable rounds must be at least 1, not {rounds}")
        return len(self.models) >= rounds and len(set(self.models[-rounds:])) == 1


def stability_reached(reports: ArrayLike, share: float = 1.0) -> bool:
    """Tell whether all participants, or at least a share of them, report that they are stable.

    Nobody reporting is no evidence of stability.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share}")
    stable = np.asarray(reports, dtype=bool)
    # Divided rather than multiplied: 11 of 20 is 0.55, but 0.55 * 20 comes out above 11.
    return stable.size > 0 and bool(np.count_nonzero(stable) / stable.size >= share)
