"""What the page of several runs shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clove
from clove.report.page.names import MOST_LETTERS, Kind, apart_table, kinds
from clove.report.page.read import RunRead, read_run, run_folders
from clove.report.page.render import page_data
from clove.report.page.several import curve, pareto, several_page, summary

from .conftest import SMALL


@pytest.fixture(scope="module")
def compared(comparison: Path) -> list[RunRead]:
    return [read_run(run) for run in run_folders(comparison)]


def test_runs_that_differ_in_their_seed_are_one_curve_with_a_band(compared: list[RunRead]) -> None:
    named = {kind.name: kind.runs for kind in kinds(compared)}
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


def varied(like: RunRead, **settings: Any) -> RunRead:
    """Return a run as if it had been made with other settings of training."""
    return replace(like, settings={**like.settings, "training": {"batch_size": 10, **settings}})


def names(*runs: RunRead) -> list[str]:
    return [kind.name for kind in kinds(runs)]


def test_a_name_says_the_fewest_settings_that_tell_runs_of_a_method_apart(
    compared: list[RunRead],
) -> None:
    clove, other = compared[0], compared[2]
    assert other.algorithm == "ifca"
    assert names(varied(clove, momentum=0.1), varied(other, momentum=0.2)) == ["clove", "ifca"]
    both = [varied(clove, momentum=m, weight_decay=m / 10, nesterov=m > 0.1) for m in (0.1, 0.2)]
    assert names(*both) == ["clove (momentum=0.1)", "clove (momentum=0.2)"]
    grid = [varied(clove, momentum=m, batch_size=b) for m in (0.1, 0.2, 0.3) for b in (10, 20)]
    assert names(*grid)[0] == "clove (momentum=0.1, batch_size=10)"
    assert len(set(names(*grid))) == 6


def test_what_a_setting_adds_to_runs_that_lack_it_is_told(compared: list[RunRead]) -> None:
    plain, more = varied(compared[0]), varied(compared[0], more=3)
    assert names(plain, more) == ["clove", "clove (more=3)"]


def test_names_stay_short_whatever_differs(compared: list[RunRead]) -> None:
    long = "x" * 200
    cut = names(varied(compared[0], words=long + "a"), varied(compared[0], words=long + "b"))
    assert cut[0] != cut[1]
    assert all(len(name) < len("clove (words=) 1") + MOST_LETTERS + 1 for name in cut)
    places = [f"{number:04b}" for number in range(16)]
    many = [varied(compared[0], **dict(zip("abcd", map(int, one), strict=True))) for one in places]
    assert names(*many) == [f"clove {number}" for number in range(1, 17)]


def test_all_that_differs_stands_beside_the_name(runs: Path) -> None:
    found = kinds([read_run(runs / "clove"), read_run(runs / "some")])
    assert [kind.name for kind in found] == [
        f"clove (evaluate_every={number})" for number in (1, 2)
    ]
    assert set(found[0].apart) == {"evaluate_every", "participation", "transform"}
    assert "transform=log" in found[1].whole
    table = apart_table(found)
    assert table["titles"] == ["run", *found[0].apart]
    assert table["rows"][1] == [found[1].name, *found[1].apart.values()]
    page = page_data([runs / "clove", runs / "some"])
    assert page["names"] == {kind.name: kind.whole for kind in found}
    assert page["apart"] == table


def test_where_nothing_differs_nothing_is_said_of_it(comparison: Path) -> None:
    found = page_data([comparison])
    assert found["apart"]["rows"] == []
    assert found["names"] == {name: name for name in ("clove", "ifca", "fedavg")}


def optioned(like: RunRead, **options: Any) -> RunRead:
    """Return a run as if its method had these options."""
    return replace(like, settings={**like.settings, "algorithm": options})


def test_an_option_is_compared_among_runs_of_its_method_alone(compared: list[RunRead]) -> None:
    clove, ifca = compared[0], compared[2]
    one, other = optioned(clove, linkage="single"), optioned(ifca, linkage="average")
    assert [kind.apart for kind in kinds([one, other])] == [{}, {}]
    assert apart_table(kinds([one, other]))["rows"] == []
    more = kinds([one, optioned(clove, linkage="ward"), other])
    assert [kind.apart for kind in more] == [{"linkage": "single"}, {"linkage": "ward"}, {}]
    general = kinds([varied(clove, momentum=0.1), varied(ifca, momentum=0.2)])
    assert [kind.apart["momentum"] for kind in general] == ["0.1", "0.2"]


settings_of_runs = st.lists(
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 2)), min_size=1, max_size=8
)


@given(many=settings_of_runs)
def test_every_kind_has_a_name_of_its_own(compared: Any, many: list[dict[str, int]]) -> None:
    found: list[Kind] = kinds([varied(compared[0], **one) for one in many])
    assert len({kind.name for kind in found}) == len(found)
    assert sum(len(kind.runs) for kind in found) == len(many)
    assert len(found) == len({tuple(sorted(one.items())) for one in many})


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


def test_runs_that_diverged_are_told_in_words(compared: list[RunRead]) -> None:
    lost = [{**record, "test_loss": None} for record in compared[0].records]
    found = several_page([replace(compared[0], records=lost), *compared[1:]])
    assert any("diverged in 1 of 6 runs (clove)" in words for words in found["remarks"])
    assert not any("diverged" in words for words in several_page(compared)["remarks"])


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


def test_a_reference_is_marked_and_neither_on_the_line_nor_in_anybodys_way(
    compared: list[RunRead],
) -> None:
    points = runs_of([(5, 0.8), (1, 0.9), (2, 0.5)], compared[0])
    (run,) = points["1"]
    made = {**run.settings["made"], "reference": True}
    points["1"] = [replace(run, settings={**run.settings, "made": made})]
    found = pareto(points)
    assert found is not None
    assert [point["best"] for point in found["points"]] == [True, False, True]
    assert [point["reference"] for point in found["points"]] == [False, True, False]


def test_a_page_tells_a_reference_by_its_folder(runs: Path, tmp_path: Path) -> None:
    clove.run(**SMALL, algorithm="centralized", out=tmp_path / "run")
    found = page_data([runs / "clove", tmp_path / "run"])
    names = [row[0][0] for row in found["table"]["rows"]]
    assert names == ["clove", "centralized (reference)"]
    assert set(names) <= set(found["names"])
    assert {point["name"]: point["best"] for point in found["pareto"]["points"]} == {
        "clove": True,
        "centralized": False,
    }
    assert clove.load(tmp_path / "run").summary()["reference"]
