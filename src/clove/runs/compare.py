"""Several algorithms and seeds on the same clients, in one folder that survives a kill."""

from __future__ import annotations

import json
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from clove.algorithms import find_algorithm, known_algorithms
from clove.data import ClientData
from clove.errors import CloveError, CloveWarning
from clove.federation.engines import find_device
from clove.folders import COMPARISON, ERRORS, held, is_empty, plain_errors, write_atomically
from clove.runs.api import go_on, run_settings_together, sorted_out
from clove.runs.build import Clients, gather_clients, simulated_algorithm
from clove.runs.cluster import joined
from clove.runs.compared import Comparison, home
from clove.runs.folder import RunFolder, read_json
from clove.runs.loop import Standing, plain
from clove.runs.settings import (
    GENERAL,
    Settings,
    algorithm_options,
    data_options,
    from_names,
    unknown_setting,
)
from clove.runs.spread import Run, spread
from clove.runs.tracked import Logs
from clove.tasks import Task

ALL = "all"  # stands for every method that applies
CompareWatcher = Callable[[str, int, Standing], None]


class Display(Protocol):
    """What shows a comparison as it goes, such as `clove.report.live_table.LiveTable`."""

    def begin(
        self, algorithms: Sequence[str], seeds: int, rounds: int, done: Sequence[Mapping[str, Any]]
    ) -> None:
        """Take note of what is to come, and of the summaries of runs done before."""

    def update(self, algorithm: str, seed: int, run: Any) -> None:
        """Take note of a round."""

    def failed(self, algorithm: str) -> None:
        """Take note of a failure."""


def compare(
    algorithms: Sequence[str] | str,
    *,
    seeds: int = 1,
    out: str | Path,
    clients: Sequence[ClientData] | str | Path | None = None,
    task: Task | str | None = None,
    watch: CompareWatcher | None = None,
    display: Display | None = None,
    ray: str | None = None,
    track: Sequence[str] | str = (),
    **settings: Any,
) -> Comparison:
    """Run every algorithm with every seed on the same clients, and put them side by side.

    `"all"` stands for every algorithm that can be run on these clients. An option goes to the
    algorithms that have it; one that none has is an error. Seeds count up from `seed`. Done again
    with the same `out` and settings, it goes on where it was stopped: what is done is not done
    again, and what failed is tried again.

    An algorithm that fails is reported, in the table and as a warning, and the others go on; where
    all fail, that is an error.

    With `ray` the runs are spread over a cluster: one here (`"local"`), the one this machine
    belongs to (`"auto"`), or another (`"host:port"`). `watch` is called after every round of every
    run, `display` is told of everything. `track` names logs that follow the runs, "tensorboard",
    "mlflow" or both.
    """
    folder = Path(out)
    if not isinstance(seeds, int) or seeds < 1:
        raise CloveError(f"seeds must be 1 or more, not {seeds}")
    settings, own, task = sorted_out(settings, clients, task)
    logs = Logs(folder, track)
    contest = _Contest(folder, own, task, watch, display, logs)
    algorithms = contest.entrants(_names(algorithms), settings)
    first = int(settings.pop("seed", 0))
    contest.wanted = [
        _settings_for(algorithm, {**settings, "seed": seed})
        for algorithm in algorithms
        for seed in range(first, first + seeds)
    ]
    with ExitStack() as entered:
        cluster = None if ray is None else entered.enter_context(joined(ray))
        entered.enter_context(held(folder, "the comparison"))
        _claim(folder, {"algorithms": algorithms, "seeds": seeds, "seed": first, **settings})
        entered.enter_context(closing(logs)).begin()
        contest.begin(algorithms, seeds)
        missing = contest.missing()
        try:
            if cluster is None:
                for stack in missing:
                    contest.make(stack)
            else:
                spreading = closing(spread(list(missing), cluster, contest.failed))
                for _ in entered.enter_context(spreading):
                    pass  # each is in its folder
        except _Watching as outside:
            raise outside.error from None
        return contest.ended()


def _names(algorithms: Sequence[str] | str) -> list[str]:
    if isinstance(algorithms, str):
        return [name.strip() for name in algorithms.split(",") if name.strip()]
    return list(algorithms)


