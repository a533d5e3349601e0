"""CLoVE on a network: six nodes on loopback, over TLS, each known by its key."""

from __future__ import annotations

import signal
from pathlib import Path
from time import sleep

import pytest

from clove import load
from clove.deployment.guard import below
from clove.runs.folder import RunFolder
from tests.outward import asked_for, watched

from .stories import alive, command, listening, living, metrics, names, project, until

pytest.importorskip("flwr", reason="no Flower here: pip install 'clove-fl[flower]'")


@pytest.mark.slow
def test_simulated_nodes_leave_nothing_behind_listen_to_nobody_else_and_ask_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Flower's own command has it: it installs what a project says that it needs.
    monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "0")
    for name, value in watched(tmp_path).items():
        monkeypatch.setenv(name, value)
    fed, out, log = project(tmp_path / "fed"), tmp_path / "run", tmp_path / "run.log"
    settings, heard = ("--set", f"out={out}", "--set", "rounds=1"), set[str]()
    with command("flower", "run", str(fed), "--nodes", "6", *settings, log=log) as run:
        while run.poll() is None:
            heard |= listening(below(run.pid))
            sleep(0.5)
        assert run.wait() == 0, log.read_text()
    assert heard == {"127.0.0.1"}
    assert asked_for(tmp_path) == []
    assert "No additional application dependencies needed installation" in log.read_text()
    assert metrics(out)[0]["ari"] == 1.0
    assert len(list((out / "memories").iterdir())) == 6  # for a run that is resumed
    assert alive(tmp_path) == []


@pytest.mark.patient
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_simulation_that_is_stopped_takes_all_of_ray_with_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    fed, out, log = project(tmp_path / "fed"), tmp_path / "run", tmp_path / "run.log"
    settings = ("--set", f"out={out}", "--set", "rounds=50", "--set", "min-nodes=2")
    with command("flower", "run", str(fed), "--nodes", "2", *settings, log=log) as run:
        # Ray's agents have their own sessions and names: only whose children they are tells.
        until(lambda: any("Agent" in name for name in names(below(run.pid))), "Ray")
        every = below(run.pid)
        run.send_signal(how)
        assert run.wait() == (130 if how == signal.SIGINT else -how)
        until(lambda: living(every) == [], "their end")
    assert alive(tmp_path) == []


@pytest.mark.slow
def test_six_nodes_find_their_groups_and_leave_nothing_behind(tmp_path: Path) -> None:
    fed, net, out = project(tmp_path / "fed"), tmp_path / "net", tmp_path / "run"
    up_log, run_log = tmp_path / "up.log", tmp_path / "run.log"
    with command("flower", "up", str(net), "--nodes", "6", log=up_log) as up:
        until(lambda: "are up" in up_log.read_text() or up.poll() is not None, "the nodes")
        assert up.poll() is None, up_log.read_text()

        settings = ("--set", f"out={out}", "--set", "rounds=1")
        with command("flower", "run", str(fed), str(net), *settings, log=run_log) as run:
            assert run.wait() == 0, run_log.read_text()

        up.send_signal(signal.SIGTERM)
        assert up.wait() == 130
    assert alive(tmp_path) == []

    (first,) = metrics(out)
    assert first["ari"] == 1.0
    assert first["participants"] == 6
    assert load(out).ari == 1.0

    # Each client is the node of one key, which no other can be while the run goes on.
    bound = RunFolder(out).checkpoint()["memory"]["bound"]
    assert sorted(bound.values()) == list(range(6))
