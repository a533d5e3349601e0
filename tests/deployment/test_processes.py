"""Processes that are started together end together, whatever they do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clove.deployment.processes import Processes, marked
from clove.errors import CloveError

from .stories import until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""
linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def python(processes: Processes, name: str, code: str) -> None:
    processes.start(name, [sys.executable, "-c", code], os.environ)


@linux
def test_what_a_child_has_started_ends_with_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("clove.deployment.processes.SECONDS_TO_END", 1.0)
    with Processes(tmp_path) as processes:
        python(processes, "parent", PARENT)
        python(processes, "stubborn", STUBBORN)
        processes.wait(lambda: "ready" in processes.log("parent"), "it was ready")
        assert len(marked(processes.mark)) == 3
    assert marked(processes.mark) == []


def test_who_ends_too_early_is_quoted(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        python(processes, "brief", "import time; time.sleep(0.3); print('no such port')")
        with pytest.raises(CloveError, match=r"brief ended before it was up. It said:\nno such"):
            processes.wait(lambda: False, "it was up")


def test_waiting_has_an_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("clove.deployment.processes.SECONDS_TO_START", 0.2)
    with Processes(tmp_path) as processes:
        python(processes, "slow", "import time; time.sleep(600)")
        with pytest.raises(CloveError, match="until it was up: see"):
            processes.wait(lambda: False, "it was up")


def test_one_that_should_stay_and_ends_is_an_error(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        python(processes, "brief", "raise SystemExit('out of memory')")
        with pytest.raises(CloveError, match=r"brief ended by itself \(1\)"):
            processes.outlast("brief")


@linux
def test_a_parent_that_is_terminated_takes_all_with_it(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from clove.deployment.processes import Processes, end_on_termination
with end_on_termination(), Processes(Path({str(tmp_path)!r})) as processes:
    processes.start("child", [sys.executable, "-c", {PARENT!r}], os.environ)
    processes.wait(lambda: "ready" in processes.log("child"), "it was ready")
    print(processes.mark, flush=True)
    processes.outlast("child")
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    mark = parent.stdout.readline().strip()
    assert len(marked(mark)) == 2
    parent.terminate()
    assert parent.wait() != 0
    until(lambda: marked(mark) == [], "their end")
