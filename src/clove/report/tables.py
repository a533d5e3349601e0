"""The table of a comparison: mean ± std over seeds, the best in bold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One figure of a run: where it is, how it is shown, and which direction is better."""

    key: str
    title: str
    show: Callable[[float], str]
    better: int = 0  # 1: more is better, -1: less is better, 0: neither
    spread: bool = True  # whether ± std is shown


def megabytes(value: float) -> str:
    """Show bytes in the unit a reader can compare at a glance.

    >>> megabytes(24_052_000)
    '24.1 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def rounds(value: float) -> str:
    """Show a number of rounds: whole where it is."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"


COLUMNS = (
    Column("accuracy", "accuracy %", lambda v: f"{100 * v:.1f}", 1),
    Column("test_loss", "test loss", lambda v: f"{v:.3g}", -1),
    Column("ari", "ARI", lambda v: f"{v:.2f}", 1),
    Column("first_round_ari_0.9", "ARI≥0.9", rounds, -1),
    Column("stability_round", "stable", rounds),
    Column("bytes_up", "up", megabytes, spread=False),
    Column("bytes_down", "down", megabytes, spread=False),
    Column("seconds", "seconds", lambda v: f"{v:.1f}", spread=False),
)


def figures(summaries: Sequence[Summary]) -> pd.DataFrame:
    """Return one row an algorithm: mean and population std over seeds of every figure.

    A seed that never reached something (ARI ≥ 0.9, stability) leaves the whole cell empty, as in
    the paper.
    """
    algorithms = list(dict.fromkeys(summary["algorithm"] for summary in summaries))
    rows = []
    for algorithm in algorithms:
        mine = [summary for summary in summaries if summary["algorithm"] == algorithm]
        row: dict[str, Any] = {"algorithm": algorithm, "seeds": len(mine)}
        for column in COLUMNS:
            values = np.array([_number(summary.get(column.key)) for summary in mine])
            row[column.key] = float(values.mean())
            row[f"{column.key}_std"] = float(values.std())
        rows.append(row)
    return pd.DataFrame(rows)


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[tuple[str, bool]]]]:
    """Return titles, and rows of (text, is best), without columns that are empty throughout."""
    columns = [c for c in COLUMNS if table[c.key].notna().any()]
    if table["accuracy"].notna().any():
        columns = [c for c in columns if c.key != "test_loss"]
    rows = []
    for _, row in table.iterrows():
        cell = [(str(row["algorithm"]), False)]
        cell += [(_text(row, c), _is_best(row[c.key], table[c.key], c)) for c in columns]
        rows.append(cell)
    return ["algorithm", *(c.title for c in columns)], rows


def as_rich(table: pd.DataFrame, title: str) -> Table:
    """Return the table for a terminal."""
    titles, rows = cells(table)
    shown = Table(title=title, title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, name in enumerate(titles):
        shown.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*(f"[bold green]{text}[/]" if best else text for text, best in row))
    return shown


def as_markdown(table: pd.DataFrame) -> str:
    """Return the table as Markdown."""
    titles, rows = cells(table)
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    for row in rows:
        marked = [f"**{text}**" if best else text for text, best in row]
        lines.append("| " + " | ".join(marked) + " |")
    return "\n".join(lines) + "\n"


def _text(row: pd.Series, column: Column) -> str:
    mean, spread = row[column.key], row[f"{column.key}_std"]
    if pd.isna(mean):
        return "–"
    shown = column.show(mean)
    return f"{shown} ± {column.show(spread)}" if row["seeds"] > 1 and column.spread else shown


def _is_best(value: float, all_values: pd.Series, column: Column) -> bool:
    if not column.better or pd.isna(value) or all_values.notna().sum() < 2:
        return False
    best = all_values.max() if column.better > 0 else all_values.min()
    return bool(np.isclose(value, best))


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
