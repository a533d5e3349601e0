"""The figure of clients' data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray

from clove.report.data_figure import draw_clients

Counts = NDArray[np.int64]


def counts(clients: int, labels: int = 10) -> Counts:
    return np.random.default_rng(0).integers(0, 50, (clients, labels))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[1].texts]


def row_labels(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_rows_are_clients_and_colours_their_shares() -> None:
    table = np.array([[10, 0, 30], [5, 5, 0]])
    figure = draw_clients(table, [0, 1], "two clients")
    shares = figure.axes[0].collections[0].get_array()
    assert isinstance(shares, np.ma.MaskedArray)
    np.testing.assert_allclose(shares.filled(0), [[0.25, 0, 0.75], [0.5, 0.5, 0]])
    assert shares.mask.tolist() == [[False, True, False], [False, False, True]]
    widths = [bar.get_width() for bar in figure.axes[1].patches]
    assert widths == [40, 10]
    assert figure.get_suptitle() == "two clients"


def test_clients_of_a_cluster_stand_together_and_keep_their_numbers() -> None:
    figure = draw_clients(counts(4), [1, 0, 1, 0])
    assert row_labels(figure) == ["1", "3", "0", "2"]
    assert texts(figure) == ["cluster 0", "cluster 1"]


def test_clusters_are_told_apart_in_words_where_there_are_any() -> None:
    about = ["classes 0, 1", "", "all classes"]
    groups = np.arange(4).repeat(5)
    assert texts(draw_clients(counts(20), groups, about=about)) == [
        "cluster 0\nclasses 0, 1",
        "cluster 1",
        "cluster 2\nall classes",
        "cluster 3",
    ]
    assert texts(draw_clients(counts(6), range(6), about=about))[0] == "0: classes 0, 1"


def test_clusters_too_thin_to_see_are_not_marked() -> None:
    figure = draw_clients(counts(439), range(439))
    heat, bars = figure.axes[:2]
    assert texts(figure) == []
    assert len(heat.collections) == 1  # the shares, and no lines over them
    assert len(bars.collections) == 0
    assert len({bar.get_facecolor() for bar in bars.patches}) == 1


def test_without_clusters_there_are_no_marks() -> None:
    figure = draw_clients(counts(7), None, "any")
    assert texts(figure) == []
    assert row_labels(figure) == [str(client) for client in range(7)]


@pytest.mark.parametrize(
    ("clients", "labels"), [(1, 1), (25, 10), (100, 10), (100, 62), (1000, 10)]
)
def test_any_number_of_clients_and_labels_fits_a_page(
    clients: int, labels: int, tmp_path: Path
) -> None:
    figure = draw_clients(counts(clients, labels), np.arange(clients) // 5, "many")
    width, height = figure.get_size_inches()
    assert width <= 12
    assert height <= 12
    figure.savefig(tmp_path / "clients.png")
    assert (tmp_path / "clients.png").stat().st_size > 1000


@pytest.mark.parametrize(("clients", "step"), [(25, 1), (100, 2), (1000, 20)])
def test_rows_are_numbered_as_densely_as_can_be_read(clients: int, step: int) -> None:
    figure = draw_clients(counts(clients), None)
    assert row_labels(figure)[:2] == ["0", str(step)]


def test_labels_may_have_names_and_clients_no_points() -> None:
    table = np.array([[1, 2], [0, 0]])
    figure = draw_clients(table, None, labels=["cat", "dog"])
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert names == ["cat", "dog"]
