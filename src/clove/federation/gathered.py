"""What comes of a question for training, group by group, until it is an answer."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from clove.errors import CloveWarning
from clove.federation import parameters as stacks
from clove.federation.parameters import GroupSums, Indices, Parameters
from clove.federation.questions import Floats, Gradients, Train, Trained

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


class Gathered:
    """What came of a question for training, group by group."""

    def __init__(self, federation: Simulation, question: Train | Gradients) -> None:
        self.federation, self.question = federation, question
        self._places: list[Indices] = []
        self._stacked: list[Parameters] = []
        self._sums = None if question.reduce is None else GroupSums(_group_count(question.reduce))

    def add(self, places: Indices, trained: Parameters) -> None:
        """Take the trained stack of the clients at these places, but what is not finite."""
        question = self.question
        trained, places = self._finite(places, trained)
        self._places.append(places)
        if self._sums is not None:
            assert question.reduce is not None
            self._sums.add(trained, question.reduce[places], self._samples(places))
        elif isinstance(question, Train) and question.keep is not None:
            self.federation.memory.keep(question.keep, question.clients[places], trained)
        else:
            self._stacked.append(trained)

    def _finite(self, places: Indices, trained: Parameters) -> tuple[Parameters, Indices]:
        finite = stacks.finite_rows(trained)
        if finite.all():
            return trained, places
        names = ", ".join(map(str, self.question.clients[places[~finite]]))
        warnings.warn(
            f"round {self.federation.round}: training diverged on client {names}; "
            "its parameters are left out of this round (try a smaller learning rate)",
            CloveWarning,
            stacklevel=2,
        )
        return stacks.pick(trained, np.flatnonzero(finite)), places[finite]

    def answer(self) -> Trained:
        """Return the answer, the clients in the order they were asked in."""
        question, memory = self.question, self.federation.memory
        places = np.concatenate(self._places) if self._places else np.zeros(0, dtype=np.int64)
        in_order = np.argsort(places)
        places = places[in_order]
        clients, stable = question.clients[places], None
        if question.assigns:
            memory.note_assignments(clients, question.start[places])
            if question.stable_rounds:
                stable = memory.stable(clients, question.stable_rounds)
        models: Parameters | None = None
        if self._stacked and len(places):
            models = stacks.pick(stacks.concatenate(self._stacked), in_order)
        if self._sums is not None and len(places):
            models = self._sums.means()
        values = () if isinstance(question, Train) else self.federation.buffers
        return Trained(
            clients=clients,
            samples=self._samples(places),
            models=models,
            weights=None if self._sums is None else self._sums.weights,
            stable=stable,
            values=frozenset(values),
        )

    def _samples(self, places: Indices) -> Floats:
        sizes = self.federation.train_pool.sizes[self.question.clients[places]]
        return sizes.astype(np.float64)


def _group_count(groups: Indices) -> int:
    return int(groups.max()) + 1 if len(groups) else 0
