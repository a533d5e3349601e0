"""Figures of runs: how accuracy and grouping come about by round, and the loss vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from clove.report.style import colour, dashes, marker, print_style

Record = Mapping[str, Any]
MOST_IN_AXES = 5  # curves whose names fit among them; more have a legend below
MARKS = 10  # markers on a curve: enough to tell it by, few enough to see it
LABELS = {"accuracy": "test accuracy", "test_loss": "test loss", "ari": "ARI with the true groups"}


@dataclass(frozen=True)
class Embedding:
    """Loss vectors of one round, with the model each client got, and its true group if known."""

    round: int
    losses: NDArray[np.float64]
    models: NDArray[np.int64]
    groups: NDArray[np.int64] | None
    algorithm: str


@dataclass(frozen=True)
class Curves:
    """The rounds of one algorithm, for each seed."""

    algorithm: str
    runs: Sequence[Sequence[Record]]


def draw(curves: Sequence[Curves], embedding: Embedding | None, title: str) -> Figure:
    """Draw accuracy (or loss) and ARI by round, and the loss vectors where there are any."""
    below = len(curves) > MOST_IN_AXES
    with print_style():
        layout = ConstrainedLayoutEngine(w_pad=0.12)
        width, a_row = (13, 8) if embedding else (9, 5)
        height = 3.9 + 0.25 * below * ceil(len(curves) / a_row)
        figure = Figure(figsize=(width, height), layout=layout)
        axes = figure.subplots(1, 3 if embedding else 2)
        draw_metric(axes[0], curves, headline(curves), legend=not below)
        draw_metric(axes[1], curves, "ari", legend=not below)
        if embedding is not None:
            draw_embedding(axes[2], embedding)
        if below:
            _legend_below(figure, curves, a_row)
        figure.suptitle(title, fontsize=11)
    return figure


def _legend_below(figure: Figure, curves: Sequence[Curves], a_row: int) -> None:
    """Name all curves below the axes."""
    lines = [
        Line2D([], [], label=one.algorithm, **_look(index)) for index, one in enumerate(curves)
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=a_row, handlelength=3)


def _look(index: int) -> dict[str, Any]:
    """Return how the i-th curve looks: told apart by colour, marker and, in the end, dashes."""
    return {
        "color": colour(index),
        "marker": marker(index),
        "linestyle": dashes(index),
        "linewidth": 1.6,
        "markersize": 4,
    }


def headline(curves: Sequence[Curves]) -> str:
    """Return the metric runs are judged by: accuracy where they have it, else the loss."""
    records = [record for one in curves for run in one.runs for record in run]
    return "accuracy" if any(r["accuracy"] is not None for r in records) else "test_loss"


def draw_metric(axes: Axes, curves: Sequence[Curves], metric: str, legend: bool = True) -> None:
    """Draw a metric by round: a line for each algorithm, the mean over seeds, with their range."""
    for index, one in enumerate(curves):
        rows = _table(one.runs, metric)
        if rows is None:
            continue
        measured = ~np.isnan(rows).all(axis=0)
        rounds, rows = 1 + np.flatnonzero(measured), rows[:, measured]
        every = ceil(len(rounds) / MARKS)
        marks = (index % every, every)  # not all in the same rounds
        means = np.nanmean(rows, axis=0)
        axes.plot(rounds, means, label=one.algorithm, markevery=marks, **_look(index))
        if len(rows) > 1:
            low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
            axes.fill_between(rounds, low, high, color=colour(index), alpha=0.15, lw=0)
    axes.set_xlabel("round")
    axes.set_ylabel(LABELS[metric])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if metric != "test_loss":
        axes.set_ylim(-0.05, 1.05)
    if not axes.lines:
        axes.text(0.5, 0.5, "no groups to compare", transform=axes.transAxes, ha="center")
    elif legend:
        axes.legend(loc="best", fontsize=8)


def _table(runs: Sequence[Sequence[Record]], metric: str) -> NDArray[np.float64] | None:
    """Return seeds × rounds, NaN where a round was not measured; None where none was."""
    rounds = min(len(run) for run in runs)
    rows = np.array([[_number(record.get(metric)) for record in run[:rounds]] for run in runs])
    return None if np.isnan(rows).all() else rows


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def draw_embedding(axes: Axes, embedding: Embedding) -> None:
    """Draw clients' loss vectors in their two main directions: colour is model, shape is group."""
    points, explained = _in_the_plane(embedding.losses)
    groups = embedding.groups
    known = groups is not None
    shapes = np.zeros(len(points), dtype=int) if groups is None else groups
    for model in np.unique(embedding.models):
        for group in np.unique(shapes):
            mine = (embedding.models == model) & (shapes == group)
            if mine.any():
                axes.scatter(
                    points[mine, 0],
                    points[mine, 1],
                    color=colour(int(model)),
                    marker=marker(int(group)),
                    s=42,
                    alpha=0.8,
                    edgecolor="white",
                    linewidth=0.6,
                    label=f"model {model}" + (f", group {group}" if known else ""),
                )
    axes.set_xlabel(f"first direction ({explained[0]:.0%} of variance)")
    axes.set_ylabel(f"second direction ({explained[1]:.0%})")
    shape = ", shape: true group" if known else ""
    axes.set_title(
        f"loss vectors of {embedding.algorithm}, round {embedding.round}\ncolour: model{shape}",
        fontsize=9,
    )
    if 0 < len(axes.get_legend_handles_labels()[0]) <= 12:
        axes.legend(fontsize=7, loc="best")


def _in_the_plane(losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Project onto the two directions of most variance; fewer dimensions leave zeros."""
    points, explained = np.zeros((len(losses), 2)), np.zeros(2)
    size = min(2, *losses.shape)
    if len(losses) > 1 and np.ptp(losses, axis=0).any():
        pca = PCA(n_components=size, svd_solver="full").fit(losses)
        points[:, :size] = pca.transform(losses)
        explained[:size] = pca.explained_variance_ratio_
    return points, explained
