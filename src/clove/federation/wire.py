"""How many bytes questions and answers take on a network.

Payload only: parameters, losses and integers, eight bytes a number that is not a parameter;
headers are not counted. A client keeps what it received until the round is over, so a stack of
models goes to each client at most once a round: one that was sent all models for their losses needs
no second copy to train one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clove.federation.parameters import Indices, Parameters, count, model_bytes
from clove.federation.questions import (
    Answer,
    Evaluate,
    Extras,
    Gradients,
    Kept,
    Losses,
    LossVectors,
    Question,
    Seeded,
    Summaries,
    Summary,
    Train,
    Trained,
    Values,
)

NUMBER = 8


@dataclass
class Ledger:
    """Counts bytes where questions and answers pass, by round.

    Evaluation is a measurement, not part of a method, and is kept apart.
    """

    down: int = 0
    up: int = 0
    evaluation_down: int = 0
    evaluation_up: int = 0
    _sent: list[tuple[Parameters, set[int]]] = field(default_factory=list)

    def begin_round(self) -> None:
        """Start a round: nothing counted, and clients have nothing of the round before."""
        self.down = self.up = self.evaluation_down = self.evaluation_up = 0
        self._sent = []

    def count(self, question: Question, answer: Answer) -> None:
        """Add a question to all clients asked, and the answer of all that replied."""
        if isinstance(question, Evaluate):
            models = self._models_down(question.models, question.clients, 1, remember=False)
            extras = _extras_bytes(question.extras, len(question.clients))
            self.evaluation_down += models + extras
            self.evaluation_up += 2 * NUMBER * len(answer.clients)
            return
        self.down += self._down(question)
        self.up += _up(answer)

    def _down(self, question: Question) -> int:
        asked = len(question.clients)
        if isinstance(question, Losses):
            unseen = NUMBER * int(np.sum(question.unseen.model >= 0)) if question.unseen else 0
            every = None if isinstance(question.models, Seeded) else count(question.models)
            return self._models_down(question.models, question.clients, every) + unseen
        if isinstance(question, Train | Gradients):
            models = self._models_down(question.models, question.clients, 1)
            return models + NUMBER * asked + _extras_bytes(question.extras, asked)
        if isinstance(question, Summary) and question.models is not None:
            models = self._models_down(question.models, question.clients, 1)
            return models + (0 if question.start is None else NUMBER * asked)
        return 0

    def _models_down(
        self,
        models: Parameters | Seeded | Kept,
        clients: Indices,
        each: int | None,
        remember: bool = True,
    ) -> int:
        """Return the bytes of `each` models to each client, without those that have them."""
        if isinstance(models, Seeded | Kept):
            return 2 * NUMBER * len(clients)
        assert each is not None
        new = [int(client) for client in clients if not self._has(models, int(client))]
        if remember and each == count(models):  # who got all has them until the round ends
            self._sent.append((models, set(new)))
        return len(new) * each * model_bytes(models)

    def _has(self, models: Parameters, client: int) -> bool:
        return any(stack is models and client in clients for stack, clients in self._sent)


def _extras_bytes(extras: Extras | None, asked: int) -> int:
    if extras is None:
        return 0
    return asked * _tensor_bytes(extras.shared) + _tensor_bytes(extras.per_client)


def _tensor_bytes(values: Values) -> int:
    return sum(value.nbytes for value in values.values())


def _up(answer: Answer) -> int:
    replied = len(answer.clients)
    if isinstance(answer, LossVectors):
        return NUMBER * answer.losses.size
    if isinstance(answer, Trained):
        model = 0 if answer.models is None else model_bytes(answer.models)
        losses = 0 if answer.losses is None else int(np.sum(~np.isnan(answer.losses)))
        numbers = 2 if answer.stable is not None else 1
        return replied * (model + NUMBER * numbers) + NUMBER * losses
    if isinstance(answer, Summaries):
        return sum(value.nbytes for value in answer.values.values())
    return NUMBER * replied
