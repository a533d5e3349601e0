"""The paper's tables, ours beside theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from clove.errors import unknown_name
from clove.paper.experiment import Cell, Experiment, selected
from clove.paper.measured import Measured, measured
from clove.paper.names import DATASETS, METRICS, MIXINGS, Metric, dataset, mixing, place
from clove.paper.notes import Note, all_notes
from clove.paper.published import figure
from clove.paper.results import Results

SIGNS = {"within": "≈", "better": "▲", "beyond": "▼"}
ALL = ("all",)
NO_DIRECTION = "≠"  # beyond the spread, where neither more nor less is better


@dataclass(frozen=True)
class Column:
    """Whose data, how clients differ, and what is measured where that is not the same in all."""

    dataset: str
    mixing: str
    metric: Metric | None = None

    @property
    def title(self) -> str:
        """How it is printed."""
        return self.metric.short if self.metric else place(self.dataset, self.mixing)

    @property
    def lines(self) -> tuple[str, str]:
        """How it is printed in two lines."""
        return ("", self.title) if self.metric else (dataset(self.dataset), mixing(self.mixing))


@dataclass(frozen=True)
class Row:
    """A method, or a way of running one."""

    name: str
    extra: bool  # beyond the paper
    entries: tuple[Measured | None, ...]  # by column; None: the experiment has no such cell


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: one metric by data, or all metrics where the data are the same."""

    experiment: Experiment
    reading: str
    slug: str  # as the file of the paper's figures calls it
    metric: Metric | None  # None: every column has its own
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[Note, ...] = ()
    unmade: tuple[str, ...] = ()  # rows beyond the paper that have no runs at all

    @property
    def entries(self) -> list[Measured]:
        """All figures."""
        return [one for row in self.rows for one in row.entries if one is not None]

    @property
    def seeds(self) -> int:
        """How many seeds a figure has, where none is missing."""
        return max((one.seeds for one in self.entries), default=0)

    @property
    def title(self) -> str:
        """What is shown, and where the paper has it."""
        what = (
            self.metric.title
            if self.metric
            else place(self.columns[0].dataset, self.columns[0].mixing)
        )
        return f"{self.experiment.number} ({self.experiment.printed}): {what}"

    @property
    def made_of(self) -> str:
        """Over how many seeds and rounds ours are."""
        if not self.seeds:
            return "no runs yet"
        rounds = sorted({one.wanted_rounds for one in self.entries if one.values})
        seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        kind = "sample" if any(one.sample for one in self.entries) else "population"
        spread = f" ± {kind} std over" if self.seeds > 1 else " of"
        return f"ours: mean{spread} {seeds}, {' or '.join(map(str, rounds))} rounds"

    def part(self, columns: Sequence[Column]) -> PaperTable:
        """Return the table with some of its columns, and the rows that have something there."""
        chosen = [self.columns.index(column) for column in columns]
        rows = [replace(row, entries=tuple(row.entries[i] for i in chosen)) for row in self.rows]
        some = [row for row in rows if any(one is not None for one in row.entries)]
        return replace(self, columns=tuple(columns), rows=tuple(some))

    # --------------------------------------------------------------------------------- footnotes

    def numbers(self, scope: str, figures: Iterable[Measured | None]) -> list[int]:
        """Return the numbers of the footnotes of some scope that belong to figures."""
        some = [one for one in figures if one is not None]
        return [
            number
            for number, note in enumerate(self.footnotes, 1)
            if note.scope == scope and any(note.is_about(self.slug, one) for one in some)
        ]

    @property
    def footnotes(self) -> list[Note]:
        """The notes that have numbers."""
        return [note for note in self.notes if note.scope != "table"]

    @property
    def remarks(self) -> list[str]:
        """What is to be said of the whole: notes to all figures, and what is missing."""
        general = [note.text for note in self.notes if note.scope == "table"]
        return [*general, *self.missing()]

    def of_column(self, index: int) -> list[Measured | None]:
        """Return the figures of a column."""
        return [row.entries[index] for row in self.rows]

    # ----------------------------------------------------------------------------- what is missing

    def missing(self) -> list[str]:
        """Say which figures have no runs yet."""
        by_rows: dict[tuple[str, ...], list[str]] = {}
        for index, column in enumerate(self.columns):
            there = [r for r in self.rows if r.entries[index] is not None]
            rows = [r.name for r in there if not _has_runs(r.entries[index])]
            if rows:
                names = ALL if len(rows) == len(there) else tuple(rows)
                by_rows.setdefault(names, []).append(column.title)
        if len(by_rows) == 1 and len(by_rows.get(ALL, [])) == len(self.columns):
            return []  # there are none at all, which is said at the top
        told = [self._missing(rows, columns) for rows, columns in by_rows.items()]
        beyond = [f"No runs yet of rows beyond the paper: {'; '.join(self.unmade)}."]
        return told + (beyond if self.unmade else [])

    def _missing(self, rows: Sequence[str], columns: Sequence[str]) -> str:
        of = "" if rows == ALL else f" of {'; '.join(rows)}"
        on = "" if len(columns) == len(self.columns) else f" on {'; '.join(columns)}"
        return f"No runs yet{of}{on}."

    # -------------------------------------------------------------------------------- who is best

    def is_best(self, one: Measured) -> bool:
        """Say whether a figure of ours is the best of all methods of the paper in its place.

        Nobody is while one of them has no runs, or runs cut short.
        """
        rivals = self._rivals(one)
        among = any(rival is one for rival in rivals) and np.isfinite(one.mean)
        several = len({rival.cell.algorithm for rival in rivals}) > 1
        if not among or not several or not all(rival.is_whole for rival in rivals):
            return False
        means = [round(o.mean, o.decimals) for o in rivals if np.isfinite(o.mean)]
        best = max(means) if one.metric.better > 0 else min(means)
        return bool(round(one.mean, one.decimals) == best)

    def _rivals(self, one: Measured) -> list[Measured]:
        """Return the figures that are compared with one: the same data, and the same variant."""
        where = (one.cell.dataset, one.cell.mixing, one.cell.variant, one.metric)
        return [
            other
            for row in self.rows
            for other in row.entries
            if other is not None
            and not row.extra
            and other.metric.better
            and (other.cell.dataset, other.cell.mixing, other.cell.variant, other.metric) == where
        ]


