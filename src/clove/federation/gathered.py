"""What comes of a question for training, group by group, until it is an answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clove.errors import CloveWarning
from clove.federation import parameters as stacks
from clove.federation.parameters import GroupSums, Indices, Parameters
from clove.federation.questions import Flags, Floats, Gradients, Train, Trained

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


class Gathered:
    """What came of a question for training, group by group."""

    def __init__(self, federation: Simulation, question: Train | Gradients) -> None:
        self.federation, self.question = federation, question
        self._places: list[Indices] = []
        self._stacked: list[Parameters] = []
        self._sums = None if question.reduce is None else GroupSums(_group_count(question.reduce))
        self._unsettled: Callable[[], None] | None = None

    def add(self, places: Indices, trained: Parameters) -> None:
        """Take the trained stack of the clients at these places, but what is not finite.

        Sums are begun in the hope that all is, and begun again without what is not: so the device
        need not wait for the host to look.
        """
        self._settle()
        question, finite = self.question, stacks.finite_rows(trained)
        if self._sums is not None:
            before = self._sums.copy()
            self._add_to(self._sums, places, trained)
            self._unsettled = partial(self._settle_sums, before, places, trained, finite)
            return
        trained, places = self._finite(places, trained, finite())
        self._places.append(places)
        if isinstance(question, Train) and question.keep is not None:
            self.federation.memory.keep(question.keep, question.clients[places], trained)
        else:
            self._stacked.append(trained)

    def _add_to(self, sums: GroupSums, places: Indices, trained: Parameters) -> None:
        assert self.question.reduce is not None
        sums.add(trained, self.question.reduce[places], self._samples(places))

    def _settle(self) -> None:
        """Look whether what was added last was finite."""
        if self._unsettled is not None:
            self._unsettled()
        self._unsettled = None

    def _settle_sums(
        self,
        before: GroupSums,
        places: Indices,
        trained: Parameters,
        finite: Callable[[], Flags],
    ) -> None:
        fine, kept = self._finite(places, trained, finite())
        self._places.append(kept)
        if len(kept) < len(places):
            self._sums = before
            self._add_to(self._sums, kept, fine)

    def _finite(
        self, places: Indices, trained: Parameters, finite: Flags
    ) -> tuple[Parameters, Indices]:
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
        self._settle()
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
