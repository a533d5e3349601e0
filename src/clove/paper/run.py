"""Making the runs of experiments: seeds as one stack, cells side by side, nothing done twice.

Every run has a folder like any other, so that one that was stopped goes on where it was; what is
kept of a finished run is its lines in the tables of results.
"""

from __future__ import annotations

import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from clove.errors import CloveError
from clove.folders import CHECKPOINT, plain_errors, write_atomically
from clove.paper.experiment import Cell, Experiment, rules, selected
from clove.paper.heat_maps import heat_map
from clove.paper.results import Recorded, Results, record
from clove.runs.api import go_on, run_settings_together
from clove.runs.build import gather_clients
from clove.runs.cluster import joined
from clove.runs.folder import RunFolder
from clove.runs.settings import Settings, from_names
from clove.runs.spread import Run, spread

ERRORS = "error.txt"


@dataclass(frozen=True)
class Stack:
    """A cell's runs that are to be made: one for each of these seeds."""

    cell: Cell
    reading: str
    seeds: tuple[int, ...]
    folder: Path

    def home(self, seed: int) -> Path:
        """Return the folder of a run."""
        return self.folder / self.cell.key / f"seed-{seed}"

    def settings(self, seed: int) -> Settings:
        """Return the settings of a run."""
        return from_names(**{**self.cell.settings, "seed": seed})

    @property
    def rounds(self) -> int:
        """How many rounds there are to do in all its runs."""
        return int(self.cell.settings["rounds"]) * len(self.seeds)

    def __str__(self) -> str:
        cell = self.cell
        return f"{cell.dataset}, {cell.mixing}: {cell.label} ({self.reading})"


@dataclass(frozen=True)
class Choice:
    """What is asked for: of which experiments, and with which settings."""

    reading: str = "paper"
    seeds: int = 3
    rounds: int | None = None
    datasets: Sequence[str] = ()
    mixings: Sequence[str] = ()
    algorithms: Sequence[str] = ()
    extras: bool = True
    machine: dict[str, Any] = field(default_factory=dict)  # device, precision, ...

    def cells(self, experiments: Sequence[Experiment]) -> list[Cell]:
        """Return the cells asked for, each once."""
        only = {"dataset": self.datasets, "mixing": self.mixings, "algorithm": self.algorithms}
        wanted = {name: list(some) for name, some in only.items() if some}
        found: dict[str, Cell] = {}
        for experiment in experiments:
            for cell in experiment.cells(self.reading):
                if selected(cell, wanted) and (self.extras or not cell.extra):
                    known = found.get(cell.key)
                    found[cell.key] = known if known and not cell.heat_map else cell
        return [self._with_own(cell) for cell in found.values()]

    def _with_own(self, cell: Cell) -> Cell:
        """Return a cell with what is set for all: where it says nothing else, fewer rounds too."""
        settings = {**cell.settings, **self.machine, "picture": False}
        if self.rounds is not None:
            settings["rounds"] = min(self.rounds, settings["rounds"])
        return Cell(settings, cell.variant, cell.label, cell.extra, cell.heat_map)

    def stacks(self, experiments: Sequence[Experiment], folder: Path) -> list[Stack]:
        """Return all runs asked for."""
        cells = self.cells(experiments)
        start = rules()[self.reading]["first_seed"]
        seeds = tuple(range(start, start + self.seeds))
        return [Stack(cell, self.reading, seeds, folder) for cell in cells]


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


def run_stacks(
    stacks: Sequence[Stack],
    results: Results,
    display: Display,
    *,
    workers: int = 1,
    ray: str | None = None,
    keep_models: bool = False,
) -> list[tuple[Stack, str]]:
    """Make all runs that are not there yet, and return those that failed, each with the reason.

    Several workers are as many processes, each with a stack of its own; with `ray` the stacks are
    spread over a cluster. Results are written whenever a stack is finished.
    """
    failures: list[tuple[Stack, str]] = []
    display.begin(sum(one.rounds for one in stacks), len(stacks))
    for stack, outcome in _outcomes(stacks, display.rounds_done, workers, ray, keep_models):
        if isinstance(outcome, str):
            failures.append((stack, outcome))
            display.failed(stack, outcome)
            continue
        results.add(outcome)
        display.stack_done(stack, outcome)
    return failures


Outcome = list[Recorded] | str  # what is kept, or why it failed


def _outcomes(
    stacks: Sequence[Stack],
    tell: Callable[[int], None],
    workers: int,
    ray: str | None,
    keep_models: bool,
) -> Iterator[tuple[Stack, Outcome]]:
    if ray is not None:
        yield from _on_ray(stacks, tell, ray, keep_models)
    elif workers == 1:
        for stack in stacks:
            yield stack, _made(stack, tell, keep_models)
    else:
        yield from _side_by_side(stacks, tell, workers, keep_models)


