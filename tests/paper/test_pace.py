"""What is begun next: the longest first, nothing that would not be done in time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clove.paper.choice import Stack
from clove.paper.experiment import EXPERIMENTS, Cell
from clove.paper.making import Made
from clove.paper.pace import Pace, Queue, Ratios, earlier_ratios
from clove.paper.results import Results
from tests.paper.made_up import cell, recorded

NOBODY = Path("nowhere")


def stack(seconds: float, dataset: str = "mnist", algorithm: str = "clove", **more: Any) -> Stack:
    """Return a stack whose one run is estimated to take so long."""
    named = {"dataset": dataset, "mixing": "none", "algorithm": algorithm, "rounds": 1}
    return Stack(Cell({**named, "seconds": seconds, **more}), "paper", (0,), NOBODY)


def estimated(one: Cell) -> float:
    return float(one.settings["seconds"])


def in_order(queue: Queue) -> list[float]:
    found = []
    while (one := queue.take()) is not None:
        found.append(estimated(one.cell))
    return found


def queue(some: Sequence[Stack], seconds: float | None = None, **options: Any) -> Queue:
    until = None if seconds is None else time.time() + seconds
    return Queue(some, Pace(estimated, options.pop("earlier", None)), until=until, **options)


def known(dataset: str = "mnist", ratio: float = 1.0) -> Ratios:
    found = Ratios()
    found.add(stack(1, dataset).cell, ratio, 1.0)
    return found


def test_the_longest_is_first_where_several_run_side_by_side() -> None:
    some = [stack(2), stack(9), stack(5)]
    assert in_order(queue(some, longest_first=True)) == [9, 5, 2]
    assert in_order(queue(some)) == [2, 9, 5]
    assert in_order(Queue(some)) == [2, 9, 5]


def test_a_stack_counts_with_all_its_seeds() -> None:
    three = Stack(stack(4).cell, "paper", (0, 1, 2), NOBODY)
    assert Pace(estimated).expected(three) == 12


def test_nothing_is_begun_that_would_not_be_done_in_time() -> None:
    one = queue([stack(500), stack(50), stack(90)], 100, longest_first=True, earlier=known())
    assert in_order(one) == [90, 50]
    assert [estimated(left.cell) for left in one.left] == [500]
    assert in_order(queue([stack(1)], -1)) == []


def test_what_was_measured_scales_what_is_expected_of_its_like_first() -> None:
    pace = Pace(estimated)
    pace.took(stack(10, algorithm="fedpac"), 80)
    pace.took(stack(10, algorithm="clove"), 20)
    assert pace.expected(stack(1, algorithm="fedpac")) == 8
    assert pace.expected(stack(1, algorithm="clove")) == 2
    assert pace.expected(stack(1, algorithm="ifca")) == 5
    assert pace.expected(stack(1, "cifar10")) == 5


def test_a_stack_that_was_too_long_is_begun_once_others_were_quick() -> None:
    long, short = stack(300), stack(40)
    one = queue([long, short], 100, longest_first=True, earlier=known())
    assert one.take() is short
    assert one.take() is None
    one.note(short, Made([], seconds=4))
    assert one.take() is long


def test_of_a_data_set_nothing_is_known_of_the_shortest_is_tried_all_the_same() -> None:
    some = [stack(900, "cifar10"), stack(800, "cifar10"), stack(700)]
    assert in_order(queue(some, 100, earlier=known("mnist"))) == [800]


def test_earlier_runs_count_where_this_machine_made_them(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    mine = cell("E1", dataset="mnist", mixing="label-skew-1", algorithm="fedpac")
    kept.add([recorded(mine, 0, seconds=30.0, machine="mine")])
    kept.add([recorded(mine, 1, seconds=900.0, machine="another")])
    ratios = earlier_ratios(kept, "mine", lambda _: 10.0)
    assert ratios.of(mine) == 3
    assert not earlier_ratios(kept, "a third", lambda _: 10.0).knows("mnist")


def test_a_stack_without_time_is_left_and_one_that_failed_is_not() -> None:
    slow, bad = stack(1), stack(2)
    one = queue([slow, bad])
    for _ in range(2):
        one.take()
    one.note(slow, Made())
    one.note(bad, Made(error="no"))
    assert one.left == [slow]


@pytest.mark.parametrize("number", ["E1", "E7", "E13", "E20"])
def test_every_kind_of_cell_has_an_estimate(number: str) -> None:
    from clove.paper.estimate import seconds_for

    for reading in ("paper", "authors"):
        for one in EXPERIMENTS[number].cells(reading)[:40]:
            assert 0 < seconds_for(one, ("cpu", 1e10)) < 1e9
