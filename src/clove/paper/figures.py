"""The paper's figures, from our results: for print, in the house style."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from clove.errors import unknown_name
from clove.folders import plain_errors
from clove.paper.experiment import Cell, Experiment, Words, selected
from clove.paper.measured import runs_of
from clove.paper.names import METRICS, method
from clove.paper.results import Results
from clove.report.style import colour, marker, print_style

Said = Mapping[str, Any]  # what an experiment's file says of a figure
MARKS = 0.12  # how far apart markers on a curve are, as a part of the figure
DASHED = "ifca"
AXES = {"separation": "separation Δ of the clusters"}
BOUNDED = ("ari", "ari_seen")


@dataclass(frozen=True)
class Drawn:
    """A figure, and the name of its files."""

    name: str
    title: str
    figure: Figure

    def save(self, folder: Path, endings: Sequence[str] = ("png", "pdf")) -> list[Path]:
        """Write the figure, free of anything that depends on the day."""
        paths = [folder / f"{self.name}.{ending}" for ending in endings]
        with plain_errors(folder, "the figures"):
            folder.mkdir(parents=True, exist_ok=True)
            for path in paths:
                dated = {"CreationDate": None} if path.suffix == ".pdf" else {}
                self.figure.savefig(path, dpi=200, bbox_inches="tight", metadata=dated)
        return paths


def figures_of(experiment: Experiment, reading: str, results: Results) -> list[Drawn]:
    """Return the figures of an experiment for which there are results."""
    drawn = []
    for said in experiment.figures:
        if said["kind"] not in KINDS:
            raise unknown_name("kind of figure", said["kind"], KINDS)
        some = [c for c in experiment.cells(reading) if selected(c, said.get("only", {}))]
        with print_style():
            figure = KINDS[said["kind"]](said, some, results)
        if figure is not None:
            name = "-".join(filter(None, (experiment.number, said["kind"], said.get("metric"))))
            drawn.append(Drawn(f"{name}-{reading}" if some else name, experiment.title, figure))
    return drawn


# ----------------------------------------------------------------------------------------- curves


def _curves(said: Said, cells: Sequence[Cell], results: Results) -> Figure | None:
    """Draw a metric by round: a line for each cell, the mean over seeds, with their range."""
    found = [(cell, _by_round(results, cell, said["metric"])) for cell in cells]
    lines = [(cell, rows) for cell, rows in found if rows is not None]
    if not lines:
        return None
    figure, axes = _one_axes(len(lines))
    looks = {look: index for index, look in enumerate(dict.fromkeys(map(_look, cells)))}
    for place, (cell, rows) in enumerate(lines):
        _curve(axes, rows, cell, looks[_look(cell)], place)
    axes.set_xlabel("round")
    _label(axes, said["metric"])
    if said.get("log"):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, axes, len(lines))
    return figure


def _one_axes(lines: int) -> tuple[Figure, Axes]:
    below = (lines + 1) // 2
    figure = Figure(figsize=(5.6, 3.3 + 0.2 * below), layout="constrained")
    return figure, figure.subplots()


def _legend(figure: Figure, axes: Axes, lines: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if lines > 2 or max(map(len, labels)) > 20 else lines
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def _label(axes: Axes, metric: str) -> None:
    axes.set_ylabel(METRICS[metric].title)
    if metric in BOUNDED:
        axes.set_ylim(min(-0.05, axes.get_ylim()[0]), 1.05)


def _by_round(results: Results, cell: Cell, metric: str) -> NDArray[np.float64] | None:
    """Return seeds × rounds."""
    runs = runs_of(results, cell)
    if runs.empty or results.rounds.empty:
        return None
    mine = results.rounds[results.rounds["key"] == runs["key"].iloc[0]]
    rows = mine.pivot_table(index="seed", columns="round", values=metric, dropna=False)
    return None if rows.empty else rows.to_numpy(float)


def _look(cell: Cell) -> str:
    """Return what a line shows but for the method, so that methods in one setting look alike."""
    return cell.label.removeprefix(method(cell.algorithm)).strip(", ")


def _curve(axes: Axes, rows: NDArray[np.float64], cell: Cell, look: int, place: int) -> None:
    rounds, means = 1 + np.arange(rows.shape[1]), np.nanmean(rows, axis=0)
    dashed = cell.algorithm == DASHED
    axes.plot(
        *(rounds, means),
        label=cell.label,
        color=colour(look),
        marker=marker(look),
        linestyle="--" if dashed else "-",
        markevery=(0.015 * place, MARKS),  # not all at the same place
        markerfacecolor="white" if dashed else colour(look),
        linewidth=1.5,
        markersize=4,
    )
    if len(rows) > 1:
        low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
        axes.fill_between(rounds, low, high, color=colour(look), alpha=0.13, lw=0)


# ------------------------------------------------------------------------------------------ sweeps


def _sweep(said: Said, cells: Sequence[Cell], results: Results) -> Figure | None:
    """Draw the final value of a metric against a setting, with the range over seeds."""
    lines: dict[str, list[tuple[float, pd.Series]]] = {}
    for cell in cells:
        runs = runs_of(results, cell)
        if len(runs):
            words = said["lines"].format_map(defaultdict(str, Words.printed(cell.settings)))
            name = " ".join(words.split())
            point = (float(cell.settings[said["across"]]), runs[said["metric"]])
            lines.setdefault(name, []).append(point)
    if not lines:
        return None
    figure, axes = _one_axes(len(lines))
    for index, (name, points) in enumerate(lines.items()):
        _line(axes, name, sorted(points, key=lambda point: point[0]), index)
    if said.get("log"):
        axes.set_xscale("log")
    axes.set_xlabel(AXES.get(said["across"], str(said["across"])))
    _label(axes, said["metric"])
    _legend(figure, axes, len(lines))
    return figure


def _line(axes: Axes, name: str, points: Sequence[tuple[float, pd.Series]], index: int) -> None:
    x = [at for at, _ in points]
    y = np.array([values.mean() for _, values in points])
    reach = [y - [v.min() for _, v in points], [v.max() for _, v in points] - y]
    axes.errorbar(
        *(x, y, np.maximum(reach, 0)),
        label=name,
        color=colour(index),
        marker=marker(index),
        markersize=5,
        linewidth=1.5,
        capsize=2.5,
    )


# --------------------------------------------------------------------------------------- heat maps


def _heat_maps(said: Said, cells: Sequence[Cell], results: Results) -> Figure | None:
    """Draw the loss of one client of each cluster on every model, a panel for each method."""
    found = [(cell, _losses(results, cell)) for cell in cells]
    panels = [(cell, losses) for cell, losses in found if losses is not None]
    if not panels:
        return None
    widest = max(panels, key=lambda panel: panel[1].losses.shape[1])
    first = [panel for panel in panels if panel is not widest] or [widest]
    figure = Figure(figsize=(7.2, 5.2 if first != [widest] else 3.0), layout="constrained")
    rows = figure.subfigures(2 if first != [widest] else 1, 1, squeeze=False)[:, 0]
    top = rows[0].subplots(1, len(first), width_ratios=[_room(one) for _, one in first])
    drawn = list(zip(np.atleast_1d(top), first, strict=True))
    if len(rows) > 1:
        drawn.append((rows[1].subplots(), widest))
    told = "one client of each cluster, on every model; a dot: the model that serves it"
    figure.suptitle(told, fontsize=8)
    least = min(float(one.losses.min()) for _, one in panels)
    most = max(float(np.quantile(one.losses, 0.98)) for _, one in panels)
    for axes, (cell, losses) in drawn:
        image = _heat_map(axes, losses, method(cell.algorithm), (least, most))
    for row in rows:
        row.colorbar(image, ax=row.axes, label="test loss", extend="max", pad=0.01, shrink=0.9)
    return figure


@dataclass(frozen=True)
class _Losses:
    """Losses by cluster and model, and which column each cluster is served by."""

    losses: NDArray[np.float64]
    models: NDArray[np.int64]
    own: NDArray[np.int64]


def _losses(results: Results, cell: Cell) -> _Losses | None:
    """Return the losses of a cell's first seed, clusters' own models first and in their order."""
    runs = runs_of(results, cell)
    table = results.heat_maps
    if runs.empty or table.empty:
        return None
    mine = table[(table["key"] == runs["key"].iloc[0]) & (table["seed"] == runs["seed"].min())]
    if mine.empty:
        return None
    by_model = mine.pivot_table(index="cluster", columns="model", values="loss")
    served = mine.groupby("cluster")["assigned"].first().to_numpy(int)
    if by_model.shape[1] <= len(by_model):
        order = list(dict.fromkeys([*served.tolist(), *by_model.columns]))
        by_model = by_model[[model for model in order if model in by_model.columns]]
    models = by_model.columns.to_numpy(int)
    own = np.array([int(np.flatnonzero(models == one)[0]) for one in served])
    return _Losses(by_model.to_numpy(float), models, own)


def _room(losses: _Losses) -> float:
    return max(3.0, float(losses.losses.shape[1]))


def _heat_map(axes: Axes, losses: _Losses, title: str, limits: tuple[float, float]) -> Any:
    clusters, models = losses.losses.shape
    image = axes.imshow(
        losses.losses, aspect="auto", cmap="viridis", vmin=limits[0], vmax=limits[1]
    )
    axes.scatter(losses.own, np.arange(clusters), s=11, color="white", edgecolor="black", lw=0.5)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("model" if models > 1 else "the model", fontsize=8)
    axes.set_ylabel("client of cluster", fontsize=8)
    axes.set_yticks(range(clusters))
    shown = range(0, models, 1 if models <= len(losses.losses) else 5)
    axes.set_xticks(shown, [str(losses.models[i]) for i in shown])
    axes.tick_params(labelsize=7, length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return image


# ------------------------------------------------------------------------------------ illustration


def _illustration(said: Said, cells: Sequence[Cell], results: Results) -> Figure:
    """Draw two loss vectors, and how each method divides the plane they lie in."""
    points = np.array(said["losses"], dtype=float)
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    far = 1.25 * float(points.max())
    diagonal = np.array([[0, 0], [far, far]])
    _divided(left, diagonal, far, "IFCA: the model of least loss", ("model 1", "model 2"))
    middle, way = points.mean(axis=0), points[1] - points[0]
    along = np.array([-way[1], way[0]]) / np.linalg.norm(way)
    border = np.array([middle - 3 * far * along, middle + 3 * far * along])
    border = border[np.argsort(border[:, 0])]
    _divided(right, border, far, "CLoVE: the nearest loss vectors", ("cluster 1", "cluster 2"))
    for axes in (left, right):
        for index, point in enumerate(points):
            axes.scatter(
                *point, s=60, color=colour(index), marker=marker(index), zorder=3, edgecolor="white"
            )
            axes.annotate(
                f"cluster {index + 1}\n({point[0]:g}, {point[1]:g})",
                *(point, (9, 0)),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_xlabel("loss on model 1")
    left.set_ylabel("loss on model 2")
    return figure


def _divided(
    axes: Axes, border: NDArray[np.float64], far: float, title: str, names: tuple[str, str]
) -> None:
    """Shade the half above a line and the half below it, and name them."""
    for index, (edge, name) in enumerate(zip((3 * far, -3 * far), names, strict=True)):
        corners = [border[0], border[1], (border[1][0], edge), (border[0][0], edge)]
        axes.add_patch(Polygon(corners, color=colour(index), alpha=0.13, lw=0))
        place = (0.03, 0.95) if index == 0 else (0.97, 0.05)
        axes.text(
            *(*place, f"→ {name}"),
            transform=axes.transAxes,
            ha="left" if index == 0 else "right",
            va="top" if index == 0 else "bottom",
            fontsize=9,
            color=colour(index),
        )
    axes.plot(border[:, 0], border[:, 1], color="#555555", lw=1, ls="--")
    axes.set_xlim(0, far)
    axes.set_ylim(0, far)
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=9)
    axes.grid(False)


KINDS: dict[str, Callable[[Said, Sequence[Cell], Results], Figure | None]] = {
    "curves": _curves,
    "sweep": _sweep,
    "heat-maps": _heat_maps,
    "illustration": _illustration,
}
