"""Making the runs of experiments: one after another, side by side, or spread over a cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from clove.errors import CloveError
from clove.federation.engines import find_device
from clove.paper.choice import Stack
from clove.paper.making import Made, Tell, in_a_line, keep, make
from clove.paper.pace import Pace, Queue
from clove.paper.results import Recorded, Results
from clove.paper.side_by_side import side_by_side
from clove.runs.build import gather_clients
from clove.runs.cluster import joined
from clove.runs.folder import RunFolder
from clove.runs.spread import Run, spread

MOST_WORKERS = 6  # that share a GPU where nobody says how many
LEAST_MEMORY = 8 * 10**9  # bytes of a GPU for each of them


class Display(Protocol):
    """What shows how far the runs have come."""

    def begin(self, rounds: int, stacks: int) -> None:
        """Take note of how much there is to do."""

    def rounds_done(self, rounds: int) -> None:
        """Take note of rounds."""

    def stack_done(self, stack: Stack, found: Sequence[Recorded]) -> None:
        """Take note of runs that are finished."""

    def failed(self, stack: Stack, error: str) -> None:
        """Take note of runs that failed."""


@dataclass(frozen=True)
class Ended:
    """What did not get done: stacks that failed, each with the reason, and those without time."""

    failures: list[tuple[Stack, str]] = field(default_factory=list)
    left: list[Stack] = field(default_factory=list)


def run_stacks(
    stacks: Sequence[Stack],
    results: Results,
    display: Display,
    *,
    workers: int = 1,
    ray: str | None = None,
    keep_models: bool = False,
    until: float | None = None,
) -> Ended:
    """Make all runs that are not there yet, and return what did not get done.

    Several workers are as many processes, each with a stack of its own; with `ray` the stacks are
    spread over a cluster. Results are written whenever a stack is finished. After a time (see
    `end_of`) nothing goes on, and no stack is begun that would not be done by then.
    """
    failures: list[tuple[Stack, str]] = []
    display.begin(sum(one.rounds for one in stacks), len(stacks))
    queue = Queue([]) if ray is not None else _queue(stacks, results, workers, until)
    if ray is not None:
        outcomes = _on_ray(stacks, display.rounds_done, ray, keep_models)
    elif workers == 1 and not _on_gpu(stacks):  # which may fail, and takes its process with it
        outcomes = _one_by_one(queue, display.rounds_done, keep_models)
    else:
        outcomes = side_by_side(queue, display.rounds_done, workers, keep_models)
    for stack, made in outcomes:
        if made.error is not None:
            failures.append((stack, made.error))
            display.failed(stack, made.error)
        elif made.kept is not None:
            results.add(made.kept)
            display.stack_done(stack, made.kept)
    return Ended(failures, queue.left)


def end_of(minutes: float | None, ray: str | None = None) -> float | None:
    """Return the time until which runs may go on that have so many minutes from now."""
    if minutes is None:
        return None
    if not minutes > 0:
        raise CloveError(f"minutes must be more than 0, not {minutes:g}")
    if ray is not None:
        raise CloveError("a limit of minutes holds on this machine, not on a Ray cluster")
    return time.time() + 60 * minutes


def usual_workers(device: str) -> int:
    """Return how many processes pay: on a GPU several, since small rounds leave it waiting."""
    found = find_device(device)
    if found.type != "cuda":
        return 1
    fits = int(torch.cuda.get_device_properties(found).total_memory // LEAST_MEMORY)
    return max(min(MOST_WORKERS, os.cpu_count() or 1, fits), 1)


def _queue(stacks: Sequence[Stack], results: Results, workers: int, until: float | None) -> Queue:
    """Return the queue of stacks, with a pace where their order or a limit depends on it."""
    if not stacks or (workers == 1 and until is None):
        return Queue(stacks)
    device = find_device(str(stacks[0].cell.settings.get("device", "auto")))
    return Queue(stacks, Pace.here(device, results), longest_first=workers > 1, until=until)


def _on_gpu(stacks: Sequence[Stack]) -> bool:
    return any(
        find_device(str(one.cell.settings.get("device", "auto"))).type == "cuda" for one in stacks
    )


def _one_by_one(queue: Queue, tell: Tell, keep_models: bool) -> Iterator[tuple[Stack, Made]]:
    while (stack := queue.take()) is not None:
        rounds: list[int] = []

        def told(some: int, rounds: list[int] = rounds) -> None:
            rounds.append(some)
            tell(some)

        made = make(stack, told, keep_models, queue.until)
        if made.error is not None:
            tell(-sum(rounds))  # of all its rounds the display takes note when it fails
        queue.note(stack, made)
        yield stack, made


# ----------------------------------------------------------------------------------- on a cluster


def _on_ray(
    stacks: Sequence[Stack], tell: Tell, address: str, keep_models: bool
) -> Iterator[tuple[Stack, Made]]:
    """Spread stacks over a Ray cluster, and yield each when the last of its runs is finished."""
    whose: dict[Path, Stack] = {}
    left = {id(stack): 0 for stack in stacks}
    loads: list[list[Run]] = []
    for stack in stacks:
        new = []
        for seed in stack.seeds:
            folder, settings = RunFolder(stack.home(seed)), stack.settings(seed)
            if folder.finished:
                tell(settings.rounds)
                continue
            whose[folder.path] = stack
            left[id(stack)] += 1
            run = Run(settings, gather_clients(settings), folder.path, lambda _: tell(1))
            if folder.is_run():
                loads.append([run])
            else:
                new.append(run)
        loads += [new] if new else []
    yield from ((one, Made(keep(one, keep_models))) for one in stacks if not left[id(one)])
    failed: list[tuple[Stack, Made]] = []

    def note(runs: Sequence[Run], error: CloveError) -> None:
        stack = whose[runs[0].home]
        failed.append((stack, Made(error=in_a_line(stack, error))))

    with ExitStack() as held:
        cluster = held.enter_context(joined(address))
        for run in held.enter_context(closing(spread(loads, cluster, note))):
            stack = whose[run.home]
            left[id(stack)] -= 1
            if not left[id(stack)]:
                yield stack, Made(keep(stack, keep_models))
    yield from failed
