"""What is said before anything is started: settings, projects and servers that are not there."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest
from typer.testing import CliRunner

from clove.cli import app
from clove.deployment import commands, flwr, launch
from clove.deployment.flwr import CONNECTION, called, write_connection
from clove.deployment.launch import find_server, run_app, simulated_nodes
from clove.deployment.project import new_project
from clove.errors import CloveError
from clove.folders import held

FLWR = """#!/bin/sh
echo "$@" >> {folder}/asked
case $1 in
    run) {before}; echo '{{"success": true, "run-id": "7"}}' ;;
    log) {log} ;;
    stop) {stop} ;;
    list)
        status=$(head -n 1 {folder}/statuses)
        sed -i 1d {folder}/statuses
        [ "$status" = gone ] && exit 1
        [ "$status" = babble ] && echo 'Update {{ soon' && exit 0
        [ "$status" = silence ] && exit 0
        [ "$status" = forgotten ] && echo '{{"success": true, "runs": []}}' && exit 0
        echo '{{"success": true, "runs": [{{"status": "'$status'", "status-details": ""}}]}}' ;;
esac
"""


def pretend(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *statuses: str,
    before: str = ":",
    log: str = ":",
    stop: str = ":",
) -> Callable[[], list[str]]:
    """Put a command in Flower's place that says these of a run, and a project beside it.

    What is returned tells what it was asked. `before` is what it does before a run has a number,
    `log` and `stop` what it does when it is to show or to stop one.
    """
    new_project(folder / "fed")
    (folder / "statuses").write_text("\n".join([*statuses, ""]))
    (folder / "asked").touch()
    (folder / "flwr").write_text(FLWR.format(folder=folder, before=before, log=log, stop=stop))
    (folder / "flwr").chmod(0o755)
    for module in (launch, flwr):
        monkeypatch.setattr(module, "flower_command", lambda name: str(folder / "flwr"))
    monkeypatch.setattr(launch, "PAUSES", (0.0, 0.0))
    return lambda: (folder / "asked").read_text().splitlines()


def test_a_log_that_breaks_off_is_followed_again(tmp_path: Path, monkeypatch) -> None:
    asked = pretend(tmp_path, monkeypatch, "running", "gone", "finished:completed")
    run_app(tmp_path / "fed", None, "hospitals")
    log, status = "log 7 hospitals --stream", "list hospitals --run-id 7 --format json"
    assert asked()[1:] == [log, status] * 3


@pytest.mark.parametrize("said", ["babble", "silence", "forgotten"])
def test_what_flower_says_and_cannot_be_read_is_asked_again(
    said: str, tmp_path: Path, monkeypatch
) -> None:
    asked = pretend(tmp_path, monkeypatch, "running", said, "finished:completed")
    run_app(tmp_path / "fed", None, "hospitals")
    assert len(asked()) == 7
    again = tmp_path / "again"
    again.mkdir()
    pretend(again, monkeypatch, said, said, said)
    with pytest.raises(CloveError, match=r"the server is not there any more.* run 7"):
        run_app(again / "fed", None, "hospitals")


def test_a_number_of_a_run_that_cannot_be_read_is_said_in_words(
    tmp_path: Path, monkeypatch
) -> None:
    pretend(tmp_path, monkeypatch, before="echo 'no { number'; exit 0")
    said = r"`flwr run .*fed hospitals` printed what cannot be read as JSON: no \{ number"
    with pytest.raises(CloveError, match=said):
        run_app(tmp_path / "fed", None, "hospitals")


def test_where_its_number_cannot_be_read_it_is_said_how_to_stop_it(
    tmp_path: Path, monkeypatch
) -> None:
    asked = pretend(tmp_path, monkeypatch, before="sleep 3; echo 'no { number'; exit 0")
    said = "it may go on. Look for it with `flwr list hospitals`"
    with pytest.raises(CloveError, match=said), Interrupted(asked):
        run_app(tmp_path / "fed", None, "hospitals")


@pytest.mark.parametrize("where", [[], ["hospitals"]], ids=["simulated", "on a network"])
def test_a_command_that_is_interrupted_says_how_to_go_on(
    where: list[str], tmp_path: Path, monkeypatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    new_project(tmp_path / "fed")
    monkeypatch.setattr(launch, "run_app", interrupted)
    monkeypatch.setattr(launch, "find_server", lambda where: (None, where))
    monkeypatch.setattr(launch, "simulated", nullcontext)
    done = CliRunner().invoke(app, ["flower", "run", str(tmp_path / "fed"), *where])
    assert done.exit_code == 130
    assert done.output == "stopped. The same command goes on with the run.\n"


def test_of_a_run_that_goes_on_it_is_said_how_to_follow_and_stop_it(
    tmp_path: Path, monkeypatch
) -> None:
    asked = pretend(tmp_path, monkeypatch, "pending", "starting", "running")
    said = "run 7 .*goes on: follow it with `flwr log 7 hospitals`, stop it with `flwr stop 7 hosp"
    with pytest.raises(CloveError, match=said):
        run_app(tmp_path / "fed", None, "hospitals")
    assert not any(words.startswith("stop") for words in asked())


def test_of_a_server_that_died_it_is_said_how_to_go_on(tmp_path: Path, monkeypatch) -> None:
    pretend(tmp_path, monkeypatch, "gone", "gone", "gone")
    said = (
        r"server is not there any more.* start it again: the same command .*FLWR_HOME=\S* flwr log"
    )
    with pytest.raises(CloveError, match=said):
        run_app(tmp_path / "fed", tmp_path, "clove")


class Interrupted:
    """Ctrl-C, this long after a run began to be submitted."""

    def __init__(self, asked: Callable[[], list[str]]) -> None:
        self._thread = Thread(target=self._interrupt, args=(asked,))

    def __enter__(self) -> None:
        # Whoever starts the tests in the background may have told them to ignore it.
        self._before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._thread.join()
        signal.signal(signal.SIGINT, self._before)

    @staticmethod
    def _interrupt(asked: Callable[[], list[str]]) -> None:
        while not asked():
            sleep(0.01)
        sleep(0.5)  # until whoever started the command waits for it, on a busy machine, too
        os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_is_interrupted_before_it_has_a_number_is_stopped(
    tmp_path: Path, monkeypatch
) -> None:
    asked = pretend(tmp_path, monkeypatch, before="sleep 3")
    with pytest.raises(KeyboardInterrupt), Interrupted(asked):
        run_app(tmp_path / "fed", None, "hospitals")
    assert asked()[1:] == ["stop 7 hospitals"]


def test_where_it_cannot_be_stopped_it_is_said_how_to(tmp_path: Path, monkeypatch) -> None:
    asked = pretend(tmp_path, monkeypatch, before="exec sleep 60")
    monkeypatch.setattr(launch, "SECONDS_TO_SUBMIT", 0.1)
    said = (
        "it may go on. Look for it with `flwr list hospitals`, and stop it with `flwr stop RUN-ID"
    )
    with pytest.raises(CloveError, match=said), Interrupted(asked):
        run_app(tmp_path / "fed", None, "hospitals")


def test_a_run_that_cannot_be_stopped_is_not_left_without_a_word(
    tmp_path: Path, monkeypatch
) -> None:
    asked = pretend(tmp_path, monkeypatch, "running", log="sleep 5", stop="exit 1")
    said = "interrupted, but run 7 could not be stopped and may go on: .*`flwr stop 7 hospitals`"
    with pytest.raises(CloveError, match=said), Interrupted(lambda: asked()[1:]):
        run_app(tmp_path / "fed", None, "hospitals")


def test_a_second_interruption_while_a_run_is_stopped_is_not_silent_either(
    tmp_path: Path, monkeypatch
) -> None:
    asked = pretend(tmp_path, monkeypatch, "running", log="sleep 5", stop="sleep 5")
    with (
        pytest.raises(CloveError, match="run 7 could not be stopped and may go on"),
        Interrupted(lambda: asked()[1:]),
        Interrupted(lambda: asked()[2:]),
    ):
        run_app(tmp_path / "fed", None, "hospitals")


def test_a_run_that_is_interrupted_is_stopped(tmp_path: Path, monkeypatch) -> None:
    asked = pretend(tmp_path, monkeypatch, "running", log="sleep 5")
    with pytest.raises(KeyboardInterrupt), Interrupted(lambda: asked()[1:]):
        run_app(tmp_path / "fed", None, "hospitals")
    assert asked()[1:] == ["log 7 hospitals --stream", "stop 7 hospitals"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rounds", "abc", "rounds must be a number, as it is in .*, and 'abc' is a text"),
        ("wait", True, "wait must be a number, .* and True is true or false"),
        ("out", 3, "out must be a text, .* and 3 is a number"),
    ],
)
def test_a_setting_of_another_kind_is_refused_before_anything_starts(
    tmp_path: Path, name: str, value: Any, said: str
) -> None:
    new_project(tmp_path / "fed")
    with pytest.raises(CloveError, match=said):
        run_app(tmp_path / "fed", None, None, {name: value})


def test_a_project_is_no_place_for_a_network(tmp_path: Path) -> None:
    files = new_project(tmp_path / "fed")
    done = CliRunner().invoke(app, ["flower", "up", str(tmp_path / "fed")])
    assert done.exit_code == 1
    assert "is a project, all of which travels to the nodes" in " ".join(done.output.split())
    assert len(list((tmp_path / "fed").iterdir())) == len(files)


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
    asked = pretend(tmp_path, monkeypatch, "finished:completed")
    file = tmp_path / "fed" / "pyproject.toml"
    file.write_text(file.read_text().partition("[tool.flwr.app.config]")[0])
    run_app(tmp_path / "fed", None)
    assert asked()[0] == f"run {tmp_path / 'fed'} --format json"


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match=r"no pyproject.toml in .*is it a project of Flower"):
        run_app(tmp_path, None)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    with pytest.raises(CloveError, match=r"it has no \[tool.flwr.app\]. `clove flower new"):
        run_app(tmp_path, None)
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(CloveError, match="cannot be read: Expected"):
        run_app(tmp_path, None)


def test_a_server_is_found_by_its_folder_or_by_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "own"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        write_connection(tmp_path / "net" / "home", address, tmp_path / "ca.crt")
        assert find_server(str(tmp_path / "net")) == (tmp_path / "net" / "home", CONNECTION)
    with pytest.raises(CloveError, match=r"no server runs in .* start it with `clove flower up"):
        find_server(str(tmp_path / "net"))
    assert find_server("local") == (None, "local"), "Flower writes it there at first"
    own = tmp_path / "own" / "config.toml"
    own.parent.mkdir()
    own.write_text('[superlink]\ndefault = "hospitals"\n[superlink.hospitals]\naddress = "a:1"\n')
    assert find_server("hospitals") == (None, "hospitals")
    for where in ("hospital", "default", str(tmp_path)):
        with pytest.raises(CloveError, match=r"neither a folder of `clove flower up`.*nor a serv"):
            find_server(where)


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


def test_nodes_to_simulate_must_be_some_and_enough(tmp_path: Path) -> None:
    new_project(tmp_path / "fed")
    with pytest.raises(CloveError, match="nodes must be 1 or more, not 0"):
        simulated_nodes(0, tmp_path / "fed")
    with pytest.raises(CloveError, match="waits for min-nodes = 6: give `--nodes 6`, or `--set"):
        simulated_nodes(4, tmp_path / "fed")
    with pytest.raises(CloveError, match="waits for min-nodes = 8"):
        simulated_nodes(6, tmp_path / "fed", {"min-nodes": 8})
    assert simulated_nodes(6, tmp_path / "fed")["num-supernodes"] == 6
    assert simulated_nodes(4, tmp_path / "fed", {"min-nodes": 4})["num-supernodes"] == 4
