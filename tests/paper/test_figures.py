"""The paper's figures: drawn where there are results, and with something on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clove.errors import CloveError
from clove.paper import EXPERIMENTS
from clove.paper.figures import figures_of
from clove.paper.results import Recorded, Results
from tests.paper.made_up import TINY, heat, recorded


def filled(folder: Path, number: str) -> Results:
    """Return results of all cells of an experiment, with two seeds."""
    kept = Results(folder)
    some = EXPERIMENTS[number].cells("paper")
    kept.add(
        recorded(one, seed, ari=0.5 + 0.1 * seed, models_used=3) for one in some for seed in (0, 1)
    )
    return kept


@pytest.mark.parametrize("number", [n for n, one in EXPERIMENTS.items() if one.figures])
def test_without_results_only_the_illustration_is_drawn(tmp_path: Path, number: str) -> None:
    drawn = figures_of(EXPERIMENTS[number], "paper", Results(tmp_path))
    assert [one.name for one in drawn] == (["E6-illustration"] if number == "E6" else [])


@pytest.mark.parametrize("number", ["E5", "E6", "E7", "E17", "E19", "E22"])
def test_figures_are_written_as_png_and_pdf_and_are_not_empty(tmp_path: Path, number: str) -> None:
    experiment = EXPERIMENTS[number]
    drawn = figures_of(experiment, "paper", filled(tmp_path / "results", number))
    assert len(drawn) == len(experiment.figures)
    for one in drawn:
        png, pdf = one.save(tmp_path / "figures")
        pixels = np.asarray(Image.open(png).convert("L"))
        assert min(pixels.shape) > 400
        assert 0.01 < (pixels < 200).mean() < 0.7
        assert pdf.read_bytes().startswith(b"%PDF")


def test_a_line_for_each_cell_ifca_dashed_and_one_start_in_one_colour(tmp_path: Path) -> None:
    [one] = figures_of(EXPERIMENTS["E5"], "paper", filled(tmp_path, "E5"))
    lines = one.figure.axes[0].lines
    assert len(lines) == 8
    styles = {line.get_label(): line.get_linestyle() for line in lines}
    assert {style for name, style in styles.items() if name.startswith("IFCA")} == {"--"}
    assert {style for name, style in styles.items() if name.startswith("CLoVE")} == {"-"}
    colours = {line.get_label().partition(",")[2]: line.get_color() for line in lines}
    assert len(set(colours.values())) == 4


def test_curves_show_the_mean_over_seeds(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    one = EXPERIMENTS["E22"].cells("paper")[0]
    for seed, ari in enumerate((0.2, 0.6)):
        run = recorded(one, seed)
        kept.add([Recorded(run.run, [{**row, "ari": ari} for row in run.rounds])])
    [drawn] = figures_of(EXPERIMENTS["E22"], "paper", kept)
    [line] = drawn.figure.axes[0].lines
    assert line.get_ydata() == pytest.approx(np.full(12, 0.4))


def test_a_sweep_has_a_line_for_each_way_and_a_point_for_each_setting(tmp_path: Path) -> None:
    drawn = figures_of(EXPERIMENTS["E7"], "paper", filled(tmp_path, "E7"))[1]
    axes = drawn.figure.axes[0]
    names = axes.get_legend_handles_labels()[1]
    ways = ["CLoVE", "k-FED (k-means)", "k-FED (Awasthi and Sheffet)", "CLoVE (plain SGD)"]
    assert names == ways
    assert axes.get_xscale() == "log"
    assert list(axes.lines[0].get_xdata()) == [0.0003, 0.001, 0.01, 0.1, 1.0]


def test_heat_maps_put_each_clusters_own_model_on_the_diagonal(tmp_path: Path) -> None:
    kept = Results(tmp_path / "results")
    kept.add([heat(3, [2, 0, 1], "clove"), heat(3, [1, 1, 1], "ifca"), heat(1, [0] * 3, "fedavg")])
    kept.add([heat(6, [0, 2, 4], "local")])
    [drawn] = figures_of(EXPERIMENTS["E18"], "paper", kept)
    panels = {axes.get_title(): axes for axes in drawn.figure.axes if axes.get_title()}
    assert list(panels) == ["CLoVE", "IFCA", "FedAvg", "Local-only"]
    shown = np.asarray(panels["CLoVE"].images[0].get_array())
    assert shown.argmin(axis=1).tolist() == [0, 1, 2]
    assert panels["Local-only"].images[0].get_array().shape == (3, 6)
    assert drawn.save(tmp_path / "figures")[0].stat().st_size > 10_000


def test_one_method_alone_has_a_heat_map(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    kept.add([heat(3, [2, 0, 1], "clove")])
    assert len(figures_of(EXPERIMENTS["E18"], "paper", kept)) == 1


def test_an_unknown_kind_of_figure_is_named(tmp_path: Path) -> None:
    odd = replace(TINY, figures=[{"kind": "curve"}])
    with pytest.raises(CloveError, match="unknown kind of figure 'curve': did you mean 'curves'"):
        figures_of(odd, "paper", Results(tmp_path))
