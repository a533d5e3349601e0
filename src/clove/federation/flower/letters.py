"""A question as messages, to each client its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import RecordDict

from clove.federation import parameters as stacks
from clove.federation.flower.codec import Writer
from clove.federation.flower.header import Header
from clove.federation.flower.parts import CLIENTS, Held, OneOf, Whole, for_client
from clove.federation.parameters import Parameters
from clove.federation.questions import Evaluate, Question
from clove.federation.wire import Stacks


class Letters:
    """Writes messages of one question; `name` is what clients are to hold its models by.

    A client gets of a stack of models what it needs and does not have: the one it is to use, where
    the question says which, or all, which it then holds until the round is over. Evaluation is a
    measurement apart, and leaves nothing with the clients.
    """

    def __init__(self, question: Question, sent: Stacks, name: str) -> None:
        self.question, self.sent, self.name = question, sent, name
        self._index = getattr(question, "start", getattr(question, "index", None))
        self._writer = Writer()
        self._ones: dict[int, OneOf] = {}

    def write(self, place: int, header: Header) -> RecordDict:
        """Return the message to the client at a place of the question."""
        own: Any = for_client(self.question, place)
        models = getattr(own, "models", None)
        if isinstance(models, Mapping):
            own = replace(own, models=self._models(models, place))
        content = self._writer.records(own, without=CLIENTS)
        header.write(content)
        return content

    def _models(self, models: Parameters, place: int) -> Held | Whole | OneOf:
        client, number = int(self.question.clients[place]), stacks.count(models)
        held = self.sent.held_by(models, client)
        if held is not None:
            return Held(held)
        if self._index is None or (number == 1 and not isinstance(self.question, Evaluate)):
            self.sent.send(models, client, self.name)
            return Whole(self.name, models)
        return self._one(models, int(self._index[place]))

    def _one(self, models: Parameters, chosen: int) -> OneOf:
        if chosen not in self._ones:
            own = stacks.pick(models, np.array([chosen]))
            self._ones[chosen] = OneOf(stacks.count(models), own)
        return self._ones[chosen]
