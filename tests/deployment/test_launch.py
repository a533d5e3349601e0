"""What is said before anything is started: settings, projects and servers that are not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clove.cli import app
from clove.deployment import commands, launch
from clove.deployment.flwr import CONNECTION, called, write_connection
from clove.deployment.launch import find_server, run_app, simulated_nodes
from clove.deployment.project import new_project
from clove.errors import CloveError
from clove.folders import held


def test_a_setting_the_project_does_not_declare_is_refused(tmp_path: Path) -> None:
    new_project(tmp_path / "fed")
    with pytest.raises(CloveError, match=r"in \[tool.flwr.app.config\].*did you mean 'rounds'"):
        run_app(tmp_path / "fed", None, None, {"round": 3})


def test_it_is_said_what_to_add_so_that_a_setting_can_be_given(tmp_path: Path) -> None:
    new_project(tmp_path / "fed")
    with pytest.raises(CloveError, match=r"add `models = 3` under \[tool.flwr.app.config\]"):
        run_app(tmp_path / "fed", None, None, {"models": 3})
    file = tmp_path / "fed" / "pyproject.toml"
    file.write_text(file.read_text().partition("[tool.flwr.app.config]")[0])
    with pytest.raises(CloveError, match=r"there is no setting in .*add `models = 3` under"):
        run_app(tmp_path / "fed", None, None, {"models": 3})


def test_a_project_need_not_have_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_project(tmp_path / "fed")
    file = tmp_path / "fed" / "pyproject.toml"
    file.write_text(file.read_text().partition("[tool.flwr.app.config]")[0])
    asked: list[tuple[str, ...]] = []

    def flwr_json(*words: str, home: Path | None) -> dict[str, Any]:
        asked.append(words)
        return {"run-id": 7, "runs": [{"status": launch.COMPLETED, "status-details": ""}]}

    monkeypatch.setattr(launch, "flwr_json", flwr_json)
    monkeypatch.setattr(launch, "flower_command", lambda name: "true")
    run_app(tmp_path / "fed", None)
    assert asked[0] == ("run", str(tmp_path / "fed"))


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match=r"no pyproject.toml in .*is it a project of Flower"):
        run_app(tmp_path, None)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    with pytest.raises(CloveError, match=r"it has no \[tool.flwr.app\]. `clove flower new"):
        run_app(tmp_path, None)
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(CloveError, match="cannot be read: Expected"):
        run_app(tmp_path, None)


def test_a_server_is_found_by_its_folder_or_by_its_name(tmp_path: Path) -> None:
    write_connection(tmp_path / "net" / "home", "127.0.0.1:8000", tmp_path / "ca.crt")
    assert find_server(str(tmp_path / "net")) == (tmp_path / "net" / "home", CONNECTION)
    assert find_server("hospitals") == (None, "hospitals")


def test_what_a_command_says_when_it_fails_is_said_in_a_line() -> None:
    text = "╭─ Error ───╮\n│ no such   │\n│ thing     │\n╰───────────╯\n"
    with pytest.raises(CloveError, match=r"failed: no such thing$"):
        called("sh", "-c", f"printf '{text}' >&2; exit 3", home=None)


def test_where_flower_is_missing_it_is_said_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr(commands.sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CloveError, match=r"pip install 'clove-fl\[flower\]'"):
        commands.flower_command("flower-superlink")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["up", "net", "--nodes", "0"], "nodes must be 1 or more"),
        (["run", "fed", "--set", "rounds"], "--set takes KEY=VALUE"),
        (["run", "fed", "--set", "rounds=1", "--set", "rounds=2"], "rounds is given twice"),
        (["certs", "keys", "--nodes", "-1"], "nodes must be from 0 to 10,000"),
    ],
)
def test_commands_that_cannot_be_are_refused_in_a_line(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["flower", *words])
    assert done.exit_code == 1
    assert said in done.output


def test_a_federation_that_is_up_is_not_started_a_second_time(tmp_path: Path) -> None:
    (tmp_path / "trial.db").write_text("who is registered")
    with held(tmp_path):
        done = CliRunner().invoke(app, ["flower", "up", str(tmp_path)])
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert f"process {os.getpid()} on" in said
    assert "is writing to the federation in" in said
    assert [file.name for file in tmp_path.iterdir()] == ["trial.db"]


def test_nodes_to_simulate_must_be_some() -> None:
    with pytest.raises(CloveError, match="nodes must be 1 or more, not 0"):
        simulated_nodes(0)
