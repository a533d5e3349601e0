"""Which runs are asked for: cells of experiments, each with several seeds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from clove.errors import CloveError, unknown_name
from clove.paper.experiment import (
    MACHINE,
    READINGS,
    Cell,
    Experiment,
    check_choice,
    rules,
    selected,
)
from clove.paper.results import Results
from clove.runs.folder import RunFolder
from clove.runs.settings import Settings, from_names

# Nobody looks at the pictures of hundreds of runs. Checkpoints are as usual, of every round;
# `--set checkpoint_every=10` is for models that take longer to write than to train.
USUAL = {"picture": False}


@dataclass(frozen=True)
class Stack:
    """A cell's runs that are to be made: one for each of these seeds."""

    cell: Cell
    reading: str
    seeds: tuple[int, ...]
    folder: Path

    def home(self, seed: int) -> Path:
        """Return the folder of a run."""
        return self.folder / self.cell.key / f"seed-{seed}"

    def settings(self, seed: int) -> Settings:
        """Return the settings of a run."""
        return from_names(**{**self.cell.settings, "seed": seed})

    @property
    def rounds(self) -> int:
        """How many rounds there are to do in all its runs."""
        return int(self.cell.settings["rounds"]) * len(self.seeds)

    def is_in(self, results: Results) -> bool:
        """Say whether results have all its runs."""
        rounds = int(self.cell.settings["rounds"])
        return all(results.has(self.cell.key, seed, rounds) for seed in self.seeds)

    @property
    def unfinished(self) -> int:
        """How many of its runs are not finished."""
        return sum(not RunFolder(self.home(seed)).finished for seed in self.seeds)

    @property
    def is_new(self) -> bool:
        """Whether none of its runs was begun."""
        return not any(RunFolder(self.home(seed)).is_run() for seed in self.seeds)

    def __str__(self) -> str:
        cell = self.cell
        return f"{cell.dataset}, {cell.mixing}: {cell.label} ({self.reading})"


@dataclass(frozen=True)
class Choice:
    """What is asked for: of which experiments, and with which settings."""

    reading: str = "paper"
    seeds: int = 3
    rounds: int | None = None
    datasets: Sequence[str] = ()
    mixings: Sequence[str] = ()
    algorithms: Sequence[str] = ()
    rows: Sequence[str] = ()  # by their labels in the tables
    extras: bool = True
    machine: dict[str, Any] = field(default_factory=dict)  # device, precision, ...

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise unknown_name("settings", self.reading, READINGS)
        if self.seeds < 1:
            raise CloveError(f"seeds must be 1 or more, not {self.seeds}")
        if self.rounds is not None and self.rounds < 1:
            raise CloveError(f"rounds must be 1 or more, not {self.rounds}")
        for name in self.machine:
            if name not in MACHINE:
                raise CloveError(
                    f"--set takes settings of the machine ({', '.join(MACHINE)}), not {name!r}: "
                    "what experiments consist of is fixed"
                )
        check_choice(self.datasets, self.mixings, self.algorithms)

    def cells(self, experiments: Sequence[Experiment]) -> list[Cell]:
        """Return the cells asked for, each once."""
        only = {"dataset": self.datasets, "mixing": self.mixings, "algorithm": self.algorithms}
        wanted = {name: list(some) for name, some in only.items() if some}
        every = [cell for experiment in experiments for cell in experiment.cells(self.reading)]
        self._check_rows({cell.label for cell in every})
        found: dict[str, Cell] = {}
        for cell in every:
            in_a_row = not self.rows or cell.label in self.rows
            if in_a_row and selected(cell, wanted) and (self.extras or not cell.extra):
                known = found.get(cell.key)
                found[cell.key] = known if known and not cell.heat_map else cell
        if every and not found:
            raise CloveError(
                "no run has all that was asked for: fewer of --data, --mixing, --algorithm and "
                "--row leave some"
            )
        return [self._with_own(cell) for cell in found.values()]

    def _check_rows(self, known: Collection[str]) -> None:
        for row in self.rows:
            if row not in known:
                near = get_close_matches(row, known, n=1, cutoff=0.5)
                hint = f": did you mean {near[0]!r}?" if near else "."
                names = "; ".join(sorted(known))  # which have commas
                raise CloveError(f"unknown row {row!r}{hint} Known: {names}")

    def _with_own(self, cell: Cell) -> Cell:
        """Return a cell with what is set for all: where it says nothing else, fewer rounds too."""
        settings = {**cell.settings, **USUAL, **self.machine}
        if self.rounds is not None:
            settings["rounds"] = min(self.rounds, settings["rounds"])
        return Cell(settings, cell.variant, cell.label, cell.extra, cell.heat_map)

    def stacks(
        self, experiments: Sequence[Experiment], folder: Path, missing_in: Results | None = None
    ) -> list[Stack]:
        """Return all runs asked for, or those that results lack."""
        cells = self.cells(experiments)
        start = rules()[self.reading]["first_seed"]
        seeds = tuple(range(start, start + self.seeds))
        stacks = [Stack(cell, self.reading, seeds, folder) for cell in cells]
        return [one for one in stacks if missing_in is None or not one.is_in(missing_in)]
