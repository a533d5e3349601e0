"""Making runs: nothing twice, nothing lost, one failure is one failure."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from clove.errors import CloveError
from clove.federation import Vectorized
from clove.paper import making
from clove.paper.choice import Choice, Stack
from clove.paper.experiment import Experiment
from clove.paper.results import Recorded, Results
from clove.paper.run import end_of, run_stacks, usual_workers
from clove.runs.folder import RunFolder
from tests.paper.made_up import SMALL, TINY

CHOICE = Choice(seeds=2, machine={"engine": "vectorized", "device": "cpu"})
TIMES = ["seconds", "date"]


class Quiet:
    """Counts what it is told; stops everything after so many rounds."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.rounds, self.expected, self.done = 0, 0, 0

    def begin(self, rounds: int, stacks: int) -> None:
        self.expected = rounds

    def rounds_done(self, rounds: int) -> None:
        self.rounds += rounds
        if self.stop_after is not None and self.rounds >= self.stop_after:
            raise KeyboardInterrupt

    def stack_done(self, stack: Stack, found: Sequence[Recorded]) -> None:
        self.done += 1

    def failed(self, stack: Stack, error: str) -> None:
        pass


def lasting(results: Results) -> pd.DataFrame:
    """Return runs without what depends on when and how fast they were made."""
    return results.runs.drop(columns=TIMES).sort_values(["key", "seed"]).reset_index(drop=True)


def make(folder: Path, experiment: Experiment, display: Quiet, **options: int) -> Results:
    kept = Results(folder / "results")
    stacks = CHOICE.stacks([experiment], folder / "runs")
    ended = run_stacks(stacks, kept, display, **options)
    assert (ended.failures, ended.left) == ([], [])
    return kept


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return make(tmp_path_factory.mktemp("unbroken"), TINY, Quiet())


def test_every_cell_has_its_runs_and_their_rounds(unbroken: Results) -> None:
    assert len(unbroken.runs) == 6
    assert len(unbroken.rounds) == 6 * 3
    assert set(unbroken.runs["rounds"]) == {3}
    assert set(unbroken.runs["settings"]) == {"paper"}
    assert unbroken.runs["accuracy"].between(0, 100).all()
    assert Results(unbroken.folder).runs.shape == unbroken.runs.shape


def test_runs_that_were_stopped_go_on_and_end_the_same(tmp_path: Path, unbroken: Results) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, TINY, Quiet(stop_after=3))
    begun = [path for path in (tmp_path / "runs").glob("*/seed-*") if RunFolder(path).is_run()]
    assert begun
    assert not any(RunFolder(path).finished for path in begun)
    display = Quiet()
    kept = make(tmp_path, TINY, display)
    pd.testing.assert_frame_equal(lasting(kept), lasting(unbroken))
    assert display.rounds == display.expected == 18


def test_finished_runs_are_not_made_again(tmp_path: Path, unbroken: Results) -> None:
    make(tmp_path, TINY, Quiet())
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    (tmp_path / "results" / "runs.csv").unlink()
    kept = make(tmp_path, TINY, Quiet())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")} == written
    pd.testing.assert_frame_equal(lasting(kept), lasting(unbroken))


def test_models_are_thrown_away_unless_they_are_wanted(tmp_path: Path) -> None:
    one = replace(TINY, runs=[{**SMALL, "algorithm": "fedavg"}], extras=[])
    make(tmp_path / "lean", one, Quiet())
    make(tmp_path / "all", one, Quiet(), keep_models=True)
    assert not list((tmp_path / "lean").rglob("*.safetensors"))
    assert list((tmp_path / "all").rglob("models/*.safetensors"))


def test_a_cell_that_fails_is_told_of_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOVE_DATA", str(tmp_path))
    bad = {**SMALL, "dataset": "femnist", "mixing": "none", "algorithm": "local"}
    one = replace(TINY, runs=[bad, {**SMALL, "algorithm": "fedavg"}], extras=[])
    kept, stacks = Results(tmp_path / "results"), CHOICE.stacks([one], tmp_path / "runs")
    [(failed, error)] = run_stacks(stacks, kept, Quiet()).failures
    assert failed.cell.dataset == "femnist"
    assert "femnist" in error
    assert (tmp_path / "runs" / failed.cell.key / "error.txt").read_text()
    assert kept.runs["algorithm"].tolist() == ["fedavg", "fedavg"]


class Late(Quiet):
    """Lets the time be up after so many rounds."""

    def __init__(self, clock: list[float], rounds: int) -> None:
        super().__init__()
        self.clock, self.enough = clock, rounds

    def rounds_done(self, rounds: int) -> None:
        super().rounds_done(rounds)
        self.clock[0] += 60.0 if self.rounds == self.enough else 0.0


def test_when_time_is_up_runs_stop_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: Results
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    kept = Results(tmp_path / "results")
    stacks = CHOICE.stacks([TINY], tmp_path / "runs")
    ended = run_stacks(stacks, kept, Late(clock, 8), until=end_of(0.9))
    assert (len(kept.runs), ended.failures) == (2, [])
    assert {stack.cell.key for stack in ended.left} == {stack.cell.key for stack in stacks[1:]}
    pd.testing.assert_frame_equal(lasting(make(tmp_path, TINY, Quiet())), lasting(unbroken))


def test_a_limit_of_minutes_is_a_time_and_not_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time", lambda: 100.0)
    assert end_of(0.5) == 130.0
    assert end_of(None, "auto") is None
    with pytest.raises(CloveError, match="more than 0, not -1"):
        end_of(-1)
    with pytest.raises(CloveError, match="not on a Ray cluster"):
        end_of(1, "auto")


def test_as_many_workers_share_a_gpu_as_its_memory_suffices_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert usual_workers("cpu") == 1
    monkeypatch.setattr("clove.paper.run.find_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    for gigabytes, expected in ((4, 1), (24, 3), (140, 6)):
        found = SimpleNamespace(total_memory=gigabytes * 10**9)
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda _, found=found: found)
        assert usual_workers("auto") == expected


def test_a_stack_gives_its_memory_back_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []

    def count(stack: Stack, *rest: object) -> None:
        left.append(sum(type(one) is Vectorized for one in gc.get_objects()))
        begin(stack, *rest)

    begin = making._make
    monkeypatch.setattr(making, "_make", count)
    make(tmp_path, TINY, Quiet())
    assert left == [0, 0, 0]
