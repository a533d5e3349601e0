"""The table of a comparison: mean ± std over seeds, the best in bold, failures with their error.

References, which are no federated methods, are marked as such and no candidates for the best.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clove.report.numbers import megabytes

Summary = Mapping[str, Any]
Failure = Mapping[str, Any]  # algorithm, seed, error
Cells = list[list[tuple[str, bool]]]  # rows of (text, is best)

LATEX = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "–": "--",
}
# Columns that a narrow terminal does without, first the one least missed.
SPARE = ("stability_round", "bytes_up", "first_round_ari_0.9", "seconds")
# What a run's row holds: everything of its summary that is one value.
OF_A_RUN = (
    *("algorithm", "seed", "dataset", "mixing", "rounds", "clients", "models", "clusters"),
    *("accuracy", "test_loss", "ari", "ari_seen", "first_round_ari_0.9", "stability_round"),
    *("bytes_up", "bytes_down", "seconds", "seconds_per_round", "engine", "device", "error"),
)


@dataclass(frozen=True)
class Column:
    """One figure of a run: where it is, how it is shown, and which direction is better."""

    key: str
    title: str
    show: Callable[..., str]  # the mean, and where there are several seeds their std
    better: int = 0  # 1: more is better, -1: less is better, 0: neither


def rounds(value: float) -> str:
    """Show a number of rounds: whole where it is."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"


def each(show: Callable[[float], str]) -> Callable[..., str]:
    """Show every number in the same way, with ± between them."""
    return lambda *values: " ± ".join(map(show, values))


COLUMNS = (
    Column("accuracy", "accuracy %", each(lambda v: f"{100 * v:.1f}"), 1),
    Column("test_loss", "test loss", each(lambda v: f"{v:.3g}"), -1),
    Column("ari", "ARI", each(lambda v: f"{v:.2f}"), 1),
    Column("first_round_ari_0.9", "ARI≥0.9", each(rounds), -1),
    Column("stability_round", "stable", each(rounds)),
    Column("bytes_up", "up", megabytes, -1),
    Column("bytes_down", "down", megabytes, -1),
    Column("seconds", "seconds", each(lambda v: f"{v:.1f}"), -1),
)


# ----------------------------------------------------------------------------------------- figures


def figures(summaries: Sequence[Summary], failures: Sequence[Failure] = ()) -> pd.DataFrame:
    """Return one row an algorithm: mean and population std over seeds of every figure.

    A seed that never reached something (ARI ≥ 0.9, stability) leaves the whole cell empty, as in
    the paper. Algorithms that failed come last, with `error`; a failed seed counts for no mean.
    """
    rows = []
    for algorithm in dict.fromkeys(one["algorithm"] for one in (*summaries, *failures)):
        mine = [one for one in summaries if one["algorithm"] == algorithm]
        failed = [one for one in failures if one["algorithm"] == algorithm]
        row: dict[str, Any] = {"algorithm": algorithm, "seeds": len(mine), "failed": len(failed)}
        row["reference"] = any(one.get("reference", False) for one in mine)
        for column in COLUMNS:
            values = np.array([_number(summary.get(column.key)) for summary in mine])
            row[column.key] = float(values.mean()) if mine else float("nan")
            row[f"{column.key}_std"] = float(values.std()) if mine else float("nan")
        rows.append({**row, "error": _errors(failed, some_finished=bool(mine))})
    return pd.DataFrame(rows)


def runs_table(summaries: Sequence[Summary], failures: Sequence[Failure] = ()) -> pd.DataFrame:
    """Return one row a run, that is an algorithm and a seed; of one that failed, the error."""
    return pd.DataFrame([*summaries, *failures]).reindex(columns=OF_A_RUN)


def _errors(failed: Sequence[Failure], some_finished: bool) -> str | float:
    """Return what went wrong, with the seeds where it was not the same with all; NaN: nothing."""
    seeds: dict[str, list[str]] = {}
    for one in failed:
        seeds.setdefault(one["error"], []).append(str(one["seed"]))
    if not seeds:
        return float("nan")
    if len(seeds) == 1 and not some_finished:
        return next(iter(seeds))
    return "; ".join(f"seed {', '.join(which)}: {error}" for error, which in seeds.items())


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


# ------------------------------------------------------------------------------------------- cells


