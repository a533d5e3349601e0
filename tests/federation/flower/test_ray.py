"""Flower's own simulation, on Ray: real processes, the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clove
from tests.deployment.stories import alive, until

from .runs import CLIENTS, simulate
from .test_equality import CASES

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from tests.federation.flower.runs import CLIENTS, COMMON, digits_app
import clove
from flwr.simulation import run_simulation

settings = {**COMMON, **json.loads(sys.argv[2])}
server = clove.flower.server(settings, out=sys.argv[1], min_nodes=CLIENTS)
resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
run_simulation(server, digits_app(), CLIENTS, backend_config=resources)
"""


def run_script(
    folder: Path, script: str = SCRIPT, **settings: Any
) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    return subprocess.run(
        [sys.executable, "-c", script, str(folder / "run"), json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": paths, "FLWR_HOME": str(folder / "flwr")},
        capture_output=True,
        text=True,
        timeout=300,
    )


def case(name: str) -> Any:
    """CLoVE by itself is told in every test run; all others, one after the other, take minutes."""
    return pytest.param(name, marks=() if name == "clove" else pytest.mark.patient)


@pytest.mark.parametrize("name", [case(name) for name in CASES])
def test_a_simulation_on_ray_is_the_run_of_the_sequential_engine(name: str, tmp_path: Path) -> None:
    settings = {"algorithm": "clove", **CASES[name]}
    done = run_script(tmp_path, **settings)
    assert done.returncode == 0, done.stderr[-3000:]
    ours = clove.load(tmp_path / "run")
    assert ours._story.records == simulate(**settings)._story.records
    until(lambda: alive(tmp_path) == [], "their end")  # Ray's actors take a moment


KILLED = """
import os
tell = clove.flower._tell
clove.flower._tell = lambda progress: os._exit(9) if progress.round == 2 else tell(progress)
run_simulation("""


@pytest.mark.patient  # what is not Ray's of it is tested in one process, in test_forgetting.py
def test_a_simulation_that_was_killed_finds_its_clients_memories(tmp_path: Path) -> None:
    settings = {"algorithm": "local", "rounds": 4}
    killed = run_script(tmp_path, SCRIPT.replace("run_simulation(", KILLED), **settings)
    assert killed.returncode == 9
    assert len(list((tmp_path / "run" / "memories").iterdir())) == CLIENTS
    done = run_script(tmp_path, **settings)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "has lost what it kept" not in done.stderr
    ours = clove.load(tmp_path / "run")
    assert ours._story.records == simulate(**settings)._story.records
    until(lambda: alive(tmp_path) == [], "their end")


def test_a_run_that_fails_is_a_failure_of_the_app(tmp_path: Path) -> None:
    done = run_script(tmp_path, algorithm="clov")
    assert done.returncode != 0
    assert "did you mean 'clove'" in done.stderr
