"""Several algorithms and seeds on the same clients, in one folder that survives a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from clove.algorithms import find_algorithm
from clove.data import ClientData
from clove.errors import CloveError
from clove.folders import write_atomically
from clove.report.tables import as_markdown, figures
from clove.runs.api import resume, run_settings_together, sorted_out
from clove.runs.build import Clients, gather_clients
from clove.runs.folder import PICTURE, RunFolder, is_empty, plain_errors, read_json
from clove.runs.loop import Progress, Watcher, plain
from clove.runs.settings import (
    GENERAL,
    Settings,
    algorithm_options,
    data_options,
    data_title,
    from_names,
    unknown_setting,
)
from clove.runs.story import read_story
from clove.tasks import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARISON = "comparison.json"
CompareWatcher = Callable[[str, int, Progress], None]


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
    **settings: Any,
) -> Comparison:
    """Run every algorithm with every seed on the same clients, and put them side by side.

    An option goes to the algorithms that have it; one that none has is an error. Seeds count up
    from `seed`. Done again with the same `out` and settings, it goes on where it was stopped.
    """
    folder = Path(out)
    if isinstance(algorithms, str):
        algorithms = [name.strip() for name in algorithms.split(",")]
    if not isinstance(seeds, int) or seeds < 1:
        raise CloveError(f"seeds must be 1 or more, not {seeds}")
    settings, clients, task = sorted_out(settings, clients, task)
    _check_options(algorithms, settings)
    first = int(settings.pop("seed", 0))
    _claim(folder, {"algorithms": list(algorithms), "seeds": seeds, "seed": first, **settings})
    summaries: list[dict[str, Any]] = []
    gathered: dict[int, Clients] = {}
    for algorithm in algorithms:
        new: list[tuple[Settings, Clients, Path, Watcher]] = []
        for seed in range(first, first + seeds):
            chosen = _settings_for(algorithm, {**settings, "seed": seed})
            tell = _teller(chosen, watch)
            home = folder / algorithm / f"seed-{seed}"
            if RunFolder(home).is_run():
                result = resume(home, clients=clients, task=task, watch=tell)
                summaries.append(result.summary())
                continue
            if seed not in gathered:
                gathered[seed] = gather_clients(chosen, clients, task)
            new.append((chosen, gathered[seed], home, tell))
        if new:
            summaries += [result.summary() for result in run_settings_together(new)]
    comparison = Comparison(sorted(summaries, key=_place(algorithms)), folder)
    _write(comparison)
    return comparison


def resume_comparison(path: str | Path, watch: CompareWatcher | None = None) -> Comparison:
    """Go on with a comparison that was stopped."""
    saved = read_json(Path(path) / COMPARISON)
    algorithms = saved.pop("algorithms")
    return compare(algorithms, out=path, watch=watch, **saved)


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


def _teller(settings: Settings, watch: CompareWatcher | None) -> Watcher:
    def tell(progress: Progress) -> None:
        if watch is not None:
            watch(settings.algorithm, settings.seed, progress)

    return tell


def _place(algorithms: Sequence[str]) -> Callable[[dict[str, Any]], tuple[int, int]]:
    return lambda summary: (list(algorithms).index(summary["algorithm"]), summary["seed"])


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
            read_story(_home(comparison.folder, s))
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


def _home(folder: Path, summary: dict[str, Any]) -> Path:
    return folder / str(summary["algorithm"]) / f"seed-{summary['seed']}"
