"""The figures of the check of section 4: recovery, separation, convergence."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from clove.folders import plain_errors, write_atomically
from clove.paper.theory import BASE, along
from clove.paper.theory_convergence import PAPERS_STEP, Descent
from clove.paper.theory_tables import Tables
from clove.report.style import colour, marker, print_style

LABELS = {
    "orthonormal": "d orthonormal models",
    "random": "d random unit models",
    "orthonormal-k": "K orthonormal models",
    "proximal": "K models at Δ/4 (Δ-proximal)",
}
AXES = {
    "clients": "clients $M$",
    "points": "points a client $n$",
    "dimension": "dimension $d$",
    "clusters": "clusters $K$",
    "noise": r"$\Delta/\sigma$, by $\sigma$ at $\Delta = 1$",
    "separation": r"$\Delta/\sigma$, by $\Delta$ at $\sigma = 0.1$",
}
RATIOS = ("noise", "separation")
SHOWN_NOISE = 0.1  # where separation is drawn against Δ


def draw_recovery(tables: Tables) -> Figure:
    """Draw the probability of one-shot recovery along every grid."""
    with print_style():
        figure = Figure(figsize=(10.5, 6.2), layout="constrained")
        for axes, name in zip(figure.subplots(2, 3, sharey=True).flat, AXES, strict=True):
            _recovery_along(axes, along(tables.recovery, name), name)
        for row in range(2):
            figure.axes[3 * row].set_ylabel("probability of ARI = 1")
        _name_collections(figure, 4)
    return figure


def _recovery_along(axes: Axes, rows: pd.DataFrame, name: str) -> None:
    where = rows["separation"] / rows["noise"] if name in RATIOS else rows[name]
    for index, models in enumerate(LABELS):
        mine = rows["models"] == models
        some, x = rows[mine], where[mine]
        axes.plot(x, some["probability"], **_look(index))
        axes.fill_between(x, some["low"], some["high"], color=colour(index), alpha=0.15, lw=0)
    axes.set(xscale="log", xlabel=AXES[name], ylim=(-0.04, 1.04))
    _plain_ticks(axes.xaxis, sorted(where.unique()))
    axes.axvline(_base(name), color="#888888", lw=0.8, ls=":")


def _base(name: str) -> float:
    ratio = BASE.separation / BASE.noise
    return ratio if name in RATIOS else float(getattr(BASE, name))


def draw_separation(tables: Tables) -> Figure:
    """Draw the distances of centres against Δ, c against Δ/σ, and the spread against n."""
    with print_style():
        figure = Figure(figsize=(10.5, 3.7), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _distances(left, tables.separation)
        _constants(middle, tables.separation)
        _spreads(right, along(tables.recovery, "points"))
        _name_collections(figure, 4)
    return figure


def _distances(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the smallest distance of two centres in any draw, and the lemmas' Δ/2."""
    _each(axes, table[table["noise"] == SHOWN_NOISE], "separation", "smallest_distance")
    deltas = sorted(table["separation"].unique())
    axes.plot(deltas, [delta / 2 for delta in deltas], "k--", lw=1, label=r"$\Delta/2$")
    _logarithmic(axes, r"separation $\Delta$ of $\theta^*$", "smallest distance of centres")
    axes.legend(fontsize=8)


