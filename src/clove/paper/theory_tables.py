"""The check of section 4 as a whole: four tidy tables, made side by side and kept in a folder."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from clove.errors import CloveError
from clove.folders import plain_errors, write_atomically
from clove.paper.theory import SEPARATIONS, Mixture, mixtures, one_shot, separated
from clove.paper.theory_convergence import DESCENTS, Descent, descended
from clove.runs.made import versions

Task = Callable[[], Any]


@dataclass(frozen=True)
class Tables:
    """What was found: the first clusterings, the centres, and the runs with their rounds."""

    recovery: pd.DataFrame
    separation: pd.DataFrame
    rates: pd.DataFrame
    rounds: pd.DataFrame

    def write(self, folder: Path) -> None:
        """Write the tables."""
        with plain_errors(folder, "the tables"):
            for name, table in vars(self).items():
                text = table.to_csv(index=False, float_format="%.6g")
                write_atomically(folder / file_name(name), text.encode())

    @classmethod
    def read(cls, folder: Path) -> Tables:
        """Read the tables of a folder."""
        return cls(**{name: _read(folder / file_name(name)) for name in cls.__annotations__})


def file_name(table: str) -> str:
    """Return the name of a table's file."""
    return f"theory_{table}.csv"


def _read(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise CloveError(f"{path} is not there: `clove paper theory` makes it")
    try:
        return pd.read_csv(io.BytesIO(path.read_bytes()))
    except (ValueError, OSError) as error:
        raise CloveError(f"{path} is damaged: {error}") from None


@dataclass(frozen=True)
class Plan:
    """How much is drawn and run; by default all of it."""

    draws: int = 100
    runs: int = 5
    seed: int = 0
    mixtures: Sequence[Mixture] = tuple(mixtures())
    separations: Sequence[float] = SEPARATIONS
    descents: Sequence[Descent] = DESCENTS

    def __post_init__(self) -> None:
        for name, least in (("draws", 1), ("runs", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise CloveError(f"{name} must be {least} or more, not {getattr(self, name)}")

    def tasks(self) -> list[list[Task]]:
        """Return what is to be done for each table: for recovery, for separation, for the runs."""
        seeds = range(self.seed, self.seed + self.runs)
        return [
            [partial(one_shot, mixture, self.draws, self.seed) for mixture in self.mixtures],
            [partial(separated, one, self.draws, self.seed) for one in self.separations],
            [partial(descended, one, seed) for one in self.descents for seed in seeds],
        ]

    def size(self) -> int:
        """Return how many things there are to do."""
        return sum(map(len, self.tasks()))


def check_theory(plan: Plan, tell: Callable[[], None], workers: int = 1) -> Tables:
    """Do all that a plan says, so many things at a time, and tell of each when it is done."""
    tasks = plan.tasks()
    done: list[Any] = []
    for outcome in _outcomes([task for some in tasks for task in some], workers):
        done.append(outcome)
        tell()
    first, second, third = (iter(done[_span(tasks, i)]) for i in range(3))
    rates, rounds = zip(*third, strict=True)
    return Tables(
        recovery=_with_versions(_joined(first), plan),
        separation=_with_versions(_joined(second), plan),
        rates=_with_versions(_joined(rates), plan),
        rounds=_joined(rounds),
    )


def _span(tasks: Sequence[Sequence[Task]], index: int) -> slice:
    before = sum(len(some) for some in tasks[:index])
    return slice(before, before + len(tasks[index]))


def _outcomes(tasks: Sequence[Task], workers: int) -> Iterator[Any]:
    """Yield what comes of tasks, in their order."""
    if workers == 1:
        yield from map(_call, tasks)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        try:
            yield from pool.map(_call, tasks)
        finally:
            pool.shutdown(cancel_futures=True)


def _call(task: Task) -> Any:
    """Do a task on one thread: its matrices are small, and processes are side by side already."""
    with threadpool_limits(1):
        return task()


def _joined(parts: Any) -> pd.DataFrame:
    return pd.DataFrame([row for rows in parts for row in rows])


def _with_versions(table: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Add to every row what a reader must know of how it came about."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    seed = {} if "seed" in table else {"seed": plan.seed}
    return table.assign(**seed, **versions(), date=today)
