"""One client's part of a question, and the answers of clients put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clove.errors import CloveError
from clove.federation.parameters import Indices, Parameters, count
from clove.federation.questions import Answer, Gradients, Question, Train

CLIENTS = frozenset({"clients"})  # the field of questions and answers that need not be sent
Asked = TypeVar("Asked", bound=Question)
Replied = TypeVar("Replied", bound=Answer)


def for_clients(question: Asked, places: Indices) -> Asked:
    """Return a question to the clients at these places only, with their own entries."""
    own: dict[str, Any] = {}
    for part in fields(question):
        value = getattr(question, part.name)
        if isinstance(value, np.ndarray):
            own[part.name] = value[places]
        elif hasattr(value, "pick"):
            own[part.name] = value.pick(places)
    return replace(question, **own)


def for_client(question: Asked, place: int) -> Asked:
    """Return a question as the client at this place needs it: averaging is not its business."""
    own = for_clients(question, np.array([place]))
    return replace(own, reduce=None) if isinstance(own, Train | Gradients) else own


def joined(answers: Sequence[Replied]) -> Replied:
    """Return the answers of several clients as one, in the order given."""
    first = answers[0]
    whole = {
        part.name: _joined([getattr(one, part.name) for one in answers]) for part in fields(first)
    }
    return replace(first, **whole)


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        widest = max(one.shape[1:] for one in values)
        return np.concatenate([_filled(one, widest) for one in values])
    if isinstance(first, Tensor):
        return torch.cat(values)
    if isinstance(first, Mapping):
        return {name: _joined([one[name] for one in values]) for name in first}
    return first


def _filled(row: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Fill a row of losses up with NaN: some clients make more steps than others."""
    if row.ndim != 2 or row.shape[1:] == shape:
        return row
    return np.pad(row, ((0, 0), (0, shape[0] - row.shape[1])), constant_values=np.nan)


# ----------------------------------------------------- stacks of models, as far as they are sent


@dataclass(frozen=True)
class Whole:
    """A stack sent in full, which the client holds under a name until the round is over."""

    name: str
    models: Parameters

    def unfold(self, held: Mapping[str, Parameters]) -> Parameters:
        """Return the stack."""
        return Received(self.models, self.name)


@dataclass(frozen=True)
class Held:
    """A stack the client holds since earlier in the round."""

    name: str

    def unfold(self, held: Mapping[str, Parameters]) -> Parameters:
        """Return the stack the client holds."""
        if self.name not in held:
            raise CloveError(f"the models {self.name} of this round are not here: sent elsewhere?")
        return held[self.name]


@dataclass(frozen=True)
class OneOf:
    """The one model of a stack that the client needs, with the number of models in the stack."""

    number: int
    model: Parameters

    def unfold(self, held: Mapping[str, Parameters]) -> Parameters:
        """Return a stack in which every model is this one: the client asks for no other."""
        if self.number < 1 or count(self.model) != 1:
            raise CloveError("one model of a stack was announced, and something else was sent")
        return {name: t.expand(self.number, *t.shape[1:]) for name, t in self.model.items()}


class Received(dict[str, Tensor]):
    """A stack that came in full, and the name to hold it by."""

    def __init__(self, models: Parameters, name: str) -> None:
        super().__init__(models)
        self.name = name
