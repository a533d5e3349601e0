"""A live table of a comparison in the terminal: a row a method, as far as its seeds have come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from clove.report.live import Engines

FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "accuracy": ("accuracy %", lambda value: f"{100 * value:.1f}"),
    "test_loss": ("test loss", lambda value: f"{value:.3g}"),
    "ari": ("ARI", lambda value: f"{value:.2f}"),
}


class Clock(ProgressColumn):
    """The time a method still takes, or took; or that it waits, or has failed."""

    def __init__(self) -> None:
        super().__init__()
        self._time = TimeRemainingColumn(compact=True, elapsed_when_finished=True)

    def render(self, task: Task) -> Text:
        """Say where a method stands."""
        if task.fields["failed"]:
            return Text("failed", style="bold red")
        if not task.started:
            return Text("waiting" if task.remaining else "done", style="dim")
        return self._time.render(task)


class _Rows(Progress):
    """Bars as the rows of a table with titles."""

    def __init__(self, clock: Clock, console: Console, disable: bool) -> None:
        self._clock = clock  # it remembers what it said last, so there is one for all drawings
        super().__init__(console=console, disable=disable, transient=True)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Return the table; a column that nobody fills is left out."""
        tasks = list(tasks)
        filled = [key for key in FIGURES if any(task.fields[key] for task in tasks)]
        if "accuracy" in filled:
            filled = [key for key in filled if key != "test_loss"]
        columns: dict[str, ProgressColumn] = {
            "algorithm": TextColumn("[bold]{task.description}"),
            "": BarColumn(bar_width=10),  # so that a row fits in 80 columns
            "rounds": MofNCompleteColumn(),
            **{FIGURES[key][0]: TextColumn(f"{{task.fields[{key}]}}") for key in filled},
            "time": self._clock,
        }
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for index, title in enumerate(columns):
            table.add_column(title, justify="right" if index > 1 else "left", no_wrap=True)
        for task in tasks:
            table.add_row(*(column(task) for column in columns.values()))
        return table


class LiveTable:
    """Rounds done, accuracy and ARI over the seeds, time left; gone when the end has come.

    Silent where there is no terminal, but for the line that says which engine was taken and why.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._rows = _Rows(Clock(), console, disable=quiet or not console.is_terminal)
        self._engines = Engines(self._rows.console, quiet)
        self._tasks: dict[str, Any] = {}
        self._last: dict[str, dict[int, Mapping[str, Any]]] = {}  # by algorithm and seed
        self._done: dict[str, dict[int, int]] = {}

    def __enter__(self) -> Self:
        self._rows.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.stop()

    def begin(
        self, algorithms: Sequence[str], seeds: int, rounds: int, done: Sequence[Mapping[str, Any]]
    ) -> None:
        """Show all methods, with the summaries of runs that were done before."""
        for algorithm in algorithms:
            empty: dict[str, Any] = dict.fromkeys(FIGURES, "")
            self._tasks[algorithm] = self._rows.add_task(
                escape(algorithm), start=False, total=seeds * rounds, failed=False, **empty
            )
            self._last[algorithm], self._done[algorithm] = {}, {}
        for summary in done:
            self._show(summary["algorithm"], summary["seed"], summary["rounds"], summary)

    def update(self, algorithm: str, seed: int, run: Any) -> None:
        """Show a run as far as it has come."""
        self._engines.tell(run)
        self._rows.start_task(self._tasks[algorithm])
        measured = (record for record in reversed(run.records) if record["test_loss"] is not None)
        self._show(algorithm, seed, run.round, next(measured, {}))

    def failed(self, algorithm: str) -> None:
        """Show that a method has failed."""
        self._rows.update(self._tasks[algorithm], failed=True)

    def _show(self, algorithm: str, seed: int, rounds: int, figures: Mapping[str, Any]) -> None:
        self._last[algorithm][seed], self._done[algorithm][seed] = figures, rounds
        found: dict[str, Any] = {
            key: _over_seeds(self._last[algorithm].values(), key) for key in FIGURES
        }
        completed = sum(self._done[algorithm].values())
        self._rows.update(self._tasks[algorithm], completed=completed, **found)


def _over_seeds(figures: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the mean over the seeds that have come so far, ± std where they are several."""
    values = [one[key] for one in figures if one.get(key) is not None]
    if not values:
        return ""
    show = FIGURES[key][1]
    spread = f" ± {show(float(np.std(values)))}" if len(values) > 1 else ""
    return show(float(np.mean(values))) + spread
