"""How many bytes questions and answers take on a network.

Payload only: parameters, losses and integers, eight bytes a number that is not a parameter;
headers are not counted, nor settings such as the learning rate. A client keeps what it received
until the round is over, so a stack of models goes to each client at most once a round: one that was
sent all models for their losses needs no second copy to train one of them.
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
    Recalled,
    Scores,
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
    _stacks: Stacks = field(default_factory=lambda: Stacks())

    def begin_round(self) -> None:
        """Start a round: nothing counted, and clients have nothing of the round before."""
        self.down = self.up = self.evaluation_down = self.evaluation_up = 0
        self._stacks = Stacks()

    def count(self, question: Question, answer: Answer) -> None:
        """Add a question to all clients asked, and the answer of all that replied."""
        self.note(question, self._down(question, answer), _up(answer))

    def note(self, question: Question, down: int, up: int) -> None:
        """Add so many bytes for a question and its answers."""
        if isinstance(question, Evaluate):
            self.evaluation_down += down
            self.evaluation_up += up
        else:
            self.down += down
            self.up += up

    def _down(self, question: Question, answer: Answer) -> int:
        asked = len(question.clients)
        if isinstance(question, Evaluate):
            clients, kept = question.clients, isinstance(question.models, Kept)
            if question.index is None and not kept:
                clients = answer.clients  # the server knows whom it gave a model to remember
            models = self._models_down(question.models, clients, 1, remember=False)
            index = 0 if kept else NUMBER * len(clients)
            seeds = len(clients) * _seeds_bytes(*question.reads)
            return models + index + seeds + _extras_bytes(question.extras, len(clients), asked)
        if isinstance(question, Losses):
            unseen = NUMBER * int(np.sum(question.unseen.model >= 0)) if question.unseen else 0
            every = None if isinstance(question.models, Seeded) else count(question.models)
            return self._models_down(question.models, question.clients, every) + unseen
        if isinstance(question, Train | Gradients):
            models = self._models_down(question.models, question.clients, 1)
            reads = (*question.reads, question.trains) if isinstance(question, Train) else ()
            own = NUMBER + _seeds_bytes(*reads)
            return models + own * asked + _extras_bytes(question.extras, asked, asked)
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
            return len(clients) * _seeds_bytes(models)
        assert each is not None
        new = [int(c) for c in clients if self._stacks.held_by(models, int(c)) is None]
        if remember and each == count(models):  # who got all has them until the round ends
            for client in new:
                self._stacks.send(models, client, "")
        return len(new) * each * model_bytes(models)


class Stacks:
    """The stacks of models sent in a round, by name, and which clients hold them."""

    def __init__(self) -> None:
        self._sent: list[tuple[Parameters, dict[int, str]]] = []

    def send(self, models: Parameters, client: int, name: str) -> None:
        """Note that a client was sent this stack under a name."""
        for stack, holders in self._sent:
            if stack is models:
                holders[client] = name
                return
        self._sent.append((models, {client: name}))

    def forget(self, client: int) -> None:
        """Note that a client may hold nothing: it did not answer."""
        for _, holders in self._sent:
            holders.pop(client, None)

    def held_by(self, models: Parameters, client: int) -> str | None:
        """Return the name under which a client holds this very stack, None where it does not."""
        for stack, holders in self._sent:
            if stack is models:
                return holders.get(client)
        return None


def _seeds_bytes(*models: Seeded | Kept | None) -> int:
    """Return the bytes of the seeds from which a client makes models, or may have to."""
    made = [one.otherwise if isinstance(one, Kept) else one for one in models]
    return sum(2 * NUMBER for one in made if isinstance(one, Seeded))


def _extras_bytes(extras: Extras | None, sent: int, asked: int) -> int:
    """Return the bytes of what goes to so many of the clients asked."""
    if extras is None or not asked:
        return 0
    return sent * (_tensor_bytes(extras.shared) + _tensor_bytes(extras.per_client) // asked)


def _tensor_bytes(values: Values) -> int:
    return sum(value.nbytes for value in values.values())


def _up(answer: Answer) -> int:
    replied = len(answer.clients)
    if isinstance(answer, LossVectors):
        return NUMBER * answer.losses.size
    if isinstance(answer, Recalled):
        # The server knows what it told a client: it has to ask only those it never told a model.
        return NUMBER * int(np.sum(answer.models < 0))
    if isinstance(answer, Scores):
        return NUMBER * replied * (1 if answer.accuracy is None else 2)
    if isinstance(answer, Trained):
        model = 0 if answer.models is None else model_bytes(answer.models)
        losses = 0 if answer.losses is None else int(np.sum(~np.isnan(answer.losses)))
        numbers = 2 if answer.stable is not None else 1
        return replied * (model + NUMBER * numbers) + NUMBER * losses
    if isinstance(answer, Summaries):
        return sum(value.nbytes for value in answer.values.values())
    return NUMBER * replied
