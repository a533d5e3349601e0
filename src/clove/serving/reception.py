"""Placing newcomers by their losses alone: which models they measure, and what that means.

Every method's newcomers are asked questions, as its clients are. A service can put one: *the losses
of these models on your data*. Methods that ask for more are told apart when the service starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from clove.clustering import Assignments
from clove.clustering.transforms import POSITIVE_ONLY
from clove.errors import CloveError
from clove.federation import Losses, LossVectors, Seeded
from clove.federation.initial import seeded_model
from clove.federation.parameters import count, move, one
from clove.federation.precision import dtype_of
from clove.runs import Result
from clove.tasks.export import parameter_bytes

NEWCOMER = np.array([0])


class Reception:
    """A run that newcomers come to."""

    def __init__(self, result: Result) -> None:
        self.result, self._ask = result, result.asking()
        self.question = self._only_question()
        if self.seeded is not None:
            result.task()  # makes its probes, and says so where it is not there
        self.place(np.ones(self.probes))  # whatever cannot be answered is said before anybody asks

    def _only_question(self) -> Losses:
        method = self.result.settings.algorithm
        question = next(self._ask(), None)
        if question is None:
            raise CloveError(
                f"{method} has one model for everybody, so that newcomers need no place: "
                "`clove export` writes it as a file"
            )
        if not isinstance(question, Losses) or question.unseen is not None:
            raise CloveError(
                f"{method} places newcomers by more than their losses: `clove assign` does it "
                "where their data are"
            )
        return question

    @property
    def seeded(self) -> Seeded | None:
        """The seed that newcomers can make the probes from, where there is one."""
        return self.question.models if isinstance(self.question.models, Seeded) else None

    @cached_property
    def probes(self) -> int:
        """How many models a newcomer measures."""
        models = self.question.models
        return models.count if isinstance(models, Seeded) else count(models)

    @property
    def transform(self) -> str:
        """What is done to losses before they are compared."""
        return str(getattr(self.result.method(), "transform", "identity"))

    @property
    def lowest(self) -> float | None:
        """The lowest loss that can be compared; None: there is none."""
        usual = self.result.settings.loss == "auto"  # of which none is negative
        return 0.0 if usual or self.transform in POSITIVE_ONLY else None

    def place(self, losses: Sequence[float] | np.ndarray) -> Assignments:
        """Return where a newcomer with these losses belongs, as the only row."""
        asking = self._ask()
        next(asking)
        try:
            asking.send(LossVectors(NEWCOMER, np.array([losses], dtype=np.float64)))
        except StopIteration as stop:
            found: Assignments = stop.value
            return found
        method = self.result.settings.algorithm
        raise CloveError(f"{method} asks newcomers more than once: `clove assign` answers")

    def probe(self, number: int) -> bytes:
        """Return a model to be measured, in the format of safetensors."""
        models, precision = self.question.models, self.result.settings.precision
        if isinstance(models, Seeded):
            state = seeded_model(self.result.task(), models.seed, number)
            state = move(state, torch.device("cpu"), dtype_of(precision))
        else:
            state = one(models, number)
        return parameter_bytes(state, self.result.about(f"probe-{number}"))

    def model(self, number: int) -> bytes:
        """Return a model of the run, in the format of safetensors."""
        return parameter_bytes(self.result.parameters(number), self.result.about(f"model-{number}"))