@dataclass
class _Contest:
    """A comparison on its way."""

    folder: Path
    own: Sequence[ClientData] | None
    task: Task | None
    watch: CompareWatcher | None
    display: Display | None
    logs: Logs
    wanted: list[Settings] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    gathered: dict[int, Clients] = field(default_factory=dict)

    def clients(self, settings: Settings) -> Clients:
        """Return the clients of a run: those of a seed are the same for all algorithms."""
        if settings.seed not in self.gathered:
            self.gathered[settings.seed] = gather_clients(settings, self.own, self.task)
        return self.gathered[settings.seed]

    # ---------------------------------------------------------------------------- who takes part

    def entrants(self, names: list[str], settings: dict[str, Any]) -> list[str]:
        """Return the algorithms to compare; of all, those that apply."""
        if ALL not in names:
            _check_options(names, settings)
            return names
        every = dict.fromkeys([*(name for name in names if name != ALL), *known_algorithms()])
        found = [name for name in every if _applies(name, find_algorithm)]
        _check_options(found, settings)
        chosen = {name: _settings_for(name, settings) for name in found}
        base = chosen[found[0]]
        clients, device = self.clients(base), find_device(base.device)

        def begun(name: str) -> None:
            simulated_algorithm(chosen[name], clients, device)[0].begin()

        fitting = [name for name in found if _applies(name, begun)]
        if not fitting:
            raise CloveError("no algorithm applies to these clients")
        return fitting

    # ------------------------------------------------------------------------------------- runs

    def home(self, settings: Settings) -> Path:
        """Return the folder of a run."""
        return home(self.folder, settings.algorithm, settings.seed)

    def begin(self, algorithms: list[str], seeds: int) -> None:
        """Forget earlier failures, and tell the display what is to come."""
        for algorithm in algorithms:
            (self.folder / algorithm / ERRORS).unlink(missing_ok=True)
        if self.display is not None:
            self.display.begin(algorithms, seeds, self.wanted[0].rounds, self.finished())

    def finished(self) -> list[dict[str, Any]]:
        """Return the summaries of the runs that are finished."""
        folders = [RunFolder(self.home(settings)) for settings in self.wanted]
        return [folder.summary() for folder in folders if folder.finished]

    def missing(self) -> Iterator[list[Run]]:
        """Yield the runs not finished: those begun one by one, the new ones of a method."""
        by_algorithm: dict[str, list[Run]] = {}
        for settings in self.wanted:
            place = self.home(settings)
            if RunFolder(place).finished:
                continue
            run = Run(settings, self.clients(settings), place, self._teller(settings))
            if RunFolder(place).is_run():
                yield [run]
            else:
                by_algorithm.setdefault(settings.algorithm, []).append(run)
        yield from by_algorithm.values()

    def make(self, stack: list[Run]) -> None:
        """Make runs here: go on with one, or begin several as one stack."""
        folder = RunFolder(stack[0].home)
        try:
            if folder.is_run():
                go_on(folder, stack[0].clients, stack[0].watch)
            else:
                run_settings_together(
                    [(run.settings, run.clients, run.home, run.watch) for run in stack]
                )
        except Exception as error:  # a method of somebody else's can fail in any way
            self.failed(stack, error)

    def _teller(self, settings: Settings) -> Callable[[Standing], None]:
        shown = None if self.display is None else self.display.update
        listeners = [self.logs.follow, self.watch, shown]

        def tell(standing: Standing) -> None:
            for listen in filter(None, listeners):
                try:
                    listen(settings.algorithm, settings.seed, standing)
                except Exception as error:
                    raise _Watching(error) from error

        return tell

    # -------------------------------------------------------------------------------------- ends

    def failed(self, stack: Sequence[Run], error: Exception) -> None:
        """Take note of runs that failed, with the whole story in the method's folder."""
        known = isinstance(error, CloveError)
        first_line = (str(error).strip() or "no more is known").splitlines()[0]
        what = str(error) if known else f"{type(error).__name__}: {first_line}"
        for run in stack:
            self.failures.append(
                {"algorithm": run.settings.algorithm, "seed": run.settings.seed, "error": what}
            )
        path = stack[0].home.parent / ERRORS
        story = f"{'; '.join(map(str, stack))}\n{''.join(traceback.format_exception(error))}\n"
        with plain_errors(self.folder):
            before = path.read_bytes() if path.exists() else b""
            write_atomically(path, before + story.encode())
        if self.display is not None:
            self.display.failed(stack[0].settings.algorithm)

    def ended(self) -> Comparison:
        """Write what came of it all."""
        summaries, words = self.finished(), _in_words(self.failures)
        if not summaries:
            raise CloveError(words)
        comparison = Comparison(summaries, self.folder, self.failures)
        comparison.write()
        self.logs.finish(summaries)
        if self.failures and self.display is None:
            warnings.warn(words, CloveWarning, stacklevel=3)
        return comparison


