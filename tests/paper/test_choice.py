"""Which runs are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clove.errors import CloveError
from clove.paper.choice import Choice
from clove.paper.experiment import find_experiments
from clove.paper.results import Results
from tests.paper.made_up import TINY, recorded

CHOICE = Choice(seeds=2, machine={"engine": "vectorized", "device": "cpu"})


def test_seeds_begin_where_the_reading_says() -> None:
    paper, authors = (
        replace(CHOICE, reading=reading).stacks([TINY], Path("runs"))[0].seeds
        for reading in ("paper", "authors")
    )
    assert (paper, authors) == ((0, 1), (1, 2))


def test_a_choice_takes_some_cells_and_fewer_rounds() -> None:
    some = replace(CHOICE, algorithms=["clove"], extras=False, rounds=2).cells([TINY])
    assert [(cell.label, cell.settings["rounds"]) for cell in some] == [("CLoVE", 2)]
    assert [cell.settings["rounds"] for cell in replace(CHOICE, rounds=9).cells([TINY])] == [3] * 3


def test_runs_that_several_experiments_read_are_made_once() -> None:
    twice = CHOICE.cells([TINY, replace(TINY, number="E98", name="again")])
    assert len(twice) == len(CHOICE.cells([TINY]))


def test_the_machines_settings_go_before_the_usual_ones_and_do_not_change_a_key() -> None:
    usual, own = CHOICE.cells([TINY])[0], replace(CHOICE, machine={"picture": True})
    assert usual.settings["picture"] is False
    assert own.cells([TINY])[0].settings["picture"] is True
    assert own.cells([TINY])[0].key == usual.key == TINY.cells("paper")[0].key


def test_what_results_have_with_all_seeds_is_not_missing(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    first, second, _ = CHOICE.cells([TINY])
    for one, seeds in ((first, (0, 1)), (second, (0,))):
        named = replace(one, settings={**one.settings, "variant": "paper"})
        rows = [recorded(named, seed) for seed in seeds]
        kept.add(replace(row, run={**row.run, "key": one.key}) for row in rows)
    missing = CHOICE.stacks([TINY], tmp_path, kept)
    assert [stack.cell.label for stack in missing] == ["FedAvg", "CLoVE, log losses"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"reading": "autors"}, "did you mean 'authors'"),
        ({"seeds": 0}, "seeds must be 1 or more, not 0"),
        ({"rounds": 0}, "rounds must be 1 or more, not 0"),
        ({"datasets": ["mnits"]}, "did you mean 'mnist'"),
        ({"mixings": ["label-skew1"]}, "label-skew-1"),
        ({"rows": ["CLoVE trained probes"]}, "did you mean 'CLoVE, trained probes'"),
        ({"algorithms": ["clov"]}, "did you mean 'clove'"),
        ({"machine": {"learning_rate": 1}}, "takes settings of the machine .*'learning_rate'"),
    ],
)
def test_what_no_run_could_be_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(CloveError, match=said):
        Choice(**asked).cells(find_experiments(["E1"]))


def test_names_that_exclude_each_other_are_no_empty_choice() -> None:
    with pytest.raises(CloveError, match="no run has all that was asked for"):
        Choice(rows=["FedProx"], datasets=["cifar10"]).cells(find_experiments(["E1"]))
    assert Choice().cells(find_experiments(["E6"])) == []


def test_rows_are_chosen_by_the_labels_of_the_tables() -> None:
    some = Choice(rows=["CLoVE, trained probes", "IFCA"], datasets=["cifar10"])
    cells = some.cells(find_experiments(["E1"]))
    assert {cell.label for cell in cells} == {"CLoVE, trained probes", "IFCA"}
    assert len(cells) == 2 * 4  # mixings
