"""What clients keep between rounds, by name. Nothing of it reaches the server unless asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from clove.clustering import AssignmentHistory
from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters, pick


class ClientMemory:
    """The memories of all simulated clients: assignment histories, and what they keep by name."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.histories = [AssignmentHistory()] * clients
        self._kept: dict[str, dict[str, Tensor]] = {}
        self._has: dict[str, np.ndarray[Any, np.dtype[np.bool_]]] = {}

    def note_assignments(self, clients: Indices, models: Indices) -> None:
        """Add to each client's history the model it was assigned to."""
        for client, model in zip(clients, models, strict=True):
            self.histories[client] = self.histories[client].add(int(model))

    def assignments(self, clients: Indices) -> Indices:
        """Return the model each client was last assigned to, -1 for none."""
        return np.array([self.histories[client].last for client in clients], dtype=np.int64)

    def stable(self, clients: Indices, rounds: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Say of each client whether its last `rounds` assignments are the same."""
        return np.array([self.histories[c].stable_for(rounds) for c in clients], dtype=np.bool_)

    def keep(self, name: str, clients: Indices, models: Parameters) -> None:
        """Store one model, or whatever else is a stack of tensors, for each client."""
        if name not in self._kept:
            self._kept[name] = {
                key: tensor.new_zeros((self.clients, *tensor.shape[1:]))
                for key, tensor in models.items()
            }
            self._has[name] = np.zeros(self.clients, dtype=np.bool_)
        if self._kept[name].keys() != models.keys():
            raise CloveError(
                f"clients keep {', '.join(self._kept[name])} under {name!r}, and cannot keep "
                f"{', '.join(models)} there too: use another name"
            )
        for key, tensor in models.items():
            self._kept[name][key][clients] = tensor
        self._has[name][clients] = True

    def has(self, name: str, clients: Indices) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Say of each client whether it keeps anything under this name."""
        return self._has.get(name, np.zeros(self.clients, dtype=np.bool_))[clients]

    def kept(self, name: str, clients: Indices) -> dict[str, Tensor]:
        """Return what clients keep under a name, as a stack."""
        return pick(self._kept[name], clients)

    def saved(self) -> dict[str, Any]:
        """Return everything as a tree of plain values, arrays and tensors.

        Not copies, which could take as much memory again: write them out before the next question.
        """
        return {
            "histories": [list(history.models) for history in self.histories],
            "kept": {name: dict(stack) for name, stack in self._kept.items()},
            "has": dict(self._has),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `saved` returned."""
        self.histories = [AssignmentHistory(tuple(models)) for models in saved["histories"]]
        self._kept = {name: dict(stack) for name, stack in saved["kept"].items()}
        self._has = dict(saved["has"])
