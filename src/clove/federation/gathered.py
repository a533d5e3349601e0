"""What comes of a question for training, group by group, until it is an answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from clove.errors import CloveWarning
from clove.federation import parameters as stacks
from clove.federation.parameters import GroupSums, Indices, Parameters
from clove.federation.questions import Flags, Floats, Gradients, Part, Train, Trained
from clove.federation.work import Updated, joined_losses

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


class Gathered:
    """What came of a question for training, group by group."""

    def __init__(self, federation: Simulation, question: Train | Gradients) -> None:
        self.federation, self.question = federation, question
        self._places: list[Indices] = []
        self._stacked: list[Parameters] = []
        self._losses: list[Tensor] = []
        self._part: Part | None = "all"
        self._keep: str | None = None
        self._reports = self._keeps_momentum = False
        if isinstance(question, Train):
            self._part, self._keep = question.sent_part, question.keep
            self._reports = question.report_losses
            self._keeps_momentum = question.training.keep_momentum
        self._sums = None if question.reduce is None else GroupSums(_group_count(question.reduce))
        self._unsettled: Callable[[], None] | None = None

    def add(self, places: Indices, updated: Updated) -> None:
        """Take what came of the clients at these places, but what is not finite.

        Sums are begun in the hope that all is, and begun again without what is not: so the device
        need not wait for the host to look.
        """
        self._settle()
        finite = stacks.finite_rows(updated.models)
        if self._sums is None or self._keep is not None or self._keeps_momentum:
            self._take(*self._finite(places, updated, finite()))
            return
        before = self._sums.copy()
        self._add_to(self._sums, places, updated.models)
        self._unsettled = partial(self._settle_sums, before, places, updated, finite)

    def _take(self, updated: Updated, places: Indices) -> None:
        """Take what is known to be finite."""
        self._note(places, updated)
        if self._keep is not None:
            self.federation.memory.keep(self._keep, self.question.clients[places], updated.models)
        if updated.momentum is not None:
            name = self.question.training.momentum_name
            self.federation.memory.keep(name, self.question.clients[places], updated.momentum)
        if self._sums is not None:
            self._add_to(self._sums, places, updated.models)
        elif self._part is not None:
            self._stacked.append(self._sent(updated.models))

    def _note(self, places: Indices, updated: Updated) -> None:
        self._places.append(places)
        if self._reports and updated.losses is not None:
            self._losses.append(updated.losses)

    def _add_to(self, sums: GroupSums, places: Indices, trained: Parameters) -> None:
        assert self.question.reduce is not None
        if self._part is not None:
            sums.add(self._sent(trained), self.question.reduce[places], self._samples(places))

    def _sent(self, trained: Parameters) -> Parameters:
        """Return the part of what was trained that is sent."""
        if self._part is None or self._part == "all":
            return trained
        names = self.federation.part(self._part)
        return {name: tensor for name, tensor in trained.items() if name in names}

    def _settle(self) -> None:
        """Look whether what was added last was finite."""
        if self._unsettled is not None:
            self._unsettled()
        self._unsettled = None

    def _settle_sums(
        self,
        before: GroupSums,
        places: Indices,
        updated: Updated,
        finite: Callable[[], Flags],
    ) -> None:
        fine, kept = self._finite(places, updated, finite())
        self._note(kept, fine)
        if len(kept) < len(places):
            self._sums = before
            self._add_to(self._sums, kept, fine.models)

    def _finite(self, places: Indices, updated: Updated, finite: Flags) -> tuple[Updated, Indices]:
        if finite.all():
            return updated, places
        numbers = self.federation.numbers[self.question.clients[places[~finite]]]
        names = ", ".join(map(str, numbers))
        warnings.warn(
            f"round {self.federation.round}: training diverged on client {names}; "
            "its parameters are left out of this round (try a smaller learning rate)",
            CloveWarning,
            stacklevel=2,
        )
        return updated.pick(np.flatnonzero(finite)), places[finite]

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
        if self._sums is not None and self._sums.weights.any():
            models = self._sums.means()
        return Trained(
            clients=clients,
            samples=self._samples(places),
            models=models,
            weights=None if self._sums is None else self._sums.weights,
            stable=stable,
            values=frozenset(self.federation.buffers),
            losses=self._losses_of_steps(in_order) if self._reports else None,
        )

    def _losses_of_steps(self, in_order: Indices) -> Floats:
        """Return the losses of all steps, as wide as the most steps that one of them made."""
        if not self._losses:
            return np.zeros((0, 0))
        table = joined_losses(self._losses).cpu().numpy().astype(np.float64)[in_order]
        steps = np.flatnonzero(~np.isnan(table).all(axis=0))
        return table[:, : steps.max(initial=-1) + 1]

    def _samples(self, places: Indices) -> Floats:
        sizes = self.federation.train_pool.sizes[self.question.clients[places]]
        return sizes.astype(np.float64)


def _group_count(groups: Indices) -> int:
    return int(groups.max()) + 1 if len(groups) else 0
