"""What the page of several runs shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.report.page.read import RunRead, read_run, run_folders
from clove.report.page.render import page_data
from clove.report.page.several import by_name, curve, pareto, several_page, summary


@pytest.fixture(scope="module")
def compared(comparison: Path) -> list[RunRead]:
    return [read_run(run) for run in run_folders(comparison)]


def test_runs_that_differ_in_their_seed_are_one_curve_with_a_band(compared: list[RunRead]) -> None:
    named = by_name(compared)
    assert {name: len(mine) for name, mine in named.items()} == {"clove": 2, "ifca": 2, "fedavg": 2}
    found = curve("clove", named["clove"])["accuracy"]
    finals = [run.records[-1]["accuracy"] for run in named["clove"]]
    assert found["mean"][-1] == pytest.approx(sum(finals) / 2, rel=1e-3)
    assert found["low"][-1] == pytest.approx(min(finals), rel=1e-3)
    assert found["high"][-1] == pytest.approx(max(finals), rel=1e-3)


def test_the_table_is_the_comparisons_own(comparison: Path) -> None:
    found = page_data([comparison])
    markdown = (comparison / "table.md").read_text().splitlines()
    titles = [cell.strip() for cell in markdown[0].strip("|").split("|")]
    assert found["table"]["titles"] == titles
    first = [cell.strip(" *") for cell in markdown[2].strip("|").split("|")]
    assert [text for text, _ in found["table"]["rows"][0]] == first
    assert any(best for row in found["table"]["rows"] for _, best in row)


def test_a_finished_runs_figures_are_those_of_its_summary(compared: list[RunRead]) -> None:
    for run in compared:
        noted = json.loads((run.path / "summary.json").read_text())
        found = summary(run.algorithm, run)
        assert found == {key: noted[key] for key in found}


def test_settings_that_differ_stand_in_the_names(runs: Path) -> None:
    names = list(by_name([read_run(runs / "clove"), read_run(runs / "some")]))
    assert len(names) == 2
    assert all("participation=" in name and "transform=" in name for name in names)


def test_a_run_named_by_itself_beside_a_comparison_is_counted_once(comparison: Path) -> None:
    found = page_data([comparison, comparison / "clove" / "seed-0"])
    assert len(found["runs"]) == 6


def test_runs_on_different_data_are_shown_with_a_remark(runs: Path) -> None:
    found = page_data([runs / "clove", runs / "own"])
    assert any("different data" in words for words in found["remarks"])


def test_unfinished_runs_are_shown_as_far_as_they_have_come(compared: list[RunRead]) -> None:
    going = replace(compared[0], records=compared[0].records[:2], finished=False)
    empty = replace(compared[1], records=[], timings=[], finished=False)
    found = several_page([going, empty, *compared[2:]])
    assert found["status"]["words"] == "18 of 24 rounds"
    assert len(found["runs"]) == 5
    assert any("2 of 6 runs are not finished" in words for words in found["remarks"])


def test_runs_that_have_only_begun_have_a_page(compared: list[RunRead]) -> None:
    found = several_page([replace(run, records=[], finished=False) for run in compared])
    assert found["curves"] == []
    assert found["pareto"] is None


Points = list[tuple[int, float]]


def runs_of(points: Points, like: RunRead) -> dict[str, list[RunRead]]:
    def one(sent: int, accuracy: float) -> list[RunRead]:
        record = {**like.records[-1], "bytes_up": sent, "bytes_down": 0, "accuracy": accuracy}
        return [replace(like, records=[record])]

    return {str(place): one(*point) for place, point in enumerate(points)}


@given(points=st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=6))
def test_the_line_holds_just_those_that_nobody_beats(compared: Any, points: Points) -> None:
    found = pareto(runs_of(points, compared[0]))
    assert found is not None
    for (sent, accuracy), shown in zip(points, found["points"], strict=True):
        beaten = any(
            other != (sent, accuracy) and other[0] <= sent and other[1] >= accuracy
            for other in points
        )
        assert shown["best"] == (not beaten)
