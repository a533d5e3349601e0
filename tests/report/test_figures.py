"""Figures of runs: accuracy and grouping by round, and the loss vectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib.figure import Figure

from clove.report.figures import Curves, Embedding, draw, headline
from clove.report.style import COLOURS, MARKERS, colour, marker, print_style


def run(
    accuracy: Sequence[float | None] = (0.5, 0.9),
    ari: Sequence[float | None] = (0.5, 1.0),
    loss: Sequence[float | None] = (2.0, 1.0),
) -> list[dict[str, Any]]:
    return [
        {"accuracy": a, "ari": i, "test_loss": t}
        for a, i, t in zip(accuracy, ari, loss, strict=True)
    ]


def embedding(
    losses: np.ndarray, models: np.ndarray | None = None, groups: np.ndarray | None = None
) -> Embedding:
    models = np.zeros(len(losses), dtype=int) if models is None else models
    return Embedding(round=2, losses=losses, models=models, groups=groups, algorithm="clove")


def drawn(curves: Sequence[Curves], vectors: Embedding | None = None) -> Figure:
    """Draw and render; whatever warns would have warned the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(curves, vectors, "a title")
        figure.savefig(BytesIO(), format="png", dpi=20)
    return figure


ONE = [Curves("clove", [run()])]


# ----------------------------------------------------------------------------------- by round


def test_a_line_for_each_algorithm_by_round() -> None:
    figure = drawn([Curves("clove", [run()]), Curves("ifca", [run((0.3, 0.4))])])
    accuracy, ari = figure.axes
    assert [line.get_label() for line in accuracy.lines] == ["clove", "ifca"]
    assert accuracy.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 0.9]]
    assert ari.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 1.0]]
    assert accuracy.get_ylabel() == "test accuracy"


def test_seeds_are_one_line_of_means_within_their_range() -> None:
    accuracy, _ = drawn([Curves("clove", [run((0.4, 0.8)), run((0.6, 1.0))])]).axes
    assert np.allclose(accuracy.lines[0].get_ydata(), [0.5, 0.9])
    (band,) = accuracy.collections
    assert band.get_paths()[0].get_extents().extents.tolist() == [1.0, 0.4, 2.0, 1.0]


def test_rounds_that_were_not_measured_are_skipped() -> None:
    accuracy, _ = drawn([Curves("clove", [run((None, 0.9)), run((None, 0.7))])]).axes
    assert np.allclose(accuracy.lines[0].get_xydata(), [[2, 0.8]])


def test_runs_without_groups_say_so() -> None:
    _, ari = drawn([Curves("fedavg", [run(ari=(None, None))])]).axes
    assert not ari.lines
    assert ari.texts[0].get_text() == "no groups to compare"


def test_the_loss_is_drawn_where_there_is_no_accuracy() -> None:
    curves = [Curves("clove", [run(accuracy=(None, None), loss=(20.0, 5.0))])]
    loss, _ = drawn(curves).axes
    assert headline(curves) == "test_loss"
    assert loss.get_ylabel() == "test loss"
    assert loss.get_ylim()[1] > 19


def test_a_run_that_measured_nothing_is_drawn_empty() -> None:
    figure = drawn([Curves("clove", [run((None, None), (None, None), (None, None))])])
    assert not any(axes.lines for axes in figure.axes)


def test_one_round_is_enough() -> None:
    assert len(drawn([Curves("clove", [run((0.5,), (1.0,), (1.0,))])]).axes) == 2


# -------------------------------------------------------------------------------- loss vectors


def test_clients_are_points_by_model_and_group() -> None:
    losses = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    figure = drawn(ONE, embedding(losses, np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1])))
    axes = figure.axes[2]
    labels = [dots.get_label() for dots in axes.collections]
    assert labels == ["model 0, group 1", "model 1, group 0"]
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == 4
    assert "round 2" in axes.get_title()


def test_groups_that_are_not_known_are_not_shown() -> None:
    axes = drawn(ONE, embedding(np.eye(3), np.array([0, 1, 1]))).axes[2]
    assert [dots.get_label() for dots in axes.collections] == ["model 0", "model 1"]
    assert "group" not in axes.get_title()


def test_many_models_are_drawn_without_a_legend() -> None:
    losses = np.random.default_rng(0).random((40, 20))
    axes = drawn(ONE, embedding(losses, np.arange(40) % 20)).axes[2]
    assert len(axes.collections) == 20
    assert axes.get_legend() is None


@pytest.mark.parametrize(
    "losses",
    [
        np.array([[1.0, 2.0]]),
        np.array([[3.0]]),
        np.ones((5, 3)),
        np.array([[1.0], [2.0], [3.0]]),
        np.zeros((0, 3)),
        np.array([[1e28, 2e28], [3e28, 1e28], [0.0, 0.0]]),
    ],
    ids=["one client", "one client and model", "all alike", "one model", "nobody", "diverged"],
)
def test_odd_loss_vectors_are_drawn_too(losses: np.ndarray) -> None:
    axes = drawn(ONE, embedding(losses)).axes[2]
    points = [dots.get_offsets() for dots in axes.collections]
    assert sum(map(len, points)) == len(losses)
    assert all(np.isfinite(some).all() for some in points)


@settings(deadline=None, max_examples=20)
@given(
    losses=hnp.arrays(
        np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(0, 1e6)
    )
)
def test_any_loss_vectors_can_be_drawn(losses: np.ndarray) -> None:
    figure = draw(ONE, embedding(losses, np.arange(len(losses))), "a title")
    assert len(figure.axes[2].collections) == len(losses)


# ---------------------------------------------------------------------------------------- style


def test_colours_and_markers_begin_again_when_they_are_used_up() -> None:
    assert colour(len(COLOURS)) == colour(0)
    assert marker(len(MARKERS) + 1) == marker(1)
    assert len(set(COLOURS)) == len(COLOURS) >= 15


def test_the_style_is_only_for_a_while() -> None:
    before = mpl.rcParams["axes.grid"], mpl.rcParams["font.size"]
    with print_style():
        assert mpl.rcParams["axes.grid"]
    assert (mpl.rcParams["axes.grid"], mpl.rcParams["font.size"]) == before


# -------------------------------------------------------------------------------- many methods


def many(number: int, rounds: int = 100) -> list[Curves]:
    level = [number / 100] * rounds
    return [Curves(f"method {n}", [run(level, level, level)]) for n in range(number)]


@pytest.mark.parametrize("vectors", [None, embedding(np.eye(3))], ids=["two axes", "three axes"])
@pytest.mark.parametrize("number", [6, 15, 30])
def test_the_names_of_many_methods_stand_below_and_are_whole(
    number: int, vectors: Embedding | None
) -> None:
    figure = drawn(many(number), vectors)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        f"method {n}" for n in range(number)
    ]
    assert all(axes.get_legend() is None for axes in figure.axes[:2])
    box, page = legend.get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
    assert box.y1 < min(axes.get_window_extent().y0 for axes in figure.axes)


def test_fifteen_methods_look_different() -> None:
    accuracy, _ = drawn(many(15)).axes
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in accuracy.lines}
    assert len(looks) == 15


@pytest.mark.parametrize(("rounds", "marks"), [(1, 1), (10, 10), (11, 6), (1000, 10)])
def test_a_long_curve_is_marked_now_and_then(rounds: int, marks: int) -> None:
    accuracy, _ = drawn(many(1, rounds)).axes
    first, every = accuracy.lines[0].get_markevery()
    assert len(range(first, rounds, every)) == marks
