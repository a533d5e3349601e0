"""Runs followed by logs of other programs: a watcher, and what it notes when a run is finished.

Rounds are read from the run itself, so that a log whose program was away, or whose run was killed,
is filled up: what it has already is not written again.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clove.errors import CloveError, CloveWarning
from clove.folders import (
    CLIENTS,
    METRICS,
    MODELS,
    PICTURE,
    SETTINGS,
    SUMMARY,
    TIMINGS,
    TRACKING,
    write_atomically,
)
from clove.report.tables import COLUMNS
from clove.runs.compared import home
from clove.runs.folder import RunFolder, read_json
from clove.runs.loop import Record, Standing
from clove.runs.settings import Settings, data_title, from_names, read_run_settings
from clove.tracking import Log, check_kinds

KINDS, MLFLOW, TENSORBOARD = "kinds.json", "mlflow", "tensorboard"
RUN = "mlflow.json"  # where MLflow keeps the run
STEPS = "round"


@contextmanager
def tracked(
    out: str | Path | None,
    kinds: Sequence[str] | str,
    watch: Callable[[Any], None] | None,
) -> Iterator[Callable[[Any], None] | None]:
    """Give a run a watcher that also follows it by logs, and note its end where it comes to one."""
    wanted = listed(kinds)
    if not wanted:
        yield watch
        return
    if out is None:
        raise CloveError("tracking needs a folder for the run: set out")
    tracking = Tracking(Path(out), wanted)

    def tell(run: Any) -> None:
        tracking.follow(run)
        if watch is not None:
            watch(run)

    try:
        yield tell
        tracking.finish()
    finally:
        tracking.close()


def tracked_before(folder: str | Path) -> list[str]:
    """Return the logs that a run or comparison was followed by."""
    path = Path(folder) / TRACKING / KINDS
    return list(read_json(path)["kinds"]) if path.is_file() else []


def note_kinds(folder: Path, kinds: Sequence[str]) -> None:
    """Note what follows a run or comparison, for those who go on with it."""
    write_atomically(folder / TRACKING / KINDS, json.dumps({"kinds": list(kinds)}).encode())


def listed(kinds: Sequence[str] | str) -> list[str]:
    """Return the names of logs as a list, each once, where all can be written here."""
    wanted = list(dict.fromkeys([kinds] if isinstance(kinds, str) else kinds))
    check_kinds(wanted)
    return wanted


class Tracking:
    """One run's logs. `store` is where MLflow keeps runs, unless the user says where."""

    def __init__(self, folder: Path, kinds: Sequence[str], store: Path | None = None) -> None:
        self._folder, self._kinds = folder, kinds
        self._store = store or folder / TRACKING / MLFLOW
        self._logs: dict[str, Log] = {}
        self._last: dict[str, dict[str, int]] = {}
        self._failed: set[str] = set()
        self._told = 0

    def follow(self, run: Standing) -> None:
        """Note the rounds that are new."""
        if not RunFolder(self._folder).is_run():
            return  # it is on another machine, and nothing of it has been written here yet
        if not self._told:
            note_kinds(self._folder, self._kinds)
        records, timings = run.records[self._told :], getattr(run, "timings", [])[self._told :]
        self._told = len(run.records)
        for kind in self._kinds:
            if kind not in self._failed:
                with self._aside(kind):
                    self._catch_up(kind, [*records, *map(times, timings)])

    def finish(self) -> None:
        """Note the end of a finished run, and all that is missing, from its folder."""
        folder = RunFolder(self._folder)
        summary = folder.summary()
        rounds = summary["rounds"]
        timings = map(times, folder.lines(TIMINGS, rounds))
        records = [*folder.lines(METRICS, rounds), *timings]
        for kind in self._kinds:
            with self._aside(kind):
                self._catch_up(kind, records)
                if not self._logs[kind].ended:
                    figures = {column.key: summary[column.key] for column in COLUMNS}
                    self._logs[kind].end(files_of(self._folder), numbers(figures))

    def close(self) -> None:
        """Let go of the logs."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def _catch_up(self, kind: str, records: Sequence[Record]) -> None:
        if kind not in self._logs:
            settings = from_names(**read_run_settings(self._folder / SETTINGS))
            log = self._opened(kind, settings)
            log.begin(settings.flat())
            self._logs[kind], self._last[kind] = log, log.last()
        last = self._last[kind]
        for record in records:
            step = record[STEPS]
            new = {n: v for n, v in numbers(record).items() if last.get(n, 0) < step}
            if new:
                self._logs[kind].add(step, new)
                last.update((name, step) for name in new)

    def _opened(self, kind: str, settings: Settings) -> Log:
        if kind == TENSORBOARD:
            from clove.tracking.tensorboard import TensorBoardLog

            return TensorBoardLog(self._folder / TRACKING / TENSORBOARD)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        from clove.tracking.mlflow import MlflowLog, new_run

        path = self._folder / TRACKING / RUN
        if path.is_file():
            known = read_json(path)
        else:
            uri = os.environ.get("MLFLOW_TRACKING_URI") or self._store.absolute().as_uri()
            about = data_title(settings.dataset, settings.mixing)
            known = {"uri": uri, "run": new_run(uri, f"clove: {about}", run_name(settings))}
            write_atomically(path, json.dumps(known).encode())
        return MlflowLog(known["uri"], known["run"])

    @contextmanager
    def _aside(self, kind: str) -> Iterator[None]:
        """Let a run go on whose log fails, which may be on another machine."""
        try:
            yield
        except Exception as error:
            self._failed.add(kind)
            self._logs.pop(kind, None)  # how far it is, is found out when it is opened again
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            warnings.warn(
                f"{kind} cannot be written: {reason}. The run goes on; what is missing there is "
                f"written at its end, or by `clove resume {self._folder}`",
                CloveWarning,
                stacklevel=2,
            )


class Logs:
    """The logs of all runs of a comparison; MLflow keeps them in one place."""

    def __init__(self, folder: Path, kinds: Sequence[str] | str) -> None:
        self._folder = folder
        self._kinds = listed([*tracked_before(folder), *listed(kinds)])
        self._runs: dict[tuple[str, int], Tracking] = {}

    def begin(self) -> None:
        """Note what follows the comparison."""
        if self._kinds:
            note_kinds(self._folder, self._kinds)

    def follow(self, algorithm: str, seed: int, run: Standing) -> None:
        """Note what is new of a run."""
        if self._kinds:
            self._of(algorithm, seed).follow(run)

    def finish(self, summaries: Sequence[Mapping[str, Any]]) -> None:
        """Note the end of the runs that are finished."""
        for one in summaries if self._kinds else ():
            self._of(one["algorithm"], one["seed"]).finish()

    def close(self) -> None:
        """Let go of the logs."""
        for tracking in self._runs.values():
            tracking.close()

    def _of(self, algorithm: str, seed: int) -> Tracking:
        place, store = home(self._folder, algorithm, seed), self._folder / TRACKING / MLFLOW
        return self._runs.setdefault((algorithm, seed), Tracking(place, self._kinds, store))


# ------------------------------------------------------------------------------------ what is noted


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what can be drawn by round.

    >>> numbers({"round": 3, "accuracy": 0.5, "ari": None, "stable": True, "assignment": [0, 1]})
    {'accuracy': 0.5, 'stable': 1.0}
    """
    return {n: float(v) for n, v in record.items() if n != STEPS and isinstance(v, int | float)}


def times(timing: Record) -> Record:
    """Return a round's times under names of their own.

    >>> times({"round": 1, "seconds": 0.3, "losses": 0.1})
    {'round': 1, 'time/round': 0.3, 'time/losses': 0.1}
    """
    phases = {f"time/{n}": v for n, v in timing.items() if n not in (STEPS, "seconds")}
    return {STEPS: timing[STEPS], "time/round": timing["seconds"], **phases}


def run_name(settings: Settings) -> str:
    """Return what a run is called among others of its kind."""
    return f"{settings.algorithm}, seed {settings.seed}"


def files_of(folder: Path) -> dict[str, Path]:
    """Return a finished run's files worth keeping elsewhere, by the names they have there."""
    single = [folder / name for name in (PICTURE, SETTINGS, CLIENTS, SUMMARY)]
    files = [*single, *sorted((folder / MODELS).glob("*"))]
    return {path.relative_to(folder).as_posix(): path for path in files if path.is_file()}
