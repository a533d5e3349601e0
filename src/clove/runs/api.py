"""Running, loading and resuming, as users call it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from clove.data import ClientData
from clove.errors import CloveError, CloveWarning
from clove.federation import Scores
from clove.federation.parameters import move
from clove.federation.together import can_join
from clove.folders import METRICS, SETTINGS, TIMINGS
from clove.runs.build import Clients, Prepared, gather_clients, prepare, threads_restored
from clove.runs.folder import RunFolder
from clove.runs.loop import Progress, Watcher, begin, run_rounds
from clove.runs.made import data_text, new_folder
from clove.runs.result import Result, finish
from clove.runs.settings import Settings, for_own_clients, from_names, read_run_settings
from clove.runs.story import read_story, told
from clove.runs.tracked import listed, tracked, tracked_before
from clove.tasks import Task


def run(
    *,
    clients: Sequence[ClientData] | str | Path | None = None,
    task: Task | str | None = None,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    track: Sequence[str] | str = (),
    **settings: Any,
) -> Result:
    """Run a federation to its end and return the result.

    Parameters
    ----------
    clients : one's own clients, or the folder or table they are in (`clove.data.own`); without
        them `dataset` and `mixing` make the clients.
    task : what to learn, e.g. `clove.classification(MyNet)`, or a task's name.
    out : a folder to write the run to; without it the run stays in memory (`result.save`).
    watch : called after every round with the run as far as it has come.
    track : logs that follow the run, "tensorboard", "mlflow" or both; they need `out`.
    **settings : everything else by name: `algorithm`, `rounds`, `seed`, `learning_rate`, ..., and
        the options of the algorithm, the data set and the mixing. `clove options` lists them.

    Examples
    --------
    >>> result = run(dataset="digits", mixing="label-skew-1", algorithm="fedavg", rounds=2)
    >>> len(result.history)
    2
    """
    settings, handed, task = sorted_out(settings, clients, task)
    chosen = from_names(**settings)
    return run_settings(chosen, gather_clients(chosen, handed, task), out, watch, track)


def sorted_out(
    settings: dict[str, Any],
    clients: Sequence[ClientData] | str | Path | None,
    task: Task | str | None,
) -> tuple[dict[str, Any], Sequence[ClientData] | None, Task | None]:
    """Return the settings with what follows from one's own clients, the clients, and the task.

    Clients in files, and tasks by name, become settings.
    """
    if task is not None and not isinstance(task, str | Task):
        raise CloveError(f"task must be a task such as clove.classification(MyNet), not {task!r}")
    if isinstance(task, str):
        settings, task = {**settings, "task": task}, None
    if clients is None:
        return settings, None, task
    settings = for_own_clients(settings)
    if isinstance(clients, str | Path):
        return {**settings, "clients": str(clients)}, None, task
    return settings, clients, task


def run_settings(
    settings: Settings,
    clients: Clients,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    track: Sequence[str] | str = (),
) -> Result:
    """Run with settings and clients that are already made."""
    with held_if_any(out), threads_restored(), tracked(out, track, watch) as told_all:
        return start(prepare(settings, clients), out, told_all)


def held_if_any(out: str | Path | None) -> AbstractContextManager[None]:
    """Have a run's folder for oneself, where it has one."""
    return nullcontext() if out is None else RunFolder(out).held()


def run_settings_together(
    runs: Sequence[tuple[Settings, Clients, str | Path | None, Watcher | None]],
) -> list[Result]:
    """Run several settings that differ in seed or the like, as one stack where they have one shape.

    Results are those of separate runs, but for rounding (and dropout, which draws anew).
    """
    if len(runs) == 1:
        return [run_settings(*runs[0])]
    with ExitStack() as folders, threads_restored():
        prepared = [prepare(settings, clients) for settings, clients, _, _ in runs]
        if not one_shape(prepared):
            return [run_settings(*one) for one in runs]
        for _, _, out, _ in runs:
            folders.enter_context(held_if_any(out))
        going = [
            (begin(one), None if out is None else new_folder(out, one), watch)
            for one, (_, _, out, watch) in zip(prepared, runs, strict=True)
        ]
        run_rounds(going)
        return [ended(progress, folder) for progress, folder, _ in going]


def one_shape(prepared: Sequence[Prepared]) -> bool:
    """Say whether runs can go on as one stack."""
    first = prepared[0].settings
    return can_join([one.federation for one in prepared]) and all(
        one.settings.rounds == first.rounds and one.settings.training == first.training
        for one in prepared
    )


