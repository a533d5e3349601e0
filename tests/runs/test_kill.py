"""The command itself, killed or interrupted at random moments, and resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import clove
from tests.runs.small import lasting

SETTINGS: dict[str, Any] = {
    "algorithm": "clove",
    "engine": "vectorized",
    "device": "cpu",
    "rounds": 40,
    "batch_size": 10,
    "participation": 0.6,
    "early_stopping": True,
    "stable_rounds": 12,
}
RUN = [
    *("run", "--algorithm", "clove", "--engine", "vectorized", "--device", "cpu"),
    *("--rounds", "40", "--set", "batch_size=10", "--set", "participation=0.6"),
    *("--set", "early_stopping=true", "--set", "stable_rounds=12"),
]
PATIENCE = 120.0


@contextmanager
def command(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start the command; it is not left running whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "clove.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Whoever runs the tests may have it ignored, and children would ignore it, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the command makes no progress"
        time.sleep(0.002)


def lines(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def kill(folder: Path, moments: random.Random, *words: str | Path) -> None:
    """Start the command and kill it a few rounds and some milliseconds later."""
    enough = lines(folder) + moments.randint(1, 8)
    with command(*words) as process:
        wait_for(lambda: lines(folder) >= enough, process)
        time.sleep(moments.uniform(0.0, 0.05))
        process.kill()
        assert process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    clove.run(**SETTINGS, out=folder)
    return lasting(folder)


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_as_if_undisturbed(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    folder, moments = tmp_path / "run", random.Random(0)
    with command(*RUN, "--out", folder) as process:
        wait_for((folder / "settings.toml").exists, process)
        process.kill()  # before its first round is done, or only just after
    for _ in range(3):
        kill(folder, moments, "resume", folder)
    assert not (folder / "summary.json").exists()
    with command("resume", folder, "--json", "--quiet") as process:
        out, _ = process.communicate(timeout=PATIENCE)
    assert lasting(folder) == undisturbed
    assert json.loads(out)["accuracy"] == undisturbed["summary"]["accuracy"]


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_to_resume_and_says_how(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    folder = tmp_path / "run"
    with command(*RUN, "--out", folder) as process:
        wait_for(lambda: lines(folder) > 2, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == f"stopped. Continue with: clove resume {folder}"
    assert not (folder / "summary.json").exists()
    clove.resume(folder)
    assert lasting(folder) == undisturbed
