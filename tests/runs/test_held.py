"""One process writes to a run's folder; others are told which, and may read."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import clove
from clove.cli import app
from clove.errors import CloveError, CloveWarning
from clove.folders import LOCK, held
from clove.runs.api import run_settings_together
from clove.runs.build import gather_clients
from clove.runs.settings import from_names
from tests.runs.small import TINY

HOLD = """
import sys
from pathlib import Path
from clove.folders import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold a folder in another process, as a run does that goes on there."""
    words = [sys.executable, "-c", HOLD, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def refused_by(process: subprocess.Popen[str], folder: Path) -> Any:
    words = rf"process {process.pid} on .* is writing to the run folder {folder}: wait .* or end it"
    return pytest.raises(CloveError, match=words)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Leave a run that was stopped after its first round."""

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clove.run(**TINY, out=tmp_path / "run", watch=stop)
    return tmp_path / "run"


def test_a_run_does_not_begin_where_another_is_going_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with elsewhere(folder) as other, refused_by(other, folder):
        clove.run(**TINY, out=folder)
    assert contents(folder) == {}


def test_a_run_that_goes_on_elsewhere_is_not_resumed(stopped: Path) -> None:
    before = contents(stopped)
    with elsewhere(stopped) as other, refused_by(other, stopped):
        clove.resume(stopped)
    assert contents(stopped) == before


def test_while_it_goes_on_it_is_the_runs_own_process_that_is_named(tmp_path: Path) -> None:
    def look(progress: Any) -> None:
        with pytest.raises(CloveError, match=rf"process {os.getpid()} on"):
            clove.resume(tmp_path / "run")

    clove.run(**TINY, out=tmp_path / "run", watch=look)


def test_who_only_reads_is_not_kept_out(stopped: Path) -> None:
    clove.resume(stopped)
    with elsewhere(stopped):
        assert len(clove.load(stopped).history) == TINY["rounds"]
        page = stopped.parent / "page.html"
        done = CliRunner().invoke(app, ["report", str(stopped), "--output", str(page)])
        assert done.exit_code == 0, done.output
        assert page.is_file()


def test_one_that_was_killed_is_no_obstacle(stopped: Path) -> None:
    with elsewhere(stopped) as other:
        other.kill()
        other.wait()
        assert (stopped / LOCK).is_file()
        assert len(clove.resume(stopped).history) == TINY["rounds"]
    assert not (stopped / LOCK).exists()


def test_one_that_was_killed_before_it_wrote_anything_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with elsewhere(folder) as other:
        other.kill()
        other.wait()
        clove.run(**TINY, out=folder)


def test_runs_made_as_one_stack_each_need_their_folder(tmp_path: Path) -> None:
    runs = [(from_names(**TINY, seed=seed), tmp_path / str(seed)) for seed in (0, 1)]
    stack = [(one, gather_clients(one), home, None) for one, home in runs]
    with elsewhere(tmp_path / "1") as other, refused_by(other, tmp_path / "1"):
        run_settings_together(stack)
    assert not (tmp_path / "0").exists()


def test_one_of_a_comparisons_runs_is_not_made_twice_at_a_time(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {"out": tmp_path / "all", **TINY}

    def look(algorithm: str, seed: int, run: Any) -> None:
        home = tmp_path / "all" / algorithm / f"seed-{seed}"
        with pytest.raises(CloveError, match=rf"is writing to the run folder {home}"):
            clove.resume(home)
        with pytest.raises(CloveError, match=r"is writing to the comparison"):
            clove.compare(["fedavg"], **wanted)

    clove.compare(["fedavg"], watch=look, **wanted)


def test_a_run_in_memory_is_not_saved_where_another_is_going_on(tmp_path: Path) -> None:
    result = clove.run(**TINY)
    with elsewhere(tmp_path / "run") as other, refused_by(other, tmp_path / "run"):
        result.save(tmp_path / "run")
    result.save(tmp_path / "run")


def test_a_folder_that_nothing_came_of_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with held(tmp_path / name):
            assert (tmp_path / name / LOCK).is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list((tmp_path / "mine").iterdir()) == []


def test_where_a_disk_knows_no_locks_it_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(CloveWarning, match="knows no locks: see to it"):
        clove.run(**TINY, out=tmp_path / "run")
    assert (tmp_path / "run" / "summary.json").is_file()


def test_folders_made_on_the_way_go_again_where_nothing_was_written(tmp_path: Path) -> None:
    with held(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with held(tmp_path / "a" / "b"):
        (tmp_path / "a" / "kept").touch()
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["kept"]
