"""The experiments as data: every run is possible, and every figure of the paper has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from clove.errors import CloveError
from clove.paper import EXPERIMENTS, Cell, Results, find_experiments, published
from clove.paper.experiment import READINGS, amounts_of, by_rules, check_choice, selected
from clove.paper.names import METRICS
from clove.paper.published import figure
from clove.runs.settings import from_names
from tests.paper.made_up import TINY

ROOT = Path(__file__).resolve().parents[2]
# Rows of the paper's figures that are no outcome of a run of ours, but setups and bounds in prose.
SETUPS = {"experiment-details"}
IN_PROSE = {"dataset_size", "rounds_to_correct_clustering", "accuracy_drop_percent"}


def cells() -> Iterator[tuple[str, str, Cell]]:
    for number, experiment in EXPERIMENTS.items():
        for reading in READINGS:
            for cell in experiment.cells(reading):
                yield number, reading, cell


def test_all_twenty_four_experiments_are_there() -> None:
    assert list(EXPERIMENTS) == [f"E{number}" for number in range(1, 25)]


def test_every_cell_has_settings_that_a_run_takes() -> None:
    for _, _, cell in cells():
        settings = from_names(**cell.settings, seed=0)
        assert (settings.dataset, settings.algorithm) == (cell.dataset, cell.algorithm)


def test_no_two_cells_of_an_experiment_have_the_same_key_or_the_same_place_in_a_table() -> None:
    for experiment in EXPERIMENTS.values():
        for reading in READINGS:
            some = experiment.cells(reading)
            places = {(one.label, one.dataset, one.mixing, one.extra) for one in some}
            assert len({one.key for one in some}) == len(some)
            assert len(places) == len(some), experiment.number


def test_the_two_readings_share_no_run() -> None:
    keys = {r: {cell.key for _, reading, cell in cells() if reading == r} for r in READINGS}
    assert not keys["paper"] & keys["authors"]


def test_a_key_depends_on_settings_alone_and_not_on_their_order_or_the_machine() -> None:
    names = {"dataset": "digits", "mixing": "none", "algorithm": "clove", "rounds": 3}
    one = Cell(names)
    assert one.key == "digits-none-clove-3928bd4e09"
    assert one.key == Cell(dict(reversed(names.items()))).key
    assert one.key == Cell({**names, "device": "cuda", "picture": False}, label="other").key
    assert one.key != Cell({**names, "rounds": 4}).key


def test_every_run_in_the_repository_belongs_to_an_experiment() -> None:
    runs = Results(ROOT / "results" / "paper").runs
    if len(runs):
        assert set(runs["key"]) <= {cell.key for _, _, cell in cells()}


# ------------------------------------------------------------------------------ the paper's figures


def reached() -> set[tuple[str, ...]]:
    """Return the paper's figures that stand beside some cell of ours."""
    found = set()
    for experiment in EXPERIMENTS.values():
        for said in experiment.tables:
            for cell in experiment.cells("paper"):
                if not cell.extra and selected(cell, said.get("only", {})):
                    variant = said.get("variant_key", cell.variant)
                    for mixing in (cell.mixing, ""):
                        place = (cell.dataset, mixing, cell.algorithm, variant)
                        found.add((said["table"], *place, said["metric"]))
    return found


def test_every_measured_figure_of_the_paper_has_a_cell() -> None:
    found, missed = reached(), []
    for row in published().to_dict("records"):
        names = ("table", "dataset", "mixing", "algorithm", "variant", "metric")
        bound = "bound=" in row["variant"] or row["metric"] in IN_PROSE
        if row["table"] not in SETUPS and not (row["table"] == "prose" and bound):
            missed += [row] if tuple(row[name] for name in names) not in found else []
    # FEMNIST's place is taken by MNIST's writers, whose figures are not to be compared.
    assert [(row["dataset"], row["algorithm"]) for row in missed] == [("femnist", "clove")]


def test_every_table_and_figure_names_a_metric_and_cells_that_are_there() -> None:
    for experiment in EXPERIMENTS.values():
        for said in (*experiment.tables, *experiment.figures):
            assert said.get("metric", "ari") in METRICS
            some = [c for c in experiment.cells("paper") if selected(c, said.get("only", {}))]
            assert some or said.get("kind") == "illustration"