def _constants(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the largest c in any draw, and what the lemmas allow."""
    rows = table[(table["separation"] == BASE.separation) & (table["noise"] > 0)]
    rows = rows.assign(ratio=rows["separation"] / rows["noise"])
    _each(axes, rows, "ratio", "c_largest")
    claimed = rows[rows["models"] == "orthonormal"]
    claim = r"$\sqrt{4+\sigma^2}$"
    axes.plot(claimed["ratio"], claimed["c_claimed"], "k--", lw=1, label=claim)
    _logarithmic(axes, r"$\Delta/\sigma$ at $\Delta = 1$", r"largest $c = \Delta/|c_i - c_j|$")
    axes.legend(fontsize=8)


def _spreads(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the spread of an entry about its mean, measured (marks) and expected (line)."""
    for index, models in enumerate(LABELS):
        mine = rows[rows["models"] == models]
        axes.plot(mine["points"], mine["spread"], **{**_look(index), "linestyle": ""})
        axes.plot(mine["points"], mine["spread_expected"], color=colour(index), lw=1)
    line = Line2D([], [], color="k", lw=1, label=r"$\alpha/\sqrt{2n}$")
    axes.legend(handles=[line], fontsize=8)
    _logarithmic(axes, AXES["points"], "spread of an entry")


def draw_convergence(tables: Tables) -> Figure:
    """Draw the largest distance from true parameters by round: by step size, and by noise."""
    usual = Descent()
    rounds = tables.rounds
    gradients = rounds["averaging"] == "gradients"
    with print_style():
        figure = Figure(figsize=(9, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _by_round(left, rounds[rounds["noise"] == usual.noise], _step)
        _by_round(right, rounds[gradients & _near(rounds["learning_rate"])], _noise)
        left.set_ylabel(r"$\max_k\ |\theta_k - \theta^*_k|$")
        left.set_title(f"$\\sigma$ = {usual.noise:g}", fontsize=10)
        right.set_title(f"gradients, $\\eta$ = {usual.learning_rate:.3g}", fontsize=10)
        left.set_ylim(rounds["distance"].min() / 2, 20)  # room for the names
        _name_lines(figure)
    return figure


def _name_lines(figure: Figure) -> None:
    kinds = (
        ("--", r"geometric with $|1 - 2\eta|$ for each step"),
        (":", r"$\sigma\sqrt{d/(m n)}$"),
    )
    lines = [Line2D([], [], color="k", lw=0.9, ls=kind, label=name) for kind, name in kinds]
    figure.legend(handles=lines, loc="outside lower center", ncols=2)


def _near(steps: pd.Series) -> pd.Series:
    """Say which steps are the paper's, as tables print it."""
    return (steps - PAPERS_STEP).abs() < 1e-4


def _step(descent: Descent) -> str:
    if descent.averaging == "models":
        steps = round(Descent().batch_size / descent.batch_size)
        return f"models, $\\eta$ = {descent.learning_rate:.3g}, {steps} steps"
    return f"gradients, $\\eta$ = {descent.learning_rate:.3g}"


def _noise(descent: Descent) -> str:
    return f"$\\sigma$ = {descent.noise:g}"


def _by_round(axes: Axes, rows: pd.DataFrame, label: Callable[[Descent], str]) -> None:
    """Draw the runs of each descent, |1 - 2η|^T dashed beside them, and the floor dotted."""
    settings = ["averaging", "learning_rate", "noise", "batch_size"]
    for index, (values, runs) in enumerate(rows.groupby(settings)):
        descent = Descent(*values)
        by_round = runs.groupby("round")["distance"]
        mean = by_round.mean()
        axes.plot(mean.index, mean, label=label(descent), **_look(index))
        axes.fill_between(
            mean.index, by_round.min(), by_round.max(), color=colour(index), alpha=0.15, lw=0
        )
        line = mean.iloc[0] * descent.contraction() ** mean.index.to_numpy()
        shown = line > descent.floor
        axes.plot(mean.index[shown], line[shown], color=colour(index), ls="--", lw=0.9)
        axes.axhline(descent.floor, color=colour(index), ls=":", lw=0.9)
    axes.set_yscale("log")
    axes.set_xlabel("round $T$")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, loc="upper right")


def _each(axes: Axes, rows: pd.DataFrame, x: str, y: str) -> None:
    for index, models in enumerate(LABELS):
        mine = rows[rows["models"] == models].sort_values(x)
        axes.plot(mine[x], mine[y], **_look(index))


def _logarithmic(axes: Axes, x: str, y: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        _plain_ticks(axis)


def _plain_ticks(axis: Axis, values: Sequence[float] | None = None) -> None:
    """Write numbers as they are, not as powers of ten, where the grid is; no more ticks."""
    if values is not None:
        axis.set_major_locator(FixedLocator(values))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_tick_params(labelsize=8)


def _look(index: int) -> dict[str, Any]:
    return {"color": colour(index), "marker": marker(index), "markersize": 4, "linewidth": 1.6}


def _name_collections(figure: Figure, a_row: int) -> None:
    lines = [Line2D([], [], label=label, **_look(i)) for i, label in enumerate(LABELS.values())]
    figure.legend(handles=lines, loc="outside lower center", ncols=a_row)


FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "recovery": draw_recovery,
    "separation": draw_separation,
    "convergence": draw_convergence,
}


def picture_name(name: str, kind: str = "png") -> str:
    """Return the name of a figure's file."""
    return f"theory_{name}.{kind}"


def write_figures(tables: Tables, folder: Path) -> None:
    """Write all figures, for the screen and for print."""
    with plain_errors(folder, "the figures"):
        for name, draw in FIGURES.items():
            figure = draw(tables)
            for kind, dates in (("png", {}), ("pdf", {"CreationDate": None})):
                held = io.BytesIO()
                with print_style():
                    figure.savefig(held, format=kind, dpi=160, metadata=dates)
                write_atomically(folder / picture_name(name, kind), held.getvalue())
