"""A figure of the clients' data: which labels they have, and how many points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from clove.report.style import colour, print_style

Counts = NDArray[np.int64]

LINE = 0.135  # inches that a line of small text needs
THIN = 0.06  # inches below which a row is no more than a line
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw_clients(
    counts: ArrayLike,
    groups: ArrayLike | None = None,
    title: str = "",
    *,
    labels: Sequence[str] | None = None,
    about: Sequence[str] = (),
) -> Figure:
    """Draw each client's shares of labels as a row of a heat map, and beside it its points.

    Parameters
    ----------
    counts : array [clients, labels]
        Points of each client by label.
    groups : array [clients], optional
        The cluster of each client: rows of a cluster stand together.
    title : str
        What stands on top.
    labels : names of the labels, by default their numbers.
    about : for each cluster a few words that stand beside it.
    """
    table = np.asarray(counts)
    known = None if groups is None else np.asarray(groups)
    order = np.arange(len(table)) if known is None else np.argsort(known, kind="stable")
    names = [str(label) for label in range(table.shape[1])] if labels is None else list(labels)
    height, width = _height(len(table)), min(max(0.34 * len(names), 2.4), 8.0)
    row, column = height / len(table), width / len(names)
    if known is not None and height / len(np.unique(known)) < THIN:
        known = None  # lines between clusters would be all there is to see
    with print_style():
        figure = Figure(figsize=(width + 3.4, height + 1.6), layout="constrained")
        heat, bars = figure.subplots(1, 2, sharey=True, width_ratios=[width, 1.5])
        _draw_shares(heat, table[order], names, row, column)
        _draw_sizes(bars, table[order].sum(axis=1), None if known is None else known[order], row)
        _number_rows(heat, order, row)
        if known is not None:
            _mark_clusters(heat, bars, known[order], about, row)
        figure.suptitle(title, fontsize=11)
    return figure


def _height(clients: int) -> float:
    """Return the height of all rows: lower ones where there are many, never beyond a page."""
    return float(np.clip(min(0.19 * clients, 2.6 + 0.064 * clients), 1.4, 10))


def _draw_shares(axes: Axes, table: Counts, names: list[str], row: float, column: float) -> None:
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    mesh = axes.pcolormesh(
        np.ma.masked_equal(shares, 0),  # no points at all stay white
        cmap="Blues",
        # One scale for all figures, on which small shares still show.
        norm=PowerNorm(0.5, vmin=0, vmax=1),
        edgecolors="white" if row > THIN else "face",
        linewidth=0.5 if row > THIN else 0.0,
    )
    axes.grid(False)
    step = _step(column, 0.2)
    axes.set_xticks(np.arange(0, len(names), step) + 0.5, names[::step])
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel("label")
    axes.set_ylabel("client")
    _draw_scale(axes, mesh, 0.08 / (row * len(table)))


def _draw_scale(axes: Axes, mesh: QuadMesh, pad: float) -> None:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    scale = figure.colorbar(mesh, ax=axes, location="bottom", aspect=30, pad=pad)
    scale.set_ticks([0.01, 0.05, 0.1, 0.25, 0.5, 1], labels=["1 %", "5", "10", "25", "50", "100"])
    scale.set_label("share of the client's points", fontsize=8)
    scale.ax.tick_params(labelsize=7, length=2)
    scale.ax.minorticks_off()


def _draw_sizes(axes: Axes, sizes: Counts, groups: Counts | None, row: float) -> None:
    own = np.zeros(len(sizes), int) if groups is None else groups
    # Gaps between thin bars would make a pattern of their own.
    height, smooth = (0.8, True) if row > THIN else (1.0, False)
    places, colours = np.arange(len(sizes)) + 0.5, [colour(int(group)) for group in own]
    axes.barh(places, sizes, height=height, color=colours, linewidth=0, antialiased=smooth)
    axes.set_xlabel("points")
    axes.tick_params(length=0, labelsize=8, labelleft=False)
    axes.grid(False, axis="y")
    axes.locator_params(axis="x", nbins=3)
    axes.spines["left"].set_visible(False)


def _number_rows(axes: Axes, order: NDArray[np.intp], row: float) -> None:
    places = np.arange(0, len(order), _step(row, LINE))
    axes.set_yticks(places + 0.5, [str(client) for client in order[places]])
    axes.set_ylim(len(order), 0)  # the first client on top


def _mark_clusters(
    heat: Axes, bars: Axes, groups: Counts, about: Sequence[str], row: float
) -> None:
    """Rule a line between clusters and write beside them what they are, where there is room."""
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    ends = np.append(starts[1:], len(groups))
    for axes in (heat, bars):
        across = axes.get_yaxis_transform()
        axes.hlines(starts[1:], 0, 1, transform=across, color="#444444", linewidth=0.8)
    step = _step(row * len(groups) / len(starts), LINE)
    for start, end in list(zip(starts, ends, strict=True))[::step]:
        text = _cluster_text(int(groups[start]), about, room=row * (end - start))
        bars.text(
            1.04, (start + end) / 2, text, transform=bars.get_yaxis_transform(), va="center", size=8
        )


def _cluster_text(group: int, about: Sequence[str], room: float) -> str:
    name = f"cluster {group}"
    if not 0 <= group < len(about) or not about[group]:
        return name
    return f"{name}\n{about[group]}" if room > 2.2 * LINE else f"{group}: {about[group]}"


def _step(inches: float, needed: float) -> int:
    """Return every how many things of that size there is room for a label."""
    return next((step for step in STEPS if step * inches >= needed), STEPS[-1])