# -------------------------------------------------------------------------------------- one stack


def _made(stack: Stack, tell: Callable[[int], None], keep_models: bool) -> Outcome:
    """Make the runs of a stack here; a failure is told, and does not end the others."""
    try:
        _make(stack, tell)
        return kept(stack, keep_models)
    except Exception as error:  # a run can fail in any way; the others are to go on
        return _told(stack, error)


def _make(stack: Stack, tell: Callable[[int], None]) -> None:
    """Go on with the runs that were begun, and make the new ones as one stack."""
    new: list[Any] = []
    for seed in stack.seeds:
        folder, settings = RunFolder(stack.home(seed)), stack.settings(seed)
        if folder.finished:
            tell(settings.rounds)
            continue
        clients = gather_clients(settings)
        if folder.is_run():
            saved = folder.checkpoint()
            tell(0 if saved is None else saved["round"])
            go_on(folder, clients, lambda _: tell(1))
        else:
            new.append((settings, clients, folder.path, lambda _: tell(1)))
    if new:
        run_settings_together(new)


def kept(stack: Stack, keep_models: bool = False) -> list[Recorded]:
    """Return what is kept of a stack's runs, and make room: models take gigabytes."""
    found = []
    for seed in stack.seeds:
        folder = RunFolder(stack.home(seed))
        one = record(stack.cell, stack.reading, seed, folder)
        if stack.cell.heat_map:
            one.heat_map.extend(heat_map(stack.cell, seed, folder, stack.settings(seed)))
        found.append(one)
        if not keep_models:
            _make_room(folder)
    return found


def _make_room(folder: RunFolder) -> None:
    with plain_errors(folder.path):
        (folder.path / CHECKPOINT).unlink(missing_ok=True)
        for name in ("models", "loss_vectors"):
            shutil.rmtree(folder.path / name, ignore_errors=True)


def _told(stack: Stack, error: BaseException) -> str:
    """Write how a stack failed beside its runs, and say it in a line."""
    path = stack.folder / stack.cell.key / ERRORS
    with plain_errors(path.parent):
        write_atomically(path, "".join(traceback.format_exception(error)).encode())
    if isinstance(error, CloveError):
        return str(error)
    line = (str(error).strip() or "no more is known").splitlines()[0]
    return f"{type(error).__name__}: {line} (see {path})"


# ------------------------------------------------------------------------------------ side by side

_news: Any = None  # where a worker process tells of rounds


def _side_by_side(
    stacks: Sequence[Stack], tell: Callable[[int], None], workers: int, keep_models: bool
) -> Iterator[tuple[Stack, Outcome]]:
    """Make stacks in processes of their own, so many at a time, and yield each when it is done."""
    context = get_context("spawn")  # a forked process cannot use a GPU
    news = context.SimpleQueue()
    with ProcessPoolExecutor(workers, context, _begin_worker, (news,)) as pool:
        going: dict[Future[Outcome], Stack] = {
            pool.submit(_work, stack, keep_models): stack for stack in stacks
        }
        try:
            while going:
                done, _ = wait(going, timeout=0.2, return_when=FIRST_COMPLETED)
                while not news.empty():
                    tell(news.get())
                for one in done:
                    yield going.pop(one), _outcome(one)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _outcome(done: Future[Outcome]) -> Outcome:
    error = done.exception()
    if error is not None:  # the process itself died
        return f"{type(error).__name__}: {error}; what is done is kept, the same command goes on"
    return done.result()


def _begin_worker(news: Any) -> None:
    global _news
    _news = news
    warnings.simplefilter("ignore")  # what there is to say stands in the runs' folders


def _work(stack: Stack, keep_models: bool) -> Outcome:
    return _made(stack, _news.put, keep_models)


# ----------------------------------------------------------------------------------- on a cluster


def _on_ray(
    stacks: Sequence[Stack], tell: Callable[[int], None], address: str, keep_models: bool
) -> Iterator[tuple[Stack, Outcome]]:
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
    yield from ((one, kept(one, keep_models)) for one in stacks if not left[id(one)])
    failed: list[tuple[Stack, str]] = []

    def note(runs: Sequence[Run], error: CloveError) -> None:
        stack = whose[runs[0].home]
        failed.append((stack, _told(stack, error)))

    with ExitStack() as held:
        cluster = held.enter_context(joined(address))
        for run in held.enter_context(closing(spread(loads, cluster, note))):
            stack = whose[run.home]
            left[id(stack)] -= 1
            if not left[id(stack)]:
                yield stack, kept(stack, keep_models)
    yield from failed
