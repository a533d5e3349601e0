"""What is begun next: the longest first, and nothing that would not be done in time.

How long a stack of runs takes is estimated from its arithmetic. That is rough, so it is scaled by
what runs like it took on this machine: those in the tables of results, and those made just now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from math import inf

import torch

from clove.paper.choice import Stack
from clove.paper.estimate import machine_rate, seconds_for
from clove.paper.experiment import Cell
from clove.paper.making import Made
from clove.paper.results import NAMED, Results
from clove.runs.made import versions

Seconds = Callable[[Cell], float]
"""How long one run of a cell takes, by its arithmetic."""


class Ratios:
    """How long things took over what was expected: by data set and method, else by data set."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[float, float]] = {}

    def add(self, cell: Cell, took: float, expected: float) -> None:
        """Take note of runs of a cell."""
        for kind in _kinds(cell):
            before = self._sums.get(kind, (0.0, 0.0))
            self._sums[kind] = before[0] + took, before[1] + expected

    def of(self, cell: Cell) -> float:
        """Return the ratio for a cell: that of its like, else of all, and 1 where nothing was."""
        for kind in _kinds(cell):
            took, expected = self._sums.get(kind, (0.0, 0.0))
            if expected > 0:
                return took / expected
        return 1.0

    def knows(self, dataset: str) -> bool:
        """Say whether anything was made of a data set."""
        return (dataset,) in self._sums


def _kinds(cell: Cell) -> tuple[tuple[str, ...], ...]:
    return (cell.dataset, cell.algorithm), (cell.dataset,), ()


class Pace:
    """How long stacks take on this machine, which is told what they did take."""

    def __init__(self, seconds: Seconds, earlier: Ratios | None = None) -> None:
        self._seconds = seconds
        self.earlier, self.now = earlier or Ratios(), Ratios()

    @classmethod
    def here(cls, device: torch.device, results: Results) -> Pace:
        """Return the pace of this machine, by what it is known to have made."""
        rate = machine_rate(device.type)

        def seconds(cell: Cell) -> float:
            return seconds_for(cell, rate)

        gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
        return cls(seconds, earlier_ratios(results, versions(gpu)["machine"], seconds))

    def expected(self, stack: Stack) -> float:
        """Return how long the runs of a stack take."""
        return self._before(stack) * self.now.of(stack.cell)

    def took(self, stack: Stack, seconds: float) -> None:
        """Take note of how long a stack took from its first round to its last."""
        self.now.add(stack.cell, seconds, self._before(stack))

    def knows(self, dataset: str) -> bool:
        """Say whether anything was made of a data set on this machine."""
        return self.earlier.knows(dataset) or self.now.knows(dataset)

    def _before(self, stack: Stack) -> float:
        """Return what would be expected if nothing had been made just now."""
        one = self._seconds(stack.cell) * self.earlier.of(stack.cell)
        return one * len(stack.seeds)


def earlier_ratios(results: Results, machine: str, seconds: Seconds) -> Ratios:
    """Return how long the runs took that a machine is known to have made."""
    found = Ratios()
    for run in results.runs.to_dict("records"):
        if run["machine"] == machine:
            named = {name: run[name] for name in NAMED}
            cell = Cell({**named, **json.loads(run["options"])})
            found.add(cell, float(run["seconds"]), seconds(cell))
    return found


class Queue:
    """The stacks that wait to be begun, and which is next.

    Without a pace they go in order. With one the longest is first, if so asked, so that none is
    left alone at the end; and where there is a time to be done by, none is begun that would not be.
    Of a data set that nothing is known of yet, the shortest is tried all the same.
    """

    def __init__(
        self,
        stacks: Sequence[Stack],
        pace: Pace | None = None,
        *,
        longest_first: bool = False,
        until: float | None = None,
    ) -> None:
        self.pace, self.longest_first, self.until = pace, longest_first, until
        self.waiting, self.stopped = list(stacks), list[Stack]()
        self._part = {one.cell.key: one.unfinished / len(one.seeds) for one in stacks}
        self._new = {one.cell.key for one in stacks if one.is_new}
        self._tried: set[str] = set()

    def take(self) -> Stack | None:
        """Return the stack to begin next; None where none waits that would be done in time."""
        found = self._next()
        if found is not None:
            self.waiting = [one for one in self.waiting if one is not found]
            self._tried.add(found.cell.dataset)
        return found

    def put_back(self, stack: Stack) -> None:
        """Let a stack wait again whose process died."""
        self.waiting.insert(0, stack)
        self._new.discard(stack.cell.key)

    def note(self, stack: Stack, made: Made) -> None:
        """Take note of what came of a stack."""
        if made.kept is None and made.error is None:
            self.stopped.append(stack)
        if made.kept is not None and self.pace is not None and stack.cell.key in self._new:
            self.pace.took(stack, made.seconds)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.until is not None and time.time() >= self.until

    @property
    def left(self) -> list[Stack]:
        """Return the stacks that were not begun, or stopped."""
        return [*self.stopped, *self.waiting]

    def expected(self, stack: Stack) -> float:
        """Return about how long what is not finished of a stack takes."""
        return 0.0 if self.pace is None else self.pace.expected(stack) * self._part[stack.cell.key]

    def _next(self) -> Stack | None:
        left = inf if self.until is None else self.until - time.time()
        if left <= 0:
            return None
        fits = [one for one in self.waiting if self.expected(one) <= left]
        if fits:
            return max(fits, key=self.expected) if self.longest_first else fits[0]
        guesses = [one for one in self.waiting if self._is_guess(one)]
        return min(guesses, key=self.expected, default=None)

    def _is_guess(self, stack: Stack) -> bool:
        known = self.pace is None or self.pace.knows(stack.cell.dataset)
        return not known and stack.cell.dataset not in self._tried