def _has_runs(one: Measured | None) -> bool:
    return one is not None and one.seeds > 0


def sign(one: Measured) -> str:
    """Return the sign of how ours compares with theirs."""
    if one.mark == "beyond" and not one.metric.better:
        return NO_DIRECTION
    return SIGNS[one.mark] if one.mark else ""


LEGEND = (
    "≈: within the paper's spread (its std, or half of its last digit); ▲: better than that; "
    "▼: worse; ≠: different, where neither is better."
)
ABOVE = f"In each cell ours, and below it the paper's. {LEGEND}"


# ------------------------------------------------------------------------------------ from results


def tables_of(experiment: Experiment, reading: str, results: Results) -> list[PaperTable]:
    """Return the tables of an experiment."""
    cells = experiment.cells(reading)
    found = [_table(experiment, reading, results, cells, one) for one in experiment.tables]
    return [_side_by_side(found)] if _are_narrow(found) else found


def _are_narrow(tables: Sequence[PaperTable]) -> bool:
    """Say whether tables have one and the same column, so that all fit into one."""
    return len(tables) > 1 and len({(t.slug, t.columns) for t in tables}) == 1 == len(
        tables[0].columns
    )


def _side_by_side(tables: Sequence[PaperTable]) -> PaperTable:
    """Return narrow tables of the same rows as one, a column for each metric."""
    rows = [
        replace(some[0], entries=tuple(row.entries[0] for row in some))
        for some in zip(*(table.rows for table in tables), strict=True)
    ]
    columns = [replace(table.columns[0], metric=table.metric) for table in tables]
    notes = dict.fromkeys(id(note) for table in tables for note in table.notes)
    return replace(
        tables[0],
        metric=None,
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(note for note in all_notes() if id(note) in notes),
    )


