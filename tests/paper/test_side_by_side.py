"""Stacks made by several processes: one of them may die without the others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from clove.errors import TooLittleMemory
from clove.federation.budget import part_of_memory
from clove.paper.choice import Stack
from clove.paper.results import Results
from clove.paper.run import run_stacks
from clove.runs.settings import Settings
from tests.paper.made_up import TINY
from tests.paper.test_run import CHOICE, Quiet, lasting

pytestmark = pytest.mark.slow  # a process takes seconds to start


@dataclass(frozen=True)
class Deadly(Stack):
    """A stack that kills the process that begins it, or breaks its device, so many times."""

    times: int = 0
    breaks: bool = False

    def settings(self, seed: int) -> Settings:
        """Leave a mark and die, or be as any other stack."""
        marks = self.folder / "marks"
        marks.mkdir(exist_ok=True, parents=True)
        if len(list(marks.iterdir())) < self.times:
            (marks / str(os.getpid())).touch()
            if self.breaks:
                raise torch.AcceleratorError("CUDA error: unknown error")
            os._exit(1)
        return super().settings(seed)


def deadly(stack: Stack, times: int, folder: Path, breaks: bool = False) -> Stack:
    return Deadly(stack.cell, stack.reading, stack.seeds, folder, times, breaks)


def test_two_workers_give_what_one_gives(tmp_path: Path) -> None:
    made = []
    for workers in (1, 2):
        home, display = tmp_path / str(workers), Quiet()
        kept = Results(home / "results")
        ended = run_stacks(CHOICE.stacks([TINY], home / "runs"), kept, display, workers=workers)
        assert not ended.failures
        assert (display.done, display.rounds) == (3, 18)
        made.append(lasting(kept))
    assert made[0].equals(made[1])


def test_a_process_that_dies_takes_only_its_stack_with_it_which_is_tried_once_more(
    tmp_path: Path,
) -> None:
    kept, display = Results(tmp_path / "results"), Quiet()
    first, second, third = replace(CHOICE, seeds=1).stacks([TINY], tmp_path / "runs")
    once, always = deadly(first, 1, tmp_path / "once"), deadly(second, 99, tmp_path / "always")
    ended = run_stacks([once, always, third], kept, display, workers=2)
    [(failed, error)] = ended.failures
    assert failed is always
    assert "its process died" in error
    assert "the same command goes on" in error
    assert set(kept.runs["key"]) == {once.cell.key, third.cell.key}
    # Twice beside others, and once alone.
    assert len(list((tmp_path / "always" / "marks").iterdir())) == 3


def test_a_process_whose_device_fails_makes_way_for_another(tmp_path: Path) -> None:
    kept = Results(tmp_path / "results")
    [one, *_] = replace(CHOICE, seeds=1).stacks([TINY], tmp_path / "runs")
    broken = deadly(one, 1, tmp_path / "broken", breaks=True)
    ended = run_stacks([broken], kept, Quiet(), workers=2)
    assert not ended.failures
    assert set(kept.runs["key"]) == {one.cell.key}
    lasting_failure = deadly(one, 99, tmp_path / "lasting", breaks=True)
    ended = run_stacks([lasting_failure], Results(tmp_path / "none"), Quiet(), workers=2)
    [(_, error)] = ended.failures
    assert "its process died: torch.AcceleratorError: CUDA error: unknown error (see " in error


@dataclass(frozen=True)
class Telling(Stack):
    """A stack that notes how many threads its process has."""

    def settings(self, seed: int) -> Settings:
        """Leave a note."""
        (self.folder / f"{self.cell.key}.threads").write_text(str(torch.get_num_threads()))
        return super().settings(seed)


def test_processes_share_the_cores(tmp_path: Path) -> None:
    stacks = [
        Telling(one.cell, one.reading, one.seeds, tmp_path)
        for one in replace(CHOICE, seeds=1).stacks([TINY], tmp_path)
    ]
    run_stacks(stacks, Results(tmp_path / "results"), Quiet(), workers=3)
    told = {int(file.read_text()) for file in tmp_path.glob("*.threads")}
    assert told == {max((os.cpu_count() or 1) // 3, 1)}


@dataclass(frozen=True)
class Slow(Stack):
    """A stack that takes long before its first round."""

    def settings(self, seed: int) -> Settings:
        """Wait for longer than any test."""
        time.sleep(600)
        return super().settings(seed)


def test_what_does_not_stop_between_rounds_is_ended_when_time_is_up(tmp_path: Path) -> None:
    [one, *_] = replace(CHOICE, seeds=1).stacks([TINY], tmp_path)
    slow = Slow(one.cell, one.reading, one.seeds, tmp_path)
    ended = run_stacks([slow], Results(tmp_path), Quiet(), workers=2, until=time.time() + 10)
    assert (ended.failures, ended.left) == ([], [slow])


@dataclass(frozen=True)
class Hungry(Stack):
    """A stack that needs more memory than one of several processes may take."""

    enough: float = 1.0  # the part of all memory that it could do with
    error: type[Exception] = TooLittleMemory

    def settings(self, seed: int) -> Settings:
        """Leave a mark, and fail with too little memory."""
        marks = self.folder / "marks" / self.cell.key
        marks.mkdir(exist_ok=True, parents=True)
        (marks / str(len(list(marks.iterdir())))).touch()
        if part_of_memory() < self.enough:
            raise self.error("does not fit in memory")
        return super().settings(seed)

    @property
    def tries(self) -> int:
        """How often it was begun."""
        return len(list((self.folder / "marks" / self.cell.key).iterdir()))


def test_what_needs_more_than_its_share_of_memory_is_made_alone_at_the_end(tmp_path: Path) -> None:
    kept, display = Results(tmp_path / "results"), Quiet()
    first, second, third = replace(CHOICE, seeds=1).stacks([TINY], tmp_path / "runs")
    hungry = Hungry(first.cell, first.reading, first.seeds, first.folder)
    starving = Hungry(second.cell, second.reading, second.seeds, second.folder, enough=2)
    wrong = Hungry(third.cell, third.reading, third.seeds, third.folder, 2, ValueError)
    ended = run_stacks([hungry, starving, wrong], kept, display, workers=2)
    assert {stack.cell.key for stack, _ in ended.failures} == {starving.cell.key, wrong.cell.key}
    assert all("does not fit in memory" in error for _, error in ended.failures)
    assert not ended.left
    assert set(kept.runs["key"]) == {hungry.cell.key}
    assert (starving.tries, wrong.tries) == (2, 1)
    assert hungry.tries > 1
    assert display.rounds == hungry.rounds
    told = {path.parent.name for path in (tmp_path / "runs").glob("*/error.txt")}
    assert told == {starving.cell.key, wrong.cell.key}
