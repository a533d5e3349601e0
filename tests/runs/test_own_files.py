"""One's own clients in files, networks and losses by name: in Python and on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import clove
from clove.cli import app
from clove.errors import CloveError
from clove.report import figures
from clove.runs.settings import read_settings
from tests.runs.small import QUICK, lasting, own_clients
from tests.runs.test_repeat import numbers
from tests.runs.test_resume import stopped

KNOWN: dict[str, Any] = {**QUICK, "models": 2}
WORDS = [
    *("--engine", "vectorized", "--device", "cpu", "--rounds", "3"),
    *("--set", "batch_size=10", "--set", "models=2", "--quiet"),
]
MODULE = "own_networks"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own, and draw nothing."""
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(here: Path) -> Path:
    """Write a file for each client, with test data."""
    (here / "wards").mkdir()
    for index, client in enumerate(own_clients()):
        assert client.test is not None
        (x, y), (x_test, y_test) = client.train, client.test
        np.savez(here / "wards" / f"{index}.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    return here / "wards"


@pytest.fixture
def table(here: Path) -> Path:
    """Write one table of all clients, with words for labels and no test data."""
    frames = []
    for index, client in enumerate(own_clients()):
        x, y = client.train
        frame = pd.DataFrame(x, columns=["a", "b", "c", "d"])
        frames.append(frame.assign(ward=index, state=np.array(["ill", "well"])[y]))
    pd.concat(frames).to_csv(here / "all.csv", index=False)
    return here / "all.csv"


@pytest.fixture
def module(here: Path) -> Iterator[str]:
    """Write a module of one's own into the working directory."""
    (here / f"{MODULE}.py").write_text(
        """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))

def tenfold(outputs, targets):
    return 10 * nn.functional.cross_entropy(outputs, targets, reduction="none")
"""
    )
    yield MODULE
    sys.modules.pop(MODULE, None)


def command(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def works(*words: str | Path) -> dict[str, Any]:
    outcome = command(*words, "--json")
    assert outcome.exit_code == 0, outcome.output
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def fails(*words: str | Path) -> str:
    outcome = command(*words)
    assert outcome.exit_code == 1, outcome.output
    return str(outcome.stderr)


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("kind", [str, Path])
def test_clients_in_a_folder_are_those_of_its_files(folder: Path, kind: type) -> None:
    from_files = clove.run(clients=kind(folder), **KNOWN)
    handed_over = clove.run(clients=own_clients(), **KNOWN)
    assert from_files.history["test_loss"].tolist() == handed_over.history["test_loss"].tolist()
    assert from_files.settings.clients == str(folder)


@pytest.mark.parametrize("source", ["folder", "table"])
def test_the_settings_file_repeats_the_run_to_the_byte(
    here: Path, source: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(source).relative_to(here)
    columns = ("--set", "client_column=ward", "--set", "label_column=state")
    words = columns if source == "table" else ()
    works("run", "--clients", path, *WORDS, *words, "--out", "first")
    works("run", "first/settings.toml", "--quiet", "--out", "second")
    clove.run(**read_settings(Path("first/settings.toml")), out="third")
    for again in (here / "second", here / "third"):
        assert read_settings(again / "settings.toml") == read_settings(Path("first/settings.toml"))
        assert numbers(again) == numbers(here / "first")


def test_a_table_names_its_columns_on_the_command_line(table: Path) -> None:
    found = works(
        *("run", "--clients", table, *WORDS),
        *("--set", "client_column=ward", "--set", "label_column=state"),
    )
    assert (found["clients"], found["dataset"]) == (6, "own-clients")
    assert found["accuracy"] is not None
    assert "has no column 'client'" in fails("run", "--clients", table, *WORDS)


def test_a_stopped_run_goes_on_from_its_folder_alone(here: Path, folder: Path) -> None:
    clove.run(clients=folder, **KNOWN, out="whole")
    stopped(here / "part", clients=folder, **KNOWN)
    works("resume", "part", "--quiet")
    assert lasting(here / "part") == lasting(here / "whole")


def test_a_stopped_run_notices_files_that_changed(here: Path, folder: Path) -> None:
    stopped(here / "part", clients=folder, **KNOWN)
    (folder / "5.npz").unlink()
    (folder / "4.npz").rename(folder / "6.npz")
    np.savez(folder / "4.npz", **np.load(folder / "3.npz"))
    assert "the clients' data differ" in fails("resume", "part", "--quiet")


def test_a_loaded_run_places_a_newcomer_without_files(here: Path, folder: Path) -> None:
    clove.run(clients=folder, **{**KNOWN, "learning_rate": 0.03, "rounds": 8}, out="run")
    for file in folder.iterdir():
        file.unlink()
    loaded = clove.load("run")
    assert loaded.assign(*own_clients(seed=1)[0].train).model == loaded.assignment[0]


def test_clients_in_files_can_be_compared_and_the_comparison_resumed(folder: Path) -> None:
    found = works("compare", "--algorithms", "clove,fedavg", "--clients", folder, *WORDS)
    assert Path(found["folder"]) == Path("runs", "compare-own-clients")
    assert [run["algorithm"] for run in found["runs"]] == ["clove", "fedavg"]
    assert works("resume", found["folder"], "--quiet")["runs"] == found["runs"]


def test_clients_and_a_data_set_are_not_given_together(folder: Path) -> None:
    for other in (("--dataset", "digits"), ("--mixing", "label-skew-1")):
        said = fails("run", "--clients", folder, *other, *WORDS)
        assert "either your own clients or a dataset with a mixing, not both" in said
        assert "`clusters` and `clients_per_cluster`" in said


def test_clients_without_test_data_are_noted(here: Path, folder: Path, table: Path) -> None:
    columns = ("--set", "client_column=ward", "--set", "label_column=state")
    note = "6 clients had no test data: a fifth of their training data was held out"
    outcome = command("run", "--clients", table, *WORDS, *columns, "--out", "run")
    assert f"note: {note}" in outcome.output
    assert clove.load("run").summary()["remark"] == note
    assert "note: " not in command("run", "--clients", folder, *WORDS).output


def test_what_is_wrong_with_a_file_is_said_in_a_line(folder: Path) -> None:
    np.savez(folder / "3.npz", x=np.full((4, 4), np.nan), y=[0, 1, 0, 1])
    assert "error: client 3: training x holds NaN" in fails("run", "--clients", folder, *WORDS)
    np.savez(folder / "3.npz", x=np.zeros((4, 4), np.float32), y=[0, 1, -1, 1])
    assert "see client 3 (3)" in fails("run", "--clients", folder, *WORDS)


def test_there_must_be_clients_at_the_path(here: Path) -> None:
    with pytest.raises(CloveError, match="no folder or table of clients at nowhere"):
        clove.run(clients="nowhere", **KNOWN)


# ---------------------------------------------------------------------------- networks and losses


def test_a_network_and_a_loss_go_by_name(here: Path, folder: Path, module: str) -> None:
    own = ("--set", f"model={module}:Net", "--set", f"loss={module}:tenfold")
    found = works("run", "--clients", folder, *WORDS, *own, "--out", "first")
    plain = works("run", "--clients", folder, *WORDS, *own[:2])
    assert found["history"][0]["test_loss"] > 5 * plain["history"][0]["test_loss"]
    works("run", "first/settings.toml", "--quiet", "--out", "second")
    assert numbers(here / "second") == numbers(here / "first")
    loaded = clove.load("first")
    assert type(loaded.model(0)).__name__ == "Net"
    x, y = own_clients()[0].train
    placed = loaded.assign(x, y).distances
    np.testing.assert_allclose(placed, clove.load("second").assign(x, y).distances)


def test_a_loaded_run_keeps_its_loss(folder: Path, module: str) -> None:
    own = {"model": f"{module}:Net", "loss": f"{module}:tenfold"}
    made = clove.run(clients=folder, **KNOWN, **own, out="run")
    x, y = own_clients()[0].train
    np.testing.assert_allclose(
        clove.load("run").assign(x, y).distances, made.assign(x, y).distances
    )


def test_a_data_set_may_be_learned_by_a_network_of_that_name(here: Path) -> None:
    (here / "digit_networks.py").write_text(
        "from torch import nn\n"
        "def flat(inputs, outputs):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(inputs[-1] * inputs[-2], outputs))\n"
    )
    made = clove.run(**QUICK, model="digit_networks:flat", algorithm="fedavg")
    assert made.settings.model == "digit_networks:flat"
    assert made.model(0)[1].out_features == 10
    sys.modules.pop("digit_networks")


@pytest.mark.parametrize("setting", ["model", "loss"])
def test_a_name_that_leads_nowhere_is_said_in_a_line(folder: Path, setting: str) -> None:
    said = fails("run", "--clients", folder, *WORDS, "--set", f"{setting}=no_such:thing")
    assert "error: 'no_such:thing' cannot be imported" in said