def _table(
    experiment: Experiment,
    reading: str,
    results: Results,
    cells: Sequence[Cell],
    said: Mapping[str, Any],
) -> PaperTable:
    """Return a table, as the experiment's file says it."""
    metric, slug = _metric(said["metric"]), said["table"]
    some = [cell for cell in cells if selected(cell, said.get("only", {}))]
    entries = [
        measured(
            *(results, cell, metric),
            None if cell.extra else _theirs(slug, metric, cell, said.get("variant_key")),
            said.get("spread") == "sample",
        )
        for cell in some
    ]
    columns = _columns(some)
    rows = _rows(entries, columns)
    notes = [n for n in all_notes() if any(n.is_about(slug, one) for one in entries)]
    made = [row for row in rows if not row.extra or any(_has_runs(one) for one in row.entries)]
    return PaperTable(
        *(experiment, reading, slug, metric, columns, tuple(made), tuple(notes)),
        unmade=tuple(row.name for row in rows if row not in made),
    )


def _metric(name: str) -> Metric:
    if name not in METRICS:
        raise unknown_name("metric", name, METRICS)
    return METRICS[name]


def _theirs(slug: str, metric: Metric, cell: Cell, variant: str | None) -> Any:
    names = (cell.dataset, cell.mixing, cell.algorithm, variant or cell.variant)
    return figure(slug, metric.name, *names)


def _columns(cells: Iterable[Cell]) -> tuple[Column, ...]:
    """Return the columns, data sets together and mixings in the paper's order."""
    found = {Column(cell.dataset, cell.mixing) for cell in cells}
    datasets, mixings = _place(DATASETS), _place(MIXINGS)
    return tuple(
        sorted(found, key=lambda one: (datasets(one.dataset), mixings(one.mixing), one.mixing))
    )


def _place(known: Iterable[str]) -> Callable[[str], int]:
    """Return what says how far up a list a name stands; names not in it come last."""
    order = {name: index for index, name in enumerate(known)}
    return lambda name: order.get(name, len(order))


def _rows(entries: Sequence[Measured], columns: Sequence[Column]) -> list[Row]:
    """Return rows by label; those beyond the paper come last."""
    found: dict[tuple[bool, str], dict[Column, Measured]] = {}
    for one in entries:
        row = found.setdefault((one.cell.extra, one.cell.label), {})
        row[Column(one.cell.dataset, one.cell.mixing)] = one
    rows = [
        Row(name, extra, tuple(row.get(column) for column in columns))
        for (extra, name), row in found.items()
    ]
    return sorted(rows, key=lambda row: row.extra)


def tidy(tables: Iterable[PaperTable]) -> pd.DataFrame:
    """Return all figures as one table, a row each."""
    return pd.DataFrame(
        [
            _tidy_row(table, row, one)
            for table in tables
            for row in table.rows
            for one in row.entries
            if one is not None
        ],
        columns=TIDY,
    )


TIDY = (
    *("experiment", "settings", "table", "metric", "dataset", "mixing", "row", "algorithm"),
    *("variant", "beyond_the_paper", "ours", "ours_std", "seeds", "reached", "rounds"),
    *("wanted_rounds", "paper", "paper_std", "difference", "mark", "notes"),
)


def _tidy_row(table: PaperTable, row: Row, one: Measured) -> dict[str, Any]:
    theirs = one.theirs
    return {
        "experiment": table.experiment.number,
        "settings": table.reading,
        "table": table.slug,
        "metric": one.metric.name,
        "dataset": one.cell.dataset,
        "mixing": one.cell.mixing,
        "row": row.name,
        "algorithm": one.cell.algorithm,
        "variant": one.cell.variant,
        "beyond_the_paper": row.extra,
        "ours": round(one.mean, 6),
        "ours_std": round(one.std, 6),
        "seeds": one.seeds,
        "reached": one.reached,
        "rounds": one.rounds,
        "wanted_rounds": one.wanted_rounds,
        "paper": None if theirs is None else theirs.mean,
        "paper_std": None if theirs is None else theirs.std,
        "difference": round(one.difference, 6),
        "mark": one.mark,
        "notes": " ".join(n.text for n in table.notes if n.is_about(table.slug, one)),
    }
