"""A federation that answers from a script, to test server logic without any engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import settings

from clove.algorithms import Setup
from clove.federation import (
    Gradients,
    LocalTraining,
    Losses,
    LossVectors,
    Parameters,
    Question,
    Recall,
    Recalled,
    Seeded,
    Train,
    Trained,
)
from clove.federation.memory import ClientMemory
from clove.runs.loop import drive

# Deadlines measure the machine, not the code.
relaxed = settings(deadline=None, max_examples=40)

TRAINING = LocalTraining("sgd", learning_rate=0.5, batch_size=16, epochs=2)
SAME = 7.0  # the weight of all initial models that are to be the same


def models(*weights: float) -> Parameters:
    """Make a stack of models that have one weight each."""
    return {"weight": torch.tensor(weights, dtype=torch.float64)[:, None]}


def weights(stack: Parameters | None) -> list[float]:
    """Return the weights of such a stack."""
    assert stack is not None
    return stack["weight"][:, 0].tolist()


def everybody(number: int) -> np.ndarray:
    return np.arange(number)


def setup(clients: int, groups: int | None = None, seed: int = 0) -> Setup:
    """Make a setup whose initial models have weights 0, 10, 20, ..., or are all `SAME`."""

    def initial(number: int, how: str) -> Parameters:
        return models(*[SAME if how == "same" else 10.0 * k for k in range(number)])

    return Setup(clients, groups, TRAINING, seed, initial)


class ScriptedClients:
    """Clients who each want the weight of their model to be some target.

    A client's loss is the squared distance to its target (or what `losses` says, a row a client),
    training takes it there, and its gradient is how far away it starts. Models made from a seed
    have weights 0, 1, 2, ... Clients remember their assignments; those named in `missing`, by kind
    of question, do not reply; `backwards` lets replies come in in reverse order.
    """

    def __init__(
        self,
        targets: Sequence[float],
        *,
        losses: Any = None,
        samples: Sequence[float] | None = None,
        missing: Mapping[type, Collection[int]] | None = None,
        backwards: bool = False,
    ) -> None:
        self.targets = np.asarray(targets, dtype=float)
        self.losses = None if losses is None else np.asarray(losses, dtype=float)
        self.samples = np.ones(len(targets)) if samples is None else np.asarray(samples)
        self.missing = dict(missing or {})
        self.backwards = backwards
        self.memory = ClientMemory(len(targets))
        self.asked: list[Any] = []

    def play(self, asking: Any, *expected: type) -> Any:
        """Answer exactly the questions expected, in turn, and return what comes of it."""
        self.asked = []

        def answer(question: Question) -> Any:
            assert len(self.asked) < len(expected), f"one question too many: {question}"
            assert type(question) is expected[len(self.asked)]
            self.asked.append(question)
            return self._answer(question)

        result = drive(asking, answer)
        assert len(self.asked) == len(expected), f"only asked {self.asked}"
        return result

    def _answer(self, question: Question) -> Any:
        away = list(self.missing.get(type(question), ()))
        places = np.flatnonzero(~np.isin(question.clients, away))
        places = places[::-1] if self.backwards else places
        clients = question.clients[places]
        if isinstance(question, Recall):
            return Recalled(clients, self.memory.assignments(clients))
        if isinstance(question, Losses):
            return LossVectors(clients, self._losses(question)[clients])
        assert isinstance(question, Train | Gradients)
        return self._trained(question, places, clients)

    def _losses(self, question: Losses) -> np.ndarray:
        if self.losses is not None:
            return self.losses
        seeded = isinstance(question.models, Seeded)
        on = np.arange(question.models.count) if seeded else np.array(weights(question.models))
        return (self.targets[:, None] - on) ** 2

    def _trained(self, question: Train | Gradients, places: Any, clients: Any) -> Trained:
        result = self.targets[clients]
        if isinstance(question, Gradients):
            result = np.array(weights(question.models))[question.start[places]] - result
        stable = None
        if question.assigns:
            self.memory.note_assignments(clients, question.start[places])
            stable = self.memory.stable(clients, question.stable_rounds)
        answer: dict[str, Any] = {
            "clients": clients,
            "samples": self.samples[clients],
            "stable": stable,
        }
        if isinstance(question, Train) and question.keep is not None:
            return Trained(**answer)
        if question.reduce is None:
            return Trained(**answer, models=models(*result) if len(clients) else None)
        groups = question.reduce[places]
        number = int(question.reduce.max(initial=-1)) + 1
        totals = np.bincount(groups, self.samples[clients], number)
        sums = np.bincount(groups, self.samples[clients] * result, number)
        means = models(*np.divide(sums, totals, out=np.zeros(number), where=totals > 0))
        return Trained(**answer, models=means if len(clients) else None, weights=totals)
