"""The how-to's commands for several machines are those that the loopback runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clove.deployment import network as networks
from clove.deployment.certificates import Certificates
from clove.deployment.commands import QUICK, flower_environment
from clove.deployment.network import DATABASE, Network
from clove.extras import QUIET

HOW_TO = (Path(__file__).resolve().parents[2] / "docs" / "flower.md").read_text()


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the commands of a server and a node, without starting them."""
    found: dict[str, list[str]] = {}
    monkeypatch.setattr(networks, "flower_command", lambda name: name)
    net = Network(tmp_path, Certificates(tmp_path))
    monkeypatch.setattr(
        net.processes, "start", lambda _, command, __: found.update({command[0]: command})
    )
    monkeypatch.setattr(net.processes, "wait", lambda *_: None)
    net.start_server()
    net.start_node(0, {"partition-id": 0})
    return found


def written(program: str) -> str:
    """Return the how-to's command that starts a program."""
    found = re.search(rf"^{program} (?:.*\\\n)*.*$", HOW_TO, re.M)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("program", ["flower-superlink", "flower-supernode"])
def test_the_commands_have_the_same_options(program: str, started: dict[str, list[str]]) -> None:
    options = re.findall(r"--[a-z-]+", written(program))
    assert sorted(options) == sorted(w for w in started[program] if w.startswith("--"))


def test_a_node_is_told_the_same_things(started: dict[str, list[str]]) -> None:
    told = started["flower-supernode"][-1]
    assert set(re.findall(r"([a-z-]+)=", told)) == {"partition-id", "state-dir"}
    assert re.search(r"--node-config 'partition-id=0 state-dir=\"", written("flower-supernode"))


def test_the_environment_is_the_same() -> None:
    lines = re.findall(r"^export (.*)$", HOW_TO, re.M)
    said = dict(word.split("=") for line in lines for word in line.split())
    assert said == {**QUIET, **QUICK}


def test_what_the_user_has_set_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    assert flower_environment(None)["RAY_USAGE_STATS_ENABLED"] == "1"
    assert flower_environment(Path("here"))["FLWR_HOME"] == "here"
    assert flower_environment(None)["FLWR_TELEMETRY_ENABLED"] == "0"


def test_a_trial_begins_with_a_server_that_knows_nobody(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / f"{DATABASE}-wal").write_text("keys that are registered already")
    net = Network(tmp_path, Certificates(tmp_path))
    for step in ("start_server", "register", "start_node", "wait_for"):
        monkeypatch.setattr(net, step, lambda *_: None)
    net.start(2)
    assert list(tmp_path.glob(f"{DATABASE}*")) == []
