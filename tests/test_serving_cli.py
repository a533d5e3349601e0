"""`clove assign`, `export` and `serve`: what is printed, and how they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import clove as package
from tests.runs.small import TINY, MyNet, digits_of, own_clients
from tests.test_cli import fails, works


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "run"
    package.run(**{**TINY, "rounds": 6}, learning_rate=0.01, out=folder)
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def newcomer(**changes: Any) -> Path:
    x, y = digits_of((2, 3))
    np.savez("new.npz", **{"x": x, "y": y, **changes})
    return Path("new.npz")


def test_a_newcomer_is_told_its_model_how_sure_and_how_well_all_do(run: Path) -> None:
    shown = works("assign", run, "--data", newcomer()).stdout
    title, *lines = [line.split() for line in shown.splitlines() if line.strip()]
    assert title[0] == "new.npz:"
    assert lines[0] == ["model", "distance", "loss", "accuracy", "%", "clients"]
    own, other = lines[2:4]
    assert (own[0], own[-1], other[-1]) == ("1", "2", "2")
    assert float(own[1]) < float(other[1])
    assert float(own[3]) > float(other[3])
    assert lines[4][:3] == ["model", "1,", "sure"]


def test_assign_as_json_is_what_python_says(run: Path) -> None:
    said = json.loads(works("assign", run, "--data", newcomer(), "--json").stdout)
    found = package.load(run).assign(*digits_of((2, 3)))
    assert (said["model"], said["sure"]) == (found.model, found.sure)
    assert said["distances"] == found.distances.tolist()
    assert said["loss"] == found.loss.tolist()
    assert found.accuracy is not None
    assert said["accuracy"] == found.accuracy.tolist()


def test_a_model_without_clients_has_no_distance(here: Path) -> None:
    package.run(**TINY, max_models=4, clustering="agglomerative", out="run")
    said = json.loads(works("assign", "run", "--data", newcomer(), "--json").stdout)
    assert None in said["distances"]
    assert "–" in works("assign", "run", "--data", newcomer()).stdout


def test_newcomers_that_make_no_sense_are_refused(run: Path) -> None:
    x, y = digits_of((2, 3))
    for change, said in [
        ({"x": np.where(x > 0.9, np.nan, x)}, "x holds NaN or infinite values"),
        ({"x": x.reshape(len(x), -1)}, "samples have shape (64,), the run's (1, 8, 8)"),
        ({"y": y + 20}, "classification needs whole labels 0 to 9"),
        ({"y": y[1:]}, "points but y has"),
        ({"y": y.astype(str)}, "labels are words"),
        ({"z": y}, "unknown array 'z'"),
    ]:
        assert said in fails("assign", run, "--data", newcomer(**change))
    np.savez("new.npz", x=x)
    assert "needs labels" in fails("assign", run, "--data", "new.npz")
    Path("new.npz").write_text("no archive")
    assert "damaged or no npz file" in fails("assign", run, "--data", "new.npz")


def test_methods_without_newcomers_say_so(here: Path) -> None:
    package.run(**TINY, algorithm="local", out="alone")
    assert "local has no model to give" in fails("assign", "alone", "--data", newcomer())
    assert "local has no model to give" in fails("serve", "alone", "--port", "0")


def test_a_comparison_is_told_from_its_runs(here: Path) -> None:
    package.compare("clove", out="both", **TINY)
    said = fails("assign", "both", "--data", newcomer())
    assert "both holds a comparison: name one of its runs, both/clove/seed-0" in said
    works("export", "both/clove/seed-0", "--cluster", "0")
    assert "is not a run folder" in fails("export", "nowhere", "--cluster", "0")


def test_export_says_what_it_wrote(run: Path, here: Path) -> None:
    assert works("export", run, "--cluster", "1").stdout == "model-1.safetensors\n"
    assert works("export", run, "--client", "3", "-o", "mine").stdout == "mine\n"
    one, other = load_file("model-1.safetensors"), load_file("mine")
    assert all(one[name].equal(other[name]) for name in other)
    works("export", run, "--cluster", "0", "--format", "torchscript", "-o", "a/b.pt")
    assert (here / "a" / "b.pt").is_file()


def test_a_network_of_ones_own_is_found_by_its_name(here: Path) -> None:
    clients, task = own_clients(), package.classification(MyNet)
    result = package.run(clients=clients, task=task, models=2, rounds=2, out="own")
    x, y = clients[0].train
    np.savez("new.npz", x=x, y=y)
    words = ("assign", "own", "--data", "new.npz", "--json")
    assert "a task or a network of your own" in fails(*words)
    said = json.loads(works(*words, "--network", "tests.runs.small:MyNet").stdout)
    assert said["model"] == result.assign(x, y).model
    wrong = fails(*words, "--network", "tests.runs.small:YourNet")
    assert "'tests.runs.small:YourNet' cannot be imported" in wrong
    works("export", "own", "--cluster", "0")  # parameters need no network


def test_export_refuses_with_what_there_is(run: Path) -> None:
    assert "there is no model 2: this run has 2" in fails("export", run, "--cluster", "2")
    assert "there is no client 4: this run has 4" in fails("export", run, "--client", "4")
    assert "either --cluster or --client" in fails("export", run)
    wrong = ("export", run, "--cluster", "0", "--format", "onx")
    assert "unknown format 'onx': did you mean 'onnx'?" in fails(*wrong)
    Path("file").write_text("")
    said = fails("export", run, "--cluster", "0", "-o", "file/model")
    assert "cannot write the file file/model" in said
