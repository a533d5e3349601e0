"""A peer that fails leaves the reason why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1, in <module>\n    boom()\n"
# As torch.distributed.run ends where its processes failed.
LAUNCHER = (
    "E1118 12:00:00 api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 12) of binary: python\n"
    f"{TRACEBACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "============================\nrun_pfl.py FAILED\n----------------------------\nFailures:\n"
    "  traceback : {}\n============================\n"
)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import peers

    yield peers
    for name in ("peers", "loop", "works", "origin"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (f"{TRACEBACK}ValueError: too few users\n", "ValueError: too few users"),
        (
            "".join(f"[rank0]: {line}\n" for line in TRACEBACK.splitlines())
            + "[rank0]: ModuleNotFoundError: No module named 'pfl'\n"
            + LAUNCHER.format("to enable it see the documentation"),
            "ModuleNotFoundError: No module named 'pfl'",
        ),
        (
            LAUNCHER.format("Signal 9 (SIGKILL) received by PID 12"),
            "traceback : Signal 9 (SIGKILL) received by PID 12",
        ),
        ("usage: x\nx: error: no such option\n=====\n", "x: error: no such option"),
        ("", ""),
    ],
)
def test_the_reason_of_a_failure_is_kept(peers, said: str, reason: str) -> None:
    assert peers.reason(said) == reason


def test_a_program_that_fails_in_its_processes_is_told_by_its_own_words(
    peers, tmp_path: Path
) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('no users here')\n")
    with pytest.raises(peers.PeerFailed, match="ValueError: no users here"):
        peers.run_to_its_end([sys.executable, str(tmp_path / "fails.py")], 1)
    with pytest.raises(peers.PeerFailed, match="status 3"):
        peers.run_to_its_end([sys.executable, "-c", "raise SystemExit(3)"], 1)
