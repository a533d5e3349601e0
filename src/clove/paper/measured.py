"""Ours beside theirs: what the runs of a cell gave, the paper's figure, and how they compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from clove.paper.experiment import Cell
from clove.paper.names import Metric
from clove.paper.published import Figure
from clove.paper.results import Results

Mark = Literal["within", "beyond", "better"]
NEVER = "---"  # as the paper prints what was not reached
ROUNDING = 1e-9


@dataclass(frozen=True)
class Measured:
    """A figure over seeds, and the paper's."""

    cell: Cell
    metric: Metric
    values: tuple[float, ...] = ()  # one a seed; NaN where the run never got there
    rounds: int = 0
    theirs: Figure | None = None
    sample: bool = False  # whether the spread is a sample's, and not the population's

    @property
    def seeds(self) -> int:
        """How many runs there are."""
        return len(self.values)

    @property
    def reached(self) -> int:
        """How many of them got to what is measured."""
        return int(np.isfinite(self.values).sum())

    @cached_property
    def mean(self) -> float:
        """The mean over seeds; NaN where one of them has no value, as in the paper."""
        return float(np.mean(self.values)) if self.values else float("nan")

    @cached_property
    def std(self) -> float:
        """The spread over seeds; NaN where one seed is all there is."""
        return float(np.std(self.values, ddof=int(self.sample))) if self.seeds > 1 else float("nan")

    @property
    def wanted_rounds(self) -> int:
        """How many rounds the experiment has."""
        return int(self.cell.settings["rounds"])

    @property
    def is_whole(self) -> bool:
        """Whether there are runs, with all the rounds of the experiment: else nothing is judged."""
        return bool(self.values) and self.rounds >= self.wanted_rounds

    @property
    def decimals(self) -> int:
        """How many digits are shown: no fewer than the paper has."""
        return max(0 if self.theirs is None else self.theirs.decimals, self.metric.decimals)

    @property
    def difference(self) -> float:
        """Ours less theirs."""
        return float("nan") if self.theirs is None else self.mean - self.theirs.mean

    @property
    def mark(self) -> Mark | None:
        """How ours compares with theirs; None where one of them is not there, or cut short."""
        if self.theirs is None or not self.is_whole:
            return None
        ours, theirs = np.isfinite(self.mean), np.isfinite(self.theirs.mean)
        if not self.metric.reached and not (ours and theirs):
            return None
        if not ours and not theirs:
            return "within"
        if ours != theirs:  # only one of us got there with every seed
            return "better" if ours else "beyond"
        if abs(self.difference) <= self.theirs.spread + ROUNDING:
            return "within"
        return "better" if self.difference * self.metric.better > 0 else "beyond"

    def ours_text(self) -> str:
        """Return our figure as it is shown."""
        if not self.values:
            return ""
        if not np.isfinite(self.mean):
            return NEVER if self.metric.reached else "–"
        return _shown(self.mean, self.std if self.metric.spread else float("nan"), self.decimals)

    def theirs_text(self) -> str:
        """Return the paper's figure as it printed it."""
        if self.theirs is None:
            return ""
        std = float("nan") if self.theirs.std is None else self.theirs.std
        missing = not np.isfinite(self.theirs.mean)
        return NEVER if missing else _shown(self.theirs.mean, std, self.theirs.decimals)

    def remarks(self, seeds: int) -> list[str]:
        """Return what a reader must know of our figure; `seeds` is how many others have."""
        if not self.values:
            return []
        found = []
        if self.metric.reached and self.reached < self.seeds:
            found.append(f"{self.reached} of {self.seeds} reach it")
        if self.seeds < seeds:
            found.append(f"{self.seeds} seed{'s' if self.seeds > 1 else ''}")
        if self.rounds < self.wanted_rounds:
            found.append(f"{self.rounds} rounds")
        return found


def _shown(mean: float, std: float, decimals: int) -> str:
    spread = "" if np.isnan(std) else f" ± {std:.{decimals}f}"
    text = f"{mean:.{decimals}f}"
    return (text[1:] if float(text) == 0 and text[0] == "-" else text) + spread


# ------------------------------------------------------------------------------------ from results


def runs_of(results: Results, cell: Cell) -> pd.DataFrame:
    """Return the runs of a cell, or where there are none those with the most rounds short of it."""
    found = results.of(cell)
    if len(found) or results.runs.empty:
        return found
    made = sorted({int(number) for number in results.runs["rounds"]}, reverse=True)
    for rounds in made:
        if rounds < int(cell.settings["rounds"]):
            found = results.of(replace(cell, settings={**cell.settings, "rounds": rounds}))
            if len(found):
                break
    return found


def measured(
    results: Results, cell: Cell, metric: Metric, theirs: Figure | None, sample: bool = False
) -> Measured:
    """Return what the runs of a cell gave."""
    runs = runs_of(results, cell)
    if runs.empty:
        return Measured(cell, metric, theirs=theirs, sample=sample)
    values: Any = pd.to_numeric(runs[metric.name]).to_numpy(float, na_value=float("nan"))
    rounds = int(runs["rounds"].min())
    return Measured(cell, metric, tuple(values.tolist()), rounds, theirs, sample)