def resume(
    path: str | Path,
    *,
    clients: Sequence[ClientData] | None = None,
    task: Task | None = None,
    watch: Watcher | None = None,
    track: Sequence[str] | str = (),
) -> Result:
    """Go on with a run from its last checkpoint to its end.

    A run of one's own clients or network needs them again; data that differ are refused. A run that
    is finished is returned as it is. Logs that follow the run go on, and others may be added.
    """
    folder = RunFolder.open(path)
    with tracked(path, [*tracked_before(path), *listed(track)], watch) as told_all:
        if folder.finished:
            return load(path, task=task)
        settings = run_folder_settings(folder)
        if settings.engine == "flower":
            raise CloveError(
                f"the run in {path} is on Flower: start its server again to go on with it"
            )
        return go_on(folder, gather_clients(settings, clients, task), told_all)


def go_on(folder: RunFolder, clients: Clients, watch: Watcher | None = None) -> Result:
    """Go on with an unfinished run whose clients are gathered already."""
    with folder.held(), threads_restored():
        return _to_the_end(restored(folder, clients), folder, watch)


def go_on_with(prepared: Prepared, folder: RunFolder, watch: Watcher | None = None) -> Result:
    """Go on with an unfinished run, with a federation that is there, in a folder that is held."""
    return _to_the_end(_at_checkpoint(folder, prepared), folder, watch)


def start(prepared: Prepared, out: str | Path | None, watch: Watcher | None = None) -> Result:
    """Run from the beginning, with a federation that is there, in a folder that is held."""
    folder = None if out is None else new_folder(out, prepared)
    return _to_the_end(begin(prepared), folder, watch)


def load(path: str | Path, *, task: Task | None = None, network: str | None = None) -> Result:
    """Read a run from its folder; the clients' data are not needed.

    A network of one's own has to be handed over again, for its models and for newcomers: as `task`,
    or by its import name, `package.module:name`, where all but the network is usual.
    """
    return Result(read_story(path, task, network), RunFolder.open(path))


def _to_the_end(progress: Progress, folder: RunFolder | None, watch: Watcher | None) -> Result:
    run_rounds([(progress, folder, watch)])
    return ended(progress, folder)


def ended(progress: Progress, folder: RunFolder | None) -> Result:
    """Return the result of a run after its last round, its folder finished."""
    result = Result(told(progress), folder, progress)
    if folder is not None:
        finish(result)
    return result


def run_folder_settings(folder: RunFolder) -> Settings:
    """Return the settings a run was begun with."""
    return from_names(**read_run_settings(folder.path / SETTINGS))


def restored(folder: RunFolder, clients: Clients) -> Progress:
    """Return the run in a folder at its checkpoint, and drop what was written after that."""
    return _at_checkpoint(folder, prepare(run_folder_settings(folder), clients))


def _at_checkpoint(folder: RunFolder, prepared: Prepared) -> Progress:
    progress = _saved_progress(folder, prepared)
    folder.cut_back(progress.round)
    folder.add_data(data_text(prepared.clients))  # a kill may have come before
    return progress


def _saved_progress(folder: RunFolder, prepared: Prepared) -> Progress:
    progress = begin(prepared)
    saved = folder.checkpoint()
    if saved is None:
        return progress
    if saved["clients"]["fingerprint"] != prepared.clients.fingerprint:
        raise CloveError(
            f"the clients' data differ from those the run in {folder.path} was made with"
        )
    prepared.federation.restore(_on_device(saved["memory"], prepared))
    progress.state = replace(progress.state, **_on_device(saved["state"], prepared))
    progress.assignment = saved["assignment"]
    progress.scores = None if saved["scores"] is None else Scores(**saved["scores"])
    progress.records = folder.lines(METRICS, saved["round"])
    progress.timings = folder.lines(TIMINGS, saved["round"])
    for number in range(1, saved["round"] + 1):
        try:
            vectors = folder.loss_vectors(number)
        except CloveError as error:  # no round depends on them
            warnings.warn(f"{error}: it is left out", CloveWarning, stacklevel=2)
            vectors = None
        if vectors is not None:
            progress.loss_vectors[number] = vectors
    return progress


def _on_device(saved: dict[str, Any], prepared: Prepared) -> dict[str, Any]:
    """Move the stacks in a saved tree to the device of the run."""
    federation = prepared.federation
    if saved and all(
        hasattr(value, "device") and hasattr(value, "is_floating_point") for value in saved.values()
    ):
        return move(saved, federation.device, federation.dtype)
    return {
        key: _on_device(value, prepared) if isinstance(value, dict) else value
        for key, value in saved.items()
    }
