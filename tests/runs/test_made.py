"""What a run's folder says of how it was made: the command, and whose data they were."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clove
from clove.runs.build import Clients
from clove.runs.made import MOST_LABELS, data_text
from clove.runs.settings import command, from_names, read_settings
from clove.terminal import given_once
from tests.runs.small import own_clients

TASK = clove.classification("mlp")


def known(clients: list[clove.ClientData]) -> dict[str, Any]:
    text = data_text(Clients(clients, None, TASK, "mlp", outputs=2, remark="few points"))
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_folder_knows_sizes_and_labels_of_its_clients(run_folder: Path) -> None:
    found = json.loads((run_folder / "data.json").read_text())
    assert len(found["points"]) == len(found["labels"]) == 25
    assert [sum(counts) for counts in found["labels"]] == found["points"]


def test_names_of_clients_are_kept() -> None:
    clients = [clove.ClientData(train=([[0.0]], [0]), name=name) for name in ("a", "b")]
    assert known(clients) == {
        "names": ["a", "b"],
        "points": [1, 1],
        "labels": [[1], [1]],
        "remark": "few points",
    }


@pytest.mark.parametrize(
    "labels", [None, np.array([0.5, 1.5]), np.array([0, MOST_LABELS]), np.array([-1, 1])]
)
def test_labels_that_are_no_classes_are_not_counted(labels: np.ndarray | None) -> None:
    assert known([clove.ClientData(train=(np.zeros((2, 1)), labels))])["labels"] is None


def test_nothing_is_known_of_clients_that_are_elsewhere() -> None:
    assert data_text(Clients([], None, TASK, "mlp", outputs=2)) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "fedavg"},
        {"algorithm": "clove", "max_models": 8, "early_stopping": True, "probes": "trained"},
        {"mixing": "feature-skew", "learning_rate": 1e-2, "batch_size": 20, "seed": 3},
        {"clients": "my folder/clients", "label_column": "7", "task": "regression"},
    ],
)
def test_the_command_has_all_that_is_not_as_by_default(settings: dict[str, Any]) -> None:
    chosen = from_names(**settings)
    text = command(chosen)
    assert text is not None
    words = shlex.split(text)
    assert words[:2] == ["clove", "run"]
    pairs = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    options = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(words[2::2], words[3::2], strict=True)
        if name != "--set"
    }
    options = {**options, "rounds": int(options["rounds"]), "seed": int(options["seed"])}
    assert from_names(**given_once(pairs, options)) == chosen


def test_the_folder_holds_the_command_but_it_is_no_setting(run_folder: Path) -> None:
    assert 'command = "clove run --dataset digits' in (run_folder / "settings.toml").read_text()
    assert "command" not in read_settings(run_folder / "settings.toml")


def test_no_command_makes_a_run_of_what_was_handed_over_in_python(tmp_path: Path) -> None:
    result = clove.run(clients=own_clients(), algorithm="fedavg", rounds=1, out=tmp_path / "run")
    assert command(result.settings) is None


def test_a_result_shows_itself_in_a_notebook(finished: clove.Result) -> None:
    shown = finished._repr_html_()
    assert f"{100 * (finished.accuracy or 0):.1f}" in shown
    assert 'src="data:image/png;base64,' in shown
    assert "<script" not in shown
