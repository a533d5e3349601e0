"""Claims held against results: by every rule, and said so that a reader sees where they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clove.paper import EXPERIMENTS, Results
from clove.paper.claims import Claim, all_claims, verdict
from clove.paper.experiment import READINGS
from clove.paper.names import METRICS
from clove.paper.results import Recorded
from tests.paper.made_up import cell, heat, recorded, results


def judged(folder: Path, claim: dict[str, Any], *some: tuple[Any, list[float], str]) -> str:
    made = Claim(**{"experiment": "E2", "says": "it is so", "metric": "ari", **claim})
    return str(verdict(made, "paper", results(folder, *some)))


def clove(dataset: str = "mnist", mixing: str = "label-skew-1") -> Any:
    return cell("E2", dataset=dataset, mixing=mixing, algorithm="clove")


AT_LEAST: dict[str, Any] = {"only": {"algorithm": "clove"}, "at_least": 0.995}


def test_what_has_no_runs_is_not_judged(tmp_path: Path) -> None:
    assert judged(tmp_path, AT_LEAST) == "not run yet"


def test_a_claim_holds_or_says_where_it_does_not(tmp_path: Path) -> None:
    good = (clove(), [1.0, 0.99], "ari")
    assert judged(tmp_path / "a", AT_LEAST, good) == "holds so far (1 of 1; 11 not run yet)"
    bad = (clove("fmnist"), [0.9, 0.9], "ari")
    expected = "holds in 1 of 2; 10 not run yet: not Fashion-MNIST, label skew 1 (0.90 ± 0.00)"
    assert judged(tmp_path / "b", AT_LEAST, good, bad) == expected
    assert judged(tmp_path / "c", AT_LEAST, bad).startswith("does not hold; 11 not run yet: not")


def test_runs_cut_short_are_not_judged(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    kept.add([recorded(clove(), 0, rounds=2, ari=1.0)])
    found = verdict(Claim("E2", "it is so", "ari", **AT_LEAST), "paper", kept)
    assert str(found) == "not run yet"


def test_a_claim_is_decided_by_all_its_cells_or_by_one_where_it_fails(tmp_path: Path) -> None:
    made = Claim("E2", "it is so", "ari", **AT_LEAST)
    good, bad = (clove(), [1.0], "ari"), (clove("fmnist"), [0.5], "ari")
    every = [
        (one, [1.0], "ari")
        for one in EXPERIMENTS["E2"].cells("paper")
        if one.algorithm == "clove" and not one.extra
    ]
    decided = [
        verdict(made, "paper", results(tmp_path / name, *some)).is_decided
        for name, some in (("none", []), ("one", [good]), ("both", [good, bad]), ("all", every))
    ]
    assert decided == [False, False, True, True]


def test_what_was_never_reached_is_not_at_most_anything(tmp_path: Path) -> None:
    claim = {"metric": "first_round_ari_0.9", "only": {"algorithm": "clove"}, "at_most": 3}
    assert "does not hold" in judged(
        tmp_path, claim, (clove(), [2.0, float("nan")], "first_round_ari_0.9")
    )


def test_near_the_papers_figure(tmp_path: Path) -> None:
    near = {
        **{"experiment": "E1", "table": "supervised-accuracy", "metric": "accuracy"},
        **{"only": {"algorithm": "clove", "dataset": "mnist"}, "near": {"mnist": 1.0}},
    }
    one = cell("E1", dataset="mnist", mixing="label-skew-1", algorithm="clove")  # paper: 99.8
    assert judged(tmp_path / "a", near, (one, [98.9], "accuracy")).startswith("holds")
    far = judged(tmp_path / "b", near, (one, [98.7], "accuracy"))
    assert far.endswith("not MNIST, label skew 1 (98.7, paper 99.8 ± 0.0)")


def test_only_where_the_papers_figure_is_high(tmp_path: Path) -> None:
    made = Claim(
        *("E9", "it is so", "ari", {"algorithm": "clove"}),
        table="supervised-ari",
        paper_at_least=0.995,
        at_least=0.995,
    )
    found = verdict(made, "paper", Results(tmp_path))
    assert found.missing == 4  # label skew 3 of three data sets, and CIFAR-10's label skew 4


def test_rank_counts_the_papers_methods_when_all_are_there(tmp_path: Path) -> None:
    names = ["cfl-s", "fesem", "flexcfl", "pacfl", "ifca", "clove"]
    some = [(cell("E2", dataset="mnist", mixing="label-skew-1", algorithm=n), n) for n in names]
    values = dict(zip(names, [0.1, 0.2, 1.0, 0.3, 0.9, 0.8], strict=True))
    claim = {"only": {"algorithm": "clove", "mixing": "label-skew-1"}, "rank": 3}
    every = [(one, [values[name]], "ari") for one, name in some]
    assert judged(tmp_path / "a", claim, *every).startswith("holds so far (1 of 1")
    second = judged(tmp_path / "b", {**claim, "rank": 2}, *every)
    assert second.endswith("not MNIST, label skew 1 (0.80, place 3; FlexCFL 1.00)")
    assert judged(tmp_path / "c", claim, *every[1:]) == "not run yet"


def test_above_another_cell_with_the_same_settings(tmp_path: Path) -> None:
    claim = {
        **{"experiment": "E20", "only": {"algorithm": "clove"}, "above": {"algorithm": "ifca"}},
        "same": ["clients_per_cluster"],
    }
    places = [{"dataset": "mnist", "clients_per_cluster": n} for n in (10, 20)]
    some = [
        (cell("E20", **place, algorithm=name), [value], "ari")
        for place, values in zip(places, ((1.0, 0.9), (0.7, 0.8)), strict=True)
        for name, value in zip(("clove", "ifca"), values, strict=True)
    ]
    told = judged(tmp_path, claim, *some)
    assert told.startswith("holds in 1 of 2")
    assert told.endswith(
        "not MNIST, label skew 1, CLoVE, 100 clients (0.70, IFCA, 100 clients 0.80)"
    )


def test_clients_do_best_on_their_own_models_or_it_is_said_who_does_not(tmp_path: Path) -> None:
    made = Claim("E18", "it is so", "test_loss", {"algorithm": "clove"}, own_least=True)
    kept = Results(tmp_path)
    assert str(verdict(made, "paper", kept)) == "not run yet"
    run = heat(3, [2, 0, 1], "clove")
    kept.add([run])
    assert str(verdict(made, "paper", kept)) == "holds (3 of 3)"
    worse = [{**row, "loss": 0.05 if row["model"] == 2 else row["loss"]} for row in run.heat_map]
    kept.add([Recorded(run.run, run.rounds, worse)])
    told = str(verdict(made, "paper", kept))
    assert told.startswith("holds in 1 of 3: not cluster 1 of seed 0 (0.1, model 2 0.05)")


@pytest.mark.parametrize("claim", all_claims(), ids=lambda one: f"{one.experiment} {one.says}")
def test_every_claim_is_about_cells_that_are_there(tmp_path: Path, claim: Claim) -> None:
    assert claim.experiment in EXPERIMENTS
    assert claim.metric in METRICS
    for reading in READINGS:
        found = verdict(claim, reading, Results(tmp_path))
        assert found.missing > 0
    rules = (claim.at_least, claim.at_most, claim.near, claim.rank, claim.above, claim.own_least)
    assert sum(rule is not None for rule in rules) == 1


def test_every_experiment_that_measures_is_judged_but_the_one_on_other_data() -> None:
    judged_ones = {claim.experiment for claim in all_claims()}
    assert set(EXPERIMENTS) - judged_ones == {"E6", "E13"}
