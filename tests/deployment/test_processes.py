"""Processes that are started together end together, whatever they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clove.deployment.guard import below
from clove.deployment.processes import Processes
from clove.errors import CloveError

from .stories import living, until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PARENT_STARTS = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
"""
PARENT = f"""{PARENT_STARTS}
print("ready", flush=True)
time.sleep(600)
"""
LEAVING = f"""{PARENT_STARTS}
import os
os._exit(0)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="a guard of all is had by Linux only")


def python(processes: Processes, name: str, code: str) -> None:
    processes.start(name, [sys.executable, "-c", code], os.environ)


@linux
def test_what_a_child_has_started_ends_with_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("clove.deployment.processes.SECONDS_TO_END", 1.0)
    with Processes(tmp_path) as processes:
        python(processes, "parent", PARENT)
        python(processes, "stubborn", STUBBORN)
        processes.wait(lambda: "ready" in processes.log("parent"), "it was ready")
        guards = [processes[name].pid for name in ("parent", "stubborn")]
        started = [len(below(one)) for one in guards]
        every = {*guards, *below(guards[0]), *below(guards[1])}
    assert started == [2, 1]
    assert living(every) == []


@linux
def test_who_has_lost_its_parent_and_its_name_ends_too(tmp_path: Path) -> None:
    """As Ray's agents do: in a session of their own, under another name, with nobody above them."""
    forgotten = f"""
import os, subprocess, sys, time
first = subprocess.Popen([sys.executable, "-c", {LEAVING!r}], start_new_session=True, env={{}})
first.wait()
print("ready", flush=True)
time.sleep(600)
"""
    with Processes(tmp_path) as processes:
        python(processes, "parent", forgotten)
        processes.wait(lambda: "ready" in processes.log("parent"), "it was ready")
        every = below(processes["parent"].pid)
        processes["parent"].terminate()
        processes["parent"].wait()
        assert len(every) == 2
        assert living(every) == []


@linux
def test_what_one_that_ends_by_itself_leaves_behind_ends(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        python(processes, "brief", f"{PARENT_STARTS}\nprint(child.pid, flush=True)")
        assert processes["brief"].wait() == 0
        assert living([int(processes.log("brief"))]) == []


def test_its_code_is_that_of_the_command(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        python(processes, "refusing", "raise SystemExit(3)")
        python(processes, "killed", "import os; os.kill(os.getpid(), 9)")
        assert [processes[name].wait() for name in ("refusing", "killed")] == [3, 137]


def test_it_reads_nothing_and_is_interrupted_as_any_other(tmp_path: Path) -> None:
    code = "import signal, sys; print(sys.stdin.read() == '', signal.getsignal(signal.SIGINT))"
    with Processes(tmp_path) as processes:
        python(processes, "curious", code)
        assert processes["curious"].wait() == 0
        assert processes.log("curious").startswith("True <built-in function default_int_handler")


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
            processes.outlast("brief", print)


def test_one_of_the_others_that_ends_is_told_and_the_rest_stays(tmp_path: Path) -> None:
    told: list[str] = []
    with Processes(tmp_path) as processes:
        python(processes, "server", "import time; time.sleep(3); raise SystemExit(1)")
        python(processes, "done", "pass")
        python(processes, "node", "raise SystemExit(2)")
        with pytest.raises(CloveError, match="server ended by itself"):
            processes.outlast("server", told.append)
    assert told == [f"node ended by itself (2): see {tmp_path / 'node.log'}"]


@linux
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_parent_that_is_ended_takes_all_with_it(tmp_path: Path, how: signal.Signals) -> None:
    code = f"""
import os, sys
from pathlib import Path
from clove.deployment import processes
processes.SECONDS_TO_END = 1.0
with processes.end_on_termination(), processes.Processes(Path({str(tmp_path)!r})) as started:
    started.start("child", [sys.executable, "-c", {PARENT!r}], os.environ)
    started.wait(lambda: "ready" in started.log("child"), "it was ready")
    print("ready", flush=True)
    started.outlast("child", print)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        every = below(parent.pid)
        assert len(every) == 3  # the guard, the child, and what that has started
        parent.send_signal(how)
        assert parent.wait() != 0
    until(lambda: living(every) == [], "their end")
