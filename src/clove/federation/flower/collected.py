"""The clients' answers, put together as they come."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np

from clove.errors import CloveWarning
from clove.federation.flower.checks import number_of_losses
from clove.federation.flower.parts import joined
from clove.federation.parameters import GroupSums
from clove.federation.questions import (
    Answer,
    Evaluate,
    Gradients,
    Losses,
    LossVectors,
    Question,
    Recall,
    Recalled,
    Scores,
    Summaries,
    Summary,
    Train,
    Trained,
)


class Collected:
    """What came of a question, client by client.

    Models to be averaged are added up in the order the clients were asked in, whatever order they
    come in: so the same run gives the same bits. Those that come early wait for their turn.
    """

    def __init__(self, question: Question, rated: bool) -> None:
        self.question, self.rated = question, rated
        self._answers: dict[int, Answer] = {}
        self._settled: set[int] = set()
        self._next = 0
        groups = getattr(question, "reduce", None)
        self._sums = None if groups is None else GroupSums(int(max(groups, default=-1)) + 1)

    def add(self, place: int, answer: Answer | None) -> None:
        """Take the answer of the client at a place; None: there is none to wait for."""
        if answer is not None:
            self._answers[place] = answer
        self._settled.add(place)
        while self._next in self._settled:
            self._add_up(self._next)
            self._next += 1

    def _add_up(self, place: int) -> None:
        answer = self._answers.get(place)
        if self._sums is None or not isinstance(answer, Trained) or answer.models is None:
            return
        assert isinstance(self.question, Train | Gradients)
        assert self.question.reduce is not None
        self._sums.add(answer.models, self.question.reduce[place : place + 1], answer.samples)
        self._answers[place] = replace(answer, models=None)

    def answer(self) -> Answer:
        """Return the answer of all that replied, in the order they were asked in."""
        if not self._answers:
            return nobody(self.question, self.rated)
        self._drop_odd_ones()
        places = sorted(self._answers)
        whole = joined([self._answers[place] for place in places])
        whole = replace(whole, clients=self.question.clients[places])
        if self._sums is not None and isinstance(whole, Trained):
            models = self._sums.means() if self._sums.weights.any() else None
            whole = replace(whole, models=models, weights=self._sums.weights)
        return whole

    def _drop_odd_ones(self) -> None:
        """Leave out summaries of other names or shapes than most have."""
        shapes = {p: _shapes(one) for p, one in self._answers.items() if isinstance(one, Summaries)}
        if len(set(shapes.values())) < 2:
            return
        usual, _ = Counter(shapes.values()).most_common(1)[0]
        for place in [place for place, own in shapes.items() if own != usual]:
            del self._answers[place]
            warnings.warn(
                f"client {self.question.clients[place]} is set aside in Summary: its summary has "
                "other names or shapes than the others'",
                CloveWarning,
                stacklevel=2,
            )


def _shapes(answer: Summaries) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    return tuple((name, str(v.dtype), v.shape) for name, v in answer.values.items())


def nobody(question: Question, rated: bool) -> Answer:
    """Return the answer to a question that nobody answered."""
    none, empty = question.clients[:0], np.zeros(0)
    if isinstance(question, Losses):
        return LossVectors(none, np.zeros((0, number_of_losses(question))))
    if isinstance(question, Recall):
        return Recalled(none, none)
    if isinstance(question, Evaluate):
        return Scores(none, empty, empty if rated else None)
    if isinstance(question, Summary):
        return Summaries(none, {})
    groups = question.reduce
    weights = None if groups is None else np.zeros(int(max(groups, default=-1)) + 1)
    reports = question.assigns and question.stable_rounds
    stable = np.zeros(0, dtype=np.bool_) if reports else None
    losses = np.zeros((0, 0)) if getattr(question, "report_losses", False) else None
    return Trained(none, empty, weights=weights, stable=stable, losses=losses)
