"""Many runs spread over the machines of a Ray cluster, each folder kept here, round by round.

Settings and clients travel as values; what a worker writes in a folder of its own comes back after
every round, so that here everything stands as if the runs were made here: a kill costs the rounds
of the last second or so, and going on runs only what is missing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clove.algorithms import ALGORITHMS, Algorithm, find_algorithm
from clove.data import ClientData
from clove.errors import CloveError, CloveWarning
from clove.federation.engines import EngineChoice
from clove.runs.api import ended, one_shape, restored, run_folder_settings
from clove.runs.build import Clients, prepare, with_whole_paths
from clove.runs.carried import Carrier, Files, put
from clove.runs.cluster import Cluster
from clove.runs.folder import RunFolder
from clove.runs.loop import Progress, Record, Standing, begin, rounds
from clove.runs.made import new_folder
from clove.runs.settings import Settings

UNREAD = 8  # rounds of a run that may wait to be written here before its worker waits for us
UNWRITTEN = 1.0  # seconds that rounds are gathered for where they come faster than a disk writes
FAREWELL = 5.0  # seconds that workers have to clean up in after Ctrl-C


@dataclass(frozen=True, eq=False)
class Run:
    """One run to be made, or to go on with where its folder has been begun."""

    settings: Settings
    clients: Clients
    home: Path
    watch: Callable[[Standing], None] | None = None

    def __str__(self) -> str:
        return f"{self.settings.algorithm}, seed {self.settings.seed}"


# ----------------------------------------------------------------------------- what goes, and comes


@dataclass(frozen=True)
class Load:
    """One run as it travels: without its clients' data, which travel once for all methods."""

    settings: Settings
    clients: Clients
    algorithm: type[Algorithm[Any]]  # which may be the user's own
    files: Files  # of a run that has been begun


@dataclass(frozen=True)
class Update:
    """What a round of a run brought."""

    place: int  # of the run in its stack
    settings: Settings
    choice: EngineChoice
    records: list[Record]
    files: Files
    warnings: list[str]
    finished: bool = False


class Apart:
    """Says that runs cannot be one stack: they are to be sent one by one."""


@dataclass
class Distant:
    """A run on another machine as far as it has come."""

    settings: Settings
    choice: EngineChoice
    records: list[Record] = field(default_factory=list)

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return len(self.records)


# ------------------------------------------------------------------------------------------- here


def spread(
    stacks: Sequence[Sequence[Run]],
    cluster: Cluster,
    failed: Callable[[Sequence[Run], CloveError], None],
) -> Generator[Run, None, None]:
    """Make runs on a cluster, a stack each to a worker, and yield each when it is finished.

    Runs of a stack of several must be new. Where their clients cannot be one stack, each goes to a
    worker of its own. A worker that dies is replaced once. `failed` is told of runs that cannot be
    made, and why; the others go on.
    """
    return _Spread(cluster, failed).over(stacks)


class _Spread:
    """Runs on their way."""

    def __init__(
        self, cluster: Cluster, failed: Callable[[Sequence[Run], CloveError], None]
    ) -> None:
        self._cluster, self._ray, self._tasks = cluster, cluster.ray, 0
        self._failed = failed
        self._going: dict[Any, Sequence[Run]] = {}
        self._sent: dict[int, Any] = {}
        self._standing: dict[Run, Distant] = {}
        self._unwritten: dict[Run, Files] = {}
        self._folders: dict[Run, ExitStack] = {}  # held from the time a run is sent
        self._written = time.monotonic()

    def over(self, stacks: Sequence[Sequence[Run]]) -> Generator[Run, None, None]:
        pieces = [piece for stack in stacks for piece in _pieces(stack)]
        self._tasks = len(pieces)
        try:
            for piece in pieces:
                self._begin(piece)
            while self._going:
                yield from self._hear(self._next())
        finally:
            self._stop()
            self._write()
            self._let_go(list(self._folders))

    def _begin(self, stack: Sequence[Run]) -> None:
        """Send runs, unless another process is at one of them."""
        try:
            for run in stack:
                self._folders[run] = ExitStack()
                self._folders[run].enter_context(RunFolder(run.home).held())
        except CloveError as error:
            self._let_go(stack)
            self._failed(stack, error)
        else:
            self._send(stack)

    def _let_go(self, stack: Sequence[Run]) -> None:
        for run in stack:
            if run in self._folders:
                self._folders.pop(run).close()

    def _send(self, stack: Sequence[Run]) -> None:
        loads = [self._load(run) for run in stack]
        settings = loads[0].settings
        cores = self._cluster.cores(self._tasks, settings)
        task = self._ray.remote(
            num_cpus=cores,
            num_gpus=int(settings.device == "cuda"),
            num_returns="streaming",
            max_retries=1,
            _generator_backpressure_num_objects=UNREAD * len(stack),
        )(work)
        data = [self._data(run.clients.clients) for run in stack]
        self._going[task.remote(cores, loads, *data)] = stack

    def _load(self, run: Run) -> Load:
        folder, settings = RunFolder(run.home), run.settings
        if folder.is_run():
            settings = run_folder_settings(folder)
        return Load(
            settings=with_whole_paths(
                replace(settings, device=self._cluster.device(settings.device))
            ),
            clients=replace(run.clients, clients=[]),
            algorithm=find_algorithm(settings.algorithm),
            files=Carrier(run.home).news() if folder.is_run() else {},
        )

    def _data(self, clients: list[ClientData]) -> Any:
        """Return a reference to clients' data, which several runs share."""
        if id(clients) not in self._sent:
            self._sent[id(clients)] = self._ray.put(clients)
        return self._sent[id(clients)]

    def _next(self) -> Any:
        """Wait for a worker with news; in quiet moments, and now and then, write what has come."""
        workers = list(self._going)
        ready, _ = self._ray.wait(workers, num_returns=1, timeout=0)
        if not ready or time.monotonic() - self._written > UNWRITTEN:
            self._write()
        return (ready or self._ray.wait(workers, num_returns=1)[0])[0]

    def _write(self) -> None:
        for run in list(self._unwritten):
            put(run.home, self._unwritten.pop(run))
        self._written = time.monotonic()

    def _hear(self, worker: Any) -> Iterator[Run]:
        """Take what a worker says; yield a run that is finished."""
        self._going[worker] = stack = self._going.pop(worker)  # to the end: each has its turn
        try:
            update = self._ray.get(next(worker))
        except StopIteration:
            del self._going[worker]
            return
        except self._ray.exceptions.RayError as error:
            del self._going[worker]
            failure = _failure(error)
            failure.__cause__ = error
            self._write()
            self._let_go(stack)
            self._failed(stack, failure)
            return
        if isinstance(update, Apart):
            del self._going[worker]
            self._tasks += len(stack) - 1
            for run in stack:
                self._send([run])
            return
        run = stack[update.place]
        self._take(run, update)
        if update.finished:
            put(run.home, self._unwritten.pop(run))
            self._let_go([run])
            yield run

    def _take(self, run: Run, update: Update) -> None:
        for text in update.warnings:
            warnings.warn(text, CloveWarning, stacklevel=2)
        self._unwritten[run] = self._unwritten.get(run, {}) | update.files
        standing = self._standing.setdefault(run, Distant(update.settings, update.choice))
        standing.records += update.records
        if run.watch is not None and not update.finished:
            run.watch(standing)

    def _stop(self) -> None:
        """End what is still going, so that workers leave nothing behind on their disks."""
        for worker in self._going:
            self._ray.cancel(worker)
        if self._going:
            ends = [worker.completed() for worker in self._going]
            self._ray.wait(ends, num_returns=len(ends), timeout=FAREWELL)


