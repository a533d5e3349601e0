"""Ours beside theirs: when a difference counts, and how figures are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.paper.measured import Measured, measured
from clove.paper.names import METRICS
from clove.paper.published import Figure
from clove.paper.results import Results
from tests.paper.made_up import cell, recorded

ONE = cell("E2", dataset="mnist", algorithm="clove")
ACCURACY, LOSS = METRICS["accuracy"], METRICS["test_loss"]
FIRST, USED = METRICS["first_round_ari_0.9"], METRICS["models_used"]
NAN = float("nan")


def mark(metric: str, values: tuple[float, ...], theirs: Figure | None) -> str | None:
    return Measured(ONE, METRICS[metric], values, 100, theirs).mark


@pytest.mark.parametrize(
    ("metric", "ours", "theirs", "expected"),
    [
        ("accuracy", 90.9, Figure(90.0, 1.0, 1), "within"),
        ("accuracy", 91.1, Figure(90.0, 1.0, 1), "better"),
        ("accuracy", 88.9, Figure(90.0, 1.0, 1), "beyond"),
        ("test_loss", 0.010, Figure(0.014, 0.001, 3), "better"),
        ("test_loss", 0.020, Figure(0.014, 0.001, 3), "beyond"),
        ("first_round_ari_0.9", 1.0, Figure(2.0, 0.0, 1), "better"),
        ("stability_round", 7.0, Figure(4.0, None, 0), "beyond"),
        ("models_used", 4.0, Figure(3.0, None, 0), "beyond"),
        ("models_used", 2.0, Figure(3.0, None, 0), "beyond"),
    ],
)
def test_a_difference_counts_beyond_the_papers_spread(
    metric: str, ours: float, theirs: Figure, expected: str
) -> None:
    assert mark(metric, (ours,), theirs) == expected


def test_half_of_the_last_digit_is_no_difference() -> None:
    assert mark("ari", (0.995,), Figure(1.0, 0.0, 2)) == "within"
    assert mark("ari", (0.9949,), Figure(1.0, 0.0, 2)) == "beyond"
    assert mark("stability_round", (4.5,), Figure(4.0, None, 0)) == "within"


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 5))
def test_more_of_what_is_good_is_never_worse(ours: float, theirs: float, std: float) -> None:
    order = ["beyond", "within", "better"]
    low, high = (mark("accuracy", (v,), Figure(theirs, std, 1)) for v in (ours, ours + 1))
    assert low is not None
    assert high is not None
    assert order.index(low) <= order.index(high)


def test_without_runs_or_without_a_figure_of_the_paper_there_is_nothing_to_compare() -> None:
    assert mark("accuracy", (), Figure(90.0, 1.0, 1)) is None
    assert mark("accuracy", (90.0,), None) is None
    assert mark("ari_at_10_rounds", (NAN,), Figure(1.0, 0.0)) is None


def test_what_is_not_reached_by_every_seed_is_compared_by_who_does() -> None:
    never, two = Figure(NAN, None, 0), Figure(2.0, 0.0, 1)
    assert mark(FIRST.name, (2.0, NAN), never) == "within"
    assert mark(FIRST.name, (2.0, 3.0), never) == "better"
    assert mark(FIRST.name, (2.0, NAN), two) == "beyond"


def test_how_many_seeds_reach_it_is_said_beside_the_dash() -> None:
    one = Measured(ONE, FIRST, (2.0, NAN, 3.0), 100)
    assert one.ours_text() == "---"
    assert one.remarks(seeds=3) == ["2 of 3 reach it"]
    assert Measured(ONE, FIRST, (2.0, 2.0), 100).remarks(seeds=2) == []


def test_figures_have_the_papers_digits_and_its_kind_of_spread() -> None:
    values = (90.0, 92.0, 94.0)
    assert Measured(ONE, ACCURACY, values, 100).ours_text() == "92.0 ± 1.6"
    assert Measured(ONE, ACCURACY, values, 100, sample=True).ours_text() == "92.0 ± 2.0"
    assert Measured(ONE, ACCURACY, (90.0,), 100).ours_text() == "90.0"
    assert Measured(ONE, METRICS["k_right"], (100.0, 0.0), 100).ours_text() == "50"
    finer = Measured(ONE, METRICS["ari"], (1.0,), 100, Figure(1.0, 0.0, 3))
    assert (finer.ours_text(), finer.theirs_text()) == ("1.000", "1.000 ± 0.000")
    assert Measured(ONE, METRICS["ari"], (-0.001,), 100).ours_text() == "0.00"
    assert Measured(ONE, ACCURACY).ours_text() == ""
    assert Measured(ONE, ACCURACY, theirs=Figure(NAN, None)).theirs_text() == "---"


def test_fewer_seeds_and_fewer_rounds_are_said() -> None:
    one = Measured(ONE, ACCURACY, (90.0,), 20)
    assert one.remarks(seeds=3) == ["1 seed", "20 rounds"]
    assert Measured(ONE, ACCURACY, (90.0,), 20, Figure(90.0, 1.0, 1)).mark is None
    assert Measured(ONE, ACCURACY, (90.0, 90.0), 100).remarks(seeds=3) == ["2 seeds"]


def test_runs_cut_short_are_shown_until_whole_ones_are_there(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    kept.add([recorded(ONE, 0, rounds=5, ari=0.1), recorded(ONE, 0, rounds=20, ari=0.2)])
    found = measured(kept, ONE, METRICS["ari"], None)
    assert (found.values, found.rounds) == ((0.2,), 20)
    kept.add([recorded(ONE, 0, ari=1.0)])
    found = measured(kept, ONE, METRICS["ari"], None)
    assert (found.values, found.rounds, found.remarks(1)) == ((1.0,), 100, [])


def test_a_cell_without_runs_has_no_value(tmp_path: Path) -> None:
    found = measured(Results(tmp_path), ONE, METRICS["ari"], Figure(1.0, 0.0))
    assert (found.values, found.mark, found.remarks(3)) == ((), None, [])
