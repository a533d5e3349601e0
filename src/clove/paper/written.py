"""Tables and figures of experiments, written into a folder in all formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clove.errors import CloveError
from clove.folders import plain_errors, write_atomically
from clove.paper.experiment import READINGS, Experiment
from clove.paper.figures import figures_of
from clove.paper.formats import FORMATS
from clove.paper.measured import runs_of
from clove.paper.results import Results
from clove.paper.tables import tables_of


def has_results(experiment: Experiment, reading: str, results: Results) -> bool:
    """Say whether there is any run of an experiment."""
    return any(len(runs_of(results, cell)) for cell in experiment.cells(reading))


def some_with_results(
    experiments: Sequence[Experiment], reading: str, results: Results
) -> list[Experiment]:
    """Return the experiments of which there are runs, or say what to do where there are none."""
    found = [one for one in experiments if has_results(one, reading, results)]
    if found:
        return found
    others = [r for r in READINGS if any(has_results(one, r, results) for one in experiments)]
    advice = (
        f"there are some with `--settings {others[0]}`"
        if others
        else "`clove paper run NAME` makes them, `clove paper tables NAME` shows the paper's alone"
    )
    raise CloveError(f"no results with the settings of {reading!r} in {results.folder}: {advice}")


def write_all(
    experiments: Sequence[Experiment], reading: str, results: Results, folder: Path
) -> list[Path]:
    """Write all tables in every format, and every figure as PNG and PDF."""
    tables = [table for one in experiments for table in tables_of(one, reading, results)]
    paths = []
    with plain_errors(folder, "the tables"):
        for ending, content in FORMATS.values() if tables else ():
            paths.append(folder / f"tables.{ending}")
            write_atomically(paths[-1], content(tables).encode())
    for one in experiments:
        for drawn in figures_of(one, reading, results):
            paths += drawn.save(folder)
    return paths