def cells(table: pd.DataFrame, without: Collection[str] = ()) -> tuple[list[str], Cells]:
    """Return titles, and rows of (text, is best), without columns that are empty throughout."""
    columns = [c for c in COLUMNS if table[c.key].notna().any() and c.key not in without]
    if table["accuracy"].notna().any():
        columns = [c for c in columns if c.key != "test_loss"]
    rows, contest = [], table[~table["reference"]]
    for _, row in table.iterrows():
        cell = [(_name(row), False)]
        cell += [
            (_text(row, c), not row["reference"] and _is_best(row[c.key], contest[c.key], c))
            for c in columns
        ]
        if not row["seeds"]:
            cell[1] = ("failed", False)
        rows.append(cell)
    return ["algorithm", *(c.title for c in columns)], rows


def _name(row: pd.Series) -> str:
    remarks = ["reference"] if row["reference"] else []
    if row["seeds"] and row["failed"]:
        remarks.append(f"{row['seeds']} of {row['seeds'] + row['failed']} seeds")
    return f"{row['algorithm']} ({', '.join(remarks)})" if remarks else row["algorithm"]


def _text(row: pd.Series, column: Column) -> str:
    mean, spread = row[column.key], row[f"{column.key}_std"]
    if pd.isna(mean):
        return "–"
    return column.show(mean, spread) if row["seeds"] > 1 else column.show(mean)


def _is_best(value: float, all_values: pd.Series, column: Column) -> bool:
    if not column.better or pd.isna(value) or all_values.notna().sum() < 2:
        return False
    best = all_values.max() if column.better > 0 else all_values.min()
    return bool(np.isclose(value, best))


def _failed(table: pd.DataFrame) -> list[str]:
    """Return a line for each algorithm of which something failed."""
    some = table[table["error"].notna()]
    return [f"{row['algorithm']} failed: {row['error']}" for _, row in some.iterrows()]


# ------------------------------------------------------------------------------------------ formats


def as_rich(table: pd.DataFrame, title: str, width: int | None = None) -> Group:
    """Return the table for a terminal, and below it the errors.

    Where it is too wide, columns that can be spared are left out and named; no figure is cut.
    """
    shown, without = _drawn(table, title), 0
    while without < len(SPARE) and not _fits(shown, width):
        without += 1
        shown = _drawn(table, title, without=SPARE[:without])
    there, left = (cells(table, some)[0] for some in ((), SPARE[:without]))
    missing = [name for name in there if name not in left]
    words = f"no room here for {', '.join(missing)}: a wider terminal shows all columns"
    notes = [Text(words, style="dim")] if missing else []
    return Group(shown, *notes, *(Text(line, style="red") for line in _failed(table)))


def _fits(shown: Table, width: int | None) -> bool:
    return width is None or Console(width=1000).measure(shown).maximum <= width


def _drawn(table: pd.DataFrame, title: str, without: Collection[str] = ()) -> Table:
    titles, rows = cells(table, without)
    shown = Table(title=title, title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, name in enumerate(titles):
        shown.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        safe = [(escape(text), best) for text, best in row]
        shown.add_row(*(f"[bold green]{text}[/]" if best else text for text, best in safe))
    return shown


def as_text(table: pd.DataFrame, title: str) -> str:
    """Return the table as plain text, as wide as it needs to be."""
    console = Console(width=200, color_system=None)
    with console.capture() as shown:
        console.print(as_rich(table, title))
    return "\n".join(line.rstrip() for line in shown.get().splitlines()) + "\n"


def as_markdown(table: pd.DataFrame) -> str:
    """Return the table as Markdown, with a list of errors where there are any."""
    titles, rows = cells(table)
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    for row in rows:
        plain = [(text.replace("|", r"\|"), best) for text, best in row]
        marked = [f"**{text}**" if best else text for text, best in plain]
        lines.append("| " + " | ".join(marked) + " |")
    errors = [f"- {' '.join(line.split())}" for line in _failed(table)]
    return "\n".join([*lines, *([""] if errors else []), *errors]) + "\n"


def as_latex(table: pd.DataFrame) -> str:
    """Return the table for a paper; it needs the package booktabs.

    An error follows its row as a comment, in which any character is allowed.
    """
    titles, rows = cells(table)
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(titles) - 1)}}}",
        r"\toprule",
        _latex_row([(title, False) for title in titles]),
        r"\midrule",
    ]
    for row, error in zip(rows, table["error"], strict=True):
        comment = "" if pd.isna(error) else f" % {' '.join(error.split())}"
        lines.append(_latex_row(row) + comment)
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_row(row: list[tuple[str, bool]]) -> str:
    marked = [rf"\textbf{{{latex(text)}}}" if best else latex(text) for text, best in row]
    return " & ".join(marked) + r" \\"


def latex(text: str) -> str:
    """Return text as LaTeX has it.

    >>> latex("98.1 ± 0.2 %")
    '98.1 $\\\\pm$ 0.2 \\\\%'
    """
    return "".join(LATEX.get(sign, sign) for sign in text)
