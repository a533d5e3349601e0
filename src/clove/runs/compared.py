"""What a comparison leaves: the runs' summaries, tables in several formats, one picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from clove.algorithms import find_algorithm
from clove.folders import ERRORS, PICTURE, TABLE, plain_errors, write_atomically
from clove.report.numbers import counted
from clove.report.tables import (
    as_latex,
    as_markdown,
    as_rich,
    as_text,
    cells,
    figures,
    runs_table,
)
from clove.runs.settings import data_title
from clove.runs.story import Story, read_story

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

    from clove.report.figures import Embedding

VECTOR_PICTURE = "picture.pdf"


@dataclass(frozen=True)
class Comparison:
    """The summary of every run that came to its end, and the failures; all is in one folder.

    Printed, it is the table.
    """

    summaries: list[dict[str, Any]]
    folder: Path
    failures: list[dict[str, Any]] = field(default_factory=list)  # algorithm, seed, error

    @property
    def table(self) -> pd.DataFrame:
        """One row an algorithm, mean and std over seeds."""
        return figures(self.summaries, self.failures)

    @property
    def runs(self) -> pd.DataFrame:
        """One row a run."""
        return runs_table(self.summaries, self.failures)

    @property
    def picture(self) -> Path:
        """Where the figure is."""
        return self.folder / PICTURE

    @property
    def title(self) -> str:
        """What was compared on."""
        one = self.summaries[0]
        what = data_title(one["dataset"], one["mixing"])
        return f"{what}: {one['clients']} clients, {counted(one['rounds'], 'round')}"

    def rich_table(self, width: int | None = None) -> Group:
        """Return the table for a terminal of that width."""
        return as_rich(self.table, self.title, width)

    def __str__(self) -> str:
        return as_text(self.table, self.title)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the table, and the picture."""
        from clove.report.notebook import card  # drawing is loaded when it is needed

        return card(self.title, *cells(self.table), self.plot())

    def latex(self) -> str:
        """Return the table for a paper; it needs the package booktabs."""
        return as_latex(self.table)

    def errors(self) -> list[Path]:
        """Return the files that say how methods failed, with the traceback."""
        names = dict.fromkeys(failure["algorithm"] for failure in self.failures)
        return [self.folder / name / ERRORS for name in names]

    def plot(self) -> Figure:
        """Draw accuracy and ARI by round, with bands over seeds, and the loss vectors."""
        from clove.report.figures import Curves, draw  # drawing is loaded when it is needed

        stories = self._stories()
        curves = [Curves(name, [one.records for one in mine]) for name, mine in stories.items()]
        return draw(curves, _embedding(stories), self._caption(stories))

    def report(self, path: str | Path) -> Path:
        """Write the comparison's page: one HTML file that opens from disk, without a network."""
        from clove.report.page.render import write_report  # pages are loaded when they are needed

        return write_report([self.folder], path)

    def write(self) -> None:
        """Write tables and figure into the folder."""
        texts = {
            "table.txt": str(self),
            "table.md": as_markdown(self.table),
            "table.tex": self.latex(),
            TABLE: self.table.to_csv(index=False),
            "runs.csv": self.runs.to_csv(index=False),
        }
        with plain_errors(self.folder):
            for name, text in texts.items():
                write_atomically(self.folder / name, text.encode())
            figure = self.plot()
            figure.savefig(self.picture)
            figure.savefig(self.folder / VECTOR_PICTURE, metadata={"CreationDate": None})

    def _stories(self) -> dict[str, list[Story]]:
        """Return the runs by algorithm, with all their rounds."""
        stories: dict[str, list[Story]] = {}
        for one in self.summaries:
            story = read_story(home(self.folder, one["algorithm"], one["seed"]))
            stories.setdefault(one["algorithm"], []).append(story)
        return stories

    def _caption(self, stories: dict[str, list[Story]]) -> str:
        one, seeds = self.summaries[0], max(map(len, stories.values()))
        what = f"{data_title(one['dataset'], one['mixing'])}, {one['clients']} clients"
        return f"{what}, {seeds} seeds: mean and range" if seeds > 1 else f"{what}, 1 seed"


def home(folder: Path, algorithm: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return folder / algorithm / f"seed-{seed}"


def _embedding(stories: dict[str, list[Story]]) -> Embedding | None:
    """Return the loss vectors of the first method that groups clients by them."""
    for name, mine in stories.items():
        if find_algorithm(name).clusters and mine[0].loss_vectors:
            return mine[0].embedding()
    return None
