"""What the page of one run shows."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import clove
from clove.cli import app
from clove.errors import CloveWarning
from clove.report.page.data import run_page, shown_clients
from clove.report.page.read import read_run
from tests.report.page.conftest import KINDS, SMALL


def page(path: Path) -> dict[str, Any]:
    return run_page(read_run(path))


def figures(found: dict[str, Any]) -> dict[str, str]:
    return {one["label"]: one["value"] for one in found["headline"]}


@pytest.mark.parametrize("kind", [*KINDS, "own"])
def test_every_kind_of_run_has_a_page_of_plain_data(runs: Path, kind: str) -> None:
    found = page(runs / kind)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["status"] == {"finished": True, "done": 4, "rounds": 4, "words": "finished"} or (
        kind == "own" and found["status"]["done"] == 3
    )


def test_the_headline_is_what_the_run_came_to(runs: Path) -> None:
    result, found = clove.load(runs / "clove"), figures(page(runs / "clove"))
    assert result.accuracy is not None
    assert found["accuracy"] == f"{100 * result.accuracy:.1f} %"
    assert found["ARI"] == f"{result.ari:.2f}"
    assert found["clusters"] == "3"
    assert {"stable", "traffic", "time"} <= set(found)


def test_where_clients_are_not_asked_nothing_is_said_of_stability(runs: Path) -> None:
    read = read_run(runs / "clove")
    silent = replace(read, records=[{**record, "stable": None} for record in read.records])
    assert "stable" not in figures(run_page(silent))


def test_runs_without_accuracy_or_groups_have_other_headlines(runs: Path) -> None:
    assert set(figures(page(runs / "reconstruction"))) >= {"test loss", "ARI"}
    assert set(figures(page(runs / "fedavg"))) == {"accuracy", "traffic", "time"}
    assert "ARI" not in figures(page(runs / "own"))
    assert any("true groups are not known" in words for words in page(runs / "own")["remarks"])


def test_methods_without_clusters_show_none(runs: Path) -> None:
    for kind in ("fedavg", "local"):
        found = page(runs / kind)
        assert found["cards"] == []
        assert found["membership"] is None
        assert "cluster" not in found["clients"]["columns"]


def test_a_card_tells_of_its_cluster(runs: Path) -> None:
    read, found = read_run(runs / "clove"), page(runs / "clove")
    for card in found["cards"]:
        mine = np.flatnonzero(read.assignment == card["model"])
        assert card["members"] == mine.tolist()
        assert card["size"] == sum(card["groups"].values()) == len(mine)
        assert sum(card["labels"]) == card["points"]
        assert card["spread"]["of"] == sorted(card["spread"]["of"])
        assert card["nearest"][0] != card["model"]
    assert sum(card["size"] for card in found["cards"]) == 9


def test_labels_of_a_cluster_are_those_of_its_clients(runs: Path) -> None:
    counts = json.loads((runs / "clove" / "data.json").read_text())["labels"]
    for card in page(runs / "clove")["cards"]:
        assert card["labels"] == np.sum([counts[c] for c in card["members"]], axis=0).tolist()


@pytest.mark.parametrize("kind", ["clove", "reconstruction", "some"])
def test_the_worst_served_client_comes_first(runs: Path, kind: str) -> None:
    found, scores = page(runs / kind)["clients"], clove.load(runs / kind).client_scores
    worst = scores["accuracy"].min() if "accuracy" in scores else scores["loss"].max()
    column = "accuracy" if "accuracy" in scores else "loss"
    assert found["rows"][0][found["columns"].index(column)] == pytest.approx(worst, rel=1e-3)
    assert len(found["rows"]) == len(scores)


def test_clients_of_a_cluster_stand_together_in_pictures(runs: Path) -> None:
    read = read_run(runs / "clove")
    models = read.assignment[shown_clients(read)]
    assert (np.diff(models) >= 0).all()


def test_membership_is_the_assignment_by_round(runs: Path) -> None:
    read, found = read_run(runs / "some"), page(runs / "some")["membership"]
    table = np.array(found["models"]).T
    for row, record in zip(table, read.records, strict=True):
        assert row.tolist() == [record["assignment"][client] for client in found["clients"]]


def test_of_many_clients_some_of_every_cluster_are_in_pictures(runs: Path) -> None:
    read = read_run(runs / "clove")
    last = {**read.records[-1], "assignment": [0] * 4000 + [1] * 1000}
    large = replace(read, records=[*read.records[:-1], last], groups=None, data={})
    shown = shown_clients(large)
    assert len(shown) == 300
    assert 50 <= (large.assignment[shown] == 1).sum() <= 70
    found = run_page(large)
    assert any("300 of 5000 clients" in words for words in found["remarks"])


def test_traffic_is_beside_that_of_fedavg_and_ifca(runs: Path) -> None:
    found = page(runs / "clove")["bytes"]
    assert list(found["methods"]) == ["clove", "fedavg", "ifca"]
    totals = {one["method"]: one["both"] for one in found["totals"]}
    assert totals["fedavg"] < totals["clove"]


def test_the_time_of_all_phases_is_that_of_the_run(runs: Path) -> None:
    found, read = page(runs / "clove")["times"], read_run(runs / "clove")
    total = sum(sum(seconds) for seconds in found["phases"].values())
    assert total == pytest.approx(sum(t["seconds"] for t in read.timings), rel=1e-2)


def test_the_command_repeats_the_run(runs: Path, tmp_path: Path) -> None:
    command = page(runs / "clove")["command"].split()
    assert command[:2] == ["clove", "run"]
    words = [*command[1:], "--out", str(tmp_path / "again"), "--engine", "vectorized", "--quiet"]
    assert CliRunner().invoke(app, words).exit_code == 0
    again, before = clove.load(tmp_path / "again"), clove.load(runs / "clove")
    assert again.assignment.tolist() == before.assignment.tolist()
    assert again.test_loss == pytest.approx(before.test_loss, rel=1e-4)


def test_no_command_repeats_a_run_of_clients_handed_over_in_python(runs: Path) -> None:
    assert page(runs / "own")["command"] is None


def test_an_older_folder_is_repeated_by_its_settings_file(runs: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(runs / "clove", tmp_path / "my run"))
    lines = (old / "settings.toml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("command = ")]
    (old / "settings.toml").write_text("\n".join(kept))
    assert page(old)["command"] == f"clove run '{old}/settings.toml'"


def test_a_run_on_a_network_has_a_page(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="no Flower here: pip install 'clove-fl[flower]'")
    from tests.federation.flower.grid import LocalGrid
    from tests.federation.flower.runs import COMMON, digits_app, serve

    serve(LocalGrid.of(digits_app(), 10), tmp_path / "far", **COMMON)
    found = page(tmp_path / "far")
    assert found["subtitle"] == "10 clients, 3 rounds, seed 0, on Flower"
    assert found["command"] is None
    assert found["cards"][0]["labels"] is None, "the server knows nothing of the data"
    assert found["cards"][0]["groups"] is not None
    assert list(found["bytes"]["methods"]) == ["clove", "fedavg", "ifca"]


def test_a_client_that_came_later_is_in_no_cluster_before(runs: Path) -> None:
    read = read_run(runs / "clove")
    first = {**read.records[0], "assignment": read.records[0]["assignment"][:8]}
    found = run_page(replace(read, records=[first, *read.records[1:]], data={}, vectors={}))
    late = found["membership"]["clients"].index(8)
    assert found["membership"]["models"][late][0] == -1


def wild(folder: Path, **settings: Any) -> dict[str, Any]:
    """Return the page of a run whose steps are far too long."""
    with pytest.warns(CloveWarning, match="diverged"):
        clove.run(**{**SMALL, "optimizer": "sgd", "rounds": 2, **settings}, out=folder)
    return page(folder)


def test_a_run_whose_clients_diverged_says_so(tmp_path: Path) -> None:
    found = wild(tmp_path / "wild", algorithm="fedavg", learning_rate=1e18)
    said = next(words for words in found["remarks"] if "diverges" in words)
    assert said.startswith("In 2 of 2 rounds fewer clients took part than were asked (in round 1: ")
    assert said.endswith("A smaller learning rate than 1e+18 may help.")


def test_a_run_whose_losses_are_no_numbers_says_so(runs: Path) -> None:
    read = read_run(runs / "clove")
    assert read.scores is not None
    lost = [
        {**one, "test_loss": one["test_loss"] if one["round"] < 3 else None} for one in read.records
    ]
    loss = np.where(np.arange(9) < 4, np.nan, read.scores.loss)
    found = run_page(replace(read, records=lost, scores=replace(read.scores, loss=loss)))
    said = next(words for words in found["remarks"] if "diverged" in words)
    assert "(in 2 of 4 rounds, first in round 3, at the end those of 4 of 9 clients)" in said
    assert figures(found)["accuracy"] == figures(page(runs / "clove"))["accuracy"]


def test_a_run_that_did_not_diverge_says_nothing_of_it(runs: Path) -> None:
    for kind in KINDS:
        assert not any("diverge" in words for words in page(runs / kind)["remarks"])


def test_nobody_is_served_worse_than_who_has_no_loss(runs: Path) -> None:
    read = read_run(runs / "reconstruction")
    assert read.scores is not None
    loss = read.scores.loss.copy()
    loss[4] = np.nan
    found = run_page(replace(read, scores=replace(read.scores, loss=loss)))
    assert found["clients"]["rows"][0][0] == read.scores.clients[4]
    assert "at the end those of 1 of 9 clients" in " ".join(found["remarks"])