def test_figures_are_read_as_printed() -> None:
    fedavg = figure("supervised-accuracy", "accuracy", "mnist", "label-skew-1", "fedavg", "")
    assert fedavg is not None
    assert (fedavg.mean, fedavg.std, fedavg.decimals, fedavg.bold) == (87.4, 0.9, 1, False)
    never = figure("text-convergence", "first_round_ari_0.9", "amazon", "none", "clove", "")
    assert never is not None
    assert pd.isna(never.mean)
    assert never.std is None
    assert figure("text-ari", "ari", "amazon", "none", "fedavg", "") is None


def test_a_table_that_names_no_mixing_is_found_by_any() -> None:
    by_mixing = figure("unsupervised-loss", "test_loss", "mnist", "none", "clove", "")
    assert by_mixing is not None
    assert by_mixing.mean == 0.014


# ------------------------------------------------------------------------------------------- rules


def test_the_authors_have_other_batches_rates_and_first_rounds_than_the_paper() -> None:
    supervised = {"dataset": "mnist", "mixing": "label-skew-1", "algorithm": "clove"}
    paper, authors = by_rules(supervised, "paper"), by_rules(supervised, "authors")
    assert (paper["batch_size"], paper["learning_rate"]) == (64, 1e-3)
    assert (authors["batch_size"], authors["learning_rate"]) == (100, 1e-2)
    assert "first_round" not in paper
    assert (authors["first_round"], authors["n_init"]) == ("random", 1)


def test_rules_hold_only_where_they_say() -> None:
    unsupervised = {"dataset": "mnist", "algorithm": "clove", "task": "reconstruction"}
    assert by_rules(unsupervised, "authors")["learning_rate"] == 1e-3
    assert "first_round" not in by_rules(unsupervised, "authors")
    assert (
        by_rules({"dataset": "cifar10", "algorithm": "local"}, "authors")["learning_rate"] == 1e-3
    )


def test_what_an_experiment_says_goes_before_the_rules() -> None:
    own = {"dataset": "mnist", "algorithm": "clove", "batch_size": 7}
    assert by_rules(own, "authors")["batch_size"] == 7


def test_lists_stand_for_every_combination_and_rows_beyond_the_paper_come_last() -> None:
    labels = [(one.label, one.extra) for one in TINY.cells("paper")]
    assert labels == [("CLoVE", False), ("FedAvg", False), ("CLoVE, log losses", True)]


def test_a_row_beyond_the_paper_that_is_one_of_its_own_is_not_run_twice() -> None:
    labels = [one.label for one in EXPERIMENTS["E24"].cells("paper") if one.dataset == "mnist"]
    assert labels.count("FINCH") == 1
    assert labels[:2] == ["FINCH", "k-means"]


def test_what_only_one_reading_or_one_method_has_is_left_out_for_others() -> None:
    linear = EXPERIMENTS["E7"]
    assert {c.settings["rounds"] for c in linear.cells("paper") if c.algorithm == "clove"} == {30}
    assert {c.settings["rounds"] for c in linear.cells("authors")} == {5, 1}
    writers = {c.algorithm: c.settings for c in EXPERIMENTS["E13"].cells("paper")}
    assert writers["clove"]["max_models"] == 20
    assert {amounts_of(one).clients for one in writers.values()} == {100}
    assert "max_models" not in writers["local"]


def test_labels_count_the_clients_that_runs_have() -> None:
    scaled = {one.variant for one in EXPERIMENTS["E20"].cells("paper")}
    assert scaled == {f"clients={number}" for number in (50, 100, 250, 500, 1000)}
    assert EXPERIMENTS["E22"].cells("paper")[0].label == "50 clients"


# ------------------------------------------------------------------------------------------- names


def test_experiments_are_found_by_number_and_name_each_once() -> None:
    assert [one.number for one in find_experiments(["e5", "finch", "E5"])] == ["E5", "E24"]
    assert len(find_experiments(["all"])) == 24


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(CloveError, match="unknown experiment 'ablatoin': did you mean 'ablation'"):
        find_experiments(["ablatoin"])
    with pytest.raises(CloveError, match="name an experiment"):
        find_experiments([])
    with pytest.raises(CloveError, match="unknown settings 'author': did you mean 'authors'"):
        TINY.cells("author")
    with pytest.raises(CloveError, match="did you mean 'mnist'"):
        check_choice(["mnits"])
    with pytest.raises(CloveError, match="did you mean 'ifca'"):
        check_choice(algorithms=["ifc"])
    with pytest.raises(CloveError, match="label-skew-1"):
        check_choice(mixings=["label-skew1"])
