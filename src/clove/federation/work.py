"""A group of clients at work: what each starts from, its batches, and what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from clove.federation import parameters as stacks
from clove.federation.batches import Plans
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Flags, Gradients, Train


@dataclass(frozen=True)
class Told:
    """What clients' functions may look at beside samples: stacks with a row for each client.

    `extras` and `shared` (which is the same for all, and has no rows) come from the server; `sent`
    is the model each was sent, where its objective looks at it; `kept` what each keeps, by name.
    """

    extras: Parameters = field(default_factory=dict)
    shared: Parameters = field(default_factory=dict)
    sent: Parameters = field(default_factory=dict)
    kept: Mapping[str, Parameters] = field(default_factory=dict)

    def pick(self, places: Indices) -> Told:
        """Return what the clients at these places were told."""
        return Told(
            stacks.pick(self.extras, places),
            self.shared,
            stacks.pick(self.sent, places),
            {name: stacks.pick(stack, places) for name, stack in self.kept.items()},
        )

    def first(self, rows: int) -> Told:
        """Return what the first clients were told, without a copy."""

        def cut(stack: Parameters) -> Parameters:
            return {name: tensor[:rows] for name, tensor in stack.items()}

        kept = {name: cut(stack) for name, stack in self.kept.items()}
        return Told(cut(self.extras), self.shared, cut(self.sent), kept)

    def of(self, place: int) -> Told:
        """Return what one client was told, without the clients' axis."""
        kept = {name: stacks.one(stack, place) for name, stack in self.kept.items()}
        return Told(stacks.one(self.extras, place), self.shared, stacks.one(self.sent, place), kept)

    def by_name(self) -> dict[str, Tensor]:
        """Return all tensors in one mapping."""
        parts = {"extras": self.extras, "shared": self.shared, "sent": self.sent, **self.kept}
        return {
            f"{part}/{name}": tensor
            for part, stack in parts.items()
            for name, tensor in stack.items()
        }

    def rows_of_shared(self, clients: int) -> Told:
        """Return the same with a row for each client of what is the same for all."""
        rows = {n: t.expand(clients, *t.shape) for n, t in self.shared.items()}
        return replace(self, extras={**rows, **self.extras}, shared={})


@dataclass(frozen=True)
class Work:
    """A group of clients to train: where each starts, and its batches step by step.

    `trained` are the entries that the optimiser moves; `changing` those that may change at all,
    running statistics included. `momentum` is what clients that keep theirs begin with.
    """

    clients: Indices
    starts: Parameters
    plans: Plans
    question: Train | Gradients
    trained: tuple[str, ...]
    changing: frozenset[str]
    told: Told = field(default_factory=Told)
    first_time: Flags | None = None  # who has not trained this before, where that matters
    momentum: Parameters | None = None

    @property
    def reports(self) -> bool:
        """Whether anybody wants to know the loss of every step."""
        question = self.question
        return isinstance(question, Train) and (question.report_losses or bool(question.settle))

    def momentum_of(self, place: int | Tensor) -> list[Tensor] | None:
        """Return the momentum that the client at a place begins with, or those at several."""
        if self.momentum is None:
            return None
        return [self.momentum[name][place] for name in self.trained]

    def pick(self, places: Indices, plans: Plans) -> Work:
        """Return the work of some of the clients, with these plans."""
        return replace(
            self,
            clients=self.clients[places],
            starts=stacks.pick(self.starts, places),
            told=self.told.pick(places),
            plans=plans,
            momentum=None if self.momentum is None else stacks.pick(self.momentum, places),
        )


@dataclass(frozen=True)
class Updated:
    """What came of a group's work: parameters, and where asked for the losses of every step.

    `momentum` is what clients keep theirs with.
    """

    models: Parameters
    losses: Tensor | None = None  # [clients, steps], NaN beyond a client's last step
    momentum: Parameters | None = None

    def pick(self, rows: Indices | slice) -> Updated:
        """Return what came of some of the clients."""

        def part(stack: Parameters) -> Parameters:
            return {name: tensor[rows] for name, tensor in stack.items()}

        return Updated(
            part(self.models),
            None if self.losses is None else self.losses[rows],
            None if self.momentum is None else part(self.momentum),
        )


def joined_losses(parts: list[Tensor]) -> Tensor:
    """Join tables of losses, filled up with NaN to the longest."""
    most = max(part.shape[1] for part in parts)
    filled = [torch.nn.functional.pad(p, (0, most - p.shape[1]), value=np.nan) for p in parts]
    return torch.cat(filled)