def _applies(name: str, attempt: Callable[[str], Any]) -> bool:
    """Try something with an algorithm; where it cannot be done, say that it is left out."""
    try:
        attempt(name)
    except Exception as error:  # a method of somebody else's can fail in any way
        reason = str(error) if isinstance(error, CloveError) else f"{type(error).__name__}: {error}"
        warnings.warn(f"{name} is left out: {reason}", CloveWarning, stacklevel=2)
        return False
    return True


class _Watching(BaseException):
    """An error of somebody who watches: no failure of the method that was watched."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _in_words(failures: Sequence[Mapping[str, Any]]) -> str:
    """Say which runs failed, and why."""
    whose: dict[str, list[str]] = {}
    for one in failures:
        whose.setdefault(one["error"], []).append(f"{one['algorithm']}, seed {one['seed']}")
    return "\n".join(f"{'; '.join(runs)}: {error}" for error, runs in whose.items())


def resume_comparison(
    path: str | Path,
    watch: CompareWatcher | None = None,
    ray: str | None = None,
    display: Display | None = None,
    track: Sequence[str] | str = (),
) -> Comparison:
    """Go on with a comparison that was stopped, wherever it was begun."""
    saved = read_json(Path(path) / COMPARISON)
    algorithms = saved.pop("algorithms")
    return compare(
        algorithms, out=path, watch=watch, ray=ray, display=display, track=track, **saved
    )


def is_comparison(path: str | Path) -> bool:
    """Say whether a folder holds a comparison."""
    return (Path(path) / COMPARISON).is_file()


def _check_options(algorithms: Sequence[str], settings: dict[str, Any]) -> None:
    if not algorithms or len(set(algorithms)) != len(algorithms):
        raise CloveError(f"name each algorithm to compare once, not {', '.join(algorithms)!r}")
    base = from_names(**{n: v for n, v in settings.items() if n in GENERAL})
    known = {*GENERAL, *data_options(base.dataset, base.mixing)}
    for algorithm in algorithms:
        known |= set(algorithm_options(algorithm))
    for name in settings:
        if name not in known:
            raise unknown_setting(name, base, ", ".join(algorithms), known)


def _settings_for(algorithm: str, settings: dict[str, Any]) -> Settings:
    """Return the settings of one run: without options only other algorithms have."""
    base = from_names(**{n: v for n, v in settings.items() if n in GENERAL})
    fitting = {
        *GENERAL,
        *algorithm_options(algorithm),
        *data_options(base.dataset, base.mixing),
    }
    mine = {name: value for name, value in settings.items() if name in fitting}
    return from_names(**{**mine, "algorithm": algorithm})


def _claim(folder: Path, content: dict[str, Any]) -> None:
    """Begin a comparison in a folder, or go on with the same one."""
    path = folder / COMPARISON
    text = json.dumps(plain(content), indent=2, default=str) + "\n"
    with plain_errors(folder):
        if path.is_file():
            if read_json(path) != json.loads(text):
                raise CloveError(f"{folder} holds another comparison: choose another folder")
            return
        if not is_empty(folder):
            raise CloveError(f"{folder} is not empty: choose another folder for the comparison")
        write_atomically(path, text.encode())