def _pieces(stack: Sequence[Run]) -> Sequence[Sequence[Run]]:
    """Take runs apart that are known not to be one stack."""
    return [[run] for run in stack] if stack[0].settings.engine == "sequential" else [stack]


def _failure(error: Any) -> CloveError:
    """Say why a worker's runs cannot be made."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CloveError):
        return cause
    if cause is None:  # it is the worker that failed
        return CloveError(
            f"the worker died twice ({_first_line(error)}): see whether its machine has "
            "memory enough, and Ray's logs there; what is done is kept, the same command goes on"
        )
    hint = ""
    if isinstance(cause, ImportError):
        hint = ": all machines need the same versions of clove and of code of your own"
    return CloveError(f"{type(cause).__name__}: {_first_line(cause)}{hint}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# --------------------------------------------------------------------------------------- out there


def work(cores: int, loads: Sequence[Load], *data: list[ClientData]) -> Iterator[Update | Apart]:
    """Make the runs of a stack on this machine, and yield what each round brings.

    What is yielded, and in which order, follows from the loads alone: where Ray starts the work
    again because a worker died, what was received before fits with what comes after.
    """
    import torch

    torch.set_num_threads(cores)
    with (
        TemporaryDirectory(prefix="clove-") as scratch,
        warnings.catch_warnings(record=True) as heard,
    ):
        warnings.simplefilter("always", CloveWarning)
        runs = [
            _unpacked(load, clients, Path(scratch) / str(place))
            for place, (load, clients) in enumerate(zip(loads, data, strict=True))
        ]
        going = _begun(runs)
        if not going:
            yield Apart()
            return
        reporters = [Reporter(place, *one, heard) for place, one in enumerate(going)]
        for place in rounds(going):
            yield reporters[place].update()
        for reporter in reporters:
            yield reporter.last()


def _unpacked(load: Load, clients: list[ClientData], home: Path) -> Run:
    ALGORITHMS[load.algorithm.name] = load.algorithm
    put(home, load.files)
    return Run(load.settings, replace(load.clients, clients=clients), home)


def _begun(runs: Sequence[Run]) -> list[tuple[Progress, RunFolder]]:
    """Return runs at their start, or where they were stopped; none if they cannot be one stack."""
    folder = RunFolder(runs[0].home)
    if folder.is_run():
        return [(restored(folder, runs[0].clients), folder)]
    prepared = [prepare(run.settings, run.clients) for run in runs]
    if len(runs) > 1 and not one_shape(prepared):
        return []
    folders = [new_folder(run.home, one) for run, one in zip(runs, prepared, strict=True)]
    return [(begin(one), folder) for one, folder in zip(prepared, folders, strict=True)]


class Reporter:
    """Says what is new in a run."""

    def __init__(
        self,
        place: int,
        progress: Progress,
        folder: RunFolder,
        heard: list[warnings.WarningMessage],
    ) -> None:
        self._place, self._progress, self._folder, self._heard = place, progress, folder, heard
        self._carrier, self._told = Carrier(folder.path), 0

    def update(self, finished: bool = False) -> Update:
        """Return what is new since the last time."""
        progress, first = self._progress, self._told
        self._told = progress.round
        said = [str(one.message) for one in self._heard if issubclass(one.category, CloveWarning)]
        self._heard.clear()
        return Update(
            place=self._place,
            settings=progress.settings,
            choice=progress.choice,
            records=progress.records[first:],
            files=self._carrier.news(),
            warnings=said,
            finished=finished,
        )

    def last(self) -> Update:
        """Finish the run, and return what that brought."""
        ended(self._progress, self._folder)
        return self.update(finished=True)
