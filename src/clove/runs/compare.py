"""Several algorithms and seeds on the same clients, in one folder that survives a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from clove.algorithms import find_algorithm
from clove.data import ClientData
from clove.errors import CloveError
from clove.folders import write_atomically
from clove.report.tables import as_markdown, figures
from clove.runs.api import go_on, run_settings_together, sorted_out
from clove.runs.build import Clients, gather_clients
from clove.runs.cluster import joined
from clove.runs.folder import PICTURE, RunFolder, is_empty, plain_errors, read_json
from clove.runs.loop import Standing, plain
from clove.runs.settings import (
    GENERAL,
    Settings,
    algorithm_options,
    data_options,
    data_title,
    from_names,
    unknown_setting,
)
from clove.runs.spread import Run, spread
from clove.runs.story import read_story
from clove.tasks import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARISON = "comparison.json"
CompareWatcher = Callable[[str, int, Standing], None]


@dataclass(frozen=True)
class Comparison:
    """What a comparison leaves: the runs' summaries, one table, one folder."""

    summaries: list[dict[str, Any]]
    folder: Path

    @property
    def table(self) -> pd.DataFrame:
        """One row an algorithm, mean and std over seeds."""
        return figures(self.summaries)

    @property
    def picture(self) -> Path:
        """Where the figure is."""
        return self.folder / PICTURE


def compare(
    algorithms: Sequence[str] | str,
    *,
    seeds: int = 1,
    out: str | Path,
    clients: Sequence[ClientData] | str | Path | None = None,
    task: Task | str | None = None,
    watch: CompareWatcher | None = None,
    ray: str | None = None,
    **settings: Any,
) -> Comparison:
    """Run every algorithm with every seed on the same clients, and put them side by side.

    An option goes to the algorithms that have it; one that none has is an error. Seeds count up
    from `seed`. Done again with the same `out` and settings, it goes on where it was stopped.

    With `ray` the runs are spread over a cluster: one here (`"local"`), the one this machine
    belongs to (`"auto"`), or another (`"host:port"`).
    """
    folder = Path(out)
    if isinstance(algorithms, str):
        algorithms = [name.strip() for name in algorithms.split(",")]
    if not isinstance(seeds, int) or seeds < 1:
        raise CloveError(f"seeds must be 1 or more, not {seeds}")
    settings, clients, task = sorted_out(settings, clients, task)
    _check_options(algorithms, settings)
    first = int(settings.pop("seed", 0))
    wanted = {
        algorithm: [
            _settings_for(algorithm, {**settings, "seed": seed})
            for seed in range(first, first + seeds)
        ]
        for algorithm in algorithms
    }
    with ExitStack() as held:
        cluster = None if ray is None else held.enter_context(joined(ray))
        _claim(folder, {"algorithms": list(algorithms), "seeds": seeds, "seed": first, **settings})
        missing = _missing(folder, wanted, clients, task, watch)
        if cluster is None:
            for stack in missing:
                _make(stack)
        else:
            for _ in held.enter_context(closing(spread(list(missing), cluster))):
                pass  # each is in its folder
    homes = [_home(folder, one.algorithm, one.seed) for many in wanted.values() for one in many]
    comparison = Comparison([RunFolder(home).summary() for home in homes], folder)
    _write(comparison)
    return comparison


def _missing(
    folder: Path,
    wanted: dict[str, list[Settings]],
    clients: Sequence[ClientData] | None,
    task: Task | None,
    watch: CompareWatcher | None,
) -> Iterator[list[Run]]:
    """Yield the runs that are not finished: each one begun by itself, the new ones of a method."""
    gathered: dict[int, Clients] = {}
    for many in wanted.values():
        new: list[Run] = []
        for settings in many:
            seed, home = settings.seed, _home(folder, settings.algorithm, settings.seed)
            if RunFolder(home).finished:
                continue
            if seed not in gathered:
                gathered[seed] = gather_clients(settings, clients, task)
            run = Run(settings, gathered[seed], home, _teller(settings, watch))
            if RunFolder(home).is_run():
                yield [run]
            else:
                new.append(run)
        if new:
            yield new


def _make(stack: list[Run]) -> None:
    """Make runs here: go on with one, or begin several as one stack."""
    folder = RunFolder(stack[0].home)
    if folder.is_run():
        go_on(folder, stack[0].clients, stack[0].watch)
    else:
        run_settings_together([(run.settings, run.clients, run.home, run.watch) for run in stack])


def resume_comparison(
    path: str | Path, watch: CompareWatcher | None = None, ray: str | None = None
) -> Comparison:
    """Go on with a comparison that was stopped, wherever it was begun."""
    saved = read_json(Path(path) / COMPARISON)
    algorithms = saved.pop("algorithms")
    return compare(algorithms, out=path, watch=watch, ray=ray, **saved)


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
        if folder.exists() and not folder.is_dir():
            raise CloveError(f"{folder} is a file: choose another folder for the comparison")
        if not is_empty(folder):
            raise CloveError(f"{folder} is not empty: choose another folder for the comparison")
        write_atomically(path, text.encode())


def _teller(settings: Settings, watch: CompareWatcher | None) -> Callable[[Standing], None]:
    def tell(standing: Standing) -> None:
        if watch is not None:
            watch(settings.algorithm, settings.seed, standing)

    return tell


def _write(comparison: Comparison) -> None:
    """Write the table and the figure."""
    folder = comparison.folder
    with plain_errors(folder):
        write_atomically(folder / "table.md", as_markdown(comparison.table).encode())
        write_atomically(folder / "table.csv", comparison.table.to_csv(index=False).encode())
        _figure(comparison).savefig(comparison.picture)


def _figure(comparison: Comparison) -> Figure:
    from clove.report.figures import Curves, draw  # drawing is loaded when it is needed

    names = list(dict.fromkeys(summary["algorithm"] for summary in comparison.summaries))
    stories = {
        name: [
            read_story(_home(comparison.folder, name, s["seed"]))
            for s in comparison.summaries
            if s["algorithm"] == name
        ]
        for name in names
    }
    curves = [Curves(name, [story.records for story in stories[name]]) for name in names]
    grouping = [name for name in names if find_algorithm(name).clusters]
    embedding = stories[grouping[0]][0].embedding() if grouping else None
    one, seeds = comparison.summaries[0], len(stories[names[0]])
    title = (
        f"{data_title(one['dataset'], one['mixing'])}, {one['clients']} clients, "
        f"{seeds} seed{'s' if seeds > 1 else ''}"
    )
    return draw(curves, embedding, title)


def _home(folder: Path, algorithm: str, seed: int) -> Path:
    return folder / algorithm / f"seed-{seed}"
